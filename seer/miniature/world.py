"""The miniature world: small documents of names and codes, and questions with known answers and gold pages.

    doctor 482139          a fact: the doctor's code
    lawyer → rabbit        a pointer: the lawyer's code is the rabbit's, which is on another page

A page has three lines. A world is a pure function of (seed, split). No fact (a name with its code) belongs to two
splits, so splits share no document either.

    for document in World(seed=0, split="test").documents(500):
        for question in document.questions: ...

    python -m seer.miniature.world train.jsonl --documents 200    # every question of the train split as a record
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seer.miniature.lexicon import CHINESE_NAMES, ENGLISH_NAMES
from seer.rendering.styles import STYLES
from seer.teaching.template import UNANSWERABLE

Split = Literal["train", "validation", "test"]
QuestionKind = Literal["single", "paraphrase", "hop", "many", "unanswerable"]
Language = Literal["en", "zh"]

LINES_PER_PAGE = 3
MAX_PAGES = 8
"""The longest documents in the training data."""
STYLE = STYLES["miniature"]

QUESTION_FORMS: dict[tuple[Language, QuestionKind], tuple[str, str]] = {
    ("en", "single"): ("What is the code of the ", "?"),
    ("en", "hop"): ("What is the code behind the ", "?"),
    ("en", "many"): ("What are all codes of the ", "?"),
    ("zh", "single"): ("", "的编号是什么？"),
    ("zh", "hop"): ("", "指向的编号是什么？"),
    ("zh", "many"): ("", "的所有编号是什么？"),
}
"""The text before and after the name in a question."""


@dataclass(frozen=True)
class Line:
    """One line of a document."""

    name: str
    code: str = ""
    target: str = ""
    """For a pointer, the name it points to."""

    @property
    def text(self) -> str:
        """The line as printed, without its line break."""
        return f"{self.name} → {self.target}" if self.target else f"{self.name} {self.code}"


@dataclass(frozen=True)
class Question:
    """A question about one document, with its answer and gold evidence."""

    id: str
    kind: QuestionKind
    language: Language
    text: str
    name: str
    """The printed name that the question is about, also if it uses the paraphrase."""
    answer: str
    pages: tuple[int, ...]
    """Gold pages, ascending, from 1."""
    evidence: tuple[tuple[int, int], ...]
    """Spans [start, end) of the document text with the lines of the answer, in the order in which they are needed."""

    @property
    def steps(self) -> tuple[int, ...]:
        """For each evidence span the reasoning step that needs it. A pointer has to be read before its target is known."""
        return tuple(range(len(self.evidence))) if self.kind == "hop" else (0,) * len(self.evidence)


@dataclass(frozen=True)
class MiniatureDocument:
    """A document of the world with all its questions."""

    id: str
    language: Language
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]

    @property
    def text(self) -> str:
        """The source text; every line ends with a line break."""
        return "".join(f"{line.text}\n" for line in self.lines)

    @property
    def num_pages(self) -> int:
        return len(self.lines) // LINES_PER_PAGE

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield its questions as records of a question set, which `seer-data build` and `seer eval` read."""
        for question in self.questions:
            yield {
                "id": question.id,
                "document": self.id,
                "question": question.text,
                "context": self.text,
                "answers": [question.answer],
                "evidence": [[*span, step] for span, step in zip(question.evidence, question.steps, strict=True)],
                "answerable": bool(question.pages),
                "kind": question.kind,
                "language": question.language,
                "pages": list(question.pages),
            }


def split_of(name: str, code: str) -> Split:
    """Return the split of a fact, by hash: 80 % train, 10 % validation, 10 % test."""
    bucket = hashlib.blake2b(f"{name} {code}".encode(), digest_size=2).digest()[0] % 10
    return "test" if bucket == 9 else "validation" if bucket == 8 else "train"


