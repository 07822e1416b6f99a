"""Word documents: numbers, notes, comments, headers, symbols, scripts, formulas, merged cells, and other names of parts."""

from __future__ import annotations

import io
import zipfile

import pytest

from seer.rendering.formats.office.docx import read_docx
from seer.rendering.formats.office.numbering import format_number
from tests.rendering.makers import WORD

RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def package(body: str, parts: dict[str, str] | None = None, main: str = "document") -> bytes:
    """A Word file with this body, and further parts by their kind, such as "footnotes" or "header1"."""
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{RELATION}/{kind.rstrip("0123456789")}" Target="{kind}.xml"/>'
        for n, kind in enumerate(parts or {})
    )
    first = f'<Relationship Id="a" Type="{RELATION}/officeDocument" Target="word/{main}.xml"/>'
    files = {
        "_rels/.rels": f"<Relationships>{first}</Relationships>",
        f"word/{main}.xml": f"<w:document {WORD} {MATH}><w:body>{body}</w:body></w:document>",
        f"word/_rels/{main}.xml.rels": f"<Relationships>{relations}</Relationships>",
        **{f"word/{kind}.xml": content for kind, content in (parts or {}).items()},
    }
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def math(tag: str, **parts: str) -> str:
    """An equation of one structure with these parts."""
    inside = "".join(f"<m:{name}><m:r><m:t>{words}</m:t></m:r></m:{name}>" for name, words in parts.items())
    return f"<m:oMath><m:{tag}>{inside}</m:{tag}></m:oMath>"


