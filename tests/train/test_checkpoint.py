"""Checkpoints are complete or absent, verified before use, and resumed bitwise."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from train_fakes import config, equal_tensors, recipe, tiny_checkpoint, trajectories

from seer.errors import ConfigError
from train.checkpoint import CheckpointError, complete_names, verify
from train.data.dataset import TrajectoryDataset
from train.data.sets import Head
from train.loop import fit
from train.metrics import read_metrics
from train.parallel import World
from train.planning.storage import checkpoint_bytes
from train.run import Run, build_run, data_digest
from train.state import dequantised, is_quantised, optimizer_tensors, state_tensors
from train.step import train_step

ALONE = World(0, 1, torch.device("cpu"), None)
TESTS = Path(__file__).parents[1]


def make(out: Path, **sections) -> Run:
    return build_run(config(out, **sections), ALONE, [trajectories(24)])


def advance(run: Run, steps: int) -> None:
    for step in range(run.start_step, run.start_step + steps):
        train_step(run, step, run.loader.take(step))
    run.start_step += steps


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state_tensors(run.trainee, run.optimizer).items()}


KINDS = [
    ("adamw", "float32"),
    ("muon", "float32"),
    ("adamw_bf16_states", "float32"),
    pytest.param("adamw_8bit", "float32", marks=pytest.mark.slow),  # torchao compiles its kernels
    pytest.param("adamw_stochastic", "bf16", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "precision"), KINDS)
def test_resume_equals_uninterrupted_run_bitwise(tmp_path: Path, kind: str, precision: str) -> None:
    if kind in ("adamw_8bit", "adamw_stochastic"):
        pytest.importorskip("torchao")
    sections = {"optimizer": {"kind": kind, "betas": (0.9, 0.95)}, "parallel": {"precision": precision}}
    undisturbed = make(tmp_path / "a", **sections)
    advance(undisturbed, 2)
    random_after_two = torch.get_rng_state()
    advance(undisturbed, 2)
    first = make(tmp_path / "b", **sections)
    advance(first, 2)
    first.save(2)
    first.checkpoints.finish()
    torch.manual_seed(99)
    second = make(tmp_path / "b", **sections)
    second.resume()
    assert torch.equal(torch.get_rng_state(), random_after_two), "the random state is part of a checkpoint"
    assert second.start_step == 2
    advance(second, 2)
    assert equal_tensors(tensors(undisturbed), tensors(second))


def test_save_in_background_stores_the_state_of_its_step(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    before = tensors(run)
    run.save(1)
    advance(run, 2)  # continues while the checkpoint is written
    run.checkpoints.finish()
    other = make(tmp_path)
    other.resume()
    assert equal_tensors(before, tensors(other))


def test_save_writes_only_safetensors_json_and_text(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    files = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json", ""}
    assert not any(path.read_bytes()[:2] == b"\x80\x02" for path in files), "no pickle"
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-000001"


def test_save_keeps_the_newest_checkpoints(tmp_path: Path) -> None:
    run = make(tmp_path, checkpoint={"keep": 2})
    for _ in range(4):
        advance(run, 1)
        run.save(run.start_step)
    run.checkpoints.finish()
    assert complete_names(tmp_path / "checkpoints") == ["step-000003", "step-000004"]


@pytest.mark.parametrize("damage", ["flipped byte", "short file", "missing file", "no manifest", "broken manifest"])
def test_resume_with_damaged_checkpoint_reports_it_and_uses_the_previous_one(
    tmp_path: Path, damage: str, capsys
) -> None:
    run = make(tmp_path)
    states = []
    for _ in range(2):
        advance(run, 1)
        states.append(tensors(run))
        run.save(run.start_step)
    run.checkpoints.finish()
    newest = tmp_path / "checkpoints" / "step-000002"
    shard = next(newest.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    match damage:
        case "flipped byte":
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)
        case "short file":
            shard.write_bytes(data[:-7])
        case "missing file":
            shard.unlink()
        case "no manifest":
            (newest / "manifest.json").unlink()
        case "broken manifest":
            (newest / "manifest.json").write_text('{"step": 2')
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 1
    assert equal_tensors(states[0], tensors(other))
    if damage != "no manifest":
        assert "using the checkpoint before it" in capsys.readouterr().err
        with pytest.raises(CheckpointError):
            verify(tmp_path / "checkpoints" / "step-000002.damaged")


def test_resume_ignores_incomplete_checkpoint(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    half = tmp_path / "checkpoints" / ".step-000002.writing"
    half.mkdir()
    (half / "shard.safetensors").write_bytes(b"half")
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 1


def test_resume_restores_a_checkpoint_whose_replacement_was_interrupted(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    checkpoints = tmp_path / "checkpoints"
    # The state between the two renames, after the new folder of the same step was ready.
    (checkpoints / "step-000001").rename(checkpoints / ".step-000001.replaced")
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 1


def test_resume_rejects_checkpoint_of_another_run(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    with pytest.raises(ConfigError, match="would mix two runs"):
        make(tmp_path, seed=7).resume()
    with pytest.raises(ConfigError, match=r"checkpoint\.resume = false"):
        build_run(config(tmp_path), ALONE, [trajectories(23)]).resume()


@pytest.mark.parametrize(
    ("sections", "name"),
    [
        ({"batching": {"global_batch": 2}}, "samples a step"),
        ({"data": {"shuffle": False}}, "shuffle"),
        ({"data": {"mixing": "step"}}, "mixing"),
        ({"data": {"sets": [{"path": "tiny", "share": 2}]}}, "shares"),
    ],
)
def test_resume_rejects_settings_that_draw_other_trajectories(tmp_path: Path, sections: dict, name: str) -> None:
    """At half the batch, step 2 would repeat samples of step 1, and other samples would never be drawn."""
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    with pytest.raises(ConfigError, match=f"trained with {name} .* would mix two runs"):
        make(tmp_path, **sections).resume()
    make(tmp_path, optimizer={"lr": 1e-4}).resume()  # the learning rate may change


def test_data_digest_differs_for_heads_of_different_sets() -> None:
    class Whole(list):
        digest = ""

    left, right = Whole(trajectories(24)), Whole(trajectories(24))
    left.digest, right.digest = "left", "right"
    settings = recipe(tiny_checkpoint())
    digests = {data_digest([TrajectoryDataset(Head(items, 16), settings)]) for items in (left, right)}
    assert len(digests) == 2


def test_resume_rejects_checkpoint_of_another_optimiser(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    with pytest.raises(CheckpointError, match=r"does not fit this run \(rank 0: .*momentum.*optimizer\.kind differ"):
        make(tmp_path, optimizer={"kind": "muon"}).resume()


# ── 8-bit moments ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao's update without its compiler, which takes a minute to start."""
    pytest.importorskip("torchao")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def saved(out: Path, kind: str) -> Run:
    run = make(out, optimizer={"kind": kind})
    advance(run, 2)
    run.save(2)
    run.checkpoints.finish()
    return run


