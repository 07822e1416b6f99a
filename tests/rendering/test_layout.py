"""Layout: every character on exactly one page, lines within their width, breaks where Unicode allows them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import ConfigError, InputError
from seer.protocol.geometry import GLM_41V
from seer.rendering import STYLES, render_text, resolve_style, stream
from seer.rendering.layout import lines as layout_module
from seer.rendering.layout.breaking import break_opportunities, classes
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import lay_out, line_widths
from seer.rendering.layout.measure import Measure, code_points
from seer.rendering.layout.placing import measure_page
from seer.rendering.plan import plan, settle

SMALL = resolve_style("seer", page_width_px=140, page_height_px=84, margin_x_px=8, margin_y_px=8)
MARKED = resolve_style(SMALL, newline="mark")
COLUMNS = resolve_style(SMALL, columns=2, column_gap_px=6, page_width_px=200)
CROPPED = resolve_style(SMALL, crop_width=True, breaking="spaces")

# Everything that has ever broken a text renderer, in one alphabet.
AWKWARD = "ab c-d/e.1%\n\r\t\f\v\0\x85\u2028\u00ad\u200b\u200d\u0301\ufeff\ud800中文，。“”（）אב\u202eعر😀\U0010ffff  "
awkward_text = st.text(st.sampled_from(AWKWARD), min_size=1, max_size=400) | st.text(min_size=1, max_size=120)
any_style = st.sampled_from([SMALL, MARKED, COLUMNS, CROPPED])


def lines_of(text: str, style) -> list[str]:
    document = render_text(text, style)
    return [text[box.start : box.end] for page in document for box in page.line_boxes()]


def measure_of(style) -> Measure:
    return Measure(style, load_chain(style.fonts))


@settings(max_examples=150, deadline=None)
@given(awkward_text, any_style)
def test_page_and_line_texts_join_to_the_source(text, style):
    document = render_text(text, style)
    assert "".join(page.text for page in document) == text
    boxes = [box for page in document for box in page.line_boxes()]
    assert "".join(text[box.start : box.end] for box in boxes) == text
    assert all(page.text == text[page.start : page.end] for page in document)


@settings(max_examples=80, deadline=None)
@given(awkward_text, any_style)
def test_no_line_is_wider_than_its_column(text, style):
    measure = measure_of(style)
    for page in lay_out([text], measure):
        measured = measure_page(page, measure)
        widths = line_widths(measured, page.line_starts.astype(np.int64))
        for k, width in enumerate(widths.tolist()):
            line = page.text[page.line_starts[k] : page.line_starts[k + 1]]
            # one cluster alone may be wider than the column
            assert width <= measure.limit_sub or len(line.strip()) <= 2 or not line.isascii()


@settings(max_examples=40, deadline=None)
@given(awkward_text, any_style, st.lists(st.integers(0, 400), max_size=5))
def test_pages_do_not_depend_on_how_the_text_arrives(text, style, cuts):
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = [(page.text, page.content_hash) for page in render_text(text, style)]
    assert [(page.text, page.content_hash) for page in stream(pieces, style)] == whole


@settings(max_examples=25, deadline=None)
@given(st.text(st.sampled_from("ab c\n中。\t"), min_size=1, max_size=1500))
def test_small_windows_give_the_same_pages_as_one_large_one(text):
    whole = [page.text for page in lay_out([text], measure_of(SMALL))]
    saved, layout_module.PIECE_CHARS = layout_module.PIECE_CHARS, 300
    try:
        assert [page.text for page in lay_out([text], measure_of(SMALL))] == whole
    finally:
        layout_module.PIECE_CHARS = saved


LONG_RUNS = {
    "letters": "a" * 200_000,
    "spaces": " " * 200_000,
    "ideographs": "中" * 100_000,
    "newlines": "\n" * 20_000,
    "tabs": "\t" * 20_000,
    "nul": "\0" * 2000,
    "marks": "\u0301" * 100_000,
    "zero-width": "x" + "\u200b" * 200_000,
}


@pytest.mark.parametrize("text", LONG_RUNS.values(), ids=LONG_RUNS)
def test_long_runs_of_one_character(text):
    document = render_text(text)
    assert "".join(page.text for page in document) == text
    assert document.page(1).image().shape == (document.page(1).height_px, document.page(1).width_px)


def test_an_empty_text_is_refused():
    with pytest.raises(InputError, match="empty"):
        render_text("")
    assert list(stream([])) == []


# ── Where lines break ────────────────────────────────────────────────────────────────────────────


def break_marks(text: str, breaking="unicode") -> str:
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
def test_unicode_line_breaks(text, marked):
    assert break_marks(text) == marked


def test_breaking_at_spaces_alone_leaves_hyphens_whole():
    assert break_marks("well-known fact/x", "spaces") == "well-known |fact/x"
    assert break_marks("中文 ab", "spaces") == "中|文 |ab"


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("你好，。、！？”）』ーっ「（世界 a1"), min_size=1, max_size=200))
def test_kinsoku_no_line_begins_with_closing_punctuation(text):
    for line in lines_of("字" + text, SMALL)[1:]:
        # a run of nothing but punctuation, wider than the line, must break somewhere
        if line[0] in "，。、！？）』":
            assert all(character in "，。、！？”）』ーっ「（ " for character in text) or len(text) > 12


def test_english_is_not_wrapped_as_chinese_for_one_chinese_character():
    text = "the quick brown fox jumps over the lazy dog 中 and runs away from everybody"
    words = set(text.split())
    assert all(word in words for line in lines_of(text, SMALL) for word in line.split())


def test_a_long_run_before_crlf_leaves_no_blank_line():
    lines = lines_of("x" * 100 + "\r\nend", SMALL)
    assert "".join(lines[:-1]) == "x" * 100 + "\r\n" and lines[-1] == "end"
    assert all(line.strip() for line in lines)


def test_blank_lines_and_indentation_are_kept():
    assert lines_of("a\n\n  b\n", SMALL) == ["a\n", "\n", "  b\n"]
    first, _, second = render_text("a\n\n  b\n", SMALL).page(1).line_boxes()
    assert second.width_px > first.width_px and second.y_px == first.y_px + 20


def test_tabs_advance_to_stops():
    measure = measure_of(STYLES["seer"])
    (page,) = lay_out(["\tx\na\tb\nabcd\tc\n"], measure)
    advances = measure.text("abcd").advances_sub
    stop = measure.tab_sub
    assert page.tab_widths_sub[0] == stop
    assert (int(advances[0]) + int(page.tab_widths_sub[1])) % stop == 0
    assert (int(advances.sum()) + int(page.tab_widths_sub[2])) % stop == 0


def test_newline_marks_run_lines_on():
    text = "short\nlines\nrun\non\n"
    assert len(lines_of(text, SMALL)) == 4
    assert len(lines_of(text, MARKED)) == 1
    assert "".join(lines_of(text * 20, MARKED)) == text * 20


def test_columns_fill_one_after_the_other():
    boxes = render_text("x\n" * 12, COLUMNS).page(1).line_boxes()
    left = [box.x_px for box in boxes]
    assert left[:6] == [8.0] * 6 and left[6:] == [8.0 + COLUMNS.text_width_px + 6] * 6
    assert boxes[6].y_px == boxes[0].y_px


# ── Crops and tokens ─────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab c\n中"), min_size=1, max_size=600), st.sampled_from(sorted(STYLES)))
def test_crops_lie_on_the_grid_and_hold_the_ink(text, name):
    style = STYLES[name]
    for page in render_text(text, style):
        for side, full in ((page.width_px, style.page_width_px), (page.height_px, style.page_height_px)):
            assert side == full or (side < full and side % style.snap_px == 0)
        assert GLM_41V.resized(page.width_px, page.height_px)[0] <= page.width_px  # nothing is enlarged
        for box in page.line_boxes():
            assert box.x_px + box.width_px <= page.width_px and box.y_px + box.height_px <= page.height_px + 1


def test_a_crop_never_pays_for_a_partial_row():
    for num in range(1, 80):
        page = render_text("x\n" * num, "dense").page(1)
        assert GLM_41V.tokens(page.width_px, page.height_px) == page.width_px * page.height_px // 28**2


def test_plan_counts_what_rendering_makes():
    text = "words and words\n" * 500
    for row, name in zip(plan(text, sorted(STYLES)), sorted(STYLES), strict=True):
        document = render_text(text, name)
        assert row.pages == len(document.pages)
        assert row.vision_tokens == sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)


def test_auto_is_never_dearer_than_lines_and_is_recorded():
    for text in ("short\n" * 3000, "long words that fill a line " * 2000, "好的\n" * 1500):
        document = render_text(text, "auto")
        cost = sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)
        (seer,) = plan(text, ["seer"])
        assert cost <= seer.vision_tokens
        assert document.style.name.startswith("auto:")
        assert settle(text, "auto") == document.style


def test_auto_keeps_what_the_user_set():
    style = settle("a\n" * 2000, "auto", newline="break", font_size_pt=8)
    assert style.newline == "break" and style.font_size_pt == 8


def test_unknown_styles_and_fields_are_named():
    with pytest.raises(InputError, match="did you mean 'seer'"):
        render_text("x", "ser")
    with pytest.raises(ConfigError, match="font_size_pt"):
        resolve_style("seer", font_size=8)
    with pytest.raises(ConfigError, match="margins"):
        resolve_style("seer", margin_x_px=400)
