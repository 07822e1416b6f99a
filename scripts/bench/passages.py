"""Measure what passages retrieve in place of whole pages, for `bench_reading.py`.

Containment is the fraction of records whose retrieved text holds a gold answer, among the records of question tasks whose
document holds one. triviaqa is left out, because its document is the examples of other questions.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.evaluation.scoring.containment import holds_answer, usable_answers

if TYPE_CHECKING:
    from seer.schema import NewlineMode, PageStyle

QUESTION_CATEGORIES = ("single_doc_qa", "multi_doc_qa")
KEYS = (
    *(
        "compression_passages",
        "compression_passages_dense",
        "compression_passages_all",
        "compression_passages_dense_all",
    ),
    *("containment_passages", "containment_pages", "passages_records_over_text"),
)


def bench_passages(data: Path, limit: int | None, mean_pages: float) -> dict[str, float | int | None]:
    """Print tokens and containment of pages and passages, and return the keys. `limit`: records of each task.

    Passages take 1,000 tokens from 3 pages. The containment is that of style `paper`.
    """
    if not data.is_dir():
        return dict.fromkeys(KEYS)
    tables = {style: _table(data, style, limit, mean_pages) for style in ("paper", "dense")}
    print("\nPassages of 1,000 tokens from 3 pages, against whole pages; mode auto, BM25, newline marks")
    print(f"  {'style':9}{'retrieved':28}{'ratio':>7}{'over text':>11}{'containment':>13}{'records':>9}")
    found: dict[tuple[str, str], tuple[float, int, float]] = {}
    for style, rows in tables.items():
        for name in ("pages", "passages for questions", "passages for every task"):
            ratio, over = _ratio(rows, name), sum(row[name][0] > row["full"] for row in rows)
            held = [row[name][1] for row in rows if row[name][1] is not None]
            contained = statistics.mean(held) if held else float("nan")
            found[style, name] = (ratio, over, contained)
            print(f"  {style:9}{name:28}{ratio:7.3f}{over:11d}{contained:13.3f}{len(held):9d}")
    names = ("passages for questions", "passages for every task")
    ratios = [round(found[style, name][0], 3) for name in names for style in ("paper", "dense")]
    contained = [round(found["paper", name][2], 3) for name in ("passages for questions", "pages")]
    return dict(zip(KEYS, [*ratios, *contained, sum(over for _, over, _ in found.values())], strict=True))


def _table(data: Path, style: str, limit: int | None, mean_pages: float) -> list[dict[str, Any]]:
    """Return one row a record: its task, full-text tokens, and (prompt tokens, answer held or None) of each design."""
    from seer.engines.scripted import ScriptedEngine, oracle_script
    from seer.evaluation.benchmarks.tasks import TASKS
    from seer.models.counting import tekken_encoder
    from seer.reading.conversation import converse
    from seer.reading.policy import ReadingPolicy
    from seer.reading.reader import read_batch
    from seer.rendering import render_text
    from seer.selection.base import build_selector

    engine = ScriptedEngine(oracle_script(answer="x"), tekken_encoder(), max_positions=10**7)
    selector = build_selector("bm25")
    rows: list[dict[str, Any]] = []
    for file in sorted(data.glob("*.jsonl")):
        task = TASKS[file.stem]
        for line in file.read_text(encoding="utf-8").splitlines()[:limit]:
            record = json.loads(line)
            budget = int((len(rows) + 1) * mean_pages) - int(len(rows) * mean_pages)
            question = record["input"].strip() or "Summarise the text."
            document = render_text(record["context"], _page_style(style, task.newline))
            scored = task.retrieve == "passages" and task.category in QUESTION_CATEGORIES
            answers = usable_answers(record["answers"]) if scored else []
            asked = holds_answer([record["context"]], answers)
            policies = {
                "pages": ReadingPolicy(mode="auto", selector_pages=budget),
                "passages for every task": ReadingPolicy(mode="auto", retrieve="passages", max_retrieved_tokens=1000),
            }
            row: dict[str, Any] = {"task": file.stem}
            for name, policy in policies.items():
                (answer,) = read_batch([converse(document, question, engine, selector, policy)], engine)
                texts = [excerpt.text for step in answer.trace for excerpt in step.excerpts]
                if not any(step.name == "select" for step in answer.trace):
                    texts = [document.text]  # mode auto preferred the whole text
                row["full"] = answer.usage.full_text
                row[name] = (answer.usage.prompt, holds_answer(texts, answers) if asked else None)
            chosen = "passages for every task" if task.retrieve == "passages" else "pages"
            row["passages for questions"] = row[chosen]
            rows.append(row)
    return rows


def _page_style(style: str, newline: NewlineMode | None) -> PageStyle | str:
    """Return a style with the newline mode of a task; `dense` leaves the mode open only if it is given explicitly."""
    from seer.rendering.styles import resolve_style, with_newline

    if style == "paper":
        return with_newline(style, newline)
    return resolve_style(style, newline="mark") if newline == "mark" else style


def _ratio(rows: list[dict[str, Any]], name: str) -> float:
    """Return the mean over tasks of full-text tokens / prompt tokens, each a ratio of means."""
    tasks = {row["task"] for row in rows}
    of = {task: [row for row in rows if row["task"] == task] for task in tasks}
    return statistics.mean(sum(r["full"] for r in of[t]) / sum(r[name][0] for r in of[t]) for t in tasks)
