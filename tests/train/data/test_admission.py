"""The list of usable trajectories: its content, its storage beside the set, and the runs that share it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from train_fakes import config, equal_tensors, recipe, samples, tiny_base, tiny_checkpoint, trajectories, trajectory
from typer.testing import CliRunner

from seer.errors import InputError
from seer.rendering import png_bytes, render_text
from seer.schema import Trajectory, Turn
from seer.shards.reader import ShardSet, write_shards
from train.cli import app
from train.config import LossWeights
from train.data import admission
from train.data.admission import admit, measure
from train.data.dataset import RejectedTrajectory, TrainingSample, TrajectoryDataset
from train.data.loader import StepLoader
from train.data.sampler import SamplePlan
from train.data.sets import open_sets
from train.loop import fit
from train.parallel import World
from train.run import build_run, data_digest

ALONE = World(0, 1, torch.device("cpu"), None)
COUNT = 24


@pytest.fixture(scope="module")
def checkpoint():
    return tiny_checkpoint()


@pytest.fixture(scope="module")
def lengths(checkpoint) -> list[int]:
    return [len(sample) for sample in samples(checkpoint, COUNT)]


@pytest.fixture
def limit(lengths: list[int]) -> int:
    """A token limit that excludes about a third of the trajectories."""
    limit = sorted(lengths)[2 * COUNT // 3]
    assert any(length > limit for length in lengths)
    return limit


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_shards(tmp_path / "train", trajectories(COUNT))
    return tmp_path / "train"


def with_faults() -> list[Trajectory]:
    """Three sound trajectories and two unusable ones, at places 1 and 3."""
    beyond = trajectory(90)
    beyond = beyond.model_copy(
        update={"turns": (beyond.turns[0].model_copy(update={"pages": (1, 99)}), *beyond.turns[1:])}
    )
    silent = trajectory(91).model_copy(update={"turns": (Turn(kind="prompt", text="Why?"),)})
    return [trajectory(0), beyond, trajectory(1), silent, trajectory(2)]


# ── The list ─────────────────────────────────────────────────────────────────────────────────────


def test_admit_lists_trajectories_up_to_the_limit(checkpoint, shards: Path, lengths: list[int], limit: int) -> None:
    made = admit(ShardSet(shards), recipe(checkpoint, max_tokens=limit), shards, ALONE)
    assert made.tokens.tolist() == lengths
    assert made.indices().tolist() == [i for i, length in enumerate(lengths) if length <= limit]
    with pytest.raises(InputError, match=rf"have more than {limit} tokens, such as number \d+ with .*raise batching"):
        made.indices("refuse")


def test_admit_excludes_trajectories_that_cannot_be_encoded(
    checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path / "set", with_faults())
    made = admit(ShardSet(tmp_path / "set"), recipe(checkpoint), tmp_path / "set", ALONE)
    assert made.indices().tolist() == [0, 2, 4]
    assert "'tiny-90' shows pages [99]" in made.faults[1]
    assert "'tiny-91' has no turn of the model" in made.faults[3]
    shown = capsys.readouterr().err
    assert "3 of 5 trajectories admitted, 0 above 4096 tokens, 2 that cannot be encoded" in shown
    again = admit(ShardSet(tmp_path / "set"), recipe(checkpoint), tmp_path / "set", ALONE)
    assert (again.faults, again.tokens.tolist()) == (made.faults, made.tokens.tolist())


def test_admit_excludes_trajectories_with_cut_pictures(checkpoint, tmp_path: Path) -> None:
    """The header of a cut picture is sound, so only decoding it finds the fault."""
    items = trajectories(3)

    def embed(item: Trajectory) -> list[bytes]:
        pages = [png_bytes(page.image()) for page in render_text(item.source, item.style).pages]
        return [page[: len(page) // 2] for page in pages] if item is items[1] else pages

    write_shards(tmp_path / "set", items, embed=embed)
    made = admit(ShardSet(tmp_path / "set"), recipe(checkpoint), tmp_path / "set", ALONE)
    assert made.indices().tolist() == [0, 2]
    assert "cannot be read as a picture" in made.faults[1]


def test_admit_without_usable_trajectory_is_an_error(checkpoint, shards: Path) -> None:
    made = admit(ShardSet(shards), recipe(checkpoint, max_tokens=20), shards, ALONE)
    with pytest.raises(
        InputError, match=f"none of the {COUNT} trajectories .* can be used: 0 of {COUNT}.*raise batching"
    ):
        made.indices()


def test_admit_on_several_ranks_equals_one_rank(
    checkpoint, shards: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank measures its part; the sums over ranks are the whole list. Rank 1 never touches the file."""
    lists = recipe(checkpoint, max_tokens=limit)
    one = admit(ShardSet(shards), lists, shards, ALONE)
    parts: list[list[float]] = []

    class Rank(World):
        def largest(self, values: Any) -> list[float]:
            return [0.0]  # no rank found a stored list

        def sum(self, values: Any) -> list[float]:
            parts.append(list(values))
            return list(np.sum(parts, 0))

    monkeypatch.setattr(admission, "read_admission", lambda *_: None)
    written: list[Any] = []
    monkeypatch.setattr(admission, "write_admission", lambda *given: written.append(given))
    admit(ShardSet(shards), lists, shards, Rank(1, 2, ALONE.device, None))
    assert not written
    both = admit(ShardSet(shards), lists, shards, Rank(0, 2, ALONE.device, None))
    assert len(written) == 1
    assert all(a == 0 or b == 0 for a, b in zip(*parts, strict=True))
    assert both.tokens.tolist() == one.tokens.tolist()


