"""pdfium's functions with plain integers as arguments.

Reading a page takes thousands of calls. The wrappers of pypdfium2 convert every argument, which doubles the time of a
call; these take handles and addresses as integers. Everything else uses pypdfium2 itself.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_float, c_int, c_size_t, c_uint, c_void_p, cast
from functools import cache
from typing import Any, NamedTuple

_H = c_void_p
"""A handle or an address."""


class Calls(NamedTuple):
    """Functions of pdfium, named without their prefixes. Handles and addresses are integers, None for a null pointer."""

    count_chars: Any
    char_code: Any
    char_box: Any
    loose_box: Any
    char_origin: Any
    char_angle: Any
    char_object: Any
    char_of_text: Any
    is_hyphen: Any
    count_objects: Any
    page_object: Any
    count_nested: Any
    nested_object: Any
    kind: Any
    bounds: Any
    matrix: Any
    fill_color: Any
    render_mode: Any
    font_size: Any
    font: Any
    font_name: Any
    draw_mode: Any
    clip: Any
    count_clip_paths: Any
    count_clip_segments: Any
    clip_segment: Any
    segment_point: Any
    count_marks: Any
    mark: Any
    mark_name: Any
    count_path_segments: Any
    has_transparency: Any
    set_active: Any


_SIGNATURES: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "count_chars": ("FPDFText_CountChars", c_int, (_H,)),
    "char_code": ("FPDFText_GetUnicode", c_uint, (_H, c_int)),
    "char_box": ("FPDFText_GetCharBox", c_int, (_H, c_int, _H, _H, _H, _H)),
    "loose_box": ("FPDFText_GetLooseCharBox", c_int, (_H, c_int, _H)),
    "char_origin": ("FPDFText_GetCharOrigin", c_int, (_H, c_int, _H, _H)),
    "char_angle": ("FPDFText_GetCharAngle", c_float, (_H, c_int)),
    "char_object": ("FPDFText_GetTextObject", _H, (_H, c_int)),
    "char_of_text": ("FPDFText_GetCharIndexFromTextIndex", c_int, (_H, c_int)),
    "is_hyphen": ("FPDFText_IsHyphen", c_int, (_H, c_int)),
    "count_objects": ("FPDFPage_CountObjects", c_int, (_H,)),
    "page_object": ("FPDFPage_GetObject", _H, (_H, c_int)),
    "count_nested": ("FPDFFormObj_CountObjects", c_int, (_H,)),
    "nested_object": ("FPDFFormObj_GetObject", _H, (_H, c_uint)),
    "kind": ("FPDFPageObj_GetType", c_int, (_H,)),
    "bounds": ("FPDFPageObj_GetBounds", c_int, (_H, _H, _H, _H, _H)),
    "matrix": ("FPDFPageObj_GetMatrix", c_int, (_H, _H)),
    "fill_color": ("FPDFPageObj_GetFillColor", c_int, (_H, _H, _H, _H, _H)),
    "render_mode": ("FPDFTextObj_GetTextRenderMode", c_int, (_H,)),
    "font_size": ("FPDFTextObj_GetFontSize", c_int, (_H, _H)),
    "font": ("FPDFTextObj_GetFont", _H, (_H,)),
    "font_name": ("FPDFFont_GetBaseFontName", c_size_t, (_H, _H, c_size_t)),
    "draw_mode": ("FPDFPath_GetDrawMode", c_int, (_H, _H, _H)),
    "clip": ("FPDFPageObj_GetClipPath", _H, (_H,)),
    "count_clip_paths": ("FPDFClipPath_CountPaths", c_int, (_H,)),
    "count_clip_segments": ("FPDFClipPath_CountPathSegments", c_int, (_H, c_int)),
    "clip_segment": ("FPDFClipPath_GetPathSegment", _H, (_H, c_int, c_int)),
    "segment_point": ("FPDFPathSegment_GetPoint", c_int, (_H, _H, _H)),
    "count_marks": ("FPDFPageObj_CountMarks", c_int, (_H,)),
    "mark": ("FPDFPageObj_GetMark", _H, (_H, c_uint)),
    "mark_name": ("FPDFPageObjMark_GetName", c_int, (_H, _H, c_uint, _H)),
    "count_path_segments": ("FPDFPath_CountSegments", c_int, (_H,)),
    "has_transparency": ("FPDFPageObj_HasTransparency", c_int, (_H,)),
    "set_active": ("FPDFPageObj_SetIsActive", c_int, (_H, c_int)),
}


@cache
def calls() -> Calls:
    """Return pdfium's functions. They may only be called while PDFIUM_LOCK is held."""
    import pypdfium2.raw as raw

    return Calls(
        **{
            name: CFUNCTYPE(result, *arguments)(handle(getattr(raw, function)))
            for name, (function, result, arguments) in _SIGNATURES.items()
        }
    )


def handle(pointer: Any) -> int:
    """Return a ctypes pointer of pypdfium2 as an integer."""
    return cast(pointer, c_void_p).value or 0
