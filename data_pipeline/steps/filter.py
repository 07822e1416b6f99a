"""Decide whether a teacher's answer equals a gold answer: strictly, or by the measure of the answer type.

| answer type  | correct if                                                                      |
|--------------|---------------------------------------------------------------------------------|
| any but code | equal after normalisation (case, width, articles, punctuation, white space)     |
| extractive   | the same date in another order, or the same yes or no as the first word         |
| free         | token F1 of at least `min_token_f1`, with the same digits                       |
| summary      | LongBench's ROUGE-L F1 of at least `min_rouge_l`                                |
| code         | the first line is equal except for white space                                  |
| unanswerable | the answer states that the question cannot be answered                          |

With `correct_by = "official"`, the metric of the source's benchmark task replaces the rules for extractive and free
answers: a token F1 of 1 for short spans, which is their exact match up to the order of words, `min_token_f1` for free
answers, and `min_rouge_l` where the metric is ROUGE-L. The next line of code must be equal, which is LCC's exact match.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from data_pipeline.records import Sample
from data_pipeline.settings import ReasonSpec
from data_pipeline.sources.posing import metric_of
from seer.evaluation.scoring.scorers import Metric, score_sample


@dataclass(frozen=True)
class Match:
    """A gold answer that the teacher's answer equals."""

    answer: str
    """The gold answer in its original spelling."""
    rule: str
    """The rule that matched: exact, meaning, token_f1, rouge_l, line or unanswerable, or the name of a metric."""


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
    metric = metric_of(sample)
    if spec.correct_by == "official" and metric is not None:
        return _match_by_metric(sample, given, metric, spec)
    for gold in sample.answers:
        if sample.kind == "extractive" and (same_date(given, gold) or same_yes_no(given, gold)):
            return Match(gold, "meaning")
        if sample.kind == "free" and close_enough(given, gold, spec.min_token_f1):
            return Match(gold, "token_f1")
        if sample.kind == "summary" and summary_score(given, gold) >= spec.min_rouge_l:
            return Match(gold, "rouge_l")
    return None


def _match_by_metric(sample: Sample, given: str, metric: Metric, spec: ReasonSpec) -> Match | None:
    """Return the gold answer with the highest score of the metric, if that reaches the minimum."""
    if metric in (Metric.ROUGE_L, Metric.ROUGE_L_ZH):
        minimum = spec.min_rouge_l
    else:
        minimum = 1.0 if sample.kind == "extractive" else spec.min_token_f1
    scores = [score_sample(metric, given, [gold]).value for gold in sample.answers]
    best = max(scores, default=0.0)
    return Match(sample.answers[scores.index(best)], metric.value) if scores and best >= minimum else None


def summary_score(given: str, gold: str) -> float:
    """Return the ROUGE-L F1 of a summary as LongBench computes it, by words of Chinese where the gold summary is Chinese.

    The texts keep their full stops: the metric compares sentence by sentence.
    """
    metric = Metric.ROUGE_L_ZH if is_chinese(gold) else Metric.ROUGE_L
    return score_sample(metric, given, [gold]).value


def is_chinese(text: str) -> bool:
    """Return whether more than half of the word characters are Chinese."""
    return not text.isascii() and len(re.findall(r"[\u4e00-\u9fff]", text)) * 2 > len(re.findall(r"\w", text))


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
    expected = "".join(gold.split())
    return bool(expected) and "".join(code_line(given).split()) == expected


def code_line(given: str) -> str:
    """Return the first line of code, with its indentation and without Markdown fences and backticks, or ""."""
    lines = (line for line in given.splitlines() if line.strip() and not line.strip().startswith("```"))
    return next(lines, "").strip("`")


def states_unanswerable(text: str) -> bool:
    """Return whether a text states that the question cannot be answered, by the rule that readers use."""
    # Imported here because only builds with unanswerable samples need the reader.
    from seer.reading.conversation import NOT_ANSWERABLE

    return NOT_ANSWERABLE.search(text) is not None
