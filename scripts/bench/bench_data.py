"""Measure the data pipeline: how well it uses a teacher, its speed and memory, the cost of kills, and scaling with Ray.

    python scripts/bench/bench_data.py [--quick]

Four measurements, each in separate processes:
- teacher: a scripted server with 50 ms latency and 64 calls at once, compared with the ideal rate of 64 / 0.05 = 1,280
  calls/s;
- records: synthetic records through load → guard → assemble → shard, 10 thousand and a million (100 thousand with
  --quick). Pages have a fixed length, because bench_render measures the layout;
- kills: a build with teachers that is killed with SIGKILL at twenty random moments must write the same bytes as an
  undisturbed build, and must repeat no call that its ledger contains;
- ray: the same build, with layout, in Ray with one and two workers; the bytes must equal those of the local runner.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripted_teacher import TeacherProcess

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LATENCY_S, CONCURRENCY = 0.05, 64
PAGE_CHARS = 400
WORDS = (
    *("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "harbour"),
    *("island", "juniper", "kettle", "lagoon", "meadow", "north", "orchard", "pasture"),
)


# ── Synthetic records ────────────────────────────────────────────────────────────────────────────


def write_records(path: Path, count: int, chars: int) -> Path:
    """Write records whose answer occurs once in a text of about `chars` characters."""
    generator = random.Random(count)
    with path.open("w") as file:
        for n in range(count):
            words = generator.choices(WORDS, k=chars // 7)
            fact = f"The gate of number {n} opens at {n * 7 % 1440} minutes."
            words.insert(generator.randrange(len(words)), fact)
            row = {
                "id": str(n),
                "question": f"When does the gate of number {n} open?",
                "context": " ".join(words),
                "answers": [f"{n * 7 % 1440} minutes"],
                "evidence": [fact],
            }
            file.write(json.dumps(row) + "\n")
    return path


def settings(path: Path, out: Path, **changes: Any) -> dict[str, Any]:
    source = {"kind": "table", "path": str(path), "split": "train"}
    return {"out": str(out), "sources": [source], "count_tokens_of": 0, **changes}


def teachers(base_url: str, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    teacher = {"base_url": base_url, "model": "scripted", "concurrency": concurrency, "backoff_s": 0.0}
    return {"judge": {"kind": "teacher", "teacher": teacher}, "reason": {"kind": "teacher", "teacher": teacher}}


# ── Processes ────────────────────────────────────────────────────────────────────────────────────


def child(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, **options)


def run_child(*arguments: str) -> dict[str, Any]:
    process = child(*arguments)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the measurement {' '.join(arguments[:1])} ended with {process.returncode}")
    # Ray prints further lines.
    result: dict[str, Any] = json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))
    return result


def build_in_child(values: str, pages: str) -> None:
    """Run one build and print its time, records and peak memory."""
    from data_pipeline.build import build
    from data_pipeline.settings import BuildConfig
    from data_pipeline.steps.paging import fixed_pages
    from seer.config import build_config

    config = build_config(BuildConfig, json.loads(Path(values).read_text()), where="the benchmark")
    started, cpu = time.perf_counter(), time.process_time()
    report = build(config, paginate=fixed_pages(PAGE_CHARS) if pages == "fixed" else None)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "records": report.statistics["records"], "peak_mb": peak_mb}))


def write_settings(folder: Path, name: str, values: dict[str, Any]) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(values))
    return str(path)


# ── The measurements ─────────────────────────────────────────────────────────────────────────────


def measure_teacher(folder: Path, quick: bool) -> dict[str, Any]:
    """Return the rate of calls, the ideal rate, the teacher's measured latency, and its mean number of calls in flight."""
    records = write_records(folder / "teacher.jsonl", 2000 if quick else 6000, 3 * PAGE_CHARS)
    teacher = TeacherProcess(LATENCY_S)
    judged = {"judge": teachers(teacher.base_url)["judge"]}
    run = run_child("build", write_settings(folder, "teacher", settings(records, folder / "t", **judged)), "fixed")
    log = teacher.stop()
    span_s = max(answered for _, answered, _ in log) - min(arrived for arrived, _, _ in log)
    ideal = CONCURRENCY / LATENCY_S
    rate = len(log) / span_s
    took_s = sum(answered - arrived for arrived, answered, _ in log)
    return {
        "calls": len(log),
        "calls_per_s": rate,
        "ideal": ideal,
        "efficiency": rate / ideal,
        "latency_ms": took_s / len(log) * 1e3,
        "in_flight": took_s / span_s,
        "cpu_ms_a_call": run["cpu_s"] / len(log) * 1e3,
    }


