"""Questions over one long document: Qasper's papers, GovReport, QMSum's meetings, LCC's source files."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from data_pipeline.records import Evidence, Rejected, Sample
from data_pipeline.settings import SourceSpec
from data_pipeline.sources.adapting import (
    Row,
    TextBuilder,
    field,
    list_field,
    optional_list,
    optional_text,
    paragraphs_of,
    parsed,
    records,
    text_field,
    text_list,
)
from seer.teaching.template import UNANSWERABLE

SUMMARY_QUESTION = "Write a one-page summary of the report."
NEXT_LINE_QUESTION = "What is the next line of this code?"

# ── Qasper ───────────────────────────────────────────────────────────────────────────────────────


def qasper(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """Official papers (nested, or in columns as on the hub), and flat tables with the paper as one text."""
    if "paper" in row:
        yield from _qasper_flat(row, spec)
        return
    paper_id = optional_text(row, "id")
    context, spans = _paper(row)
    for question in _qasper_questions(field(row, "qas")):
        annotations = [_answer_of(item) for item in records(field(question, "answers"))]
        answered = [item for item in annotations if not item.get("unanswerable")]
        answerable = 2 * len(answered) >= len(annotations)  # also where nobody has annotated it: that is no answer
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
    """The paper's text, and where each paragraph stands in it."""
    builder = TextBuilder()
    spans: dict[str, tuple[int, int]] = {}
    title, abstract = optional_text(row, "title"), optional_text(row, "abstract")
    for text in (title, abstract):
        if text.strip():
            spans.setdefault(text, builder.add(text))
            builder.add("\n\n")
    for section in records(field(row, "full_text")):
        name = optional_text(section, "section_name")
        builder.add(f"{name}\n\n" if name.strip() else "")
        for paragraph in optional_list(section, "paragraphs"):
            if isinstance(paragraph, str) and paragraph.strip():
                spans.setdefault(paragraph, builder.add(paragraph))
                builder.add("\n\n")
    return builder.text, spans


def _qasper_questions(value: Any) -> list[dict[str, Any]]:
    return records(value)


def _answer_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """One annotation; on the hub a question's annotations stand in a column of columns."""
    answer = item.get("answer", item)
    if not isinstance(answer, Mapping):
        raise Rejected("wrong_type", f"an answer of Qasper is {type(answer).__name__}")
    return dict(answer)


def _qasper_text(answer: Mapping[str, Any]) -> str:
    if answer.get("extractive_spans"):
        return ", ".join(text_list(answer["extractive_spans"]))
    if str(answer.get("free_form_answer") or "").strip():
        return str(answer["free_form_answer"])
    return "" if answer.get("yes_no") is None else "Yes" if answer["yes_no"] else "No"


def _qasper_evidence(answers: list[dict[str, Any]], spans: Mapping[str, tuple[int, int]]) -> Iterator[Evidence]:
    """Paragraphs that some annotator marked. Figures and tables ("FLOAT SELECTED") have no text to find."""
    seen = set()
    for answer in answers:
        for paragraph in optional_list(answer, "evidence"):
            if isinstance(paragraph, str) and paragraph in spans and paragraph not in seen:
                seen.add(paragraph)
                yield Evidence(*spans[paragraph], hop=len(seen) - 1)


def _qasper_flat(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """One paper a row, sections separated by tabs, questions and answers as written-out lists. An answer that is no
    span of text is marked 'Unacceptable'."""
    # sections become paragraphs: a tab would only widen the line
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
    value = field(row, name)
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise Rejected("wrong_type", f"'{name}' is not a written-out list") from None
    if not isinstance(value, list):
        raise Rejected("wrong_type", f"'{name}' is {type(value).__name__}; a list is required")
    return text_list(value)


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# ── GovReport ────────────────────────────────────────────────────────────────────────────────────


def gov_report(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """report/summary rows, and the official files: GAO (report, highlight) and CRS (reports, summary) in sections."""
    report = parsed(row.get("report", row.get("reports")))
    if report is None:
        field(row, "report")
    summary = parsed(row.get("summary", row.get("highlight")))
    if summary is None:
        field(row, "summary")
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
    return "\n\n".join(text for _, text in paragraphs_of(records(value)))


# ── LCC ──────────────────────────────────────────────────────────────────────────────────────────


def lcc(row: Row, spec: SourceSpec) -> Iterator[Sample]:
    """A source file up to a line, and that line. Its indentation belongs to the answer."""
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
    """A meeting with general and specific queries; the latter name the turns that answer them."""
    builder = TextBuilder()
    turns: list[tuple[int, int]] = []
    for turn in records(list_field(row, "meeting_transcripts")):
        turns.append(builder.add(f"{optional_text(turn, 'speaker')}: {text_field(turn, 'content')}"))
        builder.add("\n")
    meeting = short_hash(builder.text)
    for group in ("general", "specific"):
        for number, query in enumerate(records(row.get(f"{group}_query_list") or [])):
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
    """Turns first to last, both included, given as strings of digits."""
    evidence = []
    for hop, item in enumerate(spans):
        if not isinstance(item, list | tuple) or len(item) != 2 or not all(_is_number(number) for number in item):
            raise Rejected("wrong_type", f"a relevant span is {str(item)[:40]!r}; [first turn, last turn] is required")
        first, last = (int(number) for number in item)
        if not 0 <= first <= last < len(turns):
            raise Rejected("wrong_type", f"turns {first} to {last} of a meeting with {len(turns)}")
        evidence.append(Evidence(turns[first][0], turns[last][1], hop))
    return tuple(evidence) or None


def _is_number(value: Any) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", str(value)) is not None
