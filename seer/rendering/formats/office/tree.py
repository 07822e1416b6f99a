"""Questions about elements of a Word file: what lies inside of one, and the small properties that it holds."""

from __future__ import annotations

from collections.abc import Iterator

from seer.rendering.formats.office.package import Element, attribute, child, tag_of
from seer.rendering.formats.office.runs import is_on

_MAX_QUOTE = 60


def inside(parent: Element, tag: str, barrier: str) -> Iterator[Element]:
    """Yield the nearest descendants with a tag, also those inside wrappers such as content controls.

    Neither what lies inside one of them nor inside an element with the tag `barrier` is searched.
    """
    for element in parent:
        name = tag_of(element)
        if name == tag:
            yield element
        elif name != barrier:
            yield from inside(element, tag, barrier)


def style_of(paragraph: Element) -> str:
    """Return the style that a paragraph names; empty if it names none."""
    style = child(paragraph, "w:pPr", "w:pStyle")
    return "" if style is None else attribute(style, "val")


def cut(words: str) -> str:
    """Return the beginning of a quote."""
    return words if len(words) <= _MAX_QUOTE else words[:_MAX_QUOTE] + "…"


def plain(element: Element) -> str:
    """Return all text below an element."""
    return "".join(one.text or "" for one in element.iter() if tag_of(one) == "w:t")


def ends_text(parent: Element) -> bool:
    """Return whether an element is a whole text, so that nothing can follow its last paragraph."""
    return tag_of(parent) not in ("w:sdt", "w:sdtContent", "w:ins", "w:customXml", "w:smartTag", "w:moveTo")


def check_box(element: Element) -> str:
    """Return the sign of a check box that is a form field of an older version; empty for any other field."""
    box = child(element, "w:ffData", "w:checkBox")
    if box is None:
        return ""
    state = child(box, "w:checked")
    return "☑" if is_on(state if state is not None else child(box, "w:default")) else "☐"


def count(element: Element) -> int:
    """Return the number that an element holds, at least 1."""
    value = attribute(element, "val")
    return max(1, int(value)) if value.isdecimal() and len(value) < 6 else 1
