"""Is a teacher's answer the gold one? Strictly, and by the source's own measure where words may differ.

| kind       | right where                                                                                   |
|------------|-----------------------------------------------------------------------------------------------|
| any        | equal after normalisation (case, width, articles, punctuation, space)                         |
| extractive | the same date in another order; yes or no said first |
| free       | token F1 from `min_token_f1`, with the same digits                                            |
| summary    | ROUGE-L F1 from `min_rouge_l`                                                                 |
| code       | the first line equal but for white space                                                      |
| unanswerable | it says so                                                                                  |
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
    """The gold answer that was met, in its own spelling, and by which rule."""

    answer: str
    rule: str


def matching_answer(sample: Sample, given: str, spec: ReasonSpec) -> Match | None:
    """The gold answer that `given` equals; None where it equals none."""
    if not sample.answerable:
        return Match(sample.answers[0], "unanswerable") if says_unanswerable(given) else None
    if sample.kind == "code":
        return next((Match(gold, "line") for gold in sample.answers if same_line(given, gold)), None)
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
    """Case, width, articles, punctuation and space levelled."""
    levelled = unicodedata.normalize("NFKC", text).casefold()
    # "1,470" and "1470" are one number; other marks part words or fall away
    levelled = re.sub(r"(?<=\d),(?=\d{3})", "", levelled)
    words = re.sub(r"[^\w\s]", " ", levelled.replace("'", "").replace("’", ""))
    return " ".join(_ARTICLES.sub(" ", words.replace("_", " ")).split())


def same_date(given: str, gold: str) -> bool:
    """5 October 1987 is October 5, 1987: the same words, a month among them, in another order."""
    words, expected = normalise(given).split(), normalise(gold).split()
    return any(word in _MONTHS for word in expected) and Counter(words) == Counter(expected)


def same_yes_no(given: str, gold: str) -> bool:
    """ "Yes, both are" says yes; a later no in the same sentence takes it back."""
    expected = normalise(gold)
    words = normalise(given).split()
    if expected not in ("yes", "no") or not words:
        return False
    return words[0] == expected and ({"yes", "no"} - {expected}).isdisjoint(words)


def close_enough(given: str, gold: str, min_f1: float) -> bool:
    """Token F1, with the same digits on both sides: a near miss in a number is another number."""
    words, expected = _tokens(given), _tokens(gold)
    if not words or not expected or re.findall(r"\d+", normalise(given)) != re.findall(r"\d+", normalise(gold)):
        return False
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected)) >= min_f1


def _tokens(text: str) -> list[str]:
    """Words; characters where a script has no spaces."""
    return re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+", normalise(text))


def same_line(given: str, gold: str) -> bool:
    """The first line of code, marks of Markdown left out, equal but for white space."""
    lines = [line for line in given.splitlines() if line.strip() and not line.strip().startswith("```")]
    expected = "".join(gold.split())
    return bool(lines) and bool(expected) and "".join(lines[0].strip("`").split()) == expected


def says_unanswerable(text: str) -> bool:
    from seer.reading.conversation import NOT_ANSWERABLE

    return NOT_ANSWERABLE.search(text) is not None


def _rouge_l(given: str, gold: str) -> float:
    from seer.evaluation.scoring.rouge import rouge_l

    return rouge_l(" ".join(_tokens(given)) or ".", " ".join(_tokens(gold)) or ".").f1
