"""Open the trajectory sets of a configuration: folders of shards, or JSON lines.

    datasets = open_sets(config.data.sets, config.data, recipe, world)

Each dataset holds the trajectories that `train.data.admission` lists as usable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from pydantic import ValidationError

from seer.errors import InputError
from seer.schema import Trajectory
from train.config import DataConfig, SetConfig
from train.data.admission import Admission, admit
from train.data.dataset import Recipe, TrajectoryDataset
from train.data.pages import pictures_of

if TYPE_CHECKING:
    from train.parallel import World


class JsonLines(Sequence[Trajectory]):
    """A .jsonl file with one trajectory per line, validated when opened and kept in memory. For small sets.

    Raises InputError, which names the line, if a line is not a trajectory.
    """

    def __init__(self, path: Path) -> None:
        self.items: list[Trajectory] = []
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        self.items.append(Trajectory.model_validate_json(line))
                    except ValidationError as error:
                        fault = error.errors()[0]
                        place = ".".join(map(str, fault["loc"]))
                        raise InputError(
                            f"'{path}' line {number} is not a trajectory: {f'{place}: ' if place else ''}{fault['msg']}; "
                            "build the set again"
                        ) from None

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory]: ...
    def __getitem__(self, index: int | slice) -> Trajectory | Sequence[Trajectory]:
        return self.items[index]

    @property
    def digest(self) -> str:
        """sha256 of the content, as hex."""
        joined = hashlib.sha256()
        for item in self.items:
            joined.update(item.model_dump_json().encode())
        return joined.hexdigest()


def open_trajectories(path: str | Path) -> Sequence[Trajectory]:
    """Open a folder of shards or a .jsonl file. Raises InputError if `path` is neither."""
    where = Path(path)
    if where.is_dir():
        from seer.shards.reader import ShardSet

        return ShardSet(where)
    if where.is_file():
        return JsonLines(where)
    raise InputError(f"no trajectories at '{path}'; give a folder of shards or a .jsonl file")


def open_sets(sets: Sequence[SetConfig], data: DataConfig, recipe: Recipe, world: World) -> list[TrajectoryDataset]:
    """Open the data sets of a configuration, in its order; they share the cache equally. A collective.

    Raises InputError if a set is empty or has no usable trajectory, or if its stored list of admitted trajectories is
    damaged or was made under other conditions.
    """
    cache_bytes = data.cache_mib * 2**20 // max(1, len(sets))
    opened = []
    for entry in sets:
        trajectories, admission = open_admitted(entry, recipe, world)
        admitted = admission.indices(data.over_long)
        opened.append(
            TrajectoryDataset(
                trajectories,
                recipe,
                name=entry.path,
                admitted=admitted,
                lengths=admission.tokens[admitted],
                over_long=data.over_long,
                cache_bytes=cache_bytes,
            )
        )
    return opened


def open_admitted(entry: SetConfig, recipe: Recipe, world: World) -> tuple[Sequence[Trajectory], Admission]:
    """Open one set and its list of usable trajectories. A collective.

    Raises InputError if the set is empty or its stored list is damaged.
    """
    trajectories = open_trajectories(entry.path)
    if len(trajectories) == 0:
        raise InputError(f"'{entry.path}' has no trajectories; build some first")
    if entry.max_samples is not None and entry.max_samples < len(trajectories):
        trajectories = Head(trajectories, entry.max_samples)
    return trajectories, admit(trajectories, recipe, entry.path, world)


class Head(Sequence[Trajectory]):
    """The first `size` trajectories of a sequence, without a copy."""

    def __init__(self, items: Sequence[Trajectory], size: int) -> None:
        self.items, self.size = items, size

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Trajectory]: ...
    def __getitem__(self, index: int | slice) -> Trajectory | Sequence[Trajectory]:
        if isinstance(index, slice):
            return [self.items[i] for i in range(*index.indices(self.size))]
        return self.items[range(self.size)[index]]

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(self.size))

    @property
    def digest(self) -> str:
        """The digest of the whole sequence. The number of trajectories tells parts of one sequence apart."""
        return str(getattr(self.items, "digest", ""))

    def pages_png(self, index: int) -> Sequence[bytes]:
        """The stored pages of a trajectory as PNG; empty if the set stores none."""
        return pictures_of(self.items, index)