def test_save_keeps_8_bit_moments_at_one_byte_and_a_scale(tmp_path: Path, interpreted: None) -> None:
    run = saved(tmp_path, "adamw_8bit")
    written = sum(path.stat().st_size for path in (tmp_path / "checkpoints" / "step-000002").glob("*.safetensors"))
    expected = checkpoint_bytes(run.trainee.model, run.config, gpus=1)
    assert expected == pytest.approx(sum(tensor.nbytes for tensor in tensors(run).values()), rel=0.001)
    assert written == pytest.approx(expected, rel=0.06)  # headers of a small model


@pytest.mark.parametrize(("before", "after"), [("adamw", "adamw_8bit"), ("adamw_8bit", "adamw")])
def test_resume_with_another_width_of_moments_converts_them(
    tmp_path: Path, before: str, after: str, interpreted: None
) -> None:
    first = saved(tmp_path, before)
    second = make(tmp_path, optimizer={"kind": after})
    second.resume()
    assert second.start_step == 2
    states = [dict(optimizer_tensors(run.trainee, run.optimizer)) for run in (first, second)]
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        left, right = (dequantised(state[name]) for state in states)
        torch.testing.assert_close(left, right, atol=float(left.abs().max()) * 0.02 + 1e-12, rtol=0.2, msg=name)
    assert any(is_quantised(value) for state in states for value in state.values())


# ── Starting over ────────────────────────────────────────────────────────────────────────────────


def test_fit_without_resume_replaces_earlier_checkpoints_and_resumes_its_own(tmp_path: Path) -> None:
    often = {"every_steps": 1, "keep": 2}
    fit(config(tmp_path, steps=6, checkpoint=often), sources=[trajectories(24)])
    assert complete_names(tmp_path / "checkpoints") == ["step-000005", "step-000006"]
    over = {"checkpoint": {**often, "resume": False}, "optimizer": {"lr": 1e-2}, "stop": {"max_seconds": 1e-9}}
    fit(config(tmp_path, steps=6, **over), sources=[trajectories(24)])
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["latest", "step-000001"]
    summary = fit(config(tmp_path, steps=6, optimizer={"lr": 1e-2}), sources=[trajectories(24)])
    assert summary.last["step"] == 6
    assert [record["lr"] for record in read_metrics(tmp_path / "metrics.jsonl")] == [1e-2] * 6


