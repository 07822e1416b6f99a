"""Containment: whether retrieved text holds a gold answer, before any model reads it.

A retrieval that holds the answer is no proof of evidence: an answer may occur elsewhere, or lack the step before it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_GAP = "\x01"


def usable_answers(answers: Iterable[str]) -> list[str]:
    """Return the levelled answers that a text can hold: of two characters or more, and neither yes nor no."""
    levelled = (level(answer) for answer in answers)
    return [answer for answer in levelled if len(answer) >= 2 and answer not in ("yes", "no")]


def holds_answer(texts: Sequence[str], answers: Sequence[str]) -> bool:
    """Return whether one of the texts holds one of the answers as whole words.

    `answers` are levelled. An answer does not continue from one text to the next. Chinese and Japanese are compared
    without spaces, as they have no words to keep whole.
    """
    spaced = f" {f' {_GAP} '.join(level(text) for text in texts)} "
    joined = spaced.replace(" ", "")
    return any(
        answer.replace(" ", "") in joined if _UNSPACED.search(answer) else f" {answer} " in spaced for answer in answers
    )


def level(text: str) -> str:
    """Return a text without differences of case, width, space and punctuation."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(" " if unicodedata.category(c)[0] in "PSZC" else c for c in text).split())
