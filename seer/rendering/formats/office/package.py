"""Parts of an Office Open XML file: an untrusted zip archive of XML parts that relationships connect.

    with open_package(data, "notes.docx") as package:
        main = package.main_part()
        root = package.read(main)                     # tags such as "w:p", whatever the namespaces of the file
        package.related(main, "numbering")            # names of parts

Declared sizes are checked before anything is unpacked, unpacking stops at a limit whatever size was declared, and XML
with a document type, which entity bombs need, is rejected.
"""

from __future__ import annotations

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from seer.errors import InputError
from seer.rendering.formats.extract import cause_of

MAX_XML_BYTES = 32 << 20
"""Limit on the unpacked size of one part. A thousand pages of prose take about 10 MB. The parsed tree can take forty
bytes of memory per byte of XML."""
MAX_TOTAL_BYTES = 2 * MAX_XML_BYTES
"""Limit on the unpacked size of all parts that are read."""
_MAX_RELATED = 100
"""Parts of one kind, such as headers, that are read."""
BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ElementTree.ParseError),
    *(EOFError, OSError, NotImplementedError, ValueError),
)
"""The exceptions that zipfile and the XML parser raise for damaged files."""
_PREFIXES = {
    # Transitional and Strict files use different names for the same namespaces.
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m",
    "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing": "wp",
    "http://purl.oclc.org/ooxml/drawingml/wordprocessingDrawing": "wp",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "urn:schemas-microsoft-com:vml": "v",
}
Element = ElementTree.Element


def tag_of(element: Element) -> str:
    """Return the tag of an element with a fixed prefix, such as "w:p"; a tag of another namespace has no prefix."""
    return _short(element.tag)


def attribute(element: Element, name: str) -> str:
    """Return an attribute by its local name, whatever its namespace; empty if there is none."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return value
    return ""


def child(element: Element | None, *path: str) -> Element | None:
    """Return the first descendant along a path of short tags, or None."""
    for tag in path:
        if element is None:
            return None
        element = next((one for one in element if tag_of(one) == tag), None)
    return element


def _short(tag: str) -> str:
    namespace, _, local = tag.rpartition("}")
    prefix = _PREFIXES.get(namespace[1:]) if namespace else None
    return f"{prefix}:{local}" if prefix else local


class Package:
    """An open archive."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        self._members = set(archive.namelist())
        self._unpacked_bytes = 0

    def main_part(self) -> str:
        """Return the name of the main part: the one that the package names, else word/document.xml."""
        found = self._relationships("").get("officeDocument", [])
        return next((part for part in found if part in self._members), "word/document.xml")

    def related(self, part: str, kind: str) -> list[str]:
        """Return the parts of a kind, such as "numbering", that a part refers to; else the part of the usual name."""
        # Several relationships may lead to one part, which is read once.
        named = dict.fromkeys(self._relationships(part).get(kind, []))
        found = [name for name in named if name in self._members][:_MAX_RELATED]
        usual = posixpath.join(posixpath.dirname(part), f"{kind}.xml")
        return found or ([usual] if usual in self._members else [])

    def read(self, part: str) -> Element | None:
        """Return the root element of a part, or None if the archive does not have it.

        Raises InputError if it unpacks to more than MAX_XML_BYTES, and `Doctype` for a document type.
        """
        if part not in self._members:
            return None
        too_large = InputError(
            f"'{self._name}' unpacks to more than {MAX_XML_BYTES >> 20} MB of text, the limit; split the document"
        )
        if self._archive.getinfo(part).file_size > MAX_XML_BYTES:
            raise too_large
        with self._archive.open(part) as file:
            xml = file.read(MAX_XML_BYTES + 1)
        # The declared size can be wrong, so the size read is checked too.
        self._unpacked_bytes += len(xml)
        if len(xml) > MAX_XML_BYTES or self._unpacked_bytes > MAX_TOTAL_BYTES:
            raise too_large
        return ElementTree.fromstring(xml, ElementTree.XMLParser(target=_NoDoctype()))

    def _relationships(self, part: str) -> dict[str, list[str]]:
        """Return the targets of a part's relationships inside the archive, by the last word of their type."""
        folder, file = posixpath.split(part)
        root = self.read(posixpath.join(folder, "_rels", f"{file}.rels"))
        found: dict[str, list[str]] = {}
        for one in root if root is not None else ():
            if attribute(one, "TargetMode") != "External":
                target = attribute(one, "Target")
                path = (
                    target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
                )
                found.setdefault(attribute(one, "Type").rpartition("/")[2], []).append(path)
        return found


@contextmanager
def open_package(data: bytes, name: str) -> Iterator[Package]:
    """Open an archive. Inside the block, and on entering it, faults of the file raise InputError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield Package(archive, name)
    except InputError:
        raise
    except BROKEN_ZIP as error:
        raise InputError(
            f"'{name}' is a damaged .docx file ({cause_of(error)}); open it in a word processor and save it again"
        ) from None
    except Doctype:
        raise InputError(
            f"'{name}' declares a document type in its XML, which is not allowed in a .docx file; save it again from a word "
            "processor"
        ) from None
    except RecursionError:
        raise InputError(f"'{name}' nests its XML too deeply to be read; save it again from a word processor") from None
    except RuntimeError as error:  # zipfile raises this for an encrypted member.
        raise InputError(f"'{name}' cannot be unpacked ({cause_of(error)}); save it without a password") from None


class Doctype(Exception):
    """The XML declares a document type."""


class _NoDoctype(ElementTree.TreeBuilder):
    """A tree builder that rejects a document type.

    The parser itself reports the document type, so no encoding of the XML can hide it.
    """

    def doctype(self, *_: str | None) -> None:
        raise Doctype
