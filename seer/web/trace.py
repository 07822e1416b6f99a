"""A reading to look at: its pages, what was selected, the exact text, the answer and its citations.

    write_trace(folder, document, question, answer)

leaves page-0001.png …, answer.json, report.md and report.html (self-contained). Everything that comes from outside is
escaped: a document or a model cannot put HTML or Markdown into a report. The answer record is written last.
"""

from __future__ import annotations

import base64
import html
from pathlib import Path

from seer.schema import Answer, Document, Step
from seer.storage import replace_surrogates, write_json, write_text
from seer.web.wording import cite, tokens_line, turn_text

MAX_PAGES_SHOWN = 60

STYLE = """
:root { --ink: #1c1f23; --dim: #6b7280; --line: #d9dde3; --mark: #0f766e; --paper: #fff; --back: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --dim: #9aa3af; --line: #343a43; --mark: #2dd4bf; --paper: #1d2127; --back: #14171b; }
}
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 20px; } h2 { font-size: 17px; margin-top: 32px; } h3 { font-size: 15px; margin-bottom: 4px; }
.note { color: var(--dim); }
.answer { background: var(--paper); border-left: 4px solid var(--mark); padding: 12px 16px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.failed { border-color: #b91c1c; }
.pages { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 12px; }
.page { background: var(--paper); border: 1px solid var(--line); padding: 6px; margin: 0; font-size: 13px; }
.page.selected { outline: 3px solid var(--mark); }
.page img { width: 100%; display: block; background: #fff; }
pre { background: var(--paper); border: 1px solid var(--line); padding: 12px; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 13px; max-height: 24em; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid var(--line); padding: 4px 12px 4px 0; text-align: left; }
"""


def write_trace(folder: str | Path, document: Document, question: str, answer: Answer, note: str = "") -> Path:
    """Write pages, report.html, report.md and, last, answer.json; returns the folder. `note` stands under the title."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    pictures = {page.number: page.png() for page in document.pages[:MAX_PAGES_SHOWN]}
    for number, picture in pictures.items():
        (target / f"page-{number:04d}.png").write_bytes(picture)
    write_text(target / "report.html", trace_html(document, question, answer, pictures, note))
    write_text(target / "report.md", trace_markdown(document, question, answer, note))
    record = {"document": document.name, "question": question, **answer.model_dump(mode="json")}
    write_json(target / "answer.json", record, end="")
    return target


def trace_html(document: Document, question: str, answer: Answer, pictures: dict[int, bytes], note: str = "") -> str:
    """The whole report as one page without outside references."""
    selected = set(answer.selected_pages)
    tiles = "".join(
        f'<figure class="page{" selected" if n in selected else ""}" id="p{n}">'
        f'<a href="data:image/png;base64,{(data := base64.b64encode(picture).decode())}" download="page-{n}.png">'
        f'<img alt="page {n}" src="data:image/png;base64,{data}"></a>'
        f"page {n}{' · selected' if n in selected else ''}</figure>"
        for n, picture in pictures.items()
    )
    more = len(document.pages) - len(pictures)
    left_out = f'<p class="note">and {more} more pages</p>' if more > 0 else ""
    cited = "".join(f"<li>{_escape(cite(citation, document))}</li>" for citation in answer.citations)
    turns = "".join(_turn_html(step) for step in answer.trace)
    outcome = answer.text if answer.text.strip() else f"({answer.status.value}: {answer.cause})"
    failed = " failed" if answer.status.value == "failed" else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(question)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{_escape(question)}</h1><p class=note>{_escape(document.name)}{' — ' + _escape(note) if note else ''}</p>"
        f'<div class="answer{failed}">{_escape(outcome)}</div>'
        f"<p class=note>{_escape(tokens_line(answer))}</p>"
        f"{f'<h2>Citations</h2><ul>{cited}</ul>' if cited else ''}"
        f"<h2>Pages</h2><div class=pages>{tiles}</div>{left_out}<h2>Trace</h2>{turns}</main></body></html>"
    )


def trace_markdown(document: Document, question: str, answer: Answer, note: str = "") -> str:
    """The same in Markdown; page pictures are the PNG files beside it."""
    selected = set(answer.selected_pages)
    lines = [f"# {_flat(question)}", "", f"Document: {_flat(document.name)}", ""]
    if note:
        lines += [f"> {_flat(note)}", ""]
    lines += [f"**Answer** ({answer.status.value}):", "", *_quoted(answer.text or answer.cause), ""]
    lines += [f"Tokens: {tokens_line(answer)}", ""]
    if answer.citations:
        lines += ["## Citations", "", *(f"- {_flat(cite(citation, document))}" for citation in answer.citations), ""]
    lines += ["## Pages", "", "| page | selected | characters | picture |", "|---|---|---|---|"]
    for page in document.pages[:MAX_PAGES_SHOWN]:
        mark, picture = "yes" if page.number in selected else "", f"page-{page.number:04d}.png"
        lines.append(f"| {page.number} | {mark} | {len(page.text):,} | ![page {page.number}]({picture}) |")
    lines += ["", "## Trace", ""]
    for step in answer.trace:
        lines += [f"### {step.turn.kind}", "", *_quoted(turn_text(step)), ""]
    return "\n".join(lines)


def _turn_html(step: Step) -> str:
    spent = f"{step.prompt_tokens:,} in, {step.cached_tokens:,} cached, {step.completion_tokens:,} out"
    cost = f'<span class="note"> {spent}</span>' if step.prompt_tokens else ""
    return f"<h3>{_escape(step.turn.kind)}{cost}</h3><pre>{_escape(turn_text(step))}</pre>"


def _escape(text: str) -> str:
    return html.escape(replace_surrogates(text), quote=True)


def _flat(text: str) -> str:
    """One line in which Markdown finds nothing to do."""
    line = " ".join(replace_surrogates(text).split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in line)


def _quoted(text: str) -> list[str]:
    """Text as an indented block, which Markdown shows as it is."""
    return [f"    {line}" for line in replace_surrogates(text).splitlines() or [""]]
