"""Document QA: read MMLongBench-Doc and LongDocURL records, score predictions, under a named protocol.

    records = read_docqa("samples.json")
    report = score_docqa(records, predictions, DocProtocol.MMLONGBENCH_OFFICIAL)
    report.accuracy, report.f1

`predictions` maps a record's id to the short answer, or to None where there is none: a failed input counts 0. Both
benchmarks have a model draw the short answer out of a free one first; `extraction_prompt` and `read_extraction` are
that step, in our own words.

F1 follows the benchmarks: recall is the mean score over answerable questions, precision the same sum over the
predictions that are not exactly "Not answerable". Scores of an LLM judge are another protocol and not comparable.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.jsonlines import read_json_lines
from seer.evaluation.scoring.docqa import (
    NOT_ANSWERABLE,
    AnswerFormat,
    DocProtocol,
    read_format,
    read_literal,
    score_answer,
)

PREDICTIONS_NAME = "docqa.jsonl"


@dataclass(frozen=True)
class DocQARecord:
    """One question over one document. Pages are numbered from 1, as in both benchmarks."""

    id: str
    document: str
    question: str
    answer: str
    answer_format: AnswerFormat
    evidence_pages: tuple[int, ...]
    """Empty does not mean unanswerable: some answerable questions list no page."""
    evidence_sources: tuple[str, ...]
    document_type: str
    pages: tuple[int, int] | None = None
    """First and last page that is shown, where the benchmark asks about a part of a document; None: all of it."""

    @property
    def is_answerable(self) -> bool:
        return self.answer != NOT_ANSWERABLE


@dataclass(frozen=True)
class DocQAScore:
    """Over a group of questions; accuracy and F1 in [0, 1]."""

    accuracy: float
    f1: float
    num_questions: int
    num_failures: int


@dataclass(frozen=True)
class DocQAReport:
    protocol: DocProtocol
    overall: DocQAScore
    groups: Mapping[str, DocQAScore]
    """By answer format, evidence source, document type; single page, several pages, unanswerable."""
    sample_scores: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
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
    """Score every record. Raises InputError where a record has no prediction, not even a failed one."""
    missing = [record.id for record in records if record.id not in predictions]
    if missing or not records:
        raise InputError(
            f"{len(missing)} of {len(records)} questions have no prediction, such as {missing[:3]}; "
            "predict every question, with null for what failed"
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
    """A test for each group that is not empty."""
    tests: dict[str, Callable[[DocQARecord], bool]] = {
        "single page": lambda record: len(record.evidence_pages) == 1,
        "several pages": lambda record: len(record.evidence_pages) != 1 and record.is_answerable,
        "unanswerable": lambda record: not record.is_answerable,
    }
    for form in AnswerFormat:
        tests[f"format {form.value}"] = lambda record, form=form: record.answer_format is form  # type: ignore[misc]
    for source in sorted({source for record in records for source in record.evidence_sources}):
        tests[f"source {source}"] = lambda record, source=source: source in record.evidence_sources  # type: ignore[misc]
    for kind in sorted({record.document_type for record in records}):
        tests[f"type {kind}"] = lambda record, kind=kind: record.document_type == kind  # type: ignore[misc]
    return {name: test for name, test in tests.items() if any(map(test, records))}


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


def read_docqa(path: str | Path) -> list[DocQARecord]:
    """MMLongBench-Doc's JSON list or LongDocURL's JSON lines. A missing id is made from the row number."""
    return [_to_record(fields, place, row) for row, (place, fields) in enumerate(_read_rows(Path(path)))]


def _read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each record behind its place in words."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if text.lstrip().startswith("[") else None
    except FileNotFoundError:
        raise InputError(f"no file of questions at '{path}'; give samples.json, or JSON lines") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read as JSON: {error}") from None
    if rows is None:
        yield from read_json_lines(path)
    else:
        yield from ((f"'{path}', record {row}", fields) for row, fields in enumerate(rows))


def _to_record(fields: Any, place: str, row: int) -> DocQARecord:
    needed = ("question", "answer", "answer_format")
    if not isinstance(fields, dict) or any(key not in fields for key in needed):
        raise InputError(f"{place}: needs an object with {', '.join(needed)}")
    return DocQARecord(
        id=str(fields.get("question_id") or f"docqa-{row:04d}"),
        document=str(fields.get("doc_id") or fields.get("doc_no") or ""),
        question=str(fields["question"]),
        answer=str(fields["answer"]),
        answer_format=read_format(str(fields["answer_format"])),
        evidence_pages=_page_numbers(fields.get("evidence_pages"), place),
        evidence_sources=tuple(str(source) for source in _list(fields.get("evidence_sources"), place)),
        document_type=str(fields.get("doc_type") or fields.get("task_tag") or ""),
        pages=_page_range(fields.get("start_end_idx"), place),
    )


def _page_numbers(value: Any, place: str) -> tuple[int, ...]:
    try:
        return tuple(int(page) for page in _list(value, place))
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{place}: evidence_pages is {value!r:.200}; it must be a list of page numbers") from None


def _page_range(value: Any, place: str) -> tuple[int, int] | None:
    """LongDocURL's stretch of pages, both ends included."""
    if value is None:
        return None
    ends = _list(value, place)
    if len(ends) != 2 or not all(type(end) is int for end in ends) or not 1 <= ends[0] <= ends[1]:
        raise InputError(f"{place}: start_end_idx is {value!r:.200}; it must be two page numbers, the first one first")
    return ends[0], ends[1]


