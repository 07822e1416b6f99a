"""One document-QA answer against its gold answer: MMLongBench-Doc's and LongDocURL's rules, by name.

Both benchmarks score a short answer, extracted from what the model said, by the format of the gold answer. Their
scripts have faults that move scores, so each protocol says which it keeps:

    mmlongbench           MMLongBench-Doc's rules, faults repaired: whole numbers must be equal ("96,395" and "8%" are
                          read, 8.6 is not 8), "not answerable" is right or wrong with nothing between, a list may
                          come without quotes
    mmlongbench-official  the published script: 8.6 passes for 8, "96,395" does not pass for 96395, "Answerable" gets
                          0.71 for "Not answerable". Where it would end with an error, the score is 0
    longdocurl-official   LongDocURL's published script: cleans units, and scores lists by their best matches

The scripts evaluate what a model wrote as code. Here it is read as a literal or not at all, so that "2015-2016" stays
a text where LongDocURL's script makes -1 of it.
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
"""Longer texts are not read as literals: an answer is short, and reading nested brackets takes stack."""


class DocProtocol(StrEnum):
    MMLONGBENCH = "mmlongbench"
    MMLONGBENCH_OFFICIAL = "mmlongbench-official"
    LONGDOCURL_OFFICIAL = "longdocurl-official"


class AnswerFormat(StrEnum):
    INT = "Int"
    FLOAT = "Float"
    STR = "Str"
    LIST = "List"
    NONE = "None"


_FORMAT_NAMES = {**{form.value: form for form in AnswerFormat}, "Integer": AnswerFormat.INT, "String": AnswerFormat.STR}


def read_format(name: str) -> AnswerFormat:
    """Either benchmark's name of a format: Int or Integer, Str or String."""
    if name not in _FORMAT_NAMES:
        raise InputError(f"'{name}' is no answer format; the formats are {', '.join(_FORMAT_NAMES)}")
    return _FORMAT_NAMES[name]


def score_answer(gold: str, prediction: str, form: AnswerFormat, protocol: DocProtocol) -> float:
    """Score in [0, 1]."""
    score = {
        DocProtocol.MMLONGBENCH: _repaired,
        DocProtocol.MMLONGBENCH_OFFICIAL: _mmlongbench,
        DocProtocol.LONGDOCURL_OFFICIAL: _longdocurl,
    }[protocol]
    return float(score(gold, prediction, form))


# ── MMLongBench-Doc, repaired ────────────────────────────────────────────────────────────────────


def _repaired(gold: str, prediction: str, form: AnswerFormat) -> float:
    if form is AnswerFormat.NONE or _clean(gold) == NOT_ANSWERABLE.lower():
        return float(_clean(prediction).rstrip(".") == _clean(gold).rstrip("."))
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
    r"([-+]?(?:\d[\d,]*+(?:\.\d++|(?<=\d))|\.\d++)(?:e[-+]?\d++)?)\.?(?:\s*%|\s+[^\d\s]+)?"  # possessive: linear
)


def _number(text: str) -> float | None:
    """The number that a short answer is: without thousands separators, currency, percent sign or unit."""
    match = _NUMBER.fullmatch(_clean(text).lstrip("£€"))
    return float(match[1].replace(",", "")) if match else None


def _read_items(text: str) -> list[Any]:
    """A list literal; else what stands between brackets, parted at commas; else the text alone."""
    literal = read_literal(text)
    if isinstance(literal, list | tuple):
        return list(literal)
    inner = text.strip()
    if inner.startswith("[") and inner.endswith("]"):
        return [item.strip().strip("'\"") for item in inner[1:-1].split(",")]
    return [text]


# ── MMLongBench-Doc, as published ────────────────────────────────────────────────────────────────


def _mmlongbench(gold: str, prediction: str, form: AnswerFormat) -> float:
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
    """Raises ValueError for what opens with a bracket and is no literal."""
    if not text.startswith("["):
        return [text]
    literal = read_literal(text)
    if literal is None:
        raise ValueError(text)
    return literal if isinstance(literal, list) else [literal]


def _list_minimum(gold: Sequence[Any], prediction: Sequence[Any], clean: Callable[[Any], str]) -> float:
    """Lists of one length, sorted, as good as their worst pair; numbers and the like must be equal."""
    if not gold or len(gold) != len(prediction):
        return 0.0
    expected, found = sorted(map(clean, gold)), sorted(map(clean, prediction))
    if _is_float(expected[0]) or _wants_equality(expected[0]):
        return float("-".join(expected) == "-".join(found))
    return min(_anls(one, other) for one, other in zip(expected, found, strict=True))


# ── LongDocURL, as published ─────────────────────────────────────────────────────────────────────

