"""Bytes to text: which encoding, or a clear refusal.

UTF-8 first (a byte-order mark stays in the text: it is part of the source), then UTF-16 and UTF-32 by their marks.
Old encodings cannot be told apart for certain, and a wrong guess would put wrong words on every page, so they are
asked for by name.
"""

from __future__ import annotations

import codecs

from seer.errors import InputError

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_SHARE = 0.02
"""A file with a larger share of control bytes than this is no text."""
_SAMPLE_BYTES = 65_536


def decode(data: bytes, *, name: str, encoding: str | None = None) -> str:
    """The text in `data`. Raises InputError: empty, binary, bytes that the encoding does not allow."""
    if not data:
        raise InputError(f"'{name}' is empty; give a document with at least one character")
    if encoding is not None:
        return _decode_as(data, encoding, name)
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return _decode_as(data, marked, name)
    if _looks_binary(data):
        raise InputError(
            f"'{name}' is binary, not text (it begins with {data[:4].hex(' ')}); give a text file, or name its encoding"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{name}' is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; "
            "name its encoding, e.g. --encoding gb18030, cp1252 or shift_jis"
        ) from None


def _decode_as(data: bytes, encoding: str, name: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise InputError(
            f"no encoding is called '{encoding}'; use one that Python knows, e.g. utf-8 or gb18030"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{name}' is not {encoding}: {error.reason} at byte {error.start}; name another encoding with --encoding"
        ) from None
    except UnicodeError as error:  # some codecs, such as "undefined", say no more than this
        raise InputError(f"'{name}' is not {encoding}: {error}; name another encoding with --encoding") from None


def _looks_binary(data: bytes) -> bool:
    sample = data[:_SAMPLE_BYTES]
    controls = sum(sample.count(byte) for byte in range(32) if byte not in (9, 10, 11, 12, 13, 27))
    return controls > len(sample) * _BINARY_SHARE
