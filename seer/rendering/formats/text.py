"""Decode the bytes of a text file, or reject them with a clear error.

    text = decode(data, name="notes.txt")                        # UTF-8, or UTF-16 and UTF-32 with a byte-order mark
    text = decode(data, name="notes.txt", encoding="gb18030")    # a named encoding

A byte-order mark stays in the text, because it is part of the source. Older encodings cannot be distinguished
reliably, and a wrong guess would put wrong words on every page. The caller therefore has to name them.
"""

from __future__ import annotations

import codecs

from seer.errors import InputError
from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extract import Extract

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAX_CONTROL_FRACTION = 0.02
"""A file with a larger fraction of control bytes counts as binary."""
_SAMPLE_BYTES = 65_536


def read_text(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a file with marks in place of encoded files; see `decode` and `replace_embedded`."""
    return replace_embedded(decode(data, name=name, encoding=encoding))


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
