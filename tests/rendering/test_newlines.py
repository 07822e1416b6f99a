"""Newline modes: which documents `newline="auto"` marks, and where the decision is applied and recorded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seer.errors import InputError
from seer.rendering import STYLES, render_text, resolve_style, stream
from seer.rendering.newlines import SAMPLE_CHARS, decide_newline, settle_newline
from seer.rendering.plan import plan, settle
from seer.rendering.styles import with_newline

PAPER = STYLES["paper"]
SENTENCE = (
    "The committee met on Tuesday and agreed, after some debate, that the bridge has to be repaired before winter. "
)


def wrap(text: str, width: int) -> str:
    """Break a text into lines of at most `width` characters at spaces."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


PARAGRAPHS = "\n\n".join(SENTENCE * 6 for _ in range(8))
WRAPPED = "\n\n".join(wrap(SENTENCE * 6, 72) for _ in range(8))
VERSE = ["The river bends below the mill,", "and carries leaves to sea;", "the wheel has long been standing still,", ""]
POEM = "\n".join(VERSE * 9)
CHAT = "\n".join(
    ["Anna: are you coming tonight?", "Ben: yes, around 8", "Anna: great, bring the map :)", "Ben: will do"] * 8
)
MAIL = (
    "From: anna@example.org\nTo: ben@example.org\nSubject: Bridge\nDate: Tue, 3 Mar 2026 10:12:00 +0100\n\nDear Ben,\n\n"
    + wrap(SENTENCE * 5, 74)
    + "\n\nAm 2.3. schrieb Ben:\n"
    + "\n".join("> " + line for line in wrap(SENTENCE * 3, 72).split("\n"))
    + "\n\nBest,\nAnna\n"
)
LIST = "Things to bring:\n" + "\n".join(f"{n}. a lamp, rope and {n} litres of water" for n in range(1, 20))
CHINESE_PARAGRAPHS = "\n".join(
    "委员会于星期二召开会议，经过讨论后一致认为，这座桥必须在冬天到来之前修好。" * 6 for _ in range(8)
)
CHINESE_VERSE = "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。\n\n" * 8
PYTHON = '''import os
from pathlib import Path


def total(values: list[int]) -> int:
    """Add the values up."""
    result = 0
    for value in values:
        result += value
    return result


class Reader:
    def __init__(self, path):
        self.path = Path(path)

    def read(self):
        if not self.path.exists():
            return None
        return self.path.read_text()
'''
JAVA = """package org.example;

import java.util.List;

public class Bridge {
    private final List<String> names;

    public Bridge(List<String> names) {
        this.names = names;
    }

    public int count() {
        return names.size();
    }
}
"""
SHELL = (
    '#!/bin/sh\nset -e\nNAME=world\nif [ -z "$NAME" ]; then\n  exit 1\nfi\nfor one in *.txt; do\n  echo "$one"\ndone\n'
)
SQL = "SELECT name, age\nFROM people\nWHERE age >= 18;\nUPDATE people SET age = age + 1;\nDELETE FROM logs;\n"
JSON = '{\n  "name": "bridge",\n  "parts": [\n    {\n      "id": 1,\n      "label": "arch"\n    }\n  ]\n}\n'
HTML = "<table>\n" + "<tr><td>1</td><td>arch</td></tr>\n" * 5 + "</table>\n"
MARKDOWN_TABLE = "| part | length |\n|------|-------:|\n" + "".join(f"| span {n} | {n * 7} m |\n" for n in range(12))
CSV = "id,name,length\n" + "".join(f"{n},span {n},{n * 7}\n" for n in range(12))
TSV = "id\tname\tlength\n" + "".join(f"{n}\tspan {n}\t{n * 7}\n" for n in range(12))
ALIGNED = "part        length     state\n" + "".join(f"span {n}      {n * 7} m       good\n" for n in range(12))
README = (
    f"# Bridge\n\n{wrap(SENTENCE * 4, 76)}\n\n```\nbridge --repair\nbridge --inspect\n```\n\n{wrap(SENTENCE * 2, 76)}\n"
)

MARKED = {
    "hard-wrapped prose": WRAPPED,
    "poem": POEM,
    "chat": CHAT,
    "mail": MAIL,
    "list": LIST,
    "Chinese verse": CHINESE_VERSE,
    "Windows line ends": WRAPPED.replace("\n", "\r\n"),
}
BROKEN = {
    "long paragraphs": PARAGRAPHS,
    "Chinese paragraphs": CHINESE_PARAGRAPHS,
    "Python": PYTHON,
    "Java": JAVA,
    "shell": SHELL,
    "SQL": SQL,
    "JSON": JSON,
    "HTML source": HTML,
    "Markdown table": MARKDOWN_TABLE,
    "CSV": CSV,
    "TSV": TSV,
    "aligned columns": ALIGNED,
    "README with fenced commands": README,
    "hard-wrapped prose with a table": WRAPPED + "\n\n" + MARKDOWN_TABLE,
    "white space": " \n\t\n",
    "one line": "One line.",
}


