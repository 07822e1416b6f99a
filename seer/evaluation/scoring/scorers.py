"""LongBench's metrics: a prediction and an answer in, a number in [0, 1] out.

Each reproduces the published scorer to the last digit, its quirks included, because scores are only worth
comparing where the arithmetic is the same; a comment marks each quirk. Own code throughout: no recursion, no
eval(), and no exception is turned into a score.

    qa_f1, qa_f1_zh        overlap of words, after normalisation
    rouge_l, rouge_l_zh    longest common subsequences (seer.evaluation.scoring.rouge)
    classification         the one class that the prediction names
    retrieval, count       the share of all numbers in the prediction that are right
    code_sim               similarity of the first line of code
    exact                  1 for the answer itself; not LongBench's, for benchmarks of one's own

A sample's score is the best over its answers (`score_sample`). What happens to a prediction before scoring is
`postprocess`: never strip it, since whitespace decides code scores by ten points.
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
    """What is done to a prediction before it is scored."""

    OFFICIAL = "official"
    """Nothing, but for the first-line rule of four tasks."""
    GLYPH = "glyph"
    """Every run of white space becomes one space first, so that the first-line rule finds a single line."""


class CodeRatio(StrEnum):
    """How alike two lines of code are. Published LongBench figures use difflib."""

    DIFFLIB = "difflib"
    INDEL = "indel"
    """What fuzzywuzzy computes where python-Levenshtein is installed: 1.4 to 2.4 points higher."""


class Metric(StrEnum):
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
    """Prepare a prediction. `first_line`: drop leading newlines and keep what stands before the next one."""
    if how is Postprocess.GLYPH:
        prediction = " ".join(prediction.split())
    return prediction.lstrip("\n").split("\n")[0] if first_line else prediction


@dataclass(frozen=True)
class Score:
    """The best score over all answers, in [0, 1]."""

    value: float
    deep: bool = False
    """True where `rouge` 1.0.1 would have run out of stack and the published scorer have counted 0."""


def score_sample(
    metric: Metric,
    prediction: str,
    answers: Sequence[str],
    *,
    all_classes: Sequence[str] = (),
    code_ratio: CodeRatio = CodeRatio.DIFFLIB,
) -> Score:
    """Score one prediction against all its answers; 0 without answers."""
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
    """F1 over words: lower case, without ASCII punctuation and English articles."""
    return _overlap_f1(_english_words(prediction), _english_words(answer))


def qa_f1_zh(prediction: str, answer: str) -> float:
    """F1 over jieba's words: lower case, without punctuation and white space."""
    return _overlap_f1(_chinese_words(prediction), _chinese_words(answer))


def _english_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_ASCII_PUNCTUATION)).split()


def _chinese_words(text: str) -> list[str]:
    # Cut first, cleaned after: punctuation still parts the words.
    cleaned = (word.lower().translate(_NO_PUNCTUATION).strip() for word in cut_words(text))
    return [word for word in cleaned if word]


def _overlap_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    num_same = (Counter(predicted) & Counter(expected)).total()
    if not num_same:
        return 0.0
    precision, recall = num_same / len(predicted), num_same / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact(prediction: str, answer: str) -> float:
    """1 where both are the same text but for white space around it."""
    return float(prediction.strip() == answer.strip())


# ── Summaries ────────────────────────────────────────────────────────────────────────────────────


def rouge_l_zh(prediction: str, answer: str) -> RougeL:
    """ROUGE-L over jieba's words. "。" ends no sentence here, so that a whole text may be one."""
    return rouge_l(" ".join(cut_words(prediction)), " ".join(cut_words(answer)))


# ── Classes, paragraphs, counts ──────────────────────────────────────────────────────────────────


def classification(prediction: str, answer: str, all_classes: Sequence[str]) -> float:
    """1 over the number of classes that the prediction mentions, if the right one is among them."""
    named = [name for name in all_classes if name in prediction]
    # Classes that are a part of the right one's name do not count against it. Quirk: the published scorer
    # deletes them from the list that it walks through, and so passes over whatever follows each of them.
    index = 0
    while index < len(named):
        if named[index] in answer and named[index] != answer:
            named.remove(named[index])
        index += 1
    return 1.0 / len(named) if answer in named else 0.0


def count(prediction: str, answer: str) -> float:
    """The share of the prediction's numbers that equal the answer."""
    return _share_of_numbers(prediction, answer)


def retrieval_en(prediction: str, answer: str) -> float:
    return _retrieval(prediction, answer, "Paragraph ")


def retrieval_zh(prediction: str, answer: str) -> float:
    return _retrieval(prediction, answer, "段落")


def _retrieval(prediction: str, answer: str, label: str) -> float:
    found = re.search(rf"{label}(\d+)", answer)
    if not found:
        raise InputError(f"the answer {answer!r} names no paragraph; a retrieval answer reads like '{label}12'")
    return _share_of_numbers(prediction, found[1])


def _share_of_numbers(prediction: str, right: str) -> float:
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(right) / len(numbers) if numbers else 0.0


# ── Code ─────────────────────────────────────────────────────────────────────────────────────────


def code_sim(prediction: str, answer: str, ratio: CodeRatio = CodeRatio.DIFFLIB) -> float:
    """Similarity of the answer and the first line that holds neither a backtick nor a comment sign."""
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not ("`" in line or "#" in line or "//" in line)), "")
    if ratio is CodeRatio.INDEL:
        from rapidfuzz.distance import Indel

        similarity = Indel.normalized_similarity(line, answer)
    else:
        # The order matters: difflib's "autojunk" leaves out frequent characters of the second text alone.
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
