"""Predict a document-QA benchmark: its records name files, mostly PDFs, whose own pages are read.

    inputs, manifest = plan_docqa(read_docqa("samples.json"), "documents/", "seer", reasoning_tokens=1024)
    run_inputs(inputs, system, "runs/mine", manifest, LoopOptions())

Pages of a prediction are numbered as they were shown: where a record is about pages 42 to 71, its page 1 is page 42.
Both benchmarks score short answers. A system that answers at length needs `seer.evaluation.runs.extract` in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import PREDICTIONS_NAME, DocQARecord
from seer.evaluation.runs.loop import Input, count_inputs
from seer.evaluation.scoring.docqa import NOT_ANSWERABLE
from seer.schema import Document

if TYPE_CHECKING:
    from seer.rendering.formats.scans import Ocr
    from seer.systems.base import Task

TASK_NAME = PREDICTIONS_NAME.removesuffix(".jsonl")
MAX_ANSWER_TOKENS = 128
DOCUMENTS_KEPT = 4
"""Questions over one document follow each other, so that it is read once."""
INSTRUCTION = (
    "Answer from the document, with the answer only, as short as it can be: a number, a name, a phrase, or a list in "
    f'square brackets. If the document does not tell, reply "{NOT_ANSWERABLE}".'
)

Load = Callable[[Path, str | None], Document]


def plan_docqa(
    records: Sequence[DocQARecord],
    documents: str | Path,
    system_name: str,
    *,
    reasoning_tokens: int = 0,
    style: str = "seer",
    dpi: float = 96,
    ocr: Ocr = "auto",
    describe: Mapping[str, Any] | None = None,
) -> tuple[list[Input], dict[str, Any]]:
    """The inputs of a run and its manifest. Files are looked for now and read when their turn comes.

    `documents`: the folder with the files. `style` is for text files, `dpi` and `ocr` for PDFs (see `seer.load`).
    Raises InputError: no records, an id twice, a file that is not there.
    """
    if reasoning_tokens < 0:
        raise InputError(f"reasoning_tokens is {reasoning_tokens}; it must be at least 0")
    files = find_documents(records, Path(documents))

    @lru_cache(DOCUMENTS_KEPT)
    def load_pages(path: Path, pages: str | None) -> Document:
        from seer.rendering import load

        return load(path, style, pages=pages, dpi=dpi, ocr=ocr)

    room = MAX_ANSWER_TOKENS + reasoning_tokens
    inputs = [
        Input(
            record.id,
            TASK_NAME,
            partial(to_task, record, files[record.document], load_pages, room),
            (record.answer,),
            length=record.pages[1] - record.pages[0] + 1 if record.pages else None,
        )
        for record in records
    ]
    manifest = {
        "benchmark": TASK_NAME,
        "system": system_name,
        "prompts": "seer",
        "reasoning_tokens": reasoning_tokens,
        "dpi": dpi,
        "ocr": ocr,
        **(describe or {}),
        **count_inputs(inputs),
    }
    return inputs, manifest


def to_task(record: DocQARecord, file: Path, load_pages: Load, max_new_tokens: int) -> Task:
    """Reads the document. Raises what `seer.load` raises."""
    from seer.systems.base import Task

    first, last = record.pages or (1, None)
    document = load_pages(file, None if last is None else f"{first}-{last}")
    shown = range(first, first + len(document.pages))
    return Task(
        id=record.id,
        context="",
        question=f"{INSTRUCTION}\n\n{record.question}",
        max_new_tokens=max_new_tokens,
        gold_pages=tuple(page - first + 1 for page in record.evidence_pages if page in shown),
        query=record.question,
        document=document,
    )


def find_documents(records: Sequence[DocQARecord], folder: Path) -> dict[str, Path]:
    """The file of each document that the records name, by that name; `.pdf` may be left out of it, as LongDocURL does.

    Raises InputError naming those that are not there.
    """
    if not folder.is_dir():
        raise InputError(f"no folder at '{folder}'; give the one with the benchmark's documents")
    inside = folder.resolve()
    found: dict[str, Path] = {}
    for name in dict.fromkeys(record.document for record in records):
        for path in (inside / name, inside / f"{name}.pdf"):
            # a name comes from a file of others; it may not lead out of the folder
            if name and path.resolve().is_relative_to(inside) and path.is_file():
                found[name] = path
                break
    missing = [name for name in dict.fromkeys(record.document for record in records) if name not in found]
    if missing:
        listed = ", ".join(repr(name) for name in missing[:5])
        raise InputError(f"'{folder}' lacks {len(missing)} documents that the records name, such as {listed}")
    return found
