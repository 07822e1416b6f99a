"""LongBench's metrics: pinned values, an independent slow ROUGE-L, and properties."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.evaluation.scoring import rouge
from seer.evaluation.scoring.chinese import cut_words
from seer.evaluation.scoring.rouge import RougeL, rouge_l
from seer.evaluation.scoring.scorers import (
    CodeRatio,
    Metric,
    Postprocess,
    Score,
    classification,
    code_sim,
    count,
    postprocess,
    qa_f1,
    qa_f1_zh,
    retrieval_en,
    retrieval_zh,
    rouge_l_zh,
    score_sample,
)

PINNED = json.loads((Path(__file__).parents[2] / "fixtures/evaluation/pinned_scores.json").read_text(encoding="utf-8"))
COMMON_CHINESE = "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年北京天安门大学生活动物理"

texts = st.lists(st.sampled_from(["a", "b", "c", "the", ".", " . ", "\n", "Paragraph 3", "7", "é", "#", "x=1"])).map(
    " ".join
)
chinese_texts = st.lists(st.sampled_from(COMMON_CHINESE + "鿃鿎龪龯" + "。，ab1. %\r\n㐀")).map("".join)


# ── ROUGE-L ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), PINNED["rouge_l"])
def test_rouge_l_equals_the_rouge_package(hypothesis, reference, expected):
    assert rouge_l(hypothesis, reference).f1 == expected


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), PINNED["rouge_l_zh"])
def test_rouge_l_zh_equals_the_rouge_package_over_jieba(hypothesis, reference, expected):
    assert rouge_l_zh(hypothesis, reference).f1 == expected


def slow_rouge(hypothesis: list[list[str]], reference: list[list[str]]) -> tuple[set[str], int]:
    """The definition, with a table of lengths for each pair of sentences: the words found, the longest trace."""
    union, longest = set(), 0
    for ref in reference:
        for hyp in hypothesis:
            lengths = [[0] * (len(hyp) + 1) for _ in range(len(ref) + 1)]
            for i, word in enumerate(ref, 1):
                for j, other in enumerate(hyp, 1):
                    same = word == other
                    lengths[i][j] = lengths[i - 1][j - 1] + 1 if same else max(lengths[i - 1][j], lengths[i][j - 1])
            i, j, steps = len(ref), len(hyp), 0
            while i and j:
                steps += 1
                if ref[i - 1] == hyp[j - 1]:
                    union.add(ref[i - 1])
                    i, j = i - 1, j - 1
                elif lengths[i - 1][j] > lengths[i][j - 1]:
                    i -= 1
                else:
                    j -= 1
            longest = max(longest, steps)
    return union, longest


sentences = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12), min_size=1, max_size=5)


@settings(deadline=None)
@given(sentences, sentences)
def test_rouge_l_equals_its_definition(hypothesis, reference):
    union, _ = slow_rouge(hypothesis, reference)
    found = rouge_l(".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference)))
    assert found.recall == len(union) / len({word for sentence in reference for word in sentence})
    assert found.precision == len(union) / len({word for sentence in hypothesis for word in sentence})


@settings(deadline=None)
@given(sentences, sentences, st.integers(1, 20))
def test_a_trace_too_long_for_the_original_is_found_wherever_it_is(hypothesis, reference, limit):
    """Pairs that add no word need no trace; whether one of them is too long is known all the same."""
    _, longest = slow_rouge(hypothesis, reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "ORIGINAL_TRACE_LIMIT", limit)
        patch.setattr(rouge, "BLOCK_ROWS", 3)
        found = rouge_l(".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference)))
    assert (found.longest_trace >= limit) == (longest >= limit)


@settings(deadline=None)
@given(sentences, sentences)
def test_rouge_l_does_not_depend_on_how_it_is_cut_into_batches_and_blocks(hypothesis, reference):
    pair = ".".join(map(" ".join, hypothesis)), ".".join(map(" ".join, reference))
    usual = rouge_l(*pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "BATCH_BITS", 9)
        patch.setattr(rouge, "BLOCK_ROWS", 2)
        assert rouge_l(*pair).f1 == usual.f1


def test_a_long_trace_is_reported_and_scored():
    """The `rouge` package recurses once per step and fails here, which the published scorer turns into 0."""
    hypothesis = " ".join(f"w{i}" for i in range(2000))
    result = rouge_l(hypothesis, hypothesis)
    assert result.longest_trace == 2000
    assert result.f1 == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L, hypothesis, ["w1", hypothesis]).deep, "one long trace is enough"
    assert not score_sample(Metric.ROUGE_L, "w1 w2", [hypothesis[:500]]).deep


@given(sentences, st.integers(2, 30))
@example([["a"]] * 6, 3)
@example([["a"]] * 6, 4)
def test_sentences_stand_side_by_side_as_far_as_they_fit(given_sentences, bits):
    """Fewer batches are faster, wider integers are slower: each batch is full, and only a lone sentence is too wide."""

    def width(batch: list[list[str]]) -> int:
        return sum(len(sentence) + 1 for sentence in batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "BATCH_BITS", bits)
        batches = list(rouge._batches(given_sentences))
    assert [sentence for batch in batches for sentence in batch] == given_sentences
    assert all(width(batch) <= bits or len(batch) == 1 for batch in batches)
    assert all(width([*batch, following[0]]) > bits for batch, following in itertools.pairwise(batches))


@pytest.mark.parametrize(("hypothesis", "reference"), [("", "a"), ("a", ""), ("...", "a"), ("", ""), ("a", "b")])
def test_texts_with_nothing_in_common_score_0(hypothesis, reference):
    assert rouge_l(hypothesis, reference) == RougeL(f1=0.0, precision=0.0, recall=0.0, longest_trace=0)


def test_a_long_prediction_without_a_word_in_common_is_deep_too():
    assert score_sample(Metric.ROUGE_L, "a " * 1000, ["b. a"]).deep
    assert score_sample(Metric.ROUGE_L, "a " * rouge.ORIGINAL_TRACE_LIMIT, ["b"]).deep
    assert not score_sample(Metric.ROUGE_L, "a " * (rouge.ORIGINAL_TRACE_LIMIT - 1), ["b"]).deep
    assert not score_sample(Metric.ROUGE_L, "a. " * 1000, ["b"]).deep


@pytest.mark.parametrize(
    ("num_words", "deep"), [(rouge.ORIGINAL_TRACE_LIMIT - 1, False), (rouge.ORIGINAL_TRACE_LIMIT, True)]
)
def test_a_trace_is_deep_from_the_limit_on(num_words, deep):
    text = " ".join(f"w{i}" for i in range(num_words))
    assert score_sample(Metric.ROUGE_L, text, [text]).deep is deep


def test_rouge_l_is_not_the_same_both_ways():
    """Every sentence of the answer is traced through the prediction: which of them is which decides."""
    assert score_sample(Metric.ROUGE_L, "cold rain", ["rain cold. rain"]).value == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L, "rain cold. rain", ["cold rain"]).value == pytest.approx(0.5, abs=1e-7)
    assert score_sample(Metric.ROUGE_L_ZH, "老师学生", ["学生老师.学生"]).value == pytest.approx(1, abs=1e-7)
    assert score_sample(Metric.ROUGE_L_ZH, "学生老师.学生", ["老师学生"]).value == pytest.approx(0.5, abs=1e-7)


# ── Chinese ──────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def dictionary_words() -> list[str]:
    import jieba

    jieba.initialize()
    return sorted(word for word, frequency in jieba.dt.FREQ.items() if frequency)


@functools.cache
def rare_characters() -> list[str]:
    return [word for word in dictionary_words() if len(word) == 1 and word > "\u4e00"][::7] + list("鿃鿎龪x7.%")


@settings(deadline=None)
@given(chinese_texts)
def test_words_are_those_of_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)


@pytest.mark.parametrize(
    "text",
    [
        # an ambiguity, a new word, names: the dictionary and the Markov model both have their say
        "小明硕士毕业于中国科学院计算所，后在日本京都大学深造",
        "工信处女干事每月经过下属科室都要亲口交代24口交换机等技术性器件的安装工作",
        "他来到了网易杭研大厦，李小福是创新办主任也是云计算方面的专家",
        "龘靐齉爩，魑魅魍魉；孙燕姿和欧阳娜娜、司马光在一起",
        # Latin letters and digits inside, beside and in place of words
        "T恤、B超、卡拉OK、AA制，C++和AT&T，iPhone12 Pro涨了3.14%，v1.2.3-rc#4_z9",
        "A股Z世代0起点9成 azAZ09 x%y 7.5% a.b 1.a .5 % 9-3 x_5 a+7",
        # words of which a character is no word of its own
        "大S和小S在中坜市读阿Q正传，一抷黄土中坜地区人民小S北京",
        # "A股" is a word and "A" is none, however much more frequent "股份公司" is than what then remains
        "A股份公司在B座谈会上说B超音速",
        # the first and the last character that counts as Chinese, and their neighbours outside
        "一丁䷿㐀鿕鿔鿖𠀀 一鿕 鿕一鿖",
        "一\r\n二\r三\n\n四\t五\u3000六  七",
        "我",
        "",
    ],
)
def test_words_of_chosen_texts_are_those_of_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_words_of_the_dictionary_in_any_order_are_cut_as_jieba_does(seed):
    """Frequent and rare words without a space between: many splits compete, some at equal odds."""
    import jieba

    chosen = random.Random(seed)
    text = "".join(chosen.choices(dictionary_words(), k=chosen.randint(1, 40)))
    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_runs_of_rare_characters_are_cut_as_jieba_does(seed):
    """Characters that form no words of the dictionary: the Markov model alone groups them."""
    import jieba

    chosen = random.Random(seed)
    text = "".join(chosen.choices(rare_characters(), k=chosen.randint(1, 30)))
    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_words_of_any_text_are_those_of_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)
    assert "".join(cut_words(text)) == text


def test_jieba_loads_without_a_word():
    import jieba

    cut_words("北京")
    assert not jieba.default_logger.isEnabledFor(logging.INFO)


@pytest.mark.parametrize("text", ["中" * 100_000, "㐀" * 100_000, (COMMON_CHINESE * 3000)[:100_000]])
def test_100_000_chinese_characters_without_a_stop(text):
    """jieba alone takes minutes for the first of these, and `rouge` runs out of stack."""
    assert qa_f1_zh(text, text) == 1.0
    assert rouge_l_zh(text, "北京大学").f1 <= 1.0
    assert score_sample(Metric.ROUGE_L_ZH, text, [text]).value == pytest.approx(1, abs=1e-7)


# ── Words, classes, numbers, code ────────────────────────────────────────────────────────────────


def test_qa_f1_ignores_case_punctuation_and_articles():
    assert qa_f1("The Eiffel Tower!", "eiffel tower") == 1.0
    assert qa_f1("an eiffel-tower", "eiffel tower") == 0.0, "a hyphen goes without leaving a space"
    assert qa_f1("in Paris, France", "Paris") == 2 * (1 / 3) / (1 / 3 + 1)
    assert qa_f1("“Paris”", "Paris") == 0.0, "typographic punctuation stays"
    assert qa_f1("the", "the") == 0.0, "nothing is left to compare"
    assert qa_f1("x x y", "x y y") == pytest.approx(2 / 3)


def test_articles_go_as_whole_words_only():
    assert qa_f1("a cat, an owl, the fox", "cat owl fox") == 1.0
    assert qa_f1("theory", "ory") == qa_f1("sofa", "sof") == 0.0
    assert qa_f1("rise—the—fall", "rise— —fall") == 1.0, "an article leaves a space behind"


def test_qa_f1_zh_ignores_punctuation_and_space():
    assert qa_f1_zh("《北京》 大学。", "北京大学") == 0.0, "cut before cleaning: 北京, 大学 against 北京大学"
    assert qa_f1_zh("北京大学。", "北京大学") == 1.0
    assert qa_f1_zh("ＡＢ", "。") == 0.0
    assert qa_f1_zh("北京\r\n 大学，2024", "北京。大学(2024)") == 1.0
    assert qa_f1_zh("ABC公司", "abc公司") == 1.0


def test_exact_ignores_white_space_around_and_nothing_else():
    assert score_sample(Metric.EXACT, " Paris\n", ["Rome", "\tParis "]).value == 1.0
    assert score_sample(Metric.EXACT, "paris", ["Paris"]).value == 0.0
    assert score_sample(Metric.EXACT, "New  York", ["New York"]).value == 0.0


def test_classification_shares_the_point_among_the_classes_named():
    classes = ["Food", "Date", "Other entity", "Other"]
    assert classification("Food", "Food", classes) == 1.0
    assert classification("Food or Date", "Food", classes) == 0.5
    assert classification("Date", "Food", classes) == 0.0
    assert classification("Other entity", "Other entity", classes) == 1.0, "'Other' is part of the right name"
    assert classification("Other entity", "Other entity", classes[::-1]) == 1.0, "wherever it stands in the list"
    assert classification("food", "Food", classes) == 0.0, "case counts"
    assert classification("Other entity", "Other", classes) == 0.5, "a longer name does count against the right one"
    assert score_sample(Metric.CLASSIFICATION, "Food", ["Date", "Food"], all_classes=classes).value == 1.0


def test_classification_passes_over_what_follows_a_deleted_class():
    """The published scorer's quirk: deleting 'a' from the list makes its walk jump over 'b'."""
    assert classification("abc", "abc", ["abc", "a", "b"]) == 0.5
    assert classification("abc", "abc", ["abc", "a", "b", "c"]) == 0.5


