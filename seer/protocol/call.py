"""The select call: how it is written, and a tolerant parser that names every departure from the protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seer.protocol.control import CONTROL

CALL_NAME = "select"


def render_call(pages: Sequence[int]) -> str:
    """The body of a call, as the model must write it: {"name": "select", "indices": [1, 3]}."""
    return json.dumps({"name": CALL_NAME, "indices": list(pages)})


@dataclass(frozen=True)
class ParsedCall:
    """What a call asks for. `pages` are usable as they stand: in range, ascending, unique, at most `max_pages`."""

    pages: tuple[int, ...]
    deviations: tuple[str, ...] = ()
    """How the text departs from the protocol, by name; empty for a valid call. See `DEVIATIONS`."""


DEVIATIONS = {
    "no_call": "no call where one was required",
    "missing_close": "the call is not closed",
    "text_around": "text before or after the call",
    "not_json": "the body is not a JSON object",
    "xml_style": "the arguments stand as XML-style tags",
    "wrong_name": "the call names another tool",
    "wrong_shape": "'indices' is missing or not a list of integers",
    "out_of_range": "a page that the document does not have",
    "duplicate": "a page named twice",
    "not_ascending": "pages out of order",
    "too_many": "more pages than allowed",
}


def parse_call(body: str, allowed: Collection[int], max_pages: int | None = None) -> ParsedCall:
    """Read the body of a call, tolerantly: what can be understood is kept, every deviation is named.

    `body` is the text between <tool_call> and </tool_call>; `allowed` are the pages that may be asked for. It never
    raises.
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
_XML_VALUE = re.compile(r"<arg_value>(?P<value>[^<]{0,20000})</arg_value>|<indices>(?P<list>[^<]{0,20000})</indices>")


def parse_call_text(text: str, allowed: Collection[int], max_pages: int | None = None) -> ParsedCall:
    """Read a call out of an engine's plain text, where tags are strings. Never raises."""
    match = _CALL_TEXT.match(text)
    if match is None:
        # some servers drop special tokens from the text: a bare body still is a call, and is named as unclosed
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
    return ParsedCall(parsed.pages, (*parsed.deviations, deviation))


def _read_indices(body: str) -> tuple[list[int], list[str]]:
    """The integers a call body names, and how it says it."""
    deviations: list[str] = []
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _read_xml_indices(body)
    if not isinstance(value, dict):
        return [], ["not_json"]
    if value.get("name") != CALL_NAME:
        deviations.append("wrong_name")
    if "arguments" in value and "indices" not in value:
        deviations.append("wrong_shape")
        value = _as_object(value["arguments"])
    indices = value.get("indices")
    if not isinstance(indices, list):
        return [], [*dict.fromkeys([*deviations, "wrong_shape"])]
    good = [index for index in indices if type(index) is int]
    if len(good) < len(indices):
        deviations.append("wrong_shape")
    return good, deviations


def _as_object(value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _read_xml_indices(body: str) -> tuple[list[int], list[str]]:
    match = _XML_VALUE.search(body)
    if match is None:
        return [], ["not_json"]
    # at most six digits: longer runs are no page numbers, and converting huge ones is slow
    digits = re.findall(r"(?<!\d)\d{1,6}(?!\d)", match["value"] or match["list"])
    return [int(run) for run in digits], ["xml_style"]
