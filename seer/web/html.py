"""Escaped HTML elements and the frame of every page.

    render_page("Title", element("p", "a < b", class_="note"))

returns a complete page: one file that makes no request, with the shared stylesheet for light, dark, phone and print.

Text cannot become markup: `element` escapes every string, as content and as attribute value. Only `Html` passes
through unchanged, and only the functions of this module create it. As a second line of defence, a content security
policy blocks everything except inline styles, `data:` images and the page's own script, which is allowed by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from seer.storage import replace_surrogates


@dataclass(frozen=True, slots=True)
class Html:
    """Finished markup. It is not a string, so formatting it into one is visible and never passes as markup."""

    source: str


Child = Html | str | None
Attribute = str | int | float | bool | None

_VOID_TAGS = {"br", "hr", "img", "meta"}
_RAW_TEXT_TAGS = {"script", "style", "iframe", "object", "embed", "base"}
_TAG = re.compile(r"[a-z][a-z0-9]*")
_ATTRIBUTE_NAME = re.compile(r"(?!on)[A-Za-z][A-Za-z0-9-]*")
_URL_ATTRIBUTES = {"href", "src"}
_ALLOWED_URL = re.compile(r"data:image/png;base64,|#|(?!//)[^:\\\s]*\Z")
"""Inline PNG, an anchor of the same page, or a relative path without a scheme."""


# ── Elements ─────────────────────────────────────────────────────────────────────────────────────


def escape(text: str) -> str:
    """Escape text for use as HTML content or in a quoted attribute. Lone surrogates become question marks."""
    return html.escape(replace_surrogates(text), quote=True)


def fragment(*children: Child | Iterable[Child]) -> Html:
    """Join children in order: strings are escaped, None is skipped."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child.source)
        elif isinstance(child, str):
            parts.append(escape(child))
        else:
            parts.append(fragment(*child).source)
    return Html("".join(parts))


def element(tag: str, *children: Child | Iterable[Child], **attributes: Attribute) -> Html:
    """Build an element with escaped content and attribute values.

    In attribute names a trailing underscore is dropped and the others become hyphens: `class_`, `data_v`, `aria_label`.
    None, False and an empty class omit an attribute; True writes the name alone. Raises ValueError if a tag or an
    attribute could run code, or if a URL leaves the page's own folder.
    """
    if not _TAG.fullmatch(tag) or tag in _RAW_TEXT_TAGS:
        raise ValueError(f"tag '{tag}': must be a plain HTML element; pass scripts to render_page()")
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    if tag in _VOID_TAGS:
        return Html(opening)
    return Html(f"{opening}{fragment(*children).source}</{tag}>")


def _attribute(name: str, value: Attribute) -> str:
    written = name.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE_NAME.fullmatch(written):
        raise ValueError(f"attribute '{written}': must be a plain name and not an event handler")
    if value is None or value is False or (written == "class" and not value):
        return ""
    if value is True:
        return f" {written}"
    if written in _URL_ATTRIBUTES and not _ALLOWED_URL.match(str(value)):
        raise ValueError(f"{written}={str(value)[:60]!r}: must be an inline PNG, an anchor or a relative path")
    return f' {written}="{escape(str(value))}"'


def png_url(png: bytes) -> str:
    """The data URL of a PNG image."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


# ── Pages ────────────────────────────────────────────────────────────────────────────────────────


def render_page(
    title: str,
    *content: Child | Iterable[Child],
    links: Sequence[tuple[str, str]] = (),
    script: str = "",
) -> str:
    """Frame content as a complete page without outside references.

    `title` becomes the document title and the main heading. `links` are (anchor id, text) pairs for a navigation line
    below the heading. `script` must be a constant of the program: it is written unescaped. Raises ValueError if it
    contains `</`, which would end the script element early.
    """
    if "</" in script:
        raise ValueError("script contains '</': write closing tags differently, because HTML ends the script there")
    jumps = [element("a", text, href=f"#{anchor}") for anchor, text in links]
    head = fragment(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width,initial-scale=1"),
        element("meta", **{"http-equiv": "Content-Security-Policy"}, content=_policy(script)),
        element("title", title),
        Html(f"<style>{stylesheet()}</style>"),
    )
    main = element("main", element("h1", title, dir="auto"), element("nav", jumps) if jumps else None, *content)
    body = element("body", main, Html(f"<script>{script}</script>") if script else None)
    return f"<!doctype html>\n{element('html', element('head', head), body, lang='en').source}\n"


def _policy(script: str) -> str:
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return policy


@lru_cache(maxsize=1)
def stylesheet() -> str:
    """The stylesheet that all pages share, read once from the package."""
    return files("seer.web").joinpath("style.css").read_text(encoding="utf-8")
