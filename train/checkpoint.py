"""Checkpoints of a run: written in the background, complete or absent, and verified before use.

    checkpoints/
      latest                       name of the newest complete checkpoint
      step-000500/
        shard-00001-....safetensors, ...      weights and optimiser state of each rank, in files of a few GiB
        rank-0.json, ...           random state of each rank
        manifest.json              step, identity of the run, size and sha256 of every file; written last

A checkpoint is written under a hidden name and renamed once it has its manifest. Resuming verifies every hash. A damaged
checkpoint is reported and renamed, and the previous one is used. A run that starts over renames the checkpoints of the
earlier run and deletes them once it has its own first checkpoint. Tensors are stored as safetensors and everything else as
JSON, never as pickle. torch.distributed.checkpoint does the sharding, so a run may resume on another number of ranks.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from seer.errors import SeerError
from seer.storage import recover_folders, replace_folder, write_manifest, write_text
from train.parallel import World

MANIFEST, LATEST, FORMER = "manifest.json", "latest", ".former"
FILE_BYTES = 2 * 2**30
"""Approximate size of one file: torch assembles a file in memory before it writes it."""


class CheckpointError(SeerError, ValueError):
    """A checkpoint is incomplete, damaged, from another run, or cannot be written."""


class Checkpoints:
    """The checkpoints folder of one run. Methods are collectives unless they say otherwise: every rank must call them."""

    def __init__(
        self, folder: Path, world: World, *, keep: int = 2, background: bool = True, timeout_s: int = 1800
    ) -> None:
        self.folder, self.world, self.keep, self.background = folder, world, keep, background
        self._group: Any = None
        if world.ranks > 1:  # a separate group keeps collectives of a background save apart from those of training
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        # A single process is intended here. The warning comes from a thread, where a local filter has no effect.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        self._finisher = ThreadPoolExecutor(1, "checkpoint")
        self._pending: list[Future[Any]] = []
        if world.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            for unfinished in folder.glob(".step-*.writing"):  # left by a run that was killed
                shutil.rmtree(unfinished, ignore_errors=True)
            recover_folders(folder)

    def save(self, step: int, tensors: Mapping[str, torch.Tensor], about: Mapping[str, Any]) -> None:
        """Start writing the state after `step` updates; without `background`, wait until it is complete.

        `about` is added to the manifest. A save that is still running is finished first, which may raise its
        CheckpointError.
        """
        self.finish()
        name = f"step-{step:06d}"
        writing = self.folder / f".{name}.writing"
        if self.world.is_main:
            shutil.rmtree(writing, ignore_errors=True)
            writing.mkdir(parents=True)
        self.world.wait()
        (writing / f"rank-{self.world.rank}.json").write_text(json.dumps(random_state(self.world)), encoding="utf-8")
        writer = PartWriter(str(writing), save_distributed=True)
        writer.device = self.world.device
        written = dcp.async_save(
            dict(tensors),
            storage_writer=writer,
            process_group=self._group,
            no_dist=self._group is None,
        )
        assert isinstance(written, Future), "async_save with the thread checkpointer returns a future"
        self._pending = [written, self._finisher.submit(self._complete, written, writing, name, step, dict(about))]
        if not self.background:
            self.finish()

    def finish(self) -> None:
        """Wait until the running save is complete on every rank. Raises CheckpointError if it failed."""
        for pending in self._pending:
            try:
                pending.result()
            except CheckpointException as failure:
                raise CheckpointError(
                    f"cannot write a checkpoint to '{self.folder}' ({causes_of(failure)}): free disk space and run again; "
                    "the run resumes from the previous checkpoint"
                ) from None
        if self._pending:
            self.world.wait()
        self._pending = []

    def close(self) -> None:
        """Wait for the running save and ignore its result. A rank that exits during a save would fail it for all ranks."""
        wait(self._pending)
        self._finisher.shutdown(wait=True)

    def _complete(self, written: Future[Any], writing: Path, name: str, step: int, about: dict[str, Any]) -> None:
        """Hash this rank's files. On rank 0, also write the manifest, rename the folder and delete old checkpoints."""
        written.result()  # the result is the same on every rank, so either all of them go on or none
        files = {path.name: describe(path) for path in sorted(writing.glob(f"shard-{self.world.rank + 1:05d}-*"))}
        files |= {path.name: describe(path) for path in [writing / f"rank-{self.world.rank}.json"]}
        gathered: list[Any] = [files]
        if self.world.ranks > 1:
            gathered = [None] * self.world.ranks
            dist.all_gather_object(gathered, files, group=self._group)
        if not self.world.is_main:
            return
        files = {name: about for part in gathered for name, about in part.items()}
        files |= {path.name: describe(path) for path in sorted(writing.iterdir()) if path.name not in files}
        manifest = {"step": step, "ranks": self.world.ranks, **about, "files": files}
        write_manifest(writing / MANIFEST, manifest, indent=1, ensure_ascii=True, end="")
        replace_folder(writing, self.folder / name)
        write_text(self.folder / LATEST, name)
        # Old checkpoints go only now: at every moment, at least one complete checkpoint exists.
        for old in (*complete_names(self.folder)[: -self.keep], *(path.name for path in self._former())):
            shutil.rmtree(self.folder / old, ignore_errors=True)

    # ── Resuming, or starting over ───────────────────────────────────────────────────────────────

    def set_aside(self) -> None:
        """Start over: rename the checkpoints of an earlier run, so that they are not resumed.

        They are deleted when this run has its own first checkpoint. Not a collective.
        """
        if not self.world.is_main:
            return
        (self.folder / LATEST).unlink(missing_ok=True)
        for name in complete_names(self.folder):
            replace_folder(self.folder / name, self.folder / f"{name}{FORMER}")

    def _former(self) -> list[Path]:
        return sorted(self.folder.glob(f"step-*{FORMER}"))

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest sound checkpoint and its manifest, the same on every rank; None if there is none.

        Damaged checkpoints are reported on stderr and renamed.
        """
        step = -1
        if self.world.is_main:
            for name in reversed(complete_names(self.folder)):
                try:
                    step = int(verify(self.folder / name)["step"])
                    break
                except CheckpointError as error:
                    print(f"warning: {error}; using the checkpoint before it", file=sys.stderr, flush=True)
                    replace_folder(self.folder / name, self.folder / f"{name}.damaged")
        # Only rank 0 verifies the files; the others have -1, so the maximum is its result.
        (agreed,) = self.world.largest([step])
        if agreed < 0:
            return None
        folder = self.folder / f"step-{int(agreed):06d}"
        return folder, json.loads((folder / MANIFEST).read_text(encoding="utf-8"))

    @staticmethod
    def names(folder: Path) -> set[str]:
        """The names of the tensors in a checkpoint, from the headers of its files. Not a collective."""
        return set(HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata)

    def load(self, folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
        """Fill `tensors` in place and restore this rank's random state.

        Raises CheckpointError if the checkpoint is from another model or optimiser.
        """
        try:
            dcp.load(
                dict(tensors),
                storage_reader=HuggingFaceStorageReader(str(folder)),
                process_group=self._group,
                no_dist=self._group is None,
            )
        except CheckpointException as failure:
            raise CheckpointError(
                f"'{folder}' does not fit this run ({causes_of(failure)}): its model, its frozen parts or optimizer.kind differ. "
                "Choose another `out`, or set checkpoint.resume = false to start over"
            ) from None
        # Replicas of a shard must round alike, so they all restore the state of the first.
        state = folder / f"rank-{self.world.shard_rank}.json"
        if state.exists():
            restore_random_state(json.loads(state.read_text(encoding="utf-8")), self.world)


def complete_names(folder: Path) -> list[str]:
    """Names of the complete checkpoints in a folder, oldest first."""
    names = (path.parent.name for path in folder.glob(f"step-*/{MANIFEST}"))
    steps = {int(found[1]): name for name in names if (found := re.fullmatch(r"step-(\d+)", name))}
    return [steps[step] for step in sorted(steps)]


def verify(folder: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint and check the size and sha256 of every file.

    Raises CheckpointError if the manifest is unreadable, or a file is missing or differs from it.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"checkpoint '{folder}' has no readable manifest ({error})") from None
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"checkpoint '{folder}' lacks '{name}'")
        found = describe(path)
        if found != expected:
            raise CheckpointError(
                f"checkpoint '{folder}' is damaged: '{name}' has {found['bytes']} bytes and sha256 {found['sha256'][:12]}, "
                f"its manifest says {expected['bytes']} and {expected['sha256'][:12]}"
            )
    return manifest


def causes_of(failure: CheckpointException) -> str:
    """The causes of a failed save or load in one line. The message of torch's exception has a traceback of each rank."""
    return "; ".join(f"rank {rank}: {error}" for rank, (error, _) in failure.failures.items())


