"""Combine several documents into one: pages are numbered consecutively, and each page records its own file.

>>> from seer import combine, render_text
>>> document = combine([render_text("one", name="a.txt"), render_text("two", name="b.txt")])
>>> [(page.number, page.source, page.source_number) for page in document]
[(1, 'a.txt', 1), (2, 'b.txt', 1)]
"""

from __future__ import annotations

from collections.abc import Sequence

from seer.errors import InputError
from seer.schema import Document, DocumentWarning, MissingGlyph, Page


def combine(documents: Sequence[Document]) -> Document:
    """Return one document whose text is the texts of `documents` in order.

    Pages keep their images, line boxes and labels. `source` and `source_number` record the file and the page in it.
    Spans and offsets refer to the combined text. A single document is returned unchanged.

    Raises InputError if `documents` is empty.
    """
    if not documents:
        raise InputError("documents=[]: must hold at least one document")
    if len(documents) == 1:
        return documents[0]
    pages: list[Page] = []
    missing: list[MissingGlyph] = []
    warnings: list[DocumentWarning] = []
    offset = 0
    for document in documents:
        warnings += [_moved(warning, document, len(pages)) for warning in document.warnings]
        for page in document.pages:
            source = {"source": document.name, "source_number": page.number}
            pages.append(page.moved(offset, number=len(pages) + 1, **source))
        missing += [
            glyph.model_copy(update={"offsets": tuple(place + offset for place in glyph.offsets)})
            for glyph in document.missing_glyphs
        ]
        offset += len(document.text)
    return Document(
        name=", ".join(document.name for document in documents),
        text="".join(document.text for document in documents),
        style=documents[0].style,
        pages=tuple(pages),
        missing_glyphs=tuple(missing),
        warnings=tuple(sorted(warnings, key=lambda warning: warning.page or 0)),
    )


def _moved(warning: DocumentWarning, document: Document, pages_before: int) -> DocumentWarning:
    """Return a warning with its page in the combined document; one about the whole document names the file instead."""
    if warning.page is not None:
        return warning.model_copy(update={"page": warning.page + pages_before})
    return warning.model_copy(update={"message": f"'{document.name}': {warning.message}"})