# ── Storage ──────────────────────────────────────────────────────────────────────────────────────


def stored(shards: Path) -> Path:
    (file,) = shards.with_name("train.admitted").iterdir()
    return file


def test_admit_reads_a_stored_list_and_measures_few_trajectories(
    checkpoint, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    measured: list[int] = []
    monkeypatch.setattr(admission, "measure", lambda items, i, r: (measured.append(i), measure(items, i, r))[1])
    second = admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    assert second.tokens.tolist() == first.tokens.tolist()
    assert measured == [0, 7, 15, 23]
    ShardSet(shards).verify()


def test_admit_makes_another_list_for_every_part_of_its_key(checkpoint, shards: Path) -> None:
    folder = shards.with_name("train.admitted")
    admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    admit(ShardSet(shards), recipe(checkpoint, max_tokens=4095), shards, ALONE)
    assert len(list(folder.iterdir())) == 2
    write_shards(shards, trajectories(COUNT)[:-1], overwrite=True)
    admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    assert len(list(folder.iterdir())) == 3
    keys = [json.loads(file.read_text())["key"] for file in folder.iterdir()]
    assert {key["rows"] for key in keys} == {COUNT, COUNT - 1}
    assert len({key["set_digest"] for key in keys}) == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda values: values["tokens"].__setitem__(2, 1), "is not the list that was written there; delete the file"),
        (
            lambda values: values["key"].__setitem__("rows", 3),
            "is not the list that was written there; delete the file",
        ),
        (lambda values: values.pop("sha256"), "is not the list that was written there; delete the file"),
        (lambda values: values["faults"].__setitem__("0", "x"), "is not the list that was written there"),
    ],
    ids=["tokens", "key", "checksum", "faults"],
)
def test_admit_rejects_a_changed_list(
    checkpoint, shards: Path, damage: Callable[[dict[str, Any]], None], message: str
) -> None:
    admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    file = stored(shards)
    values = json.loads(file.read_text())
    damage(values)
    file.write_text(json.dumps(values))
    with pytest.raises(InputError, match=message):
        admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    file.write_text("{")
    with pytest.raises(InputError, match="cannot be read: .*; delete the file; the next run makes it again"):
        admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)


