"""Assemble conversations, as `seer.protocol` defines them, from a sample, its pages and the reasoning.

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
from data_pipeline.sources.posing import posed_question
from data_pipeline.steps.chance import chance
from data_pipeline.steps.paging import newline_of, pages_overlapping
from data_pipeline.steps.reason import Reasoning, thoughts
from seer.protocol.turns import observation, observation_without_text
from seer.rendering.newlines import settle_newline
from seer.rendering.styles import with_newline
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
    """Return one trajectory for each form in `spec.forms`.

    Args:
        sample: Question, context and gold answers.
        pages: All pages of the context.
        relevant: Numbers of the necessary pages, ascending.
        reasoning: The thoughts and the answer.
        style: The page style that laid the pages out.
        spec: Forms, and the fraction of records with several rounds.
        seed: Decides which records have several rounds.
        judged_by: The judge's name for the provenance.
    """
    rounds = reasoning.rounds or selection_rounds(sample, pages, relevant, share=spec.multi_round_share, seed=seed)
    provenance = {
        **{key: value for key, value in sample.provenance.items() if value},
        "source": sample.source,
        "judge": judged_by,
        "reason": reasoning.made_by,
    }
    # The record names the newline mode of its pages, so that later changes to tasks or rules cannot move them.
    page_style = settle_newline(sample.context, with_newline(style, newline_of(sample)))
    trajectories: dict[str, Trajectory] = {}
    for form in spec.forms:
        turns = tuple(_turns(form, sample, pages, rounds, reasoning))
        trajectories[form] = Trajectory(
            id=sample.key,
            source=sample.context,
            style=page_style,
            turns=turns,
            relevant_pages=tuple(relevant),
            answers=sample.answers,
            provenance={**provenance, "form": form},
        )
    return trajectories


def _turns(
    form: str, sample: Sample, pages: Sequence[PageSpan], rounds: Sequence[tuple[int, ...]], reasoning: Reasoning
) -> Iterator[Turn]:
    yield Turn(kind="prompt", text=posed_question(sample), pages=tuple(page.number for page in pages))
    last_thought = reasoning.think
    if form == "without_retrieve":
        # Without retrieved text nothing separates the rounds, so one call selects all pages.
        selected = tuple(sorted(number for numbers in rounds for number in numbers))
        yield Turn(kind="call", pages=selected)
        yield observation_without_text(selected)
    elif form == "select":
        by_number = {page.number: page for page in pages}
        # The thought after the last round is the one before the answer, which every form has.
        *earlier_thoughts, last_thought = thoughts(sample, reasoning, rounds)
        for numbers, thought in zip(rounds, [*earlier_thoughts, ""], strict=True):
            yield Turn(kind="call", pages=numbers)
            yield observation([_excerpt(sample, by_number[number]) for number in numbers])
            if thought:
                yield Turn(kind="think", text=thought)
    yield Turn(kind="think", text=last_thought)
    yield Turn(kind="answer", text=reasoning.answer)


def _excerpt(sample: Sample, page: PageSpan) -> Excerpt:
    return Excerpt(page=page.number, start=page.start, text=sample.context[page.start : page.end])


def selection_rounds(
    sample: Sample, pages: Sequence[PageSpan], relevant: Sequence[int], *, share: float, seed: int
) -> list[tuple[int, ...]]:
    """Split the relevant pages into the rounds of a conversation, one select call each.

    Most records have one round. For the fraction `share` of the records with several pages, each hop of the source's
    evidence is a round; without evidence, each page is. Every relevant page occurs in exactly one round.
    """
    if len(relevant) < 2 or chance(seed, "rounds", sample.key) >= share:
        return [tuple(relevant)]
    remaining, rounds = list(relevant), list[tuple[int, ...]]()
    for hop in sorted({item.hop for item in sample.evidence or ()}):
        overlapping = pages_overlapping(
            [(item.start, item.end) for item in sample.evidence or () if item.hop == hop], pages
        )
        selected = tuple(number for number in remaining if number in overlapping)
        if selected:
            rounds.append(selected)
            remaining = [number for number in remaining if number not in selected]
    if not rounds:
        rounds, remaining = [(number,) for number in remaining], []
    if remaining:  # pages that the judge found but no evidence marks
        rounds.append(tuple(remaining))
    return rounds
