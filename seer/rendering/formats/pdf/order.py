"""Put the text of a PDF page into reading order: columns one after the other, tables row by row with visible gaps.

pdfium returns text in the order of the file. Where one of its lines runs over a wide gap, the page has columns or a table
whose lines the file joins, and the order is found from the boxes of the characters:

1. Characters next to each other form words, words in a line form segments; a wide gap ends a segment.
2. Segments at the same height form rows. Consecutive rows with a common gutter, a gap that none of them crosses, form a block.
3. A block whose columns hold running text is read column by column, each ordered by the same rules. Every other block with
   gutters is a table: one line per row, with a tab between cells, so that an empty cell shows as two tabs.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from seer.rendering.formats.pdf.characters import LINE_HYPHENS, code_points, has_right_to_left
from seer.rendering.formats.pdf.segments import COLUMN_GAP_EM, Line, Segment, ink_of, segments_of, steps

_MIN_GAP_LINES = 2
_BREAKS = np.array(sorted(map(ord, "\r\n" + "".join(LINE_HYPHENS))))
_CELL_GAP_EM = 2.0
"""A gap within a single row becomes a tab from this width; a narrower one is a wide space."""
_BLOCK_GAP = 1.6
"""A block ends where the distance to the next row is this many times the usual one."""
_MIN_PROSE_LINES = 3
_MIN_PROSE_CHARACTERS = 15
"""Mean characters per line of a column that holds running text."""
_MIN_PROSE_FILL = 0.6
"""Mean width of the lines of such a column, relative to the widest."""
_MIN_TABLE_ROWS = 3
"""Rows with several cells of a table that is recognised by its cells alone."""
_MAX_DEPTH = 6
_MAX_SEGMENTS = 5000


@dataclass
class Row:
    """Segments at the same height, from left to right."""

    segments: list[Segment]
    top: float
    bottom: float


@dataclass
class Block:
    """Consecutive rows, and the gutters that none of them crosses: pairs (left, right)."""

    rows: list[Row]
    gutters: list[tuple[float, float]] = field(default_factory=list)


def has_joined_columns(text: str, boxes: NDArray[np.float64]) -> bool:
    """Return whether at least two lines of pdfium's text run over a wide gap or back to the left.

    A single such line is a header, a footer or a form's line; it has no order to find.

    Args:
        text: the characters of a page in pdfium's order, with its line breaks.
        boxes: float64 (n, 4), left, top, right, bottom of each character, those of the font.
    """
    ink = ink_of(text, boxes)
    if len(ink) < 2:
        return False
    line = np.cumsum(np.isin(code_points(text), _BREAKS))[ink]
    gaps, ems = steps(boxes[ink])
    wide = (gaps > COLUMN_GAP_EM * ems) & (line[1:] == line[:-1])
    return len(np.unique(line[1:][wide])) >= _MIN_GAP_LINES


def has_table(text: str, boxes: NDArray[np.float64]) -> bool:
    """Return whether a page holds a table of short cells, which pdfium may return column by column.

    The arguments are those of `in_reading_order`.
    """
    segments = segments_of(text, boxes)
    if not segments or len(segments) > _MAX_SEGMENTS:
        return False
    return any(_is_clear_table(block) for block in _blocks(_rows(segments), _usual_height(segments)))


def _is_clear_table(block: Block) -> bool:
    full = [row for row in block.rows if len(row.segments) > 1]
    columns = _columns([segment for row in block.rows for segment in row.segments], block.gutters)
    lengths = [np.mean([len(segment.glyphs) for segment in column]) for column in columns if column]
    is_short = [length < _MIN_PROSE_CHARACTERS for length in lengths]
    return len(full) >= _MIN_TABLE_ROWS and len(lengths) > 1 and bool(sum(is_short) >= len(lengths) - 1)


def in_reading_order(text: str, boxes: NDArray[np.float64]) -> list[Line]:
    """Return the lines of a page in reading order.

    Args:
        text: the characters of the page in pdfium's order, with its spaces and line breaks.
        boxes: float64 (n, 4), left, top, right, bottom of each character, those of the font, turned so that the text runs
            from left to right; y points down.

    Every visible character of `text` occurs in exactly one line.
    """
    mirrored = _reads_right_to_left(text)
    if mirrored:
        boxes = np.stack((-boxes[:, 2], boxes[:, 1], -boxes[:, 0], boxes[:, 3]), 1)
    segments = segments_of(text, boxes)
    return _layout(segments, 0)


def _reads_right_to_left(text: str) -> bool:
    if not has_right_to_left(text):
        return False
    directions = [unicodedata.bidirectional(character) for character in text if character.isalpha()]
    return sum(direction in ("R", "AL") for direction in directions) * 2 > len(directions)


def _layout(segments: list[Segment], depth: int) -> list[Line]:
    """Return the lines of segments in reading order."""
    if not segments:
        return []
    if depth > _MAX_DEPTH or len(segments) > _MAX_SEGMENTS:
        return [segment.glyphs for segment in segments]
    rows = _rows(segments)
    em = _usual_height(segments)
    lines: list[Line] = []
    for block in _blocks(rows, em):
        members = [segment for row in block.rows for segment in row.segments]
        columns = _columns(members, block.gutters)
        if len(columns) > 1 and _holds_prose(columns):
            for column in columns:
                lines += _layout(column, depth + 1)
        elif len(columns) > 1 and any(len(row.segments) > 1 for row in block.rows):
            lines += _table(block, em)
        else:
            lines += [_plain(row, em) for row in block.rows]
    return lines


def _usual_height(segments: list[Segment]) -> float:
    return float(np.median([segment.height for segment in segments]))


def _rows(segments: list[Segment]) -> list[Row]:
    """Group segments whose heights overlap by at least half."""
    rows: list[Row] = []
    for segment in sorted(segments, key=lambda one: (one.top + one.bottom, one.left)):
        row = rows[-1] if rows else None
        if row is not None:
            shared = min(row.bottom, segment.bottom) - max(row.top, segment.top)
            if shared >= 0.5 * min(row.bottom - row.top, segment.height):
                row.segments.append(segment)
                row.top, row.bottom = min(row.top, segment.top), max(row.bottom, segment.bottom)
                continue
        rows.append(Row([segment], segment.top, segment.bottom))
    for row in rows:
        row.segments.sort(key=lambda one: one.left)
    return rows


def _blocks(rows: list[Row], em: float) -> list[Block]:
    """Group consecutive rows with a common gutter, and consecutive rows without one."""
    blocks: list[Block] = []
    pitches = [second.top - first.top for first, second in pairwise(rows)]
    pitch = float(np.median(pitches)) if pitches else 0.0
    for row in rows:
        gutters = _gutters(row.segments, em)
        if blocks:
            block = blocks[-1]
            members = [segment for one in (*block.rows, row) for segment in one.segments]
            common = _gutters(members, em)
            near = row.top - block.rows[-1].top <= _BLOCK_GAP * max(pitch, block.rows[-1].bottom - block.rows[-1].top)
            if common and (block.gutters or gutters or len(block.rows) == 1) and near:
                block.rows.append(row)
                block.gutters = common
                continue
            if not common and not block.gutters and not gutters:
                block.rows.append(row)
                continue
        blocks.append(Block([row], gutters))
    return blocks


def _gutters(segments: list[Segment], em: float) -> list[tuple[float, float]]:
    """Return the vertical strips between segments that none of them crosses, at least one em wide."""
    gutters = []
    reach = None
    for segment in sorted(segments, key=lambda one: one.left):
        if reach is not None and segment.left - reach >= COLUMN_GAP_EM * em:
            gutters.append((reach, segment.left))
        reach = segment.right if reach is None else max(reach, segment.right)
    return gutters


def _columns(segments: list[Segment], gutters: list[tuple[float, float]]) -> list[list[Segment]]:
    """Return the segments between the gutters, column by column; empty columns do not exist by construction."""
    columns: list[list[Segment]] = [[] for _ in range(len(gutters) + 1)]
    for segment in segments:
        columns[_column_of(segment, gutters)].append(segment)
    return columns


def _column_of(segment: Segment, gutters: list[tuple[float, float]]) -> int:
    return sum(segment.left >= right for _, right in gutters)


def _holds_prose(columns: list[list[Segment]]) -> bool:
    """Return whether at least two columns hold running text, and no other column is more than a few words."""
    prose = [_is_prose(column) for column in columns]
    return sum(prose) >= 2 and sum(prose) >= len(columns) - 1


def _is_prose(column: list[Segment]) -> bool:
    if len(column) < _MIN_PROSE_LINES:
        return False
    widths = np.array([segment.right - segment.left for segment in column])
    characters = np.mean([len(segment.glyphs) for segment in column])
    return bool(characters >= _MIN_PROSE_CHARACTERS and (widths / widths.max()).mean() >= _MIN_PROSE_FILL)


def _table(block: Block, em: float) -> list[Line]:
    """Return the rows of a table: cells with a tab between them. Empty cells at a row's end are left out."""
    rows: list[list[list[Segment]]] = []
    for row in block.rows:
        cells: list[list[Segment]] = [[] for _ in range(len(block.gutters) + 1)]
        for segment in row.segments:
            cells[_column_of(segment, block.gutters)].append(segment)
        rows.append(cells)
    return [_cells(cells, em) for cells in _with_heads_joined(rows)]


