"""The conversation's form: control tokens by name, the prompt's layout, the select call.

A conversation is a list of `Turn`s. `layout` turns it into `Piece`s: control tokens, plain text and image slots, in
order, each with its loss class. `seer.encoding` turns pieces into ids. Nothing here knows a tokenizer, and nothing that
comes from outside (documents, questions, observations) can become a control piece: text stays text.

    [gMASK]<sop><|user|>
    [Image 1]<|begin_of_image|>...<|end_of_image|>[Image 2]<|begin_of_image|>...<|end_of_image|>
    Query: What is the total price?<|assistant|>
    <tool_call>{"name": "select", "indices": [1, 2]}</tool_call><|observation|>
    Text from image 1: ...
    Text from image 2: ...
    <think>The laptop costs ...</think>
    The total price is $1,749.98.<|user|>

The layout follows the Seer paper's A.1.3; ids follow the loaded tokenizer, whatever they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from seer.errors import InputError
from seer.schema import Excerpt, LossClass, Turn

CALL_NAME = "select"


@dataclass(frozen=True)
class ControlTokens:
    """The names of the control tokens Seer uses. Each must be a single token of the model's tokenizer."""

    mask: str = "[gMASK]"
    start: str = "<sop>"
    end_of_text: str = "<|endoftext|>"
    user: str = "<|user|>"
    assistant: str = "<|assistant|>"
    observation: str = "<|observation|>"
    begin_image: str = "<|begin_of_image|>"
    end_image: str = "<|end_of_image|>"
    image: str = "<|image|>"
    open_call: str = "<tool_call>"
    close_call: str = "</tool_call>"
    open_think: str = "<think>"
    close_think: str = "</think>"

    def names(self) -> tuple[str, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


CONTROL = ControlTokens()

KNOWN_CONTROL_LITERALS = (
    *CONTROL.names(),
    *("[MASK]", "[sMASK]", "<eop>", "<|system|>", "<|begin_of_video|>", "<|end_of_video|>", "<|video|>"),
    *("<|begin_of_audio|>", "<|end_of_audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>"),
    *("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", "<|begin_of_box|>", "<|end_of_box|>"),
    *("<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<answer>", "</answer>", "/nothink"),
)
"""Spellings that some tokenizer of the GLM family takes for a control token."""


@dataclass(frozen=True)
class Piece:
    """A stretch of the conversation: one control token, plain text, or the slot of one page image."""

    kind: Literal["control", "text", "image"]
    value: str
    loss_class: LossClass
    page: int = 0


def layout(turns: Sequence[Turn]) -> list[Piece]:
    """The pieces of a conversation, from the start to what its last turn asks for.

    After a prompt stands the mark that lets the model speak, unless it stands outside the chat; after an answer stands
    the stop token. So the pieces of turns[:n] are always a prefix of the pieces of turns[:n + 1]. Raises InputError on
    an order of turns that no conversation has.
    """
    _check_order(turns)
    pieces: list[Piece] = []
    for index, turn in enumerate(turns):
        previous = turns[index - 1].kind if index else ""
        pieces.extend(_LAYOUTS[turn.kind](turn, previous))
    return pieces


def _control(name: str, loss_class: LossClass) -> Piece:
    return Piece("control", name, loss_class)


def _prompt(turn: Turn, _: str) -> Iterator[Piece]:
    prompt = LossClass.PROMPT
    for name in (CONTROL.mask, CONTROL.start):
        yield _control(name, prompt)
    if not turn.chat:
        yield Piece("text", plain_prompt(turn), prompt)
        return
    yield _control(CONTROL.user, prompt)
    texts = {excerpt.page: excerpt.text for excerpt in turn.excerpts}
    head = "\n"
    for page in sorted({*turn.pages, *texts}):
        if page in texts:
            # page 0 is the whole document as text: it needs no label
            head += f"[Image {page}] {texts[page]}\n" if page else f"{texts[page]}\n"
            continue
        yield Piece("text", f"{head}[Image {page}]", prompt)
        yield _control(CONTROL.begin_image, prompt)
        yield Piece("image", CONTROL.image, prompt, page)
        yield _control(CONTROL.end_image, prompt)
        head = ""
    yield Piece("text", f"{head}\nQuery: {turn.text}", prompt)
    yield _control(CONTROL.assistant, prompt)
    yield Piece("text", "\n", prompt)


def plain_prompt(turn: Turn) -> str:
    """The text that a model goes on with, where a prompt stands outside any chat template."""
    if turn.pages:
        raise InputError("a prompt outside the chat template shows text only; it has pages as pictures")
    return "".join(f"{excerpt.text}\n" for excerpt in turn.excerpts) + turn.text


def _call(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.open_call, LossClass.STRUCTURE)
    yield Piece("text", render_call(turn.pages), LossClass.CALL)
    yield _control(CONTROL.close_call, LossClass.STRUCTURE)


def _observation(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.observation, LossClass.OBSERVATION)
    yield Piece("text", f"\n{render_observation(turn)}\n", LossClass.OBSERVATION)


def _think(turn: Turn, _: str) -> Iterator[Piece]:
    yield _control(CONTROL.open_think, LossClass.STRUCTURE)
    if turn.text:
        yield Piece("text", turn.text, LossClass.THINK)
    yield _control(CONTROL.close_think, LossClass.STRUCTURE)


def _answer(turn: Turn, previous: str) -> Iterator[Piece]:
    text = f"\n{turn.text}" if previous == "think" else turn.text
    if text:
        yield Piece("text", text, LossClass.ANSWER)
    yield _control(CONTROL.user, LossClass.STOP)


_LAYOUTS = {"prompt": _prompt, "call": _call, "observation": _observation, "think": _think, "answer": _answer}
_MAY_FOLLOW = {
    "": {"prompt"},
    "prompt": {"call", "think", "answer"},
    "call": {"observation"},
    "observation": {"call", "think", "answer"},
    "think": {"answer"},
    # what was read may be thought over before more is asked for; the first call is asked for at once
    "observation, think": {"call", "answer"},
    "answer": set[str](),
}


def _check_order(turns: Sequence[Turn]) -> None:
    previous = ""
    for turn in turns:
        if turn.kind not in _MAY_FOLLOW[previous]:
            allowed = ", ".join(sorted(_MAY_FOLLOW[previous])) or "nothing"
            raise InputError(f"turn '{turn.kind}' after '{previous or 'the start'}'; there may follow: {allowed}")
        previous = "observation, think" if (previous, turn.kind) == ("observation", "think") else turn.kind


# ── What the tool answers ────────────────────────────────────────────────────────────────────────


def observation(excerpts: Sequence[Excerpt]) -> Turn:
    """The observation that carries exact text. With nothing selected it says so."""
    if not excerpts:
        return Turn(kind="observation", text="You selected no images. Please answer based on the visual content.")
    return Turn(kind="observation", excerpts=tuple(excerpts))


def observation_without_text(pages: Sequence[int]) -> Turn:
    """The paper's A.4 observation: the selection is acknowledged, no text is given (k = 0)."""
    listed = json.dumps(list(pages))
    text = f"You identified images {listed} as relevant. Please answer based on the visual content of these images."
    return Turn(kind="observation", text=text)


def render_observation(turn: Turn) -> str:
    if not turn.excerpts:
        return turn.text
    return "\n".join(f"Text from image {excerpt.page}: {excerpt.text}" for excerpt in turn.excerpts)


# ── The select call ──────────────────────────────────────────────────────────────────────────────


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


# ── What a call may be: grammars for constrained decoding ────────────────────────────────────────


def call_grammar(allowed: Sequence[int], max_pages: int | None = None) -> str:
    """An EBNF grammar (xgrammar's dialect) of every valid call body, and of nothing else.

    `allowed` are the pages that may be asked for, ascending. Pages ascend and are unique, at most `max_pages`; the
    empty list is valid. Rule `f_i_k` is a list that starts at the i-th allowed page or later and has at most k entries:
    len(allowed) · max_pages rules of constant size.
    """
    opening, closing = render_call(()).split("[]")
    head = f"root ::= {json.dumps(opening + '[')} list {json.dumps(']' + closing)}\n"
    limit = _limit(allowed, max_pages)
    if limit < 1:
        return head + 'list ::= ""\n'
    rules = [head, f'list ::= "" | f_0_{limit}\n']
    for k in range(1, limit + 1):
        for i, page in enumerate(allowed):
            more = i + 1 < len(allowed)
            tail = f' ("" | ", " f_{i + 1}_{k - 1})' if more and k > 1 else ""
            later = f" | f_{i + 1}_{k}" if more else ""
            rules.append(f'f_{i}_{k} ::= "{page}"{tail}{later}\n')
    return "".join(rules)


def call_structural_tag(
    open_id: int, close_id: int, allowed: Sequence[int], max_pages: int | None = None
) -> dict[str, object]:
    """A whole call as a structural tag (xgrammar, vLLM): the token <tool_call>, a valid body, the token </tool_call>.

    The tags are given as ids, so that they cannot be spelled in pieces; after the last one only a stop token may follow.
    """
    elements = [
        {"type": "token", "token": open_id},
        {"type": "grammar", "grammar": call_grammar(allowed, max_pages)},
        {"type": "token", "token": close_id},
    ]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}


def call_schema(allowed: Sequence[int], max_pages: int | None = None) -> dict[str, object]:
    """A JSON schema for call bodies: range and length hold, order and uniqueness do not (`parse_call` repairs)."""
    indices: dict[str, object] = {"type": "array", "minItems": 0, "maxItems": _limit(allowed, max_pages)}
    if allowed:
        indices["items"] = {"type": "integer", "enum": list(allowed)}
    return {
        "type": "object",
        "properties": {"name": {"const": CALL_NAME}, "indices": indices},
        "required": ["name", "indices"],
        "additionalProperties": False,
    }


def _limit(allowed: Sequence[int], max_pages: int | None) -> int:
    return len(allowed) if max_pages is None else min(max_pages, len(allowed))
