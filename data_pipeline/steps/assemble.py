"""Sample, pages and reasoning become conversations, exactly as `seer.protocol` lays them out.

| form             | turns                                                               |
|------------------|---------------------------------------------------------------------|
| select           | prompt, call(relevant pages), observation(their text), think, answer |
| select, in rounds| prompt, call, observation, think, call, observation, think, answer   |
| without_retrieve | prompt, call, observation without text, think, answer                |
| iso_control      | prompt, think, answer                                                |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from data_pipeline.records import PageSpan, Sample
from data_pipeline.settings import AssembleSpec
from data_pipeline.steps.chance import chance
from data_pipeline.steps.paging import pages_of
from data_pipeline.steps.reason import Reasoning, thoughts
from seer.protocol.turns import observation, observation_without_text
from seer.schema import Excerpt, PageStyle, Trajectory, Turn


def assemble(
    sample: Sample,
    pages: Sequence[PageSpan],
    relevant: Sequence[int],
    reasoning: Reasoning,
    *,
    style: PageStyle,
    spec: AssembleSpec,
    seed: int,
    judged_by: str,
) -> dict[str, Trajectory]:
    """The trajectory of each wanted form."""
    rounds = selection_rounds(sample, pages, relevant, share=spec.multi_round_share, seed=seed)
    provenance = {
        **{key: value for key, value in sample.provenance.items() if value},
        "source": sample.source,
        "judge": judged_by,
        "reason": reasoning.made_by,
    }
    told: dict[str, Trajectory] = {}
    for form in spec.forms:
        turns = tuple(_turns(form, sample, pages, rounds, reasoning))
        told[form] = Trajectory(
            id=sample.key,
            source=sample.context,
            style=style,
            turns=turns,
            relevant_pages=tuple(relevant),
            answers=sample.answers,
            provenance={**provenance, "form": form},
        )
    return told


def _turns(
    form: str, sample: Sample, pages: Sequence[PageSpan], rounds: Sequence[tuple[int, ...]], reasoning: Reasoning
) -> Iterator[Turn]:
    yield Turn(kind="prompt", text=sample.question, pages=tuple(page.number for page in pages))
    thought = reasoning.think
    if form == "without_retrieve":
        every = tuple(sorted(number for numbers in rounds for number in numbers))
        yield Turn(kind="call", pages=every)
        yield observation_without_text(every)
    elif form == "select":
        by_number = {page.number: page for page in pages}
        *before, thought = thoughts(sample, reasoning, rounds)
        for numbers, so_far in zip(rounds, [*before, ""], strict=True):
            yield Turn(kind="call", pages=numbers)
            yield observation([_excerpt(sample, by_number[number]) for number in numbers])
            if so_far:
                yield Turn(kind="think", text=so_far)
    yield Turn(kind="think", text=thought)
    yield Turn(kind="answer", text=reasoning.answer)


def _excerpt(sample: Sample, page: PageSpan) -> Excerpt:
    return Excerpt(page=page.number, start=page.start, text=sample.context[page.start : page.end])


def selection_rounds(
    sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int], *, share: float, seed: int
) -> list[tuple[int, ...]]:
    """The relevant pages, call by call. By default one call; a `share` of records with several pages goes hop by hop,
    in the order in which the source's evidence is needed (page order where it gives none)."""
    if len(relevant) < 2 or chance(seed, "rounds", sample.key) >= share:
        return [tuple(relevant)]
    left, rounds = list(relevant), list[tuple[int, ...]]()
    for hop in sorted({item.hop for item in sample.evidence or ()}):
        touched = pages_of([(item.start, item.end) for item in sample.evidence or () if item.hop == hop], pages)
        now = tuple(number for number in left if number in touched)
        if now:
            rounds.append(now)
            left = [number for number in left if number not in now]
    if not rounds:
        rounds, left = [(number,) for number in left], []
    if left:  # pages that the judge found and the evidence does not name
        rounds.append(tuple(left))
    return rounds
