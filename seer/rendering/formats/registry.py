"""The formats that Seer reads.

    FORMATS["docx"].read(data, "notes.docx", None)      # an Extract

A format whose text is laid out has a reader: `read(data, name, encoding)` returns an `Extract` and raises InputError for
a damaged file. A reader's module is imported when it is first used, so a format with an optional dependency costs
nothing until a file needs it. PDFs and images keep their own pages and have no reader here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from seer.rendering.formats.extract import Extract


@dataclass(frozen=True)
class Format:
    """A format of documents.

    `title` names a file of this format in a sentence. `extensions` are those that promise this format: a file that has
    one and holds something else gets a warning. `reader` is "module:function", or None for formats with own pages.
    """

    title: str
    extensions: tuple[str, ...] = ()
    reader: str | None = None

    def read(self, data: bytes, name: str, encoding: str | None) -> Extract:
        """Return the text of a file of this format; see the module for the reader's contract."""
        assert self.reader is not None, f"{self.title} keeps its own pages"
        module, function = self.reader.split(":")
        extract: Extract = getattr(import_module(module), function)(data, name, encoding)
        return extract


_EXTRA = "seer.rendering.formats.extra"
_IMAGE_EXTENSIONS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".heic")

FORMATS: Mapping[str, Format] = {
    "pdf": Format("a PDF", (".pdf",)),
    "image": Format("an image", _IMAGE_EXTENSIONS),
    "text": Format("text", (), "seer.rendering.formats.text:read_text"),
    "html": Format("a web page", (), "seer.rendering.formats.markup.html:read_html"),
    "docx": Format("a Word file", (".docx",), "seer.rendering.formats.office.docx:read_docx"),
    "xlsx": Format("an Excel workbook", (".xlsx", ".xlsm"), f"{_EXTRA}.spreadsheets:read_xlsx"),
    "csv": Format("a CSV file", (), f"{_EXTRA}.spreadsheets:read_csv"),
    "pptx": Format("a PowerPoint presentation", (".pptx",), f"{_EXTRA}.slides:read_pptx"),
    "opendocument": Format(
        "an OpenDocument file", (".odt", ".ods", ".odp"), f"{_EXTRA}.opendocument:read_opendocument"
    ),
    "epub": Format("an EPUB book", (".epub",), f"{_EXTRA}.epub:read_epub"),
    "rtf": Format("an RTF file", (".rtf",), f"{_EXTRA}.richtext:read_rtf"),
    "eml": Format("an e-mail", (), f"{_EXTRA}.mail:read_eml"),
    "msg": Format("an Outlook message", (".msg",), f"{_EXTRA}.mail:read_msg"),
    "ipynb": Format("a notebook", (), f"{_EXTRA}.notebooks:read_notebook"),
}
"""Every format by its name."""
