"""Score the folder of a run in LongBench's form.

    report = score_folder("runs/mine", postprocess="official")
    report.scores["hotpotqa"], report.macro

A folder holds one `<task>.jsonl` per task. Its lines are either Seer's own `Prediction` records or the form of published
runs: pred, answers, all_classes, length. A task's score is 100 times the mean over *all* its inputs, rounded to two
decimals; a failed input counts 0. The overall score is the mean of the six category means, not of the tasks.

A run with missing inputs is rejected unless the caller passes `partial`; every table then marks it as partial. The
expected number of inputs comes from the run's manifest, or else from the size of the full benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import from_manifest
from seer.evaluation.benchmarks.longbench import to_classes, to_texts
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, BenchmarkTask
from seer.evaluation.files import NUM_INPUTS, library_versions, read_run_manifest
from seer.evaluation.jsonlines import read_json_lines
from seer.evaluation.scoring.scorers import CodeRatio, Metric, Postprocess, Score, score_sample
from seer.evaluation.scoring.scorers import postprocess as apply_postprocess

QA_TASKS = ("qasper", "narrativeqa", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique")
SCORING_LIBRARIES = ("seer-vlm", "jieba", "rapidfuzz")
"""Packages whose versions can change a score."""
EXIT_GAPS = 4
"""Exit code of the command line if inputs are missing (3 is the "not answerable" of `seer ask`)."""


def scored_with() -> str:
    """Return the versions of the scoring libraries as a phrase for the notes under tables."""
    return ", ".join(f"{name} {number}" for name, number in library_versions(SCORING_LIBRARIES).items())


@dataclass(frozen=True)
class TaskScore:
    """Scores of one task of a run: `score` in points from 0 to 100, `sample_scores` in [0, 1] by id, in the file's order."""

    task: BenchmarkTask
    score: float
    sample_scores: Mapping[str, float]
    num_expected: int
    num_failures: int
    num_deep: int
    """Samples for which the published scorer exceeds the recursion limit and counts 0."""

    @property
    def num_missing(self) -> int:
        return max(0, self.num_expected - len(self.sample_scores))


@dataclass(frozen=True)
class ScoreReport:
    """Scores of all tasks of a run, in the benchmark's order."""

    tasks: Mapping[str, TaskScore]
    postprocess: Postprocess
    code_ratio: CodeRatio
    gaps: Mapping[str, int] = field(default_factory=dict)
    """Number of missing inputs by task; empty for a complete run."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    benchmark: Benchmark = LONGBENCH

    @property
    def scores(self) -> dict[str, float]:
        return {name: task.score for name, task in self.tasks.items()}

    @property
    def categories(self) -> dict[str, float]:
        """Mean task score of each category with at least one task."""
        return {name: round(mean, 2) for name, mean in self._category_means().items()}

    @property
    def macro(self) -> float:
        """Mean of the category means, over the categories present."""
        means = list(self._category_means().values())
        return round(math.fsum(means) / len(means), 2)

    @property
    def qa_mean(self) -> float | None:
        """Mean of the seven question-answering tasks of the paper's controls; None if the run lacks one of them."""
        if not all(name in self.tasks for name in QA_TASKS):
            return None
        return round(math.fsum(self.tasks[name].score for name in QA_TASKS) / len(QA_TASKS), 2)

    @property
    def failures(self) -> int:
        return sum(task.num_failures for task in self.tasks.values())

    @property
    def num_inputs(self) -> int:
        return sum(len(task.sample_scores) for task in self.tasks.values())

    @property
    def num_benchmark(self) -> int:
        """Number of inputs of the full benchmark."""
        return self.benchmark.num_records

    @property
    def deep(self) -> int:
        """Number of samples for which the published scorer exceeds the recursion limit."""
        return sum(task.num_deep for task in self.tasks.values())

    def _category_means(self) -> dict[str, float]:
        by_category = {
            category: [task.score for task in self.tasks.values() if task.task.category == category]
            for category in self.benchmark.categories
        }
        return {category: math.fsum(scores) / len(scores) for category, scores in by_category.items() if scores}

    def to_json(self) -> dict[str, Any]:
        """Return the output of `seer eval score --json`; `inputs` and `partial` only for less than the full benchmark."""
        result: dict[str, Any] = {
            "scores": self.scores,
            "categories": self.categories,
            "macro": self.macro,
            "failures": self.failures,
            "postprocess": self.postprocess.value,
            "code_ratio": self.code_ratio.value,
        }
        if self.num_inputs < self.num_benchmark:
            result["inputs"] = self.num_inputs
        if self.gaps:
            result["partial"] = dict(self.gaps)
        return result


