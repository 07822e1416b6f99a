"""Word documents: what styles, symbol fonts and list styles say about a text."""

from __future__ import annotations

import pytest

from seer.rendering.formats.office.docx import read_docx
from seer.rendering.formats.office.symbols import in_font, symbol
from tests.rendering.formats.office.test_docx_parts import package, paragraph, run, text
from tests.rendering.makers import WORD

LEVEL = '<w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/><w:lvlText w:val="%1)"/></w:lvl>'
NUMBERED = '<w:numPr><w:numId w:val="1"/></w:numPr>'


def styles(*definitions: str) -> dict[str, str]:
    return {"styles": f"<w:styles {WORD}>{''.join(definitions)}</w:styles>"}


def style(name: str, properties: str, kind: str = "paragraph", more: str = "") -> str:
    return f'<w:style w:type="{kind}" w:styleId="{name}" {more}><w:rPr>{properties}</w:rPr></w:style>'


HIDING = {
    "paragraph style": (styles(style("Hid", "<w:vanish/>")), '<w:pStyle w:val="Hid"/>'),
    "default style": (styles(style("Any", "<w:vanish/>", more='w:default="1"')), ""),
    "document": (styles("<w:docDefaults><w:rPrDefault><w:rPr><w:vanish/></w:rPr></w:rPrDefault></w:docDefaults>"), ""),
    "base": (
        styles(
            style("Hid", "<w:vanish/>"),
            '<w:style w:type="paragraph" w:styleId="Sub"><w:basedOn w:val="Hid"/></w:style>',
        ),
        '<w:pStyle w:val="Sub"/>',
    ),
}


@pytest.mark.parametrize(("parts", "properties"), HIDING.values(), ids=HIDING)
def test_read_docx_leaves_out_text_that_a_style_hides(parts, properties):
    shown = paragraph(run("shown", '<w:vanish w:val="0"/>'), '<w:pStyle w:val="Plain"/>')
    extract = read_docx(package(paragraph(run("secret"), properties) + shown, parts), "a.docx", None)
    assert extract.text == "shown\n"
    assert [notice.kind for notice in extract.notices] == ["hidden-text"] and "“secret”" in extract.notices[0].message


def test_read_docx_paragraph_style_raises_its_text():
    parts = styles(style("Up", '<w:vertAlign w:val="superscript"/>'))
    assert text(paragraph(run("6"), '<w:pStyle w:val="Up"/>'), parts) == "⁶\n"


def test_read_docx_does_not_number_hidden_paragraphs():
    parts = {
        "numbering": f'<w:numbering {WORD}><w:abstractNum w:abstractNumId="0">{LEVEL}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
    }
    gone = paragraph(run("gone", "<w:vanish/>"), f"{NUMBERED}<w:rPr><w:vanish/></w:rPr>")
    assert text(paragraph(run("A"), NUMBERED) + gone + paragraph(run("B"), NUMBERED), parts) == "1) A\n2) B\n"


def test_read_docx_takes_the_levels_of_a_list_from_its_style():
    lists = (
        f'<w:abstractNum w:abstractNumId="0"><w:styleLink w:val="L"/>{LEVEL}</w:abstractNum>'
        '<w:abstractNum w:abstractNumId="5"><w:numStyleLink w:val="L"/></w:abstractNum>'
        '<w:num w:numId="2"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="1"><w:abstractNumId w:val="5"/></w:num>'
    )
    named = '<w:style w:type="numbering" w:styleId="L"><w:pPr><w:numPr><w:numId w:val="2"/></w:numPr></w:pPr></w:style>'
    parts = {"numbering": f"<w:numbering {WORD}>{lists}</w:numbering>", **styles(named)}
    assert text(paragraph(run("A"), NUMBERED), parts) == "1) A\n"


