"""Trajectory sets of a configuration: empty sets, heads of sets, and trajectories that cannot be encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from train_fakes import recipe, samples, tiny_checkpoint, trajectories

from seer.errors import InputError
from seer.models.checkpoint import Checkpoint
from seer.schema import Turn
from train.config import BatchingConfig, SetConfig
from train.data.collate import collate
from train.data.dataset import TrajectoryDataset, encode_turns
from train.data.loader import StepLoader
from train.data.sampler import SamplePlan
from train.data.sets import Head, open_admitted
from train.parallel import World

ALONE = World(0, 1, torch.device("cpu"), None)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return tiny_checkpoint()


def written(path: Path, count: int) -> Path:
    path.write_text("".join(item.model_dump_json() + "\n" for item in trajectories(8)[:count]))
    return path


def test_open_admitted_rejects_an_empty_set(checkpoint, tmp_path: Path) -> None:
    path = written(tmp_path / "empty.jsonl", 0)
    with pytest.raises(InputError, match="empty.jsonl' has no trajectories; build some first"):
        open_admitted(SetConfig(path=str(path)), recipe(checkpoint), ALONE)


@pytest.mark.parametrize(("max_samples", "count"), [(3, 3), (8, 8), (100, 8), (None, 8)])
def test_open_admitted_reads_at_most_max_samples(checkpoint, tmp_path: Path, max_samples, count: int) -> None:
    path = written(tmp_path / "data.jsonl", 8)
    items, admission = open_admitted(SetConfig(path=str(path), max_samples=max_samples), recipe(checkpoint), ALONE)
    assert [item.id for item in items] == [item.id for item in trajectories(8)[:count]]
    assert len(admission.indices("drop")) <= count


def test_head_indexes_and_slices_as_the_list_of_its_items() -> None:
    items = trajectories(8)
    head = Head(items, 5)
    assert list(head) == list(items[:5])
    for part in (slice(None), slice(1, 9), slice(None, None, -2), slice(-2, None)):
        assert head[part] == list(items[:5])[part]
    assert head[-1] is items[4]
    with pytest.raises(IndexError):
        head[5]


def test_encode_turns_names_the_trajectory_whose_page_is_missing(checkpoint) -> None:
    turns = [Turn(kind="prompt", text="Which?", pages=(1,))]
    with pytest.raises(InputError, match="trajectory 'lost' cannot be encoded: 1"):
        encode_turns(turns, {}, checkpoint.encoder, "lost")


def test_collate_rejects_an_empty_micro_batch() -> None:
    with pytest.raises(ValueError, match="a micro-batch needs at least one sample, got none"):
        collate([])


def test_loader_with_known_lengths_gives_each_sample_of_a_step_to_one_rank() -> None:
    made = samples(tiny_checkpoint(), 24)
    lengths = np.array([len(sample) for sample in made])
    dataset = TrajectoryDataset(trajectories(24), recipe(tiny_checkpoint()), lengths=lengths)
    plan = SamplePlan(sizes=(24,), shares=(1,), per_step=(12,))
    batching = BatchingConfig(global_batch=12, max_tokens=512)
    loaders = [StepLoader([dataset], plan, batching, rank, 3, prefetch=0) for rank in range(3)]
    found = [name for one in loaders for batch in one.prepare(1).batches for name in batch.sample_ids]
    assert sorted(found) == sorted(made[index].id for _, index in plan.step_indices(1))
    assert len({len(one.prepare(1).batches) for one in loaders}) == 1
    spread = [sum(batch.num_tokens for batch in one.prepare(1).batches) for one in loaders]
    assert max(spread) - min(spread) <= lengths.max()