_UNITS = ("kg", "mm", "m", "meters", "acres", "minutes", "mile", "miles", "million", "thousand", "billion")


def _longdocurl(gold: str, prediction: str, form: AnswerFormat) -> float:
    literal = read_literal(prediction)
    found = prediction if literal is None else sorted(literal, key=str) if isinstance(literal, set) else literal
    if form is AnswerFormat.INT:
        # An unreadable gold answer stays a text, which no number equals.
        expected = _whole(_clean_units(gold))
        return float(expected is not None and expected == _whole(_clean_units(found)))
    if form is AnswerFormat.FLOAT:
        try:
            return float(_is_close(float(_clean_units(gold)), float(_clean_units(found))))
        except ValueError:
            return 0.0
    if form is AnswerFormat.LIST:
        return _list_best(
            _listed(read_literal(gold) if gold.startswith("[") else gold, gold), _listed(found, prediction)
        )
    return _text_score(_clean_units(gold), _clean_units(found))


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _listed(value: Any, text: str) -> list[Any]:
    items = value if isinstance(value, list) else [text if value is None else value]
    if items and isinstance(items[0], dict):
        items = ["-".join(str(part) for part in item.values()) if isinstance(item, dict) else item for item in items]
    return items or [""]


def _list_best(gold: Sequence[Any], prediction: Sequence[Any]) -> float:
    """The mean over gold items of the best match, less where more was given than asked. Numbers keep their order."""
    expected, found = [_clean_units(item) for item in gold], [_clean_units(item) for item in prediction]
    if _is_float(expected[0]) or _wants_equality(expected[0]):
        return float("-".join(expected) == "-".join(found))
    best = [max(_anls(one, other) for other in found) for one in expected]
    return sum(best) / len(expected) * min(1.0, len(expected) / len(found)) ** 0.5


def _clean_units(value: Any) -> str:
    text = str(value).lower().strip().replace(",", "")
    for unit in _UNITS:
        if text.endswith(unit):
            # Quirk: strips every trailing character that occurs in the unit, not the unit alone.
            text = text.rstrip(unit).strip()
    return _clean_marks(text).lstrip("$").strip().lstrip("£").strip().rstrip("%").strip()


# ── Shared ───────────────────────────────────────────────────────────────────────────────────────


def _clean(value: Any) -> str:
    return _clean_marks(str(value).lower().strip()).lstrip("$").strip().rstrip("%").strip()


def _clean_marks(text: str) -> str:
    """Without what stands in parentheses, and without one quotation mark at either end."""
    *closed, rest = text.split(")")  # a substitution would seek the end of every parenthesis that has none
    parts = [part.partition("(") for part in closed]
    kept = [before.rstrip() if opening else f"{before})" for before, opening, _ in parts]
    return re.sub(r"^['\"]|['\"]$", "", "".join([*kept, rest]).strip()).strip()


def _text_score(gold: str, prediction: str) -> float:
    return float(gold == prediction) if _wants_equality(gold) else _anls(gold, prediction)


def _anls(gold: str, prediction: str) -> float:
    """1 minus the edit distance over the longer length; 0 unless above one half."""
    from rapidfuzz.distance import Levenshtein

    length = max(len(gold.upper()), len(prediction.upper()))
    score = 1.0 - (Levenshtein.distance(gold, prediction) / length if length else 0.0)
    return score if score > 0.5 else 0.0


_EQUAL_FORMS = (
    re.compile(r"\d+(-\d+|\s\d+)?"),
    re.compile(r"\d{4}[-\s]\d{2}([-\s]\d{2})?"),
    re.compile(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}"),
)


def _wants_equality(text: str) -> bool:
    """Addresses, files, pages, telephone numbers, times, dates: nearly right is wrong."""
    if "https://" in text or "a.m." in text or "p.m." in text:
        return True
    if text.endswith((".py", "ipynb")) or text.startswith("page"):
        return True
    return any(form.fullmatch(text) for form in _EQUAL_FORMS)


def _is_close(gold: float, prediction: float) -> bool:
    """Within 1 %, or equal when rounded; also as a percentage of one another."""
    for expected in (gold / 100, gold, gold * 100):
        if isclose(expected, prediction, rel_tol=0.01):
            return True
        digits = max(min(_num_decimals(prediction), _num_decimals(expected)), 2)
        if round(prediction, digits) == round(expected, digits):
            return True
    return False


def _num_decimals(number: float) -> int:
    text = str(number)
    return len(text.rpartition(".")[2]) if "." in text else 3


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_literal(text: str) -> Any:
    """The value that a text is a literal of; None where it is none."""
    if len(text) > MAX_LITERAL_CHARACTERS:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
