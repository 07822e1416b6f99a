"""One reading as a report: its pages, the selection, the exact text, the answer and its citations.

    write_trace(folder, document, question, answer)

writes page-0001.png …, report.html (self-contained), report.md and, last, answer.json. Text from documents, questions
and models is escaped: it cannot become HTML or Markdown.
"""

from __future__ import annotations

from pathlib import Path

from seer.schema import Answer, Document, Page, Status, Step
from seer.storage import replace_surrogates, write_json, write_text
from seer.web.components import (
    Mark,
    Tone,
    callout,
    citation_chips,
    note_line,
    page_strip,
    region_marks,
    thumbnail,
    thumbnails,
    verbatim,
)
from seer.web.html import Html, element, fragment, render_page
from seer.web.wording import cite, cost_line, step_text, tokens_line

MAX_PAGES_SHOWN = 60
"""Pages from the document's start that a report shows; later ones are shown only if they are selected or cited."""

_TONES: dict[Status, Tone] = {Status.ANSWERED: "good", Status.NOT_ANSWERABLE: "warn", Status.FAILED: "bad"}


def write_trace(folder: str | Path, document: Document, question: str, answer: Answer, note: str = "") -> Path:
    """Write page pictures, report.html, report.md and, last, answer.json; returns the folder.

    `note` appears under the title of both reports. Raises ValueError if a page cannot be drawn.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    pictures = {page.number: page.png() for page in shown_pages(document, answer)}
    for number, picture in pictures.items():
        (target / f"page-{number:04d}.png").write_bytes(picture)
    write_text(target / "report.html", trace_html(document, question, answer, pictures, note))
    write_text(target / "report.md", trace_markdown(document, question, answer, note))
    record = {"document": document.name, "question": question, **answer.model_dump(mode="json")}
    write_json(target / "answer.json", record, end="")
    return target


def shown_pages(document: Document, answer: Answer) -> list[Page]:
    """The pages that a report shows: the first ones, and every selected or cited page after them."""
    cited = {region.page for citation in answer.citations for region in citation.regions}
    needed = {*answer.selected_pages, *cited}
    return [page for page in document.pages if page.number <= MAX_PAGES_SHOWN or page.number in needed]


def trace_html(document: Document, question: str, answer: Answer, pictures: dict[int, bytes], note: str = "") -> str:
    """Render the reading as one page without outside references.

    `pictures` holds the PNG of each page to show, by page number; `note` appears under the title.
    """
    outcome = answer.text if answer.text.strip() else f"({answer.status.value}: {answer.cause})"
    citations = fragment(element("h2", "Citations"), citation_chips(answer.citations, document, shown=pictures))
    return render_page(
        question,
        note_line(document.name, f" — {note}" if note else None),
        callout(outcome, tone=_TONES[answer.status]),
        note_line(tokens_line(answer)),
        citations if answer.citations else None,
        element("h2", "Pages", id="pages"),
        _pages(document, answer, pictures),
        element("h2", "Trace"),
        map(_step, answer.trace),
    )


def trace_markdown(document: Document, question: str, answer: Answer, note: str = "") -> str:
    """Render the reading as Markdown that links to the page pictures in the same folder."""
    selected = set(answer.selected_pages)
    lines = [f"# {_flat(question)}", "", f"Document: {_flat(document.name)}", ""]
    if note:
        lines += [f"> {_flat(note)}", ""]
    lines += [f"**Answer** ({answer.status.value}):", "", *_quoted(answer.text or answer.cause), ""]
    lines += [f"Tokens: {tokens_line(answer)}", ""]
    if answer.citations:
        lines += ["## Citations", "", *(f"- {_flat(cite(citation, document))}" for citation in answer.citations), ""]
    lines += ["## Pages", "", "| page | selected | characters | picture |", "|---|---|---|---|"]
    for page in shown_pages(document, answer):
        mark, picture = "yes" if page.number in selected else "", f"page-{page.number:04d}.png"
        lines.append(f"| {page.number} | {mark} | {len(page.text):,} | ![page {page.number}]({picture}) |")
    lines += ["", "## Trace", ""]
    for step in answer.trace:
        lines += [f"### {_flat(step.name)}", "", *_quoted(step_text(step)), ""]
    return "\n".join(lines)


def _pages(document: Document, answer: Answer, pictures: dict[int, bytes]) -> Html:
    selected = set(answer.selected_pages)
    figures = [
        thumbnail(
            number,
            picture,
            f"page {number}{' · selected' if number in selected else ''}",
            is_selected=number in selected,
            anchor=f"p{number}",
            marks=_marks(document, answer, number),
        )
        for number, picture in pictures.items()
    ]
    left_out = len(document.pages) - len(pictures)
    return fragment(
        page_strip(len(document.pages), selected),
        thumbnails(figures),
        note_line(f"and {left_out:,} more pages") if left_out > 0 else None,
    )


def _marks(document: Document, answer: Answer, number: int) -> list[Mark]:
    """Marks on one page: the regions that steps found, below the quotes of citations."""
    page = document.page(number)
    found = [
        mark
        for step in answer.trace
        for region in step.regions
        if region.page == number and region.kind != "page"  # a frame around the page would add nothing
        for mark in region_marks(region, page, f"{step.name}: {region.kind}", is_citation=False)
    ]
    cited = [
        mark
        for citation in answer.citations
        for region in citation.regions
        if region.page == number
        for mark in region_marks(region, page, citation.quote)
    ]
    return found + cited


def _step(step: Step) -> Html:
    spent = cost_line(step)
    cost = element("span", spent, class_="note") if spent else None
    return fragment(element("h3", step.name, cost), verbatim(step_text(step)))


# ── Markdown and files ───────────────────────────────────────────────────────────────────────────


def _flat(text: str) -> str:
    """Put text on one line and escape the characters that Markdown interprets."""
    line = " ".join(replace_surrogates(text).split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in line)


def _quoted(text: str) -> list[str]:
    """Indent text, so that Markdown shows it verbatim."""
    return [f"    {line}" for line in replace_surrogates(text).splitlines() or [""]]
