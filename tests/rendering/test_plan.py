"""Planning and styles: token counts of layouts, the automatic choice, and errors for unknown styles."""

from __future__ import annotations

import pytest

from seer.errors import ConfigError, InputError
from seer.protocol.geometry import GLM_41V
from seer.rendering import STYLES, render_text, resolve_style
from seer.rendering.plan import plan, settle


def test_plan_counts_equal_rendered_pages_and_tokens():
    text = "words and words\n" * 500
    for row, name in zip(plan(text, sorted(STYLES)), sorted(STYLES), strict=True):
        document = render_text(text, name)
        assert row.pages == len(document.pages)
        assert row.vision_tokens == sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)


def test_auto_style_costs_at_most_seer_style_and_is_recorded():
    for text in ("short\n" * 3000, "long words that fill a line " * 2000, "好的\n" * 1500):
        document = render_text(text, "auto")
        cost = sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)
        (seer,) = plan(text, ["seer"])
        assert cost <= seer.vision_tokens
        assert document.style.name.startswith("auto:")
        assert settle(text, "auto") == document.style


def test_settle_auto_keeps_user_changes():
    style = settle("a\n" * 2000, "auto", newline="break", font_size_pt=8)
    assert style.newline == "break" and style.font_size_pt == 8


def test_resolve_style_rejects_unknown_styles_and_fields():
    with pytest.raises(InputError, match="did you mean 'seer'"):
        render_text("x", "ser")
    with pytest.raises(ConfigError, match="font_size_pt"):
        resolve_style("seer", font_size=8)
    with pytest.raises(ConfigError, match="margins"):
        resolve_style("seer", margin_x_px=400)


def test_settle_auto_samples_the_whole_of_a_long_text(monkeypatch):
    """The preface of a list must not decide the layout of the list."""
    monkeypatch.setattr("seer.rendering.plan.PIECE_CHARS", 2000)
    preface, lines = "long words that fill a line and go on " * 1000, "a\n" * 1500
    assert settle(preface, "auto") != settle(lines, "auto")
    assert settle(preface + lines * 100, "auto") == settle(lines, "auto")
