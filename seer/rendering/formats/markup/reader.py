"""Read a sequence of tags and text into lines of visible text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from html import unescape

from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.markup.hiding import HidingRules, hides
from seer.rendering.formats.markup.lines import LineWriter
from seer.rendering.formats.markup.mathml import linear_math
from seer.rendering.formats.markup.tables import MAX_SPAN, Row, Table
from seer.rendering.formats.scripts import lowered, raised

_SPACED = {"blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "title", "ul"}
"""Blocks that a blank line separates from the text around them."""
_BLOCKS = _SPACED | {
    *("address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dt", "fieldset"),
    *("figcaption", "footer", "form", "header", "hr", "html", "legend", "li", "main", "nav", "option", "section"),
    *("summary", "tbody", "tfoot", "thead", "tr"),
}
_SKIPPED = {"script", "style", "template", "noscript", "svg", "iframe", "object"}
"""Elements whose content is left out."""
_VOID = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"),
}
_IMPLIED_ENDS = {
    "li": ({"li"}, {"ul", "ol", "menu"}),
    "dt": ({"dt", "dd"}, {"dl"}),
    "dd": ({"dt", "dd"}, {"dl"}),
    "tr": ({"tr", "td", "th"}, {"table"}),
    "td": ({"td", "th"}, {"tr", "table"}),
    "th": ({"td", "th"}, {"tr", "table"}),
    "option": ({"option"}, {"select"}),
}
"""For elements without a required end tag: the elements that their start closes, and those that stop the search."""
_MAX_OPEN_SEARCHED = 64
"""Open elements that are searched for one to close; deeper ones are left open."""
_LIST_TAGS = ("ul", "ol", "menu")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_MAX_NOTICES = 20
_LINE_BREAK = re.compile(r" *+\n\s*+")
_ATTRIBUTE = re.compile(r"([^\s=/>]++)(?:\s*+=\s*+(?:\"([^\"]*+)\"?|'([^']*+)'?|([^\s>]*+)))?+")
_HUGE_REFERENCE = re.compile(r"&#[0-9]{12,}+;?")
"""A numeric character reference far above the last code point. `html.unescape` raises ValueError for long ones."""


@dataclass
class _List:
    """A list that is being read: its next number, and the step to the one after; no number for bullets."""

    next: int | None
    step: int = 1


class PageReader:
    """Turns a sequence of tags and text into lines."""

    def __init__(self) -> None:
        self._page = LineWriter()
        self._writers = [self._page]
        """The page's writer, then those of the open cells, from the outermost to the innermost."""
        self._open: list[str] = []
        self._count: Counter[str] = Counter()
        self._hidden_at: int | None = None
        """Number of open elements above the hidden one; None if nothing is hidden."""
        self._hidden_words: list[str] = []
        self._skipping: list[str] = []
        self._rules = HidingRules()
        self._tables: list[Table] = []
        self._lists: list[_List] = []
        self._script: tuple[str, list[str]] | None = None
        self._notices: list[Notice] = []

    # ── Results ──────────────────────────────────────────────────────────────────────────────────

    def extract(self) -> Extract:
        """Return the text and the notices of the page read so far."""
        self._end_script()
        while self._open:
            self._pop()
        text = self._page.text()
        # Trailing blank lines are gone, so the last places may lie behind the text.
        last = max(0, len(text) - 1)
        return Extract(text, tuple(replace(notice, offset=min(notice.offset or 0, last)) for notice in self._notices))

    @property
    def _out(self) -> LineWriter:
        """The writer of the innermost open cell, or of the page."""
        return self._writers[-1]

    def _notice(self, kind: str, message: str) -> None:
        if len(self._notices) < _MAX_NOTICES:
            # Text inside an open cell has no place on the page yet; the cell's row is near enough.
            self._notices.append(Notice(kind, message, self._page.length))

    # ── Tags ─────────────────────────────────────────────────────────────────────────────────────

    def start_tag(self, tag: str, source: str) -> None:
        """Process a start tag; `tag` is in lower case, `source` is the rest of the tag."""
        if self._skipping or tag in _SKIPPED:
            if tag in _SKIPPED:
                self._skipping.append(tag)
            return
        self._close_implied(tag)
        attributes = parse_attributes(source) if source else {}
        is_hidden = (
            "hidden" in attributes
            or hides(attributes.get("style", ""))
            or self._rules.match(tag, attributes)
            or (tag == "input" and attributes.get("type", "").lower() == "hidden")
        )
        if tag in _VOID:
            if self._hidden_at is None and not is_hidden:
                self._void(tag, attributes)
            return
        if is_hidden and self._hidden_at is None:
            self._hidden_at, self._hidden_words = len(self._open), []
        self._open.append(tag)
        self._count[tag] += 1
        if self._hidden_at is None:
            self._enter(tag, attributes)

    def end_tag(self, tag: str) -> None:
        """Process an end tag; `tag` is in lower case."""
        if self._skipping:
            # Skipped elements nest, so each is closed by its own end tag.
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag in _VOID or not self._count[tag]:
            return
        # Each element is popped once, so stray end tags cost no more than the elements they close.
        while self._open and self._open[-1] != tag:
            self._pop()
        self._pop()

    def raw(self, tag: str, source: str, content: str) -> None:
        """Process the content of an element that is read to its own end tag."""
        if tag == "style":
            self._rules.add(content)
        elif self._skipping or self._hidden_at is not None:
            return
        elif tag == "textarea":
            self._out.words(_unescape(content))
        elif tag == "math":
            formula = linear_math(content) or parse_attributes(source).get("alttext", "").strip()
            if formula:
                self._write_inline(formula)
            else:
                self._notice("formula", "a formula has no text and is left out")

    def data(self, source: str) -> None:
        """Process text between tags, including its character references."""
        if self._skipping or not source:
            return
        text = _unescape(source)
        if self._hidden_at is not None:
            if len(self._hidden_words) < 40:
                self._hidden_words += text.split()[:40]
        elif self._script is not None:
            self._script[1].append(text)
        elif self._count["pre"]:
            for number, line in enumerate(text.split("\n")):
                if number:
                    self._out.newline()
                if line:
                    self._out.write(line)
        else:
            self._out.words(text)

    # ── Open elements ────────────────────────────────────────────────────────────────────────────

    def _close_implied(self, tag: str) -> None:
        """Close the elements that the start of `tag` ends, such as an open <li> before the next."""
        if tag in _IMPLIED_ENDS:
            ends, stops = _IMPLIED_ENDS[tag]
        elif tag in _BLOCKS and self._count["p"]:
            ends, stops = {"p"}, _BLOCKS - {"p"} | {"td", "th"}
        else:
            return
        found = None
        for depth in range(len(self._open) - 1, max(-1, len(self._open) - 1 - _MAX_OPEN_SEARCHED), -1):
            if self._open[depth] in stops:
                break
            if self._open[depth] in ends:
                found = depth
        if found is not None:
            while len(self._open) > found:
                self._pop()

    def _pop(self) -> None:
        """Close the innermost open element."""
        tag = self._open.pop()
        self._count[tag] -= 1
        if self._hidden_at is None:
            self._leave(tag)
        elif len(self._open) == self._hidden_at:
            self._hidden_at = None
            if self._hidden_words:
                words = " ".join(self._hidden_words)
                self._notice("hidden-text", f"hidden text is left out: “{words[:60]}{'…' if len(words) > 60 else ''}”")

    def _enter(self, tag: str, attributes: dict[str, str]) -> None:
        """Write what the start of a visible element shows."""
        if tag in ("sup", "sub"):
            self._end_script()
            self._script = (tag, [])
        elif tag in ("td", "th"):
            self._open_cell(attributes)
        elif tag in _BLOCKS:
            self._end_script()
            self._block(tag)
            if tag == "table":
                self._tables.append(Table())
            elif tag == "tr" and self._tables:
                self._tables[-1].rows = [Row()]
            elif tag in _LIST_TAGS:
                self._lists.append(_start_list(tag, attributes))
            elif tag == "li":
                self._item(attributes)

    def _leave(self, tag: str) -> None:
        """Write what the end of a visible element shows."""
        if tag in ("sup", "sub"):
            self._end_script()
        elif tag in ("td", "th"):
            self._close_cell()
        elif tag in _BLOCKS:
            self._end_script()
            if tag == "tr":
                self._close_row()
            elif tag == "table" and self._tables:
                self._tables.pop()
            elif tag in _LIST_TAGS and self._lists:
                self._lists.pop()
            self._block(tag)

    def _void(self, tag: str, attributes: dict[str, str]) -> None:
        """Write what an element without content shows."""
        if tag == "br":
            self._end_script()
            self._out.newline()
        elif tag == "img":
            self.data(attributes.get("alt", ""))
        elif tag == "hr":
            self._block(tag)
        elif tag == "input":
            kind = attributes.get("type", "text").lower()
            if kind in ("checkbox", "radio"):
                self._out.write("☑" if "checked" in attributes else "☐")
            elif kind not in ("password", "file", "image"):
                self.data(attributes.get("value", ""))

    def _block(self, tag: str) -> None:
        self._out.block(tag in _SPACED)
        if self._tables and self._tables[-1].rows and tag not in ("table", "tr", "tbody", "thead", "tfoot"):
            row = self._tables[-1].rows[-1]
            # One paragraph in a cell is usual; lists, headings and several blocks make a layout of their own.
            row.blocks += 4 if tag in (*_LIST_TAGS, *_HEADINGS, "pre") else 1

    # ── Lists, scripts and tables ────────────────────────────────────────────────────────────────

    def _item(self, attributes: dict[str, str]) -> None:
        if not self._lists or self._lists[-1].next is None:
            self._out.write("- ")
            return
        current = self._lists[-1]
        number = _integer(attributes.get("value"), current.next or 0)
        current.next = number + current.step
        self._out.write(f"{number}. ")

    def _end_script(self) -> None:
        """Write the open super- or subscript."""
        if self._script is not None:
            (tag, pieces), self._script = self._script, None
            text = "".join(pieces)
            self._write_inline(raised(text) if tag == "sup" else lowered(text))

    def _write_inline(self, text: str) -> None:
        """Write text at the current place, as part of running text or of an open script."""
        if self._script is not None:
            self._script[1].append(text)
        else:
            self._out.words(text)

    def _open_cell(self, attributes: dict[str, str]) -> None:
        self._end_script()
        if not self._tables:
            self._out.write("\t")
            return
        table = self._tables[-1]
        if not table.rows:
            table.rows = [Row()]
        row = table.rows[-1]
        table.skip_covered(row)
        self._close_cell()
        row.writer = LineWriter()
        self._writers.append(row.writer)
        row.columns = min(MAX_SPAN, max(1, _integer(attributes.get("colspan"), 1)))
        row.rows = min(MAX_SPAN, max(1, _integer(attributes.get("rowspan"), 1)))
        row.blocks = 0

    def _close_cell(self) -> None:
        self._end_script()
        row = self._tables[-1].rows[-1] if self._tables and self._tables[-1].rows else None
        if row is None or row.writer is None:
            return
        first = len(row.cells)
        row.cells.append((row.writer.text().strip("\n"), row.blocks > 3))
        row.cells += [("", False)] * (row.columns - 1)
        if row.rows > 1:
            self._tables[-1].hanging.update(dict.fromkeys(range(first, first + row.columns), row.rows))
        while self._writers.pop() is not row.writer:
            pass  # cells of inner tables that were left open
        row.writer = None

    def _close_row(self) -> None:
        if not self._tables or not self._tables[-1].rows:
            return
        table = self._tables[-1]
        self._close_cell()
        row = table.rows.pop()
        table.end_row(row)
        if any(has_structure for _, has_structure in row.cells):
            for text, _ in row.cells:
                self._out.block(False)
                for line in text.split("\n") if text else ():
                    self._out.write(line)
                    self._out.newline()
        elif any(text for text, _ in row.cells):
            self._out.write("\t".join(_LINE_BREAK.sub(" ", text) for text, _ in row.cells))
            self._out.end_line()


def _start_list(tag: str, attributes: dict[str, str]) -> _List:
    """Return the state of a list at its start."""
    if tag != "ol":
        return _List(None)
    step = -1 if "reversed" in attributes else 1
    return _List(_integer(attributes.get("start"), 1), step)


def _integer(text: str | None, default: int) -> int:
    """Return the number that an attribute begins with, at most six digits; `default` if there is none."""
    match = re.match(r"\s*(-?\d{1,6})", text or "")
    return int(match[1]) if match else default


def parse_attributes(source: str) -> dict[str, str]:
    """Return the attributes of a tag, names in lower case."""
    return {name.lower(): _unescape("".join(values)) for name, *values in _ATTRIBUTE.findall(source)}


def _unescape(text: str) -> str:
    """Resolve character references."""
    return unescape(_HUGE_REFERENCE.sub("\ufffd", text))
