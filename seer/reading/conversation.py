"""One conversation: look over all pages, select some, receive their exact text, reason, answer.

`converse` is a generator: it yields lists of requests, is sent their generations, and returns an `Answer`. It knows no
engine's ways and waits for nothing, so one loop serves a single question, a batch in lockstep and a server with many
conversations at once; `seer.reading.reader` drives it.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Generator, Sequence
from dataclasses import replace

from seer.engines.base import Conversation, Engine, Generation, Request, Sample, Sampling, SelectCall, split_reasoning
from seer.errors import EngineError, InputError, ProtocolError
from seer.protocol.call import ParsedCall, parse_call_text
from seer.protocol.control import CONTROL
from seer.protocol.encoding import Encoder
from seer.protocol.literals import neutralise
from seer.protocol.turns import observation, observation_without_text, render_observation
from seer.reading.citations import find_citations
from seer.reading.policy import ReadingPolicy, chunk_pages, fit_excerpts
from seer.reading.state import (
    OnStep,
    OnText,
    ReadingState,
    fitting_pages,
    full_text_prompt,
    gate_mode,
    observation_fits,
    pages_at_once,
    usage_of,
)
from seer.reading.trace import with_added_pages
from seer.schema import Answer, Document, Failure, Status, Turn
from seer.selection.base import ModelPlusLexical, Selector

ReadingLoop = Generator[list[Request], list[Generation], Answer]
_counter = itertools.count()

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
    """One question over one document. `selector` None: the model selects by a tool call; ModelPlusLexical adds to it.

    `query` is the bare question, for selectors and trimming, where `question` also holds instructions for the model.

    Every run ends in an Answer; what goes wrong on the way becomes its status and cause. Raises InputError for a
    question that is empty and a document without pages, before anything is asked of the engine.
    """
    if not question.strip():
        raise InputError("the question is empty; ask something")
    if not document.pages:
        raise InputError(f"'{document.name}' has no pages to read")
    key = f"{document.name}#{next(_counter)}"
    state = ReadingState(
        document, question, policy or ReadingPolicy(), engine, key, on_step, on_text, query or question
    )
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
        engine.forget(key)
    return answer.model_copy(update={"seconds": time.perf_counter() - started})


def _converse(state: ReadingState, selector: Selector | ModelPlusLexical | None) -> ReadingLoop:
    policy, document = state.policy, state.document
    every = tuple(page.number for page in document.pages)
    extender = selector if isinstance(selector, ModelPlusLexical) else None
    forced = None if isinstance(selector, ModelPlusLexical) else selector
    chosen = forced.select(document, state.query, policy.selector_pages) if forced else None
    mode = policy.mode
    if mode == "auto":
        mode = gate_mode(state, chosen)
    if mode == "text":
        state.say(full_text_prompt(state))
        state.excerpts.extend(state.turns[0].excerpts)
        return (yield from _answer(state))
    shown = every
    costs, room = pages_at_once(state) if mode == "select" else ([], 0)
    if sum(costs) > room:
        # one request does not hold the document: scan it in chunks, then read the pages that were found
        if chosen is None:
            chosen = yield from _scan_chunks(state, costs, room)
        shown = chosen or (1,)
    state.say(Turn(kind="prompt", text=state.question, pages=shown))
    if mode == "visual":
        return (yield from _answer(state))
    for round_number in range(policy.rounds):
        left = tuple(page for page in shown if page not in state.selected)
        if not left or (round_number and not observation_fits(state, policy.max_call_tokens)):
            break
        if chosen is not None:
            state.say(Turn(kind="call", pages=chosen))
            pages: tuple[int, ...] | None = chosen
        else:
            before = len(state.turns)
            pages = yield from _select(state, left, required=round_number == 0)
            if round_number and pages is not None and not observation_fits(state):
                # its thinking took the room of what it asks for: it answers from what it has
                state.take_back(before)
                break
        if pages is None:  # the model went on to answer instead
            return _finish(state)
        if extender is not None:
            pages = _extend(state, extender, pages, left)
        _retrieve(state, pages)
        if chosen is not None or not pages:
            break
    return (yield from _answer(state))


# ── Stage 1: select ──────────────────────────────────────────────────────────────────────────────


def _select(
    state: ReadingState, allowed: tuple[int, ...], *, required: bool
) -> Generator[list[Request], list[Generation], tuple[int, ...] | None]:
    """Ask for a call. Returns its pages; None where the model answered instead (`required` False).

    Where no call is required, the model may think before it calls."""
    policy = state.policy
    constraint = SelectCall(allowed, policy.max_pages, required)
    room = policy.max_call_tokens if required else policy.max_new_tokens
    for attempt in range(policy.reasks + 1):
        request = state.request(constraint, room)
        if attempt:
            # greedy decoding would say the same again, and so would the same seed
            drawn = request.sampling if policy.temperature else Sampling(room, 0.7, 0.95)
            request = replace(request, sampling=replace(drawn, seed=policy.seed + attempt))
        (generation,) = yield [request]
        generation.raise_error()
        if not required and not any(name == CONTROL.open_call for name, _ in generation.parts):
            _say_answer(state, generation)
            return None
        thought, call = (None, generation) if required else split_thought(generation, state.encoder)
        parsed = parse_call_text(_call_text(call), allowed, policy.max_pages)
        if not parsed.deviations:
            _say_call(state, thought, call, parsed, allowed)
            return parsed.pages
        if policy.on_invalid_call != "reask" or attempt == policy.reasks:
            break
        _note(state, parsed, generation, allowed)
    if policy.on_invalid_call == "reject":
        _note(state, parsed, generation, allowed)
        raise ProtocolError(
            f"the select call is not valid ({', '.join(parsed.deviations)}) and the policy is to reject"
        )
    _say_call(state, thought, call, parsed, allowed)
    return parsed.pages


def _call_text(generation: Generation) -> str:
    """What was written, with tags where they are control tokens alone: a call that the model quotes is none of its own."""
    return "".join(name or neutralise(text) for name, text in generation.parts)


def split_thought(generation: Generation, encoder: Encoder | None) -> tuple[Sample | None, Generation]:
    """What the model thought before its call, and the call, which keeps what both have cost. (None, all of it) where no
    closed thinking stands before the call."""
    names = [name for name, _ in generation.parts]
    start = names.index(CONTROL.open_call)
    spoken = [name for name in names[:start] if name]
    if spoken != [CONTROL.open_think, CONTROL.close_think] or names[0] != spoken[0] or names[start - 1] != spoken[1]:
        return None, generation
    ids = generation.ids
    if ids is None or encoder is None:
        before = after = None
    else:
        at = ids.index(encoder.control(CONTROL.open_call))
        before, after = ids[:at], ids[at:]
    thought = Sample(generation.parts[:start], before)
    return thought, replace(generation, parts=generation.parts[start:], ids=after)


def _say_call(
    state: ReadingState, thought: Sample | None, call: Generation, parsed: ParsedCall, allowed: Sequence[int]
) -> None:
    """Say a call and the thinking before it; a valid one as the ids that the model wrote, where they are known."""
    keeps_ids = not parsed.deviations
    if thought is not None:
        if keeps_ids and thought.ids is not None:
            state.written[len(state.turns)] = thought.ids
        state.say(Turn(kind="think", text="".join(text for _, text in thought.parts)))
    if keeps_ids and call.ids is not None:
        state.written[len(state.turns)] = call.ids
    state.say(Turn(kind="call", pages=parsed.pages), call, parsed.deviations, allowed)


def _extend(
    state: ReadingState, extender: ModelPlusLexical, pages: tuple[int, ...], allowed: tuple[int, ...]
) -> tuple[int, ...]:
    """Pages added to the model's own; the conversation goes on as if the model had asked for them all."""
    more = tuple(page for page in extender.extend(state.document, state.query, pages) if page in allowed)
    if more != pages:
        state.turns[-1] = Turn(kind="call", pages=more)
        state.written.pop(len(state.turns) - 1, None)
        state.steps[-1] = with_added_pages(state.steps[-1], more)
    return more


