"""The `glyph` style breaks English like reportlab's Paragraph, the renderer that the base model was trained on."""

from __future__ import annotations

import json
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from seer.rendering import STYLES, render_text
from seer.rendering.layout.fonts import DATA_DIR

PROSE = (
    "The committee, which had met on the third of May, approved the well-known plan by fourteen votes to two; its "
    "cost of $1,250.50 (12.5% above the budget) was not disputed by anyone. Critics called the decision half-hearted, "
    "and said that the long-awaited reform, promised since 1987, would neither reduce the debt nor satisfy the public. "
) * 40


def paragraph_lines(text: str, width: float) -> list[str]:
    """The lines of reportlab's Paragraph at a width in points, without blank lines."""
    pytest.importorskip("reportlab")
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont
    from reportlab.platypus import Paragraph

    pdfmetrics.registerFont(TTFont("DejaVuSans", str(DATA_DIR / "DejaVuSans.ttf")))
    style = ParagraphStyle("text", fontName="DejaVuSans", fontSize=9, leading=10)
    lines = []
    for line in text.split("\n"):
        broken = Paragraph(escape(line), style).breakLines(width)
        lines += [" ".join(part[1] if isinstance(part, tuple) else part.words) for part in broken.lines]
    return [" ".join(line.split()) for line in lines if line.strip()]


def agreement(text: str) -> float:
    """The fraction of reportlab's lines that are also lines of the `glyph` style."""
    document = render_text(text, "glyph")
    ours = {" ".join(text[box.start : box.end].split()) for page in document for box in page.line_boxes()}
    theirs = paragraph_lines(text, STYLES["glyph"].text_width_px)
    return sum(line in ours for line in theirs) / len(theirs)


def test_glyph_style_breaks_prose_like_reportlab():
    assert agreement(PROSE) >= 0.99


def test_glyph_style_breaks_real_reports_like_reportlab(shared_data: Path):
    path = shared_data / "longbench" / "samples" / "gov_report.jsonl"
    contexts = [json.loads(line)["context"] for line in path.read_text(encoding="utf-8").splitlines()[:3]]
    assert agreement("\n".join(contexts)[:80_000]) >= 0.99
