"""Extract the visible text of HTML pages, line by line.

    extract = read_html(data, "page.html", None)

Blocks end lines. Runs of white space become one space, except in <pre>. Table cells are separated by tabs, list items
begin with "- ", and images are replaced by their alternative text. Scripts, styles and templates are left out.

The page is untrusted. Markup is matched by possessive expressions that never backtrack, so every page takes linear
time. The standard library's parser takes minutes for a hundred kilobytes of unclosed comments or tags.
"""

from __future__ import annotations

import codecs
import re
from html import unescape

from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extract import Extract
from seer.rendering.formats.text import decode

_SPACED = {"blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "title", "ul"}
"""Blocks that a blank line separates from the text around them."""
_BLOCKS = _SPACED | {
    *("address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dt", "fieldset"),
    *("figcaption", "footer", "form", "header", "hr", "html", "legend", "li", "main", "nav", "option", "section"),
    *("summary", "tbody", "tfoot", "thead", "tr"),
}
_SKIPPED = {"script", "style", "template", "noscript", "svg", "math", "iframe", "object"}
"""Elements whose content is left out."""
_WHITE = re.compile(r"[ \t\n\r\f]+")
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([a-zA-Z0-9_.:-]+)", re.IGNORECASE)
_MARKUP = re.compile(
    r"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|(?P<end>/?)(?P<tag>[a-zA-Z][^\s/>]*+)"
    r"(?P<attributes>(?:=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))|[^>])*+)(?:>|\Z)"
    r"|[!?/][^>]*+(?:>|\Z))",
    re.DOTALL,
)
"""A comment, a tag, or a declaration. Markup that is still open at the end of the file counts as closed there."""
_ATTRIBUTE = re.compile(r"([^\s=/>]++)(?:\s*+=\s*+(?:\"([^\"]*+)\"?|'([^']*+)'?|([^\s>]*+)))?+")
_RAW_TEXT_ENDS = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style")}
"""Elements in which only their own end tag is markup."""
_HUGE_REFERENCE = re.compile(r"&#[0-9]{12,}+;?")
"""A numeric character reference far above the last code point. `html.unescape` raises ValueError for long ones."""


def read_html(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the visible text of a web page; a given `encoding` overrides the one that the page declares.

    Raises InputError if the page cannot be decoded.
    """
    source = decode(data, name=name, encoding=encoding or declared_encoding(data))
    return replace_embedded(html_text(source.removeprefix("\ufeff")))


def declared_encoding(data: bytes) -> str | None:
    """Return the encoding that a page declares in a <meta> element, as a Python codec name.

    Returns None if the page declares none, if Python does not know it, or if a byte-order mark, which takes
    precedence, is present.
    """
    match = _CHARSET.search(data[:4096])
    if match is None or data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    # Browsers decode these older names as their supersets.
    name = match[1].decode("ascii").lower()
    name = {"gb2312": "gb18030", "gbk": "gb18030", "iso-8859-1": "cp1252", "latin1": "cp1252"}.get(name, name)
    try:
        codecs.lookup(name)
    except LookupError:
        return None
    return name


def html_text(source: str) -> str:
    """Return the visible text of an HTML page; empty if there is none."""
    reader = _Reader()
    place = 0
    while markup := _MARKUP.search(source, place):
        reader.data(source[place : markup.start()])
        place = markup.end()
        if not markup["tag"]:
            continue
        tag, attributes = markup["tag"].lower(), markup["attributes"]
        if markup["end"]:
            reader.end_tag(tag)
            continue
        reader.start_tag(tag, attributes)
        # "<tag/>" opens and closes an element.
        if attributes.endswith("/"):
            reader.end_tag(tag)
        elif tag in _RAW_TEXT_ENDS:
            # Content of a script or style is not markup: continue at its end tag.
            end = _RAW_TEXT_ENDS[tag].search(source, place)
            place = end.start() if end else len(source)
    reader.data(source[place:])
    return reader.text()


def _alternative(attributes: str) -> str:
    """Return the value of the attribute `alt`, or an empty string."""
    for name, *values in _ATTRIBUTE.findall(attributes):
        if name.lower() == "alt":
            return "".join(values)
    return ""


class _Reader:
    """Turns a sequence of tags and text into lines.

    White space is collapsed as in a browser: a space is written only when the next word of the same line arrives.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line_empty = True
        self._blank_lines = 1  # a block at the start needs no blank line before it
        self._space_due = False
        self._skipping: list[str] = []
        self._pre = 0
        self._cells = 0

    def text(self) -> str:
        """Return the text so far, ended by one newline; empty if there are only blank lines."""
        self._end_line()
        return "".join(self._parts).rstrip("\n") + "\n" if "".join(self._parts).strip() else ""

    def start_tag(self, tag: str, attributes: str) -> None:
        """Process a start tag; `tag` is in lower case, `attributes` is the rest of the tag."""
        if self._skipping or tag in _SKIPPED:
            if tag in _SKIPPED:
                self._skipping.append(tag)
            return
        if tag == "br":
            self._newline()
        elif tag in ("td", "th"):
            if self._cells:
                self._write("\t")
            self._cells += 1
        elif tag == "img":
            self.data(_alternative(attributes))
        elif tag in _BLOCKS:
            self._block(tag)
            if tag == "tr":
                self._cells = 0
            elif tag == "li":
                self._write("- ")
            elif tag == "pre":
                self._pre += 1

    def end_tag(self, tag: str) -> None:
        """Process an end tag; `tag` is in lower case."""
        if self._skipping:
            # Skipped elements nest, so each is closed by its own end tag.
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag in _BLOCKS:
            self._block(tag)
            if tag == "pre":
                self._pre = max(0, self._pre - 1)

    def data(self, source: str) -> None:
        """Process text between tags, including its character references."""
        if self._skipping or not source:
            return
        data = unescape(_HUGE_REFERENCE.sub("\ufffd", source))
        if self._pre:
            for k, line in enumerate(data.split("\n")):
                if k:
                    self._newline()
                if line:
                    self._write(line)
            return
        # Outside <pre>, white space at either end of the text becomes a pending space.
        words = _WHITE.sub(" ", data)
        if words.startswith(" "):
            self._space_due = True
        if words.strip(" "):
            if self._space_due and not self._line_empty:
                self._write(" ")
            self._write(words.strip(" "))
            self._space_due = words.endswith(" ")

    def _write(self, text: str) -> None:
        """Append text to the current line."""
        self._parts.append(text)
        self._line_empty, self._blank_lines = False, 0

    def _newline(self) -> None:
        """End the current line, even if it is empty."""
        self._parts.append("\n")
        self._line_empty, self._space_due = True, False

    def _end_line(self) -> None:
        """End the current line unless it is empty."""
        self._space_due = False
        if not self._line_empty:
            self._newline()

    def _block(self, tag: str) -> None:
        """End the line at the border of a block, and add a blank line if the block needs one."""
        self._end_line()
        if tag in _SPACED and not self._blank_lines and self._parts:
            self._parts.append("\n")
            self._blank_lines = 1
