"""A person's own document of names and codes, read so that it may be asked what any document of the world is asked.

    document = read_document("mine.txt")

A line is a name and its code, `doctor 482139`, or a name that points to another one, `lawyer → rabbit`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from seer.errors import DocumentNotFound, InputError
from seer.miniature.lexicon import CHINESE, ENGLISH
from seer.miniature.world import (
    LINES_PER_PAGE,
    MAX_PAGES,
    Kind,
    Language,
    Line,
    MiniatureDocument,
    Question,
    questions_about,
)

_FACT = re.compile(r"(\S+)\s+(\d{4,6})")
_POINTER = re.compile(r"(\S+)\s*(?:→|->)\s*(\S+)")
_FORMS = "write 'doctor 482139' (a code of 4 to 6 digits) or 'lawyer → rabbit'"


def read_document(path: str | Path) -> MiniatureDocument:
    """The document that a text file holds, with the questions that it can be asked.

    Raises DocumentNotFound; InputError: a line of another form, a name that the model was not taught, two languages,
    more than eight pages, no name left to ask in vain.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DocumentNotFound(f"no document at '{path}'; give a text file of names and codes") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read as UTF-8 text: {error}") from None
    return parse_document(text, Path(path).name)


def parse_document(text: str, name: str) -> MiniatureDocument:
    """As `read_document`, from the text itself."""
    lines = tuple(
        _parse_line(line.strip(), f"'{name}', line {number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    )
    most = MAX_PAGES * LINES_PER_PAGE
    if not LINES_PER_PAGE < len(lines) <= most:
        raise InputError(
            f"'{name}' has {len(lines)} lines; the model reads {LINES_PER_PAGE + 1} to {most}, {LINES_PER_PAGE} a page"
        )
    printed = {said for line in lines for said in (line.name, line.target) if said}
    language: Language = "zh" if printed & CHINESE.keys() else "en"
    words = CHINESE if language == "zh" else ENGLISH
    if strange := sorted(printed - words.keys()):
        raise InputError(
            f"'{name}' has names of two languages, such as '{strange[0]}' and '{min(printed & words.keys())}'; "
            "the model was taught documents of one: keep to either"
        )
    if printed == words.keys():
        raise InputError(f"'{name}' uses every name there is; leave one out, to be asked for in vain")
    for line in lines:
        if line.target and not any(one.name == line.target and one.code for one in lines):
            raise InputError(f"'{name}': '{line.text}' points to a name without a code; add '{line.target} 482139'")
    return MiniatureDocument(
        name,
        language,
        lines,
        tuple(questions_about(name, language, lines, words, random.Random(name))),
    )


def _parse_line(text: str, place: str) -> Line:
    if pointer := _POINTER.fullmatch(text):
        return Line(_known(pointer[1], place), target=_known(pointer[2], place))
    if fact := _FACT.fullmatch(text):
        return Line(_known(fact[1], place), fact[2])
    raise InputError(f"{place}: '{text}' is neither a name with its code nor a pointer; {_FORMS}")


def _known(name: str, place: str) -> str:
    if name in ENGLISH or name in CHINESE:
        return name
    for printed, meaning in (ENGLISH | CHINESE).items():
        if name == meaning:
            raise InputError(f"{place}: '{name}' is used in questions only; write '{printed}', which it means")
    some = ", ".join([*list(ENGLISH)[:8], *list(CHINESE)[:3]])
    raise InputError(
        f"{place}: the model does not know the name '{name}'; it knows {len(ENGLISH)} English and {len(CHINESE)} "
        f"Chinese ones (seer/miniature/lexicon.py), such as {some}"
    )


def pick_questions(document: MiniatureDocument, count: int = 5) -> list[Question]:
    """One question of each kind that the document has, then further ones, about different names where it can be."""
    left, picked = list(document.questions), list[Question]()
    kinds: tuple[Kind, ...] = ("single", "paraphrase", "hop", "many", "unanswerable")
    for kind in (*kinds, *["single", "paraphrase"] * count):
        of_kind = [question for question in left if question.kind == kind]
        if of_kind and len(picked) < count:
            used = {question.name for question in picked}
            chosen = next((question for question in of_kind if question.name not in used), of_kind[0])
            picked.append(chosen)
            left.remove(chosen)
    return picked
