"""Tables of a web page while they are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from seer.rendering.formats.markup.lines import LineWriter

MAX_SPAN = 100
"""Most columns or rows that one cell may cover."""


@dataclass
class Row:
    """A table row that is being read."""

    cells: list[tuple[str, bool]] = field(default_factory=list)
    """(text, whether it has a structure of its own, as layout tables have)."""
    writer: LineWriter | None = None
    """Of the cell that is open."""
    columns: int = 1
    rows: int = 1
    blocks: int = 0
    """Blocks inside the open cell."""


@dataclass
class Table:
    """A table that is being read."""

    rows: list[Row] = field(default_factory=list)
    """The open row, if there is one."""
    hanging: dict[int, int] = field(default_factory=dict)
    """Rows that a cell above still covers, by column."""

    def skip_covered(self, row: Row) -> None:
        """Leave cells of `row` empty that a cell of a row above covers, so that columns stay in line."""
        while self.hanging.get(len(row.cells), 0) > 0 and len(row.cells) < MAX_SPAN:
            row.cells.append(("", False))

    def end_row(self, row: Row) -> None:
        """Complete a row: its last covered cells, and what the cells above cover of the next rows."""
        self.skip_covered(row)
        # A span of n rows covers this row and n - 1 more.
        self.hanging = {column: left - 1 for column, left in self.hanging.items() if left > 1}
