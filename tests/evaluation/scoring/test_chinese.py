"""Chinese segmentation equals that of jieba, in linear time."""

from __future__ import annotations

import functools
import logging
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.evaluation.scoring.chinese import cut_words
from seer.evaluation.scoring.scorers import (
    Metric,
    qa_f1_zh,
    rouge_l_zh,
    score_sample,
)

COMMON_CHINESE = "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年北京天安门大学生活动物理"


chinese_texts = st.lists(st.sampled_from(COMMON_CHINESE + "鿃鿎龪龯" + "。，ab1. %\r\n㐀")).map("".join)


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
def test_cut_words_of_chinese_text_equals_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)


@pytest.mark.parametrize(
    "text",
    [
        # Ambiguities, unknown words and names need both the dictionary and the Markov model.
        "小明硕士毕业于中国科学院计算所，后在日本京都大学深造",
        "工信处女干事每月经过下属科室都要亲口交代24口交换机等技术性器件的安装工作",
        "他来到了网易杭研大厦，李小福是创新办主任也是云计算方面的专家",
        "龘靐齉爩，魑魅魍魉；孙燕姿和欧阳娜娜、司马光在一起",
        # Latin letters and digits inside, next to and instead of words.
        "T恤、B超、卡拉OK、AA制，C++和AT&T，iPhone12 Pro涨了3.14%，v1.2.3-rc#4_z9",
        "A股Z世代0起点9成 azAZ09 x%y 7.5% a.b 1.a .5 % 9-3 x_5 a+7",
        # Words with a character that is not a word by itself.
        "大S和小S在中坜市读阿Q正传，一抷黄土中坜地区人民小S北京",
        # "A股" is a word and "A" is not, although "股份公司" is much more frequent than the rest after "A股".
        "A股份公司在B座谈会上说B超音速",
        # The first and the last character of the Chinese range, and their neighbours outside it.
        "一丁䷿㐀鿕鿔鿖𠀀 一鿕 鿕一鿖",
        "一\r\n二\r三\n\n四\t五\u3000六  七",
        "我",
        "",
    ],
)
def test_cut_words_of_special_cases_equals_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_cut_words_of_random_dictionary_words_equals_jieba(seed):
    """Frequent and rare words without spaces have many possible splits, some with equal probability."""
    import jieba

    chosen = random.Random(seed)
    text = "".join(chosen.choices(dictionary_words(), k=chosen.randint(1, 40)))
    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_cut_words_of_rare_characters_equals_jieba(seed):
    """Characters that form no dictionary words are grouped only by the Markov model."""
    import jieba

    chosen = random.Random(seed)
    text = "".join(chosen.choices(rare_characters(), k=chosen.randint(1, 30)))
    assert list(cut_words(text)) == jieba.lcut(text)


@settings(deadline=None)
@given(st.text(max_size=80))
def test_cut_words_of_any_text_equals_jieba(text):
    import jieba

    assert list(cut_words(text)) == jieba.lcut(text)
    assert "".join(cut_words(text)) == text


def test_cut_words_loads_jieba_without_log_output():
    import jieba

    cut_words("北京")
    assert not jieba.default_logger.isEnabledFor(logging.INFO)


@pytest.mark.parametrize("text", ["中" * 100_000, "㐀" * 100_000, (COMMON_CHINESE * 3000)[:100_000]])
def test_chinese_metrics_score_long_text_in_linear_time(text):
    """jieba takes minutes for the first of these texts, and `rouge` exceeds the recursion limit."""
    assert qa_f1_zh(text, text) == 1.0
    assert rouge_l_zh(text, "北京大学").f1 <= 1.0
    assert score_sample(Metric.ROUGE_L_ZH, text, [text]).value == pytest.approx(1, abs=1e-7)
