"""Parses a user's own document of names and codes, and generates the same questions as for documents of the world.

    document = read_document("mine.txt")

A line is a name and its code, `doctor 482139`, or a name that points to another name, `lawyer → rabbit`.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from seer.errors import DocumentNotFound, InputError
from seer.miniature.lexicon import CHINESE_NAMES, ENGLISH_NAMES
from seer.miniature.world import (
    LINES_PER_PAGE,
    MAX_PAGES,
    Language,
    Line,
    MiniatureDocument,
    Question,
    QuestionKind,
    questions_about,
)

_FACT = re.compile(r"(\S+)\s+(\d{4,6})")
_POINTER = re.compile(r"(\S+)\s*(?:→|->)\s*(\S+)")
_FORMS = "write 'doctor 482139' (a code of 4 to 6 digits) or 'lawyer → rabbit'"


def read_document(path: str | Path) -> MiniatureDocument:
    """Read a document from a text file, with the questions about it.

    Raises DocumentNotFound if there is no file, and InputError as `parse_document` does and if the file is not UTF-8.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DocumentNotFound(f"no document at '{path}'; give a text file of names and codes") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read as UTF-8 text: {error}; convert it to UTF-8") from None
    return parse_document(text, Path(path).name)


def parse_document(text: str, name: str) -> MiniatureDocument:
    """Parse a document from its text; `name` becomes its id.

    Raises InputError for a line of another form, a name outside the lexicon, names of two languages, fewer than 4 or more
    than 24 lines, a pointer to a name without a code, and if every name is printed, so that no question can lack an
    answer.
    """
    lines = tuple(
        _parse_line(line.strip(), f"'{name}', line {number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    )
    most = MAX_PAGES * LINES_PER_PAGE
    if not LINES_PER_PAGE < len(lines) <= most:
        raise InputError(
            f"'{name}' has {len(lines)} lines; the model reads {LINES_PER_PAGE + 1} to {most} lines, {LINES_PER_PAGE} per page"
        )
    printed = {word for line in lines for word in (line.name, line.target) if word}
    language: Language = "zh" if printed & CHINESE_NAMES.keys() else "en"
    words = CHINESE_NAMES if language == "zh" else ENGLISH_NAMES
    if strange := sorted(printed - words.keys()):
        raise InputError(
            f"'{name}' has names of two languages, such as '{strange[0]}' and '{min(printed & words.keys())}'; "
            "the model reads documents in one language, so use only English or only Chinese names"
        )
    if printed == words.keys():
        raise InputError(f"'{name}' uses every known name; leave one out for the question without an answer")
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
    """Parse one line; `place` names it in errors."""
    if pointer := _POINTER.fullmatch(text):
        return Line(_known(pointer[1], place), target=_known(pointer[2], place))
    if fact := _FACT.fullmatch(text):
        return Line(_known(fact[1], place), fact[2])
    raise InputError(f"{place}: '{text}' is neither a name with its code nor a pointer; {_FORMS}")


def _known(name: str, place: str) -> str:
    """The name, if it is a printed name of the lexicon."""
    if name in ENGLISH_NAMES or name in CHINESE_NAMES:
        return name
    for printed, meaning in (ENGLISH_NAMES | CHINESE_NAMES).items():
        if name == meaning:
            raise InputError(f"{place}: '{name}' occurs in questions only; write '{printed}', which it paraphrases")
    some = ", ".join([*list(ENGLISH_NAMES)[:8], *list(CHINESE_NAMES)[:3]])
    raise InputError(
        f"{place}: the model does not know the name '{name}'; it knows {len(ENGLISH_NAMES)} English and {len(CHINESE_NAMES)} "
        f"Chinese names (seer/miniature/lexicon.py), such as {some}"
    )


def pick_questions(document: MiniatureDocument, count: int = 5) -> list[Question]:
    """Pick up to `count` questions: one of each kind that the document has, then more single and paraphrased ones.

    Different names are preferred.
    """
    left, picked = list(document.questions), list[Question]()
    kinds: tuple[QuestionKind, ...] = ("single", "paraphrase", "hop", "many", "unanswerable")
    for kind in (*kinds, *["single", "paraphrase"] * count):
        of_kind = [question for question in left if question.kind == kind]
        if of_kind and len(picked) < count:
            used = {question.name for question in picked}
            chosen = next((question for question in of_kind if question.name not in used), of_kind[0])
            picked.append(chosen)
            left.remove(chosen)
    return picked
