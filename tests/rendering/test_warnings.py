"""Warnings of documents: they follow their pages through selection, reflow and combination."""

from __future__ import annotations

from seer.rendering import documents, load, render_text
from seer.rendering.collection import combine
from seer.rendering.documents import keep_pages
from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.registry import Format
from seer.schema import Document, DocumentWarning
from tests.rendering.makers import make_pdf, write_file

TEXT = "A sentence of a document that takes several pages.\n" * 400


def with_warnings(*warnings: DocumentWarning, text: str = TEXT) -> Document:
    return render_text(text, name="a.txt").model_copy(update={"warnings": warnings})


def test_load_turns_notice_into_warning_of_its_page(tmp_path, monkeypatch):
    notices = (
        Notice("formula", "a formula is lost", len(TEXT) - 1),
        Notice("drawing", "a drawing", 0),
        Notice("x", "whole"),
    )
    monkeypatch.setattr(Format, "read", lambda *_: Extract(TEXT, notices))
    document = load(write_file(tmp_path, "a.txt", TEXT))
    found = [(warning.kind, warning.page) for warning in document.warnings]
    assert found == [("x", None), ("drawing", 1), ("formula", len(document.pages))]


def test_keep_pages_keeps_and_renumbers_warnings_of_kept_pages():
    one, three = (DocumentWarning(kind="formula", message=f"of page {n}", page=n) for n in (1, 3))
    kept = keep_pages(with_warnings(one, three), "2-3")
    assert kept.warnings == (three.model_copy(update={"page": 2}),)


def test_keep_pages_counts_missing_glyphs_of_kept_pages_only():
    document = render_text(TEXT + "\U0001f9ec")
    assert [warning.kind for warning in document.warnings] == ["missing-glyph"]
    assert keep_pages(document, "1").warnings == ()
    assert [warning.kind for warning in keep_pages(document, f"{len(document.pages)}").warnings] == ["missing-glyph"]


def test_combine_shifts_pages_of_warnings_and_names_the_document():
    first = with_warnings(DocumentWarning(kind="name", message="odd"))
    second = with_warnings(DocumentWarning(kind="formula", message="lost", page=2))
    whole, page = combine([first, second]).warnings
    assert whole.message == "'a.txt': odd"
    assert page.page == len(first.pages) + 2


def test_reflow_names_the_page_of_the_file(tmp_path, monkeypatch):
    warning = DocumentWarning(kind="hidden-text", message="white text is left out", page=2)
    real = documents.load_pdf
    monkeypatch.setattr(
        documents, "load_pdf", lambda *a, **k: real(*a, **k).model_copy(update={"warnings": (warning,)})
    )
    path = write_file(tmp_path, "a.pdf", make_pdf(3))
    assert load(path).warnings == (warning,)
    (moved,) = load(path, reflow=True).warnings
    assert (moved.page, moved.message) == (None, "page 2 of the file: white text is left out")
