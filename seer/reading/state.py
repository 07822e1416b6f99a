"""What a conversation has said and spent so far, and the token counts that its decisions rest on.

Counts are exact: they come from the encoder that also makes the ids. Engines without one (remote servers) report what
they counted themselves, and what cannot be known before sending is left open.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seer.engines.base import BoundedEngine, Conversation, Engine, Generation, Request, Sampling, SelectCall
from seer.errors import InputError
from seer.protocol.encoding import Encoder
from seer.protocol.turns import observation, observation_without_text, render_observation
from seer.reading.policy import Mode, ReadingPolicy, choose_mode
from seer.reading.trace import step_of
from seer.schema import Document, Excerpt, LossClass, Page, Step, Turn, Usage

OnStep = Callable[[Step], None]
OnText = Callable[[str], None]


@dataclass
class ReadingState:
    """What a conversation has said and spent so far."""

    document: Document
    question: str
    policy: ReadingPolicy
    engine: Engine
    key: str
    on_step: OnStep | None
    on_text: OnText | None = None
    query: str = ""
    """What lexical selectors look for, where the question is wrapped in instructions."""
    turns: list[Turn] = field(default_factory=list)
    written: dict[int, Sequence[int]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    excerpts: list[Excerpt] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)
    cap: int | None = None
    """The gate's promise: the last prompt takes at most this many tokens."""

    @property
    def encoder(self) -> Encoder | None:
        return self.engine.encoder

    @functools.cached_property
    def full_text(self) -> int:
        """What the prompt would take with the whole document as text. Counted where it is needed: for a long document
        it takes a while, in which nothing could be asked yet."""
        return 0 if self.encoder is None else len(self.encoder.encode([full_text_prompt(self)], {}))

    def say(
        self,
        turn: Turn,
        generation: Generation | None = None,
        deviations: Sequence[str] = (),
        allowed: Sequence[int] = (),
    ) -> None:
        self.turns.append(turn)
        step = step_of(self.document, turn, generation, deviations, allowed)
        self.steps.append(step)
        if self.on_step:
            self.on_step(step)

    def take_back(self, turns: int) -> None:
        """Only the first so many turns stand; the steps keep what was said."""
        del self.turns[turns:]
        self.written = {index: ids for index, ids in self.written.items() if index < turns}

    def shown(self) -> dict[int, Page]:
        return {n: self.document.page(n) for turn in self.turns if turn.kind == "prompt" for n in turn.pages}

    def sampling(self, max_new_tokens: int) -> Sampling:
        policy = self.policy
        return Sampling(max_new_tokens, policy.temperature, policy.top_p, policy.top_k, policy.seed)

    def request(self, constraint: SelectCall | None, max_new_tokens: int) -> Request:
        sampling = self.sampling(max_new_tokens)
        prompt = Conversation(tuple(self.turns), self.shown(), dict(self.written))
        return Request(prompt, self.key, constraint, sampling)

    def page_excerpts(self, pages: Sequence[int]) -> tuple[Excerpt, ...]:
        """The whole text of these pages."""
        return tuple(
            Excerpt(page=page.number, start=page.start, text=page.text) for page in map(self.document.page, pages)
        )

    def shown_sizes(self) -> dict[int, tuple[int, int]]:
        return {number: (page.width_px, page.height_px) for number, page in self.shown().items()}

    def prompt_tokens(self) -> int:
        assert self.encoder is not None
        return len(self.encoder.encode(self.turns, self.shown_sizes(), self.written))


def usage_of(state: ReadingState) -> Usage:
    completion = sum(step.usage.completion for step in state.steps)
    cached = sum(step.usage.cached for step in state.steps)
    asked = [step.usage.prompt for step in state.steps if step.usage.prompt]
    usage = Usage(prompt=asked[-1] if asked else 0, completion=completion, cached=cached, full_text=state.full_text)
    if state.encoder is None or not state.turns:
        return usage
    given = list(state.turns)
    while given[-1].kind in ("think", "answer"):  # what the last request was answered with
        given.pop()
    encoded = state.encoder.encode(
        given, state.shown_sizes(), {i: ids for i, ids in state.written.items() if i < len(given)}
    )
    return usage.model_copy(
        update=dict(prompt=len(encoded), vision=encoded.vision_tokens, retrieved=encoded.count(LossClass.OBSERVATION))
    )


