"""Checks of stock checkpoints, which Seer did not save: notes for what Seer supplies itself, failures for what it needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from seer.cli.main import app
from seer.models.checks import Check, check_model
from seer.models.small import SmallShape, build_small
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.rendering import render_text

SHAPE = SmallShape(hidden=64, text_layers=1, text_heads=2, text_kv_heads=2, text_ffn=64, vision_depth=1, vision_heads=2)
STOCK_TEMPLATE = (
    "[gMASK]<sop>\n{%- for m in messages %}<|{{ m.role }}|>\n{% for c in m.content %}"
    "{% if c.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "{%- endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""A chat template in the manner of the published ones: a line break after <sop>, and no tools."""


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {
        name: build_small(folder / name, shape=SHAPE, corpus=["the text of a page"], family=name)
        for name in ("glm-4.1v", "glm-4.5v")
    }


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def make_stock(source: Path, folder: Path) -> Path:
    """Turn a small checkpoint into one as published: another template, other stops, and settings in the older places."""
    shutil.copytree(source, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (folder / "processor_config.json").unlink(missing_ok=True)

    def use_older_keys(config: dict[str, Any]) -> None:
        text = config["text_config"]
        rope = text.pop("rope_parameters")
        text["rope_theta"], text["partial_rotary_factor"] = rope["rope_theta"], rope["partial_rotary_factor"]
        text["rope_scaling"] = {"rope_type": "default", "mrope_section": rope["mrope_section"]}

    edit(folder / "config.json", use_older_keys)
    (folder / "chat_template.jinja").write_text(STOCK_TEMPLATE)
    stops = [tokenizer.convert_tokens_to_ids(name) for name in ("<|endoftext|>", "<|user|>", "<|observation|>")]
    edit(folder / "generation_config.json", lambda settings: settings.update(eos_token_id=stops, do_sample=True))
    return folder


def rename_tokens(folder: Path, names: dict[str, str]) -> None:
    """Give added tokens other names, in both files that list them."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / file).read_text(encoding="utf-8")
        for old, new in names.items():
            text = text.replace(json.dumps(old), json.dumps(new))
        (folder / file).write_text(text, encoding="utf-8")


def statuses(folder: Path) -> dict[str, str]:
    return {check.name: check.status for check in check_model(folder)}


def details(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in check_model(folder)}


@pytest.mark.parametrize("family", ["glm-4.1v", "glm-4.5v"])
def test_check_command_on_stock_checkpoint_passes_with_notes(families, tmp_path: Path, family: str) -> None:
    """Nothing is in the way: template and stops are Seer's own, and positions equal transformers'."""
    folder = make_stock(families[family], tmp_path / "stock")
    shown = CliRunner().invoke(app, ["check", str(folder)])
    assert shown.exit_code == 0, shown.output
    lines = dict(line.split(": ", 1) for line in shown.output.splitlines())
    assert list(lines) == [
        "ok    folder",
        "ok    control tokens",
        "ok    configuration",
        "note  stop tokens",
        "ok    plain text",
        "note  chat template",
        "ok    processor",
        "ok    positions",
    ]
    assert "stops at <|observation|>" in lines["note  stop tokens"]
    assert "Seer's engines use their own stops; for other programs, set eos_token_id to" in lines["note  stop tokens"]
    assert "Seer's engines write their prompts without the template" in lines["note  chat template"]
    assert "`seer-train run` trains it" in lines["note  chat template"]
    record = json.loads(CliRunner().invoke(app, ["check", str(folder), "--no-weights", "--json"]).stdout)
    assert record["ok"]
    assert [one["name"] for one in record["checks"] if one["note"]] == ["stop tokens", "chat template"]


def test_stock_checkpoint_reads_as_the_same_checkpoint_saved_by_seer(families, tmp_path: Path) -> None:
    """The notes are true: Seer's engine gives the same answer with either template and stops."""
    document = render_text("Invoice\nLaptop 14\nMonitor 3", "miniature")
    answers = []
    for folder in (families["glm-4.5v"], make_stock(families["glm-4.5v"], tmp_path / "stock")):
        reader = Reader.from_checkpoint(folder, ReadingPolicy(max_new_tokens=40), device="cpu")
        answer = reader.ask(document, "What costs 14?")
        answers.append((answer.text, [(step.name, step.inputs, step.outputs) for step in answer.trace]))
    assert answers[0][0]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda folder: (folder / "chat_template.jinja").unlink(), "the checkpoint has no chat template"),
        (
            lambda folder: (folder / "chat_template.jinja").write_text("{{ raise_exception('no images here') }}"),
            "does not render a chat with images (no images here)",
        ),
        (lambda folder: (folder / "chat_template.jinja").write_text("{% if %}"), "does not render a chat with images"),
    ],
    ids=["none", "raises", "broken"],
)
def test_check_model_without_usable_template_has_a_note(families, tmp_path: Path, change, detail: str) -> None:
    folder = make_stock(families["glm-4.1v"], tmp_path / "stock")
    change(folder)
    found = {check.name: check for check in check_model(folder)}
    assert found["chat template"].status == "note"
    assert detail in found["chat template"].detail
    assert found["processor"].status == "ok"


def test_check_model_without_generation_config_has_a_note(families, tmp_path: Path) -> None:
    folder = make_stock(families["glm-4.1v"], tmp_path / "stock")
    (folder / "generation_config.json").unlink()
    assert statuses(folder)["stop tokens"] == "note"
    assert "does not stop at <|user|>" in details(folder)["stop tokens"]


def test_check_command_names_missing_control_tokens_and_exits_with_2(families, tmp_path: Path) -> None:
    """A tokenizer of the family can have other tags, such as answer tags, and lack those of the tool call."""
    folder = make_stock(families["glm-4.1v"], tmp_path / "stock")
    rename_tokens(folder, {"<tool_call>": "<answer>", "</tool_call>": "</answer>"})
    shown = CliRunner().invoke(app, ["check", str(folder)])
    assert shown.exit_code == 2
    assert "ok    folder" in shown.output
    assert "FAIL  encoder: the tokenizer lacks <tool_call>, </tool_call> as single tokens" in shown.output


def test_check_model_fails_for_faults_that_seer_cannot_supply(families, tmp_path: Path) -> None:
    folder = make_stock(families["glm-4.1v"], tmp_path / "stock")
    edit(folder / "config.json", lambda config: config.update(image_token_id=5))
    edit(folder / "tokenizer.json", lambda tokenizer: tokenizer.update(normalizer={"type": "Lowercase"}))
    found = statuses(folder)
    assert {name for name, status in found.items() if status == "FAIL"} >= {"configuration", "plain text"}
    assert found["chat template"] == "note"


def test_check_model_without_image_ids_in_config_uses_those_of_transformers(families, tmp_path: Path) -> None:
    """A small tokenizer has other ids than the large models, so here the missing key is a fault."""
    folder = make_stock(families["glm-4.1v"], tmp_path / "stock")
    edit(folder / "config.json", lambda config: config.pop("image_start_token_id"))
    assert "config.json has image_start_token_id=151339, but" in details(folder)["configuration"]


def test_check_status_of_a_failure_is_never_a_note() -> None:
    assert [Check("x", ok, "", note=note).status for ok, note in [(True, False), (True, True), (False, True)]] == [
        "ok",
        "note",
        "FAIL",
    ]
