"""Combined documents: every page records the file and the page it comes from."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import make_document

from seer.errors import InputError
from seer.rendering import render_text
from seer.rendering.collection import combine


def test_combine_numbers_pages_and_records_sources():
    first, second = make_document(["a\n", "b\n"], name="one.txt"), make_document(["c\n"], name="two.txt")
    document = combine([first, second])
    assert document.text == "a\nb\nc\n"
    assert [(p.number, p.source, p.source_number, p.text) for p in document] == [
        (1, "one.txt", 1, "a\n"),
        (2, "one.txt", 2, "b\n"),
        (3, "two.txt", 1, "c\n"),
    ]
    np.testing.assert_array_equal(document.page(3).image(), second.page(1).image())


def test_combine_shifts_line_boxes_and_missing_glyphs():
    first, second = render_text("first\n", name="1"), render_text("x\U000f0000y\n", name="2")
    document = combine([first, second])
    for page in document:
        for box in page.line_boxes():
            assert page.start <= box.start <= box.end <= page.end
    (glyph,) = document.missing_glyphs
    assert [document.text[offset] for offset in glyph.offsets] == ["\U000f0000"]


def test_combine_returns_single_document_and_rejects_none():
    alone = make_document(["x"])
    assert combine([alone]) is alone
    with pytest.raises(InputError):
        combine([])


def test_load_page_selection_keeps_line_spans(tmp_path):
    from seer.rendering import load

    path = tmp_path / "long.txt"
    path.write_text("".join(f"line number {n} of a longer text\n" for n in range(400)))
    whole, part = load(path), load(path, pages="2-3")
    assert [page.label for page in part] == ["2", "3"]
    assert part.text == whole.page(2).text + whole.page(3).text
    for page, former in zip(part, whole.pages[1:3], strict=True):
        assert page.png() == former.png()
        assert [part.text[box.start : box.end] for box in page.line_boxes()] == [
            whole.text[box.start : box.end] for box in former.line_boxes()
        ]
