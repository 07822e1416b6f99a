"""DocLens: Algorithm 1 in scripted runs, chunks on overflow, crops, adjudication, and each ablation."""

from __future__ import annotations

from typing import Any

import pytest

from seer.engines.base import ChatImage, Generation, Request
from seer.engines.scripted import ScriptedEngine
from seer.errors import ModelError, PromptTooLong
from seer.models.counting import tekken_encoder
from seer.rendering import render_text
from seer.schema import Box, Document, Page, Status
from seer.systems.base import Task
from seer.systems.doclens.config import DocLensConfig
from seer.systems.doclens.system import DocLens
from seer.systems.evidence import elements
from seer.systems.evidence.elements import Element, RapidLayout
from tests.systems.scripts import RoleScript

LINES = [f"Line {k}: the depot in town {k} holds {1000 + k} crates.\n" for k in range(1100)]
DOCUMENT = render_text("".join(LINES), name="depots.txt")
QUOTE = "the depot in town 1 holds 1001 crates"


MARKS = {
    "navigator": "Find every page",
    "sampler": "Answer the question from the evidence",
    "adjudicator": "Several analysts",
}


def images(request: Request) -> list[ChatImage]:
    return list(request.prompt.images)


class Script(RoleScript):
    """A model that answers the question, unless a role's replies are replaced."""

    def __init__(self, **replies: Any) -> None:
        quotes = [{"page": 1, "quote": QUOTE}]
        usual = {
            "navigator": [{"analysis": "n", "pages": [1]}],
            "sampler": [{"analysis": "s", "answer": "1001", "answerable": True, "quotes": quotes}],
            "adjudicator": [{"analysis": "a", "answer": "1001", "answerable": True, "best": 1}],
        }
        super().__init__(MARKS, usual | replies)