class PartWriter(HuggingFaceStorageWriter):
    """Distributes the tensors of a rank over several files, since torch's writer holds a copy of each file in memory."""

    device = torch.device("cpu")
    """The device of this rank."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        """Write this rank's files."""
        if self.device.type == "cuda":
            # A new thread starts on GPU 0, where a stray operation would create a context of every rank.
            torch.cuda.set_device(self.device)
        return super().write_data(plan, planner)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Assign every tensor to a numbered file of about `FILE_BYTES`, in the order of the plan."""
        sizes: dict[str, int] = {}
        for item in (item for plan in plans for item in plan.items):
            assert item.tensor_data is not None, "a checkpoint holds tensors alone"
            size = math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize
            sizes[item.index.fqn] = max(size, sizes.get(item.index.fqn, 0))
        # A tensor keeps one file number on all ranks; its largest shard decides how much of the file it fills.
        self.fqn_to_index_mapping, number, filled = {}, 1, 0
        for name, size in sizes.items():
            if filled and filled + size > FILE_BYTES:
                number, filled = number + 1, 0
            self.fqn_to_index_mapping[name] = number
            filled += size
        return super().prepare_global_plan(plans)


def describe(path: Path) -> dict[str, Any]:
    """Size in bytes and sha256 of a file, as in the manifest."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# ── Random state ─────────────────────────────────────────────────────────────────────────────────


def random_state(world: World) -> dict[str, str]:
    """The state of this rank's random generators, as hex."""
    state = {"cpu": torch.get_rng_state().numpy().tobytes().hex()}
    if world.device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(world.device).numpy().tobytes().hex()
    return state


def restore_random_state(state: Mapping[str, str], world: World) -> None:
    """Restore the state that `random_state` returned."""

    def tensor(text: str) -> torch.Tensor:
        return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)

    torch.set_rng_state(tensor(state["cpu"]))
    if world.device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(tensor(state["cuda"]), world.device)
