"""The table of formats in docs/documents.md: every format that is read has its row, and every row is held by tests."""

from __future__ import annotations

import re
from pathlib import Path

from seer.rendering.formats.registry import FORMATS

ROOT = Path(__file__).parents[3]
HELD_BY = {
    "text": ("text", "test_text.py"),
    "HTML": ("html", "test_html.py"),
    "Word": ("docx", "office/test_docx_parts.py"),
    "Excel": ("xlsx", "extra/test_spreadsheets.py"),
    "CSV": ("csv", "extra/test_spreadsheets.py"),
    "PowerPoint": ("pptx", "extra/test_extra.py"),
    "OpenDocument": ("opendocument", "extra/test_extra.py"),
    "EPUB": ("epub", "extra/test_extra.py"),
    "RTF": ("rtf", "extra/test_extra.py"),
    "e-mail": ("eml msg", "extra/test_mail.py"),
    "notebook": ("ipynb", "extra/test_extra.py"),
    "PDF": ("pdf", "pdf/test_pdf_shown.py"),
    "image": ("image", "test_slicing.py"),
}
"""By row: the formats of the registry, and the file whose tests show what is kept and what is warned about."""
KINDS = {
    "Word": ("hidden-text", "drawing", "symbol", "formula"),
    "Excel": ("hidden-text", "formula"),
    "PowerPoint": ("hidden-text", "drawing"),
    "OpenDocument": ("hidden-text", "drawing"),
    "RTF": ("hidden-text", "drawing"),
    "e-mail": ("attachment",),
    "notebook": ("drawing",),
    "PDF": ("hidden-text", "comment", "damaged-page"),
    "image": ("frames",),
}
"""Kinds of warnings that the tests of a row must show."""


def rows() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "documents.md").read_text(encoding="utf-8")
    table = text[text.index("| format | what is kept |") :].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


def test_guide_has_a_row_for_every_format():
    assert set(rows()) == set(HELD_BY)
    assert {name for names, _ in HELD_BY.values() for name in names.split()} == set(FORMATS)
    assert all(len(cells) == 3 and cells[0] and cells[2] for cells in rows().values())


def test_guide_rows_are_held_by_tests_of_their_warnings():
    for row, (_, file) in HELD_BY.items():
        tests = (ROOT / "tests" / "rendering" / "formats" / file).read_text(encoding="utf-8")
        assert re.search(r"^def test_", tests, re.MULTILINE), file
        missing = [kind for kind in KINDS.get(row, ()) if f'"{kind}"' not in tests]
        assert not missing, f"{row}: no test in {file} names {missing}"
