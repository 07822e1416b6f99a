"""Score one short document-QA answer by the rules of MMLongBench-Doc or LongDocURL.

Both benchmarks score a short answer, extracted from the model's response, according to the format of the gold answer.
Their scripts have faults that change scores, so each protocol states which of them it keeps:

    mmlongbench           the rules of MMLongBench-Doc with the faults fixed: integers must be equal ("96,395" and "8%" are
                          read, 8.6 does not equal 8), "not answerable" is right or wrong without partial credit, and a
                          list may come without quotes
    mmlongbench-official  the published script: 8.6 equals 8, "96,395" does not equal 96395, "Answerable" scores 0.71
                          against "Not answerable". If the script would raise an exception, the score is 0
    longdocurl-official   the published script of LongDocURL: removes units, and scores lists by their best matches

The scripts evaluate the model's text as code. This module parses it as a literal or not at all, so "2015-2016" stays a
text. Under LongDocURL's rules only lists are parsed: its cleaner expects numbers as text, such as "1,874.00".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import isclose
from typing import Any

from seer.errors import InputError

NOT_ANSWERABLE = "Not answerable"
MAX_LITERAL_CHARACTERS = 20_000
"""Longer texts are not parsed as literals: answers are short, and nested brackets consume the parser's stack."""


class DocProtocol(StrEnum):
    """Rules for scoring an answer; see the module docstring."""

    MMLONGBENCH = "mmlongbench"
    MMLONGBENCH_OFFICIAL = "mmlongbench-official"
    LONGDOCURL_OFFICIAL = "longdocurl-official"


class AnswerFormat(StrEnum):
    """Format of a gold answer; NONE is for unanswerable questions."""

    INT = "Int"
    FLOAT = "Float"
    STR = "Str"
    LIST = "List"
    NONE = "None"


_FORMAT_NAMES = {**{form.value: form for form in AnswerFormat}, "Integer": AnswerFormat.INT, "String": AnswerFormat.STR}


def read_format(name: str) -> AnswerFormat:
    """Return the answer format for the name in either benchmark: Int or Integer, Str or String.

    Raises InputError for any other name.
    """
    if name not in _FORMAT_NAMES:
        raise InputError(f"unknown answer format '{name}'; use one of {', '.join(_FORMAT_NAMES)}")
    return _FORMAT_NAMES[name]


def score_answer(gold: str, prediction: str, form: AnswerFormat, protocol: DocProtocol) -> float:
    """Return the score of a prediction against its gold answer, in [0, 1]."""
    score = {
        DocProtocol.MMLONGBENCH: _mmlongbench_fixed,
        DocProtocol.MMLONGBENCH_OFFICIAL: _mmlongbench_official,
        DocProtocol.LONGDOCURL_OFFICIAL: _longdocurl,
    }[protocol]
    return float(score(gold, prediction, form))


# ── MMLongBench-Doc, fixed ───────────────────────────────────────────────────────────────────────


def _mmlongbench_fixed(gold: str, prediction: str, form: AnswerFormat) -> float:
    if form is AnswerFormat.NONE or _clean(gold) == NOT_ANSWERABLE.lower():
        return float(_clean(prediction).rstrip(".") == _clean(gold).rstrip("."))
    # An answerable question: "not answerable" must not get partial credit for similar letters.
    if _clean(prediction).rstrip(".") == NOT_ANSWERABLE.lower():
        return 0.0
    if form is AnswerFormat.INT:
        return float(_number(gold) is not None and _number(gold) == _number(prediction))
    if form is AnswerFormat.FLOAT:
        expected, found = _number(gold), _number(prediction)
        return float(expected is not None and found is not None and _is_close(expected, found))
    if form is AnswerFormat.LIST:
        return _list_minimum(_read_items(gold), _read_items(prediction), _clean)
    return _text_score(_clean(gold), _clean(prediction))


