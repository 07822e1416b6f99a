"""Analysis of scored runs: tokens, selections, retrieval scope, heterogeneity and latency."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seer.evaluation.analysis.latency import latency_summary, prefill_by_length
from seer.evaluation.analysis.scored_run import ScoredRun, load_run
from seer.evaluation.analysis.selections import heterogeneity, retrieval_scope, selection_summary, selections_by_length
from seer.evaluation.analysis.tokens import token_table
from seer.evaluation.files import MANIFEST_NAME, to_line
from seer.evaluation.reports.controls import scope_section
from seer.evaluation.runs.probing import PrefillProbe
from seer.schema import Prediction, Status, Step, StepUsage, Usage


def make(number: int, task: str = "hotpotqa", pred: str = "x", **more: object) -> Prediction:
    fields = {"pages": 5, "status": Status.ANSWERED, "answers": ("x",), "all_classes": ("x", "y")}
    return Prediction(id=f"{task}-{number}", task=task, pred=pred, **(fields | more))


def make_run(folder: Path, *predictions: Prediction, **manifest: object) -> ScoredRun:
    folder.mkdir()
    counts: dict[str, int] = {}
    for one in predictions:
        counts[one.task] = counts.get(one.task, 0) + 1
        with (folder / f"{one.task}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{to_line(one)}\n")
    (folder / MANIFEST_NAME).write_text(json.dumps({"num_inputs": counts, **manifest}), encoding="utf-8")
    return load_run(folder)


def test_token_table_averages_task_means(tmp_path):
    run = make_run(
        tmp_path / "run",
        make(0, usage=Usage(vision=60, retrieved=20, prompt=100, completion=10, full_text=200)),
        make(1, usage=Usage(vision=200, retrieved=0, prompt=300, completion=30, full_text=200)),
        make(2, status=Status.FAILED),
        make(0, "trec", usage=Usage(vision=0, prompt=50, completion=1, full_text=200)),
    )
    table = token_table(run.predictions)
    row = table.tasks["hotpotqa"]
    assert (row.textual, row.visual, row.retrieved, row.prompt, row.completion) == (70, 130, 10, 200, 20)
    assert (row.compression, row.num_samples, row.num_left_out) == (1.0, 2, 1)
    assert table.tasks["trec"].compression == 4.0
    assert table.overall.prompt == 125
    assert table.overall.compression == 2.5, "the mean of ratios, not the ratio of means, which is 1.6"
    assert table.num_dearer == 0
    other = token_table(run.predictions, full_text={"hotpotqa": 100.0, "trec": 50.0})
    assert other.tasks["hotpotqa"].compression == 0.5
    assert other.num_dearer == 1


def test_selections_by_length_count_selected_pages():
    predictions = [make(n, pages=2, selected_pages=(1,)) for n in range(3)]
    predictions += [make(9, pages=30, selected_pages=(1, 2, 3, 4)), make(10, pages=0, status=Status.FAILED)]
    summary = selection_summary(predictions)
    assert (summary.histogram, summary.num_samples) == ({1: 3, 4: 1}, 4)
    assert (summary.mean, summary.median, summary.share_of_many) == (1.75, 1.0, 0.25)
    assert summary.mean_document_pages == 9.0
    by_length = selections_by_length(predictions)
    assert list(by_length) == ["1-3", "21+"]
    assert by_length["21+"].histogram == {4: 1}
    assert selection_summary([]).num_samples == 0


def test_retrieval_scope_compares_runs_by_category_and_task(tmp_path):
    def run(name: str, *right: str) -> ScoredRun:
        tasks = ("hotpotqa", "musique", "trec")
        return make_run(tmp_path / name, *(make(0, task, "x" if task in right else "no") for task in tasks))

    none, one, every = run("k0"), run("k1", "hotpotqa"), run("all", "hotpotqa", "trec")
    scope = retrieval_scope(none.report, every.report, one.report)
    assert scope.overall.none == 0
    assert scope.overall.one == pytest.approx(100 / 3)
    assert scope.overall.recovered_by_one == pytest.approx(0.5)
    assert (scope.macro.one, scope.macro.all) == (25, 75)
    assert scope.categories["multi_doc_qa"].gain == 50
    assert scope.tasks["musique"].recovered_by_one is None
    assert retrieval_scope(none.report, every.report).overall.one is None


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_scope_section_ignores_runs_with_fixed_selector(tmp_path, order):
    systems = {"forced": "seer+random", "k0": "seer-k0", "full": "seer"}
    runs = [make_run(tmp_path / name, make(0), system=system) for name, system in systems.items()]
    section = scope_section([runs[place] for place in order])
    assert section is not None
    assert section.text == "k = 0: k0; k = 1: no such run; k = all: full."


def test_heterogeneity_gives_gain_by_number_of_selected_pages(tmp_path):
    full = make_run(
        tmp_path / "full",
        *(make(n, selected_pages=(1,)) for n in range(3)),
        *(make(n, pred="no", selected_pages=(1, 2, 3, 4)) for n in range(3, 5)),
        make(5, selected_pages=()),
        *(make(n, "trec", selected_pages=(1,)) for n in range(2)),
    )
    visual = make_run(tmp_path / "visual", *(make(n, pred="no" if n else "x") for n in range(4)), make(0, "trec", "no"))
    first, second = heterogeneity(full, visual.report, visual.report, min_samples=2)
    assert (first.task, second.task) == ("trec", "hotpotqa"), "sorted by gain"
    assert second.gain == pytest.approx(66.67 - 25)
    assert second.cells == {"0": None, "1": 75.0, "2": None, "3+": -25.0}
    assert second.counts == {"0": 1, "1": 3, "2": 0, "3+": 2}


def timed(number: int, seconds: float, completion: int, **more: object) -> Prediction:
    usage = StepUsage(completion=completion)
    step = Step(name="answer", outputs={"text": "x"}, usage=usage, seconds=seconds, finish="stop")
    return make(number, seconds=seconds, usage=Usage(prompt=10, completion=completion), trace=(step,), **more)


def test_latency_summary_gives_medians_and_counts_slow_samples():
    predictions = [timed(0, 1.0, 10), timed(1, 2.0, 40), timed(2, 31.0, 62), timed(3, 99.0, 5, status=Status.FAILED)]
    summary = latency_summary(predictions)
    assert (summary.num_samples, summary.seconds, summary.num_slow, summary.completion_tokens) == (3, 2.0, 1, 40)
    assert summary.p90_seconds == pytest.approx(25.2)
    assert summary.generate_tokens_per_s == 10
    assert summary.decode_tokens_per_s is None
    probes = {one.id: PrefillProbe(one.id, 100, 0.5) for one in predictions}
    probed = latency_summary(predictions, probes)
    assert probed.prefill_seconds == 0.5
    assert probed.decode_tokens_per_s == pytest.approx(9 / 0.5)
    assert latency_summary([]).seconds is None


def test_prefill_by_length_groups_by_powers_of_two():
    buckets = prefill_by_length(
        [PrefillProbe(str(n), tokens, tokens / 1000) for n, tokens in enumerate((100, 127, 128))]
    )
    assert [(bucket.least_tokens, bucket.num_probes) for bucket in buckets] == [(64, 2), (128, 1)]
    assert buckets[0].median_seconds == pytest.approx(0.1135)


def test_load_run_of_other_program_has_only_scores(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    line = {"pred": "x", "answers": ["x"], "all_classes": None, "length": 3}
    (tmp_path / "elsewhere/qasper.jsonl").write_text(json.dumps(line), encoding="utf-8")
    run = load_run(tmp_path / "elsewhere", partial=True)
    assert run.report.scores == {"qasper": 100.0}
    assert not run.is_ours
    assert run.name == "elsewhere"
