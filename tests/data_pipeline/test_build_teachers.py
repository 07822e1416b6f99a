"""Builds with teachers over HTTP: bad replies are counted, budgets hold, and an interruption changes no byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures.data.builds import configure, correct_teacher, entry_number, with_teachers, written_files
from fixtures.data.teacher_server import Body, Say, is_judge, serve

from data_pipeline.build import build
from data_pipeline.tally import BuildStopped
from seer.shards.reader import ShardSet
from seer.teaching.ledger import BudgetReached, Ledger


def test_build_with_teachers_judges_and_reasons(tmp_path: Path) -> None:
    with serve(correct_teacher) as server:
        report = build(configure(tmp_path, **with_teachers(server)))
    shards = ShardSet(tmp_path / "out" / "train")
    assert len(shards) == 12
    source = report.statistics["sources"]["world"]
    assert source["agreement_with_gold"]["precision"] == source["agreement_with_gold"]["recall"] == 1.0
    assert source["agreement_with_gold"]["kappa"] == 1.0
    assert {trajectory.provenance["judge"] for trajectory in shards} == {"teacher"}
    assert {trajectory.provenance["reason"] for trajectory in shards} == {"teacher:scripted"}
    assert shards[0].turns[3].text == "The page says 100 steps."
    with Ledger(tmp_path / "out" / "ledger.jsonl") as ledger:
        assert len(ledger) == len(server.asked)


def test_build_with_bad_replies_counts_them_and_keeps_the_rest(tmp_path: Path) -> None:
    def script(body: Body, n: int) -> Say:
        record = entry_number(body)
        bad = {
            0: Say("Perhaps."),
            1: Say(status=500),
            2: Say(raw=b"<html>proxy</html>"),
            3: Say(""),
        }
        if is_judge(body):
            return bad.get(record, Say("NO") if record == 4 else correct_teacher(body, n))
        wrong = {5: "<think>x</think>Answer: 7", 6: "I'm sorry, I can't.", 7: "", 8: "<html></html>"}
        return Say(wrong[record]) if record in wrong else correct_teacher(body, n)

    with serve(script) as server:
        report = build(configure(tmp_path, max_fault_share=1.0, **with_teachers(server)))
    assert report.statistics["sources"]["world"]["rejected"] == {
        "judge_unparsed": 2, "judge_failed": 2, "no_relevant_pages": 1,
        "answer_differs": 1, "reason_refused": 1, "reason_empty": 1, "no_reasoning": 1,
    }  # fmt: skip
    assert report.statistics["written"] == 3
    assert report.statistics["faults"] == 2
    # The judge selected no page of record 4, which counts against its recall.
    assert report.statistics["sources"]["world"]["agreement_with_gold"]["pages_gold_only"] == 1


def test_build_with_unusable_teacher_stops(tmp_path: Path) -> None:
    with (
        serve(lambda body, n: Say(status=401)) as server,
        pytest.raises(BuildStopped, match="judge teacher cannot be used"),
    ):
        build(configure(tmp_path, **with_teachers(server)))


def test_build_with_spent_budget_stops_and_resumes_with_more(tmp_path: Path) -> None:
    with serve(correct_teacher) as server:
        undisturbed = configure(tmp_path, out="whole", **with_teachers(server))
        build(undisturbed)
        calls = len(server.asked)
        for limit in (5, 17):
            with pytest.raises(BudgetReached, match="raise the budget"):
                build(configure(tmp_path, budget={"max_calls": limit}, **with_teachers(server)))
            assert len(server.asked) == calls + limit
        build(configure(tmp_path, **with_teachers(server)))
        assert len(server.asked) == 2 * calls
        few = with_teachers(server)
        for part in few.values():
            part["teacher"]["concurrency"] = 2
        finished = build(configure(tmp_path, out="part", budget={"max_calls": 25, "then": "finish"}, **few))
    assert written_files(tmp_path / "out", ignore=("ledger.jsonl", "config.toml", "manifest.json")) == written_files(
        tmp_path / "whole", ignore=("ledger.jsonl", "config.toml", "manifest.json")
    )
    counts = finished.statistics["sources"]["world"]
    assert set(counts["rejected"]) <= {"judge_budget", "budget"}
    assert sum(counts["rejected"].values()) + counts["written"] == 12
    # What was not judged is missing after Phase 1 already.
    assert counts["retention"]["judge"] == 12 - counts["rejected"]["judge_budget"]
    assert counts["written"] >= 4


def test_build_with_distributed_share_keeps_template_records(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    with path.open("w") as file:
        for n in range(24):
            quotes = [f"Fact {part} of record {n} holds." for part in range(4)]
            text = "\n".join(f"{quote}\n" + f"Filler {n} sentence about geese and weather.\n" * 90 for quote in quotes)
            distributed = n % 2 == 0
            evidence = quotes if distributed else quotes[:1]
            row = {"id": n, "question": f"What of record {n} in entry {n}?", "context": text, "answers": ["holds"]}
            file.write(json.dumps({**row, "evidence": evidence}) + "\n")

    def script(body: Body, n: int) -> Say:
        return Say(f"<think>x</think>Answer: {'wrong' if entry_number(body) % 2 == 0 else 'holds'}")

    source = [{"kind": "table", "path": str(path)}]
    reason = {"kind": "teacher"}
    with serve(script) as server:
        teacher = {"base_url": server.base_url, "model": "scripted"}
        without = build(configure(tmp_path, sources=source, reason={**reason, "teacher": teacher}))
        kept = build(
            configure(
                tmp_path,
                out="kept",
                sources=source,
                reason={**reason, "teacher": teacher},
                assemble={"distributed_share": 0.25},
            )
        )
    assert without.statistics["sources"]["table"]["reasoning"] == {"teacher:scripted": 12}
    assert without.statistics["sources"]["table"]["rejected"] == {"answer_differs": 12}
    assert kept.statistics["sources"]["table"]["reasoning"] == {"teacher:scripted": 12, "template": 3}
    assert kept.statistics["sources"]["table"]["rejected"] == {"answer_differs": 9}
    assert sum(len(trajectory.relevant_pages) >= 4 for trajectory in ShardSet(tmp_path / "kept" / "train")) == 3


def test_build_killed_repeatedly_writes_the_same_bytes(tmp_path: Path) -> None:
    def slow_teacher(body: Body, n: int) -> Say:
        say = correct_teacher(body, n)
        say.delay_s = 0.01
        return say

    generator = random.Random(7)
    with serve(slow_teacher) as server:
        teachers = with_teachers(server)
        for part in teachers.values():
            part["teacher"]["concurrency"] = 4
        config = configure(tmp_path, count=40, **teachers)
        build(config.model_copy(update={"out": str(tmp_path / "whole")}))
        server.keys.clear()
        settings = tmp_path / "settings.json"
        settings.write_text(config.model_dump_json())
        program = (
            "import sys; from pathlib import Path; from data_pipeline.build import build;"
            "from data_pipeline.settings import BuildConfig;"
            "build(BuildConfig.model_validate_json(Path(sys.argv[1]).read_text()))"
        )
        finished_calls: set[str] = set()
        repeated = kills = 0
        for attempt in range(30):
            before = len(server.keys)
            process = subprocess.Popen([sys.executable, "-c", program, str(settings)], cwd=Path(__file__).parents[2])
            if attempt < 4:
                # Wait for some calls, so that every kill interrupts work in progress.
                deadline = time.monotonic() + 60
                while len(server.keys) < before + generator.randint(1, 30) and process.poll() is None:
                    assert time.monotonic() < deadline
                    time.sleep(0.002)
                kills += process.poll() is None
                os.kill(process.pid, signal.SIGKILL)
            code = process.wait(60)
            repeated += sum(key in finished_calls for key in server.keys[before:])
            finished_calls = recorded_keys(tmp_path / "out" / "ledger.jsonl")
            if code == 0:
                break
    assert kills >= 3
    assert repeated == 0
    assert written_files(tmp_path / "out") == written_files(tmp_path / "whole")


def recorded_keys(path: Path) -> set[str]:
    """Return the keys of the calls whose complete line is in the ledger."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return {json.loads(line)["key"] for line in lines}
