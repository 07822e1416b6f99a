"""The select call: its format, and a tolerant parser that reports every deviation from the protocol by name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seer.protocol.control import CONTROL

CALL_NAME = "select"


def render_call(pages: Sequence[int]) -> str:
    """Return the body of a call in the form that the model must write: {"name": "select", "indices": [1, 3]}."""
    return json.dumps({"name": CALL_NAME, "indices": list(pages)})


@dataclass(frozen=True)
class ParsedCall:
    """The pages that a call selects, after repair: in range, ascending, unique, at most `max_pages`."""

    pages: tuple[int, ...]
    deviations: tuple[str, ...] = ()
    """Names of the deviations in the text, each once; empty for a valid call. `DEVIATIONS` explains them."""


DEVIATIONS = {
    "no_call": "no call where one was required",
    "missing_close": "the call is not closed",
    "text_around": "text before or after the call",
    "not_json": "the body is not a JSON object",
    "xml_style": "the arguments are written as XML-style tags",
    "wrong_name": "the call names another tool",
    "wrong_shape": "'indices' is missing or not a list of integers",
    "out_of_range": "a page that the document does not have",
    "duplicate": "a page named twice",
    "not_ascending": "pages out of order",
    "too_many": "more pages than allowed",
}
"""Every deviation that the parsers report, with its meaning."""


def parse_call(body: str, allowed: Collection[int], max_pages: int | None = None) -> ParsedCall:
    """Parse the body of a call. Keep every usable page and report every deviation; never raise.

    body: the text between <tool_call> and </tool_call>.
    allowed: the pages that can be selected.
    max_pages: the most pages to keep; None sets no limit.
    """
    values, deviations = _read_indices(body)
    pages: list[int] = []
    for value in values:
        if value not in allowed:
            deviations.append("out_of_range")
        elif value in pages:
            deviations.append("duplicate")
        else:
            pages.append(value)
    if pages != sorted(pages):
        deviations.append("not_ascending")
        pages.sort()
    if max_pages is not None and len(pages) > max_pages:
        deviations.append("too_many")
        pages = pages[:max_pages]
    return ParsedCall(tuple(pages), tuple(dict.fromkeys(deviations)))


_OPEN, _CLOSE = re.escape(CONTROL.open_call), re.escape(CONTROL.close_call)
_CALL_TEXT = re.compile(rf"(?P<before>.*?){_OPEN}(?P<body>.*?)(?:(?P<close>{_CLOSE})(?P<after>.*))?\Z", re.S)
# The bound on the length keeps the search linear in texts with many opening tags.
_XML_VALUE = re.compile(r"<arg_value>(?P<value>[^<]{0,20000})</arg_value>|<indices>(?P<list>[^<]{0,20000})</indices>")


def parse_call_text(text: str, allowed: Collection[int], max_pages: int | None = None) -> ParsedCall:
    """Parse a call from an engine's plain text, in which the tags are strings. Never raise.

    Arguments are those of `parse_call`; the first call in `text` counts.
    """
    match = _CALL_TEXT.match(text)
    if match is None:
        # Some servers remove special tokens from the text. A bare body then still counts as a call, but as unclosed.
        parsed = parse_call(text, allowed, max_pages)
        unreadable = {"not_json", "wrong_shape"} & {*parsed.deviations}
        return ParsedCall((), ("no_call",)) if unreadable else _also(parsed, "missing_close")
    parsed = parse_call(match["body"], allowed, max_pages)
    if match["close"] is None:
        parsed = _also(parsed, "missing_close")
    if match["before"].strip() or (match["after"] or "").strip():
        parsed = _also(parsed, "text_around")
    return parsed


def _also(parsed: ParsedCall, deviation: str) -> ParsedCall:
    """The same call with one more deviation."""
    return ParsedCall(parsed.pages, (*parsed.deviations, deviation))


def _read_indices(body: str) -> tuple[list[int], list[str]]:
    """Return the integers that a call body lists, and the deviations of its form."""
    deviations: list[str] = []
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _read_xml_indices(body)
    if not isinstance(value, dict):
        return [], ["not_json"]
    if value.get("name") != CALL_NAME:
        deviations.append("wrong_name")
    # The usual form of tool calls nests the arguments, as an object or as a JSON string.
    if "arguments" in value and "indices" not in value:
        deviations.append("wrong_shape")
        value = _as_object(value["arguments"])
    indices = value.get("indices")
    if not isinstance(indices, list):
        return [], [*dict.fromkeys([*deviations, "wrong_shape"])]
    good = [index for index in indices if type(index) is int]  # `isinstance` would also accept True and False
    if len(good) < len(indices):
        deviations.append("wrong_shape")
    return good, deviations


def _as_object(value: object) -> dict[str, object]:
    """A JSON object given as such or as a string; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _read_xml_indices(body: str) -> tuple[list[int], list[str]]:
    """Return the integers in <arg_value> or <indices>, and the deviation."""
    match = _XML_VALUE.search(body)
    if match is None:
        return [], ["not_json"]
    # Runs of more than six digits cannot be page numbers, and converting huge integers is slow.
    digits = re.findall(r"(?<!\d)\d{1,6}(?!\d)", match["value"] or match["list"] or "")
    return [int(run) for run in digits], ["xml_style"]