def _note(state: ReadingState, parsed: ParsedCall, generation: Generation, allowed: Sequence[int]) -> None:
    """Keep an unusable call in the trace without letting it into the conversation."""
    state.say(Turn(kind="call", pages=parsed.pages), generation, parsed.deviations, allowed)
    state.turns.pop()


def _scan_chunks(
    state: ReadingState, costs: Sequence[int], room: int
) -> Generator[list[Request], list[Generation], tuple[int, ...]]:
    """Select within every chunk of pages at once; returns the union, at most as many pages as one request holds with room
    for their text. Where that is fewer, every chunk's first pages go before any chunk's second ones."""
    policy, document = state.policy, state.document
    requests, runs = [], chunk_pages(costs, room)
    for n, run in enumerate(runs):
        pages = tuple(run)
        prompt = Turn(kind="prompt", text=state.question, pages=pages)
        constraint = SelectCall(pages, policy.max_pages, required=True)
        sampling = state.sampling(policy.max_call_tokens)
        shown = {number: document.page(number) for number in pages}
        requests.append(Request(Conversation((prompt,), shown), f"{state.key}/{n}", constraint, sampling))
    found: list[tuple[int, ...]] = []
    try:
        generations = yield requests
        for run, generation in zip(runs, generations, strict=True):
            generation.raise_error()
            parsed = parse_call_text(_call_text(generation), tuple(run), policy.max_pages)
            state.turns[:] = [
                Turn(kind="prompt", text=state.question, pages=tuple(run))
            ]  # each chunk is a conversation of its own
            state.say(Turn(kind="call", pages=parsed.pages), generation, parsed.deviations, tuple(run))
            found.append(parsed.pages)
    finally:
        for request in requests:
            state.engine.forget(request.session)
    state.turns.clear()
    by_turns = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return fitting_pages(state, [page for page in by_turns if page is not None], costs, room)


