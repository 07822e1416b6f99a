"""Equations of Office files as linear text."""

from __future__ import annotations

from seer.rendering.formats.office.package import Element, attribute, child, tag_of
from seer.rendering.formats.scripts import grouped, lowered, raised, script_base


def linear_equation(element: Element) -> str:
    """Return an equation, or a part of one, as one line."""
    tag = tag_of(element)
    if tag in ("m:t", "w:t"):
        return element.text or ""
    if tag.endswith("Pr"):  # properties
        return ""
    if tag == "m:f":
        return f"{grouped(_part(element, 'm:num'))}/{grouped(_part(element, 'm:den'))}"
    if tag == "m:rad":
        return raised(_part(element, "m:deg")) + "√" + grouped(_part(element, "m:e"))
    if tag in ("m:sSup", "m:sSub", "m:sSubSup", "m:limLow", "m:limUpp"):
        below, above = _part(element, "m:sub"), _part(element, "m:sup")
        limit = _part(element, "m:lim")
        below, above = (below or limit, above) if tag != "m:limUpp" else (below, above or limit)
        return script_base(_part(element, "m:e")) + lowered(below) + raised(above)
    if tag == "m:sPre":
        return lowered(_part(element, "m:sub")) + raised(_part(element, "m:sup")) + _part(element, "m:e")
    if tag == "m:nary":
        sign = child(element, "m:naryPr", "m:chr")
        symbol = "∫" if sign is None else attribute(sign, "val")[:2] or "∫"
        return f"{symbol}{lowered(_part(element, 'm:sub'))}{raised(_part(element, 'm:sup'))} {_part(element, 'm:e')}"
    if tag == "m:d":
        begin, end, separator = (
            default if (one := child(element, "m:dPr", name)) is None else attribute(one, "val")[:2]
            for name, default in (("m:begChr", "("), ("m:endChr", ")"), ("m:sepChr", "|"))
        )
        return begin + separator.join(linear_equation(one) for one in element if tag_of(one) == "m:e") + end
    if tag == "m:func":
        return f"{_part(element, 'm:fName')} {_part(element, 'm:e')}"
    if tag == "m:acc":
        sign = child(element, "m:accPr", "m:chr")
        return _part(element, "m:e") + ("\u0302" if sign is None else attribute(sign, "val")[:2])
    if tag in ("m:m", "m:eqArr"):
        rows = [one for one in element if tag_of(one) in ("m:mr", "m:e")]
        lines = ["; ".join(linear_equation(one) for one in rows)]
        return f"[{lines[0]}]" if tag == "m:m" else lines[0]
    if tag == "m:mr":
        return ", ".join(linear_equation(one) for one in element)
    return "".join(map(linear_equation, element))


def _part(element: Element, tag: str) -> str:
    """Return the text of one part of a structure, without spaces around it."""
    part = child(element, tag)
    return "" if part is None else linear_equation(part).strip()
