"""Reader for the records of MMLongBench-Doc and LongDocURL, and the prompt that shortens an answer.

    records = read_docqa("samples.json")

Both benchmarks score short answers: a model first extracts the short answer from the system's response.
`extraction_prompt` and `read_extraction` are that step, with our own wording of the prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError
from seer.evaluation.jsonlines import read_json_lines
from seer.evaluation.scoring.short_answers import NOT_ANSWERABLE, AnswerFormat, read_format, read_literal


@dataclass(frozen=True)
class DocQARecord:
    """One question over one document. Pages are numbered from 1, as in both benchmarks."""

    id: str
    document: str
    question: str
    answer: str
    answer_format: AnswerFormat
    evidence_pages: tuple[int, ...]
    """May be empty for answerable questions, too."""
    evidence_sources: tuple[str, ...]
    document_type: str
    pages: tuple[int, int] | None = None
    """First and last page, both included, if the benchmark asks about a part of the document; None for all pages."""

    @property
    def is_answerable(self) -> bool:
        return self.answer != NOT_ANSWERABLE


def read_docqa(path: str | Path) -> list[DocQARecord]:
    """Read the JSON list of MMLongBench-Doc or the JSON lines of LongDocURL.

    A record without an id gets one from its row number. Raises InputError if the file or a record is invalid.
    """
    return [_to_record(fields, place, row) for row, (place, fields) in enumerate(_read_rows(Path(path)))]


def _read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each record together with its location."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        # A JSON list is MMLongBench-Doc's format; anything else is read as LongDocURL's JSON lines.
        rows = json.loads(text) if text.lstrip().startswith("[") else None
    except FileNotFoundError:
        raise InputError(f"no file of questions at '{path}'; give samples.json, or JSON lines") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' cannot be read as JSON: {error}; give the benchmark's file of questions") from None
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
    """Read LongDocURL's page range; both ends are included."""
    if value is None:  # MMLongBench-Doc always asks about the whole document.
        return None
    ends = _list(value, place)
    if len(ends) != 2 or not all(type(end) is int for end in ends) or not 1 <= ends[0] <= ends[1]:
        raise InputError(f"{place}: start_end_idx is {value!r:.200}; it must be two page numbers in ascending order")
    return ends[0], ends[1]


def _list(value: Any, place: str) -> list[Any]:
    """Read a list, or a string with a list literal, which is how MMLongBench-Doc stores lists."""
    # MMLongBench-Doc stores lists as text, such as "[3, 5]"; parse them as literals and never evaluate them.
    items = read_literal(value) if isinstance(value, str) else value or []
    if not isinstance(items, list):
        raise InputError(f"{place}: {value!r:.200} is not a list; write it as one")
    return items


# ── Short answers from long ones ─────────────────────────────────────────────────────────────────


def extraction_prompt(question: str, response: str) -> str:
    """Return the prompt with which a model extracts the short answer from a long response."""
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
    """Return the short answer in a reply to `extraction_prompt`; None if the reply has no such line."""
    match = re.search(r"extracted answer:(.*?)(?:\n[^\S\n]*+answer format:.*)?\Z", text, re.IGNORECASE | re.DOTALL)
    return match[1].strip() or None if match else None
