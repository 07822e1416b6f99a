"""How a run of text in a Word file looks, as far as its text depends on it: raised, lowered, hidden, in a symbol font."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seer.rendering.formats.office.package import Element, attribute, child, tag_of

_MAX_STYLES = 50
"""Styles that are followed from one to the style that it is based on."""
_MIN_SHIFT = 4
"""Half points by which text is moved up or down before it counts as a super- or subscript."""


@dataclass(frozen=True)
class RunLook:
    """The look of a run."""

    script: str = ""
    """"superscript", "subscript", or empty."""
    is_hidden: bool = False
    font: str = ""


class RunStyles:
    """The character and paragraph styles of a document, and its defaults."""

    def __init__(self, styles: Element | None) -> None:
        self._styles: dict[str, tuple[Element | None, str]] = {}
        self._default = ""
        """The style of paragraphs that name none."""
        self._document = child(styles, "w:docDefaults", "w:rPrDefault", "w:rPr")
        for one in styles if styles is not None else ():
            if tag_of(one) == "w:style":
                base = child(one, "w:basedOn")
                name = "" if base is None else attribute(base, "val")
                self._styles[attribute(one, "styleId")] = (child(one, "w:rPr"), name)
                if attribute(one, "type") == "paragraph" and attribute(one, "default") in ("1", "true", "on"):
                    self._default = attribute(one, "styleId")

    def of(self, properties: Element | None, paragraph_style: str = "") -> RunLook:
        """Return the look of a run with these properties, in a paragraph of this style.

        The run's own properties come before those of its style, of the paragraph's style and of the document.
        """
        style = child(properties, "w:rStyle")
        chain = [] if properties is None else [properties]
        chain += self._of_style("" if style is None else attribute(style, "val"))
        chain += self._of_style(paragraph_style or self._default)
        if self._document is not None:
            chain.append(self._document)
        return RunLook(_script(chain), is_on(_first(chain, "w:vanish")), _font(chain))

    def _of_style(self, name: str) -> list[Element]:
        """Return the run properties of a style and of the styles that it is based on."""
        chain: list[Element] = []
        for _ in range(_MAX_STYLES):
            if name not in self._styles:
                break
            own, name = self._styles[name]
            chain += [] if own is None else [own]
        return chain


def is_on(element: Element | None) -> bool:
    """Return whether a switch of the properties is on."""
    return element is not None and attribute(element, "val") not in ("0", "false", "off")


def _first(chain: list[Element], tag: str) -> Element | None:
    """Return the first property with this tag."""
    return next((found for one in chain if (found := child(one, tag)) is not None), None)


def _script(chain: list[Element]) -> str:
    align, position = _first(chain, "w:vertAlign"), _first(chain, "w:position")
    value = "" if align is None else attribute(align, "val")
    if value in ("superscript", "subscript"):
        return value
    shift = "" if position is None else attribute(position, "val")
    if not re.fullmatch(r"-?\d{1,4}", shift) or abs(int(shift)) < _MIN_SHIFT:
        return ""
    return "superscript" if int(shift) > 0 else "subscript"


def _font(chain: list[Element]) -> str:
    fonts = _first(chain, "w:rFonts")
    return "" if fonts is None else attribute(fonts, "ascii") or attribute(fonts, "hAnsi")
