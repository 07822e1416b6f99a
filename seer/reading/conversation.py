"""One conversation: look at all pages, select some, retrieve their exact text, reason, answer.

`converse` is a generator: it yields lists of requests, receives their generations and returns an `Answer`. It does not
wait and does not depend on how an engine works, so the same loop serves a single question, a batch in lockstep and a server
with many conversations at once. `seer.reading.reader` drives it.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import replace

from seer.engines.base import (
    Completion,
    Conversation,
    Engine,
    Generation,
    Request,
    Sampling,
    SelectCall,
    split_reasoning,
)
from seer.errors import EngineError, InputError, ProtocolError
from seer.protocol.call import ParsedCall, parse_call_text
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.literals import neutralise
from seer.protocol.turns import observation, observation_without_text
from seer.reading.budget import (
    fitting_pages,
    gate_mode,
    observation_budget,
    observation_fits,
    page_costs,
    passage_excerpts,
    usage_of,
)
from seer.reading.citations import find_citations
from seer.reading.policy import ReadingPolicy, chunk_pages, fit_excerpts
from seer.reading.state import OnStep, OnText, ReadingState
from seer.schema import Answer, Document, Failure, Status, Turn
from seer.selection.base import ModelPlusLexical, Selector
from seer.selection.passages import PassagePages

ReadingLoop = Generator[list[Request], list[Generation], Answer]
_Pages = tuple[int, ...]
_counter = itertools.count()

TRIMMED = "trimmed_text"
"""Deviation of an observation that does not carry the whole text of its pages."""

NOT_ANSWERABLE = re.compile(
    r"^\W*(this question is |the question is |it is )?(not answerable|unanswerable|(can ?not|can't) be answered)\b"
    r"|^\W*(无法回答|不能回答|没有答案|文中未提及)",
    re.I,
)


def converse(
    document: Document,
    question: str,
    engine: Engine,
    selector: Selector | ModelPlusLexical | None = None,
    policy: ReadingPolicy | None = None,
    on_step: OnStep | None = None,
    on_text: OnText | None = None,
    query: str = "",
) -> ReadingLoop:
    """Ask one question about one document.

    Without a `selector` the model selects pages by a tool call; a ModelPlusLexical adds pages to the model's selection;
    any other selector replaces it. `on_step` receives every step when it ends, `on_text` the text of the last stage while
    it is generated. `query` is the bare question for selectors and trimming, if `question` also holds instructions.

    Every conversation ends in an Answer: failures of the engine and of the protocol become its status, cause and
    `failure`. Raises InputError for an empty question and for a document without pages, before any request.
    """
    if not question.strip():
        raise InputError("the question is empty; give a question of at least one character")
    if not document.pages:
        raise InputError(f"'{document.name}' has no pages to read; give a document with at least one page")
    session = f"{document.name}#{next(_counter)}"
    policy = policy or ReadingPolicy()
    if isinstance(selector, PassagePages) and policy.retrieve:
        policy = policy.model_copy(update={"retrieve": "passages"})
    state = ReadingState(document, question, policy, engine, session, on_step, on_text, query or question)
    started = time.perf_counter()
    try:
        answer = yield from _converse(state, selector)
    except (EngineError, ProtocolError) as error:
        answer = Answer(
            text="",
            status=Status.FAILED,
            cause=str(error),
            failure=Failure.of(error),
            trace=tuple(state.steps),
            usage=usage_of(state),
        )
    finally:
        engine.forget(session)
    return answer.model_copy(update={"seconds": time.perf_counter() - started})


def _converse(state: ReadingState, selector: Selector | ModelPlusLexical | None) -> ReadingLoop:
    extender = selector if isinstance(selector, ModelPlusLexical) else None
    forced = None if isinstance(selector, ModelPlusLexical) else selector
    chosen = _forced_pages(state, forced) if forced else None
    mode = state.policy.mode
    if mode == "auto":
        mode = gate_mode(state, chosen)
    if mode == "text":
        prompt = state.full_text_prompt()
        state.say(prompt)
        state.excerpts.extend(prompt.excerpts)
        return (yield from _answer(state))
    shown = tuple(page.number for page in state.document.pages)
    if mode == "select":
        costs, room = page_costs(state)
        if sum(costs) > room:
            # One request cannot hold the document: scan it in chunks, then read the pages that were found.
            if chosen is None:
                chosen = yield from _scan_chunks(state, costs, room)
            shown = chosen or (1,)
    state.say(Turn(kind="prompt", text=state.question, pages=shown))
    if mode == "select":
        answered = yield from _select_and_retrieve(state, shown, chosen, extender)
        if answered:
            return _finish(state)
    return (yield from _answer(state))


def _forced_pages(state: ReadingState, selector: Selector) -> _Pages:
    """Return the pages of a selector. Those of `passages` hold the passages that the policy's tokens allow."""
    if isinstance(selector, PassagePages):
        every = tuple(page.number for page in state.document.pages)
        excerpts = passage_excerpts(state, every)
        if excerpts is not None:
            return tuple(sorted({excerpt.page for excerpt in excerpts}))
    return selector.select(state.document, state.query, state.policy.selector_pages)


