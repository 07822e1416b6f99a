"""Decide whether a teacher's answer equals a gold answer: strictly, or by the measure of the answer type.

| answer type  | correct if                                                                      |
|--------------|---------------------------------------------------------------------------------|
| any but code | equal after normalisation (case, width, articles, punctuation, white space)     |
| extractive   | the same date in another order, or the same yes or no as the first word         |
| free         | token F1 of at least `min_token_f1`, with the same digits                       |
| summary      | ROUGE-L F1 of at least `min_rouge_l`                                            |
| code         | the first line is equal except for white space                                  |
| unanswerable | the answer states that the question cannot be answered                          |
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from data_pipeline.records import Sample
from data_pipeline.settings import ReasonSpec


@dataclass(frozen=True)
class Match:
    """A gold answer that the teacher's answer equals."""

    answer: str
    """The gold answer in its original spelling."""
    rule: str
    """The rule that matched: exact, meaning, token_f1, rouge_l, line or unanswerable."""


def matching_answer(sample: Sample, given: str, spec: ReasonSpec) -> Match | None:
    """Return the gold answer that `given` equals, or None."""
    if not sample.answerable:
        return Match(sample.answers[0], "unanswerable") if states_unanswerable(given) else None
    if sample.kind == "code":
        return next((Match(gold, "line") for gold in sample.answers if same_line(given, gold)), None)
    # Exact matches of all gold answers come before approximate ones, so that the closest gold answer is returned.
    for gold in sample.answers:
        if normalise(given) and normalise(given) == normalise(gold):
            return Match(gold, "exact")
    for gold in sample.answers:
        if sample.kind == "extractive" and (same_date(given, gold) or same_yes_no(given, gold)):
            return Match(gold, "meaning")
        if sample.kind == "free" and close_enough(given, gold, spec.min_token_f1):
            return Match(gold, "token_f1")
        if sample.kind == "summary" and _rouge_l(given, gold) >= spec.min_rouge_l:
            return Match(gold, "rouge_l")
    return None


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]


def normalise(text: str) -> str:
    """Remove differences of case, character width, English articles, punctuation and white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    # A comma between digits groups thousands: "1,470" equals "1470". Apostrophes vanish; other marks separate words.
    folded = re.sub(r"(?<=\d),(?=\d{3})", "", folded)
    words = re.sub(r"[^\w\s]", " ", folded.replace("'", "").replace("’", ""))
    return " ".join(_ARTICLES.sub(" ", words.replace("_", " ")).split())


def same_date(given: str, gold: str) -> bool:
    """Return whether both answers have the same words, including a month, in any order: 5 October 1987, October 5, 1987."""
    words, expected = normalise(given).split(), normalise(gold).split()
    return any(word in _MONTHS for word in expected) and Counter(words) == Counter(expected)


def same_yes_no(given: str, gold: str) -> bool:
    """Return whether an answer starts with the expected yes or no and does not contain the opposite."""
    expected = normalise(gold)
    words = normalise(given).split()
    if expected not in ("yes", "no") or not words:
        return False
    return words[0] == expected and ({"yes", "no"} - {expected}).isdisjoint(words)


def close_enough(given: str, gold: str, min_f1: float) -> bool:
    """Return whether token F1 reaches `min_f1` and both sides have the same digits: a similar number is a wrong one."""
    words, expected = _tokens(given), _tokens(gold)
    if not words or not expected or re.findall(r"\d+", normalise(given)) != re.findall(r"\d+", normalise(gold)):
        return False
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected)) >= min_f1


def _tokens(text: str) -> list[str]:
    """Return words, and single characters of Chinese and Japanese, which do not separate words."""
    return re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+", normalise(text))


def same_line(given: str, gold: str) -> bool:
    """Return whether the first line of code, without Markdown fences and backticks, is equal except for white space."""
    lines = [line for line in given.splitlines() if line.strip() and not line.strip().startswith("```")]
    expected = "".join(gold.split())
    return bool(lines) and bool(expected) and "".join(lines[0].strip("`").split()) == expected


def states_unanswerable(text: str) -> bool:
    """Return whether a text states that the question cannot be answered, by the rule that readers use."""
    # Imported here because only builds with unanswerable samples need the reader.
    from seer.reading.conversation import NOT_ANSWERABLE

    return NOT_ANSWERABLE.search(text) is not None


def _rouge_l(given: str, gold: str) -> float:
    from seer.evaluation.scoring.rouge import rouge_l

    return rouge_l(" ".join(_tokens(given)), " ".join(_tokens(gold))).f1
