"""Detect the format of a file by its content.

    kind = sniff(data, name)        # a name in FORMATS, such as "pdf", "docx", "html" or "text"

The content decides. The file name matters only for a damaged PDF, for a fragment of a web page, which may be plain text too, and
for CSV files. `check_name` returns a warning if the name contradicts the content. Other formats that have a signature are
rejected with an error that names the format and a remedy.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import PurePath

from seer.errors import InputError
from seer.rendering.formats.images.frames import HEIF_BRANDS
from seer.rendering.formats.office.package import BROKEN_ZIP
from seer.rendering.formats.registry import FORMATS
from seer.rendering.formats.text import BYTE_ORDER_MARKS
from seer.schema import DocumentWarning

_IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")
_REJECTED = (
    (b"\xd0\xcf\x11\xe0", "an old Office file (.doc, .xls, .ppt)", "save it as .docx or .pdf"),
    (b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (b"BZh", "a bzip2 archive", "unpack it first"),
    (b"\xfd7zXZ", "an xz archive", "unpack it first"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "unpack it first"),
    (b"Rar!", "a RAR archive", "unpack it first"),
    (b"\x7fELF", "a program", "use a document"),
    (b"MZ", "a program", "use a document"),
    (b"%!PS", "a PostScript file", "convert it to PDF"),
    (b"SQLite format 3", "a database", "use a document"),
    (b"\xff\x0a", "a JPEG XL image", "save it as .png"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL image", "save it as .png"),
    (b"PAR1", "a Parquet file", "use a document"),
)
_TEXT_SIGNATURES = (b"%!PS",)
"""Signatures of formats whose files consist of text."""
_ZIP_FORMATS = (
    ("xl/workbook.xml", "xlsx"),
    ("ppt/presentation.xml", "pptx"),
    ("META-INF/container.xml", "epub"),
    ("content.xml", "opendocument"),
)
_OLE = b"\xd0\xcf\x11\xe0"
_MESSAGE_STREAM = "__substg1.0_".encode("utf-16-le")
"""The beginning of the names of an Outlook message's streams."""
_MAIL_HEADER = re.compile(rb"(?:[A-Za-z][A-Za-z0-9-]*+:[^\r\n]*+(?:\r?\n[ \t][^\r\n]*+)*+\r?\n)", re.ASCII)
_MAIL_NAMES = {
    b"from",
    b"to",
    b"subject",
    b"date",
    b"received",
    b"message-id",
    b"mime-version",
    b"return-path",
    b"delivered-to",
}
_NOTEBOOK = re.compile(rb"\s*+\{")
_NOTEBOOK_KEY = re.compile(rb'"nbformat"\s*+:\s*+[0-9]')
_TABLE_EXTENSIONS = (".csv", ".tsv", ".tab")
_PDF_LINE = re.compile(rb"(?:^|[\r\n])%PDF-[0-9]")
_PDF_FIRST_LINE = re.compile(rb"%PDF-[0-9.]++[ \t]*+(?:[\r\n]|\Z)")
_PDF_PART = re.compile(rb"[0-9] obj\b|startxref")
_BEFORE_HTML = re.compile(r"\ufeff?\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--.*?-->\s*+)*+", re.DOTALL | re.IGNORECASE)
_PAGE = re.compile(r"<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE)
_FRAGMENT = re.compile(r"<[a-z!][^<>]*+>", re.IGNORECASE)
_HTML_EXTENSIONS = (".html", ".htm", ".xhtml")


def sniff(data: bytes, name: str, encoding: str | None = None) -> str:
    """Return the name in FORMATS of the document's format; `name` appears in error messages.

    A named `encoding` says that the content is text; whether it is a web page is then decided by the name.

    Raises InputError if the format is known but cannot be read, such as a spreadsheet or an archive.
    """
    if encoding:
        return "html" if name.lower().endswith((".html", ".htm")) else "text"
    # PDF readers accept the signature anywhere in the first kilobyte.
    head = data[:1024]
    if b"%PDF-" in head and _is_pdf(data, head, name):
        return "pdf"
    # The bitmap signature "BM" also begins ordinary text, so it has a stricter check.
    # "GIF89a" may be the first word of a text; an image has control bytes after it.
    if (head.startswith(_IMAGE_SIGNATURES) and _has_controls(head)) or _is_bitmap(data) or _is_webp(head):
        return "image"
    if head[4:8] == b"ftyp" and _has_controls(head):
        if head[8:12] in HEIF_BRANDS or head[8:12] in (b"avif", b"avis"):
            return "image"
        raise InputError(f"'{name}' is a film or a sound, which cannot be read; use a document or an image")
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return _zip_format(data, name)
    if head.startswith(_OLE) and _MESSAGE_STREAM in data:
        return "msg"
    if head.startswith(b"{\\rtf"):
        return "rtf"
    # A signature of letters also begins ordinary text, so it counts only if control bytes follow.
    for signature, what, remedy in _REJECTED:
        if head.startswith(signature) and (signature in _TEXT_SIGNATURES or _has_controls(head)):
            raise InputError(f"'{name}' is {what}, which cannot be read; {remedy}")
    if _is_html(data, name):
        return "html"
    if _is_mail(data, name):
        return "eml"
    if _NOTEBOOK.match(head) and _NOTEBOOK_KEY.search(data) and b'"cells"' in data:
        return "ipynb"
    return "csv" if name.lower().endswith(_TABLE_EXTENSIONS) else "text"


def _is_mail(data: bytes, name: str) -> bool:
    """Return whether `data` begins with the headers of an e-mail: three that every program writes, two in a file .eml."""
    names: set[bytes] = set()
    place = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while (header := _MAIL_HEADER.match(data, place, place + 65536)) and len(names) < 50:
        names.add(header.group().partition(b":")[0].lower())
        place = header.end()
    known = len(names & _MAIL_NAMES)
    technical = names & {b"message-id", b"mime-version", b"received", b"return-path"}
    return known >= 2 and (name.lower().endswith(".eml") or (known >= 3 and bool(technical)))


def _is_pdf(data: bytes, head: bytes, name: str) -> bool:
    """Return whether a file with the signature of a PDF in its first kilobyte is a PDF rather than a text about PDFs.

    A damaged file whose first line is the signature alone, or which begins with the signature and has the extension
    .pdf, still counts, so that its error names the damage.
    """
    if _has_controls(head) or _PDF_FIRST_LINE.match(head):
        return True
    if head.startswith(b"%PDF-") and name.lower().endswith(".pdf"):
        return True
    return bool(_PDF_LINE.search(head) and (_PDF_PART.search(data) or b"%%EOF" in data))


def _has_controls(head: bytes) -> bool:
    """Return whether `head` holds control bytes other than white space, or is not UTF-8, as binary files do."""
    if any(byte < 9 or (13 < byte < 32 and byte != 27) for byte in head):
        return True
    # The last bytes of the head may be the first half of a character.
    return "\ufffd" in head.decode("utf-8", "replace")[:-4]


def _is_html(data: bytes, name: str) -> bool:
    """Return whether `data` is a web page, or a fragment of one in a file with the extension of a web page.

    Markdown and code also begin with tags, so a fragment without <html> counts only with such an extension.
    """
    start = _BEFORE_HTML.match(_unicode(data))
    assert start is not None, "every part of the pattern is optional"
    rest = start.string[start.end() : start.end() + 4096]
    return bool(_PAGE.match(rest) or (name.lower().endswith(_HTML_EXTENSIONS) and _FRAGMENT.match(rest)))


def _unicode(data: bytes) -> str:
    """Return the first megabyte of a text for detection; undecodable bytes are replaced."""
    head = data[: 1 << 20]
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return head.decode(encoding, "replace")
    return head.decode("utf-8", "replace")


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
    """Return the format of a zip archive that is a document. Raises InputError for any other archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = set(archive.namelist())
    except BROKEN_ZIP:
        raise InputError(f"'{name}' is a damaged zip or .docx file; save or download it again") from None
    # The main part may have any name in this folder; the reader finds it by its relationship.
    if any(member.startswith("word/") and member.endswith(".xml") for member in members):
        return "docx"
    for member, kind in _ZIP_FORMATS:
        if member in members:
            return kind
    raise InputError(f"'{name}' is a zip archive; unpack it and use one of its documents")