def _select_and_retrieve(
    state: ReadingState, shown: _Pages, chosen: _Pages | None, extender: ModelPlusLexical | None
) -> Generator[list[Request], list[Generation], bool]:
    """Run the rounds of selection and retrieval. Returns True if the model answered instead of selecting again.

    `chosen` are pages that were selected without a further call: they take the place of the first round.
    """
    policy = state.policy
    if chosen is not None:
        left = tuple(page for page in shown if page not in state.selected)
        if left:
            state.say(Turn(kind="call", pages=chosen))
            _retrieve(state, _extend(state, extender, chosen, left))
        return False
    for round_number in range(policy.rounds):
        left = tuple(page for page in shown if page not in state.selected)
        if not left or (round_number and not observation_fits(state, policy.max_call_tokens)):
            return False
        num_turns = len(state.spoken)
        pages = yield from _select(state, left, required=round_number == 0)
        if pages is None:
            return True
        if round_number and not observation_fits(state):
            # The thinking before the call used the tokens that the selected text needs, so the call is withdrawn
            # and the model answers from the text it has.
            state.take_back(num_turns)
            return False
        pages = _extend(state, extender, pages, left)
        _retrieve(state, pages)
        if not pages:
            return False
    return False


# ── Stage 1: select ──────────────────────────────────────────────────────────────────────────────


def _select(
    state: ReadingState, allowed: _Pages, *, required: bool
) -> Generator[list[Request], list[Generation], _Pages | None]:
    """Request a select call and return its pages; None if the model answered instead, which `required` rules out.

    If no call is required, the model may think before it calls. Raises ProtocolError for an invalid call under the
    policy "reject".
    """
    policy = state.policy
    constraint = SelectCall(allowed, policy.max_pages, required, enforced=policy.constraint == "grammar")
    max_new_tokens = policy.max_call_tokens if required else policy.max_new_tokens
    for attempt in range(policy.reasks + 1):
        request = state.request(constraint, max_new_tokens)
        if attempt:
            # Greedy decoding and an unchanged seed would both repeat the invalid call.
            drawn = request.sampling if policy.temperature else Sampling(max_new_tokens, 0.7, 0.95)
            request = replace(request, sampling=replace(drawn, seed=policy.seed + attempt))
        (generation,) = yield [request]
        generation.raise_error()
        if not required and not any(name == CONTROL.open_call for name, _ in generation.parts):
            _say_answer(state, generation)
            return None
        thought, call = (None, generation) if required else split_thought(generation, state.encoder)
        parsed = parse_call_text(_call_text(call), allowed, policy.max_pages)
        if not parsed.deviations or policy.on_invalid_call != "reask" or attempt == policy.reasks:
            break
        _record_call(state, parsed, generation, allowed)
    if parsed.deviations and policy.on_invalid_call == "reject":
        _record_call(state, parsed, generation, allowed)
        raise ProtocolError(
            f"the select call is not valid ({', '.join(parsed.deviations)}) and the policy is to reject; "
            "set on_invalid_call to 'drop' or 'reask' to continue"
        )
    _say_call(state, thought, call, parsed, allowed)
    return parsed.pages


def _call_text(generation: Generation) -> str:
    """The generation as text in which only control tokens count as tags, so that a quoted call is not a call."""
    return "".join(name or neutralise(text) for name, text in generation.parts)


def split_thought(generation: Generation, encoder: Encoder | None) -> tuple[Completion | None, Generation]:
    """(the thinking before a call, the call); the call keeps the usage of both.

    The thinking is None, and the call is the whole generation, unless exactly one closed <think> block precedes the call.
    """
    names = [name for name, _ in generation.parts]
    start = names.index(CONTROL.open_call)
    tags = [name for name in names[:start] if name]
    if tags != [CONTROL.open_think, CONTROL.close_think] or names[0] != tags[0] or names[start - 1] != tags[1]:
        return None, generation
    ids = generation.ids
    if ids is None or encoder is None:
        before = after = None
    else:
        at = ids.index(encoder.control(CONTROL.open_call))
        before, after = ids[:at], ids[at:]
    thought = Completion(generation.parts[:start], before)
    return thought, replace(generation, parts=generation.parts[start:], ids=after)


def _say_call(
    state: ReadingState, thought: Completion | None, call: Generation, parsed: ParsedCall, allowed: _Pages
) -> None:
    """Add a call, and the thinking before it, to the conversation.

    A valid call keeps the ids that the model wrote. A call with deviations is written anew from its valid pages.
    """
    is_valid = not parsed.deviations
    if thought is not None:
        text = "".join(text for _, text in thought.parts)
        state.say(Turn(kind="think", text=text), ids=thought.ids if is_valid else None)
    turn = Turn(kind="call", pages=parsed.pages)
    state.say(turn, call, parsed.deviations, allowed, ids=call.ids if is_valid else None)


