"""Line breaking: break opportunities of UAX #14 for Western and East Asian text."""

from __future__ import annotations

import pytest

from seer.rendering.layout.breaking import break_opportunities, classes
from seer.rendering.layout.measure import code_points


def break_marks(text: str, breaking="unicode") -> str:
    """The text with a bar before each character that may begin a line."""
    codes = code_points(text)
    allowed = break_opportunities(codes, classes(codes), breaking)
    return "".join(("|" if may else "") + character for character, may in zip(text, allowed, strict=True))


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("one two", "one |two"),
        ("well-known fact", "well-|known |fact"),
        ("(a b) [c]", "(a |b) |[c]"),
        ("1,234.56 kg", "1,234.56 |kg"),
        ("-5 and 10%", "-5 |and |10%"),
        ("$100 ok", "$100 |ok"),
        ("don't “stop” now", "don't |“stop” |now"),
        ("a\u00a0b c", "a\u00a0b |c"),
        ("soft\u00adhyphen", "soft\u00adhyphen"),
        ("zero\u200bwidth", "zero\u200b|width"),
        ("e\u0301a \u0301b", "e\u0301a |\u0301b"),
        ("a\r\nb\nc", "a\r\n|b\n|c"),
        ("  indented word", "  indented |word"),
        ("x—y", "x|—|y"),
        ("你好，世界。", "你|好，|世|界。"),
        ("（注）他", "（注）|他"),
        ("说：“你好”然后", "说：|“你|好”|然|后"),
        ("中文English中文", "中|文|English|中|文"),
        ("ァカー々", "ァ|カー々"),
        ("한국어", "한|국|어"),
        ("👩\u200d👩 x", "👩\u200d👩 |x"),
        ("a/b c", "a/|b |c"),
    ],
)
def test_break_opportunities_follow_unicode_rules(text, marked):
    assert break_marks(text) == marked


def test_break_opportunities_spaces_keep_hyphenated_words():
    assert break_marks("well-known fact/x", "spaces") == "well-known |fact/x"
    assert break_marks("中文 ab", "spaces") == "中|文 |ab"
