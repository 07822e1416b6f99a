"""Rendering: text and documents become page pictures that lead back to the exact source.

from seer.rendering import load, render_text, stream, png_bytes
document = render_text(text, style="seer")
png = png_bytes(document.page(1).image())
"""

from __future__ import annotations

from typing import Any

_EXPORTS = {
    "STYLES": "seer.rendering.styles",
    "load": "seer.rendering.documents",
    "png_bytes": "seer.rendering.png",
    "render_text": "seer.rendering.documents",
    "resolve_style": "seer.rendering.styles",
    "stream": "seer.rendering.documents",
}
__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that a command line that only helps starts at once."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'seer.rendering' has no attribute '{name}'; it offers {', '.join(_EXPORTS)}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)