def measure_records(folder: Path, count: int) -> dict[str, Any]:
    """Return records per second of processor time, and peak memory."""
    records = write_records(folder / f"records-{count}.jsonl", count, 600)
    bench = write_records(folder / "benchmark.jsonl", 200, 2000)
    guarded = settings(records, folder / f"r{count}", guard={"benchmark": str(bench), "max_question_overlap": 1.0})
    result = run_child("build", write_settings(folder, f"records-{count}", guarded), "fixed")
    records.unlink()
    return {**result, "per_s": result["records"] / result["seconds"], "per_cpu_s": result["records"] / result["cpu_s"]}


def measure_kills(folder: Path) -> dict[str, Any]:
    """Kill a build at twenty random moments, then let it finish; return what it repeated and whether its bytes are equal."""
    records = write_records(folder / "kills.jsonl", 400, 2 * PAGE_CHARS)
    teacher = TeacherProcess(0.02)
    few = teachers(teacher.base_url, concurrency=8)
    run_child("build", write_settings(folder, "whole", settings(records, folder / "whole", **few)), "fixed")
    values = write_settings(folder, "killed", settings(records, folder / "killed", **few))
    ledger = folder / "killed" / "ledger.jsonl"
    generator = random.Random(0)
    kills, recorded = 0, [set[str]()]
    moments = []
    started = time.monotonic()
    while kills < 20:
        process = child("build", values, "fixed")
        before = ledger.stat().st_size if ledger.exists() else 0
        # The kill comes between start-up and the middle of the calls.
        wanted = generator.choice((0, 1, 3000, 9000, 20_000))
        deadline = time.monotonic() + 30
        while process.poll() is None and (ledger.stat().st_size if ledger.exists() else 0) < before + wanted:
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
        time.sleep(generator.random() * 0.02)
        alive = process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        moments.append(time.monotonic())
        recorded.append(ledger_keys(ledger))
        kills += alive
        if not alive:
            raise SystemExit("a build ended before its kill; the benchmark needs more records")
    finished = run_child("build", values, "fixed")
    log = teacher.stop()
    calls = [(arrived, key) for arrived, _, key in log if arrived > started]
    edges = [started, *moments, time.monotonic()]
    repeated = sum(
        key in recorded[run]
        for run in range(len(edges) - 1)
        for arrived, key in calls
        if edges[run] <= arrived < edges[run + 1]
    )
    same = set_bytes(folder / "whole") == set_bytes(folder / "killed")
    return {"kills": kills, "repeated": repeated, "equal": same, "calls": len(calls), "records": finished["records"]}


def ledger_keys(path: Path) -> set[str]:
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {json.loads(line)["key"] for line in lines}


def set_bytes(out: Path) -> dict[str, str]:
    """Return the digest of every file of a set."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in ("ledger.jsonl", "config.toml")
    }


def measure_ray(folder: Path, quick: bool) -> dict[str, Any] | None:
    """Return records per second with one and two workers, without start-up; None without Ray."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return None
    records = write_records(folder / "ray.jsonl", 200 if quick else 800, 300_000)
    run_child("build", write_settings(folder, "local", settings(records, folder / "local")), "layout")
    rates = run_child("ray", write_settings(folder, "ray", settings(records, folder / "ray")))
    same = all(set_bytes(folder / "local") == set_bytes(folder / f"ray{workers}") for workers in rates)
    return {"per_s_1": rates["1"], "per_s_2": rates["2"], "scaling": rates["2"] / rates["1"], "equal": same}


def ray_in_child(values: str) -> None:
    """Build with one and with two workers in one Ray, and print the records per second of each."""
    from data_pipeline.build import build
    from data_pipeline.settings import BuildConfig
    from seer.config import build_config

    config = build_config(BuildConfig, json.loads(Path(values).read_text()), where="the benchmark")
    (source,) = config.sources

    def timed(workers: int, limit: int | None, name: str) -> tuple[float, int]:
        some = source.model_copy(update={"limit": limit})
        changed = config.model_copy(update={"sources": (some,), "out": f"{config.out}{name}"})
        started = time.perf_counter()
        report = build(changed, runner="ray", workers=workers)
        return time.perf_counter() - started, report.statistics["records"]

    timed(2, 8, "warm")
    rates = {}
    for workers in (1, 2):
        # Start-up takes equally long for few and for many records, so the difference excludes it.
        few_s, few = timed(workers, 8 * workers, f"few{workers}")
        all_s, every = timed(workers, None, str(workers))
        rates[str(workers)] = (every - few) / (all_s - few_s)
    print(json.dumps(rates))


