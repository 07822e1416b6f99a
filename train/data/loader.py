"""A rank's micro-batches, step by step, prepared ahead by a background thread.

    loader = StepLoader(datasets, plan, batching, world_rank, world_ranks, prefetch=2)
    data = loader.take(step)                 # StepData; any step may be asked for, in order is quick

Rendering, encoding, packing and collating happen in the thread; what a step holds depends on its number alone.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from train.config import BatchingConfig
from train.data.collate import Batch, collate
from train.data.dataset import Rejection, Sample, TrajectoryDataset
from train.data.packing import pack
from train.data.sampler import SamplePlan


@dataclass
class StepData:
    """What one rank trains on in one step."""

    batches: list[Batch]
    rejected: int
    wait_s: float = 0.0
    """How long the training thread stood waiting for it."""

    @property
    def weight_sum(self) -> float:
        return sum(batch.weight_sum for batch in self.batches)


class StepLoader:
    """Steps by number."""

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
        """The data of a step; the next ones start being prepared. Errors of the background thread surface here."""
        started = time.perf_counter()
        if self._pool is None:
            data = self.prepare(step)
        else:
            for ahead in range(step, step + self.prefetch + 1):
                if ahead not in self._ahead:
                    self._ahead[ahead] = self._pool.submit(self.prepare, ahead)
            data = self._ahead.pop(step).result()
        data.wait_s = time.perf_counter() - started
        return data

    def prepare(self, step: int) -> StepData:
        """Draw, encode, pack, collate."""
        indices = self.plan.indices(step, self.rank, self.ranks)
        results = [self.datasets[chosen][index] for chosen, index in indices]
        samples = [result for result in results if isinstance(result, Sample)]
        rejected = sum(isinstance(result, Rejection) for result in results)
        return StepData(make_batches(samples, self.batching, self._pixels_per_patch), rejected)

    @property
    def _pixels_per_patch(self) -> int:
        return self.datasets[0].recipe.encoder.geometry.patch_px ** 2

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def make_batches(samples: Sequence[Sample], batching: BatchingConfig, pixels_per_patch: int) -> list[Batch]:
    """Samples → packed micro-batches under the token budget."""
    if batching.packing == "single":
        return [collate([sample], pixels_per_patch) for sample in samples]
    groups = pack([len(sample) for sample in samples], batching.budget_tokens)
    return [collate([samples[i] for i in group], pixels_per_patch) for group in groups]
