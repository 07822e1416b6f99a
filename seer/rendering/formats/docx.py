"""Word documents (.docx) to text: paragraphs, tables, footnotes; deleted text is left out.

The archive is untrusted: its declared sizes are checked before anything is unpacked, unpacking stops at a limit
whatever was declared, and XML with a document type, the door to entity bombs, is refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree

from seer.errors import InputError

MAX_XML_BYTES = 32 << 20
"""Unpacked size of one part. A thousand pages of prose come to about 10 MB; parsed, a byte can take forty."""
BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ElementTree.ParseError),
    *(EOFError, OSError, NotImplementedError, ValueError),
)
"""What zipfile and the XML parser raise on damaged files."""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")


def docx_text(data: bytes, name: str) -> str:
    """The text of a .docx. Raises InputError: damaged, encrypted, too large when unpacked, hostile."""
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
            f"'{name}' is a damaged .docx ({error}); open it in a word processor and save it again"
        ) from None
    except _Doctype:
        raise InputError(
            f"'{name}' holds a document type in its XML, which no word processor writes; it is refused"
        ) from None
    except RecursionError:
        raise InputError(f"'{name}' nests its XML too deeply, which no word processor does; it is refused") from None
    except RuntimeError as error:  # zipfile's word for an encrypted member
        raise InputError(f"'{name}' cannot be unpacked ({error}); save it without a password") from None
    return "".join(texts)


def _unpack(archive: zipfile.ZipFile, part: str, name: str) -> bytes:
    too_large = InputError(
        f"'{name}' unpacks to more than {MAX_XML_BYTES >> 20} MB of text, as zip bombs do; split the document"
    )
    if archive.getinfo(part).file_size > MAX_XML_BYTES:
        raise too_large
    with archive.open(part) as file:
        xml = file.read(MAX_XML_BYTES + 1)
    if len(xml) > MAX_XML_BYTES:
        raise too_large
    return xml


class _Doctype(Exception):
    """The XML holds a document type."""


class _NoDoctype(ElementTree.TreeBuilder):
    """Told by the parser itself, so that no encoding of the XML hides a document type."""

    def doctype(self, *_: str | None) -> None:
        raise _Doctype


def _part_text(xml: bytes) -> str:
    out: list[str] = []
    _walk(ElementTree.fromstring(xml, ElementTree.XMLParser(target=_NoDoctype())), out)
    return "".join(out)


def _walk(element: ElementTree.Element, out: list[str]) -> None:
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
        elif tag in ("del", "moveFrom", "pPr", "rPr", "instrText", "delText") or child.tag == _FALLBACK:
            continue
        else:
            _walk(child, out)
            if tag == "p":
                out.append("\n")


def _cells(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The cells of a row, whatever is wrapped around them; those of a table within a cell are that cell's text."""
    for child in element:
        if child.tag == f"{_WORD}tc":
            yield child
        else:
            yield from _cells(child)


def _row(row: ElementTree.Element, out: list[str]) -> None:
    """One table row on one line: cells parted by tabs, paragraphs within a cell by spaces."""
    cells = []
    for cell in _cells(row):
        inner: list[str] = []
        _walk(cell, inner)
        cells.append(" ".join("".join(inner).split("\n")).strip())
    out.append("\t".join(cells) + "\n")
