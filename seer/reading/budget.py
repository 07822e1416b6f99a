"""Token counts of a conversation: tokens used, pages that fit into a request, and whether images save tokens.

Counts are exact, because the encoder that counts also makes the ids. An engine without an encoder (a remote server)
reports its own counts, and limits that cannot be known before sending are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from seer.engines.base import BoundedEngine
from seer.errors import InputError
from seer.protocol.encoding import Encoded, Encoder
from seer.protocol.turns import observation, observation_without_text, render_observation
from seer.reading.policy import Mode, choose_mode
from seer.reading.state import ReadingState
from seer.schema import Excerpt, LossClass, Turn, Usage
from seer.selection.passages import estimate_tokens, observed_tokens

# ── The conversation so far ──────────────────────────────────────────────────────────────────────


def usage_of(state: ReadingState) -> Usage:
    """Tokens of the conversation: `prompt`, `vision` and `retrieved` of the last request, sums of the others."""
    prompts = [step.usage.prompt for step in state.steps if step.usage.prompt]
    usage = Usage(
        prompt=prompts[-1] if prompts else 0,
        completion=sum(step.usage.completion for step in state.steps),
        cached=sum(step.usage.cached for step in state.steps),
        full_text=state.full_text_tokens,
    )
    if state.encoder is None or not state.spoken:
        return usage
    # The last prompt ends before the thinking and the answer that it led to.
    num_turns = len(state.spoken)
    while state.spoken[num_turns - 1].turn.kind in ("think", "answer"):
        num_turns -= 1
    encoded = _encode(state, state.encoder, num_turns)
    return usage.model_copy(
        update=dict(prompt=len(encoded), vision=encoded.vision_tokens, retrieved=encoded.count(LossClass.OBSERVATION))
    )


def prompt_tokens(state: ReadingState, encoder: Encoder) -> int:
    """Length of the conversation so far as a prompt."""
    return len(_encode(state, encoder))


def _encode(state: ReadingState, encoder: Encoder, num_turns: int | None = None) -> Encoded:
    prompt = state.prompt(num_turns)
    return encoder.encode(prompt.turns, prompt.page_sizes, prompt.written)


# ── The choice between images and text ───────────────────────────────────────────────────────────


def gate_mode(state: ReadingState, chosen: tuple[int, ...] | None) -> Mode:
    """Choose between "select" and "text" before anything is sent, and limit the last prompt to the full-text prompt.

    `chosen` are the pages of a selector; None if the model selects. Raises InputError if the engine has no encoder.
    """
    encoder = state.encoder
    if encoder is None:
        raise InputError(
            "mode 'auto' counts tokens before it sends them, and this engine has no tokenizer; give one, or another mode"
        )
    pages = state.document.pages
    every = tuple(page.number for page in pages)
    sizes = {page.number: (page.width_px, page.height_px) for page in pages}
    visual = len(encoder.encode([Turn(kind="prompt", text=state.question, pages=every)], sizes))
    if chosen is not None:
        call, needed = call_tokens(encoder, chosen), observation_tokens(state, encoder, chosen)
    else:
        # The longest call names the highest page numbers. Any single page must fit, since the model may select it.
        last = every[-min(state.policy.max_pages or len(every), len(every)) :]
        call = max(call_tokens(encoder, last), state.policy.max_call_tokens)
        needed = max(_most_tokens(state, encoder, pages) for pages in [(), *((number,) for number in every)])
    state.max_prompt_tokens = state.full_text_tokens
    return choose_mode(state.full_text_tokens, visual, call, needed)


def observation_fits(state: ReadingState, call: int = 0) -> bool:
    """Whether the gate's limit leaves room for the shortest observation after a further call of `call` tokens."""
    if state.max_prompt_tokens is None or state.encoder is None:
        return True
    shortest = observation_tokens(state, state.encoder, ())
    return prompt_tokens(state, state.encoder) + call + shortest <= state.max_prompt_tokens


def call_tokens(encoder: Encoder, pages: Sequence[int]) -> int:
    """Tokens that a select call of these pages adds to a prompt."""
    prompt = Turn(kind="prompt", text="")
    whole = encoder.encode([prompt, Turn(kind="call", pages=tuple(pages))], {})
    return len(whole) - len(encoder.encode([prompt], {}))


def observation_tokens(state: ReadingState, encoder: Encoder, pages: Sequence[int]) -> int:
    """Tokens that the observation of these pages adds to a prompt, under the state's policy."""
    if not state.policy.retrieve:
        return 1 + _rendered_tokens(encoder, observation_without_text(pages))
    passages = passage_excerpts(state, pages)
    turn = observation(state.page_excerpts(pages) if passages is None else passages)
    tokens = _rendered_tokens(encoder, turn)
    limit = state.policy.max_retrieved_tokens
    # Pages that are retrieved because no passage matches are trimmed to the policy's limit.
    if state.policy.retrieves_passages and limit is not None:
        tokens = min(tokens, max(limit, _rendered_tokens(encoder, observation(()))))
    return 1 + tokens  # one for the observation marker


