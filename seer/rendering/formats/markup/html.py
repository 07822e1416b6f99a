"""Extract the visible text of HTML pages, line by line.

    extract = read_html(data, "page.html", None)

Blocks end lines. Runs of white space become one space, except in <pre>. Cells of a table row are separated by tabs, list
items begin with "- " or their number, images are replaced by their alternative text, formulas become linear text, and
super- and subscripts follow `seer.rendering.formats.scripts`. Scripts, styles and templates are left out; so is hidden
text, with a notice.

The page is untrusted. Markup is matched by possessive expressions that never backtrack, and the elements that the
standard leaves open are closed by rules that look at each element once, so every page takes linear time. Of parsers that
follow the standard to the letter, selectolax took 22 s for 100,000 unclosed <div>, and lxml cuts such a page off.
"""

from __future__ import annotations

import codecs
import re

from seer.rendering.formats.embedded import replace_embedded
from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.markup.reader import PageReader
from seer.rendering.formats.text import decode_noticed

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([a-zA-Z0-9_.:-]+)", re.IGNORECASE)
_MARKUP = re.compile(
    r"<(?:!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|(?P<end>/?)(?P<tag>[a-zA-Z][^\s/>]*+)"
    r"(?P<attributes>(?:=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))|[^>])*+)(?:>|\Z)"
    r"|[!?/][^>]*+(?:>|\Z))",
    re.DOTALL,
)
"""A comment, a tag, or a declaration. Markup that is still open at the end of the file counts as closed there."""
_RAW_TEXT_ENDS = {
    tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style", "textarea", "math")
}
"""Elements that are read to their own end tag: in the first three no other tag is markup, and formulas are read whole."""


def read_html(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the visible text of a web page; a given `encoding` overrides the one that the page declares.

    Raises InputError if the page cannot be decoded.
    """
    source, notices = decode_noticed(data, name, encoding or declared_encoding(data))
    page = html_extract(source.removeprefix("\ufeff"))
    extract = replace_embedded(page.text)
    if extract.notices:
        # Places behind a mark have moved; such a notice keeps its message and concerns the document.
        moved = tuple(Notice(notice.kind, notice.message) for notice in page.notices)
        return Extract(extract.text, (*notices, *moved, *extract.notices))
    return Extract(page.text, (*notices, *page.notices))


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
    return html_extract(source).text


def html_extract(source: str) -> Extract:
    """Return the visible text of an HTML page, and notices about hidden text and formulas that have no text."""
    reader = PageReader()
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
            end = _RAW_TEXT_ENDS[tag].search(source, place)
            stop = end.start() if end else len(source)
            reader.raw(tag, attributes, source[place:stop])
            place = stop
    reader.data(source[place:])
    return reader.extract()
