"""Replace encoded files inside a text by short marks, so that base64 never fills pages.

    replace_embedded("![logo](data:image/png;base64,iVBOR…)")    # "![logo]([data: image/png, 15,234 bytes])"

Data URIs and long runs of base64 are replaced. Certificates and keys (PEM), short tokens and hexadecimal digits stay,
because people ask about them. Every search is linear in the length of the text.
"""

from __future__ import annotations

import re

from seer.rendering.formats.extract import Extract, Notice

_MIN_URI_CHARS = 64
"""Shorter data URIs stay in the text."""
_MIN_BLOB_CHARS = 512
"""Shorter runs of base64, such as tokens and hashes, stay in the text."""
_BASE64 = r"[A-Za-z0-9+/]"
# Notebooks and JSON write the line breaks of a blob as the two characters "\n".
_BREAK = r"(?:(?:\\r)?\\n|\r?\n)[ \t]{0,8}"
_URI = (
    r"(?i:data:(?P<type>[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,100})(?:;[a-z0-9_.=+-]{1,80}){0,4};base64,)"
    r"(?P<uri>[A-Za-z0-9+/_%-]++={0,2}+)"
)
# A short last line belongs to the blob only if padding ends it; otherwise it may be the next word of the text.
_BLOB = (
    rf"(?<![A-Za-z0-9+/=])(?P<blob>{_BASE64}{{60,}}+(?:{_BREAK}{_BASE64}{{60,}}+)*+"
    rf"(?:={{1,2}}+|{_BREAK}{_BASE64}{{1,59}}+={{1,2}}+)?+)"
)
_EMBEDDED = re.compile(rf"(?P<pem>-----BEGIN [A-Z0-9 ]{{1,40}}-----)|{_URI}|{_BLOB}")


def replace_embedded(text: str) -> Extract:
    """Return the text with a mark in place of each encoded file, and a notice of kind "embedded-data" for each mark."""
    parts: list[str] = []
    notices: list[Notice] = []
    place = length = 0
    after_pem = -1
    for match in _EMBEDDED.finditer(text):
        if match["pem"]:
            after_pem = match.end()
            continue
        # The body of a certificate follows its first line directly.
        if (
            0 <= match.start() - after_pem <= 16
            and after_pem >= 0
            and not text[after_pem : match.start()].strip(" \t\r\n\\rn")
        ):
            after_pem = -1
            continue
        mark = _mark(match)
        if mark is None:
            continue
        parts.append(text[place : match.start()])
        length += len(parts[-1])
        notices.append(Notice("embedded-data", f"an encoded file was replaced by the mark {mark}", length))
        parts.append(mark)
        length += len(mark)
        place = match.end()
    return Extract("".join((*parts, text[place:])), tuple(notices)) if notices else Extract(text)


def _mark(match: re.Match[str]) -> str | None:
    """Return the mark of an encoded file, or None if the match is short or does not look like base64."""
    body = match["uri"] or match["blob"]
    encoded = len(re.sub(r"\\[rn]|[\s=]", "", body))
    if match["uri"]:
        return f"[data: {match['type'].lower()}, {encoded * 3 // 4:,} bytes]" if encoded >= _MIN_URI_CHARS else None
    # Base64 of a file mixes capitals, small letters and digits; hexadecimal digits and ordinary words do not.
    sample = body[:4096]
    mixed = all(re.search(characters, sample) for characters in ("[G-Z]", "[g-z]", "[0-9]")) and len(set(sample)) >= 24
    return f"[data: base64, {encoded * 3 // 4:,} bytes]" if encoded >= _MIN_BLOB_CHARS and mixed else None