def _list(value: Any, place: str) -> list[Any]:
    """A list, or the text of one, as MMLongBench-Doc writes it."""
    items = read_literal(value) if isinstance(value, str) else value or []
    if not isinstance(items, list):
        raise InputError(f"{place}: {value!r:.200} is no list")
    return items


def read_docqa_predictions(path: str | Path) -> dict[str, str | None]:
    """Short answers by id, from JSON lines with `id` and `pred`, or from a run's folder.

    A null, or the status "failed", is a failed input. The status "not_answerable" is how a run of ours says, in whatever
    words, that the document does not tell; it becomes the benchmark's own "Not answerable".
    """
    path = Path(path) / PREDICTIONS_NAME if Path(path).is_dir() else path
    predictions: dict[str, str | None] = {}
    for place, fields in read_json_lines(path):
        if not {"id", "pred"} <= fields.keys():
            raise InputError(f"{place}: needs an object with 'id' and 'pred'; has {sorted(fields)}")
        identifier, prediction = str(fields["id"]), fields["pred"]
        if identifier in predictions:
            raise InputError(f"{place}: the id '{identifier}' stands twice")
        failed = prediction is None or fields.get("status") == "failed"
        said = NOT_ANSWERABLE if fields.get("status") == "not_answerable" else str(prediction)
        predictions[identifier] = None if failed else said
    return predictions


# ── From a free answer to a short one ────────────────────────────────────────────────────────────


def extraction_prompt(question: str, response: str) -> str:
    """Asks a model for the short answer that a free one holds."""
    return (
        "Someone was asked a question about a document and replied at length. Write down the short answer that the "
        "reply gives, changing nothing about it, and say which kind it is: Int (a whole number), Float (a number with "
        "decimals or a percentage), Str (words), List (several items, written as a Python list) or None.\n"
        f'Where the reply says that the document does not tell, the short answer is "{NOT_ANSWERABLE}" and its kind '
        'None. Where the reply holds no answer at all, it is "Fail to answer" and its kind None.\n\n'
        f"Question: {question}\nReply: {response}\n\n"
        "Use these two lines and nothing else:\nExtracted answer: <the short answer>\nAnswer format: <the kind>"
    )


def read_extraction(text: str) -> str | None:
    """The short answer of a reply to `extraction_prompt`; None where it holds none."""
    match = re.search(r"extracted answer:(.*?)(?:\n[^\S\n]*+answer format:.*)?\Z", text, re.IGNORECASE | re.DOTALL)
    return match[1].strip() or None if match else None
