"""The trace of a reading: a step for every turn of a conversation, as `seer.schema.Step` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from seer.engines.base import Generation
from seer.rendering.regions import regions_of
from seer.schema import Box, Document, Excerpt, Region, Step, StepUsage, Turn

STEP_NAMES = {
    "prompt": "look",
    "call": "select",
    "observation": "retrieve",
    "think": "reason",
    "answer": "answer",
}
"""The name of the step for each kind of turn."""


def step_of(
    document: Document,
    turn: Turn,
    generation: Generation | None = None,
    deviations: Sequence[str] = (),
    allowed: Sequence[int] = (),
) -> Step:
    """The step of a turn. `generation` is the model call that wrote it; `allowed` are the pages that a call may select."""
    step = Step(
        name=STEP_NAMES[turn.kind],
        inputs=_inputs(turn, allowed),
        outputs=_outputs(turn, generation),
        pages=turn.pages or tuple(excerpt.page for excerpt in turn.excerpts if excerpt.page),
        regions=excerpt_regions(document, turn.excerpts),
        deviations=tuple(deviations),
    )
    if generation is None:
        return step
    usage = StepUsage(
        prompt=generation.prompt_tokens, completion=generation.completion_tokens, cached=generation.cached_tokens
    )
    return step.model_copy(update={"usage": usage, "seconds": generation.seconds, "finish": generation.finish})


def with_added_pages(step: Step, pages: Sequence[int]) -> Step:
    """The step of a call whose selection was extended to `pages` without the model."""
    added: list[JsonValue] = [page for page in pages if page not in step.pages]
    return step.model_copy(update={"pages": tuple(pages), "outputs": {**step.outputs, "added": added}})


def excerpt_regions(document: Document, excerpts: Iterable[Excerpt]) -> tuple[Region, ...]:
    """Where excerpts are on their pages. A whole page is one region of kind "page" with a box around the page."""
    regions: list[Region] = []
    for excerpt in excerpts:
        if not excerpt.page:
            continue
        page = document.page(excerpt.page)
        if (excerpt.start, excerpt.end) == (page.start, page.end):
            box = Box(x_px=0, y_px=0, width_px=page.width_px, height_px=page.height_px)
            regions.append(Region(page=page.number, start=page.start, end=page.end, boxes=(box,), kind="page"))
        else:
            regions += regions_of(document, excerpt.start, excerpt.end)
    return tuple(regions)


def _inputs(turn: Turn, allowed: Sequence[int]) -> dict[str, JsonValue]:
    if turn.kind == "prompt":
        shown_text = {"text": "".join(excerpt.text for excerpt in turn.excerpts)} if turn.excerpts else {}
        return {"question": turn.text, **shown_text}
    return {"allowed": list(allowed)} if allowed else {}


def _outputs(turn: Turn, generation: Generation | None) -> dict[str, JsonValue]:
    outputs: dict[str, JsonValue] = {}
    if turn.kind in ("think", "answer") or (turn.kind == "observation" and turn.text):
        outputs["text"] = turn.text
    elif turn.kind == "observation":
        outputs["excerpts"] = [excerpt.model_dump() for excerpt in turn.excerpts]
    if generation is not None:
        outputs["raw"] = generation.raw
    return outputs
