"""Hostile text in every slot of every report page: it is displayed verbatim and never becomes markup.

Each slot holds its own payload, so that a slot which is dropped, cut or not escaped fails by name.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fakes import make_document, small_encoder

from data_pipeline.gallery import gallery_html
from seer.models.checkpoint import PixelScaling
from seer.schema import Answer, Box, Citation, Excerpt, PageStyle, Region, Status, Step, StepUsage, Trajectory, Turn
from seer.web.html import stylesheet
from seer.web.page import to_html
from seer.web.tables import (
    Bar,
    Case,
    Chart,
    Column,
    Dot,
    Picture,
    Plot,
    Report,
    Row,
    Section,
    Table,
)
from seer.web.trace import trace_html, write_trace
from train.config import LossWeights
from train.data.dataset import Recipe, RejectedTrajectory, make_sample
from train.data.inspection import to_html as inspection_html

SCRIPTS = Path(__file__).parents[2] / "scripts"
PNG = b"\x89PNG\r\n\x1a\n"
DOCUMENT_TAGS = {"html", "head", "meta", "title", "style", "body", "main", "script"}
TEXT_TAGS = {"h1", "h2", "h3", "h4", "nav", "a", "p", "ul", "li", "div", "span", "b", "i", "pre", "dl", "dt", "dd"}
BLOCK_TAGS = {"details", "summary", "article", "figure", "figcaption", "img"}
TABLE_TAGS = {"table", "thead", "tbody", "tr", "th", "td", "button"}
PLOT_TAGS = {"svg", "line", "text", "polyline", "circle"}
ALLOWED_TAGS = DOCUMENT_TAGS | TEXT_TAGS | BLOCK_TAGS | TABLE_TAGS | PLOT_TAGS
VOID_TAGS = {"meta", "img"}


class Payloads:
    """Makes a hostile text for each slot and remembers it. Pages that need files use `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[str] = []

    def __call__(self, slot: str) -> str:
        text = f"</script></style><script>alert({len(self.made)})</script>\"'><img src=x onerror=1> &lt; {slot}"
        self.made.append(text)
        return text


class Checker(HTMLParser):
    """Collects tags, attributes and text, and checks that every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data


# ── The pages ────────────────────────────────────────────────────────────────────────────────────


def evaluation_report(hostile: Payloads) -> str:
    heads = [Column(hostile("column")), Column("score", 2)]
    rows = [Row([hostile("cell"), 1.0]), Row([hostile("paper cell"), -0.5], "paper")]
    section = Section(
        hostile("section title"),
        hostile("section text"),
        tables=[
            Table(hostile("table title"), heads, rows, hostile("table note"), shaded=True),
            Table(hostile("folded title"), heads, rows, hostile("folded note"), folded=True),
        ],
        charts=[Chart(hostile("chart title"), [Bar(hostile("bar"), [(1, hostile("series"))], 0, 2)], hostile("unit"))],
        plots=[
            Plot(
                hostile("plot title"),
                hostile("x name"),
                hostile("y name"),
                [Dot(1, 2, hostile("dot"), hostile("dot series"), on_line=True), Dot(2, 1, hostile("other dot"))],
            )
        ],
        cases=[Case(hostile("case title"), [(hostile("label"), hostile("field"))], [Picture(1, PNG, False, True)])],
    )
    return to_html(Report(hostile("report title"), [hostile("summary")], [section]))


def region(page: int, kind: str = "quote") -> Region:
    return Region(page=page, start=0, end=1, boxes=(Box(x_px=1, y_px=2, width_px=3, height_px=4),), kind=kind)


def reading(hostile: Payloads, status: Status = Status.ANSWERED) -> tuple:
    """(document, question, answer, note) of a reading with hostile text wherever text is allowed."""
    document = make_document(["first page\n", hostile("page text")], name=hostile("document"))
    last = document.pages[1].model_copy(
        update={"label": hostile("label"), "source": hostile("source"), "source_number": 3}
    )
    last.attach(lambda page: document.pages[1].image(), encode=lambda page: document.pages[1].png())
    joined = document.model_copy(update={"pages": (document.pages[0], last)})
    quotes = [hostile("quote of page 1"), hostile("quote of page 2")]
    usage = StepUsage(prompt=9)
    excerpt = {"page": 2, "start": 11, "text": hostile("excerpt")}
    steps = [
        Step(name="look", inputs={"question": hostile("prompt")}, pages=(1, 2), usage=usage),
        Step(name="select", pages=(2,), deviations=(hostile("deviation"),), usage=usage),
        Step(name="retrieve", outputs={"excerpts": [excerpt]}, usage=usage),
        Step(name="retrieve", outputs={"text": hostile("observation")}, usage=usage),
        Step(name="reason", outputs={"text": hostile("think")}, usage=usage),
        Step(
            name=hostile("step"),
            outputs={hostile("output"): hostile("value")},
            regions=(region(1, hostile("region")),),
            usage=usage,
        ),
        Step(name=hostile("step 2"), inputs={hostile("input"): hostile("input value")}),
        Step(name="answer", outputs={"text": hostile("answer turn")}, usage=usage),
    ]
    answer = Answer(
        text="" if status is Status.FAILED else hostile("answer"),
        status=status,
        cause=hostile("cause") if status is Status.FAILED else "",
        selected_pages=(2,),
        citations=tuple(
            Citation(page=number, start=0, end=1, quote=quote, verified=number == 1, regions=(region(number),))
            for number, quote in enumerate(quotes, 1)
        ),
        trace=tuple(steps),
    )
    return joined, hostile("question"), answer, hostile("note")


def trace(hostile: Payloads, status: Status = Status.ANSWERED) -> str:
    document, question, answer, note = reading(hostile, status)
    hostile.made = [payload for payload in hostile.made if not payload.endswith(" page text")]  # pages are pictures
    return trace_html(document, question, answer, {1: PNG, 2: PNG}, note)


def failed_trace(hostile: Payloads) -> str:
    return trace(hostile, Status.FAILED)


def conversation(hostile: Payloads) -> Trajectory:
    turns = (
        Turn(kind="prompt", text=hostile("prompt"), pages=(1,)),
        Turn(kind="call", pages=(1,)),
        Turn(kind="observation", excerpts=(Excerpt(page=1, start=0, text=hostile("excerpt")),)),
        Turn(kind="think", text=hostile("think")),
        Turn(kind="answer", text=hostile("answer")),
    )
    return Trajectory(
        id=hostile("id"), source="The source.\n", style=PageStyle(), turns=turns, answers=(hostile("accepted answer"),)
    )


def gallery(hostile: Payloads) -> str:
    provenance = {hostile("provenance key"): hostile("provenance value")}
    shown = conversation(hostile).model_copy(update={"provenance": provenance})
    return gallery_html(hostile("set name"), [shown], 1)


def inspection(hostile: Payloads) -> str:
    recipe = Recipe(small_encoder(), PixelScaling((0.5,) * 3, (0.5,) * 3), LossWeights(), 10_000)
    trajectory = conversation(hostile)
    hostile.made = [payload for payload in hostile.made if not payload.endswith(" accepted answer")]  # not encoded
    rejection = RejectedTrajectory(hostile("rejected id"), hostile("reason"), hostile("detail"))  # type: ignore[arg-type]
    return inspection_html([make_sample(trajectory, recipe), rejection], recipe.encoder)


def end_to_end(hostile: Payloads) -> str:
    specification = importlib.util.spec_from_file_location("end_to_end", SCRIPTS / "end_to_end.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    out = hostile.folder
    document, _, _, note = reading(Payloads(out))  # shown in the trace only
    answer = Answer(text=hostile("answer"), status=Status.ANSWERED, selected_pages=(2,))
    write_trace(out / "trace", document, hostile("question"), answer, note)
    module.write_report(out, [(hostile("step"), hostile("command"), hostile("output"))], 1.0)
    return (out / "report.html").read_text(encoding="utf-8")


PAGES = [evaluation_report, trace, failed_trace, gallery, inspection, end_to_end]


@pytest.fixture(params=PAGES, ids=lambda page: page.__name__)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Payloads]:
    """(source of a page, the payloads of its slots)"""
    hostile = Payloads(tmp_path)
    build: Callable[[Payloads], str] = request.param
    return build(hostile), hostile


# ── What holds for all of them ───────────────────────────────────────────────────────────────────


def checked(source: str) -> Checker:
    checker = Checker()
    checker.feed(source)
    checker.close()
    assert checker.open == []
    return checker


def test_every_page_displays_hostile_text_verbatim(made):
    source, hostile = made
    checker = checked(source)
    shown = " ".join((checker.text + " ".join(value for _, value in checker.attributes)).split())
    assert len(hostile.made) >= 4
    missing = [payload for payload in hostile.made if payload not in shown]
    assert not missing


def test_no_page_lets_hostile_text_become_markup(made):
    source, _ = made
    checker = checked(source)
    assert set(checker.tags) <= ALLOWED_TAGS
    assert checker.tags.count("script") <= 1
    assert checker.tags.count("style") == 1
    assert source.count("alert(") == source.count(";alert("), "a payload appears unescaped"
    assert not [name for name, _ in checker.attributes if name.startswith("on")]


def test_no_page_makes_a_request(made):
    source, _ = made
    for name, value in checked(source).attributes:
        if name == "src":
            assert value.startswith("data:image/png;base64,")
        elif name == "href":
            assert value.startswith("#") or value == "trace/report.html"
        elif name == "style":
            assert re.fullmatch(r"[\w\s:;%./()-]*", value)
            assert "url" not in value
    assert 'Content-Security-Policy" content="default-src &#x27;none&#x27;; img-src data:;' in source


def test_every_page_uses_the_shared_stylesheet_and_its_classes(made):
    source, _ = made
    assert f"<style>{stylesheet()}</style>" in source
    styled = set(re.findall(r"\.([a-z][a-z-]*)", stylesheet()))
    used = {name for attribute, value in checked(source).attributes if attribute == "class" for name in value.split()}
    assert used <= styled