def test_numbers():
    assert count("There are 5 of 7", "5") == 0.5
    assert count("five", "5") == 0.0
    assert count("15", "5") == 0.0
    assert retrieval_en("Paragraph 12, Paragraph 3", "Paragraph 12") == 0.5
    assert retrieval_zh("段落7", "段落7") == 1.0
    assert retrieval_en("12", "2 of Paragraph 12") == retrieval_zh("7", "2 段落7") == 1.0, (
        "the labelled number is meant"
    )
    assert retrieval_en("Paragraph", "Paragraph 1") == 0.0
    for answer in ("段落1", "Paragraph one", "Paragraph "):
        with pytest.raises(InputError, match="names no paragraph.*'Paragraph 12'"):
            retrieval_en("1", answer)
    with pytest.raises(InputError, match="names no paragraph.*'段落12'"):
        retrieval_zh("1", "段落一")


@pytest.mark.parametrize(("prediction", "answer", "difflib", "indel"), PINNED["code_sim"])
def test_code_similarity_by_both_ratios(prediction, answer, difflib, indel):
    assert code_sim(prediction, answer) == difflib
    assert code_sim(prediction, answer, CodeRatio.INDEL) == indel


def test_the_first_line_of_code_is_compared():
    line = "total = price * count"
    for above in ("\n\n", "```python\n", "# the total\n", "// the total\n", "x = 1  # one\n"):
        assert code_sim(f"{above}{line}\nreturn total", line) == 1.0
    assert code_sim(f"\n  \n{line}", line) < 1.0, "a line of spaces is a line of code"
    assert code_sim("# only\n`comments`", line) == 0.0
    assert code_sim("# only", "") == code_sim("", "") == 1.0, "without a line of code it is an empty one"


