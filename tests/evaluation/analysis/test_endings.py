"""Runs whose generations were cut: counted, and marked in the terminal and in reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seer.cli.eval.predict import reasoning_tokens, run_warnings, show_warnings
from seer.cli.options import LongBenchOptions
from seer.evaluation.analysis.endings import MAX_CUT_FRACTION, count_endings, ending_of, ending_warnings
from seer.evaluation.analysis.scored_run import load_run
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import TASKS
from seer.evaluation.files import MANIFEST_NAME, to_line
from seer.evaluation.reports.build import build_report
from seer.evaluation.runs.plan_longbench import PredictOptions, plan_run
from seer.schema import Prediction, Status, Step
from seer.web.page import to_html
from seer.web.tables import to_json, to_markdown


def prediction(number: int, *steps: Step) -> Prediction:
    failed = not steps or steps[-1].name == "reason"
    status = Status.FAILED if failed else Status.ANSWERED
    return Prediction(
        id=f"q{number}", task="hotpotqa", pred="" if failed else "x", answers=("x",), status=status,
        cause="no answer within the token limit" if failed else "", system="visual", trace=steps,
    )  # fmt: skip


CALL = Step(name="select", finish="stop")
COMPLETE = prediction(0, CALL, Step(name="reason"), Step(name="answer", finish="stop"))
CUT = prediction(1, Step(name="answer", finish="length"))
THINKING = prediction(2, CALL, Step(name="reason", finish="length"))


@pytest.mark.parametrize(
    ("one", "ending"),
    [(COMPLETE, "complete"), (CUT, "cut"), (THINKING, "thinking"), (prediction(3), "complete")],
)
def test_ending_of_reads_the_last_generation(one, ending):
    assert ending_of(one) == ending


@pytest.mark.parametrize(("num_cut", "warned"), [(2, False), (3, True)])
def test_ending_warnings_start_above_two_percent(num_cut, warned):
    run = [COMPLETE] * (100 - num_cut) + [CUT] * (num_cut - 1) + [THINKING]
    found = count_endings(run)
    assert (found.num_inputs, found.num_cut, found.num_thinking) == (100, num_cut - 1, 1)
    assert found.cut_fraction == num_cut / 100 and MAX_CUT_FRACTION == 0.02
    warnings = ending_warnings([("glyph", run)])
    assert len(warnings) == warned
    if warned:
        assert "glyph: 1 of 100 inputs ended inside the thinking and 2 were cut" in warnings[0]
        assert "3.0 %" in warnings[0] and "more reasoning tokens" in warnings[0]
    assert ending_warnings([("empty", [])]) == []


def test_cut_run_is_marked_in_terminal_and_report(tmp_path: Path, capsys):
    run = tmp_path / "glyph"
    run.mkdir()
    (run / "hotpotqa.jsonl").write_text("".join(f"{to_line(one)}\n" for one in (COMPLETE, CUT, THINKING)))
    (run / MANIFEST_NAME).write_text(json.dumps({"system": "visual", "num_inputs": {"hotpotqa": 3}}))
    (warning,) = run_warnings(run)
    show_warnings([warning])
    assert f"warning: {warning}" in capsys.readouterr().err
    report = build_report([load_run(run)])
    assert report.warnings == [warning]
    assert to_json(report)["warnings"] == [warning]
    assert "> **Warning:** glyph: 1 of 3" in to_markdown(report)
    assert "bad" in to_html(report).split(warning[:40])[0].rsplit("<div", 1)[1], "the callout is red"


@pytest.mark.parametrize("system", ["seer", "seer-k0", "visual", "text", "auto"])
def test_reasoning_tokens_default_is_the_same_for_baselines(system):
    options = {"data": Path(), "out": Path()}
    assert reasoning_tokens(LongBenchOptions(system=system, **options)) == 1024
    assert reasoning_tokens(LongBenchOptions(system=system, reasoning_tokens=0, **options)) == 0


@pytest.mark.parametrize(("system", "bare_tokens"), [("text", 64), ("visual", 164)])
def test_plan_run_grants_no_reasoning_to_continued_text(system, bare_tokens):
    assert not TASKS["trec"].chat and TASKS["qasper"].chat
    options = PredictOptions(reasoning_tokens=100)
    limits = []
    for task in ("trec", "qasper"):
        record = LongBenchRecord(task, task, "q", "c", answers=("y",), length=None, language="en", all_classes=None)
        ((planned,), _) = plan_run([record], system, options)
        limits.append(planned.to_task().max_new_tokens)
    assert limits == [bare_tokens, 228]
