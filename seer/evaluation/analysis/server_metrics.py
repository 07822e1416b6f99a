"""Latency as the model server measures it: the histograms of vLLM's /metrics before and after a run.

    before = read_server_metrics(base_url)
    ...                                       # the run
    took = before and read_server_metrics(base_url).since(before)
    took.mean("ttft")

The histograms count every request of the server, so the figures are those of the run only if nobody else uses it.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from seer.errors import InputError
from seer.storage import write_json

FILE_NAME = "server_metrics.json"
_HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    # Renamed in vLLM 0.11.
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e": ("vllm:e2e_request_latency_seconds",),
    "queue": ("vllm:request_queue_time_seconds",),
    "prefill": ("vllm:request_prefill_time_seconds",),
    "decode": ("vllm:request_decode_time_seconds",),
}
"""Our names of the histograms, and vLLM's, the current one first."""
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)_(sum|count)(?:\{[^}]*\})?\s+([-+.\deE]+)")
_TIMEOUT_S = 5.0
_MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class ServerMetrics:
    """Sums in seconds and counts of a server's histograms, by our names."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def since(self, before: ServerMetrics) -> ServerMetrics:
        """Return what was added after `before`. A server that was restarted in between started from zero again."""
        if any(self.counts.get(name, 0) < count for name, count in before.counts.items()):
            return self
        return ServerMetrics(
            {name: value - before.sums.get(name, 0.0) for name, value in self.sums.items()},
            {name: value - before.counts.get(name, 0.0) for name, value in self.counts.items()},
        )

    def __add__(self, other: ServerMetrics) -> ServerMetrics:
        names = {*self.sums, *other.sums}
        return ServerMetrics(
            {name: self.sums.get(name, 0.0) + other.sums.get(name, 0.0) for name in sorted(names)},
            {name: self.counts.get(name, 0.0) + other.counts.get(name, 0.0) for name in sorted(names)},
        )

    def mean(self, name: str) -> float | None:
        """Return the mean seconds of a histogram; None if it counted nothing."""
        count = self.counts.get(name, 0.0)
        return self.sums[name] / count if count else None


def parse_metrics(text: str) -> ServerMetrics:
    """Read the sums and counts of the known histograms from Prometheus's text format, added over labels."""
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line.strip()):
            key = (match[1], match[2])
            found[key] = found.get(key, 0.0) + float(match[3])
    sums, counts = {}, {}
    for ours, theirs in _HISTOGRAMS.items():
        name = next((name for name in theirs if (name, "count") in found and (name, "sum") in found), None)
        if name is not None:
            sums[ours], counts[ours] = found[name, "sum"], found[name, "count"]
    return ServerMetrics(sums, counts)


def read_server_metrics(base_url: str) -> ServerMetrics | None:
    """Return the metrics of the server behind an OpenAI-compatible address; None if it offers none that are known."""
    address = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
    # Proxies of the environment are not used, as for all other requests to models.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=_TIMEOUT_S) as response:
            metrics = parse_metrics(response.read(_MAX_BYTES).decode("utf-8", "replace"))
    except (urllib.error.URLError, OSError, ValueError):
        return None
    return metrics if metrics.counts else None


def add_to_run(folder: Path, took: ServerMetrics) -> None:
    """Add the metrics of one session to those that earlier sessions of the run have written."""
    total = (read_of_run(folder) or ServerMetrics()) + took
    write_json(folder / FILE_NAME, {"sums": total.sums, "counts": total.counts})


def read_of_run(folder: Path) -> ServerMetrics | None:
    """Return the metrics of a run; None if its server offered none. Raises InputError if the file is damaged."""
    path = folder / FILE_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return ServerMetrics(*({str(k): float(v) for k, v in values[part].items()} for part in ("sums", "counts")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"'{path}' is damaged; delete it, or make the run again") from None
