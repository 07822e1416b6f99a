"""Plain-text wording of a reading: citations, token usage, page strips and shortening."""

from __future__ import annotations

import pytest
from fakes import make_document

from seer.schema import Answer, Citation, Status, Step, StepUsage, Usage
from seer.web.wording import (
    cite,
    cost_line,
    describe_pages,
    describe_shown,
    make_page_strip,
    shorten,
    step_text,
    tokens_line,
)

DOCUMENT = make_document(["The baker is on page two.\n", "baker 482139\n"])


def test_cite_names_document_page_quote_and_verification():
    found = Citation(page=2, start=32, end=38, quote="482139", verified=True)
    assert cite(found, DOCUMENT) == f'{DOCUMENT.name}:p.2 "482139" verified'
    invented = found.model_copy(update={"quote": "word " * 100, "verified": False})
    line = cite(invented, DOCUMENT)
    assert line.endswith('…" NOT FOUND')
    assert len(line) < 160


def test_cite_names_the_source_file_of_a_joined_document():
    first, second = DOCUMENT.pages
    moved = second.model_copy(update={"source": "part.pdf", "source_number": 7, "label": "vii"})
    joined = DOCUMENT.model_copy(update={"pages": (first, moved)})
    found = Citation(page=2, start=32, end=38, quote="482139", verified=True)
    assert cite(found, joined) == 'part.pdf:p.7 (printed "vii") "482139" verified'


@pytest.mark.parametrize(
    ("prompt", "comparison"),
    [(50, "50 saved of the full text's 100 (2.00x)"), (125, "25 more than the full text's 100 (0.80x)")],
)
def test_tokens_line_compares_the_prompt_with_the_full_text(prompt, comparison):
    usage = Usage(vision=30, retrieved=5, prompt=prompt, completion=4, full_text=100)
    line = tokens_line(Answer(text="x", status=Status.ANSWERED, usage=usage, seconds=1.5))
    assert line == f"{prompt} prompt (30 vision, 5 retrieved), 4 completion; {comparison}; 1.50 s"


def test_tokens_line_without_full_text_makes_no_comparison():
    line = tokens_line(Answer(text="x", status=Status.ANSWERED, usage=Usage(prompt=1200, completion=4)))
    assert line == "1,200 prompt (0 vision, 0 retrieved), 4 completion; 0.00 s"


@pytest.mark.parametrize("num_pages", [1, 2, 50, 51, 120, 999])
def test_make_page_strip_fills_one_square_for_each_page(num_pages):
    places = []
    for number in range(1, num_pages + 1):
        strip = make_page_strip(num_pages, (number,))
        assert len(strip.filled) <= 50
        assert len(strip.filled) * strip.pages_per_square >= num_pages
        assert sum(strip.filled) == 1
        places.append(strip.filled.index(True))
    assert places == sorted(places)
    assert set(places) == set(range(len(strip.filled)))


def test_make_page_strip_without_pages_is_empty():
    assert make_page_strip(0, ()).filled == ()


def test_shorten_joins_lines_and_cuts_at_the_limit():
    assert shorten("a\n  b\tc", 5) == "a b c"
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"


EXCERPT = {"page": 2, "start": 26, "text": "abc"}


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step(name="look", inputs={"question": "Why?", "text": "all of it"}), "The whole text. Why?"),
        (Step(name="look", inputs={"question": "Why?"}, pages=(1, 2)), "2 pages as pictures. Why?"),
        (Step(name="select", inputs={"allowed": [1, 2, 3]}, pages=(1, 3)), "select pages [1, 3]"),
        (Step(name="select", pages=(1, 3), outputs={"raw": "…", "added": [3]}), "select pages [1, 3]\nadded: [3]"),
        (
            Step(name="select", pages=(1,), deviations=("repeated",)),
            "select pages [1] (departs from the protocol: repeated)",
        ),
        (Step(name="retrieve", pages=(2,), outputs={"excerpts": [EXCERPT]}), "Text from image 2: abc"),
        (Step(name="retrieve", pages=(2,), outputs={"text": "nothing"}), "nothing"),
        (Step(name="reason", outputs={"text": "Hm.", "raw": "<think>Hm."}), "Hm."),
        (Step(name="answer", outputs={"text": "482139"}), "482139"),
    ],
)
def test_step_text_describes_every_step_of_a_reading(step, text):
    assert step_text(step) == text


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step(name="navigate", pages=(2,), outputs={"next": "page two"}), "pages [2]\nnext: page two"),
        (
            Step(name="localize", pages=(1,), outputs={"text": "Here.", "box": {"x": 1.5}, "excerpts": [EXCERPT]}),
            'pages [1]\nHere.\nText from image 2: abc\nbox: {"x": 1.5}',
        ),
        (Step(name="adjudicate", inputs={"votes": [1, None]}), "votes: [1, null]"),
        (Step(name="wait", deviations=("late",)), "(departs from the protocol: late)"),
        (Step(name="look"), "The whole text. "),
    ],
)
def test_step_text_describes_unknown_steps_by_pages_and_outputs(step, text):
    assert step_text(step) == text


def test_cost_line_is_empty_without_a_model_call():
    assert (
        cost_line(Step(name="x", usage=StepUsage(prompt=1200, completion=3, cached=10))) == "1,200 in, 10 cached, 3 out"
    )
    assert cost_line(Step(name="x")) == ""


def test_describe_shown_counts_pages():
    assert describe_shown(Step(name="look", pages=(1,))) == "1 page as a picture"
    assert describe_shown(Step(name="look", pages=(1, 2))) == "2 pages as pictures"


def test_describe_pages_lists_pages():
    assert describe_pages(Step(name="select", pages=(1, 12))) == "pages [1, 12]"
    assert describe_pages(Step(name="select")) == "no page"