def paragraph(content: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{content}</w:p>"


def text(body: str, parts: dict[str, str] | None = None, **options: str) -> str:
    return read_docx(package(body, parts, **options), "a.docx", None).text


def kinds(body: str) -> list[str]:
    return [notice.kind for notice in read_docx(package(body), "a.docx", None).notices]


def in_list(name: int, depth: int, words: str) -> str:
    return paragraph(run(words), f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{name}"/></w:numPr>')


def level(depth: int, form: str, shown: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{form}"/>{more}<w:lvlText w:val="{shown}"/></w:lvl>'


NUMBERING = (
    f"<w:numbering {WORD}><w:abstractNum w:abstractNumId='0'>"
    + level(0, "decimal", "%1.")
    + level(1, "lowerLetter", "%1.%2)")
    + level(2, "upperRoman", "§ %3", "<w:isLgl/>")
    + "</w:abstractNum><w:abstractNum w:abstractNumId='1'>"
    + level(0, "bullet", "\uf0b7")
    + "</w:abstractNum><w:num w:numId='1'><w:abstractNumId w:val='0'/></w:num>"
    "<w:num w:numId='2'><w:abstractNumId w:val='0'/>"
    "<w:lvlOverride w:ilvl='0'><w:startOverride w:val='5'/></w:lvlOverride></w:num>"
    "<w:num w:numId='3'><w:abstractNumId w:val='1'/></w:num></w:numbering>"
)


def test_numbers_count_by_level_and_restart_below_a_new_item():
    body = "".join(
        in_list(1, depth, words) for depth, words in ((0, "a"), (1, "b"), (1, "c"), (2, "d"), (0, "e"), (1, "f"))
    )
    assert text(body, {"numbering": NUMBERING}) == "1. a\n1.a) b\n1.b) c\n§ 1 d\n2. e\n2.a) f\n"


def test_numbers_of_another_list_start_where_it_says():
    body = in_list(1, 0, "a") + in_list(2, 0, "b") + in_list(2, 0, "c") + in_list(3, 0, "d") + in_list(9, 0, "e")
    assert text(body, {"numbering": NUMBERING}) == "1. a\n5. b\n6. c\n- d\ne\n"


def test_numbers_come_from_the_style_of_a_paragraph():
    styles = (
        f"<w:styles {WORD}><w:style w:styleId='Base'><w:pPr><w:numPr><w:numId w:val='1'/></w:numPr></w:pPr></w:style>"
        "<w:style w:styleId='Head'><w:basedOn w:val='Base'/></w:style></w:styles>"
    )
    body = paragraph(run("a"), "<w:pStyle w:val='Head'/>") + paragraph(run("b"), "<w:pStyle w:val='Other'/>")
    assert text(body, {"numbering": NUMBERING, "styles": styles}) == "1. a\nb\n"
    # Number 0 switches the number of the style off.
    off = paragraph(run("c"), "<w:pStyle w:val='Head'/><w:numPr><w:numId w:val='0'/></w:numPr>")
    assert text(off, {"numbering": NUMBERING, "styles": styles}) == "c\n"


def test_format_number_knows_words_of_word():
    assert [format_number(n, "lowerRoman") for n in (1, 4, 9, 40, 1999)] == ["i", "iv", "ix", "xl", "mcmxcix"]
    assert [format_number(n, "upperLetter") for n in (1, 26, 27, 53)] == ["A", "Z", "AA", "AAA"]
    assert format_number(3, "chineseCounting") == "3"


def test_headers_and_footers_appear_once():
    header, footer = (f"<w:x {WORD}>{paragraph(run(words))}</w:x>" for words in ("Contract 4711", "Revision B"))
    parts = {"header1": header, "header2": header, "footer1": footer, "header3": f"<w:x {WORD}>{paragraph('')}</w:x>"}
    assert text(paragraph(run("The fee.")), parts) == "Contract 4711\nThe fee.\nRevision B\n"


def test_notes_are_marked_and_follow_the_text_in_its_order():
    def note(kind: str, identity: int, words: str, form: str = "") -> str:
        return f"<w:{kind} w:id='{identity}' {form}>{paragraph(run(words))}</w:{kind}>"

    line = note("footnote", -1, "---", 'w:type="separator"')
    foot = f"<w:footnotes {WORD}>{line}{note('footnote', 2, 'two')}{note('footnote', 3, 'three')}</w:footnotes>"
    end = f"<w:endnotes {WORD}>{note('endnote', 2, 'end')}</w:endnotes>"
    marks = "".join(
        f"{run(words)}<w:r><w:{kind}Reference w:id='{identity}'/></w:r>"
        for words, kind, identity in (
            ("a", "footnote", 3),
            ("b", "endnote", 2),
            ("c", "footnote", 2),
            ("d", "footnote", 9),
        )
    )
    expected = "a[1]b[2]c[3]d\n[1] three\n[2] end\n[3] two\n"
    assert text(paragraph(marks), {"footnotes": foot, "endnotes": end}) == expected


def test_comment_stands_at_its_place_once():
    comments = f"<w:comments {WORD}><w:comment w:id='0' w:author='Ann'>{paragraph(run('Should be 95.'))}</w:comment></w:comments>"
    mark = "<w:r><w:commentReference w:id='0'/></w:r>"
    assert text(paragraph(run("90") + mark + mark), {"comments": comments}) == "90 [comment by Ann: Should be 95.]\n"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (run("10") + run("6", "<w:vertAlign w:val='superscript'/>"), "10⁶"),
        (run("H") + run("2", "<w:vertAlign w:val='subscript'/>") + run("O"), "H₂O"),
        (run("x") + run("1", "<w:vertAlign w:val='superscript'/>") * 2, "x¹¹"),
        ("<w:r><w:sym w:font='Wingdings' w:char='F0FC'/></w:r>", "✓"),
        ("<w:r><w:sym w:font='Symbol' w:char='F061'/></w:r>", "α"),
        ("<w:r><w:sym w:font='Arial' w:char='00E9'/></w:r>", "é"),
        ("<w:ins>" + run("new") + "</w:ins><w:del>" + run("old") + "</w:del>", "new"),
        ("<w:fldSimple>" + run("7") + "</w:fldSimple><w:r><w:instrText>PAGE</w:instrText></w:r>", "7"),
        ("<w:hyperlink>" + run("link") + "</w:hyperlink><w:smartTag>" + run(" tag") + "</w:smartTag>", "link tag"),
        (math("f", num="a+b", den="2"), "(a+b)/2"),
        (math("rad", deg="", e="x"), "√x"),
        (math("d", e="x"), "(x)"),
        (math("sSubSup", e="x", sub="1", sup="2"), "x₁²"),
        (math("nary", sub="0", sup="1", e="f"), "∫₀¹ f"),
        (math("func", fName="sin", e="x"), "sin x"),
    ],
)
def test_content_of_a_paragraph_keeps_its_meaning(content, shown):
    assert text(paragraph(content)) == f"{shown}\n"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (run("seen ") + run("secret", "<w:vanish/>"), "hidden-text"),
        (run("seen ") + "<w:r><w:sym w:font='Unknown' w:char='F0FC'/></w:r>", "symbol"),
        (run("seen ") + "<w:r><w:drawing/></w:r>", "drawing"),
        (run("seen ") + "<w:r><w:object/></w:r>", "drawing"),
        (run("seen ") + "<m:oMath><m:r/></m:oMath>", "formula"),
    ],
)
def test_what_is_left_out_gets_a_notice(content, kind):
    assert kinds(paragraph(content)) == [kind]
    assert "secret" not in text(paragraph(content))
    assert kinds(paragraph(run("seen", "<w:vanish w:val='0'/>"))) == []


def test_text_box_is_written_once_after_its_paragraph():
    box = f"<w:txbxContent>{paragraph(run('boxed'))}</w:txbxContent>"
    namespace = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    both = (
        f"<mc:AlternateContent xmlns:mc='{namespace}'><mc:Choice><w:drawing>{box}</w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent>"
    )
    assert text(paragraph(run("a") + f"<w:r>{both}</w:r>" + run("b"))) == "ab\nboxed\n"
    assert kinds(paragraph(f"<w:r>{both}</w:r>")) == []