_NUMBER = re.compile(
    r"([-+]?(?:\d[\d,]*+(?:\.\d++|(?<=\d))|\.\d++)(?:e[-+]?\d++)?)\.?(?:\s*%|\s+[^\d\s]+)?"  # possessive quantifiers: linear time
)


def _number(text: str) -> float | None:
    """Return the number in a short answer, ignoring thousands separators, currency, percent sign and unit; or None."""
    match = _NUMBER.fullmatch(_clean(text).lstrip("£€"))
    return float(match[1].replace(",", "")) if match else None


def _read_items(text: str) -> list[Any]:
    """Return the items of a list literal, of text in brackets split at commas, or else the text as the only item."""
    literal = read_literal(text)
    if isinstance(literal, list | tuple):
        return list(literal)
    # Models often write lists without quotes, such as [White, 10%], which is not a literal.
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        return [item.strip().strip("'\"") for item in inner[1:-1].split(",")]
    return [text]


# ── MMLongBench-Doc, as published ────────────────────────────────────────────────────────────────


def _mmlongbench_official(gold: str, prediction: str, form: AnswerFormat) -> float:
    if form is AnswerFormat.INT:
        try:
            return float(int(gold) == int(float(prediction)))
        except (ValueError, OverflowError):
            return 0.0
    if form is AnswerFormat.FLOAT:
        try:
            return float(_is_close(float(_clean(gold)), float(_clean(prediction))))
        except ValueError:
            return 0.0
    if form is AnswerFormat.LIST:
        try:
            return _list_minimum(_official_items(gold), _official_items(prediction), _clean)
        except ValueError:
            return 0.0
    return _text_score(_clean(gold), _clean(prediction))


def _official_items(text: str) -> list[Any]:
    """Return the items of a list. Raises ValueError for text that starts with a bracket and is not a literal."""
    if not text.startswith("["):
        return [text]
    literal = read_literal(text)
    if literal is None:
        raise ValueError(text)
    return literal if isinstance(literal, list) else [literal]


def _list_minimum(gold: Sequence[Any], prediction: Sequence[Any], clean: Callable[[Any], str]) -> float:
    """Return the score of the worst pair of two sorted lists of equal length; 0 for different lengths.

    If the first gold item requires equality, such as a number, all items must be equal.
    """
    if not gold or len(gold) != len(prediction):
        return 0.0
    expected, found = sorted(map(clean, gold)), sorted(map(clean, prediction))
    if _is_float(expected[0]) or _requires_equality(expected[0]):
        return float("-".join(expected) == "-".join(found))
    return min(_anls(one, other) for one, other in zip(expected, found, strict=True))


# ── LongDocURL, as published ─────────────────────────────────────────────────────────────────────

_UNITS = ("kg", "mm", "m", "meters", "acres", "minutes", "mile", "miles", "million", "thousand", "billion")


def _longdocurl(gold: str, prediction: str, form: AnswerFormat) -> float:
    # Only lists are parsed as literals: "1,874.00" would become the pair (1, 874.0).
    if form is AnswerFormat.INT:
        # An unreadable gold answer stays a text and an unreadable prediction becomes "", so an empty gold answer equals it.
        cleaned, found = _clean_units(gold), _whole(_clean_units(prediction))
        expected = _whole(cleaned)
        return float(expected == found if expected is not None else found is None and not cleaned)
    if form is AnswerFormat.FLOAT:
        try:
            return float(_is_close(_percentage(gold), _percentage(prediction)))
        except ValueError:
            return 0.0
    if form is AnswerFormat.LIST:
        return _list_best(_listed(gold), _listed(prediction))
    return _text_score(_clean_units(gold), _clean_units(prediction))


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _percentage(text: str) -> float:
    """Return the number in a text, without units and without a repeated percent sign as in "18.29% %".

    Raises ValueError if the rest is not a number.
    """
    return float(_clean_units(text).rstrip("%").strip())


