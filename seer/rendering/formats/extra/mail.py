"""Read e-mail messages: the headers that people read, and the body. Attachments become marks and notices."""

from __future__ import annotations

import contextlib
import email
import email.policy
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message

from seer.errors import InputError
from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extra.archive import missing_library
from seer.rendering.formats.extract import Extract, Notice, cause_of
from seer.rendering.formats.markup.html import html_text

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_HEADER_CHARS = 10_000
_MAX_DEPTH = 10
_MAX_PARTS = 1000


class _Text:
    """The text of a message that is being built."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.notices: list[Notice] = []
        self.num_parts = 0

    def add(self, text: str) -> None:
        if text.strip():
            self.parts.append(text.replace("\r\n", "\n").strip("\n") + "\n\n")

    def attachment(self, name: str, kind: str, size: int) -> None:
        """Write a mark for an attachment, and a notice."""
        mark = f"[attachment: {' '.join(name.split())[:100] or 'without a name'}, {kind}, {size:,} bytes]"
        self.notices.append(Notice("attachment", f"an attachment is left out: {mark}", sum(map(len, self.parts))))
        self.add(mark)

    def extract(self) -> Extract:
        text = "".join(self.parts).rstrip("\n")
        found = replace_embedded(text + "\n" if text else "")
        kept = self.notices if not found.notices else [Notice(one.kind, one.message) for one in self.notices]
        return Extract(found.text, (*kept, *found.notices))


def read_eml(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the headers and the body of a message; plain text is preferred to HTML, messages inside of it follow.

    Raises InputError if the file is no message.
    """
    out = _Text()
    try:
        # The newer policies parse addresses in quadratic time.
        message = email.message_from_bytes(data.removeprefix(b"\xef\xbb\xbf"), policy=email.policy.compat32)
        _message(message, out, 0, encoding)
    except (LookupError, ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise InputError(
            f"'{name}' is a damaged e-mail ({type(error).__name__}: {cause_of(error)}); save it again"
        ) from None
    return out.extract()


def _message(message: Message, out: _Text, depth: int, encoding: str | None) -> None:
    lines = []
    for header in _HEADERS:
        value = _decoded(message.get(header))
        if value:
            lines.append(f"{header}: {value}")
    out.add("\n".join(lines))
    _part(message, out, depth, encoding)


def _part(part: Message, out: _Text, depth: int, encoding: str | None) -> None:
    out.num_parts += 1
    if depth > _MAX_DEPTH or out.num_parts > _MAX_PARTS:
        out.notices.append(Notice("attachment", "parts that are nested too deeply or too many are left out"))
        return
    kind = part.get_content_type()
    if kind == "message/rfc822":
        inner = part.get_payload()
        for one in inner if isinstance(inner, list) else ():
            if isinstance(one, Message):
                out.add("Forwarded message:")
                _message(one, out, depth + 1, encoding)
    elif part.is_multipart():
        parts = [one for one in part.get_payload() if isinstance(one, Message)]
        if kind == "multipart/alternative":
            # The parts say the same; the last one that is understood is the richest, and plain text is the most exact.
            plain = [one for one in parts if one.get_content_type() == "text/plain" and _words(one, encoding).strip()]
            parts = (plain or parts)[:1] if plain else parts[-1:]
        for one in parts:
            _part(one, out, depth + 1, encoding)
    elif part.get_content_disposition() == "attachment" or part.get_content_maintype() != "text":
        payload = part.get_payload(decode=True)
        size = len(payload) if isinstance(payload, bytes) else 0
        out.attachment(_decoded(part.get_filename()), kind, size)
    else:
        text = _words(part, encoding)
        out.add(html_text(text) if kind == "text/html" else text)


def _decoded(value: object) -> str:
    """Return a header with its encoded words decoded, in one line."""
    text = str(value or "")[:_MAX_HEADER_CHARS]
    with contextlib.suppress(HeaderParseError, LookupError, ValueError):
        text = str(make_header(decode_header(text)))
    return " ".join(text.split())


def _words(part: Message, encoding: str | None) -> str:
    """Return the text of a part, decoded by the charset that it names."""
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    for name in (encoding, part.get_content_charset(), "utf-8", "cp1252"):
        try:
            if name:
                return data.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("latin-1")


# Property numbers of Outlook messages (MS-OXPROPS), each in the stream __substg1.0_<number><type>.
_SUBJECT, _SENDER, _SENDER_ADDRESS, _TO, _CC, _BODY, _HTML = "0037", "0C1A", "5D01", "0E04", "0E03", "1000", "1013"
_ATTACHMENT_NAME, _ATTACHMENT_SHORT, _ATTACHMENT_DATA, _ATTACHMENT_KIND = "3707", "3704", "3701", "370E"


def read_msg(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the headers and the body of an Outlook message.

    Raises InputError if the file is damaged or holds no message, or if the library is missing.
    """
    try:
        import olefile
    except ImportError:
        raise missing_library("olefile", name, "an Outlook message") from None
    out = _Text()
    try:
        with olefile.OleFileIO(data) as ole:
            sender = _property(ole, [], _SENDER, encoding)
            address = _property(ole, [], _SENDER_ADDRESS, encoding)
            sent = f"{sender} <{address}>" if address and address != sender else sender
            values = (
                ("From", sent),
                ("To", _property(ole, [], _TO, encoding)),
                ("Cc", _property(ole, [], _CC, encoding)),
                ("Subject", _property(ole, [], _SUBJECT, encoding)),
            )
            out.add("\n".join(f"{key}: {value}" for key, value in values if value))
            body = _property(ole, [], _BODY, encoding)
            out.add(body or html_text(_property(ole, [], _HTML, encoding)))
            folders = dict.fromkeys(entry[0] for entry in ole.listdir() if entry[0].startswith("__attach"))
            for folder in list(folders)[:_MAX_PARTS]:
                title = _property(ole, [folder], _ATTACHMENT_NAME, None) or _property(
                    ole, [folder], _ATTACHMENT_SHORT, None
                )
                kind = _property(ole, [folder], _ATTACHMENT_KIND, None) or "file"
                stream = [folder, f"__substg1.0_{_ATTACHMENT_DATA}0102"]
                out.attachment(title, kind[:60], ole.get_size(stream) if ole.exists(stream) else 0)
    except InputError:
        raise
    except (OSError, ValueError, TypeError, IndexError, KeyError, AttributeError, MemoryError, RecursionError) as error:
        raise InputError(f"'{name}' is a damaged Outlook message ({cause_of(error)}); save it again, as .eml") from None
    return out.extract()


def _property(ole: object, folder: list[str], number: str, encoding: str | None) -> str:
    """Return a text property, in Unicode if the message has it so."""
    for kind, codec in (("001F", "utf-16-le"), ("001E", encoding or "cp1252"), ("0102", encoding or "utf-8")):
        stream = [*folder, f"__substg1.0_{number}{kind}"]
        if ole.exists(stream):  # type: ignore[attr-defined]
            with ole.openstream(stream) as file:  # type: ignore[attr-defined]
                return str(file.read().decode(codec, "replace").rstrip("\0").replace("\r\n", "\n"))
    return ""
