"""Detect the format of a file by its content.

    kind = sniff(data, name)        # "pdf", "docx", "html", "image" or "text"

The file name does not decide; `check_name` returns a warning if it contradicts the content. Other formats that have a signature
are rejected with an error that names the format and a remedy.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import PurePath

from seer.errors import InputError
from seer.rendering.formats.docx import BROKEN_ZIP
from seer.rendering.formats.registry import FORMATS
from seer.schema import DocumentWarning

_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")
_REJECTED = (
    (b"\xd0\xcf\x11\xe0", "an old Office file (.doc, .xls, .ppt)", "save it as .docx or .pdf"),
    (b"{\\rtf", "an RTF file", "save it as .docx or .txt"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"BZh", "a bzip2 archive", "unpack it first"),
    (b"\xfd7zXZ", "an xz archive", "unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "unpack it first"),
    (b"Rar!", "a RAR archive", "unpack it first"),
    (b"\x7fELF", "a program", "use a document"),
    (b"MZ", "a program", "use a document"),
    (b"%!PS", "a PostScript file", "convert it to PDF"),
    (b"SQLite format 3", "a database", "use a document"),
    (b"PAR1", "a Parquet file", "use a document"),
)
_ZIP_FORMATS = (
    ("xl/workbook.xml", "an Excel workbook", "save the sheet as .csv"),
    ("ppt/presentation.xml", "a PowerPoint presentation", "save it as .pdf"),
    ("META-INF/container.xml", "an EPUB book", "convert it to .html or .pdf"),
    ("content.xml", "an OpenDocument file", "save it as .docx or .pdf"),
)
_HTML = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?+(?><!--.*?-->\s*+)*+<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)


def sniff(data: bytes, name: str, encoding: str | None = None) -> str:
    """Return the name in FORMATS of the document's format; `name` appears in error messages.

    A named `encoding` says that the content is text; whether it is a web page is then decided by the name.

    Raises InputError if the format is known but cannot be read, such as a spreadsheet or an archive.
    """
    if encoding:
        return "html" if name.lower().endswith((".html", ".htm")) else "text"
    # PDF readers accept the signature anywhere in the first kilobyte.
    head = data[:1024]
    if b"%PDF-" in head:
        return "pdf"
    # The bitmap signature "BM" also begins ordinary text, so it has a stricter check.
    if head.startswith(_IMAGE_SIGNATURES) or _is_bitmap(data) or _is_webp(head):
        return "image"
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return _zip_format(data, name)
    # A signature of two letters also begins ordinary text, so it counts only if a null byte follows.
    for signature, what, remedy in _REJECTED:
        if head.startswith(signature) and (len(signature) > 2 or b"\x00" in head):
            raise InputError(f"'{name}' is {what}, which cannot be read; {remedy}")
    if _HTML.match(data[:4096].removeprefix(b"\xef\xbb\xbf")):
        return "html"
    return "text"


def check_name(name: str, kind: str) -> DocumentWarning | None:
    """Return a warning if the name's extension contradicts the format `kind`, else None.

    A web page saved as .pdf, for example, is often an error page instead of the document.
    """
    end = PurePath(name).suffix.lower()
    promised = next((format for format, entry in FORMATS.items() if end in entry.extensions), kind)
    if promised == kind:
        return None
    return DocumentWarning(
        kind="name",
        message=f"'{name}' is not a {end[1:]} file: its content is {FORMATS[kind].title} and is read as such",
    )


def _is_bitmap(data: bytes) -> bool:
    """Return whether `data` is a BMP file: the size in its header is that of the file."""
    return data[:2] == b"BM" and len(data) > 26 and int.from_bytes(data[2:6], "little") == len(data)


def _is_webp(head: bytes) -> bool:
    """Return whether `head` begins a WebP image: a RIFF container of type WEBP."""
    return head[:4] == b"RIFF" and head[8:12] == b"WEBP"


def _zip_format(data: bytes, name: str) -> str:
    """Return "docx" for a Word document. Raises InputError for any other zip archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = set(archive.namelist())
    except BROKEN_ZIP:
        raise InputError(f"'{name}' is a damaged zip or .docx file; save or download it again") from None
    if "word/document.xml" in members:
        return "docx"
    for member, what, remedy in _ZIP_FORMATS:
        if member in members:
            raise InputError(f"'{name}' is {what}, which cannot be read; {remedy}")
    raise InputError(f"'{name}' is a zip archive; unpack it and use one of its documents")
