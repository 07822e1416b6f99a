"""Extract the text of Word documents (.docx): paragraphs, tables, footnotes and endnotes.

    extract = read_docx(data, name, None)

Paragraphs end with a newline, table cells are separated by tabs. Deleted text of tracked changes is left out.

The archive is untrusted. Its declared sizes are checked before anything is unpacked, unpacking stops at a limit
whatever size was declared, and XML with a document type, which entity bombs need, is rejected.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree

from seer.errors import InputError
from seer.rendering.formats.extract import Extract

MAX_XML_BYTES = 32 << 20
"""Limit on the unpacked size of one part. A thousand pages of prose take about 10 MB. The parsed tree can take forty
bytes of memory per byte of XML."""
BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ElementTree.ParseError),
    *(EOFError, OSError, NotImplementedError, ValueError),
)
"""The exceptions that zipfile and the XML parser raise for damaged files."""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")


def read_docx(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a .docx file; `name` appears in error messages. `encoding` is not used: the XML declares its own.

    Raises InputError if the file is damaged or encrypted, unpacks to more than MAX_XML_BYTES, holds a document type,
    or nests its XML too deeply.
    """
    texts = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = set(archive.namelist())
            for part in _PARTS:
                if part in members:
                    texts.append(_part_text(_unpack(archive, part, name)))
    except InputError:
        raise
    except BROKEN_ZIP as error:
        raise InputError(
            f"'{name}' is a damaged .docx file ({error}); open it in a word processor and save it again"
        ) from None
    except _Doctype:
        raise InputError(
            f"'{name}' declares a document type in its XML, which is not allowed in a .docx file; save it again from a word "
            "processor"
        ) from None
    except RecursionError:
        raise InputError(f"'{name}' nests its XML too deeply to be read; save it again from a word processor") from None
    except RuntimeError as error:  # zipfile raises this for an encrypted member.
        raise InputError(f"'{name}' cannot be unpacked ({error}); save it without a password") from None
    return Extract("".join(texts))


def _unpack(archive: zipfile.ZipFile, part: str, name: str) -> bytes:
    """Unpack one part of the archive, at most MAX_XML_BYTES."""
    too_large = InputError(
        f"'{name}' unpacks to more than {MAX_XML_BYTES >> 20} MB of text, the limit; split the document"
    )
    if archive.getinfo(part).file_size > MAX_XML_BYTES:
        raise too_large
    with archive.open(part) as file:
        xml = file.read(MAX_XML_BYTES + 1)
    # The declared size can be wrong, so the size read is checked too.
    if len(xml) > MAX_XML_BYTES:
        raise too_large
    return xml


class _Doctype(Exception):
    """The XML declares a document type."""


class _NoDoctype(ElementTree.TreeBuilder):
    """A tree builder that rejects a document type.

    The parser itself reports the document type, so no encoding of the XML can hide it.
    """

    def doctype(self, *_: str | None) -> None:
        raise _Doctype


def _part_text(xml: bytes) -> str:
    """Return the text of one part of the document, such as word/document.xml."""
    out: list[str] = []
    _walk(ElementTree.fromstring(xml, ElementTree.XMLParser(target=_NoDoctype())), out)
    return "".join(out)


def _walk(element: ElementTree.Element, out: list[str]) -> None:
    """Append the text below `element` to `out`, in document order."""
    for child in element:
        tag = child.tag.removeprefix(_WORD)
        if tag == "t":
            out.append(child.text or "")
        elif tag in ("tab", "ptab"):
            out.append("\t")
        elif tag in ("br", "cr"):
            out.append("\n")
        elif tag == "noBreakHyphen":
            out.append("\u2011")
        elif tag == "tr":
            _row(child, out)
        # Deleted or moved text, properties, field codes, and the fallback copy of content that newer Word versions
        # store twice.
        elif tag in ("del", "moveFrom", "pPr", "rPr", "instrText", "delText") or child.tag == _FALLBACK:
            continue
        else:
            _walk(child, out)
            if tag == "p":
                out.append("\n")


def _cells(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yield the cells of a row, also those inside wrappers such as content controls.

    A table within a cell is part of that cell's text, so its cells are not yielded.
    """
    for child in element:
        if child.tag == f"{_WORD}tc":
            yield child
        else:
            yield from _cells(child)


def _row(row: ElementTree.Element, out: list[str]) -> None:
    """Append a table row as one line: cells separated by tabs, paragraphs within a cell by spaces."""
    cells = []
    for cell in _cells(row):
        inner: list[str] = []
        _walk(cell, inner)
        cells.append(" ".join("".join(inner).split("\n")).strip())
    out.append("\t".join(cells) + "\n")