def _with_heads_joined(rows: list[list[list[Segment]]]) -> list[list[list[Segment]]]:
    """Join columns that hold only a heading with the columns that lack one, as of headings centred over their cells."""
    columns = range(len(rows[0]))
    heads = [k for k in columns if rows[0][k] and not any(row[k] for row in rows[1:])]
    headless = [k for k in columns if not rows[0][k]]
    if not heads or len(heads) != len(headless):
        return rows
    for head, column in zip(heads, headless, strict=True):
        rows[0][column] = rows[0][head]
    return [[row[k] for k in columns if k not in heads] for row in rows]


def _cells(cells: list[list[Segment]], em: float) -> Line:
    line: Line = []
    waiting = 0
    for number, cell in enumerate(cells):
        waiting += number > 0
        if cell:
            line += [("\t", -1)] * waiting
            waiting = 0
            line += _joined(cell, em, COLUMN_GAP_EM)
    return line


def _plain(row: Row, em: float) -> Line:
    return _joined(row.segments, em, _CELL_GAP_EM)


def _joined(segments: list[Segment], em: float, tab_gap_em: float) -> Line:
    """Return segments as one line, with a tab at gaps of at least `tab_gap_em` and a space at others."""
    line: Line = []
    for number, segment in enumerate(segments):
        if number:
            gap = segment.left - segments[number - 1].right
            line.append(("\t" if gap >= tab_gap_em * em else " ", -1))
        line += segment.glyphs
    return line
