"""Score the predictions of a document-QA benchmark under a named protocol.

    report = score_docqa(records, read_docqa_predictions("runs/mine"), DocProtocol.MMLONGBENCH_OFFICIAL)
    report.overall.accuracy, report.overall.f1

F1 follows the benchmarks: recall is the mean score over answerable questions; precision is the same sum divided by the
number of predictions other than exactly "Not answerable". Scores by an LLM judge follow another protocol and are not
comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import DocQARecord
from seer.evaluation.jsonlines import read_json_lines
from seer.evaluation.scoring.short_answers import NOT_ANSWERABLE, AnswerFormat, DocProtocol, score_answer

PREDICTIONS_NAME = "docqa.jsonl"


@dataclass(frozen=True)
class DocQAScore:
    """Accuracy and F1 in [0, 1] over a group of questions."""

    accuracy: float
    f1: float
    num_questions: int
    num_failures: int


@dataclass(frozen=True)
class DocQAReport:
    """Scores of a run under one protocol. `sample_scores` are in [0, 1] by id."""

    protocol: DocProtocol
    overall: DocQAScore
    groups: Mapping[str, DocQAScore]
    """Scores by answer format, evidence source and document type, and of single-page, multi-page and unanswerable questions."""
    sample_scores: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the output of `seer eval score --benchmark docqa --json`, with scores in points from 0 to 100."""
        return {
            "protocol": self.protocol.value,
            "accuracy": round(100 * self.overall.accuracy, 2),
            "f1": round(100 * self.overall.f1, 2),
            "questions": self.overall.num_questions,
            "failures": self.overall.num_failures,
            "groups": {name: round(100 * group.accuracy, 2) for name, group in self.groups.items()},
        }


def score_docqa(
    records: Sequence[DocQARecord], predictions: Mapping[str, str | None], protocol: DocProtocol
) -> DocQAReport:
    """Score the prediction of every record.

    `predictions` maps the id of a record to its short answer, or to None for a failed input, which counts 0.
    Raises InputError if there are no records or a record has no prediction.
    """
    missing = [record.id for record in records if record.id not in predictions]
    if missing or not records:
        raise InputError(
            f"{len(missing)} of {len(records)} questions have no prediction, such as {missing[:3]}; "
            "predict every question, with null for failed ones"
        )
    scores: dict[str, float] = {}
    for record in records:
        prediction = predictions[record.id]
        failed = prediction is None
        scores[record.id] = (
            0.0 if failed else score_answer(record.answer, str(prediction), record.answer_format, protocol)
        )
    groups = {
        name: _group([record for record in records if belongs(record)], scores, predictions)
        for name, belongs in _groupings(records).items()
    }
    return DocQAReport(protocol, _group(records, scores, predictions), groups, scores)


def _group(
    records: Sequence[DocQARecord], scores: Mapping[str, float], predictions: Mapping[str, str | None]
) -> DocQAScore:
    answerable = math.fsum(scores[record.id] for record in records if record.is_answerable)
    num_answerable = sum(record.is_answerable for record in records)
    # The benchmarks compare the exact text, so a failed input counts as a claim and lowers the precision.
    num_claimed = sum(predictions[record.id] != NOT_ANSWERABLE for record in records)
    recall = answerable / num_answerable if num_answerable else 0.0
    precision = answerable / num_claimed if num_claimed else 0.0
    return DocQAScore(
        accuracy=math.fsum(scores[record.id] for record in records) / len(records),
        f1=2 * recall * precision / (recall + precision) if answerable else 0.0,
        num_questions=len(records),
        num_failures=sum(predictions[record.id] is None for record in records),
    )


def _groupings(records: Sequence[DocQARecord]) -> dict[str, Callable[[DocQARecord], bool]]:
    """Return the membership test of each group that has a record."""
    tests: dict[str, Callable[[DocQARecord], bool]] = {
        "single page": lambda record: len(record.evidence_pages) == 1,
        "several pages": lambda record: len(record.evidence_pages) != 1 and record.is_answerable,
        "unanswerable": lambda record: not record.is_answerable,
    }
    # The default arguments bind the loop variable now; a plain closure would see only its last value.
    for form in AnswerFormat:
        tests[f"format {form.value}"] = lambda record, form=form: record.answer_format is form  # type: ignore[misc]
    for source in sorted({source for record in records for source in record.evidence_sources}):
        tests[f"source {source}"] = lambda record, source=source: source in record.evidence_sources  # type: ignore[misc]
    for kind in sorted({record.document_type for record in records}):
        tests[f"type {kind}"] = lambda record, kind=kind: record.document_type == kind  # type: ignore[misc]
    return {name: test for name, test in tests.items() if any(map(test, records))}


def read_docqa_predictions(path: str | Path) -> dict[str, str | None]:
    """Read short answers by id from JSON lines with `id` and `pred`, or from the folder of a run.

    A null `pred` or the status "failed" is a failed input, returned as None. The status "not_answerable", which runs of
    Seer have, becomes the benchmark's own "Not answerable", whatever the text of the answer.
    Raises InputError if a line has no `id` or `pred`, or an id occurs twice.
    """
    path = Path(path) / PREDICTIONS_NAME if Path(path).is_dir() else path
    predictions: dict[str, str | None] = {}
    for place, fields in read_json_lines(path):
        if not {"id", "pred"} <= fields.keys():
            raise InputError(f"{place}: needs an object with 'id' and 'pred'; has {sorted(fields)}")
        identifier, prediction = str(fields["id"]), fields["pred"]
        if identifier in predictions:
            raise InputError(f"{place}: the id '{identifier}' occurs twice; keep one of the lines")
        failed = prediction is None or fields.get("status") == "failed"
        answer = NOT_ANSWERABLE if fields.get("status") == "not_answerable" else str(prediction)
        predictions[identifier] = None if failed else answer
    return predictions
