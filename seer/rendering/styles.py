"""Named page styles.

| style     | page                                                                                            |
|-----------|-------------------------------------------------------------------------------------------------|
| seer      | the paper's page: A4 at 72 dpi, 20 px margins, 9 pt text on 10 pt lines                         |
| paper     | as seer, and newlines that break lines or become marks, by task or by document, as in the paper    |
| glyph     | the base model's pages: 10 px margins, breaks at spaces only, width and last page cropped       |
| dense     | 7 pt text on 8 pt lines and narrow margins: few tokens, for models trained on it                |
| large     | 12 pt text on 14 pt lines, for models that misread small letters                                |
| miniature | 112x84 px with three short lines, 12 tokens per page, for the model of `seer.miniature` only    |

In the styles `seer` and `paper`, full pages keep their size, as in the paper. Only the blank bottom of the last page is cropped,
because blank space costs as many tokens as text. The pages of `dense`, `large` and `miniature` are whole numbers of
28 px cells. A `dense` page is half as high, so it holds about as much text as a page of the paper and costs as much to
retrieve. Each line of a `miniature` page fills its own row of cells.

The paper's font, Verdana, may not be redistributed. DejaVu Sans, whose widths are nearly the same, replaces it. If
Verdana is installed, or you have its file: `with_font("paper", "Verdana")`, `with_font("paper", "/path/to/Verdana.ttf")`.
"""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

from seer.config import build_config
from seer.errors import InputError
from seer.schema import NewlineMode, PageStyle

_Style = TypeVar("_Style", bound=str | PageStyle)

STYLES: dict[str, PageStyle] = {
    "seer": PageStyle(name="seer"),
    "paper": PageStyle(name="paper", newline="auto"),
    "glyph": PageStyle(name="glyph", margin_x_px=10, margin_y_px=10, breaking="spaces", crop_width=True),
    "dense": PageStyle(
        name="dense",
        page_width_px=588,
        page_height_px=420,
        margin_x_px=8,
        margin_y_px=8,
        font_size_pt=7,
        line_height_pt=8,
        crop_width=True,
    ),
    "large": PageStyle(
        name="large",
        page_width_px=588,
        page_height_px=840,
        margin_x_px=16,
        margin_y_px=14,
        font_size_pt=12,
        line_height_pt=14,
        crop_width=True,
    ),
    "miniature": PageStyle(
        name="miniature",
        page_width_px=112,
        page_height_px=84,
        margin_x_px=4,
        margin_y_px=0,
        font_size_pt=11,
        line_height_pt=28,
        crop_last_page=False,
    ),
}
"""All named styles."""


def resolve_style(style: str | PageStyle, **changes: Any) -> PageStyle:
    """Return a named style, or `style` itself, with changed fields. A changed style is named `<name>*`.

    Raises InputError if the name is unknown. Raises ConfigError if a field is unknown or a value out of range.
    """
    if isinstance(style, str):
        if style not in STYLES:
            near = difflib.get_close_matches(style, STYLES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(f"style '{style}' is unknown; {hint}use one of {', '.join(STYLES)}, auto")
        style = STYLES[style]
    if not changes:
        return style
    values = style.model_dump() | {"name": style.name.rstrip("*") + "*"} | changes
    return build_config(PageStyle, values, where=f"style '{style.name}'")


def with_newline(style: _Style, newline: NewlineMode | None) -> _Style | PageStyle:
    """Return `style` with this newline mode if its own mode is "auto", as that of `paper`; else `style` itself.

    The name of the returned style ends in the mode, such as "paper:mark". None changes nothing.
    """
    open_style = STYLES.get(style) if isinstance(style, str) else style
    if newline is None or open_style is None or open_style.newline != "auto":
        return style
    return open_style.model_copy(update={"newline": newline, "name": f"{open_style.name}:{newline}"})


def with_font(style: str | PageStyle, font: str) -> PageStyle:
    """Return `style` with `font` before its other fonts: the name of a bundled or installed font, or a path.

    Raises InputError if the style or the font is unknown, DocumentNotFound if the path does not exist.
    """
    from seer.rendering.layout.fonts import load_font

    load_font(font)
    style = resolve_style(style)
    return resolve_style(style, fonts=(font, *(name for name in style.fonts if name != font)))
