"""Right-to-left text: levels of paragraphs, visual order of lines, and glyph positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.rendering import render_text, resolve_style
from seer.rendering.layout.bidi import has_rtl, paragraph_levels, visual_order
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import lay_out
from seer.rendering.layout.measure import Measure, code_points
from seer.rendering.layout.placing import place_glyphs

# Capital letters represent Hebrew letters, as in the reference cases of UAX #9.
HEBREW = {chr(ord("A") + k): chr(0x05D0 + k) for k in range(26)}


def visual(text: str) -> str:
    """The text in visual order, with capitals treated as Hebrew letters."""
    source = "".join(HEBREW.get(character, character) for character in text)
    levels, _ = paragraph_levels(code_points(source))
    return "".join(text[k] for k in visual_order(levels))


@pytest.mark.parametrize(
    ("logical", "expected"),
    [
        ("car is ABC", "car is CBA"),
        ("ABC is car", "is car CBA"),
        ("he said ABC DEF now", "he said FED CBA now"),
        ("ABC 123 DEF", "FED 123 CBA"),
        ("ABC 12.5% DEF", "FED 12.5% CBA"),
        ("abc ABC 123 def", "abc 123 CBA def"),
        ("ABC (def) GHI", "IHG (def) CBA"),
        ("ABC def (ghi) JKL", "LKJ def (ghi) CBA"),
        ("plain text", "plain text"),
    ],
)
def test_visual_order_matches_reference_cases(logical, expected):
    shown = visual(logical)
    # Brackets in right-to-left runs are mirrored when drawn. Only their order is tested here.
    assert shown.translate(str.maketrans("()", "..")) == expected.translate(str.maketrans("()", ".."))


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("abc אבג 123 .,-%()[] عرب\u0301"), min_size=1, max_size=60))
def test_visual_order_is_permutation(text):
    levels, base = paragraph_levels(code_points(text))
    assert sorted(visual_order(levels).tolist()) == list(range(len(text)))
    assert base in (0, 1) and (levels >= base).all() and (levels <= 2).all()


def test_has_rtl_detects_right_to_left_letters():
    assert not has_rtl(code_points("plain 中文 ελληνικά"))
    assert has_rtl(code_points("a א"))


def glyphs_of(text: str):
    style = resolve_style("seer")
    measure = Measure(style, load_chain(style.fonts))
    (page,) = lay_out([text], measure)
    return place_glyphs(page, measure), style, measure


def test_right_to_left_line_is_aligned_to_right_margin():
    glyphs, style, measure = glyphs_of("שלום")
    first, last = glyphs.x_sub[glyphs.offset.argmin()], glyphs.x_sub[glyphs.offset.argmax()]
    assert first > last
    assert first > (style.page_width_px - style.margin_x_px) * 4096 - measure.em_sub


def test_arabic_letters_use_joined_forms():
    alone, _, _ = glyphs_of("ب ب ب")
    joined, _, _ = glyphs_of("ببب")
    assert len(set(alone.slot.tolist())) == 1
    assert len(set(joined.slot.tolist())) == 3


def test_combining_mark_is_placed_on_its_letter():
    composed, _, _ = glyphs_of("é")
    built, _, _ = glyphs_of("e\u0301")
    assert len(built.slot) <= 2
    assert (built.x_sub < composed.x_sub[0] + 9 * 4096).all()
    width = render_text("e\u0301").page(1).line_boxes()[0].width_px
    assert np.isclose(width, render_text("e").page(1).line_boxes()[0].width_px)


def test_brackets_in_right_to_left_text_are_mirrored():
    """The first bracket of Hebrew text is at the right and opens to the left, so it is drawn as a closing one."""
    hebrew, _, _ = glyphs_of("א(ב)")
    latin, _, _ = glyphs_of("a(b)")
    drawn = {int(offset): int(slot) for offset, slot in zip(hebrew.offset, hebrew.slot, strict=True)}
    plain = {int(offset): int(slot) for offset, slot in zip(latin.offset, latin.slot, strict=True)}
    assert (drawn[1], drawn[3]) == (plain[3], plain[1])


CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
INVISIBLE = {*CONTROLS, "\u200b", "\u00ad"}


def shown_from_the_left(text: str) -> str:
    """The visible characters of a paragraph in visual order, as one line (rules L1 and L2)."""
    levels, base = paragraph_levels(code_points(text))
    end = len(text)
    while end and (text[end - 1] in INVISIBLE or text[end - 1] == " "):
        end -= 1
    levels[end:] = base
    return "".join(text[k] for k in visual_order(levels) if text[k] not in INVISIBLE)


def shown_by_another_implementation(text: str) -> str:
    bidi = pytest.importorskip("bidi", reason="needs python-bidi")
    return "".join(character for character in bidi.get_display(text) if character not in INVISIBLE)


@pytest.mark.parametrize(
    "alphabet",
    ["abאבجد12٣٤ .,-+%$()[]\u0301", "abאبجد12٣٤ .,-+%$()[]\u0301\u200b\u00ad" + CONTROLS, "aא1 (" + CONTROLS * 3],
    ids=["plain", "controls", "mostly controls"],
)
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_visual_order_equals_that_of_another_implementation(alphabet, data):
    text = data.draw(st.text(st.sampled_from(alphabet), min_size=1, max_size=40))
    assert shown_from_the_left(text) == shown_by_another_implementation(text)


@pytest.mark.parametrize("depth", [60, 62, 63, 124, 125, 126, 300])
@pytest.mark.parametrize("control", "\u202a\u202b\u2066\u2067")
def test_visual_order_of_deep_nesting_equals_that_of_another_implementation(depth, control):
    closing = "\u2069" if control in "\u2066\u2067" else "\u202c"
    text = control * depth + "a א 1" + closing * depth + " b"
    assert shown_from_the_left(text) == shown_by_another_implementation(text)


def test_isolated_name_does_not_change_the_order_around_it():
    assert shown_from_the_left("User \u2068אבג\u2069: 3 posts") == "User גבא: 3 posts"
    assert shown_from_the_left("User \u2067אב 123 (abc)\u2069 end.") == "User (abc( 123 בא end.".replace(
        "(abc(", ")abc("
    )
