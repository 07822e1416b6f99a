"""Documents and pages as records: access by number and offset, pages without their drawing functions, moved pages."""

from __future__ import annotations

import pytest
from fakes import make_document
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seer.schema import Document, Page, PageStyle
from seer.schema.documents import LineBox


def with_lines(page: Page) -> Page:
    """The page with one line for all of its text."""
    box = LineBox(start=page.start, end=page.end, x_px=2, y_px=3, width_px=40, height_px=10)
    return page.attach(lambda p: p, lambda _: [box])


@pytest.mark.parametrize("number", [0, 3, -1])
def test_document_page_rejects_unknown_number(number: int) -> None:
    with pytest.raises(ValueError, match=f"page {number} is not in 'fake': give a page from 1 to 2"):
        make_document(["ab", "cd"]).page(number)


@pytest.mark.parametrize("offset", [-1, 4])
def test_document_page_at_rejects_offset_outside_the_text(offset: int) -> None:
    with pytest.raises(ValueError, match=f"offset {offset} is outside 'fake': give an offset from 0 to 3"):
        make_document(["ab", "cd"]).page_at(offset)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8).filter(any))
def test_document_page_at_returns_the_page_that_contains_the_character(texts: list[str]) -> None:
    document = make_document(texts)
    for offset, character in enumerate(document.text):
        page = document.page_at(offset)
        assert page.text[offset - page.start] == character


def test_document_rejects_pages_that_do_not_join_to_the_text() -> None:
    document = make_document(["ab", "cd"])
    fields = {"name": "x", "style": PageStyle()}
    with pytest.raises(ValidationError, match="pages end at 4, text has 5 characters"):
        Document(text="abcde", pages=document.pages, **fields)
    with pytest.raises(ValidationError, match="page 2 covers"):
        Document(text="cd", pages=document.pages[1:], **fields)


@pytest.mark.parametrize(("method", "verb"), [("image", "draw"), ("png", "encode")])
def test_page_from_a_record_says_how_to_get_its_image(method: str, verb: str) -> None:
    page = Page.model_validate_json(make_document(["ab"]).pages[0].model_dump_json())
    with pytest.raises(
        ValueError, match=f"page 1 was loaded without the means to {verb} it; render its document again"
    ):
        getattr(page, method)()


def test_moved_page_moves_its_lines_and_finds_the_boxes_of_its_text() -> None:
    page = with_lines(make_document(["abcdef"]).pages[0])
    moved = page.moved(100, number=7)
    assert (moved.number, moved.start, moved.end) == (7, 100, 106)
    assert [(line.start, line.end) for line in moved.line_boxes()] == [(100, 106)]
    assert moved.span_boxes(101, 103) == page.span_boxes(1, 3)
    assert [(box.x_px, box.width_px) for box in moved.span_boxes(0, 200)] == [(2, 40)]


@pytest.mark.parametrize(("start", "end"), [(6, 9), (3, 3), (4, 2)])
def test_span_boxes_of_a_span_without_text_on_the_page_are_empty(start: int, end: int) -> None:
    assert not with_lines(make_document(["abcdef"]).pages[0]).span_boxes(start, end)