def test_read_docx_numbers_paragraphs_of_the_default_style():
    lists = f'<w:abstractNum w:abstractNumId="0">{LEVEL}</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    default = f'<w:style w:type="paragraph" w:default="1" w:styleId="N"><w:pPr>{NUMBERED}</w:pPr></w:style>'
    parts = {"numbering": f"<w:numbering {WORD}>{lists}</w:numbering>", **styles(default)}
    assert text(paragraph(run("A")) + paragraph(run("B")), parts) == "1) A\n2) B\n"


def test_read_docx_keeps_columns_of_rows_that_end_early_and_of_cells_with_tabs():
    def row(*cells: str, before: int = 0, after: int = 0) -> str:
        grid = f'<w:trPr><w:gridBefore w:val="{before}"/></w:trPr>' if before else ""
        grid = f'<w:trPr><w:gridAfter w:val="{after}"/></w:trPr>' if after else grid
        return f"<w:tr>{grid}{''.join(f'<w:tc>{paragraph(cell)}</w:tc>' for cell in cells)}</w:tr>"

    tab = "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r>"
    body = f"<w:tbl>{row(tab, run('c'))}{row(run('d'), after=1)}{row(run('e'), before=1)}</w:tbl>"
    assert text(body) == "a b\tc\nd\t\n\te\n"


def test_read_docx_leaves_out_a_note_whose_reference_was_deleted():
    body = paragraph(run("A") + '<w:del><w:r><w:footnoteReference w:id="2"/></w:r></w:del>')
    notes = {
        "footnotes": f'<w:footnotes {WORD}><w:footnote w:id="2">{paragraph(run("old note"))}</w:footnote></w:footnotes>'
    }
    extract = read_docx(package(body, notes), "a.docx", None)
    assert extract.text == "A\n"
    assert [notice.kind for notice in extract.notices] == ["note"] and "“old note”" in extract.notices[0].message


def test_read_docx_counts_the_notices_that_it_does_not_list():
    body = "".join(paragraph("<w:r><w:drawing/></w:r>" + run("x", "<w:vanish/>")) for _ in range(40))
    notices = read_docx(package(body), "a.docx", None).notices
    assert len(notices) == 52
    assert sorted((notice.kind, notice.message[:7]) for notice in notices[-2:]) == [
        ("drawing", "15 more"),
        ("hidden-text", "15 more"),
    ]


@pytest.mark.parametrize(
    ("font", "code", "character"),
    [
        ("Wingdings", 0xF0FC, "✓"), ("Wingdings", 0xFC, "✓"), ("Wingdings", 0xF0FE, "☑"), ("Wingdings", 0xF0A8, "◻"),
        ("Wingdings", 0xF06C, "●"), ("Wingdings", 0xF0A7, "▪"), ("Wingdings", 0xF0D8, "➢"), ("Wingdings", 0xF0E0, "→"),
        ("Wingdings", 0xF0F0, "⇨"), ("Wingdings", 0xF075, "◆"), ("Wingdings", 0xF077, "⬥"), ("Wingdings", 0xF032, "📄"),
        ("Wingdings", 0xF036, "⌛"), ("Wingdings", 0xF02F, "📭"), ("Wingdings", 0xF081, "①"), ("Wingdings", 0xF04A, "☺"),
        ("Wingdings", 0xF0AB, "★"), ("Wingdings", 0xF09F, "•"), ("Wingdings 2", 0xF050, "✓"), ("Wingdings 3", 0xF075, "▶"),
        ("Webdings", 0xF061, "✔"), ("Symbol", 0xF061, "α"), ("Symbol", 0xF0B7, "•"), ("Symbol", 0xF035, "5"),
        ("Arial", 0x41, "A"), ("Arial", 0xF041, None),
    ],
)  # fmt: skip
def test_symbol_is_what_the_font_shows(font, code, character):
    assert symbol(font, code) == character


def test_read_docx_reports_symbols_without_a_known_character():
    odd = run("\uf0ff ok", '<w:rFonts w:ascii="Webdings" w:hAnsi="Webdings"/>')
    extract = read_docx(package(paragraph(odd)), "a.docx", None)
    assert extract.text.startswith("□") and extract.notices[0].kind == "symbol"
    assert in_font("12 alpha", "Arial") == "12 alpha"
