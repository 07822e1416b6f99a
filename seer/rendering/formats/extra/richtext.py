"""Read RTF files."""

from __future__ import annotations

import re

from seer.errors import InputError
from seer.rendering.formats.extra.archive import missing_library
from seer.rendering.formats.extract import Extract, Notice, cause_of

_PICTURE = re.compile(r"\\pict\b")
_HIDDEN = re.compile(r"\{\\v[ ]([^{}\\]*)\}")
_BAR, _BAR_CODE = "\ue000", "\\u57344?"
MAX_BYTES = 32 << 20


def read_rtf(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of an RTF file; cells of a table row are separated by tabs.

    Raises InputError if the file is damaged or too large, or if the library is missing.
    """
    try:
        from striprtf.striprtf import rtf_to_text
    except ImportError:
        raise missing_library("striprtf", name, "an RTF file") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"'{name}' is larger than {MAX_BYTES >> 20} MB, the limit for RTF; save it as .docx")
    source = data.decode("latin-1")
    hidden = [" ".join(found[1].split()) for found in _HIDDEN.finditer(source)]
    # striprtf separates cells by bars, so those of the text are written as another character meanwhile.
    source = _HIDDEN.sub("", source).replace("|", _BAR_CODE)
    try:
        # The file is ASCII; other characters are escaped, in the encoding that the file names.
        text = rtf_to_text(source, encoding=encoding or "cp1252", errors="replace")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"'{name}' is a damaged RTF file ({cause_of(error)}); save it again or as .docx") from None
    text = re.sub(r"\|(?=\n|\Z)", "", text).replace("|", "\t").replace(_BAR, "|")
    notices = []
    if pictures := len(_PICTURE.findall(source)):
        notices.append(Notice("drawing", f"{pictures:,} picture{'s are' if pictures > 1 else ' is'} left out"))
    if any(hidden):
        words = " ".join(hidden)
        notices.append(
            Notice("hidden-text", f"hidden text is left out: “{words[:60]}{'…' if len(words) > 60 else ''}”")
        )
    if "\\footnote" in source:
        notices.append(Notice("note", "the footnotes are left out; save the file as .docx to keep them"))
    return Extract(text.strip("\n") + "\n" if text.strip() else "", tuple(notices))
