"""Automatic numbers of a Word file's paragraphs, such as `1.1.` and `(b)`.

numbering = Numbering(numbering_root, styles_root)
numbering.number(paragraph)          # "1.1.", "-", or "" for a paragraph without a number
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from seer.rendering.formats.office.package import Element, attribute, child, tag_of

_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
_ROMAN_ONES = ((9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_MAX_TEXT = 100
"""Characters of a level's text that are kept; a hostile one would be repeated for every paragraph."""
_MAX_LEVELS = 9
_MAX_STYLES = 50
"""Styles that are followed from one to the style that it is based on."""


@dataclass(frozen=True)
class _Level:
    """One level of a list."""

    start: int = 1
    form: str = "decimal"
    text: str = ""
    is_legal: bool = False
    """All numbers in the text are decimal."""
    restarts_after: int | None = None
    """The level, from 1, whose items restart this one; None for the level above, 0 for never."""


@dataclass
class _Numbers:
    """The state of a list."""

    counters: dict[int, int] = field(default_factory=dict)


class Numbering:
    """The lists of a document. Paragraphs have to be numbered in document order, each once."""

    def __init__(self, numbering: Element | None, styles: Element | None) -> None:
        self._abstract: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, tuple[str, dict[int, int], dict[int, _Level]]] = {}
        """By list: its abstract list, the levels that it starts anew, and the levels that it defines itself."""
        self._states: dict[str, _Numbers] = {}
        self._begun: set[tuple[str, int]] = set()
        self._styles: dict[str, tuple[Element | None, str]] = {}
        self._style_levels: dict[tuple[str, str], int] = {}
        self._style_links: dict[str, str] = {}
        """Styles of lists by abstract lists that have no levels of their own."""
        self._default = ""
        """The style of paragraphs that name none."""
        for one in numbering if numbering is not None else ():
            if tag_of(one) == "w:abstractNum":
                name = attribute(one, "abstractNumId")
                self._abstract[name] = self._levels(one, name)
                link = child(one, "w:numStyleLink")
                if link is not None:
                    self._style_links[name] = attribute(link, "val")
            elif tag_of(one) == "w:num":
                self._read_list(one)
        for one in styles if styles is not None else ():
            if tag_of(one) == "w:style":
                based_on = child(one, "w:basedOn")
                base = "" if based_on is None else attribute(based_on, "val")
                self._styles[attribute(one, "styleId")] = (child(one, "w:pPr", "w:numPr"), base)
                if attribute(one, "type") == "paragraph" and attribute(one, "default") in ("1", "true", "on"):
                    self._default = attribute(one, "styleId")

    def number(self, paragraph: Element) -> str:
        """Return the number of a paragraph as shown, or an empty string. Bullets become "-"."""
        name, depth = self._place(paragraph)
        if name not in self._lists:
            return ""
        abstract, starts, own = self._lists[name]
        abstract = self._linked(abstract)
        levels = {**self._abstract.get(abstract, {}), **own}
        level = levels.get(depth)
        if level is None:
            return ""
        state = self._states.setdefault(abstract, _Numbers())
        if depth in starts and (name, depth) not in self._begun:
            state.counters.pop(depth, None)
        self._begun.add((name, depth))
        first = starts.get(depth, level.start)
        state.counters[depth] = state.counters[depth] + 1 if depth in state.counters else first
        for deeper in [other for other in state.counters if other > depth]:
            after = levels[deeper].restarts_after if deeper in levels else None
            if after is None or depth < after:
                del state.counters[deeper]
        if level.form == "bullet":
            return "-"
        if level.form == "none":
            return re.sub(r"%\d", "", level.text).strip()

        def value(match: re.Match[str]) -> str:
            of = int(match[1]) - 1
            other = levels.get(of, _Level())
            count = state.counters.get(of, other.start)
            return format_number(count, "decimal" if level.is_legal else other.form)

        return re.sub(r"%(\d)", value, level.text).strip()

    def _linked(self, abstract: str) -> str:
        """Return the abstract list that has the levels: a list may take them from the list of a style."""
        style = self._style_links.get(abstract)
        if style is None or style not in self._styles:
            return abstract
        name, _ = _of_properties(self._styles[style][0])
        return self._lists.get(name or "", (abstract, {}, {}))[0]

    def _read_list(self, one: Element) -> None:
        reference = child(one, "w:abstractNumId")
        starts: dict[int, int] = {}
        own: dict[int, _Level] = {}
        abstract = "" if reference is None else attribute(reference, "val")
        for override in one:
            if tag_of(override) == "w:lvlOverride":
                depth = _integer(attribute(override, "ilvl"), 0)
                start = child(override, "w:startOverride")
                if start is not None:
                    starts[depth] = _integer(attribute(start, "val"), 1)
                own.update(self._levels(override, abstract))
        self._lists[attribute(one, "numId")] = (abstract, starts, own)

    def _levels(self, parent: Element, abstract: str) -> dict[int, _Level]:
        levels = {}
        for one in parent:
            if tag_of(one) != "w:lvl":
                continue
            depth, level = _integer(attribute(one, "ilvl"), 0), _Level()
            for part in one:
                value = attribute(part, "val")
                tag = tag_of(part)
                if tag == "w:start":
                    level = replace(level, start=_integer(value, 1))
                elif tag == "w:numFmt":
                    level = replace(level, form=value)
                elif tag == "w:lvlText":
                    level = replace(level, text=value[:_MAX_TEXT])
                elif tag == "w:isLgl":
                    level = replace(level, is_legal=value not in ("0", "false"))
                elif tag == "w:lvlRestart":
                    level = replace(level, restarts_after=_integer(value, 0))
                elif tag == "w:pStyle":
                    self._style_levels[value, abstract] = depth
            if 0 <= depth < _MAX_LEVELS:
                levels[depth] = level
        return levels

    def _place(self, paragraph: Element) -> tuple[str, int]:
        """Return the list and the level of a paragraph: its own, or those of its style."""
        properties = child(paragraph, "w:pPr")
        own = child(properties, "w:numPr")
        style_element = child(properties, "w:pStyle")
        style = self._default if style_element is None else attribute(style_element, "val")
        name, depth = _of_properties(own)
        for _ in range(_MAX_STYLES):
            if name is not None or style not in self._styles:
                break
            inherited, base = self._styles[style]
            name, of_style = _of_properties(inherited)
            if name is not None and depth is None:
                abstract = self._lists.get(name, ("", {}, {}))[0]
                depth = of_style if of_style is not None else self._style_levels.get((style, abstract))
            style = base
        return name or "", depth or 0


def _of_properties(properties: Element | None) -> tuple[str | None, int | None]:
    """Return the list and the level that a <w:numPr> names; None for what it leaves open."""
    name, depth = child(properties, "w:numId"), child(properties, "w:ilvl")
    return (
        None if name is None else attribute(name, "val"),
        None if depth is None else _integer(attribute(depth, "val"), 0),
    )


def format_number(value: int, form: str) -> str:
    """Return a number in one of Word's forms; forms that are not known are decimal.

    >>> [format_number(4, form) for form in ("decimal", "lowerRoman", "upperLetter", "decimalZero", "ordinal")]
    ['4', 'iv', 'D', '04', '4.']
    """
    if form in ("lowerLetter", "upperLetter") and value > 0:
        # After z comes aa, then bb.
        letter = chr(ord("a") + (value - 1) % 26) * min(20, (value - 1) // 26 + 1)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < value < 4000:
        roman, left = "", value
        for size, letters in (*_ROMAN, *_ROMAN_ONES):
            roman += letters * (left // size)
            left %= size
        return roman.upper() if form == "upperRoman" else roman
    if form == "decimalZero":
        return f"{value:02d}"
    return f"{value}." if form == "ordinal" else str(value)


def _integer(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"-?\d{1,6}", text) else default
