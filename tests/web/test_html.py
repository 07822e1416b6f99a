"""The element builder: everything that is not `Html` is escaped, and nothing on a page runs or loads by accident."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seer.web.html import Html, element, escape, fragment, png_url, render_page, stylesheet


class Reader(HTMLParser):
    """Collects the start tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.starts.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(source: str) -> Reader:
    reader = Reader()
    reader.feed(source)
    reader.close()
    return reader


@given(st.text())
def test_element_with_any_text_parses_back_to_that_text(text):
    reader = read(element("p", text, title=text).source)
    expected = text.encode("utf-8", "replace").decode("utf-8")
    assert reader.starts == [("p", {"title": expected})]
    assert reader.text == expected


def test_element_passes_only_html_through():
    inner = element("b", "<i>")
    assert inner == Html("<b>&lt;i&gt;</b>")
    assert element("p", inner, None, [inner, "&"]).source == f"<p>{inner.source}{inner.source}&amp;</p>"
    assert fragment("<", [None, ["<"]]).source == "&lt;&lt;"


def test_html_formatted_into_a_string_is_escaped_again():
    assert "<b>" not in element("p", f"{element('b', 'x')}").source
    assert not isinstance(element("b"), str)


def test_element_writes_attribute_names_and_omits_absent_values():
    made = element("td", "1", class_="n", data_v="", aria_label=None, hidden=True, draggable=False)
    assert made.source == '<td class="n" data-v="" hidden>1</td>'
    assert element("td", class_="").source == "<td></td>"
    assert element("img", alt="", width=3).source == '<img alt="" width="3">'


@pytest.mark.parametrize("tag", ["script", "style", "iframe", "object", "base", "p><script", "P", ""])
def test_element_rejects_tags_that_run_code_or_are_not_names(tag):
    with pytest.raises(ValueError, match=r"must be a plain HTML element"):
        element(tag, "x")


@pytest.mark.parametrize("name", ["onclick", "onerror", "a b", 'x"y', "x>", ""])
def test_element_rejects_event_handlers_and_malformed_attribute_names(name):
    with pytest.raises(ValueError, match="must be a plain name and not an event handler"):
        element("p", "x", **{name: "1"})


@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)"),
        *("https://example.org/", "//example.org/x.png", "/\\example.org", "\\\\example.org", "vbscript:x"),
        *("data:text/html,<script>", "data:image/svg+xml;base64,AAAA", "file:///etc/passwd"),
    ],
)
def test_element_rejects_urls_that_leave_the_folder_of_the_page(url):
    with pytest.raises(ValueError, match="must be an inline PNG, an anchor or a relative path"):
        element("a", "x", href=url)
    with pytest.raises(ValueError, match="must be an inline PNG, an anchor or a relative path"):
        element("img", src=url)


@pytest.mark.parametrize("url", ["#p1", "trace/report.html", "page-0001.png", png_url(b"\x89PNG")])
def test_element_accepts_anchors_relative_paths_and_inline_pngs(url):
    assert read(element("a", "x", href=url).source).starts == [("a", {"href": url})]


def test_escape_replaces_lone_surrogates():
    assert escape("a\ud800<\"'") == "a?&lt;&quot;&#x27;"


def test_render_page_is_complete_and_loads_nothing():
    source = render_page("<T>", element("p", "x"), links=[("s0", "<first>")])
    reader = read(source)
    assert source.startswith('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">')
    tags = [tag for tag, _ in reader.starts]
    assert tags == [
        *("html", "head", "meta", "meta", "meta", "title", "style"),
        *("body", "main", "h1", "nav", "a", "p"),
    ]
    assert "<title>&lt;T&gt;</title>" in source
    assert 'href="#s0">&lt;first&gt;</a>' in source
    (policy,) = (found["content"] for _, found in reader.starts if "http-equiv" in found)
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "script-src" not in policy


def test_render_page_allows_its_own_script_by_hash():
    script = 'document.title="x"'
    source = render_page("T", script=script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert source.count(f"<script>{script}</script>") == 1
    (policy,) = (found["content"] for _, found in read(source).starts if "http-equiv" in found)
    assert f"script-src 'sha256-{digest}'" in policy


def test_render_page_rejects_a_script_that_ends_early():
    with pytest.raises(ValueError, match=r"script contains '</'"):
        render_page("T", script='x="</script>"')


def test_stylesheet_loads_nothing_and_covers_dark_print_and_phone():
    css = stylesheet()
    assert not re.search(r"url\(|@import|</|expression\(", css)
    assert css.count("{") == css.count("}")
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 560px"):
        assert query in css
    light, dark = (
        set(re.findall(r"--\w+(?=:)", part)) for part in css.split("@media (prefers-color-scheme: dark)")[:2]
    )
    assert light == dark
    assert set(re.findall(r"var\((--\w+)\)", css)) <= light | {"--c"}
