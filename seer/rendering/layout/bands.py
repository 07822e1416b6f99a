"""Bands: horizontal strips of a page, each three rows of 28-px patches high, named by page number and letter.

    band_name(3, 1)                   # "3b": the second strip of page 3
    bands_of_span(page, 120, 260)     # (0, 1): the strips that show these characters
    band_regions(page, [0, 1])        # their source text, adjacent lines merged

A drawn line belongs to the one band that contains its vertical centre, so the bands of a page divide its text without
overlap. Bands are page geometry only: no call, grammar or page style uses them yet.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from seer.errors import InputError
from seer.schema import Box, Page, Region

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from seer.schema import LineBox

PATCH_ROW_PX = 28
ROWS_PER_BAND = 3
BAND_PX = PATCH_ROW_PX * ROWS_PER_BAND
LETTERS = string.ascii_lowercase
_NAME = re.compile(r"([1-9][0-9]{0,5})([a-z]?)")


def num_bands(height_px: int) -> int:
    """Return the number of bands on a page of this height; the last band may be shorter than the others.

    Raises InputError if the page is less than one pixel high or needs more bands than there are letters.
    """
    # Image processors round the height to whole patch rows: a page of 842 px has 30 rows and no band for the last 2 px.
    rows = max(1, round(height_px / PATCH_ROW_PX))
    count = -(-rows // ROWS_PER_BAND)
    if height_px < 1 or count > len(LETTERS):
        limit = BAND_PX * len(LETTERS)
        raise InputError(f"page height {height_px} px: bands need 1 to {limit} px; choose a lower page")
    return count


def band_name(page: int, band: int) -> str:
    """Return the name of a band, such as "3b" for page 3 and band 1.

    Raises InputError if the page is below 1 or the band has no letter.
    """
    if page < 1 or not 0 <= band < len(LETTERS):
        raise InputError(f"page {page}, band {band}: pages count from 1 and bands from 0 to {len(LETTERS) - 1}")
    return f"{page}{LETTERS[band]}"


def parse_band(name: str, heights_px: Sequence[int]) -> tuple[int, int | None]:
    """Parse a name into (page, band); the band is None if the name is a page number alone, the whole page.

    Args:
        name: untrusted text, such as "3b" or "3".
        heights_px: the height of every page of the document, page 1 first.

    Raises InputError if the name is malformed, or if the document has no such page or the page no such band.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"band {name[:20]!r}: must be a page number with an optional letter a to z, such as '3b'")
    page, letter = int(match[1]), match[2]
    if page > len(heights_px):
        raise InputError(f"band {name!r}: the document has {len(heights_px)} pages; name one of them")
    count = num_bands(heights_px[page - 1])
    if letter and LETTERS.index(letter) >= count:
        raise InputError(f"band {name!r}: page {page} ends with band {LETTERS[count - 1]!r}; name an earlier one")
    return page, LETTERS.index(letter) if letter else None


def band_regions(page: Page, bands: Iterable[int]) -> tuple[Region, ...]:
    """Return the text of bands as regions of kind "band" in source order.

    Adjacent lines are merged into one region, also across bands. In a page with columns, one band yields a region for
    every column. A band without text yields none.

    Raises InputError if the page has no such band or does not know its lines.
    """
    wanted, count = set(bands), num_bands(page.height_px)
    for band in sorted(wanted):
        if not 0 <= band < count:
            raise InputError(f"page {page.number}, band {band}: must be 0 to {count - 1}")
    runs: list[list[LineBox]] = []
    for line in sorted(_lines(page), key=lambda line: line.start):
        if _band_of_line(line, count) not in wanted:
            continue
        if runs and runs[-1][-1].end == line.start:
            runs[-1].append(line)
        else:
            runs.append([line])
    return tuple(_region(page.number, run) for run in runs)


def bands_of_span(page: Page, start: int, end: int) -> tuple[int, ...]:
    """Return the ascending bands whose lines show source text [start, end); empty if none of it is on the page.

    Raises InputError if the page does not know its lines.
    """
    count = num_bands(page.height_px)
    # An empty span lies inside a line by its offsets, but shows no character.
    touched = [line for line in _lines(page) if max(line.start, start) < min(line.end, end)]
    return tuple(sorted({_band_of_line(line, count) for line in touched}))


def _lines(page: Page) -> Sequence[LineBox]:
    lines = page.line_boxes()
    if page.text and not lines:
        raise InputError(f"page {page.number}: its lines are unknown, so bands lead to no text; select whole pages")
    return lines


def _band_of_line(line: LineBox, count: int) -> int:
    # A line may be drawn past the page's edge; it then belongs to the nearest band.
    centre_px = line.y_px + line.height_px / 2
    return min(max(int(centre_px // BAND_PX), 0), count - 1)


def _region(number: int, run: Sequence[LineBox]) -> Region:
    boxes = tuple(Box(x_px=line.x_px, y_px=line.y_px, width_px=line.width_px, height_px=line.height_px) for line in run)
    return Region(page=number, start=run[0].start, end=run[-1].end, boxes=boxes, kind="band")