def _listed(text: str) -> list[Any]:
    """Return the items of a list literal, or the text as the only item; dictionaries become their values joined with hyphens."""
    value = read_literal(text) if text.startswith("[") else None
    items = value if isinstance(value, list) else [text if value is None else value]
    if items and isinstance(items[0], dict):
        items = ["-".join(str(part) for part in item.values()) if isinstance(item, dict) else item for item in items]
    return items or [""]


def _list_best(gold: Sequence[Any], prediction: Sequence[Any]) -> float:
    """Return the mean best match of the gold items, times sqrt(gold length / predicted length) if there are extra items.

    If the first gold item requires equality, all items must be equal and in the same order.
    """
    expected, found = [_clean_units(item) for item in gold], [_clean_units(item) for item in prediction]
    if _is_float(expected[0]) or _requires_equality(expected[0]):
        return float("-".join(expected) == "-".join(found))
    best = [max(_anls(one, other) for other in found) for one in expected]
    return sum(best) / len(expected) * min(1.0, len(expected) / len(found)) ** 0.5


def _clean_units(value: Any) -> str:
    text = str(value).lower().strip().replace(",", "")
    for unit in _UNITS:
        if text.endswith(unit):
            # Quirk: strips every trailing character that occurs in the unit, not only the unit itself.
            text = text.rstrip(unit).strip()
    return _clean_marks(text).lstrip("$").strip().lstrip("£").strip().rstrip("%").strip()


# ── Shared ───────────────────────────────────────────────────────────────────────────────────────


def _clean(value: Any) -> str:
    return _clean_marks(str(value).lower().strip()).lstrip("$").strip().rstrip("%").strip()


def _clean_marks(text: str) -> str:
    """Remove text in parentheses, and one quotation mark at either end."""
    # A regular expression would scan to the end of the text for each unclosed parenthesis, in quadratic time.
    *closed, rest = text.split(")")
    parts = [part.partition("(") for part in closed]
    kept = [before.rstrip() if opening else f"{before})" for before, opening, _ in parts]
    return re.sub(r"^['\"]|['\"]$", "", "".join([*kept, rest]).strip()).strip()


def _text_score(gold: str, prediction: str) -> float:
    return float(gold == prediction) if _requires_equality(gold) else _anls(gold, prediction)


def _anls(gold: str, prediction: str) -> float:
    """Return 1 - Levenshtein distance / longer length; 0 for values of at most 0.5."""
    from rapidfuzz.distance import Levenshtein

    length = max(len(gold.upper()), len(prediction.upper()))
    score = 1.0 - (Levenshtein.distance(gold, prediction) / length if length else 0.0)
    return score if score > 0.5 else 0.0


_EQUAL_FORMS = (
    re.compile(r"\d+(-\d+|\s\d+)?"),
    re.compile(r"\d{4}[-\s]\d{2}([-\s]\d{2})?"),
    re.compile(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"),
)


def _requires_equality(text: str) -> bool:
    """Return whether an answer requires equality: addresses, files, pages, telephone numbers, times and dates."""
    if "https://" in text or "a.m." in text or "p.m." in text:
        return True
    if text.endswith((".py", "ipynb")) or text.startswith("page"):
        return True
    return any(form.fullmatch(text) for form in _EQUAL_FORMS)


def _is_close(gold: float, prediction: float) -> bool:
    """Return whether two numbers agree within 1 % or after rounding, also if one of them is a percentage."""
    for expected in (gold / 100, gold, gold * 100):
        if isclose(expected, prediction, rel_tol=0.01):
            return True
        digits = max(min(_num_decimals(prediction), _num_decimals(expected)), 2)
        if round(prediction, digits) == round(expected, digits):
            return True
    return False


def _num_decimals(number: float) -> int:
    # A number without a decimal point, such as 1e22, counts as three decimals, as in the published scripts.
    text = str(number)
    return len(text.rpartition(".")[2]) if "." in text else 3


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_literal(text: str) -> Any:
    """Parse a text as a Python literal; return None if it is not one."""
    if len(text) > MAX_LITERAL_CHARACTERS:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