# ── Stage 2: retrieve ────────────────────────────────────────────────────────────────────────────


def _retrieve(state: ReadingState, pages: tuple[int, ...]) -> None:
    state.selected.extend(pages)
    if not state.policy.retrieve:
        state.say(observation_without_text(pages))
        return
    excerpts = state.page_excerpts(pages)
    budget = _observation_budget(state)
    if budget is not None and state.encoder is not None:
        excerpts = fit_excerpts(excerpts, budget, state.encoder.count_text, state.query)
    state.excerpts.extend(excerpts)
    state.say(observation(excerpts))


def _observation_budget(state: ReadingState) -> int | None:
    """Tokens that the next observation's text may take; None without a limit."""
    limits = []
    if state.policy.max_retrieved_tokens is not None and state.encoder is not None:
        observed = [turn for turn in state.turns if turn.kind == "observation"]
        spent = sum(state.encoder.count_text(f"\n{render_observation(turn)}\n") for turn in observed)
        limits.append(max(0, state.policy.max_retrieved_tokens - spent))
    if state.encoder is not None:
        used = state.prompt_tokens() + 1  # the observation marker
        if state.cap is not None:
            limits.append(max(0, state.cap - used))
        limits.append(max(0, state.engine.max_positions - state.policy.max_new_tokens - used))
    return min(limits) if limits else None


# ── Stage 3: reason ──────────────────────────────────────────────────────────────────────────────


def _answer(state: ReadingState) -> ReadingLoop:
    (generation,) = yield [replace(state.request(None, state.policy.max_new_tokens), on_text=state.on_text)]
    generation.raise_error()
    _say_answer(state, generation)
    return _finish(state)


def _say_answer(state: ReadingState, generation: Generation) -> None:
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