class World:
    """Documents by number. Document n does not depend on which documents were generated before."""

    def __init__(
        self,
        seed: int,
        split: Split,
        *,
        chinese_share: float = 0.25,
        max_pages: int = MAX_PAGES,
        crowded: bool = False,
        num_names: int | None = None,
    ) -> None:
        """Configure a world.

        chinese_share: the fraction of Chinese documents; the others are English.
        max_pages: the most pages in a document.
        crowded: nearly every line is a pointer, its target, or a name on several pages. For training only, never for
        evaluation.
        num_names: use only the first names of each language; None uses all.
        """
        self.seed, self.split = seed, split
        self.chinese_share, self.max_pages, self.crowded, self.num_names = chinese_share, max_pages, crowded, num_names

    def documents(self, count: int, start: int = 0) -> Iterator[MiniatureDocument]:
        """Yield `count` documents, beginning with number `start`."""
        return (self.document(number) for number in range(start, start + count))

    def document(self, number: int) -> MiniatureDocument:
        """Return document `number`."""
        # Crowded documents have their own ids and random streams; both worlds can be mixed in training.
        kind = "-crowded" if self.crowded else ""
        rng = random.Random(f"{self.seed}/{self.split}/{number}{kind}")
        language: Language = "zh" if rng.random() < self.chinese_share else "en"
        words = CHINESE_NAMES if language == "zh" else ENGLISH_NAMES
        words = dict(itertools.islice(words.items(), self.num_names))
        names = list(words)
        rng.shuffle(names)
        # Two names stay unprinted, for questions without an answer.
        num_pages = rng.randint(2, min(self.max_pages, (len(names) - 2) // LINES_PER_PAGE))
        lines = self._lines(rng, names, num_pages)
        identity = f"{self.split}-{self.seed}-{number}{kind}"
        return MiniatureDocument(
            identity, language, lines, tuple(questions_about(identity, language, lines, words, rng))
        )

    def _lines(self, rng: random.Random, names: list[str], num_pages: int) -> tuple[Line, ...]:
        """Draw the lines of all pages.

        A document has at most one pointer and at most one name on four pages or more; a crowded one has many of both.
        """
        # Special lines are placed first, at free places of their pages; the rest are filled with single facts.
        slots: list[Line | None] = [None] * (num_pages * LINES_PER_PAGE)

        def free(page: int) -> list[int]:
            return [i for i in range(page * LINES_PER_PAGE, (page + 1) * LINES_PER_PAGE) if slots[i] is None]

        def put(page: int, line: Line) -> None:
            slots[rng.choice(free(page))] = line

        def repeat(pages: Sequence[int]) -> None:
            name, codes = names.pop(), set[str]()
            for page in sorted(pages):
                put(page, Line(name, self._code(rng, name, codes)))

        def point(here: int, there: int) -> None:
            name, target = names.pop(), names.pop()
            put(here, Line(name, target=target))
            put(there, Line(target, self._code(rng, target, set())))

        if self.crowded:
            while len(room := [page for page in range(num_pages) if free(page)]) > 1 and rng.random() < 0.9:
                if rng.random() < 0.5:
                    repeat(rng.sample(room, rng.randint(2, min(len(room), 6))))
                else:
                    here, there = rng.sample(room, 2)
                    point(here, there)
        else:
            if num_pages >= 4 and rng.random() < 0.5:
                repeat(rng.sample(range(num_pages), rng.randint(4, min(num_pages, 6))))
            if rng.random() < 0.5:
                here, there = rng.sample(range(num_pages), 2)
                point(here, there)
        for i, line in enumerate(slots):
            if line is None:
                name = names.pop()
                slots[i] = Line(name, self._code(rng, name, set()))
        return tuple(line for line in slots if line is not None)

    def _code(self, rng: random.Random, name: str, taken: set[str]) -> str:
        """Draw a code of 4 to 6 digits that puts the fact into this split and that this name does not have yet."""
        # Each of the small splits gets one fact in ten, so draw until one belongs here.
        while True:
            code = str(rng.randint(10 ** (size := rng.randint(3, 5)), 10 ** (size + 1) - 1))
            if split_of(name, code) == self.split and code not in taken:
                taken.add(code)
                return code


def questions_about(
    identity: str, language: Language, lines: Sequence[Line], words: Mapping[str, str], rng: random.Random
) -> Iterator[Question]:
    """Yield every question that these lines answer, and one that they do not.

    identity: the document's id, which begins the ids of its questions.
    words: names with paraphrases. The question without an answer uses a name that is not printed, drawn with `rng`.
    """
    starts = [0]  # offsets of the lines in the document text; each line ends with a line break
    for line in lines:
        starts.append(starts[-1] + len(line.text) + 1)

    def ask(
        kind: QuestionKind, form: QuestionKind, name: str, wording: str, answer: str, places: list[int]
    ) -> Question:
        before, after = QUESTION_FORMS[language, form]
        return Question(
            id=f"{identity}-{kind}-{list(words).index(name)}",
            kind=kind,
            language=language,
            text=f"{before}{wording}{after}",
            name=name,
            answer=answer,
            pages=tuple(sorted({place // LINES_PER_PAGE + 1 for place in places})),
            evidence=tuple((starts[place], starts[place + 1] - 1) for place in places),
        )

    places: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        if line.code:
            places.setdefault(line.name, []).append(place)
    targets = {line.target for line in lines if line.target}
    for name, where in places.items():
        if len(where) > 1:
            answer = ", ".join(lines[place].code for place in where)
            yield ask("many", "many", name, name, answer, where)
        # Questions reach the target of a pointer only through the pointer.
        elif name not in targets:
            yield ask("single", "single", name, name, lines[where[0]].code, where)
            yield ask("paraphrase", "single", name, words[name], lines[where[0]].code, where)
    for place, line in enumerate(lines):
        if line.target:
            end = places[line.target][0]
            yield ask("hop", "hop", line.name, line.name, lines[end].code, [place, end])
    printed = {line.name for line in lines} | targets
    absent = rng.choice([name for name in words if name not in printed])
    wording = absent if rng.random() < 0.5 else words[absent]
    yield ask("unanswerable", "single", absent, wording, UNANSWERABLE, [])


def main() -> None:
    """Write the questions of the train split to a file (see the module's example)."""
    parser = argparse.ArgumentParser(description="Write the questions of the train split, one JSON record per line.")
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    documents = World(arguments.seed, "train").documents(arguments.documents)
    records = [record for document in documents for record in document.records()]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8"
    )
    print(f"{arguments.out}: {len(records)} questions")


if __name__ == "__main__":
    main()
