"""The remedy for characters that no font covers."""

from __future__ import annotations

import pytest

from seer.errors import GlyphError
from seer.rendering import render_text


def test_render_text_warning_names_a_font_for_each_script():
    (warning,) = render_text("สวัสดี हिन्दी", "seer", "a.txt").warnings
    assert warning.kind == "missing-glyph"
    assert "such as Noto Sans Thai, Noto Sans Devanagari: install it and name it with --font" in warning.message


def test_render_text_strict_error_names_the_font():
    with pytest.raises(GlyphError, match="such as Noto Sans Thai.*or draw boxes by leaving strict_glyphs off"):
        render_text("สวัสดี", "seer", "a.txt", strict_glyphs=True)


def test_render_text_without_a_known_script_names_the_option():
    (warning,) = render_text("a \ue123 b", "seer", "a.txt").warnings
    assert warning.message.endswith("add a font that has them (--font NAME or a file)")
