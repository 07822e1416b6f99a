"""LongBench: read its records, score a folder of predictions.

    records = read_records("data/hotpotqa.jsonl", LONGBENCH.find("hotpotqa"))
    report = score_folder("runs/mine", postprocess="official")
    report.scores["hotpotqa"], report.macro

A folder holds one `<task>.jsonl` per task. Its lines are either Seer's own `Prediction` records or the form that
published runs have: pred, answers, all_classes, length. A task's score is 100 times the mean over *all* its
inputs, rounded to two decimals; a failed input counts 0. The overall figure is the mean of the six categories'
means, not of the tasks.

A run that lacks inputs is refused unless `partial` is asked for, and then says so wherever it is shown. How many
inputs there should be is what the run's own manifest says, else the size of the full benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.benchmarks.custom import from_manifest, load_benchmark
from seer.evaluation.benchmarks.tasks import LONGBENCH, Benchmark, Task
from seer.evaluation.files import NUM_INPUTS, read_manifest
from seer.evaluation.jsonlines import read_json_lines
from seer.evaluation.scoring.scorers import CodeRatio, Metric, Postprocess, Score, postprocess, score_sample

QA_TASKS = ("qasper", "narrativeqa", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique")
EXIT_GAPS = 4
"""Exit code of the command line where inputs are missing (3 is `seer ask`'s "not answerable")."""


# ── Records ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LongBenchRecord:
    """One input of the benchmark."""

    id: str
    task: str
    input: str
    context: str
    answers: tuple[str, ...]
    length: int | None
    language: str
    all_classes: tuple[str, ...] | None


def read_records(path: str | Path, task: Task) -> Iterator[LongBenchRecord]:
    """Read a task's JSONL file. `question` is accepted for `input`, `id` for `_id`; a missing one is the row number."""
    for row, (place, fields) in enumerate(read_json_lines(path)):
        text = fields.get("input", fields.get("question"))
        if not isinstance(text, str) or not isinstance(fields.get("context"), str):
            raise InputError(f"{place}: needs the texts 'input' (or 'question') and 'context'; has {sorted(fields)}")
        # `_index` is the row in the full set, where a file holds only some of its records.
        index = fields["_index"] if isinstance(fields.get("_index"), int) else row
        length = fields.get("length")
        yield LongBenchRecord(
            id=str(fields.get("_id") or fields.get("id") or f"{task.name}-{index:04d}"),
            task=task.name,
            input=text,
            context=fields["context"],
            answers=_texts(fields.get("answers"), place, "answers"),
            length=length if isinstance(length, int) else None,
            language=str(fields.get("language") or ("zh" if task.metric.value.endswith("_zh") else "en")),
            all_classes=_classes(fields.get("all_classes"), place),
        )


def read_data(
    folder: Path, tasks: Sequence[str] | None = None, limit: int | None = None
) -> tuple[list[LongBenchRecord], Benchmark]:
    """The records of a data folder, or of its folder `data`, in the benchmark's order; and the benchmark.

    `tasks`: only these. `limit`: only the first so many records of each. Raises InputError where there is none.
    """
    check_limit(limit)
    benchmark = load_benchmark(folder)
    wanted = [benchmark.find(name.strip()).name for name in tasks] if tasks else list(benchmark.tasks)
    for place in (folder, folder / "data"):
        files = {name: place / f"{name}.jsonl" for name in wanted if (place / f"{name}.jsonl").is_file()}
        if files:
            break
    missing = [name for name in tasks or () if name.strip() not in files]
    if missing or not files:
        raise InputError(
            f"'{folder}' has no {', '.join(missing) or '<task>'}.jsonl; give a folder of {benchmark.name}'s records"
        )
    records = [
        record for name, file in files.items() for record in islice(read_records(file, benchmark.tasks[name]), limit)
    ]
    return records, benchmark


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InputError(f"--limit is {limit}; give at least 1 input per task")


def _texts(value: Any, place: str, key: str) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise InputError(f"{place}: '{key}' must be a list of texts, not {value!r}")


def _classes(value: Any, place: str) -> tuple[str, ...] | None:
    return None if value is None else _texts(value, place, "all_classes")


# ── Scores ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TaskScore:
    """One task of a run. `sample_scores` are in [0, 1], by id, in the file's order."""

    task: Task
    score: float
    sample_scores: Mapping[str, float]
    num_expected: int
    num_failures: int
    num_deep: int
    """Samples that the published scorer would have counted 0 because its recursion ran out of stack."""

    @property
    def num_missing(self) -> int:
        return max(0, self.num_expected - len(self.sample_scores))


@dataclass(frozen=True)
class ScoreReport:
    """All tasks of a run, in the benchmark's order."""

    tasks: Mapping[str, TaskScore]
    postprocess: Postprocess
    code_ratio: CodeRatio
    gaps: Mapping[str, int] = field(default_factory=dict)
    """Tasks that lack inputs, and how many; empty for a whole run."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    benchmark: Benchmark = LONGBENCH

    @property
    def scores(self) -> dict[str, float]:
        return {name: task.score for name, task in self.tasks.items()}

    @property
    def categories(self) -> dict[str, float]:
        """Mean task score of each category that has a task."""
        return {name: round(mean, 2) for name, mean in self._category_means().items()}

    @property
    def macro(self) -> float:
        """Mean over the categories present."""
        means = list(self._category_means().values())
        return round(math.fsum(means) / len(means), 2)

    @property
    def qa_mean(self) -> float | None:
        """Plain mean of the seven question-answering tasks that the paper's controls use; None where one is missing."""
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
        """Inputs of the full benchmark."""
        return self.benchmark.num_records

    @property
    def deep(self) -> int:
        return sum(task.num_deep for task in self.tasks.values())

    def _category_means(self) -> dict[str, float]:
        by_category = {
            category: [task.score for task in self.tasks.values() if task.task.category == category]
            for category in self.benchmark.categories
        }
        return {category: math.fsum(scores) / len(scores) for category, scores in by_category.items() if scores}

    def to_json(self) -> dict[str, Any]:
        """What `seer eval score --json` prints; `inputs` and `partial` are there only for less than the whole benchmark."""
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

    Raises InputError: no predictions there, a line that is none, or missing inputs without `partial`.
    """
    folder = Path(path)
    how, ratio = _option(Postprocess, postprocess), _option(CodeRatio, code_ratio)
    if not folder.is_dir():
        raise InputError(f"no folder at '{path}'; give one that holds <task>.jsonl files")
    manifest = read_manifest(folder)
    benchmark = from_manifest(manifest, f"the manifest of '{path}'")
    files = {name: folder / f"{name}.jsonl" for name in benchmark.tasks if (folder / f"{name}.jsonl").is_file()}
    if not files:
        known = ", ".join(benchmark.tasks)
        raise InputError(f"'{path}' holds no <task>.jsonl of {benchmark.name}; its tasks are {known}")
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
    """A run that lacks predictions, where the caller did not ask for partial scores."""

    exit_code = EXIT_GAPS


def _score_task(
    task: Task,
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
            raise InputError(f"{place}: the id '{identifier}' stands twice; each input may be predicted once")
        failed, score = _score_line(task, fields, place, how, ratio)
        scores[identifier] = score.value
        num_failures += failed
        num_deep += score.deep
    # fsum is exact, so that the order of the lines can't change the last digit; times 100 before the division, as the
    # published scorer does it. A score is never a mean over the survivors: failures stay in the denominator.
    points = round(100 * math.fsum(scores.values()) / len(scores), 2) if scores else 0.0
    return TaskScore(task, points, scores, num_expected, num_failures, num_deep)


def _score_line(
    task: Task, fields: Mapping[str, Any], place: str, how: Postprocess, ratio: CodeRatio
) -> tuple[bool, Score]:
    """Whether this input failed, and its score."""
    answers = _texts(fields.get("answers"), place, "answers")
    classes = _classes(fields.get("all_classes"), place)
    if task.metric is Metric.CLASSIFICATION and classes is None:
        raise InputError(f"{place}: '{task.name}' is scored against its classes, and 'all_classes' is missing")
    prediction = fields.get("pred")
    if fields.get("status") == "failed" or ("pred" in fields and prediction is None):
        return True, Score(0.0)
    if not isinstance(prediction, str):
        raise InputError(f"{place}: 'pred' must be a text, not {prediction!r}")
    try:
        return False, score_sample(
            task.metric,
            postprocess_prediction(prediction, task, how),
            answers,
            all_classes=classes or (),
            code_ratio=ratio,
        )
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def postprocess_prediction(prediction: str, task: Task, how: Postprocess) -> str:
    return postprocess(prediction, how, first_line=task.first_line)


def _option(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"{value!r} is none of {', '.join(kind)}") from None
