"""MathML as linear text.

>>> linear_math('<msup><mi>c</mi><mn>2</mn></msup><mo>+</mo><mfrac><mn>1</mn><mn>2</mn></mfrac>')
'c²+1/2'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape

from seer.rendering.formats.scripts import grouped, lowered, raised, script_base

_TOKEN = re.compile(r"<!--.*?(?:-->|\Z)|<(/?)(?:\w{1,20}:)?([a-zA-Z][\w-]*)([^>]*)>|([^<]+)|<", re.DOTALL)
_MAX_DEPTH = 60
_LEFT_OUT = ("annotation-xml", "mphantom", "maligngroup", "malignmark")
_TEX = re.compile(
    r"<annotation[^>]*encoding\s*=\s*[\"']application/x-tex[\"'][^>]*>(.*?)</annotation", re.DOTALL | re.I
)


@dataclass
class _Node:
    tag: str
    children: list[_Node | str] = field(default_factory=list)


def linear_math(markup: str) -> str:
    """Return the content of a <math> element as one line; empty if it has no presentation and no annotation in TeX."""
    root, stack = _Node("mrow"), list[_Node]()
    stack.append(root)
    for match in _TOKEN.finditer(markup):
        end, tag, attributes, text = match.groups()
        if text is not None:
            if text.strip():
                stack[-1].children.append(" ".join(unescape(text).split()))
        elif tag is None:
            continue
        elif end:
            # An end tag closes the nearest element of its name, if there is one among the innermost.
            for depth in range(len(stack) - 1, max(0, len(stack) - _MAX_DEPTH), -1):
                if stack[depth].tag == tag.lower():
                    del stack[depth:]
                    break
        else:
            node = _Node(tag.lower())
            stack[-1].children.append(node)
            if not attributes.endswith("/") and len(stack) < _MAX_DEPTH:
                stack.append(node)
    text = _linear(root).strip()
    if not text and (tex := _TEX.search(markup)):
        return " ".join(unescape(tex[1]).split())
    return text


def _linear(node: _Node | str) -> str:
    """Return an element and what is in it as text."""
    if isinstance(node, str):
        return node
    tag = node.tag
    if tag in _LEFT_OUT or tag == "annotation":
        return ""
    parts = [_linear(child) for child in node.children]
    if tag == "mfrac" and len(parts) == 2:
        return f"{grouped(parts[0])}/{grouped(parts[1])}"
    if tag == "msqrt":
        return "√" + grouped("".join(parts))
    if tag == "mroot" and len(parts) == 2:
        return raised(parts[1]) + "√" + grouped(parts[0])
    if tag == "msup" and len(parts) == 2:
        return script_base(parts[0]) + raised(parts[1])
    if tag in ("msub", "munder") and len(parts) == 2:
        return script_base(parts[0]) + lowered(parts[1])
    if tag in ("msubsup", "munderover") and len(parts) == 3:
        return script_base(parts[0]) + lowered(parts[1]) + raised(parts[2])
    if tag == "mover" and len(parts) == 2:
        return script_base(parts[0]) + raised(parts[1])
    if tag == "mfenced":
        return f"({', '.join(parts)})"
    if tag == "mtr":
        return ", ".join(parts)
    if tag == "mtable":
        return f"[{'; '.join(parts)}]"
    if tag == "mtext":
        return f" {''.join(parts)} "
    if tag == "mspace":
        return " "
    return "".join(parts)
