"""A rank's micro-batches, step by step, prepared ahead by a background thread.

    loader = StepLoader(datasets, plan, batching, world_rank, world_ranks, prefetch=2)
    data = loader.take(step)                 # StepData of any step; steps in ascending order are prefetched

Rendering, encoding, packing and collating happen in the thread. The content of a step depends on its number alone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from train.config import BatchingConfig
from train.data.collate import Batch, collate
from train.data.dataset import TrainingSample, TrajectoryDataset
from train.data.packing import balance, pack
from train.data.sampler import Index, SamplePlan


@dataclass
class StepData:
    """The data of one rank in one step."""

    batches: list[Batch]
    rejected: int
    """Rejected trajectories that were drawn and replaced."""
    wait_s: float = 0.0
    """Time that the training thread waited for this step."""

    @property
    def weight_sum(self) -> float:
        return sum(batch.weight_sum for batch in self.batches)


class StepLoader:
    """Micro-batches of one rank, by step number.

    `prefetch` is the number of steps prepared ahead in a background thread; 0 prepares each step when it is taken.
    """

    def __init__(
        self,
        datasets: Sequence[TrajectoryDataset],
        plan: SamplePlan,
        batching: BatchingConfig,
        rank: int = 0,
        ranks: int = 1,
        prefetch: int = 2,
    ) -> None:
        self.datasets, self.plan, self.batching = datasets, plan, batching
        self.rank, self.ranks, self.prefetch = rank, ranks, prefetch
        self._pool = ThreadPoolExecutor(1, "loader") if prefetch else None
        self._ahead: OrderedDict[int, Future[StepData]] = OrderedDict()

    def take(self, step: int) -> StepData:
        """Return the data of a step and start preparing the next ones. Errors of the background thread are raised here."""
        started = time.perf_counter()
        if self._pool is None:
            data = self.prepare(step)
        else:
            # A step that was prepared ahead is not submitted twice; after a jump, all of the window is new.
            for ahead in range(step, step + self.prefetch + 1):
                if ahead not in self._ahead:
                    self._ahead[ahead] = self._pool.submit(self.prepare, ahead)
            data = self._ahead.pop(step).result()
        data.wait_s = time.perf_counter() - started
        return data

    def prepare(self, step: int) -> StepData:
        """Draw the step's trajectories, encode, pack and collate them. Raises InputError if a set has only rejected ones."""
        groups = self.assigned(step)
        drawn = [[self.datasets[chosen].draw(index) for chosen, index in group] for group in groups]
        batches = [
            batch
            for group in drawn
            for batch in make_batches([sample for sample, _ in group], self.batching, self._pixels_per_patch)
        ]
        return StepData(batches, sum(rejected for group in drawn for _, rejected in group))

    def assigned(self, step: int) -> list[list[Index]]:
        """This rank's samples of a step, in groups that each fill about one micro-batch.

        If the lengths of all sets are known, the samples are distributed so that ranks wait little for each other. A group
        may still need more than one micro-batch, because the sample that replaces a rejected one can be longer.
        """
        lengths = [dataset.lengths for dataset in self.datasets]
        if self.ranks == 1 or any(known is None for known in lengths):
            return [self.plan.indices(step, self.rank, self.ranks)]
        indices = self.plan.step_indices(step)
        tokens = [int(self.datasets[chosen].lengths[index]) for chosen, index in indices]  # type: ignore[index]
        groups = balance(tokens, self.ranks, self.batching.budget_tokens)[self.rank]
        return [[indices[i] for i in group] for group in groups]

    @property
    def _pixels_per_patch(self) -> int:
        return self.datasets[0].recipe.encoder.geometry.patch_px ** 2

    def close(self) -> None:
        """Stop the background thread after the step that it is preparing; drop the steps that have not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def make_batches(samples: Sequence[TrainingSample], batching: BatchingConfig, pixels_per_patch: int) -> list[Batch]:
    """Pack samples into micro-batches of at most `batching.budget_tokens` tokens, or one sample each if packing is off."""
    if batching.packing == "single":
        return [collate([sample], pixels_per_patch) for sample in samples]
    groups = pack([len(sample) for sample in samples], batching.budget_tokens)
    return [collate([samples[i] for i in group], pixels_per_patch) for group in groups]
