"""The trace page of a reading by a system that Seer does not know: steps by name, citations marked on their pages."""

from __future__ import annotations

import json
import re

import pytest
from fakes import make_document

from seer.schema import Answer, Box, Citation, Region, Status, Step, StepUsage
from seer.web import trace as trace_module
from seer.web.trace import trace_html, trace_markdown, write_trace

# Pages of 112 x 84 px: a box of 28 x 21 px is a quarter of the page wide and high.
DOCUMENT = make_document(["The old pier was re", "paired in spring.\n", "Nothing else.\n"])
QUOTE = Citation(
    page=1,
    start=4,
    end=35,
    quote="old pier was repaired in spring",
    verified=True,
    regions=(
        Region(page=1, start=4, end=19, boxes=(Box(x_px=28, y_px=42, width_px=28, height_px=21),), kind="quote"),
        Region(page=2, start=19, end=35, boxes=(Box(x_px=0, y_px=0, width_px=56, height_px=21),), kind="quote"),
    ),
)
STEPS = (
    Step(name="navigate", inputs={"query": "pier"}, outputs={"scores": [0.5, 0.25]}, pages=(1, 2)),
    Step(
        name="localize",
        pages=(2,),
        regions=(
            Region(page=2, start=19, end=30, boxes=(Box(x_px=0, y_px=21, width_px=84, height_px=21),), kind="table"),
            Region(page=2, start=19, end=37, boxes=(Box(x_px=0, y_px=0, width_px=112, height_px=84),), kind="page"),
        ),
        usage=StepUsage(prompt=1200, completion=8),
    ),
    Step(name="adjudicate", outputs={"text": "Both pages agree."}, deviations=("no_vote",)),
)
ANSWER = Answer(
    text="It was repaired in spring.", status=Status.ANSWERED, selected_pages=(2,), citations=(QUOTE,), trace=STEPS
)


def marks(page: str, number: int) -> list[str]:
    """Class, position and title of each mark on one page picture."""
    figure = re.search(rf'<figure[^>]*id="p{number}">.*?</figure>', page, re.S)[0]
    return re.findall(r'<span class="(mark[^"]*)" style="([^"]*)" title="([^"]*)">', figure)


def test_trace_html_marks_citations_and_regions_on_their_pages():
    page = trace_html(DOCUMENT, "When?", ANSWER, dict.fromkeys((1, 2, 3), b"PNG"))
    quote = "old pier was repaired in spring"
    assert marks(page, 1) == [("mark", "left:25.000%;top:50.000%;width:25.000%;height:25.000%;", quote)]
    assert marks(page, 2) == [
        ("mark found", "left:0.000%;top:25.000%;width:75.000%;height:25.000%;", "localize: table"),
        ("mark", "left:0.000%;top:0.000%;width:50.000%;height:25.000%;", quote),
    ]
    assert marks(page, 3) == []


def test_trace_html_keeps_marks_of_boxes_beyond_the_page_inside_the_picture():
    boxes = (Box(x_px=-20, y_px=500, width_px=9000, height_px=-3),)
    step = Step(name="localize", regions=(Region(page=1, start=0, end=1, boxes=boxes),))
    page = trace_html(DOCUMENT, "When?", ANSWER.model_copy(update={"trace": (step,), "citations": ()}), {1: b"PNG"})
    assert marks(page, 1) == [
        ("mark found", "left:0.000%;top:100.000%;width:100.000%;height:0.000%;", "localize: text")
    ]


def test_trace_html_shows_unknown_steps_by_name_with_pages_outputs_and_cost():
    page = trace_html(DOCUMENT, "When?", ANSWER, {})
    trace = page.split("<h2>Trace</h2>")[1]
    assert re.findall(r"<h3>([^<]*)", trace) == ["navigate", "localize", "adjudicate"]
    assert re.findall(r"<pre[^>]*>([^<]*)</pre>", trace) == [
        "pages [1, 2]\nscores: [0.5, 0.25]",
        "pages [2]",
        "Both pages agree. (departs from the protocol: no_vote)",
    ]
    assert "1,200 in, 0 cached, 8 out" in trace


def test_trace_markdown_shows_unknown_steps_by_name():
    lines = trace_markdown(DOCUMENT, "When?", ANSWER).splitlines()
    assert [line for line in lines if line.startswith("### ")] == ["### navigate", "### localize", "### adjudicate"]
    assert "    scores: [0.5, 0.25]" in lines


def test_write_trace_saves_the_whole_record_of_any_system(tmp_path):
    write_trace(tmp_path, DOCUMENT, "When?", ANSWER)
    record = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    del record["document"], record["question"]
    assert Answer.model_validate(record) == ANSWER


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"citations": ()}, [1, 2]), ({"selected_pages": ()}, [1, 2]), ({"selected_pages": (), "citations": ()}, [1])],
)
def test_write_trace_shows_selected_and_cited_pages_of_long_documents(tmp_path, monkeypatch, changes, expected):
    monkeypatch.setattr(trace_module, "MAX_PAGES_SHOWN", 1)
    write_trace(tmp_path, DOCUMENT, "When?", ANSWER.model_copy(update=changes))
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [f"page-{n:04d}.png" for n in expected]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"and {3 - len(expected)} more pages" in page
