"""Turn trajectories into training samples: token ids, loss weights, positions and patches, all aligned and never truncated.

    dataset = TrajectoryDataset(trajectories, recipe)
    sample = dataset[3]                      # a TrainingSample, or a RejectedTrajectory that has been counted
    sample, rejected = dataset.draw(3)       # always a sample: the next one of the set replaces a rejected one

Ids come from the encoder that inference uses. Weights follow the loss class of each id; no string is searched.

Shapes: L tokens, n images, P patches, X bytes of a patch.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from seer.errors import InputError
from seer.models.checkpoint import PixelScaling
from seer.protocol.encoding import CLASSES, Encoded, Encoder
from seer.schema import Trajectory, Turn
from train.config import LossWeights
from train.data.pages import ShownPage, embedded_pages, pictures_of, shown_pages
from train.data.pixels import byte_patches, join_patches


@dataclass(frozen=True)
class TrainingSample:
    """One encoded trajectory, ready for packing. Every field of length L is aligned with `ids`."""

    id: str
    ids: np.ndarray
    """int32 (L,)"""
    classes: np.ndarray
    """uint8 (L,): index into seer.protocol.encoding.CLASSES"""
    weights: np.ndarray
    """float32 (L,): loss weight of the *prediction* of this token"""
    positions: np.ndarray
    """int32 (3, L): M-RoPE"""
    types: np.ndarray
    """uint8 (L,): 1 on image placeholders"""
    grid: np.ndarray
    """int64 (n, 3): frames, rows, columns of patches"""
    patches: np.ndarray
    """uint8 (P, X)"""

    def __post_init__(self) -> None:
        lengths = {self.classes.shape[0], self.weights.shape[0], self.positions.shape[1], self.types.shape[0]}
        assert lengths == {len(self.ids)}, f"sample '{self.id}': fields of lengths {lengths} for {len(self.ids)} ids"
        assert self.weights[0] == 0, f"sample '{self.id}': no token predicts the first one, so its weight must be 0"
        assert len(self.patches) == int(self.grid.prod(1).sum()), f"sample '{self.id}': patches do not fill its grids"

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def vision_tokens(self) -> int:
        return int(self.types.sum())

    @property
    def num_bytes(self) -> int:
        """Memory that the arrays take, for the cache's limit."""
        return sum(getattr(self, field.name).nbytes for field in fields(self) if field.name != "id")


@dataclass(frozen=True)
class RejectedTrajectory:
    """A trajectory that is left out of training, with the reason. The run counts it."""

    id: str
    reason: Literal["over_long", "nothing_to_learn"]
    detail: str


@dataclass(frozen=True)
class Recipe:
    """Settings that turn a trajectory into a sample."""

    encoder: Encoder
    scaling: PixelScaling
    weights: LossWeights
    max_tokens: int
    drop_turns: tuple[str, ...] = ()

    def weight_table(self) -> np.ndarray:
        """float32 (classes,): the weight of each loss class."""
        return np.array([self.weights.of(loss_class) for loss_class in CLASSES], np.float32)


def make_sample(
    trajectory: Trajectory, recipe: Recipe, pictures: Sequence[bytes] = ()
) -> TrainingSample | RejectedTrajectory:
    """Encode one trajectory with the pages that it shows.

    `pictures` are the pages as PNG, if the set stores them; without them, pages are rendered from the trajectory's source.
    Pages of a rejected trajectory are not rendered.

    Raises InputError if the trajectory shows a page that it does not have, a stored picture is damaged, or its turns cannot
    be encoded.
    """
    turns = without_turns(trajectory.turns, recipe.drop_turns)
    pages = embedded_pages(trajectory, turns, pictures) if pictures else shown_pages(trajectory, turns)
    encoded = encode_turns(turns, pages, recipe.encoder, trajectory.id)
    if len(encoded) > recipe.max_tokens:
        detail = (
            f"{len(encoded)} tokens, {encoded.vision_tokens} of them vision; at most {recipe.max_tokens} are allowed"
        )
        return RejectedTrajectory(trajectory.id, "over_long", detail)
    weights = recipe.weight_table()[encoded.classes]
    if not weights.any():
        return RejectedTrajectory(trajectory.id, "nothing_to_learn", "no token has a loss weight above 0")
    # Only an accepted trajectory gets this far: drawing its pages is the expensive part.
    geometry = recipe.encoder.geometry
    parts = [byte_patches(pages[s.page].image(), s, geometry, recipe.scaling.resample) for s in encoded.slots]
    return TrainingSample(
        id=trajectory.id,
        ids=encoded.ids,
        classes=encoded.classes,
        weights=weights,
        positions=encoded.positions(),
        types=encoded.mm_token_type_ids().astype(np.uint8),
        grid=encoded.grid_thw(),
        patches=join_patches(parts, geometry.patch_px**2),
    )


