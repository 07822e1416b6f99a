"""LongBench's metrics: a prediction and its answers → a number in [0, 1].

Each metric reproduces the published scorer to the last digit, including its quirks, because scores are only comparable
under the same arithmetic; a comment marks each quirk. The implementation is our own: no recursion, no eval(), and no
exception is turned into a score.

    qa_f1, qa_f1_zh        word overlap after normalisation
    rouge_l, rouge_l_zh    longest common subsequences (seer.evaluation.scoring.rouge)
    classification         the class that the prediction names
    retrieval, count       the fraction of the numbers in the prediction that are correct
    code_sim               similarity of the first line of code
    exact                  1 for the answer itself; not part of LongBench, for custom benchmarks

The score of a sample is the best over its answers (`score_sample`). `postprocess` prepares predictions; it must not strip
whitespace by default, which changes code scores by ten points.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from seer.errors import InputError
from seer.evaluation.scoring.chinese import cut_words
from seer.evaluation.scoring.rouge import ORIGINAL_TRACE_LIMIT, RougeL, rouge_l


class Postprocess(StrEnum):
    """How a prediction is prepared before scoring."""

    OFFICIAL = "official"
    """Unchanged, except for the first-line rule of four tasks."""
    GLYPH = "glyph"
    """Each run of whitespace becomes one space first, so the first-line rule keeps the whole text."""


class CodeRatio(StrEnum):
    """Similarity of two lines of code. Published LongBench figures use difflib."""

    DIFFLIB = "difflib"
    INDEL = "indel"
    """As computed by fuzzywuzzy if python-Levenshtein is installed: 1.4 to 2.4 points higher."""


class Metric(StrEnum):
    """Names of metrics in tasks and in `benchmark.toml`."""

    QA_F1 = "qa_f1"
    QA_F1_ZH = "qa_f1_zh"
    ROUGE_L = "rouge_l"
    ROUGE_L_ZH = "rouge_l_zh"
    CLASSIFICATION = "classification"
    RETRIEVAL_EN = "retrieval_en"
    RETRIEVAL_ZH = "retrieval_zh"
    COUNT = "count"
    CODE_SIM = "code_sim"
    EXACT = "exact"


def postprocess(prediction: str, how: Postprocess, *, first_line: bool) -> str:
    """Prepare a prediction for scoring. `first_line` drops leading newlines and all lines after the first."""
    if how is Postprocess.GLYPH:
        prediction = " ".join(prediction.split())
    return prediction.lstrip("\n").split("\n")[0] if first_line else prediction


@dataclass(frozen=True)
class Score:
    """The best score over all answers, in [0, 1]."""

    value: float
    deep: bool = False
    """True if `rouge` 1.0.1 exceeds the recursion limit, for which the published scorer counts 0."""


def score_sample(
    metric: Metric,
    prediction: str,
    answers: Sequence[str],
    *,
    all_classes: Sequence[str] = (),
    code_ratio: CodeRatio = CodeRatio.DIFFLIB,
) -> Score:
    """Return the best score of a prediction over its answers; 0 without answers. `all_classes` is for classification only."""
    if metric in _ROUGE_METRICS:
        results = [_ROUGE_METRICS[metric](prediction, answer) for answer in answers]
        return Score(
            max((result.f1 for result in results), default=0.0),
            any(result.longest_trace >= ORIGINAL_TRACE_LIMIT for result in results),
        )
    if metric is Metric.CLASSIFICATION:
        return Score(max((classification(prediction, answer, all_classes) for answer in answers), default=0.0))
    if metric is Metric.CODE_SIM:
        return Score(max((code_sim(prediction, answer, code_ratio) for answer in answers), default=0.0))
    score = _PAIR_METRICS[metric]
    return Score(max((score(prediction, answer) for answer in answers), default=0.0))


# ── Questions ────────────────────────────────────────────────────────────────────────────────────

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟"
    "｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation + _CHINESE_PUNCTUATION)


def qa_f1(prediction: str, answer: str) -> float:
    """Return the F1 of lowercase words without ASCII punctuation and English articles."""
    return _overlap_f1(_english_words(prediction), _english_words(answer))


def qa_f1_zh(prediction: str, answer: str) -> float:
    """Return the F1 of lowercase jieba words without punctuation and whitespace."""
    return _overlap_f1(_chinese_words(prediction), _chinese_words(answer))


def _english_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_ASCII_PUNCTUATION)).split()


def _chinese_words(text: str) -> list[str]:
    # Segment before removing punctuation, because punctuation separates words.
    cleaned = (word.lower().translate(_NO_PUNCTUATION).strip() for word in cut_words(text))
    return [word for word in cleaned if word]


def _overlap_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Return the F1 over two multisets of words."""
    # Multiset intersection: a repeated word counts as often as it occurs on both sides.
    num_same = (Counter(predicted) & Counter(expected)).total()
    if not num_same:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact(prediction: str, answer: str) -> float:
    """Return 1 if both texts are equal after stripping surrounding whitespace."""
    return float(prediction.strip() == answer.strip())