def _record_call(state: ReadingState, parsed: ParsedCall, generation: Generation, allowed: _Pages) -> None:
    """Keep a call in the trace only: it does not become a turn of the conversation."""
    state.record(Turn(kind="call", pages=parsed.pages), generation, parsed.deviations, allowed)


def _extend(state: ReadingState, extender: ModelPlusLexical | None, pages: _Pages, allowed: _Pages) -> _Pages:
    """Add the extender's pages to the selection; the conversation continues as if the model had selected them all."""
    if extender is None:
        return pages
    extended = tuple(page for page in extender.extend(state.document, state.query, pages) if page in allowed)
    if extended != pages:
        state.extend_call(extended)
    return extended


def _scan_chunks(
    state: ReadingState, costs: Sequence[int], room: int
) -> Generator[list[Request], list[Generation], _Pages]:
    """Select within every chunk of pages at once, each chunk in its own session.

    Returns the selected pages of all chunks, as many as one request holds with room for their text. If some must be left
    out, the first page of every chunk comes before the second page of any.
    """
    policy = state.policy
    chunks = [tuple(run) for run in chunk_pages(costs, room)]
    requests = [_chunk_request(state, pages, f"{state.session}/{n}") for n, pages in enumerate(chunks)]
    found: list[_Pages] = []
    try:
        generations = yield requests
        for pages, generation in zip(chunks, generations, strict=True):
            generation.raise_error()
            parsed = parse_call_text(_call_text(generation), pages, policy.max_pages)
            _record_call(state, parsed, generation, pages)
            found.append(parsed.pages)
    finally:
        for request in requests:
            state.engine.forget(request.session)
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return fitting_pages(state, [page for page in in_turn if page is not None], costs, room)


def _chunk_request(state: ReadingState, pages: _Pages, session: str) -> Request:
    prompt = Turn(kind="prompt", text=state.question, pages=pages)
    shown = {number: state.document.page(number) for number in pages}
    constraint = SelectCall(pages, state.policy.max_pages, enforced=state.policy.constraint == "grammar")
    return Request(Conversation((prompt,), shown), session, constraint, state.sampling(state.policy.max_call_tokens))


# ── Stage 2: retrieve ────────────────────────────────────────────────────────────────────────────


def _retrieve(state: ReadingState, pages: _Pages) -> None:
    """Add the exact text of the selected pages to the conversation, trimmed to the budget."""
    state.selected.extend(pages)
    if not state.policy.retrieve:
        state.say(observation_without_text(pages))
        return
    limit = state.policy.max_retrieved_pages
    if limit is not None:
        num_before = len({excerpt.page for excerpt in state.excerpts})
        pages = pages[: max(0, limit - num_before)]
    whole = state.page_excerpts(pages)
    budget = observation_budget(state)
    excerpts = passage_excerpts(state, pages, budget)
    if excerpts is None:
        excerpts = whole
        if budget is not None and state.encoder is not None:
            excerpts = fit_excerpts(whole, budget, state.encoder.count_text, state.query)
    state.excerpts.extend(excerpts)
    state.say(observation(excerpts), deviations=() if excerpts == whole else (TRIMMED,))


# ── Stage 3: reason ──────────────────────────────────────────────────────────────────────────────


def _answer(state: ReadingState) -> ReadingLoop:
    (generation,) = yield [replace(state.request(None, state.policy.max_new_tokens), on_text=state.on_text)]
    generation.raise_error()
    _say_answer(state, generation)
    return _finish(state)


def _say_answer(state: ReadingState, generation: Generation) -> None:
    """Add thinking and answer as turns; the last of them carries the usage of the generation."""
    think, answer, thought = split_reasoning(generation.parts)
    if thought:
        state.say(Turn(kind="think", text=think), None if answer else generation)
    if answer or not thought:
        state.say(Turn(kind="answer", text=answer), generation)


def _finish(state: ReadingState) -> Answer:
    text = "".join(turn.text for turn in state.turns if turn.kind == "answer")
    thoughts = "\n".join(turn.text for turn in state.turns if turn.kind == "think")
    if not text.strip():
        last = state.steps[-1]
        cause = "no answer within the token limit" if last.finish == "length" else "the model gave no answer"
        status = Status.FAILED
    else:
        cause, status = "", Status.NOT_ANSWERABLE if NOT_ANSWERABLE.search(text) else Status.ANSWERED
    # The whole document, which mode "text" shows, is not a retrieved page and is not cited.
    retrieved = [excerpt for excerpt in state.excerpts if excerpt.page]
    return Answer(
        text=text,
        status=status,
        cause=cause,
        selected_pages=tuple(sorted(state.selected)),
        citations=find_citations(state.document, retrieved, text, thoughts),
        usage=usage_of(state),
        trace=tuple(state.steps),
    )
