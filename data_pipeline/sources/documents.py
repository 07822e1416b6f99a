"""Adapters for questions over one long document: Qasper (papers), GovReport, QMSum (meetings) and LCC (source files).

Every public function adapts one row of its source to samples and raises `Rejected` if the row lacks a required field or
a field has the wrong type.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from data_pipeline.records import Evidence, Rejected, Sample
from data_pipeline.settings import SourceSpec
from data_pipeline.sources.adapting import (
    TextBuilder,
    decode_json,
    list_field,
    optional_list,
    optional_text,
    paragraphs_of,
    record_list,
    required_field,
    short_hash,
    text_field,
    text_list,
)
from data_pipeline.sources.posing import NEXT_LINE_QUESTION, SUMMARY_QUESTION
from data_pipeline.sources.rawfiles import Row
from seer.teaching.template import UNANSWERABLE

# ── Qasper ───────────────────────────────────────────────────────────────────────────────────────


def qasper(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a paper: nested as in the official files, in columns as on the hub, or a flat row with the paper as text."""
    if "paper" in row:
        yield from _qasper_flat(row, spec)
        return
    paper_id = optional_text(row, "id")
    context, spans = _paper(row)
    for question in record_list(required_field(row, "qas")):
        annotations = [_answer_of(item) for item in record_list(required_field(question, "answers"))]
        answered = [item for item in annotations if not item.get("unanswerable")]
        # A majority of annotators decides. Without annotations the question counts as answerable and is rejected
        # later for its missing answer: that nobody annotated it does not make it unanswerable.
        answerable = 2 * len(answered) >= len(annotations)
        texts = [_qasper_text(item) for item in answered] if answerable else [UNANSWERABLE]
        yield Sample(
            id=optional_text(question, "question_id"),
            source=spec.label,
            question=text_field(question, "question"),
            context=context,
            answers=tuple(dict.fromkeys(text for text in texts if text)),
            kind="free",
            evidence=tuple(_qasper_evidence(answered, spans)) or None if answerable else (),
            answerable=answerable,
            document=paper_id,
        )


def _paper(row: Row) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the text of a paper and the span of each paragraph in it."""
    builder = TextBuilder()
    spans: dict[str, tuple[int, int]] = {}
    title, abstract = optional_text(row, "title"), optional_text(row, "abstract")
    for text in (title, abstract):
        if text.strip():
            spans.setdefault(text, builder.add(text))
            builder.add("\n\n")
    for section in record_list(required_field(row, "full_text")):
        name = optional_text(section, "section_name")
        builder.add(f"{name}\n\n" if name.strip() else "")
        for paragraph in optional_list(section, "paragraphs"):
            if isinstance(paragraph, str) and paragraph.strip():
                spans.setdefault(paragraph, builder.add(paragraph))
                builder.add("\n\n")
    return builder.text, spans


def _answer_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return one annotation, which most shapes nest under `answer`."""
    answer = item.get("answer", item)
    if not isinstance(answer, Mapping):
        raise Rejected("wrong_type", f"a Qasper answer is {type(answer).__name__}; a record is required")
    return dict(answer)


def _qasper_text(answer: Mapping[str, Any]) -> str:
    if answer.get("extractive_spans"):
        return ", ".join(text_list(answer["extractive_spans"]))
    if str(answer.get("free_form_answer") or "").strip():
        return str(answer["free_form_answer"])
    return "" if answer.get("yes_no") is None else "Yes" if answer["yes_no"] else "No"


def _qasper_evidence(answers: list[dict[str, Any]], spans: Mapping[str, tuple[int, int]]) -> Iterator[Evidence]:
    """Yield the paragraphs that any annotator marked. Figures and tables ("FLOAT SELECTED") have no text in the paper."""
    seen = set()
    for answer in answers:
        for paragraph in optional_list(answer, "evidence"):
            if isinstance(paragraph, str) and paragraph in spans and paragraph not in seen:
                seen.add(paragraph)
                yield Evidence(*spans[paragraph], hop=len(seen) - 1)