def full_text_prompt(state: ReadingState) -> Turn:
    """The prompt that holds the whole document as text."""
    whole = Excerpt(page=0, start=0, text=state.document.text)
    chat = state.policy.chat or state.policy.mode != "text"
    return Turn(kind="prompt", text=state.question, excerpts=(whole,), chat=chat)


def gate_mode(state: ReadingState, chosen: tuple[int, ...] | None) -> Mode:
    encoder = state.encoder
    if encoder is None:
        raise InputError("mode 'auto' counts tokens before it sends them and this engine has no tokenizer; give one")
    document = state.document
    every = tuple(page.number for page in document.pages)
    sizes = {page.number: (page.width_px, page.height_px) for page in document.pages}
    visual = len(encoder.encode([Turn(kind="prompt", text=state.question, pages=every)], sizes))
    if chosen is not None:
        call, needed = call_tokens(encoder, chosen), observation_tokens(state, chosen)
    else:
        last = every[-min(state.policy.max_pages or len(every), len(every)) :]
        call = max(call_tokens(encoder, last), state.policy.max_call_tokens)
        needed = max(observation_tokens(state, pages) for pages in [(), *((number,) for number in every)])
    state.cap = state.full_text
    return choose_mode(state.full_text, visual, call, needed)


def observation_fits(state: ReadingState, call: int = 0) -> bool:
    """Under the gate's cap: is there room for the shortest observation, after what has been said and a call of so many
    tokens?"""
    if state.cap is None:
        return True
    return state.prompt_tokens() + call + observation_tokens(state, ()) <= state.cap


def call_tokens(encoder: Encoder, pages: Sequence[int]) -> int:
    prompt = Turn(kind="prompt", text="")
    whole = encoder.encode([prompt, Turn(kind="call", pages=tuple(pages))], {})
    return len(whole) - len(encoder.encode([prompt], {}))


def observation_tokens(state: ReadingState, pages: Sequence[int]) -> int:
    encoder = state.encoder
    assert encoder is not None
    turn = observation(state.page_excerpts(pages)) if state.policy.retrieve else observation_without_text(pages)
    return 1 + encoder.count_text(f"\n{render_observation(turn)}\n")


def pages_at_once(state: ReadingState) -> tuple[list[int], int]:
    """(what each page takes of one request, what all pages of a request may take together).

    Counted in tokens, and in bytes where the engine takes only so many. By both, a page takes the larger of its two
    shares, in whole numbers: pages that fit together then fit by either count.
    """
    limits = []
    if state.encoder is not None:
        limits.append((page_tokens(state, state.encoder), page_room(state, state.encoder)))
    if isinstance(state.engine, BoundedEngine):
        taken = state.engine.picture_bytes(state.key, state.document.pages)
        limits.append((taken, state.engine.max_picture_bytes))
    whole = math.prod(room for _, room in limits)
    shares = [[cost * (whole // room) for cost in costs] for costs, room in limits]
    return [max(of_page) for of_page in zip(*shares, strict=True)], whole


def fitting_pages(state: ReadingState, pages: Sequence[int], costs: Sequence[int], room: int) -> tuple[int, ...]:
    """Of these pages the first that one request holds, at least one; where their text is retrieved, with half of the
    window left for that. Ascending."""
    limits = [(costs, room)]
    if state.encoder is not None and state.policy.retrieve:
        limits.append((page_tokens(state, state.encoder), page_room(state, state.encoder) // 2))
    kept: list[int] = []
    taken = [0] * len(limits)
    for page in pages:
        then = [before + each[page - 1] for before, (each, _) in zip(taken, limits, strict=True)]
        if not kept or all(sum_of <= most for sum_of, (_, most) in zip(then, limits, strict=True)):
            kept.append(page)
            taken = then
    return tuple(sorted(kept))


def page_tokens(state: ReadingState, encoder: Encoder) -> list[int]:
    """Tokens of each page in a prompt: its label, markers and vision tokens."""
    return [
        encoder.geometry.tokens(page.width_px, page.height_px) + 2 + encoder.count_text(f"[Image {page.number}]")
        for page in state.document.pages
    ]


def page_room(state: ReadingState, encoder: Encoder) -> int:
    """Positions for page images in one prompt. Counted in tokens, which are never fewer than positions."""
    text = len(encoder.encode([Turn(kind="prompt", text=state.question)], {}))
    reserve = text + state.policy.max_call_tokens + state.policy.max_new_tokens + 16
    return max(1, state.engine.max_positions - reserve)
