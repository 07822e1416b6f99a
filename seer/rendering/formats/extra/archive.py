"""Zip archives of XML and HTML parts. They are untrusted: declared and unpacked sizes are limited."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

from seer.errors import InputError
from seer.rendering.formats.extract import cause_of
from seer.rendering.formats.office.package import BROKEN_ZIP

MAX_TOTAL_BYTES = 128 << 20
"""Limit on the unpacked size of the parts that hold text."""
MAX_MEMBERS = 20_000
_TEXT_PARTS = (".xml", ".rels", ".xhtml", ".html", ".htm", ".opf", ".ncx", ".css")
_DOCTYPE = b"<!DOCTYPE"


class Archive:
    """An open archive. Unpacking stops at the limit whatever sizes were declared."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        self.members = archive.namelist()
        self._known = set(self.members)
        self._left = MAX_TOTAL_BYTES

    def read(self, member: str) -> bytes | None:
        """Return a member's bytes, None if there is no such member.

        Raises InputError if the members read so far exceed the limit.
        """
        if member not in self._known:
            return None
        with self._archive.open(member) as file:
            data = file.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise too_large(self._name)
        return data

    def xml(self, member: str) -> ElementTree.Element | None:
        """Return the root of an XML member, None if there is no such member.

        Raises InputError for a document type, which entity bombs need.
        """
        data = self.read(member)
        if data is None:
            return None
        # A declaration lies before the root element.
        if _DOCTYPE in data[: data.find(b"<", data.find(b"?>") + 1) + 4096] and b"<!ENTITY" in data[:65536]:
            raise InputError(f"'{self._name}' declares entities in its XML, which are not allowed; save it again")
        return ElementTree.fromstring(data)


def too_large(name: str) -> InputError:
    """Return the error for an archive that unpacks to too much."""
    return InputError(
        f"'{name}' unpacks to more than {MAX_TOTAL_BYTES >> 20} MB of text, the limit; split the document"
    )


@contextmanager
def open_archive(data: bytes, name: str, what: str) -> Iterator[Archive]:
    """Open an archive; `what` names the format in errors. Inside the block, faults of the file raise InputError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_archive(archive, name)
            yield Archive(archive, name)
    except InputError:
        raise
    except BROKEN_ZIP as error:
        raise InputError(f"'{name}' is {what} that is damaged ({cause_of(error)}); save or download it again") from None


def check_archive(archive: zipfile.ZipFile, name: str) -> None:
    """Check the declared sizes of an archive before a library unpacks it. Raises InputError if they exceed the limits."""
    entries = archive.infolist()
    if len(entries) > MAX_MEMBERS:
        raise InputError(f"'{name}' holds more than {MAX_MEMBERS:,} files, the limit; split the document")
    if sum(entry.file_size for entry in entries if entry.filename.lower().endswith(_TEXT_PARTS)) > MAX_TOTAL_BYTES:
        raise too_large(name)
    if any(entry.flag_bits & 1 for entry in entries):
        raise InputError(f"'{name}' is encrypted; save it without a password")


def missing_library(module: str, name: str, what: str) -> InputError:
    """Return the error for a format whose library is not installed; it names the extra."""
    return InputError(f"'{name}' is {what}, which needs {module}; install it with: pip install 'seer-vlm[formats]'")