def test_admit_rejects_a_list_of_other_lengths(checkpoint, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other fonts move line breaks, which the key does not show."""
    with monkeypatch.context() as patched:
        patched.setattr(admission, "measure", lambda items, i, r: (measure(items, i, r)[0] + 28, ""))
        admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    with pytest.raises(InputError, match="made with other fonts or libraries"):
        admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)


def test_admit_on_unwritable_disk_warns_and_returns_the_list(
    checkpoint, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards.with_name("train.admitted").write_text("a file where the folder would be")
    made = admit(ShardSet(shards), recipe(checkpoint), shards, ALONE)
    assert len(made.indices()) == COUNT
    assert "cannot be written" in capsys.readouterr().err


def test_admit_command_stores_the_list_that_the_run_uses(
    shards: Path, tmp_path: Path, limit: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "run.toml"
    settings.write_text(
        f'out = "{tmp_path}/run"\n[data]\nsets = [{{ path = "{shards}" }}]\n[model]\npath = "{tiny_base()}"\n'
        f"[batching]\nmax_tokens = {limit}\n"
    )
    shown = CliRunner().invoke(app, ["admit", str(settings), "--json"])
    assert shown.exit_code == 0, shown.output
    long = sum(length > limit for length in lengths)
    record = json.loads(shown.stdout)
    assert record == {
        "set": str(shards),
        "list": str(stored(shards)),
        "rows": COUNT,
        "admitted": COUNT - long,
        "over_long": long,
        "not_encodable": 0,
    }
    monkeypatch.setattr(admission, "write_admission", lambda *_: pytest.fail("the run made the list again"))
    run = build_run(run_config(tmp_path / "run", shards, limit), ALONE)
    assert len(run.loader.datasets[0]) == COUNT - long
    text = CliRunner().invoke(app, ["admit", str(settings)]).stdout
    assert f"{COUNT - long} of {COUNT} trajectories admitted, {long} above {limit} tokens" in text


# ── Runs ─────────────────────────────────────────────────────────────────────────────────────────


def run_config(out: Path, shards: Path, limit: int, **sections: Any) -> Any:
    data = {"sets": [{"path": str(shards)}]} | sections.pop("data", {})
    return config(out, data=data, batching={"global_batch": 4, "max_tokens": limit}, **sections)


def ids_of(loader: StepLoader, steps: int) -> list[list[str]]:
    return [sorted(name for batch in loader.take(s).batches for name in batch.sample_ids) for s in range(steps)]


def test_control_and_ablations_draw_the_trajectories_of_the_main_run(shards: Path, tmp_path: Path, limit: int) -> None:
    """A control without observations has room for longer trajectories, but trains on those of the main run."""
    settings: dict[str, dict[str, Any]] = {
        "main": {},
        "iso": {"data": {"drop_turns": ["call", "observation"]}},
        "no-think": {"data": {"drop_turns": ["think"]}},
        "weights": {"loss": {"call": 4.0, "structure": 0.0}},
    }
    runs = {
        name: build_run(run_config(tmp_path / name, shards, limit, **sections), ALONE)
        for name, sections in settings.items()
    }
    drawn = {name: ids_of(run.loader, 8) for name, run in runs.items()}
    assert drawn["iso"] == drawn["no-think"] == drawn["weights"] == drawn["main"]
    assert all(len(step) == 4 for step in drawn["main"])
    assert len({data_digest(run.loader.datasets) for run in runs.values()}) == 1
    assert len(list(shards.with_name("train.admitted").iterdir())) == 1
    unlisted = TrajectoryDataset(ShardSet(shards), runs["iso"].loader.datasets[0].recipe)
    fitting = sum(isinstance(unlisted[i], TrainingSample) for i in range(COUNT))
    assert fitting > len(runs["iso"].loader.datasets[0]), "the control alone would have admitted more"


def test_set_without_rejections_draws_and_digests_as_without_a_list(checkpoint, shards: Path) -> None:
    """Runs of earlier versions resume: the plan, its order and the data digest are unchanged."""
    settings = run_config(shards, shards, 4096)
    (listed,) = open_sets(settings.data.sets, settings.data, recipe(checkpoint), ALONE)
    plain = TrajectoryDataset(ShardSet(shards), recipe(checkpoint))
    plan = SamplePlan((COUNT,), (1,), (4,))
    both = [ids_of(StepLoader([one], plan, settings.batching, prefetch=0), 12) for one in (listed, plain)]
    assert both[0] == both[1]
    assert data_digest([listed]) == data_digest([plain])


def test_data_digest_differs_if_trajectories_are_left_out(checkpoint, shards: Path, limit: int) -> None:
    digests = set()
    for tokens in (4096, limit, limit - 1):
        settings = run_config(shards, shards, tokens)
        digests.add(
            data_digest(open_sets(settings.data.sets, settings.data, recipe(checkpoint, max_tokens=tokens), ALONE))
        )
    assert len(digests) == 3


def test_draw_replaces_a_rejected_trajectory_by_the_next_of_the_set(checkpoint, limit: int) -> None:
    dataset = TrajectoryDataset(trajectories(COUNT), recipe(checkpoint, max_tokens=limit))
    usable = [i for i in range(COUNT) if isinstance(dataset[i], TrainingSample)]
    for index in range(COUNT):
        expected = next(i % COUNT for i in range(index, 2 * COUNT) if i % COUNT in usable)
        sample, skipped = dataset.draw(index)
        assert (sample.id, (index + skipped) % COUNT) == (trajectories(COUNT)[expected].id, expected)


def test_step_with_rejected_draws_holds_its_batch_on_any_number_of_ranks(checkpoint, limit: int) -> None:
    """A set in memory has no list, so its trajectories are rejected when they are drawn."""
    dataset = TrajectoryDataset(trajectories(COUNT), recipe(checkpoint, max_tokens=limit))
    settings = config("x", batching={"global_batch": 4, "max_tokens": limit}).batching
    plan = SamplePlan((COUNT,), (1,), (4,))
    whole = StepLoader([dataset], plan, settings, prefetch=0)
    steps = [whole.take(step) for step in range(12)]
    assert all(sum(len(batch.sample_ids) for batch in step.batches) == 4 for step in steps)
    assert sum(step.rejected for step in steps) > 0
    halves = [ids_of(StepLoader([dataset], plan, settings, rank, 2, prefetch=0), 12) for rank in range(2)]
    assert ids_of(whole, 12) == [sorted(a + b) for a, b in zip(*halves, strict=True)]


def test_draw_replaces_a_trajectory_without_learned_token(checkpoint) -> None:
    """The list does not depend on loss weights, so weights for calls alone reject trajectories without calls at the draw."""
    without_call = trajectory(50).model_copy(update={"turns": (trajectory(50).turns[0], trajectory(50).turns[-1])})
    weights = LossWeights(call=1, structure=0, think=0, answer=0, stop=0)
    dataset = TrajectoryDataset([without_call, trajectory(1)], recipe(checkpoint, weights=weights))
    sample, skipped = dataset.draw(0)
    assert (sample.id, skipped) == ("tiny-1", 1)


def test_draw_from_a_set_with_rejections_only_is_an_error(checkpoint) -> None:
    dataset = TrajectoryDataset(trajectories(3), recipe(checkpoint, max_tokens=20), name="short")
    with pytest.raises(
        InputError, match=r"every trajectory of short is rejected \(over_long 3\); raise batching.max_tokens"
    ):
        dataset.draw(1)
    assert isinstance(dataset[0], RejectedTrajectory)


@pytest.mark.parametrize("memory", [False, True], ids=["stored list", "draws"])
def test_interrupted_run_with_rejections_resumes_bitwise(
    shards: Path, tmp_path: Path, limit: int, memory: bool
) -> None:
    """The list (for a set on disk) and the replaced draws (for a set in memory) do not depend on where a run stopped."""
    sources = [trajectories(COUNT)] if memory else None

    def weights(out: str, *steps: int) -> dict[str, torch.Tensor]:
        for count in steps:
            fit(run_config(tmp_path / out, shards, limit, steps=count), sources=sources)
        run = build_run(run_config(tmp_path / out, shards, limit, steps=8), ALONE, sources)
        run.resume()
        assert run.start_step == 8
        return {name: parameter.detach().clone() for name, parameter in run.trainee.named_parameters()}

    assert equal_tensors(weights("whole", 8), weights("parts", 3, 8))