def test_set_aside_before_first_checkpoint_still_starts_over(tmp_path: Path) -> None:
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    run.checkpoints.set_aside()
    other = make(tmp_path)
    other.resume()
    assert other.start_step == 0
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001.former"], (
        "no checkpoint is deleted yet"
    )


# ── Memory of a large model ──────────────────────────────────────────────────────────────────────


def test_save_splits_a_large_state_into_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch assembles each file in memory, so a single file would need the memory of the rank's whole state again."""
    monkeypatch.setattr("train.checkpoint.FILE_BYTES", 2**18)
    run = make(tmp_path)
    advance(run, 1)
    run.save(1)
    run.checkpoints.finish()
    folder = tmp_path / "checkpoints" / "step-000001"
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    largest = max(tensor.nbytes for tensor in tensors(run).values())
    assert len(sizes) > 4
    assert max(sizes) < 2**18 + largest
    other = make(tmp_path)
    other.resume()
    assert equal_tensors(tensors(run), tensors(other))


def test_state_tensors_moves_each_dequantised_moment_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """8-bit moments are chosen for lack of memory, and all moments as fp32 at once would take four times as much."""
    made: list[weakref.ref] = []

    class OptimStateOnGpu(torch.Tensor):
        def dequantize(self) -> torch.Tensor:
            assert sum(one() is not None for one in made) <= 1, "one moment at a time"
            plain = torch.ones(self.shape)
            made.append(weakref.ref(plain))
            return plain

        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return [], None

    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: self.clone())  # as if the tensor were on another device
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters())
    for parameter in model.parameters():
        optimizer.state[parameter] = {"exp_avg": torch.zeros_like(parameter).as_subclass(OptimStateOnGpu)}
    state = state_tensors(model, optimizer, rank=0)
    assert len(made) == 6
    assert not any(one() is not None for one in made)
    assert all(
        torch.equal(state[f"optimizer.{name}.exp_avg"], torch.ones_like(p)) for name, p in model.named_parameters()
    )


# ── Ending ───────────────────────────────────────────────────────────────────────────────────────


def test_close_waits_for_the_running_save(tmp_path: Path) -> None:
    run = make(tmp_path)
    written: Future[None] = Future()
    run.checkpoints._pending = [written]
    leaving = threading.Thread(target=run.close)
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive()
    written.set_exception(RuntimeError("raised by finish, not by close"))
    leaving.join(20)
    assert not leaving.is_alive()


def test_checkpoints_deletes_unfinished_folder_of_a_killed_run(tmp_path: Path) -> None:
    half = tmp_path / "checkpoints" / ".step-000537.writing"
    half.mkdir(parents=True)
    (half / "shard.safetensors").write_bytes(b"half")
    make(tmp_path)
    assert not half.exists()


def test_complete_names_sorts_by_step_number(tmp_path: Path) -> None:
    for name in ("step-999999", "step-1000000", "step-000500", "step-000700.damaged", "step-000800.former", "step-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    assert complete_names(tmp_path) == ["step-000500", "step-999999", "step-1000000"]


def test_fit_resumed_reaches_the_same_state_with_one_log(tmp_path: Path) -> None:
    fit(config(tmp_path / "a", steps=5), sources=[trajectories(24)])
    fit(
        config(tmp_path / "b", steps=5, checkpoint={"every_steps": 2}, stop={"max_seconds": 1e-9}),
        sources=[trajectories(24)],
    )
    assert [r["step"] for r in read_metrics(tmp_path / "b" / "metrics.jsonl")] == [1]
    summary = fit(config(tmp_path / "b", steps=5), sources=[trajectories(24)])
    assert (summary.steps, summary.reason) == (5, "steps")
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in "ab"]
    assert [r["step"] for r in logs[1]] == [1, 2, 3, 4, 5]
    assert [r["loss"] for r in logs[0]] == [r["loss"] for r in logs[1]]
    ends = [load_file(next((tmp_path / n / "checkpoints" / "step-000005").glob("*.safetensors"))) for n in "ab"]
    assert equal_tensors(*ends)