def _most_tokens(state: ReadingState, encoder: Encoder, pages: Sequence[int]) -> int:
    """Most tokens that the observation of these pages adds, without choosing passages on every page of the document."""
    if not state.policy.retrieves_passages:
        return observation_tokens(state, encoder, pages)
    whole = 1 + _rendered_tokens(encoder, observation(state.page_excerpts(pages)))
    return min(whole, 1 + state.policy.max_passage_tokens) if state.passages.matches(pages) else whole


def passage_excerpts(
    state: ReadingState, pages: Sequence[int], max_tokens: int | None = None
) -> tuple[Excerpt, ...] | None:
    """Return the passages of these pages; None if the policy retrieves pages or no passage matches the query.

    Pages that fit as a whole are returned whole. `max_tokens` is the room in the prompt; the policy's limit holds as well.
    An engine without a tokenizer counts by `estimate_tokens`.
    """
    if not state.policy.retrieves_passages or not pages or not state.passages.matches(pages):
        return None
    count = estimate_tokens if state.encoder is None else state.encoder.count_text
    spent = sum(observed_tokens(turn.excerpts, count) for turn in state.turns if turn.kind == "observation")
    room = max(0, state.policy.max_passage_tokens - spent)
    room = room if max_tokens is None else min(room, max_tokens)
    whole = state.page_excerpts(pages)
    return whole if observed_tokens(whole, count) <= room else state.passages.choose(pages, room, count)


def observation_budget(state: ReadingState) -> int | None:
    """Tokens that the text of the next observation may take; None if nothing limits it."""
    encoder = state.encoder
    if encoder is None:
        return None
    policy, limits = state.policy, []
    if policy.max_retrieved_tokens is not None:
        spent = sum(_rendered_tokens(encoder, turn) for turn in state.turns if turn.kind == "observation")
        limits.append(policy.max_retrieved_tokens - spent)
    used = prompt_tokens(state, encoder) + 1  # one for the observation marker
    if state.max_prompt_tokens is not None:
        limits.append(state.max_prompt_tokens - used)
    limits.append(state.engine.max_positions - policy.max_new_tokens - used)
    return max(0, min(limits))


def _rendered_tokens(encoder: Encoder, observed: Turn) -> int:
    return encoder.count_text(f"\n{render_observation(observed)}\n")


# ── Pages of one request ─────────────────────────────────────────────────────────────────────────


def page_costs(state: ReadingState) -> tuple[list[int], int]:
    """Return the cost of each page in one request, and the limit on the sum of these costs.

    Pages cost tokens, and also image bytes if the engine limits these. Both costs are scaled to a common limit, and the
    cost of a page is the larger of the two. Pages within this limit therefore satisfy both limits.
    """
    limits = []
    if state.encoder is not None:
        limits.append((page_tokens(state, state.encoder), page_room(state, state.encoder)))
    if isinstance(state.engine, BoundedEngine):
        num_bytes = state.engine.picture_bytes(state.session, state.document.pages)
        limits.append((num_bytes, state.engine.max_picture_bytes))
    # The product of the rooms is a multiple of each, so the scaled costs stay whole numbers.
    whole = math.prod(room for _, room in limits)
    scaled = [[cost * (whole // room) for cost in costs] for costs, room in limits]
    return [max(of_page) for of_page in zip(*scaled, strict=True)], whole


def fitting_pages(state: ReadingState, pages: Sequence[int], costs: Sequence[int], room: int) -> tuple[int, ...]:
    """Return the pages that fit into one request, ascending. `pages` are in order of preference; the first always fits.

    `costs` and `room` are from `page_costs`. If the text of the pages is retrieved as well, their images may only
    take half of the window.
    """
    limits = [(costs, room)]
    if state.encoder is not None and state.policy.retrieve:
        limits.append((page_tokens(state, state.encoder), page_room(state, state.encoder) // 2))
    kept: list[int] = []
    used = [0] * len(limits)
    for page in pages:
        then = [before + each[page - 1] for before, (each, _) in zip(used, limits, strict=True)]
        if not kept or all(cost <= most for cost, (_, most) in zip(then, limits, strict=True)):
            kept.append(page)
            used = then
    return tuple(sorted(kept))


def page_tokens(state: ReadingState, encoder: Encoder) -> list[int]:
    """Tokens of each page in a prompt: its label, its two image markers and its vision tokens."""
    return [
        encoder.geometry.tokens(page.width_px, page.height_px) + 2 + encoder.count_text(f"[Image {page.number}]")
        for page in state.document.pages
    ]


def page_room(state: ReadingState, encoder: Encoder) -> int:
    """Tokens left for page images in one prompt. Image positions are never more than image tokens."""
    text = len(encoder.encode([Turn(kind="prompt", text=state.question)], {}))
    reserve = text + state.policy.max_call_tokens + state.policy.max_new_tokens + 16
    return max(1, state.engine.max_positions - reserve)
