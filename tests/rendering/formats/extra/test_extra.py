"""Formats of the extra `formats`: what a reader sees is in the text, and what the text leaves out is a warning."""

from __future__ import annotations

import io
import json
import sys
import zipfile

import pytest

from seer.errors import InputError
from seer.rendering.documents import load_bytes
from seer.schema import Document


def read(data: bytes, name: str = "document") -> Document:
    return load_bytes(data, name)


def zipped(**members: str) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def kinds(document: Document) -> list[str]:
    return sorted(warning.kind for warning in document.warnings)


# ── PowerPoint ───────────────────────────────────────────────────────────────────────────────────


def test_load_pptx_reads_slides_tables_charts_and_notes():
    pptx = pytest.importorskip("pptx", reason="needs the extra formats")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "The harvest"
    slide.placeholders[1].text = "First point\nSecond point"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(5), Inches(4), Inches(1)).table
    for row, cells in enumerate((("Item", "Count"), ("Lamp", ""))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "A chart"
    chart = CategoryChartData()
    chart.categories = ["2025", "2026"]
    chart.add_series("Apples", (1.5, 2))
    second.shapes.add_chart(XL_CHART_TYPE.PIE, Inches(1), Inches(2), Inches(3), Inches(3), chart)
    hidden = deck.slides.add_slide(deck.slide_layouts[5])
    hidden.shapes.title.text = "Secret slide"
    hidden.element.set("show", "0")
    deck.save(buffer := io.BytesIO())
    document = read(buffer.getvalue())
    lines = document.text.splitlines()
    assert lines[:6] == [
        "The harvest",
        "First point",
        "Second point",
        "Item\tCount",
        "Lamp\t",
        "[speaker notes: Speak slowly.]",
    ]
    assert "Apples: 2025: 1.5, 2026: 2" in lines and "Secret" not in document.text
    assert kinds(document) == ["drawing", "hidden-text"]


# ── OpenDocument, EPUB, RTF ──────────────────────────────────────────────────────────────────────

OPEN = (
    '<office:document-content xmlns:office="o" xmlns:text="t" xmlns:table="b" xmlns:style="s" xmlns:draw="d">'
    "<office:automatic-styles>"
    '<style:style style:name="H"><style:text-properties text:display="none"/></style:style></office:automatic-styles>'
    "<office:body><office:text>{}</office:text></office:body></office:document-content>"
)


def test_load_odt_reads_headings_lists_tables_notes_and_reports_hidden_text():
    body = (
        "<text:h>Title</text:h><text:p>A  line<text:tab/>with<text:s text:c='3'/>gaps"
        "<text:note><text:note-citation>1</text:note-citation><text:note-body>"
        "<text:p>The note</text:p></text:note-body></text:note>"
        "<text:line-break/>and <text:span>a span</text:span>.<text:span text:style-name='H'>secret</text:span></text:p>"
        "<text:list><text:list-item><text:p>one</text:p></text:list-item>"
        "<text:list-item><text:p>two</text:p></text:list-item></text:list>"
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell/>"
        "<table:table-cell table:number-columns-repeated='2'><text:p>b</text:p></table:table-cell>"
        "<table:table-cell table:number-columns-repeated='16000'/></table:table-row></table:table>"
        "<draw:frame><draw:image/></draw:frame>"
    )
    document = read(zipped(**{"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": OPEN.format(body)}))
    assert document.text.splitlines() == [
        "Title",
        "A line\twith   gaps [The note]",
        "and a span.",
        "- one",
        "- two",
        "a\t\tb\tb",
    ]
    assert kinds(document) == ["drawing", "hidden-text"]


def epub(**chapters: str) -> bytes:
    items = "".join(f'<item id="{name}" href="text/{name}.xhtml"/>' for name in chapters)
    order = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    head = "<metadata><title>The Book</title><creator>A. Author</creator></metadata>"
    package = f"<package>{head}<manifest>{items}</manifest><spine>{order}</spine></package>"
    return zipped(
        **{
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>',
            "OEBPS/a.opf": package,
            **{f"OEBPS/text/{name}.xhtml": f"<html><body>{text}</body></html>" for name, text in chapters.items()},
        }
    )


def test_load_epub_reads_chapters_in_reading_order():
    document = read(
        epub(b="<h1>Second file, first chapter</h1><p>10<sup>6</sup></p>", a="<p>The end</p><p hidden>secret</p>")
    )
    assert document.text == "The Book\nA. Author\n\nSecond file, first chapter\n\n10⁶\n\nThe end\n\n"
    assert kinds(document) == ["hidden-text"]


def test_load_rtf_reads_characters_tables_and_reports_hidden_text():
    pytest.importorskip("striprtf", reason="needs the extra formats")
    source = (
        r"{\rtf1\ansi\ansicpg1252 Caf\'e9 a|b\par {\v secret}two\u8364?\par \trowd\cellx100\cellx200 x\cell \cell z\cell\row "
        r"\trowd\cellx100 d\cell\row {\pict\pngblip 89504e47}}"
    )
    document = read(source.encode())
    assert document.text.splitlines()[:2] == ["Café a|b", "two€"]
    assert "x\t\tz\nd\n" in document.text + "\n"
    assert kinds(document) == ["drawing", "hidden-text"]


# ── Notebooks ────────────────────────────────────────────────────────────────────────────────────


def test_load_ipynb_reads_cells_and_outputs_and_reports_pictures():
    cells = [
        {"cell_type": "markdown", "source": ["# Bill\n", "The total"]},
        {
            "cell_type": "code", "execution_count": 3, "source": "1 + 1",
            "outputs": [
                {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
                {"output_type": "display_data", "data": {"image/png": "iVBOR", "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []},
            ],
        },
    ]  # fmt: skip
    document = read(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode(), "a.ipynb"
    )
    assert document.text == "# Bill\nThe total\n\nIn [3]:\n1 + 1\n\nOut [3]:\n2\n\nOut [3]:\nValueError: no\n\n"
    assert kinds(document) == ["drawing"]


def test_load_json_stays_as_it_is():
    text = '{"cells": [1, 2], "name": "x"}\n'
    assert read(text.encode(), "a.json").text == text


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────

DAMAGED = {
    "a.xlsx": zipped(**{"xl/workbook.xml": "<broken", "[Content_Types].xml": "x"}),
    "a.pptx": zipped(**{"ppt/presentation.xml": "<broken", "[Content_Types].xml": "x"}),
    "a.odt": zipped(**{"content.xml": "<broken"}),
    "a.epub": zipped(**{"META-INF/container.xml": "<broken"}),
    "b.epub": zipped(**{"META-INF/container.xml": "<container/>"}),
    "a.ipynb": b'{"nbformat": 4, "cells": [5]}',
    "a.msg": bytes.fromhex("d0cf11e0a1b11ae1") + "__substg1.0_".encode("utf-16-le") * 100,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_load_damaged_file_names_the_format_and_a_remedy(name):
    with pytest.raises(InputError, match=rf"'{name}' is .*(damaged|without).*save"):
        read(DAMAGED[name], name)


@pytest.mark.parametrize(
    ("module", "data"),
    [
        ("openpyxl", DAMAGED["a.xlsx"]),
        ("pptx", DAMAGED["a.pptx"]),
        ("striprtf.striprtf", b"{\\rtf1 x}"),
        ("olefile", DAMAGED["a.msg"]),
    ],
)
def test_load_without_the_library_names_the_extra(module, data, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"needs .*; install it with: pip install 'seer-vlm\[formats\]'"):
        read(data, "a.xlsx")


@pytest.mark.parametrize("member", ["xl/workbook.xml", "ppt/presentation.xml", "content.xml"])
def test_load_archive_that_unpacks_to_too_much_is_refused(member):
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, b" " * (130 << 20))
    with pytest.raises(InputError, match="unpacks to more than 128 MB"):
        read(buffer.getvalue())


def test_load_archive_with_entities_is_refused():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    with pytest.raises(InputError, match="entities"):
        read(zipped(**{"content.xml": bomb}))
