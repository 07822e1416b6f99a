"""HTML pages: the visible text, line by line."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from seer.rendering import load
from seer.rendering.formats.html import html_text
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
