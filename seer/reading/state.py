"""The state of one conversation: its turns, the trace, and the pages and excerpts retrieved so far.

Turns are the prompt of the next request; steps are the trace. A turn that the model wrote keeps the token ids it wrote, so
that the next prompt repeats them exactly and a key-value cache stays valid. `seer.reading.budget` counts tokens over this
state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seer.engines.base import Conversation, Engine, Generation, Request, Sampling, SelectCall
from seer.protocol.encoding import Encoder
from seer.reading.policy import ReadingPolicy
from seer.reading.trace import step_of, with_added_pages
from seer.schema import Document, Excerpt, Step, Turn
from seer.selection.passages import PassageIndex

OnStep = Callable[[Step], None]
OnText = Callable[[str], None]


@dataclass(frozen=True)
class SpokenTurn:
    """A turn of the conversation as it enters the next prompt."""

    turn: Turn
    ids: tuple[int, ...] | None = None
    """Token ids that the model wrote for it; None if the turn is encoded from its content."""


@dataclass
class ReadingState:
    """Everything that one conversation accumulates, from the question to the answer."""

    document: Document
    question: str
    policy: ReadingPolicy
    engine: Engine
    session: str
    on_step: OnStep | None
    on_text: OnText | None = None
    query: str = ""
    """The bare question for lexical selectors and trimming; `question` may also hold instructions for the model."""
    spoken: list[SpokenTurn] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    excerpts: list[Excerpt] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)
    max_prompt_tokens: int | None = None
    """Upper limit of the last prompt, set by the profitability gate (`mode="auto"`)."""

    @property
    def encoder(self) -> Encoder | None:
        return self.engine.encoder

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(spoken.turn for spoken in self.spoken)

    @functools.cached_property
    def full_text_tokens(self) -> int:
        """Length of the prompt that holds the whole document as text; 0 if the engine has no encoder.

        Counted on first use, because it takes long for a long document and would delay the first request.
        """
        return 0 if self.encoder is None else len(self.encoder.encode([self.full_text_prompt()], {}))

    @functools.cached_property
    def passages(self) -> PassageIndex:
        """The windows of the document, scored for the query; built on first use."""
        return PassageIndex(self.document, self.query)

    # ── Turns and steps ──────────────────────────────────────────────────────────────────────────

    def say(
        self,
        turn: Turn,
        generation: Generation | None = None,
        deviations: Sequence[str] = (),
        allowed: Sequence[int] = (),
        ids: tuple[int, ...] | None = None,
    ) -> None:
        """Add a turn to the conversation and its step to the trace; the arguments are those of `record`.

        `ids` are the token ids that the model wrote for the turn, to be repeated in the next prompt.
        """
        self.spoken.append(SpokenTurn(turn, ids))
        self.record(turn, generation, deviations, allowed)

    def record(
        self,
        turn: Turn,
        generation: Generation | None = None,
        deviations: Sequence[str] = (),
        allowed: Sequence[int] = (),
    ) -> None:
        """Add a step to the trace without a turn in the conversation, and pass it to `on_step`.

        `generation` is the model call that wrote the turn, `deviations` are the rules of the protocol that it breaks,
        and `allowed` are the pages that a call may select.
        """
        step = step_of(self.document, turn, generation, deviations, allowed)
        self.steps.append(step)
        if self.on_step:
            self.on_step(step)

    def extend_call(self, pages: tuple[int, ...]) -> None:
        """Replace the selection of the last turn, a call, by `pages`, in the conversation and in the trace."""
        # The model did not write this call, so the turn has no ids.
        self.spoken[-1] = SpokenTurn(Turn(kind="call", pages=pages))
        self.steps[-1] = with_added_pages(self.steps[-1], pages)

    def take_back(self, num_turns: int) -> None:
        """Keep only the first `num_turns` turns of the conversation; the trace keeps every step."""
        del self.spoken[num_turns:]

    # ── Prompts and requests ─────────────────────────────────────────────────────────────────────

    def prompt(self, num_turns: int | None = None) -> Conversation:
        """The conversation so far as a prompt, or its first `num_turns` turns."""
        spoken = self.spoken[:num_turns]
        turns = tuple(one.turn for one in spoken)
        shown = {n: self.document.page(n) for turn in turns if turn.kind == "prompt" for n in turn.pages}
        return Conversation(turns, shown, {n: one.ids for n, one in enumerate(spoken) if one.ids is not None})

    def full_text_prompt(self) -> Turn:
        """The prompt turn that holds the whole document as text."""
        whole = Excerpt(page=0, start=0, text=self.document.text)
        chat = self.policy.chat or self.policy.mode != "text"
        return Turn(kind="prompt", text=self.question, excerpts=(whole,), chat=chat)

    def sampling(self, max_new_tokens: int) -> Sampling:
        """The policy's sampling, for at most `max_new_tokens` tokens."""
        policy = self.policy
        return Sampling(max_new_tokens, policy.temperature, policy.top_p, policy.top_k, policy.seed)

    def request(self, constraint: SelectCall | None, max_new_tokens: int) -> Request:
        """The request for the next turn of the conversation."""
        return Request(self.prompt(), self.session, constraint, self.sampling(max_new_tokens))

    def page_excerpts(self, pages: Sequence[int]) -> tuple[Excerpt, ...]:
        """The whole text of these pages, one excerpt for each."""
        return tuple(
            Excerpt(page=page.number, start=page.start, text=page.text) for page in map(self.document.page, pages)
        )