def test_merged_cells_keep_columns_in_line():
    def cell(words: str, properties: str = "") -> str:
        return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(run(words))}</w:tc>"

    wide, first = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>'
    rows = (
        f"<w:tr>{cell('half', wide)}{cell('July')}</w:tr>",
        f"<w:tr>{cell('a', first)}{cell('b')}{cell('c')}</w:tr>",
        f"<w:tr>{cell('hidden copy', '<w:vMerge/>')}{cell('d')}{cell('e')}</w:tr>",
        f"<w:tr><w:trPr><w:gridBefore w:val='1'/></w:trPr>{cell('f')}{cell('g')}</w:tr>",
    )
    assert text(f"<w:tbl>{''.join(rows)}</w:tbl>") == "half\t\tJuly\na\tb\tc\n\td\te\n\tf\tg\n"


def test_main_part_of_another_name_and_strict_namespaces_are_read():
    assert text(paragraph(run("words")), main="document2") == "words\n"
    data = package(paragraph(run("words")))
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer := io.BytesIO(), "w") as strict:
        for name in archive.namelist():
            content = archive.read(name).decode()
            content = content.replace(
                "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
                "http://purl.oclc.org/ooxml/wordprocessingml/main",
            )
            strict.writestr(name, content.replace(RELATION, "http://purl.oclc.org/ooxml/officeDocument/relationships"))
    assert read_docx(buffer.getvalue(), "a.docx", None).text == "words\n"


def test_relationships_never_leave_the_archive():
    data = package(paragraph(run("words")), {"header1": "<x/>"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer := io.BytesIO(), "w") as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name).replace(b'Target="header1.xml"', b'Target="../../../etc/passwd"'))
    assert read_docx(buffer.getvalue(), "a.docx", None).text == "words\n"


def test_look_of_a_run_may_come_from_its_style():
    styles = (
        f"<w:styles {WORD}><w:style w:styleId='Up'><w:rPr><w:vertAlign w:val='superscript'/></w:rPr></w:style>"
        "<w:style w:styleId='Gone'><w:rPr><w:vanish/></w:rPr></w:style>"
        "<w:style w:styleId='Further'><w:basedOn w:val='Gone'/></w:style></w:styles>"
    )
    runs = run("10") + run("6", "<w:rStyle w:val='Up'/>") + run("secret", "<w:rStyle w:val='Further'/>")
    assert text(paragraph(runs), {"styles": styles}) == "10⁶\n"
    assert text(paragraph(run("10") + run("6", "<w:position w:val='6'/>"))) == "10⁶\n"


def test_deleted_paragraph_mark_joins_paragraphs_and_takes_no_number():
    deleted = "<w:rPr><w:del/></w:rPr>"
    numbered = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    body = in_list(1, 0, "a") + paragraph("<w:del>" + run("old") + "</w:del>", numbered + deleted) + in_list(1, 0, "b")
    assert text(body, {"numbering": NUMBERING}) == "1. a\n2. b\n"
    assert text(paragraph(run("one "), deleted) + paragraph(run("two"))) == "one two\n"
    assert text(paragraph(run("last"), deleted)) == "last\n"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("<w:r><w:rPr><w:rFonts w:ascii='Wingdings'/></w:rPr><w:t>\uf0fe</w:t></w:r>", "☑"),
        (
            "<w:r><w:fldChar><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData></w:fldChar></w:r>" + run("yes"),
            "☑yes",
        ),
        ("<w:r><w:fldChar><w:ffData><w:checkBox><w:default w:val='0'/></w:checkBox></w:ffData></w:fldChar></w:r>", "☐"),
        (f"<w:r><w:ruby><w:rt>{run('とう')}</w:rt><w:rubyBase>{run('東')}</w:rubyBase></w:ruby></w:r>", "東(とう)"),
    ],
)
def test_older_forms_of_content_are_read(content, shown):
    assert text(paragraph(content)) == f"{shown}\n"


def test_small_hostile_files_stay_small_and_fast():
    many = {f"header{n}": f"<w:x {WORD}>{paragraph(run('x' * 100_000))}</w:x>" for n in range(3)}
    assert len(text(paragraph(run("a")), many)) < 200_000
    wide = "<w:tc><w:tcPr><w:gridSpan w:val='99999'/></w:tcPr><w:p/></w:tc>" * 500
    assert len(text(f"<w:tbl><w:tr>{wide}</w:tr></w:tbl>")) < 2_000
    long_text = NUMBERING.replace('w:val="%1."', f'w:val="{"x" * 100_000}"')
    assert len(text(in_list(1, 0, "a") * 100, {"numbering": long_text})) < 20_000
    separated = "<m:e/>" * 1000
    fence = f"<m:oMath><m:d><m:dPr><m:sepChr m:val='{'x' * 10_000}'/></m:dPr>{separated}</m:d></m:oMath>"
    assert len(text(paragraph(fence))) < 10_000