# ── Summaries ────────────────────────────────────────────────────────────────────────────────────


def rouge_l_zh(prediction: str, answer: str) -> RougeL:
    """Return ROUGE-L over jieba words. "。" does not end a sentence here, so a whole text may be one sentence."""
    return rouge_l(" ".join(cut_words(prediction)), " ".join(cut_words(answer)))


# ── Classes, paragraphs, counts ──────────────────────────────────────────────────────────────────


def classification(prediction: str, answer: str, all_classes: Sequence[str]) -> float:
    """Return 1 / number of classes that the prediction names if the correct one is among them, or else 0."""
    named = [name for name in all_classes if name in prediction]
    # Classes whose names are part of the correct one's name do not count. Quirk: the published scorer removes them from the
    # list during iteration, and therefore skips the class after each removed one.
    index = 0
    while index < len(named):
        if named[index] in answer and named[index] != answer:
            named.remove(named[index])
        index += 1
    return 1.0 / len(named) if answer in named else 0.0


def count(prediction: str, answer: str) -> float:
    """Return the fraction of the numbers in the prediction that equal the answer."""
    return _fraction_of_numbers(prediction, answer)


def retrieval_en(prediction: str, answer: str) -> float:
    """Return the fraction of the numbers in the prediction that equal the one in the answer, such as "Paragraph 12"."""
    return _retrieval(prediction, answer, "Paragraph ")


def retrieval_zh(prediction: str, answer: str) -> float:
    """Return the fraction of the numbers in the prediction that equal the one in the answer, such as "段落12"."""
    return _retrieval(prediction, answer, "段落")


def _retrieval(prediction: str, answer: str, label: str) -> float:
    found = re.search(rf"{label}(\d+)", answer)
    if not found:
        raise InputError(f"the answer {answer!r} names no paragraph; a retrieval answer has the form '{label}12'")
    return _fraction_of_numbers(prediction, found[1])


def _fraction_of_numbers(prediction: str, expected: str) -> float:
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(expected) / len(numbers) if numbers else 0.0


# ── Code ─────────────────────────────────────────────────────────────────────────────────────────


def code_sim(prediction: str, answer: str, ratio: CodeRatio = CodeRatio.DIFFLIB) -> float:
    """Return the similarity of the answer and the first line without a backtick or a comment sign, rounded to 0.01."""
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not ("`" in line or "#" in line or "//" in line)), "")
    if ratio is CodeRatio.INDEL:
        from rapidfuzz.distance import Indel

        similarity = Indel.normalized_similarity(line, answer)
    else:
        # Quirk: the result depends on the order, because difflib's "autojunk" ignores frequent characters of the second
        # text only.
        similarity = SequenceMatcher(None, line, answer).ratio()
    return round(100 * similarity) / 100


_PAIR_METRICS: dict[Metric, Callable[[str, str], float]] = {
    Metric.QA_F1: qa_f1,
    Metric.QA_F1_ZH: qa_f1_zh,
    Metric.RETRIEVAL_EN: retrieval_en,
    Metric.RETRIEVAL_ZH: retrieval_zh,
    Metric.COUNT: count,
    Metric.EXACT: exact,
}
_ROUGE_METRICS: dict[Metric, Callable[[str, str], RougeL]] = {Metric.ROUGE_L: rouge_l, Metric.ROUGE_L_ZH: rouge_l_zh}