def test_difflib_leaves_out_what_is_frequent_in_a_long_answer():
    """A quirk of published scores: in an answer of 200 characters or more, common characters find no partner."""
    long, short = "ab" * 120, "b" + "ab" * 40
    assert code_sim(long, long) == 1.0
    assert code_sim(short, long) == 0.0
    assert code_sim(long, short) == 0.5, "the prediction's own length does not matter"
    assert code_sim(short, long, CodeRatio.INDEL) == 0.5


def test_the_two_code_ratios_differ_somewhere():
    assert any(difflib != indel for _, _, difflib, indel in PINNED["code_sim"])


# ── Post-processing and properties of every metric ───────────────────────────────────────────────


def test_postprocessing():
    assert postprocess("\n\n one \n two", Postprocess.OFFICIAL, first_line=True) == " one "
    assert postprocess("\n one \n", Postprocess.OFFICIAL, first_line=False) == "\n one \n", "never stripped"
    assert postprocess("\n one \n two", Postprocess.GLYPH, first_line=True) == "one two"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(Metric), texts, st.lists(texts, max_size=4), st.randoms())
def test_the_best_answer_counts_in_any_order(metric, prediction, answers, random):
    answers = [f"Paragraph 3 段落3 {answer}" for answer in answers]
    classes = ["a", "b", "Paragraph 3"]
    whole = score_sample(metric, prediction, answers, all_classes=classes).value
    assert 0 <= whole <= 1
    singles = [score_sample(metric, prediction, [answer], all_classes=classes).value for answer in answers]
    assert whole == max(singles, default=0.0)
    random.shuffle(answers)
    assert score_sample(metric, prediction, answers, all_classes=classes).value == whole


@pytest.mark.parametrize("metric", Metric)
def test_without_answers_the_score_is_0(metric):
    assert score_sample(metric, "Paragraph 3", [], all_classes=["a"]) == Score(0.0, deep=False)


@pytest.mark.parametrize("metric", Metric)
def test_the_right_answer_scores_1_as_a_number(metric):
    """Chinese and English at once, so that every metric finds in it what it looks for."""
    answer = "3" if metric is Metric.COUNT else "Paragraph 3 段落3"
    score = score_sample(metric, answer, ["Paragraph 4 段落4", answer, "段落5 Paragraph 5"], all_classes=[answer])
    assert type(score.value) is float, "a JSON file says 1.0, not true"
    assert score.value == pytest.approx(1, abs=1e-7)
    assert not score.deep


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize(
    "prediction", ["", "\n", ".", "。", "word " * 20_000, "a. " * 20_000, "字" * 20_000, "9" * 20_000]
)
def test_empty_and_huge_predictions_are_scored(metric, prediction):
    assert 0 <= score_sample(metric, prediction, ["Paragraph 3 段落3 a word"], all_classes=["a"]).value <= 1
