"""Decode the bytes of a text file, or reject them with a clear error.

    text = decode(data, name="notes.txt")                        # UTF-8, or UTF-16 and UTF-32 with a byte-order mark
    text = decode(data, name="notes.txt", encoding="gb18030")    # a named encoding

A byte-order mark stays in the text, because it is part of the source. An East Asian or Cyrillic encoding that is clear is
guessed, with a notice. Western encodings cannot be distinguished reliably, so the caller has to name them.
"""

from __future__ import annotations

import codecs

from seer.errors import InputError
from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extract import Extract, Notice

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAX_CONTROL_FRACTION = 0.02
"""A file with a larger fraction of control bytes counts as binary."""
_SAMPLE_BYTES = 65_536
_GUESSED = {
    **dict.fromkeys(("gb18030", "gbk", "gb2312"), "gb18030"),
    **dict.fromkeys(("big5", "big5hkscs", "cp950"), "big5hkscs"),
    **dict.fromkeys(("cp932", "shift_jis"), "cp932"),
    **{"euc_jp": "euc_jp", "cp949": "cp949", "euc_kr": "cp949", "cp1251": "cp1251"},
}
"""Encodings that a guess may name, each with the superset to read it in."""
_MAX_CHAOS = 0.1
_MIN_EXPECTED = 0.9
"""Lowest fraction of the letters that must belong to the encoding's script."""
_MIN_LETTERS = 6
"""Letters beyond ASCII below which nothing is guessed."""


def read_text(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a file with marks in place of encoded files; see `decode_noticed` and `replace_embedded`."""
    text, notices = decode_noticed(data, name, encoding)
    extract = replace_embedded(text)
    return Extract(extract.text, (*notices, *extract.notices))


def decode_noticed(data: bytes, name: str, encoding: str | None) -> tuple[str, tuple[Notice, ...]]:
    """Decode a file whose encoding may have to be guessed; a guess comes with a notice that names it.

    Raises InputError as `decode` does, and if no guess is clear.
    """
    try:
        return decode(data, name=name, encoding=encoding), ()
    except InputError:
        guessed = None if encoding is not None or _looks_binary(data) else guess_encoding(data)
        if guessed is None:
            raise
    message = (
        f"the encoding is not declared; read as {guessed}, a guess: name another one with --encoding if words are wrong"
    )
    return decode(data, name=name, encoding=guessed), (Notice("encoding", message),)


def guess_encoding(data: bytes) -> str | None:
    """Return the encoding of text in an East Asian or Cyrillic encoding; None if none is clear.

    charset-normalizer recognises these reliably, also in a line of text. Western encodings differ in few letters and are
    often confused, so they are never guessed: a wrong guess would put wrong words on every page.
    """
    if any(data.startswith(mark) for mark, _ in BYTE_ORDER_MARKS):
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SAMPLE_BYTES]).best()
    if best is None or best.encoding not in _GUESSED or best.chaos > _MAX_CHAOS:
        return None
    guessed = _GUESSED[best.encoding]
    try:
        text = data.decode(guessed)
    except UnicodeDecodeError:
        return None
    letters = [character for character in text if ord(character) > 0x7F and character.isalpha()]
    expected = sum(_is_expected(character, guessed) for character in letters)
    return guessed if len(letters) >= _MIN_LETTERS and expected >= len(letters) * _MIN_EXPECTED else None


def _is_expected(character: str, encoding: str) -> bool:
    """Return whether a letter belongs to the script of an encoding. Half-width kana are typical of a wrong guess."""
    if encoding == "cp1251":
        return "\u0400" <= character <= "\u04ff"
    return "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"


def decode(data: bytes, *, name: str, encoding: str | None = None) -> str:
    """Decode `data`; `name` appears in error messages.

    Raises InputError if `data` is empty, looks binary, or is not valid in its encoding, and if `encoding` is unknown.
    """
    if not data:
        raise InputError(f"'{name}' is empty; use a document with at least one character")
    if encoding is not None:
        return _decode_as(data, encoding, name)
    for mark, marked in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode_as(data, marked, name)
    if _looks_binary(data):
        raise InputError(
            f"'{name}' is binary, not text (it begins with {data[:4].hex(' ')}); use a text file, or name its encoding"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{name}' is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; "
            "name its encoding, e.g. --encoding gb18030, cp1252 or shift_jis"
        ) from None


def _decode_as(data: bytes, encoding: str, name: str) -> str:
    """Decode `data` in the given encoding, with errors that name the encoding and the byte."""
    try:
        return data.decode(encoding)
    except LookupError:
        raise InputError(
            f"encoding '{encoding}' is unknown; use one that Python knows, e.g. utf-8 or gb18030"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{name}' is not {encoding}: {error.reason} at byte {error.start}; name another encoding with --encoding"
        ) from None
    except UnicodeError as error:  # Some codecs, such as "undefined", raise only this base class.
        raise InputError(f"'{name}' is not {encoding}: {error}; name another encoding with --encoding") from None


def _looks_binary(data: bytes) -> bool:
    """Return whether the start of `data` holds too many control bytes, apart from white space and escape."""
    sample = data[:_SAMPLE_BYTES]
    controls = sum(sample.count(byte) for byte in range(32) if byte not in (9, 10, 11, 12, 13, 27))
    return controls > len(sample) * _MAX_CONTROL_FRACTION
