"""Layout: every character is on exactly one page, lines fit their column, and crops lie on the grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.protocol.geometry import GLM_41V
from seer.rendering import STYLES, render_text, resolve_style, stream
from seer.rendering.layout import lines as layout_module
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import lay_out, line_widths
from seer.rendering.layout.measure import Measure
from seer.rendering.layout.placing import measure_page

SMALL = resolve_style("seer", page_width_px=140, page_height_px=84, margin_x_px=8, margin_y_px=8)
MARKED = resolve_style(SMALL, newline="mark")
COLUMNS = resolve_style(SMALL, columns=2, column_gap_px=6, page_width_px=200)
CROPPED = resolve_style(SMALL, crop_width=True, breaking="spaces")

# Characters that are known to break text renderers.
AWKWARD = "ab c-d/e.1%\n\r\t\f\v\0\x85\u2028\u00ad\u200b\u200d\u0301\ufeff\ud800中文，。“”（）אב\u202eعر😀\U0010ffff  "
awkward_text = st.text(st.sampled_from(AWKWARD), min_size=1, max_size=400) | st.text(min_size=1, max_size=120)
any_style = st.sampled_from([SMALL, MARKED, COLUMNS, CROPPED])


def lines_of(text: str, style) -> list[str]:
    """The source text of each line."""
    document = render_text(text, style)
    return [text[box.start : box.end] for page in document for box in page.line_boxes()]


def measure_of(style) -> Measure:
    return Measure(style, load_chain(style.fonts))


@settings(max_examples=150, deadline=None)
@given(awkward_text, any_style)
def test_render_text_page_and_line_texts_join_to_source(text, style):
    document = render_text(text, style)
    assert "".join(page.text for page in document) == text
    boxes = [box for page in document for box in page.line_boxes()]
    assert "".join(text[box.start : box.end] for box in boxes) == text
    assert all(page.text == text[page.start : page.end] for page in document)


@settings(max_examples=80, deadline=None)
@given(awkward_text, any_style)
def test_lay_out_lines_fit_their_column(text, style):
    measure = measure_of(style)
    for page in lay_out([text], measure):
        measured = measure_page(page, measure)
        widths = line_widths(measured, page.line_starts.astype(np.int64))
        for k, width in enumerate(widths.tolist()):
            line = page.text[page.line_starts[k] : page.line_starts[k + 1]]
            # A single cluster may be wider than the column.
            assert width <= measure.limit_sub or len(line.strip()) <= 2 or not line.isascii()


@settings(max_examples=40, deadline=None)
@given(awkward_text, any_style, st.lists(st.integers(0, 400), max_size=5))
def test_stream_pages_do_not_depend_on_pieces(text, style, cuts):
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = [(page.text, page.content_hash) for page in render_text(text, style)]
    assert [(page.text, page.content_hash) for page in stream(pieces, style)] == whole


@settings(max_examples=25, deadline=None)
@given(st.text(st.sampled_from("ab c\n中。\t"), min_size=1, max_size=1500))
def test_lay_out_small_windows_give_same_pages(text):
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
def test_render_text_long_run_of_one_character_is_kept(text):
    document = render_text(text)
    assert "".join(page.text for page in document) == text
    assert document.page(1).image().shape == (document.page(1).height_px, document.page(1).width_px)


def test_render_text_rejects_empty_text():
    with pytest.raises(InputError, match="empty"):
        render_text("")
    assert list(stream([])) == []


# ── Where lines break ────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("你好，。、！？”）』ーっ「（世界 a1"), min_size=1, max_size=200))
def test_lines_never_begin_with_closing_punctuation(text):
    for line in lines_of("字" + text, SMALL)[1:]:
        # A run of punctuation that is wider than the line has to break somewhere.
        if line[0] in "，。、！？）』":
            assert all(character in "，。、！？”）』ーっ「（ " for character in text) or len(text) > 12


def test_english_with_one_chinese_character_breaks_between_words():
    text = "the quick brown fox jumps over the lazy dog 中 and runs away from everybody"
    words = set(text.split())
    assert all(word in words for line in lines_of(text, SMALL) for word in line.split())


def test_long_run_before_crlf_adds_no_blank_line():
    lines = lines_of("x" * 100 + "\r\nend", SMALL)
    assert "".join(lines[:-1]) == "x" * 100 + "\r\n" and lines[-1] == "end"
    assert all(line.strip() for line in lines)


def test_layout_keeps_blank_lines_and_indentation():
    assert lines_of("a\n\n  b\n", SMALL) == ["a\n", "\n", "  b\n"]
    first, _, second = render_text("a\n\n  b\n", SMALL).page(1).line_boxes()
    assert second.width_px > first.width_px and second.y_px == first.y_px + 20


def test_tabs_advance_to_tab_stops():
    measure = measure_of(STYLES["seer"])
    (page,) = lay_out(["\tx\na\tb\nabcd\tc\n"], measure)
    advances = measure.text("abcd").advances_sub
    stop = measure.tab_sub
    assert page.tab_widths_sub[0] == stop
    assert (int(advances[0]) + int(page.tab_widths_sub[1])) % stop == 0
    assert (int(advances.sum()) + int(page.tab_widths_sub[2])) % stop == 0


def test_newline_marks_join_short_lines():
    text = "short\nlines\nrun\non\n"
    assert len(lines_of(text, SMALL)) == 4
    assert len(lines_of(text, MARKED)) == 1
    assert "".join(lines_of(text * 20, MARKED)) == text * 20


def test_columns_fill_from_left_to_right():
    boxes = render_text("x\n" * 12, COLUMNS).page(1).line_boxes()
    left = [box.x_px for box in boxes]
    assert left[:6] == [8.0] * 6 and left[6:] == [8.0 + COLUMNS.text_width_px + 6] * 6
    assert boxes[6].y_px == boxes[0].y_px


# ── Crops and tokens ─────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab c\n中"), min_size=1, max_size=600), st.sampled_from(sorted(STYLES)))
def test_crops_lie_on_grid_and_contain_all_lines(text, name):
    style = STYLES[name]
    for page in render_text(text, style):
        for side, full in ((page.width_px, style.page_width_px), (page.height_px, style.page_height_px)):
            assert side == full or (side < full and side % style.snap_px == 0)
        assert GLM_41V.resized(page.width_px, page.height_px)[0] <= page.width_px  # nothing is enlarged
        for box in page.line_boxes():
            assert box.x_px + box.width_px <= page.width_px and box.y_px + box.height_px <= page.height_px + 1


def test_crop_of_dense_page_has_no_partial_cells():
    for num in range(1, 80):
        page = render_text("x\n" * num, "dense").page(1)
        assert GLM_41V.tokens(page.width_px, page.height_px) == page.width_px * page.height_px // 28**2
