"""Lines of text as a browser lays them out: white space collapsed, blocks apart from each other."""

from __future__ import annotations

import re

_WHITE = re.compile(r"[ \t\n\r\f]+")


class LineWriter:
    """Collects text. A space is written only when the next word of the same line arrives."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line_empty = True
        self._blank_lines = 1  # a block at the start needs no blank line before it
        self._space_due = False
        self.length = 0
        """Characters written so far."""

    def text(self) -> str:
        """Return the text so far, ended by one newline; empty if there are only blank lines."""
        self.end_line()
        text = "".join(self._parts)
        return text.rstrip("\n") + "\n" if text.strip() else ""

    def words(self, text: str) -> None:
        """Write text whose runs of white space count as one space, also at its ends."""
        collapsed = _WHITE.sub(" ", text)
        if collapsed.startswith(" "):
            self._space_due = True
        if collapsed.strip(" "):
            if self._space_due and not self._line_empty:
                self.write(" ")
            self.write(collapsed.strip(" "))
            self._space_due = collapsed.endswith(" ")

    def write(self, text: str) -> None:
        """Append text to the current line as it is."""
        self._parts.append(text)
        self.length += len(text)
        self._line_empty, self._blank_lines = False, 0

    def newline(self) -> None:
        """End the current line, even if it is empty."""
        self._parts.append("\n")
        self.length += 1
        self._line_empty, self._space_due = True, False

    def end_line(self) -> None:
        """End the current line unless it is empty."""
        self._space_due = False
        if not self._line_empty:
            self.newline()

    def block(self, is_spaced: bool) -> None:
        """End the line at the border of a block, and add a blank line if the block needs one."""
        self.end_line()
        if is_spaced and not self._blank_lines and self._parts:
            self._parts.append("\n")
            self.length += 1
            self._blank_lines = 1
