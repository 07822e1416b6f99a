"""Read PowerPoint presentations: the text of each slide from top to bottom, tables, and speaker notes."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from seer.errors import InputError
from seer.rendering.formats.extra.archive import check_archive, missing_library
from seer.rendering.formats.extract import Extract, Notice, cause_of

_MAX_SHAPES = 20_000


def read_pptx(data: bytes, name: str, encoding: str | None) -> Extract:
    """Return the text of a presentation; hidden slides are left out, speaker notes follow their slide in brackets.

    Raises InputError if the file is damaged, encrypted or too large, or if the library is missing.
    """
    try:
        import pptx
    except ImportError:
        raise missing_library("python-pptx", name, "a PowerPoint presentation") from None
    parts: list[str] = []
    notices: list[Notice] = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_archive(archive, name)
        slides = pptx.Presentation(io.BytesIO(data)).slides
        for number, slide in enumerate(slides, 1):
            start = sum(map(len, parts))
            lines, left_out = _slide(slide)
            if slide.element.get("show") in ("0", "false"):
                words = " ".join(lines)
                notices.append(Notice("hidden-text", f"the hidden slide {number} is left out: “{words[:60]}”", start))
                continue
            notices += [Notice("drawing", f"slide {number}: {what} is left out", start) for what in left_out]
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                spoken = slide.notes_slide.notes_text_frame.text.strip()
                lines += [f"[speaker notes: {' '.join(spoken.split())}]"] if spoken else []
            if lines:
                parts.append("\n".join(lines) + "\n\n")
    except InputError:
        raise
    except Exception as error:  # the library raises errors of lxml, zipfile and its own for damaged files
        cause = f"{type(error).__name__}: {cause_of(error)}"
        raise InputError(f"'{name}' is a damaged presentation ({cause}); open it and save it again") from None
    text = "".join(parts).rstrip("\n")
    return Extract(text + "\n" if text else "", tuple(notices))


def _slide(slide: Any) -> tuple[list[str], list[str]]:
    """Return the lines of a slide, and what has no text."""
    lines: list[str] = []
    left_out: list[str] = []
    shapes = sorted(_flat(slide.shapes, 0), key=lambda shape: (_points(shape.top), _points(shape.left)))
    for shape in shapes[:_MAX_SHAPES]:
        if shape.has_text_frame:
            lines += [text for one in shape.text_frame.paragraphs if (text := _paragraph(one)).strip()]
        elif getattr(shape, "has_table", False) and shape.has_table:
            for row in shape.table.rows:
                lines.append("\t".join("" if cell.is_spanned else " ".join(cell.text.split()) for cell in row.cells))
        elif getattr(shape, "has_chart", False) and shape.has_chart:
            left_out.append("a chart")
            lines += _chart(shape.chart)
        elif "pic" in shape.element.tag:
            described = shape.element.nvPicPr.cNvPr.get("descr", "") if hasattr(shape.element, "nvPicPr") else ""
            left_out.append("a picture")
            if described.strip():
                lines.append(f"[picture: {' '.join(described.split())}]")
        elif shape.element.tag.endswith("graphicFrame"):
            left_out.append("a diagram or an embedded object")
    return lines, left_out


def _points(value: Any) -> int:
    return int(value) if value is not None else 0


def _flat(shapes: Any, depth: int) -> list[Any]:
    """Return the shapes with those of groups."""
    found: list[Any] = []
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < 20:
            found += _flat(shape.shapes, depth + 1)
        else:
            found.append(shape)
    return found


def _paragraph(paragraph: Any) -> str:
    """Return the text of a paragraph with its bullet's indentation; a vertical tab is a line break."""
    return "  " * min(8, paragraph.level) + paragraph.text.replace("\v", " ")


def _chart(chart: Any) -> list[str]:
    """Return the title and the values of a chart, one line per series."""
    lines = []
    if chart.has_title and chart.chart_title.has_text_frame:
        lines.append(chart.chart_title.text_frame.text)
    for plot in chart.plots:
        categories = [str(category) for category in plot.categories]
        for series in plot.series:
            values = [
                f"{category}: {value:g}"
                for category, value in zip(categories, series.values, strict=False)
                if value is not None
            ]
            lines.append(f"{series.name}: {', '.join(values)}")
    return lines
