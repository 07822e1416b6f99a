"""Figures of a run: summed on the device, reduced over ranks once per step, written as JSON lines.

Shapes: C loss classes, N supervised tokens.
"""

from __future__ import annotations

import json
import netrc
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import torch

from seer.errors import ConfigError
from seer.protocol.encoding import CLASSES
from seer.storage import write_text
from train.data.collate import Batch
from train.model.glm4v import Figures

COLUMNS = 4  # nll, weight · nll, tokens, correctly predicted tokens


class ClassTotals:
    """Sums over micro-batches by loss class: a float64 table (C, 4) on the device, so that no step waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.table = torch.zeros(len(CLASSES), COLUMNS, dtype=torch.float64, device=device)

    def add(self, batch: Batch, figures: Figures) -> None:
        """Add the figures of one micro-batch."""
        nll = figures.nll_N.double()
        # An idle batch has weight 0 and does not count.
        counts = (batch.weights_N > 0).double()
        rows = torch.stack([nll * counts, nll * batch.weights_N, counts, figures.correct_N.double() * counts], 1)
        self.table.index_add_(0, batch.classes_N, rows)

    def values(self) -> list[float]:
        """The table, row by row, ready to be summed over ranks."""
        return self.table.flatten().tolist()


def class_figures(values: list[float], total_weight: float, prefix: str = "") -> dict[str, float]:
    """Named figures from reduced sums, as `ClassTotals.values` orders them. Classes without tokens are left out."""
    figures: dict[str, float] = {}
    rows = [values[i : i + COLUMNS] for i in range(0, len(values), COLUMNS)]
    if total_weight > 0:
        figures[f"{prefix}loss"] = sum(row[1] for row in rows) / total_weight
    for loss_class, (nll, _, tokens, correct) in zip(CLASSES, rows, strict=True):
        if tokens:
            figures[f"{prefix}loss/{loss_class.value}"] = nll / tokens
            figures[f"{prefix}accuracy/{loss_class.value}"] = correct / tokens
            figures[f"{prefix}tokens/{loss_class.value}"] = tokens
    return figures


class MetricsFile:
    """The log of a run, metrics.jsonl, with one JSON object per line. A resumed run first drops the steps that it repeats."""

    def __init__(self, path: Path, start_step: int) -> None:
        self.path = path
        if path.exists():
            kept = [line for line in _whole_lines(path) if json.loads(line).get("step", 0) <= start_step]
            write_text(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and flush it."""
        self._file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The records of a metrics file, without an incomplete last line."""
    return [json.loads(line) for line in _whole_lines(Path(path))]


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


class Wandb:
    """A log at Weights & Biases. Without a network its files stay on disk for `wandb sync`. Raises ConfigError without wandb."""

    def __init__(self, project: str, folder: Path, settings: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise ConfigError("log.wandb = true needs wandb: pip install 'seer-vlm[train]'") from None
        # A resumed run continues the record of its first start, so the id lives in the run folder.
        identity = folder / "wandb-id"
        if not identity.exists():
            write_text(identity, secrets.token_hex(8))
        self.run = wandb.init(
            project=project,
            dir=str(folder),
            config=dict(settings),
            mode=wandb_mode(),
            id=identity.read_text(encoding="utf-8").strip(),
            resume="allow",
        )

    def write(self, record: Mapping[str, Any]) -> None:
        """Send one record under its step."""
        self.run.log({key: value for key, value in record.items() if key != "step"}, step=int(record["step"]))

    def close(self) -> None:
        """Finish the run at Weights & Biases."""
        self.run.finish()


def wandb_mode() -> Literal["online", "offline"]:
    """`online` if there are credentials (WANDB_API_KEY, or the netrc entry of `wandb login`) and WANDB_MODE allows it."""
    if os.environ.get("WANDB_MODE", "online") != "online":
        return "offline"
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        known = netrc.netrc(os.environ.get("NETRC") or Path.home() / ".netrc").authenticators(host)
    except (OSError, RuntimeError, netrc.NetrcParseError):  # no file, no home, or a file of another format
        known = None
    return "online" if known else "offline"


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this process so far: allocated memory of a GPU, or resident memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    # ru_maxrss is in bytes on macOS and in KiB on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
