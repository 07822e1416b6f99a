"""Named page styles.

seer    the paper's page: A4 at 72 dpi, 20 px margins, 9/10 pt. Full pages keep their size, as in the paper; the last
        page's unused bottom is cut, since white costs as much as ink
glyph   what the base model saw: 10 px margins, lines broken at spaces alone, width and last page cropped
dense   7/8 pt on whole 28 px cells with narrow margins: few tokens, for readers trained on it. Half pages, so that a page
        holds about as much text as one of the paper's and retrieving it costs no more
large   12/14 pt on the same grid, for models that misread small letters
miniature  three short lines on 112x84 px, each on a row of 28 px cells of its own: 12 tokens a page, for the model of
        seer.miniature and for no other

The paper's Verdana may not be passed on; DejaVu Sans, of nearly the same widths, stands in. To use your own copy:
`resolve_style("seer", fonts=("/path/to/Verdana.ttf", "DroidSansFallback"))`.
"""

from __future__ import annotations

import difflib
from typing import Any

from seer.config import build_config
from seer.errors import InputError
from seer.schema import PageStyle

STYLES: dict[str, PageStyle] = {
    "seer": PageStyle(name="seer"),
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
"""Every style by its name."""


def resolve_style(style: str | PageStyle, **changes: Any) -> PageStyle:
    """The style of that name, or `style` itself, with some fields changed; a changed style is named `<name>*`.

    Raises InputError for an unknown name, ConfigError for an unknown field or a value out of range.
    """
    if isinstance(style, str):
        if style not in STYLES:
            near = difflib.get_close_matches(style, STYLES, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(f"no style is called '{style}'; {hint}known styles: {', '.join(STYLES)}, auto")
        style = STYLES[style]
    if not changes:
        return style
    values = style.model_dump() | {"name": style.name.rstrip("*") + "*"} | changes
    return build_config(PageStyle, values, where=f"style '{style.name}'")
