"""The exported model loads wherever its base loads."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_fakes import config, samples, tiny_base, tiny_checkpoint, trajectories

from seer.models.checkpoint import PixelScaling, load, read_json, read_processor, save
from train.data.collate import collate
from train.export import export
from train.loop import fit
from train.model.glm4v import Trainee
from train.parallel import World
from train.run import build_run
from train.step import train_step

ALONE = World(0, 1, torch.device("cpu"), None)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export")
    fit(config(out, steps=2, checkpoint={"export": True}), sources=[trajectories(8)])
    return out / "model"


def keys(folder: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    return {
        name: (tuple(tensor.shape), tensor.dtype) for name, tensor in load_file(folder / "model.safetensors").items()
    }


def test_export_has_the_keys_of_its_base(exported: Path) -> None:
    """Keys and types are those of the base, so that servers can load the export (LLaMA-Factory #9228)."""
    assert keys(exported) == keys(tiny_base())
    missing = {p.name for p in tiny_base().iterdir()} - {p.name for p in exported.iterdir()}
    assert not missing


def test_export_keeps_stop_tokens_and_tokenizer_files_of_its_base(exported: Path) -> None:
    """The export does not overwrite the stop token (marin #4153)."""
    base, ours = (json.loads((f / "generation_config.json").read_text()) for f in (tiny_base(), exported))
    assert ours["eos_token_id"] == base["eos_token_id"] == list(load(exported, device="cpu").encoder.stop_ids)
    for name in ("tokenizer.json", "chat_template.jinja", "preprocessor_config.json"):
        assert (exported / name).read_bytes() == (tiny_base() / name).read_bytes()
    settings = json.loads((exported / "config.json").read_text())
    assert "seer_grouped" not in json.dumps(settings)


def test_export_reloaded_gives_equal_losses(tmp_path: Path) -> None:
    run = build_run(config(tmp_path), ALONE, [trajectories(8)])
    train_step(run, 0, run.loader.take(0))
    batch = collate(samples(tiny_checkpoint(), 3))
    with torch.no_grad():
        wanted = run.trainee(batch)
    export(tmp_path / "model", run.trainee, run.base, ALONE)
    again = load(tmp_path / "model", device="cpu")
    with torch.no_grad():
        got = Trainee(again.model, again.scaling)(batch)
    assert torch.equal(got.nll_N, wanted.nll_N)


def test_save_keeps_geometry_and_pixel_scaling(tmp_path: Path) -> None:
    """With other settings the exported model would see other pixels than in training."""
    base = tiny_checkpoint()
    scaling = PixelScaling(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resample=2)
    geometry = replace(base.encoder.geometry, min_pixels=28 * 28, max_pixels=9 * 28 * 28)
    save(tmp_path, base.model, base.tokenizer, scaling, geometry)
    assert read_processor(read_json(tmp_path / "preprocessor_config.json")) == (geometry, scaling)


def test_export_replaces_an_earlier_export(tmp_path: Path) -> None:
    run = build_run(config(tmp_path), ALONE, [trajectories(8)])
    for _ in range(2):
        export(tmp_path / "model", run.trainee, run.base, ALONE)
    assert {p.name for p in tmp_path.iterdir() if p.name != "checkpoints"} == {"model"}


def test_model_card_has_data_configuration_and_figures(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    assert "Digest `" in card
    assert "set 0`: 8 trajectories" in card
    assert "| loss |" in card
    assert "[optimizer]" in card


def test_fit_with_missing_export_writes_it_with_the_same_figures(tmp_path: Path) -> None:
    settings = config(tmp_path, steps=2, checkpoint={"export": True})
    fit(settings, sources=[trajectories(8)])
    card = (tmp_path / "model" / "README.md").read_text()
    shutil.rmtree(tmp_path / "model")
    assert fit(settings, sources=[trajectories(8)]).steps == 2
    assert (tmp_path / "model" / "README.md").read_text() == card
    assert "| loss |" in card


def test_load_export_restores_buffers_missing_from_the_checkpoint(exported: Path) -> None:
    """RoPE buffers are not in checkpoints (transformers #45902, LLaMA-Factory #10820); loading computes them again."""
    fresh, base = load(exported, device="cpu").model, tiny_checkpoint().model
    buffers = dict(base.named_buffers())
    assert buffers
    for name, buffer in fresh.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