def without_turns(turns: Sequence[Turn], dropped: Collection[str]) -> list[Turn]:
    """The turns whose kind is not in `dropped`. Think turns that become neighbours are joined into one."""
    kept: list[Turn] = []
    for turn in turns:
        if turn.kind in dropped:
            continue
        if turn.kind == "think" and kept and kept[-1].kind == "think":
            turn = turn.model_copy(update={"text": f"{kept.pop().text}\n{turn.text}"})
        kept.append(turn)
    return kept


def encode_turns(turns: Sequence[Turn], pages: Mapping[int, ShownPage], encoder: Encoder, name: str) -> Encoded:
    """Encode turns with the sizes of their pages. Raises InputError, which names the trajectory, if that fails."""
    sizes = {number: (page.width_px, page.height_px) for number, page in pages.items()}
    try:
        return encoder.encode(turns, sizes)
    except (InputError, KeyError) as error:
        raise InputError(f"trajectory '{name}' cannot be encoded: {error}") from error


class TrajectoryDataset:
    """Samples by index, encoded on first use and cached in memory up to `cache_bytes`.

    `admitted` lists the usable trajectories (see `train.data.admission`); an index counts only these. Without it, all
    trajectories are indexed. `lengths` are upper bounds of their token counts, if known.
    `over_long` is the policy for trajectories above the recipe's token limit: reject and count
    them, or raise InputError.
    """

    def __init__(
        self,
        trajectories: Sequence[Trajectory],
        recipe: Recipe,
        *,
        name: str = "data",
        admitted: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        over_long: Literal["drop", "refuse"] = "drop",
        cache_bytes: int = 0,
    ) -> None:
        self.trajectories, self.recipe, self.name = trajectories, recipe, name
        self.admitted = np.arange(len(trajectories)) if admitted is None else admitted
        self.lengths = lengths
        self.over_long, self.cache_bytes = over_long, cache_bytes
        self.rejected: Counter[str] = Counter()
        """Rejections by reason, repeats in later epochs included."""
        self._cache: OrderedDict[int, TrainingSample | RejectedTrajectory] = OrderedDict()
        self._cached_bytes = 0

    def __len__(self) -> int:
        return len(self.admitted)

    def trajectory(self, index: int) -> Trajectory:
        """The trajectory of a sample."""
        return self.trajectories[int(self.admitted[index])]

    def __getitem__(self, index: int) -> TrainingSample | RejectedTrajectory:
        result = self._cache.get(index)
        if result is None:
            pictures = pictures_of(self.trajectories, int(self.admitted[index]))
            result = make_sample(self.trajectory(index), self.recipe, pictures)
            self._keep(index, result)
        if isinstance(result, RejectedTrajectory):
            if self.over_long == "refuse" and result.reason == "over_long":
                raise InputError(
                    f"trajectory '{result.id}' of {self.name}: {result.detail}; raise batching.max_tokens, build shorter "
                    'trajectories, or set data.over_long = "drop"'
                )
            self.rejected[result.reason] += 1
        return result

    def draw(self, index: int) -> tuple[TrainingSample, int]:
        """The sample at `index` and the number of rejected trajectories before it.

        The next sample of the set replaces a rejected one, and the first follows the last. The result depends on the index
        alone, so every rank and every resumed run draws the same samples.

        Raises InputError if every trajectory of the set is rejected.
        """
        for skipped in range(len(self)):
            result = self[(index + skipped) % len(self)]
            if isinstance(result, TrainingSample):
                return result, skipped
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        raise InputError(
            f"every trajectory of {self.name} is rejected ({reasons}); raise batching.max_tokens, give a loss class that the "
            "trajectories have a weight above 0, or build the set again"
        )

    def _keep(self, index: int, result: TrainingSample | RejectedTrajectory) -> None:
        size = result.num_bytes if isinstance(result, TrainingSample) else 0
        # The first samples stay. An LRU cache would evict every sample just before the next epoch needs it.
        if self._cached_bytes + size <= self.cache_bytes:
            self._cache[index] = result
            self._cached_bytes += size
