"""Form fields, notes and stamps of a PDF page: into its picture and its text.

What annotations show is merged into the page (flattened), so the picture has it and pdfium reads its text at its place.
Check boxes and radio buttons are drawn as shapes; the text gets a sign for each. Comments that are not shown on the page
become notices.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seer.rendering.formats.extract import Notice

_TEXT_NOTE, _FREE_TEXT, _STAMP, _POPUP, _ATTACHMENT, _WIDGET, _LINK = 1, 3, 13, 16, 17, 20, 2
_HIDDEN_FLAGS = 2 | 32
"""Annotation flags Hidden and NoView."""
_CHECK_BOX, _RADIO_BUTTON = 2, 3
_SIGNS = {(_CHECK_BOX, True): "☑", (_CHECK_BOX, False): "☐", (_RADIO_BUTTON, True): "◉", (_RADIO_BUTTON, False): "○"}
_MAX_QUOTE = 80
_SMALL_SCALE = 0.02


@dataclass(frozen=True)
class Mark:
    """The sign of a check box or radio button, and its box (left, bottom, right, top) in the page's own coordinates."""

    sign: str
    box: NDArray[np.float64]


@dataclass(frozen=True)
class Annotations:
    """What the annotations of a page add to it."""

    marks: tuple[Mark, ...] = ()
    notices: tuple[Notice, ...] = ()
    has_text: bool = False
    """Whether some of them show text on the page: form fields, free text and stamps."""


def read_annotations(page: Any, form: Any) -> Annotations:
    """Return the marks and notices of an open page of pypdfium2.

    `form` is the document's form environment, None for a document without a form.
    """
    import pypdfium2.raw as raw

    marks: list[Mark] = []
    notices: list[Notice] = []
    has_text = False
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            if raw.FPDFAnnot_GetFlags(annotation) & _HIDDEN_FLAGS:
                continue
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            has_text |= kind in (_WIDGET, _FREE_TEXT, _STAMP)
            if kind == _WIDGET and form is not None:
                marks += _mark(annotation, form)
            elif kind not in (_WIDGET, _FREE_TEXT, _POPUP, _LINK):
                notices += _notice(annotation, kind)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    return Annotations(tuple(marks), tuple(notices), has_text)


def flatten(page: Any) -> None:
    """Merge what the annotations of an open page show into the page itself, for as long as the document is open."""
    import pypdfium2.raw as raw

    # pdfium makes the appearance of an annotation that has none when it first draws it.
    page.render(scale=_SMALL_SCALE, may_draw_forms=False).close()
    raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)


def _mark(annotation: Any, form: Any) -> list[Mark]:
    """Return the sign of a check box or radio button; nothing for other fields."""
    import pypdfium2.raw as raw

    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind not in (_CHECK_BOX, _RADIO_BUTTON):
        return []
    rect = raw.FS_RECTF()
    if not raw.FPDFAnnot_GetRect(annotation, ctypes.byref(rect)):
        return []
    sign = _SIGNS[kind, bool(raw.FPDFAnnot_IsChecked(form, annotation))]
    box = np.array(
        (min(rect.left, rect.right), min(rect.bottom, rect.top), max(rect.left, rect.right), max(rect.bottom, rect.top))
    )
    return [Mark(sign, box)]


def _notice(annotation: Any, kind: int) -> list[Notice]:
    """Return a notice about a comment or an attached file, whose text the page does not show."""
    text = " ".join(_string(annotation, b"Contents").split())
    if kind == _ATTACHMENT:
        return [Notice("attachment", f"a file is attached to the page{_quoted(text)}; it is not part of the text")]
    if not text:
        return []
    return [Notice("comment", f"a comment is not shown on the page and not part of the text{_quoted(text)}")]


def _quoted(text: str) -> str:
    if not text:
        return ""
    return f": “{text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 1] + '…'}”"


def _string(annotation: Any, key: bytes) -> str:
    import pypdfium2.raw as raw

    length = raw.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if length <= 2:
        return ""
    buffer = (ctypes.c_ushort * (length // 2))()
    raw.FPDFAnnot_GetStringValue(annotation, key, buffer, length)
    return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")
