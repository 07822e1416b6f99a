"""Regions: spans of text and the boxes that they have on the pages."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from fakes import make_document
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seer.rendering import load, render_text
from seer.rendering.collection import combine
from seer.rendering.documents import keep_pages
from seer.rendering.regions import regions_of
from seer.schema import Box, Document, LineBox

WORDS = "the harbour office closed at noon, and every ship had left"


def only_box(document: Document, start: int, end: int) -> Box:
    (region,) = regions_of(document, start, end)
    (box,) = region.boxes
    return box


def width_of(text: str) -> float:
    return render_text(text).page(1).line_boxes()[0].width_px


@given(st.integers(0, len(WORDS) - 1), st.integers(1, len(WORDS)))
@settings(max_examples=60, deadline=None)
def test_regions_of_one_line_end_at_their_first_and_last_character(start, end):
    # A line's measured width leaves out the spaces at its end, so the edges must not fall on a space.
    assume(start < end and not WORDS[start].isspace() and not WORDS[end - 1].isspace())
    document = render_text(WORDS)
    line = document.page(1).line_boxes()[0]
    box = only_box(document, start, end)
    before = width_of(WORDS[:start] + "|") - width_of("|")
    assert box.x_px == pytest.approx(line.x_px + before, abs=0.01)
    assert box.width_px == pytest.approx(width_of(WORDS[start:end]), abs=0.01)
    assert (box.y_px, box.height_px) == (line.y_px, line.height_px)


def test_regions_of_several_lines_have_a_box_for_each_line():
    text = "first line\nsecond line\nthird line\n"
    document = render_text(text)
    (region,) = regions_of(document, text.index("line"), text.index("third") + 5, kind="quote")
    lines = document.page(1).line_boxes()
    assert (region.page, region.kind) == (1, "quote")
    first, second, third = region.boxes
    assert first.x_px > lines[0].x_px
    assert first.x_px + first.width_px == pytest.approx(lines[0].x_px + lines[0].width_px)
    assert (second.x_px, second.width_px) == (lines[1].x_px, lines[1].width_px)
    assert third.x_px == lines[2].x_px and third.width_px == pytest.approx(width_of("third"))


def test_regions_across_a_page_break_are_one_for_each_page():
    document = render_text("a line of the report\n" * 200)
    page_break = document.page(1).end
    before, after = regions_of(document, page_break - 7, page_break + 6)
    assert [(region.page, region.start, region.end) for region in (before, after)] == [
        (1, page_break - 7, page_break),
        (2, page_break, page_break + 6),
    ]
    assert before.boxes[0].y_px > after.boxes[0].y_px
    assert after.boxes[0].x_px == document.page(2).line_boxes()[0].x_px


def test_regions_cover_pages_that_the_span_holds_whole():
    document = render_text("a line of the report\n" * 400)
    regions = regions_of(document, 0, len(document.text))
    assert [region.page for region in regions] == [page.number for page in document.pages]
    for region, page in zip(regions, document.pages, strict=True):
        boxes = [(box.x_px, box.y_px, box.width_px) for box in region.boxes]
        assert boxes == [(line.x_px, line.y_px, line.width_px) for line in page.line_boxes()]


def test_regions_of_mixed_directions_have_a_box_for_each_stretch():
    text = "שלום hello עולם"
    document = render_text(text)
    # In a right-to-left line "hello" reads from left to right, so its first letters are left of its last ones.
    (region,) = regions_of(document, 0, text.index("lo"))
    english, hebrew = region.boxes
    assert english.x_px + english.width_px < hebrew.x_px
    assert english.width_px == pytest.approx(width_of("hel"), abs=0.01)
    (rest,) = regions_of(document, text.index("lo"), text.index("lo") + 2)
    assert rest.boxes[0].x_px == pytest.approx(english.x_px + english.width_px, abs=0.01)


@pytest.mark.parametrize(("text", "mark"), [("one e\u0301 two", 5), ("سلام", 2)])
def test_regions_of_part_of_a_cluster_take_the_whole_cluster(text, mark):
    document = render_text(text)
    assert only_box(document, mark, mark + 1) == only_box(document, mark - 1, mark + 1)
    assert only_box(document, mark, mark + 1).width_px > 0


def test_regions_of_newlines_have_no_boxes():
    (region,) = regions_of(render_text("one\ntwo\n"), 3, 4)
    assert (region.start, region.end, region.boxes) == (3, 4, ())


def test_regions_of_hanging_spaces_stay_within_their_line():
    document = render_text("word " * 200)
    lines = document.page(1).line_boxes()
    (region,) = regions_of(document, lines[0].end - 5, lines[0].end)
    assert region.boxes[-1].x_px + region.boxes[-1].width_px <= lines[0].x_px + lines[0].width_px


def test_regions_of_kept_and_combined_pages_are_where_the_pages_had_them():
    whole = render_text("a line of the report\n" * 200)
    start = whole.page(2).start + 2
    expected = only_box(whole, start, start + 4)
    kept = keep_pages(whole, "2")
    assert only_box(kept, 2, 6) == expected
    joined = combine([render_text("a preface\n"), whole])
    shift = len("a preface\n")
    (region,) = regions_of(joined, start + shift, start + shift + 4)
    assert (region.page, region.boxes) == (3, (expected,))


def make_pdf(*lines: str) -> bytes:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(buffer := io.BytesIO(), pagesize=(400, 120))
    for n, line in enumerate(lines):
        canvas.drawString(40, 90 - 20 * n, line)
    canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def test_regions_of_a_pdf_hold_the_ink_of_each_character(tmp_path):
    path = tmp_path / "report.pdf"
    path.write_bytes(make_pdf("Wide words move", "further along"))
    document = load(path)
    image, line_end = document.page(1).image(), document.text.index("\n")
    letters = [n for n in range(line_end) if not document.text[n].isspace()]
    boxes = [only_box(document, n, n + 1) for n in letters]
    for box in boxes:
        columns = slice(round(box.x_px), max(round(box.x_px) + 1, round(box.x_px + box.width_px)))
        rows = slice(int(box.y_px), int(box.y_px + box.height_px) + 2)
        assert np.min(image[rows, columns]) < 200
    assert all(left.x_px < right.x_px for left, right in itertools.pairwise(boxes))
    # A span across the line break is cut at its ends: it starts at "move" and stops after "further".
    (region,) = regions_of(document, document.text.index("move"), document.text.index(" along"))
    first, second = region.boxes
    line, below = document.page(1).line_boxes()
    assert first.x_px > line.x_px + line.width_px / 2
    assert second.x_px == pytest.approx(below.x_px) and second.width_px < below.width_px * 0.7


def test_regions_of_lines_without_character_positions_take_whole_lines():
    document = make_document(["first line\nsecond line\n"])
    lines = [
        LineBox(start=0, end=11, x_px=5, y_px=6, width_px=50, height_px=9),
        LineBox(start=11, end=23, x_px=5, y_px=16, width_px=60, height_px=9),
    ]
    page = document.page(1)
    page.attach(lambda page: page.image(), lambda _: lines)
    (region,) = regions_of(document, 6, 13)
    assert [(box.x_px, box.width_px) for box in region.boxes] == [(5, 50), (5, 60)]
    assert only_box(document, 12, 14).y_px == 16


def test_regions_without_known_lines_have_no_boxes():
    (region,) = regions_of(make_document(["some text\n"]), 2, 4)
    assert (region.page, region.boxes) == (1, ())


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 100), (4, 2)])
def test_regions_of_rejects_spans_outside_the_text(start, end):
    with pytest.raises(ValueError, match=rf"span \[{start}, {end}\) of 'fake': must lie within its 10 characters"):
        regions_of(make_document(["some text\n"]), start, end)


def test_regions_of_an_empty_span_are_none():
    assert regions_of(make_document(["some text\n"]), 4, 4) == ()