def score_folder(
    path: str | Path,
    *,
    postprocess: Postprocess | str = Postprocess.OFFICIAL,
    code_ratio: CodeRatio | str = CodeRatio.DIFFLIB,
    partial: bool = False,
) -> ScoreReport:
    """Score every `<task>.jsonl` of a folder.

    Raises InputError if the folder has no predictions or a line is invalid, and PartialRunError if inputs are missing
    and `partial` is false.
    """
    folder = Path(path)
    how, ratio = _option(Postprocess, postprocess), _option(CodeRatio, code_ratio)
    if not folder.is_dir():
        raise InputError(f"no folder at '{path}'; give one that holds <task>.jsonl files")
    manifest = read_run_manifest(folder)
    benchmark = from_manifest(manifest, f"the manifest of '{path}'")
    files = {name: folder / f"{name}.jsonl" for name in benchmark.tasks if (folder / f"{name}.jsonl").is_file()}
    if not files:
        known = ", ".join(benchmark.tasks)
        raise InputError(f"'{path}' holds no <task>.jsonl of {benchmark.name}; its tasks are {known}")
    # A run with a limit is complete with fewer inputs than the benchmark; its manifest records how many.
    expected = manifest.get(NUM_INPUTS) or {name: task.num_records for name, task in benchmark.tasks.items()}
    tasks = {
        name: _score_task(benchmark.tasks[name], read_json_lines(file), how, ratio, int(expected.get(name, 0)))
        for name, file in files.items()
    }
    gaps = {name: int(number) for name, number in expected.items() if name not in tasks and number}
    gaps |= {name: task.num_missing for name, task in tasks.items() if task.num_missing}
    if gaps and not partial:
        listed = ", ".join(f"{name} ({number})" for name, number in gaps.items())
        raise PartialRunError(
            f"'{path}' lacks predictions: {listed}; finish the run, or pass --partial to score what is there"
        )
    return ScoreReport(tasks, how, ratio, gaps, manifest, benchmark)


class PartialRunError(InputError):
    """The run lacks predictions, and the caller did not pass `partial`."""

    exit_code = EXIT_GAPS


def _score_task(
    task: BenchmarkTask,
    lines: Iterable[tuple[str, Mapping[str, Any]]],
    how: Postprocess,
    ratio: CodeRatio,
    num_expected: int,
) -> TaskScore:
    scores: dict[str, float] = {}
    num_failures = num_deep = 0
    for row, (place, fields) in enumerate(lines):
        identifier = str(fields.get("id") or f"{task.name}-{row:04d}")
        if identifier in scores:
            raise InputError(f"{place}: the id '{identifier}' occurs twice; predict each input once")
        failed, score = _score_line(task, fields, place, how, ratio)
        scores[identifier] = score.value
        num_failures += failed
        num_deep += score.deep
    # fsum is exact, so the order of the lines cannot change the last digit. Like the published scorer, multiply by 100
    # before the division. Failed inputs stay in the denominator: a score must not rise because inputs fail.
    points = round(100 * math.fsum(scores.values()) / len(scores), 2) if scores else 0.0
    return TaskScore(task, points, scores, num_expected, num_failures, num_deep)


def _score_line(
    task: BenchmarkTask, fields: Mapping[str, Any], place: str, how: Postprocess, ratio: CodeRatio
) -> tuple[bool, Score]:
    """Return whether this input failed, and its score."""
    answers = to_texts(fields.get("answers"), place, "answers")
    classes = to_classes(fields.get("all_classes"), place)
    if task.metric is Metric.CLASSIFICATION and classes is None:
        raise InputError(f"{place}: '{task.name}' is scored against its classes, and 'all_classes' is missing")
    prediction = fields.get("pred")
    # Own runs mark failures by status, published runs by a null prediction.
    if fields.get("status") == "failed" or ("pred" in fields and prediction is None):
        return True, Score(0.0)
    if not isinstance(prediction, str):
        raise InputError(f"{place}: 'pred' must be a text, not {prediction!r}")
    try:
        return False, score_sample(
            task.metric,
            apply_postprocess(prediction, how, first_line=task.first_line),
            answers,
            all_classes=classes or (),
            code_ratio=ratio,
        )
    except InputError as error:  # Add the location: the metric does not know the file and the line.
        raise InputError(f"{place}: {error}") from None


def _option(options: Any, value: Any) -> Any:
    """Return the member of an enumeration for a name."""
    try:
        return options(value)
    except ValueError:
        raise InputError(f"unknown value {value!r}; use one of {', '.join(options)}") from None
