"""`seer check` on checkpoints with the faults that occur: each is found, and the remark says what to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seer.errors import ConfigError, ModelError
from seer.models.checkpoint import load, load_encoder, read_processor
from seer.models.checks import Check, check_model
from seer.protocol.control import CONTROL


@pytest.fixture
def broken(small_checkpoint_dir: Path, tmp_path: Path) -> Callable[..., dict[str, Check]]:
    """What the checks say, by name, of a copy in which files were changed."""

    def look(**changes: Callable[[Any], Any]) -> dict[str, Check]:
        folder = tmp_path / "model"
        shutil.copytree(small_checkpoint_dir, folder, dirs_exist_ok=True)
        for stem, change in changes.items():
            (path,) = folder.glob(f"{stem}.*")
            text = path.read_text(encoding="utf-8")
            path.write_text(change(text) if path.suffix == ".jinja" else json.dumps(change(json.loads(text))))
        return {check.name: check for check in check_model(folder)}

    return look


def test_a_right_checkpoint_passes_and_nothing_is_left_out(broken):
    found = broken()
    assert all(check.ok for check in found.values()), found
    names = ["folder", "control tokens", "configuration", "stop tokens", "plain text", "chat template", "processor"]
    assert list(found) == names


def test_every_fault_is_found_in_one_go(broken, small_checkpoint):
    control = small_checkpoint.encoder.control
    found = broken(
        config=lambda config: config | {"image_token_id": 5},
        generation_config=lambda config: config | {"eos_token_id": [control(CONTROL.observation)]},
        chat_template=lambda template: template.replace("[gMASK]", ""),
    )
    assert not any(found[name].ok for name in ("configuration", "stop tokens", "chat template"))
    assert f"config.json says image_token_id=5, but the tokenizer's <|image|> is {control(CONTROL.image)}" in (
        found["configuration"].detail
    )
    assert "the model must go on after the tool has spoken; set eos_token_id to" in found["stop tokens"].detail
    assert "save the checkpoint again with seer.models.checkpoint.save" in found["chat template"].detail
    assert found["plain text"].ok


def test_faults_that_only_other_programs_would_show(broken):
    """vLLM heeds head_dim and transformers does not; a stock server loses what the template drops."""

    def with_head(config: dict[str, Any]) -> dict[str, Any]:
        return config | {"text_config": config["text_config"] | {"head_dim": 8}}

    found = broken(
        config=with_head,
        generation_config=lambda config: config | {"eos_token_id": 0},
        chat_template=lambda template: "{% if messages | length == 1 %}" + template + "{% endif %}",
    )
    assert "text_config.head_dim is 8" in found["configuration"].detail
    assert "remove head_dim" in found["configuration"].detail
    assert f"does not stop at {CONTROL.user}; set eos_token_id to" in found["stop tokens"].detail
    assert "loses tool calls or observations" in found["chat template"].detail


def test_a_folder_that_is_no_checkpoint_ends_the_checks(tmp_path):
    (check,) = check_model(tmp_path)
    assert (check.name, check.ok) == ("folder", False)
    assert str(tmp_path) in check.detail


# ── What cannot be read is one clear error wherever a checkpoint is opened ───────────────────────

REFUSED = [
    lambda config: config | {"text_config": config["text_config"] | {"head_dim": 7}},  # odd, which RoPE cannot turn
    lambda config: config | {"text_config": 5},
    lambda config: config | {"vision_config": ["x"]},
]


def opens(folder: Path) -> list[Callable[[], Any]]:
    from train.model.loading import without_weights
    from train.planning.report import model_shape

    return [
        lambda: load(folder, device="cpu"),
        lambda: load_encoder(folder),
        lambda: without_weights(str(folder)),
        lambda: model_shape(str(folder)),
    ]


@pytest.mark.parametrize("change", REFUSED, ids=range(len(REFUSED)))
def test_a_configuration_that_transformers_refuses(small_checkpoint_dir, tmp_path, change):
    """transformers, and what lies beneath it, raise errors of many classes."""
    folder = tmp_path / "model"
    shutil.copytree(small_checkpoint_dir, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    for way in opens(folder):
        with pytest.raises(ModelError, match="does not load|is not a GLM-4V configuration"):
            way()
    assert not all(check.ok for check in check_model(folder))


def test_a_model_of_another_family_is_refused_before_it_is_built(small_checkpoint_dir, tmp_path):
    from train.model.loading import without_weights

    folder = tmp_path / "model"
    shutil.copytree(small_checkpoint_dir, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "no_such_model"}))
    for way in (lambda: load(folder, device="cpu"), lambda: without_weights(str(folder))):
        with pytest.raises(ModelError, match="does not load as a GLM-4V-family model"):
            way()


KEYS = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std", "resample", "size")
ODD = [0, -1, 1.5, "x", True, [], [1, 2], [1, 2, "x"], ["x"], {"shortest_edge": None}, {"longest_edge": "x"}]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("key", KEYS)
def test_a_processor_setting_that_cannot_be_is_named(key, value):
    if (key, value) in [("resample", 0), ("size", 0), ("size", [])]:
        read_processor({key: value})  # a filter of Pillow's; as if it were not there
        return
    named = next(iter(value)) if key == "size" and isinstance(value, dict) else key
    with pytest.raises(ModelError, match=rf"preprocessor_config.json says {named}="):
        read_processor({key: value})


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("nope", "auto"), ("cpu:", "auto"), ("", "auto"), ("cpu", "banana"), ("cpu", "nn"), ("cuda:99", "auto")],
)
def test_a_device_or_dtype_that_is_not_here_is_said_before_the_weights_are_read(small_checkpoint_dir, device, dtype):
    with pytest.raises(ConfigError, match="cannot be had here .*; give a device such as cpu"):
        load(small_checkpoint_dir, device=device, dtype=dtype)
