"""Read EPUB books: the chapters in reading order, each as a web page."""

from __future__ import annotations

import posixpath
import urllib.parse
from xml.etree.ElementTree import Element

from seer.errors import InputError
from seer.rendering.formats.extra.archive import open_archive
from seer.rendering.formats.extract import Extract, Notice
from seer.rendering.formats.markup.html import read_html

_WHAT = "an EPUB book"


def read_epub(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a book: its title and authors, then every chapter of its reading order.

    Raises InputError if the book is damaged, encrypted or too large, or has no chapter.
    """
    with open_archive(data, name, _WHAT) as archive:
        container = archive.xml("META-INF/container.xml")
        found = (
            ""
            if container is None
            else next((one.get("full-path", "") for one in container.iter() if _local(one) == "rootfile"), "")
        )
        package = archive.xml(found) if found else None
        if package is None:
            raise InputError(f"'{name}' is {_WHAT} without a list of its chapters; save or download it again")
        chapters = _chapters(package, posixpath.dirname(found))
        parts = [_head(package)]
        notices: list[Notice] = []
        for chapter in chapters:
            page = archive.read(chapter)
            if page is None:
                notices.append(Notice("missing-part", f"the chapter '{chapter[:80]}' is missing in the file"))
                continue
            _append(parts, notices, read_html(page, name, None))
        if archive.read("META-INF/encryption.xml") is not None and not "".join(parts).strip():
            raise InputError(f"'{name}' is protected against copying; use an unprotected copy")
    return Extract("".join(parts), tuple(notices))


def _append(parts: list[str], notices: list[Notice], extract: Extract) -> None:
    start = sum(map(len, parts))
    text = extract.text.rstrip("\n")
    if text:
        parts.append(f"{text}\n\n")
    notices += [
        Notice(one.kind, one.message, None if one.offset is None else start + one.offset) for one in extract.notices
    ]


def _head(package: Element) -> str:
    """Return the title and the authors of a book."""
    title, authors = "", []
    for one in package.iter():
        if _local(one) == "title" and not title:
            title = " ".join((one.text or "").split())
        elif _local(one) == "creator" and (one.text or "").strip():
            authors.append(" ".join((one.text or "").split()))
    head = "\n".join(part for part in (title, ", ".join(authors)) if part)
    return f"{head}\n\n" if head else ""


def _chapters(package: Element, folder: str) -> list[str]:
    """Return the members that hold the chapters, in reading order; those that readers skip come last."""
    pages: dict[str, str] = {}
    first: list[str] = []
    later: list[str] = []
    for one in package.iter():
        if _local(one) == "item":
            href = urllib.parse.unquote(one.get("href", "").partition("#")[0])
            pages[one.get("id", "")] = posixpath.normpath(posixpath.join(folder, href)) if href else ""
        elif _local(one) == "itemref":
            (later if one.get("linear") == "no" else first).append(pages.get(one.get("idref", ""), ""))
    return [page for page in dict.fromkeys((*first, *later)) if page]


def _local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]
