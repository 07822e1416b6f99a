"""Tests of checkpoint checks: each fault that occurs in practice is found, and the result says what to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seer.errors import ConfigError, ModelError
from seer.models.checkpoint import load, load_encoder, read_json, read_processor
from seer.models.checks import Check, check_model
from seer.protocol.control import CONTROL


@pytest.fixture
def broken(small_checkpoint_dir: Path, tmp_path: Path) -> Callable[..., dict[str, Check]]:
    """Return a function that copies a checkpoint, changes files in it and returns the results of the checks by name."""

    def check_with(**changes: Callable[[Any], Any]) -> dict[str, Check]:
        folder = tmp_path / "model"
        shutil.copytree(small_checkpoint_dir, folder, dirs_exist_ok=True)
        for stem, change in changes.items():
            (path,) = folder.glob(f"{stem}.*")
            text = path.read_text(encoding="utf-8")
            path.write_text(change(text) if path.suffix == ".jinja" else json.dumps(change(json.loads(text))))
        return {check.name: check for check in check_model(folder)}

    return check_with


def test_check_model_good_checkpoint_passes_every_check(broken):
    found = broken()
    assert all(check.status == "ok" for check in found.values()), found
    names = ["folder", "control tokens", "configuration", "stop tokens", "plain text", "chat template", "processor"]
    assert list(found) == names


def test_check_model_reports_several_faults_at_once(broken, small_checkpoint):
    control = small_checkpoint.encoder.control
    found = broken(
        config=lambda config: config | {"image_token_id": 5},
        generation_config=lambda config: config | {"eos_token_id": [control(CONTROL.observation)]},
        chat_template=lambda template: template.replace("[gMASK]", ""),
    )
    assert {name: check.status for name, check in found.items() if check.status != "ok"} == {
        "configuration": "FAIL",
        "stop tokens": "note",
        "chat template": "note",
    }
    assert f"config.json has image_token_id=5, but the tokenizer's <|image|> is {control(CONTROL.image)}" in (
        found["configuration"].detail
    )
    assert "the model must continue after the tool result" in found["stop tokens"].detail
    assert "save the checkpoint again with seer.models.checkpoint.save" in found["chat template"].detail
    assert found["plain text"].ok


def test_check_model_finds_faults_that_affect_only_other_programs(broken):
    """vLLM uses head_dim and transformers does not; a stock server loses the messages that the template drops."""

    def with_head(config: dict[str, Any]) -> dict[str, Any]:
        return config | {"text_config": config["text_config"] | {"head_dim": 8}}

    found = broken(
        config=with_head,
        generation_config=lambda config: config | {"eos_token_id": 0},
        chat_template=lambda template: "{% if messages | length == 1 %}" + template + "{% endif %}",
    )
    assert "text_config.head_dim is 8" in found["configuration"].detail
    assert "remove head_dim" in found["configuration"].detail
    assert f"does not stop at {CONTROL.user}" in found["stop tokens"].detail
    assert "for other programs, set eos_token_id to" in found["stop tokens"].detail
    assert "loses tool calls or observations" in found["chat template"].detail


def test_check_model_finds_tokenizer_that_changes_text(broken):
    found = broken(tokenizer=lambda tokenizer: tokenizer | {"normalizer": {"type": "Lowercase"}})
    assert not found["plain text"].ok
    assert "decodes to 'a [gmask] b'; use a tokenizer.json that keeps every byte" in found["plain text"].detail


@pytest.mark.parametrize(
    ("content", "message"),
    [("[1]", "contains a JSON list; it must be a JSON object"), ("{", "is not readable JSON .*; copy the checkpoint")],
)
def test_read_json_rejects_file_without_a_json_object(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        read_json(tmp_path / "config.json")


def test_check_model_stops_at_folder_without_checkpoint(tmp_path):
    (check,) = check_model(tmp_path)
    assert (check.name, check.ok) == ("folder", False)
    assert str(tmp_path) in check.detail


# ── Unreadable checkpoints: one clear error in every function that opens one ─────────────────────

UNUSABLE_CHANGES = [
    lambda config: config | {"text_config": config["text_config"] | {"head_dim": 7}},  # odd, which RoPE cannot use
    lambda config: config | {"text_config": 5},
    lambda config: config | {"vision_config": ["x"]},
]


def openers(folder: Path) -> list[Callable[[], Any]]:
    from train.model.loading import without_weights
    from train.planning.report import model_shape

    return [
        lambda: load(folder, device="cpu"),
        lambda: load_encoder(folder),
        lambda: without_weights(str(folder)),
        lambda: model_shape(str(folder)),
    ]


@pytest.mark.parametrize("change", UNUSABLE_CHANGES, ids=range(len(UNUSABLE_CHANGES)))
def test_load_rejects_configuration_that_transformers_rejects(small_checkpoint_dir, tmp_path, change):
    """transformers and the libraries below it raise errors of many classes."""
    folder = tmp_path / "model"
    shutil.copytree(small_checkpoint_dir, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    for opener in openers(folder):
        with pytest.raises(ModelError, match="does not load|is not a GLM-4V configuration"):
            opener()
    assert not all(check.ok for check in check_model(folder))


def test_load_rejects_model_of_another_family(small_checkpoint_dir, tmp_path):
    from train.model.loading import without_weights

    folder = tmp_path / "model"
    shutil.copytree(small_checkpoint_dir, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "no_such_model"}))
    for opener in (lambda: load(folder, device="cpu"), lambda: without_weights(str(folder))):
        with pytest.raises(ModelError, match="does not load as a GLM-4V-family model: .*; use a complete checkpoint"):
            opener()


KEYS = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std", "resample", "size")
ODD = [0, -1, 1.5, "x", True, [], [1, 2], [1, 2, "x"], ["x"], {"shortest_edge": None}, {"longest_edge": "x"}]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("key", KEYS)
def test_read_processor_names_impossible_setting(key, value):
    if (key, value) in [("resample", 0), ("size", 0), ("size", [])]:
        read_processor({key: value})  # 0 is a valid filter; an empty size counts as absent
        return
    named = next(iter(value)) if key == "size" and isinstance(value, dict) else key
    with pytest.raises(ModelError, match=rf"preprocessor_config.json has {named}="):
        read_processor({key: value})


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("nope", "auto"), ("cpu:", "auto"), ("", "auto"), ("cpu", "banana"), ("cpu", "nn"), ("cuda:99", "auto")],
)
def test_load_rejects_unavailable_device_or_dtype(small_checkpoint_dir, device, dtype):
    with pytest.raises(ConfigError, match="is not available .*; give a device such as cpu"):
        load(small_checkpoint_dir, device=device, dtype=dtype)
