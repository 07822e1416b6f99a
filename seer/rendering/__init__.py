"""Rendering: turn text and documents into page images that map back to the exact source text.

>>> from seer.rendering import render_text
>>> document = render_text("The total was 42.\\n" * 200, style="seer")
>>> len(document.pages), document.page(3).image().shape
(3, (448, 595))
>>> "".join(page.text for page in document) == document.text
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seer.rendering.documents import load, load_bytes, render_text, stream
    from seer.rendering.drawing.png import png_bytes
    from seer.rendering.styles import STYLES, resolve_style

_EXPORTS = {
    "STYLES": "seer.rendering.styles",
    "load": "seer.rendering.documents",
    "load_bytes": "seer.rendering.documents",
    "png_bytes": "seer.rendering.drawing.png",
    "render_text": "seer.rendering.documents",
    "resolve_style": "seer.rendering.styles",
    "stream": "seer.rendering.documents",
}
__all__ = ["STYLES", "load", "load_bytes", "png_bytes", "render_text", "resolve_style", "stream"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing the package stays fast.

    Raises AttributeError if the name is not exported.
    """
    if name not in _EXPORTS:
        raise AttributeError(f"module 'seer.rendering' has no attribute '{name}'; it offers {', '.join(_EXPORTS)}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