def _qasper_flat(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a flat row: sections separated by tabs, questions and answers as Python list literals.

    Answers other than text spans are marked 'Unacceptable'.
    """
    # A tab would put all sections into one paragraph, so each section becomes a paragraph.
    context = text_field(row, "paper").replace("\t", "\n\n")
    questions, answers = (_literal_list(row, name) for name in ("questions", "answers"))
    if len(questions) != len(answers):
        raise Rejected("wrong_type", f"{len(questions)} questions but {len(answers)} answers")
    paper_id = short_hash(context)
    for number, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        yield Sample(
            id=f"{paper_id}-{number}",
            source=spec.label,
            question=question,
            context=context,
            answers=() if answer == "Unacceptable" else (answer,),
            kind="free",
            document=paper_id,
        )


def _literal_list(row: Row, name: str) -> list[str]:
    value = required_field(row, name)
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise Rejected("wrong_type", f"'{name}' is not a list literal") from None
    if not isinstance(value, list):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; a list is required")
    return text_list(value)


# ── GovReport ────────────────────────────────────────────────────────────────────────────────────


def gov_report(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a report: plain rows of report or document and summary, or sections as in the official GAO (report, highlight)
    and CRS (reports, summary) files."""
    report = decode_json(row.get("report", row.get("reports", row.get("document"))))
    if report is None:
        required_field(row, "report")  # rejects the row and names its fields
    summary = decode_json(row.get("summary", row.get("highlight")))
    if summary is None:
        required_field(row, "summary")
    context = _section_text(report)
    yield Sample(
        id=optional_text(row, "id") or short_hash(context),
        source=spec.label,
        question=SUMMARY_QUESTION,
        context=context,
        answers=(_section_text(summary),),
        kind="summary",
    )


def _section_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n\n".join(value)
    return "\n\n".join(text for _, text in paragraphs_of(record_list(value)))


# ── LCC ──────────────────────────────────────────────────────────────────────────────────────────


def lcc(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a source file that ends before a line, with that line as the answer. Its indentation is part of the answer."""
    context = text_field(row, "context")
    yield Sample(
        id=optional_text(row, "id") or short_hash(context),
        source=spec.label,
        question=NEXT_LINE_QUESTION,
        context=context,
        answers=(text_field(row, "gt"),),
        kind="code",
    )


# ── QMSum ────────────────────────────────────────────────────────────────────────────────────────


def qmsum(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Adapt a meeting with general and specific queries. Specific queries name the turns that answer them."""
    builder = TextBuilder()
    turns: list[tuple[int, int]] = []
    for turn in record_list(list_field(row, "meeting_transcripts")):
        turns.append(builder.add(f"{optional_text(turn, 'speaker')}: {text_field(turn, 'content')}"))
        builder.add("\n")
    meeting = short_hash(builder.text)
    for group in ("general", "specific"):
        for number, query in enumerate(record_list(row.get(f"{group}_query_list") or [])):
            yield Sample(
                id=f"{meeting}-{group}-{number}",
                source=spec.label,
                question=text_field(query, "query"),
                context=builder.text,
                answers=(text_field(query, "answer"),),
                kind="summary",
                evidence=_turn_evidence(optional_list(query, "relevant_text_span"), turns),
                document=meeting,
            )


def _turn_evidence(spans: list[Any], turns: list[tuple[int, int]]) -> tuple[Evidence, ...] | None:
    """Return evidence from spans of turns [first, last], both inclusive, given as strings of digits."""
    evidence = []
    for hop, item in enumerate(spans):
        if not isinstance(item, list | tuple) or len(item) != 2 or not all(_is_number(number) for number in item):
            raise Rejected("wrong_type", f"a relevant span is {str(item)[:40]!r}; [first turn, last turn] is required")
        first, last = (int(number) for number in item)
        if not 0 <= first <= last < len(turns):
            raise Rejected("wrong_type", f"turns {first} to {last} are outside a meeting of {len(turns)} turns")
        evidence.append(Evidence(turns[first][0], turns[last][1], hop))
    return tuple(evidence) or None


def _is_number(value: Any) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", str(value)) is not None
