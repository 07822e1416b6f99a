"""The lessons of the curriculum as trajectories: reading a page aloud, finding names, whole conversations.

    for trajectory in lessons("finding", World(seed=0, split="train"), 20_000, text_share=0.5): ...

Pages are shown as images or, for a fraction of them, as text. Text is learned quickly and teaches the model what to look
for in images.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from seer.errors import InputError
from seer.miniature.lexicon import PARAPHRASES
from seer.miniature.world import (
    LINES_PER_PAGE,
    MAX_PAGES,
    STYLE,
    Line,
    MiniatureDocument,
    Question,
    QuestionKind,
    World,
)
from seer.protocol.call import render_call
from seer.protocol.turns import observation
from seer.schema import Excerpt, Trajectory, Turn
from seer.teaching.template import CHINESE, ENGLISH, Wording, quoted_lines, quoted_reasoning

Lesson = Literal["reading", "matching", "quoting", "finding", "conversation"]
KIND_WEIGHTS: dict[QuestionKind, int] = {"single": 3, "paraphrase": 3, "hop": 3, "many": 5, "unanswerable": 2}
"""Relative frequency of a kind among those of a document. Few documents have pointers or names on many pages."""
MAX_NAMES_FOUND = 8
FOUND_KINDS: tuple[QuestionKind, ...] = ("single",)
"""The kinds of questions of the lesson "finding" by default."""


def lessons(
    lesson: Lesson,
    world: World,
    count: int,
    *,
    text_share: float = 0.0,
    kinds: Collection[QuestionKind] = (),
    max_lines: int = LINES_PER_PAGE,
    call_share: float = 0.5,
) -> Iterator[Trajectory]:
    """Yield `count` trajectories of one lesson, one per document.

    text_share: the fraction of pages that are shown as text.
    kinds: the kinds of questions, drawn by `KIND_WEIGHTS` from those that a document has; empty means all. For "finding"
    these are the kinds whose gold pages are to be found. For "matching", ("paraphrase",) asks for names by paraphrase.
    max_lines: for "matching", the most lines on a page.
    call_share: for "matching" and "finding", the fraction of answers in the form of calls.

    Raises InputError if `kinds` is given for a lesson that asks no questions.
    """
    if kinds and (lesson in ("reading", "quoting") or (lesson == "matching" and {*kinds} != {"paraphrase"})):
        raise InputError(
            f"kinds={tuple(kinds)!r}: the lesson '{lesson}' asks no questions of such kinds; leave kinds out"
        )
    made = number = 0
    while made < count:
        document = world.document(number)
        # A generator per document: a trajectory does not depend on how many came before it.
        rng = random.Random(f"{lesson}/{document.id}")
        as_text = _pages_as_text(document.num_pages, text_share, rng)
        number += 1
        if lesson == "reading":
            yield reading(document, rng.randint(1, document.num_pages))
        elif lesson == "matching":
            yield matching(document, max_lines, call_share, rng, paraphrased=bool(kinds))
        elif lesson == "quoting":
            yield quoting(document, rng)
        elif lesson == "finding":
            places = names_with_pages(document, kinds or FOUND_KINDS)
            if not places:
                continue
            yield found(document, "finding", _prompt(document, "", as_text), places, call_share, rng)
        else:
            question = _draw_question(document.questions, kinds, rng)
            if question is None:
                continue
            yield conversation(document, question, as_text)
        made += 1


def _pages_as_text(num_pages: int, share: float, rng: random.Random) -> set[int]:
    """Draw the pages that are shown as text. Half of the documents are all text or all images, half are mixed."""
    here = share if rng.random() < 0.5 else float(rng.random() < share)
    return {page for page in range(1, num_pages + 1) if rng.random() < here}


def _draw_question(
    questions: Sequence[Question], kinds: Collection[QuestionKind], rng: random.Random
) -> Question | None:
    wanted = [question for question in questions if not kinds or question.kind in kinds]
    if not wanted:
        return None
    present = sorted({question.kind for question in wanted})
    (kind,) = rng.choices(present, [KIND_WEIGHTS[each] for each in present])
    return rng.choice([question for question in wanted if question.kind == kind])


def reading(document: MiniatureDocument, page: int) -> Trajectory:
    """Build a trajectory that shows one page as an image and lists its names in order. Codes come from retrieval."""
    answer = "\n".join(f"{line.name} → {line.target}" if line.target else line.name for line in _lines(document, page))
    return _trajectory(document, "reading", [Turn(kind="prompt", pages=(page,)), Turn(kind="answer", text=answer)])


def matching(
    document: MiniatureDocument, max_lines: int, call_share: float, rng: random.Random, *, paraphrased: bool = False
) -> Trajectory:
    """Build a trajectory as for "finding", on pages of one to `max_lines` lines of text with gaps in their numbers.

    With one line per page the page number is next to the name, which is the easiest way to learn the task from nothing.
    """
    # One line per name, because a name on several pages would have several answers.
    by_name = {line.name: line for line in document.lines if line.code}
    lines = rng.sample([*by_name.values()], len(by_name))
    numbers = sorted(
        rng.sample(range(1, MAX_PAGES + 1), rng.randint(2, MAX_PAGES) if max_lines == 1 else rng.randint(2, 5))
    )
    excerpts: list[Excerpt] = []
    places: list[tuple[str, tuple[int, ...]]] = []
    for number in numbers:
        here = [lines.pop() for _ in range(min(len(lines), rng.randint(1, max_lines)))]
        if here:
            excerpts.append(Excerpt(page=number, start=0, text="".join(f"{line.text}\n" for line in here)))
            places += [(PARAPHRASES[line.name] if paraphrased else line.name, (number,)) for line in here]
    return found(document, "matching", Turn(kind="prompt", excerpts=tuple(excerpts)), places, call_share, rng)


def quoting(document: MiniatureDocument, rng: random.Random) -> Trajectory:
    """Build a trajectory with one to six pages as text and a list of names; the answer quotes their lines as reasoning does."""
    pages = sorted(rng.sample(range(1, document.num_pages + 1), rng.randint(1, min(6, document.num_pages))))
    lines = [(page, line) for page in pages for line in _lines(document, page)]
    wanted = rng.sample(lines, min(rng.randint(2, 4), len(lines)))
    names = list(dict.fromkeys(line.name for _, line in wanted))
    # All lines of each name, in order: a name can be on several pages.
    quotes = [(page, line.text) for name in names for page, line in lines if line.name == name]
    excerpts = tuple(_excerpt(document, page) for page in pages)
    prompt = Turn(kind="prompt", text=" ".join(names), excerpts=excerpts)
    answer = quoted_lines(quotes, _wording(document))
    return _trajectory(document, "quoting", [prompt, Turn(kind="answer", text=answer)])


def names_with_pages(document: MiniatureDocument, kinds: Collection[QuestionKind]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the names in questions of these kinds, as the questions spell them, each with its gold pages."""
    return [
        (PARAPHRASES[question.name] if question.kind == "paraphrase" else question.name, question.pages)
        for question in document.questions
        if question.kind in kinds
    ]