# ── The rule ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", MARKED)
def test_decide_newline_marks_text_with_short_or_wrapped_lines(name):
    decision = decide_newline(MARKED[name], PAPER)
    assert decision.newline == "mark", decision
    assert "of the text is in lines shorter than the page" in decision.reason


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "one line"])
def test_decide_newline_breaks_lines_of_code_tables_and_long_paragraphs(name):
    decision = decide_newline(BROKEN[name], PAPER)
    assert decision.newline == "break", decision


@pytest.mark.parametrize("name", ["Python", "Java", "shell", "SQL", "JSON", "Markdown table", "CSV", "TSV"])
def test_decide_newline_finds_code_and_tables_in_a_tenth_of_the_lines(name):
    prose = MARKED["hard-wrapped prose"].split("\n")
    block = BROKEN[name].split("\n")[:6]
    assert decide_newline("\n".join(prose[:20] + block), PAPER).newline == "break"
    assert decide_newline("\n".join(prose[:20]), PAPER).newline == "mark"


def test_decide_newline_marks_lines_wrapped_wider_than_the_column():
    text = "\n\n".join(wrap(SENTENCE * 12, 130) for _ in range(6))
    decision = decide_newline(text, PAPER)
    assert decision.newline == "mark" and decision.short < 0.5 and decision.wrapped > 0.8
    assert "wrapped at one width" in decision.reason


def test_decide_newline_depends_on_the_column_of_the_style():
    # Lines of 60 characters fill the rows of large letters, and leave half of a row of small ones blank.
    text = "\n".join(("word " * 12).strip() for _ in range(40))
    assert decide_newline(text, resolve_style("paper")).newline == "mark"
    wide = resolve_style("paper", font_size_pt=24, line_height_pt=26)
    assert decide_newline(text, wide).short == 0


def test_decide_newline_reads_all_windows_of_a_long_text():
    code = PYTHON * (SAMPLE_CHARS // len(PYTHON) + 1)
    prose = WRAPPED * (SAMPLE_CHARS // len(WRAPPED) + 1)
    assert decide_newline(prose * 4, PAPER).newline == "mark"
    assert decide_newline(prose * 3 + code, PAPER).newline == "break"


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(), max_size=300))
def test_decide_newline_accepts_any_text_and_is_deterministic(text):
    decision = decide_newline(text, PAPER)
    assert decision == decide_newline(text, PAPER)
    assert all(0 <= part <= 1 for part in (decision.structured, decision.short, decision.wrapped))


@pytest.mark.parametrize("unit", ["a    ", "if ", ": ", "a.b(", "\t", "| ", "=-", "x,", ") ;"])
def test_decide_newline_of_hostile_lines_takes_bounded_time(unit):
    text = (unit * 400 + "\n") * (SAMPLE_CHARS // (len(unit) * 400 + 1))
    started = time.perf_counter()
    decide_newline(text, PAPER)
    decide_newline(unit * (SAMPLE_CHARS // len(unit)), PAPER)
    assert time.perf_counter() - started < 10


# ── Where it applies ─────────────────────────────────────────────────────────────────────────────


def test_paper_style_differs_from_seer_in_newline_only():
    assert PAPER.model_dump() == STYLES["seer"].model_dump() | {"name": "paper", "newline": "auto"}


@pytest.mark.parametrize(("text", "newline"), [(WRAPPED, "mark"), (PYTHON * 20, "break")])
def test_render_text_in_paper_style_records_the_decision(text, newline):
    document = render_text(text, "paper")
    assert document.style.newline == newline and document.style.name == f"paper:{newline}"
    assert "".join(page.text for page in document) == text
    fixed = render_text(text, resolve_style("seer", newline=newline))
    assert [(page.width_px, page.height_px, page.end) for page in document] == [
        (page.width_px, page.height_px, page.end) for page in fixed
    ]
    assert (document.page(1).image() == fixed.page(1).image()).all()
    assert [page.content_hash for page in stream(text, "paper")] == [page.content_hash for page in document]
    (row,) = plan(text, ["paper"])
    assert row.style == document.style and row.pages == len(document.pages)


def test_stream_of_pieces_rejects_style_that_needs_the_whole_text():
    with pytest.raises(InputError, match=r"style 'paper' has newline='auto'.*set newline to 'break' or 'mark'"):
        list(stream(iter(["a\n", "b\n"]), "paper"))


def test_settle_newline_leaves_decided_styles_unchanged():
    seer = STYLES["seer"]
    assert settle_newline(WRAPPED, seer) is seer
    assert settle_newline(WRAPPED, PAPER).newline == "mark"
    assert settle(WRAPPED, "auto", newline="auto").newline == "mark"
    assert settle(PYTHON * 20, "auto", newline="auto").newline == "break"


def test_with_newline_applies_only_to_styles_that_leave_it_open():
    assert with_newline("paper", "break") == PAPER.model_copy(update={"newline": "break", "name": "paper:break"})
    assert with_newline(PAPER, None) is PAPER
    for style in ("seer", "auto", "glyph", STYLES["dense"]):
        assert with_newline(style, "mark") == style