def lines_of(results: dict[str, Any], large: int) -> Iterator[str]:
    """Yield the lines of the table."""
    teacher, small, big, kills, ray = (results[name] for name in ("teacher", "small", "big", "kills", "ray"))
    growth = big["cpu_s"] / big["records"] / (small["cpu_s"] / small["records"])
    rows = [
        ("measured", "figure", "target"),
        ("---", "---", "---"),
        (
            f"teacher, {teacher['calls']:,} calls of 50 ms",
            f"{teacher['calls_per_s']:,.0f}/s of {teacher['ideal']:,.0f}/s = {teacher['efficiency']:.1%}; it took "
            f"{teacher['latency_ms']:.1f} ms and had {teacher['in_flight']:.1f} calls in flight",
            "≥ 95 %",
        ),
        (
            f"records, {large:,}",
            f"{big['per_s']:,.0f}/s by the clock, {big['per_cpu_s']:,.0f} per CPU second",
            "≥ 3,000/s a core",
        ),
        (f"peak memory, 10,000 → {large:,}", f"{small['peak_mb']:.0f} → {big['peak_mb']:.0f} MB", "within 10 %"),
        (f"CPU a record, {large:,} over 10,000", f"{growth:.2f}×", "linear"),
        (
            f"{kills['kills']} kills, {kills['calls']:,} calls",
            f"{kills['repeated']} finished calls repeated, bytes equal: {kills['equal']}",
            "0, equal",
        ),
    ]
    if ray is None:
        rows.append(("Ray", "not installed (extra `ray`)", "≥ 1.7×"))
    else:
        rates = f"{ray['per_s_1']:.0f} → {ray['per_s_2']:.0f} records/s = {ray['scaling']:.2f}×"
        rows.append(("Ray, 1 → 2 workers", f"{rates}, bytes equal: {ray['equal']}", "≥ 1.7×"))
    yield from (f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Run the measurements and print the table and the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="under two minutes: 100 thousand records instead of a million"
    )
    parser.add_argument("--only", default="", help="some of teacher, records, kills, ray, separated by commas")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, *rest = options.child
        (build_in_child if name == "build" else ray_in_child)(*rest)
        return
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.1f}")
    large = 100_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only:
            run_some(options.only.split(","), folder, options.quick, large)
            return
        results = {
            "teacher": measure_teacher(folder, options.quick),
            "small": measure_records(folder, 10_000),
            "big": measure_records(folder, large),
            "kills": measure_kills(folder),
            "ray": measure_ray(folder, options.quick),
        }
    print("\n".join(lines_of(results, large)))
    print(json.dumps(last_line(results, options.quick)))


def run_some(wanted: list[str], folder: Path, quick: bool, large: int) -> None:
    measurements = {
        "teacher": lambda: measure_teacher(folder, quick),
        "records": lambda: {"small": measure_records(folder, 10_000), "big": measure_records(folder, large)},
        "kills": lambda: measure_kills(folder),
        "ray": lambda: measure_ray(folder, quick),
    }
    for name in wanted:
        print(json.dumps({name: measurements[name]()}))


def last_line(results: dict[str, Any], quick: bool) -> dict[str, Any]:
    ray = results["ray"]
    return {
        "bench": "data",
        "teacher_efficiency": round(results["teacher"]["efficiency"], 4),
        "records_per_s": round(results["big"]["per_cpu_s"], 1),
        "peak_mb_10k": round(results["small"]["peak_mb"], 1),
        "peak_mb_100k" if quick else "peak_mb_1m": round(results["big"]["peak_mb"], 1),
        "teacher_latency_ms": round(results["teacher"]["latency_ms"], 2),
        "ray_scaling_2": None if ray is None else round(ray["scaling"], 3),
        "repeated_calls": results["kills"]["repeated"],
        "bytes_equal_after_kills": results["kills"]["equal"],
        "bytes_equal_over_ray": None if ray is None else ray["equal"],
    }


if __name__ == "__main__":
    main()
