"""The `glyph` style breaks English where the base model's own renderer breaks it: reportlab's Paragraph."""

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
    """Which share of reportlab's lines are ours too."""
    document = render_text(text, "glyph")
    ours = {" ".join(text[box.start : box.end].split()) for page in document for box in page.line_boxes()}
    theirs = paragraph_lines(text, STYLES["glyph"].text_width_px)
    return sum(line in ours for line in theirs) / len(theirs)


def test_prose_breaks_as_paragraph_breaks_it():
    assert agreement(PROSE) >= 0.99


def test_real_reports_break_as_paragraph_breaks_them(shared_data: Path):
    path = shared_data / "longbench" / "samples" / "gov_report.jsonl"
    contexts = [json.loads(line)["context"] for line in path.read_text(encoding="utf-8").splitlines()[:3]]
    assert agreement("\n".join(contexts)[:80_000]) >= 0.99