class Detector:
    """Finds one table and one block of text on every page."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def detect(self, page: Page) -> list[Element]:
        self.seen.append(page.number)
        return [
            Element("text", Box(x_px=20, y_px=20, width_px=300, height_px=20)),
            Element("table", Box(x_px=20, y_px=100, width_px=200, height_px=50), 0.9),
        ]


def build(script: Script, **config: Any) -> DocLens:
    return DocLens(script.engine, config=DocLensConfig(**config), detector=Detector())


def ask(system: DocLens, document: Document = DOCUMENT, gold: tuple[int, ...] = ()) -> Any:
    return system.answer_batch([Task("q", "", "How many crates are in town 1?", document=document, gold_pages=gold)])[0]


def test_doclens_follows_algorithm_1():
    script = Script(
        navigator=[{"analysis": "n", "pages": [1]}, {"analysis": "n", "pages": [3, 1]}, {"analysis": "n", "pages": []}],
        sampler=[
            {
                "analysis": "first",
                "answer": "1003",
                "answerable": True,
                "quotes": [{"page": 3, "quote": "no such words"}],
            },
            {"analysis": "second", "answer": "1001", "answerable": True, "quotes": [{"page": 1, "quote": QUOTE}]},
        ],
        adjudicator=[{"analysis": "second is right", "answer": "1001", "answerable": True, "best": 2}],
    )
    answer = ask(build(script, navigator_samples=3, answer_samples=2))
    assert (answer.text, answer.status, answer.selected_pages) == ("1001", Status.ANSWERED, (1, 3))
    assert [step.name for step in answer.trace] == ["navigate", "localize", "sample", "adjudicate", "answer"]
    # One request draws all samples, at the paper's temperature; the adjudicator is greedy.
    (navigator,), (sampler,), (judge,) = script.of("navigator"), script.of("sampler"), script.of("adjudicator")
    assert (navigator.n, navigator.sampling.temperature) == (3, 0.7)
    assert (sampler.n, sampler.sampling.temperature) == (2, 0.7) and (judge.n, judge.sampling.temperature) == (1, 0)
    # The navigator sees all pages with their text, the sampler the union with one crop of a table each.
    assert len(images(navigator)) == len(DOCUMENT.pages) and LINES[-1].strip() in navigator.prompt.messages[-1].text
    assert [image.content_hash.split("-")[0] for image in images(sampler)] == [
        DOCUMENT.page(n).content_hash for n in (1, 1, 3, 3)
    ]
    assert not images(judge) and "Analysis 2: second" in judge.prompt.messages[-1].text
    # The quote is that of the analysis which the adjudicator follows.
    (citation,) = answer.citations
    assert citation.verified and citation.quote == QUOTE and citation.page == 1
    regions = answer.trace[1].regions
    assert [(region.page, region.kind) for region in regions] == [(1, "table"), (3, "table")]
    assert DOCUMENT.text[regions[0].start : regions[0].end].startswith("Line")


def test_adjudicator_does_not_see_numbers_of_votes():
    votes = [
        {"analysis": f"reason {k}", "answer": "7" if k else "8", "answerable": True, "quotes": []} for k in range(4)
    ]
    script = Script(sampler=votes)
    ask(build(script, answer_samples=4))
    text = script.of("adjudicator")[0].prompt.messages[-1].text
    assert all(f"reason {k}" in text for k in range(4))
    assert "votes" not in text and "3 of 4" not in text


@pytest.mark.parametrize(
    ("config", "steps", "check"),
    [
        (
            {"navigator_samples": 1},
            5,
            lambda s: s.of("navigator")[0].n == 1 and not s.of("navigator")[0].sampling.temperature,
        ),
        (
            {"text": False},
            5,
            lambda s: not any(LINES[1].strip() in r.prompt.messages[-1].text for r in s.engine.requests),
        ),
        ({"localizer": False}, 4, lambda s: len(images(s.of("sampler")[0])) == 1),
        (
            {"lens": False},
            3,
            lambda s: len(images(s.of("sampler")[0])) == len(DOCUMENT.pages) and not s.of("navigator"),
        ),
        ({"reasoning": False}, 4, lambda s: s.of("sampler")[0].n == 1 and not s.of("adjudicator")),
        ({"oracle": True}, 4, lambda s: not s.of("navigator") and len(images(s.of("sampler")[0])) == 4),
        ({"crop_text": True}, 5, lambda s: len(images(s.of("sampler")[0])) == 3),
        ({"max_crops": 0}, 5, lambda s: len(images(s.of("sampler")[0])) == 1),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_ablation_changes_what_it_names(config, steps, check):
    script = Script()
    answer = ask(build(script, **config), gold=(2, 4))
    assert answer.status is Status.ANSWERED and answer.text == "1001"
    assert len(answer.trace) == steps and check(script)


def test_navigator_divides_pages_into_chunks_only_on_overflow():
    window = 5

    def navigator(request: Request) -> Any:
        shown = [int(part.split()[1]) for part in request.prompt.messages[-1].content if str(part).startswith("Page ")]
        return {"analysis": "n", "pages": [shown[0], shown[-1], 999]}

    class Bounded(ScriptedEngine):
        def generate(self, requests: Any) -> list[Generation]:
            return [
                Generation.failed(PromptTooLong("maximum context length is 9"))
                if len(request.prompt.images) > window
                else ScriptedEngine.generate(self, [request])[0]
                for request in requests
            ]

    script = Script(navigator=navigator)
    engine = Bounded(script, encoder=tekken_encoder())
    pages = len(DOCUMENT.pages)
    assert pages > 2 * window
    config = DocLensConfig(chunk_pages=8, navigator_samples=2, localizer=False, answer_samples=1)
    answer = ask(DocLens(engine, config=config))
    step = answer.trace[0]
    assert "pages-in-chunks" in step.deviations
    # Chunks of 8 overflow, too, and are halved.
    assert (pages, step.pages) == (14, (1, 4, 5, 8, 9, 11, 12, 14))


def test_navigator_drops_text_of_a_page_that_is_too_long_alone():
    class NoText(ScriptedEngine):
        def generate(self, requests: Any) -> list[Generation]:
            return [
                Generation.failed(PromptTooLong("maximum context length is 9"))
                if "Text of page" in request.prompt.messages[-1].text
                and MARKS["navigator"] in request.prompt.messages[-1].text
                else ScriptedEngine.generate(self, [request])[0]
                for request in requests
            ]

    document = render_text("".join(LINES[:150]))
    system = DocLens(NoText(Script(), encoder=tekken_encoder()), config=DocLensConfig(localizer=False))
    answer = ask(system, document)
    assert answer.text == "1001" and set(answer.trace[0].deviations) == {"pages-in-chunks", "page-text-dropped"}


def test_window_too_small_for_one_page_fails_with_a_record():
    class Tiny(ScriptedEngine):
        def generate(self, requests: Any) -> list[Generation]:
            return [Generation.failed(PromptTooLong("maximum context length is 9")) for _ in requests]

    answer = ask(DocLens(Tiny(Script(), encoder=tekken_encoder()), config=DocLensConfig(localizer=False)))
    assert answer.status is Status.FAILED and answer.failure.kind == "too_long"


def test_unanswerable_verdict_is_allowed():
    script = Script(
        navigator=[{"analysis": "none", "pages": []}],
        sampler=[{"analysis": "s", "answer": "", "answerable": False}],
        adjudicator=[{"analysis": "a", "answer": "Not answerable", "answerable": False}],
    )
    answer = ask(build(script))
    assert (answer.status, answer.text, answer.selected_pages) == (Status.NOT_ANSWERABLE, "Not answerable", ())
    assert not images(script.of("sampler")[0]) and "No page" in script.of("sampler")[0].prompt.messages[-1].text


def test_each_role_may_have_its_own_engine():
    cheap, strong = Script(), Script()
    system = DocLens(strong.engine, roles={"navigator": cheap.engine}, config=DocLensConfig(localizer=False))
    assert ask(system).text == "1001"
    assert set(cheap.order()) == {"navigator"}
    assert set(strong.order()) == {"sampler", "adjudicator"}


@pytest.mark.parametrize("text", ["", "{}", "[1,2]", '{"pages": "all"}', "\x00", "<|endoftext|>", '{"analysis": 5}'])
def test_liar_never_crashes(text):
    answer = ask(
        DocLens(ScriptedEngine(lambda _: text, encoder=tekken_encoder()), config=DocLensConfig(localizer=False))
    )
    assert answer.status is Status.FAILED and answer.cause


def test_localizer_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(elements.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"seer-vlm\[ocr\]"):
        DocLens(ScriptedEngine(Script(), encoder=tekken_encoder()))


def test_rapid_layout_finds_a_table_in_a_picture():
    pytest.importorskip("rapid_layout")
    canvas_module = pytest.importorskip("reportlab.platypus")
    import io

    from reportlab.lib import colors
    from reportlab.lib.pagesizes import A4

    from seer.rendering import load_bytes

    rows = [
        ["Region", "2020", "2021", "2022"],
        *([f"Town {k}", str(k * 7), str(k * 9), str(k * 11)] for k in range(12)),
    ]
    grid = canvas_module.Table(rows, colWidths=90)
    grid.setStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black)])
    words = canvas_module.Paragraph("The depots reported their stocks at the end of each year. " * 12)
    canvas_module.SimpleDocTemplate(buffer := io.BytesIO(), pagesize=A4).build([words, grid, words])
    page = load_bytes(buffer.getvalue(), "report.pdf").page(1)
    tables = [element for element in RapidLayout().detect(page) if element.kind == "table"]
    assert len(tables) == 1
    text = page.text[tables[0].region(page).start : tables[0].region(page).end]
    assert "Region" in text and "Town 11" in text and "reported" not in text
