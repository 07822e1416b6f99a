"""Rendering: text and documents become page pictures that lead back to the exact source.

from seer.rendering import load, render_text, stream, png_bytes
document = render_text(text, style="seer")
png = png_bytes(document.page(1).image())
"""

from seer.rendering.documents import load, render_text, stream
from seer.rendering.png import png_bytes
from seer.rendering.styles import STYLES, resolve_style

__all__ = ["STYLES", "load", "png_bytes", "render_text", "resolve_style", "stream"]
