"""Sentences: spans that join to the text, never longer than the limit, never inside a grapheme."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.rendering.layout.sentences import MAX_SENTENCE_CHARS, is_boundary, sentences

SAMPLES = {
    "english": "Mr. Smith paid 3.14 dollars at example.org. “Why?” she asked! He left…\nThe end",
    "chinese": "今天天气很好。我们去公园吧！“好的。”他说；然后走了？" * 30,
    "japanese": "吾輩は猫である。名前はまだ無い。「どこで生れたか。」" * 20,
    "arabic": "ذهب الولد إلى المدرسة. هل رأيته؟ نعم! " * 20,
    "hindi": "राम घर गया। सीता ने पूछा। क्या हुआ? " * 20,
    "urdu": "وہ گھر گیا۔ کیا ہوا؟ " * 20,
    "thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 30,
    "korean": "그는 집에 갔다. 왜? " * 20,
    "jamo": "\u1112\u1161\u11ab" * 200,
    "code": "def f(x):\n    if x > 0.5:\n        return x\n\n\nclass A:\n\tpass\n" * 5,
    "table": "name\tprice\tcount\nlaptop\t1,299.00\t1\nmouse\t24.99\t2\n" * 10,
    "list": "- one\n- two\n  1. nested\n* three\n\n\n",
    "long": "word " * 500,
    "unbroken": "a" * 1000,
    "emoji": "👩‍👩‍👧‍👦👍🏽🇩🇪🇫🇷" * 100,
    "marks": "e\u0301\u0323" * 300,
    "flags": "🇩🇪" * 300,
    "crlf": "one\r\ntwo\r\n\r\nthree. \r\n",
    "pair": "\ud83d\ude00" * 300,
    "lone": "a\ud800. b\udc00 " * 100,
    "spaces": " " * 1000 + "\n" * 50 + "x" + " " * 400 + "y",
    "space only": " \n\t\n ",
    "zalgo": "a" + "\u0301" * 600 + "b. c",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_sentences_of_any_script_lead_back_to_their_characters(name):
    check(SAMPLES[name])


PARTS = [*"aZ9.!?。！؟।\n\t \r,，é漢\u0301\u200d🇩👍\ud83d\ude00가ᄒ", "Mr. ", "word " * 60]


@given(st.lists(st.sampled_from(PARTS), max_size=80).map("".join), st.integers(1, 300))
@settings(max_examples=300, deadline=None)
def test_sentences_of_any_text_join_to_it(text, max_chars):
    check(text, max_chars)


def check(text: str, max_chars: int = MAX_SENTENCE_CHARS) -> None:
    spans = sentences(text, 7, max_chars)
    assert "".join(text[low - 7 : high - 7] for low, high in spans) == text
    for low, high in spans:
        assert low < high
        assert is_boundary(text, low - 7)
        piece = text[low - 7 : high - 7]
        assert piece.strip() or not text.strip()
        longest = max_chars if not any(unicodedata.category(c)[0] in "MC" for c in piece.strip()) else len(text)
        assert len(piece.strip()) <= max(longest, 2) or not _can_be_cut(piece.strip(), max_chars)


def _can_be_cut(piece: str, max_chars: int) -> bool:
    return any(is_boundary(piece, at) for at in range(1, min(len(piece), max_chars + 1)))


def test_sentences_end_where_a_reader_sees_the_end():
    def parts(text: str) -> list[str]:
        return [text[low:high] for low, high in sentences(text)]

    assert parts("It cost 3.14. Why? “No.” Yes") == ["It cost 3.14. ", "Why? ", "“No.” ", "Yes"]
    assert parts("他来了。为什么？走吧") == ["他来了。", "为什么？", "走吧"]
    assert parts("a\tb\n1\t2\n") == ["a\tb\n", "1\t2\n"]
    assert parts("if x:\n    y()\n\n\nz()") == ["if x:\n", "    y()\n\n\n", "z()"]
    assert sentences("") == []
    assert sentences("  \n ", 5) == [(5, 9)]


def test_sentences_cut_long_text_at_spaces():
    spans = sentences("word " * 200)
    assert len(spans) > 3
    assert all(start % 5 == 0 and end - start <= MAX_SENTENCE_CHARS for start, end in spans)


@pytest.mark.parametrize(
    "text", ["e\u0301", "\r\n", "👍🏽", "👩\u200d👧", "🇩🇪", "\ud83d\ude00", "\u1112\u1161", "क्", "한\u11ab"]
)
def test_is_boundary_rejects_the_middle_of_a_grapheme(text):
    assert not is_boundary(text, 1)
    assert is_boundary(f"{text}{text}", len(text))


def test_sentences_of_a_hostile_text_take_linear_time():
    import time

    started = time.perf_counter()
    for text in (" " * 50_000, "\n \n" * 15_000, "." * 50_000, '."' * 25_000, "🇩🇪" * 25_000, "a\u0301" * 25_000):
        sentences(text)
    assert time.perf_counter() - started < 20