def found(
    document: MiniatureDocument,
    name: str,
    prompt: Turn,
    places: Sequence[tuple[str, tuple[int, ...]]],
    call_share: float,
    rng: random.Random,
) -> Trajectory:
    """Build a trajectory whose prompt lists names and whose answer repeats them with the pages of each.

    The answer gives the pages right after the name or, with probability `call_share`, in a call, some tokens later. A
    model hardly learns to bridge that distance in a conversation, and quickly here, once it finds pages at all.
    """
    wanted = rng.sample(places, min(MAX_NAMES_FOUND, len(places)))
    as_calls = rng.random() < call_share
    # The question mark after the names tells the model which of the two forms to use.
    mark = "?" if as_calls else ""
    answer = "".join(
        f"{found}?{render_call(pages)}" if as_calls else found + ", ".join(map(str, pages)) for found, pages in wanted
    )
    question = prompt.model_copy(update={"text": " ".join(f"{found}{mark}" for found, _ in wanted)})
    return _trajectory(document, name, [question, Turn(kind="answer", text=answer)])


def conversation(document: MiniatureDocument, question: Question, as_text: Collection[int] = ()) -> Trajectory:
    """Build a whole conversation: the question, a selection with retrieved text for every reasoning step, the answer.

    Between two selections the model quotes what it has read. The reasoning follows the template of the data pipeline:
    the quotes of each page, then the answer.
    """
    turns = [_prompt(document, question.text, as_text)]
    *before, last = quotes_by_step(document, question)
    for quotes in before:
        turns += [*_look_up(document, quotes), Turn(kind="think", text=quoted_lines(quotes, _wording(document)))]
    turns += [
        *_look_up(document, last),
        Turn(kind="think", text=quoted_reasoning(last, question.answer, _wording(document))),
        Turn(kind="answer", text=question.answer),
    ]
    return _trajectory(document, question.id, turns, question)


def quotes_by_step(document: MiniatureDocument, question: Question) -> list[list[tuple[int, str]]]:
    """Return (page, line) of the evidence of each reasoning step; one empty step if the question has no answer."""
    spans = sorted(zip(question.steps, question.evidence, strict=True))
    return [
        [(_page_at(document, start), document.text[start:end]) for at, (start, end) in spans if at == step]
        for step in sorted({*question.steps}) or [0]
    ]


def _look_up(document: MiniatureDocument, quotes: Sequence[tuple[int, str]]) -> list[Turn]:
    pages = tuple(sorted({page for page, _ in quotes}))
    return [Turn(kind="call", pages=pages), observation([_excerpt(document, page) for page in pages])]


def _wording(document: MiniatureDocument) -> Wording:
    return CHINESE if document.language == "zh" else ENGLISH


def _page_at(document: MiniatureDocument, offset: int) -> int:
    return document.text.count("\n", 0, offset) // LINES_PER_PAGE + 1


def _lines(document: MiniatureDocument, page: int) -> tuple[Line, ...]:
    return document.lines[(page - 1) * LINES_PER_PAGE : page * LINES_PER_PAGE]


def _excerpt(document: MiniatureDocument, page: int) -> Excerpt:
    before, text = (
        "".join(f"{line.text}\n" for line in lines)
        for lines in (document.lines[: (page - 1) * LINES_PER_PAGE], _lines(document, page))
    )
    return Excerpt(page=page, start=len(before), text=text)


def _prompt(document: MiniatureDocument, text: str, as_text: Collection[int]) -> Turn:
    pages = range(1, document.num_pages + 1)
    return Turn(
        kind="prompt",
        text=text,
        pages=tuple(page for page in pages if page not in as_text),
        excerpts=tuple(_excerpt(document, page) for page in pages if page in as_text),
    )


def _trajectory(
    document: MiniatureDocument, name: str, turns: Sequence[Turn], question: Question | None = None
) -> Trajectory:
    return Trajectory(
        id=f"{document.id}-{name}" if question is None else name,
        source=document.text,
        style=STYLE,
        turns=tuple(turns),
        relevant_pages=question.pages if question else (),
        answers=(question.answer,) if question else (),
    )
