"""HTML pages: the visible text, line by line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.rendering import load
from seer.rendering.formats.extract import Extract
from seer.rendering.formats.markup.html import html_extract, html_text
from tests.rendering.makers import write_file


def test_load_html_returns_visible_text(tmp_path):
    page = (
        "<html><head><title>Title</title><style>p {}</style></head><body><h1>Head &amp; tail</h1>"
        "<p>Some <b>bold</b>\n  words.<br>Next<p>Last<ul><li>one<li>two</ul><pre>keep\n  this</pre>"
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1<td>2</table><script>no()</script><img alt='picture'></body>"
    )
    assert load(write_file(tmp_path, "page.txt", page)).text == (
        "Title\n\nHead & tail\n\nSome bold words.\nNext\n\nLast\n\n- one\n- two\n\nkeep\n  this\n\na\tb\n1\t2\n\npicture\n"
    )
    assert load(write_file(tmp_path, "notes.html", "no tags at all")).text == "no tags at all"
    old = '<html><head><meta charset="gb2312"></head><body>价格</body></html>'.encode("gb18030")
    assert load(write_file(tmp_path, "old.html", old)).text == "价格\n"


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("<>/apre td&;\"'=\n!-scriptx"), max_size=80))
def test_html_text_of_random_markup_never_fails(source):
    assert "\0" not in html_text(source)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        # Tables: breaks inside cells, spans, nested and layout tables.
        ("<table><tr><td>a<br>b</td><td>c</td></tr></table>", "a b\tc\n"),
        ("<table><tr><td colspan=2>first half<td>July<tr><td>1<td>2<td>3</table>", "first half\t\tJuly\n1\t2\t3\n"),
        ("<table><tr><td rowspan=2>a<td>b<tr><td>c</table>", "a\tb\n\tc\n"),
        ("<table><tr><td><p>one</p></td><td></td><td>three</td></tr></table>", "one\t\tthree\n"),
        ("<table><tr><td>a<table><tr><td>x<td>y</table><td>b</table>", "a x\ty\tb\n"),
        ("<table><tr><td><h1>Head</h1><p>One.</p><ul><li>two</ul></td></tr></table>", "Head\n\nOne.\n\n- two\n"),
        # Lists: numbers, values, reversed and nested lists.
        ("<ol start=5><li>a<li>b<li value=9>c<li>d</ol>", "5. a\n6. b\n9. c\n10. d\n"),
        ("<ol reversed start=3><li>a<li>b</ol>", "3. a\n2. b\n"),
        ("<ol><li>a<ul><li>x</ul><li>b</ol>", "1. a\n\n- x\n\n2. b\n"),
        # Super- and subscripts.
        (
            "<p>10<sup>6</sup> H<sub>2</sub>O x<sup>a+b</sup> 1<sup>st</sup> note<sup>[3]</sup>",
            "10⁶ H₂O x^(a+b) 1st note[3]\n",
        ),
        # Formulas.
        ("<p>E <math><mi>x</mi><mo>=</mo><msqrt><mn>2</mn></msqrt></math> end", "E x=√2 end\n"),
        ("<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac></math>", "(a+b)/c\n"),
        ("<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>", "x_i²\n"),
        (
            '<math><semantics><annotation encoding="application/x-tex">\\\\alpha</annotation></semantics></math>',
            "\\\\alpha\n",
        ),
        ("<math alttext='the sum'></math>", "the sum\n"),
        # Forms.
        ("<input value=42> <input type=checkbox checked> yes <textarea>a <b></textarea>", "42☑ yes a <b>\n"),
    ],
)
def test_html_text_keeps_structure(page, text):
    assert html_text(page) == text


@pytest.mark.parametrize(
    "element",
    [
        "<p hidden>secret",
        "<p style='display:none'>secret",
        "<div style='color:red; VISIBILITY : hidden !important'>secret <b>words</b></div>",
        "<style>.x{display:none}</style><p class='a x'>secret",
        "<style>/* . */ @media screen { p#z, b {display: none} }</style><p id=z>secret",
        "<span style='font-size:0'>secret</span>",
        "<div hidden><table><tr><td>secret</table></div>",
    ],
)
def test_html_extract_leaves_hidden_text_out_with_a_notice(element):
    extract = html_extract(f"<p>seen</p>{element}</p><p>also seen</p>")
    assert extract.text == "seen\n\nalso seen\n"
    assert [(notice.kind, "secret" in notice.message) for notice in extract.notices] == [("hidden-text", True)]


@pytest.mark.parametrize(
    "page",
    [
        "<style>@media print {p {display:none}}</style><p>seen",
        "<style>p > b {display:none} p:hover{display:none}</style><p>seen",
        "<p style='opacity:0.5'>seen",
        "<p aria-hidden=true>seen",
        "<p data-hidden>seen",
        "<p style='font-size:0.9em'>seen",
    ],
)
def test_html_extract_keeps_text_that_is_shown(page):
    assert html_extract(page) == Extract("seen\n")


def test_html_extract_reports_formula_without_text():
    extract = html_extract("<p>It is <math><mphantom><mi>x</mi></mphantom></math>.")
    assert extract.text == "It is .\n" and [notice.kind for notice in extract.notices] == ["formula"]


def test_load_html_warns_on_the_page_of_the_hidden_text(tmp_path):
    page = "<html>" + "<p>words of a page</p>" * 900 + "<p hidden>secret</p>"
    document = load(write_file(tmp_path, "a.html", page))
    (warning,) = document.warnings
    assert (warning.kind, warning.page) == ("hidden-text", len(document.pages)) and "secret" not in document.text
