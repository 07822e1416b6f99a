"""`scripts/bench_all.sh` runs all benches, even if some fail, and records the machine with the figures."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "bench"
GOOD = """
import json, sys
print("| a table |")
print(json.dumps({"bench": "good", "quick": sys.argv[1:] == ["--quick"], "ms": {"a page": 1.23456}}))
"""


@pytest.fixture
def benches(tmp_path: Path) -> Path:
    folder = tmp_path / "benches"
    folder.mkdir()
    (folder / "bench_bad.py").write_text("import sys; print('{}'); sys.exit('no such thing')")
    (folder / "bench_good.py").write_text(GOOD)
    (folder / "bench_mute.py").write_text("print('done')")
    (folder / "helper.py").write_text("raise AssertionError('a helper is not a bench')")
    return folder


def run(benches: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPTS / "run_benches.py", "--benches", benches, "--out", out, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_run_benches_names_failing_bench_and_runs_the_others(benches, tmp_path):
    out = tmp_path / "out"
    done = run(benches, out)
    assert done.returncode == 1
    assert done.stderr.startswith("error: 2 of 3 benches failed: bench_bad (exit code 1, see ")
    assert "bench_mute (its last line is not a JSON object, see" in done.stderr
    assert "no such thing" in (out / "bench_bad.log").read_text()
    bad, good, mute = (json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())
    assert (bad["bench"], good["bench"], mute["bench"]) == ("bench_bad", "bench_good", "bench_mute")
    assert good["failure"] is None and good["figures"]["quick"]
    assert good["machine"]["cores"] >= 1 and good["machine"]["memory_gib"] > 0 and good["machine"]["cpu"]
    assert good["versions"]["python"] and good["date"].endswith("+00:00")
    table = (out / "report.md").read_text()
    assert "| | ms.a page | 1.235 |" in table and "| **bench_bad** | | exit code 1 |" in table


def test_run_benches_by_name_runs_full_forms(benches, tmp_path):
    done = run(benches, tmp_path / "out", "bench_good", "--full")
    assert done.returncode == 0, done.stderr
    (good,) = (json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines())
    assert not good["figures"]["quick"]
    assert "| a table |" in done.stdout


def test_run_benches_rejects_unknown_name(benches, tmp_path):
    done = run(benches, tmp_path / "out", "bench_god")
    assert done.returncode == 2
    assert "no bench bench_god in" in done.stderr and "bench_bad, bench_good, bench_mute" in done.stderr


def test_every_bench_has_a_quick_option():
    found = sorted(SCRIPTS.glob("bench_*.py"))
    assert found
    for path in found:
        assert '"--quick"' in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("bench", sorted(SCRIPTS.glob("bench_*.py")), ids=lambda path: path.stem)
def test_bench_prints_its_help(bench):
    done = subprocess.run([sys.executable, bench, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


def test_bench_render_without_poppler_leaves_its_paths_out(tmp_path, shared_data):
    """A machine without pdftoppm: the other paths are measured, the figures that need it are null."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SEER_SHARED_DATA": str(shared_data)}
    program = textwrap.dedent(
        """
        import runpy, sys
        bench = runpy.run_path(sys.argv[1])
        bench["sample_documents"].__globals__["sample_documents"] = lambda kind, pages: ["Some text.\\n" * 40]
        bench["main"].__globals__["print_scaling"] = lambda counts, quick: dict.fromkeys((100, 10_000), 0.0)
        bench["main"].__globals__["print_processes"] = lambda *arguments, **options: None
        sys.argv = ["bench_render.py", "--quick"]
        bench["main"]()
        """
    )
    command = [sys.executable, "-c", program, SCRIPTS / "bench_render.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "poppler is not installed" in done.stdout
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["en_ms_per_page"] > 0
    assert figures["speedup_en"] is figures["baseline_en_ms_per_page"] is None
