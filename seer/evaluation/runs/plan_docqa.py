"""Plan the run of a document-QA benchmark, whose records name files, mostly PDFs, that are read page by page.

    inputs, manifest = plan_docqa(read_docqa("samples.json"), "documents/", "seer", reasoning_tokens=1024)
    run_inputs(inputs, system, "runs/mine", manifest, LoopOptions())

Predictions number pages as shown: for a record about pages 42 to 71, page 1 of the prediction is page 42 of the file.
Both benchmarks score short answers; `seer.evaluation.runs.extract` shortens the answers of systems that write long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.errors import InputError
from seer.evaluation.benchmarks.docqa import DocQARecord
from seer.evaluation.runs.loop import BenchmarkInput, count_inputs
from seer.evaluation.runs.score_docqa import PREDICTIONS_NAME
from seer.evaluation.scoring.short_answers import NOT_ANSWERABLE
from seer.schema import Document, PageStyle

if TYPE_CHECKING:
    from seer.rendering.formats.scans import Ocr
    from seer.systems.base import Task

TASK_NAME = PREDICTIONS_NAME.removesuffix(".jsonl")
MAX_ANSWER_TOKENS = 128
DOCUMENTS_KEPT = 4
"""Size of the document cache. Questions on one document are consecutive, so each document is usually read once."""
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
    style: str | PageStyle = "seer",
    dpi: float = 96,
    ocr: Ocr = "auto",
    describe: Mapping[str, Any] | None = None,
) -> tuple[list[BenchmarkInput], dict[str, Any]]:
    """Return the inputs of a run and its manifest. Locates all files now; each is read when its input is predicted.

    `documents` is the folder with the files. `style` applies to text files, `dpi` and `ocr` to PDFs (see `seer.load`).
    `reasoning_tokens` are added to the token limit of the answer; `describe` adds entries to the manifest.
    Raises InputError if there are no records, an id occurs twice or a file is missing.
    """
    if reasoning_tokens < 0:
        raise InputError(f"reasoning_tokens is {reasoning_tokens}; it must be at least 0")
    files = find_documents(records, Path(documents))

    @lru_cache(DOCUMENTS_KEPT)
    def load_pages(path: Path, pages: str | None) -> Document:
        from seer.rendering import load

        return load(path, style, pages=pages, dpi=dpi, ocr=ocr)

    # Both benchmarks score short answers, so the token limit is the same for all records.
    room = MAX_ANSWER_TOKENS + reasoning_tokens
    inputs = [
        BenchmarkInput(
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
    """Read the document and return the question for the system. Raises the errors of `seer.load`."""
    from seer.systems.base import Task

    # Evidence pages are numbered in the file, pages of the task as shown; shift them by the first page.
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
    """Map the name of each document in the records to its file. Names may omit `.pdf`, as in LongDocURL.

    Raises InputError if the folder does not exist or lacks a document.
    """
    if not folder.is_dir():
        raise InputError(f"no folder at '{folder}'; give the one with the benchmark's documents")
    inside = folder.resolve()
    found: dict[str, Path] = {}
    for name in dict.fromkeys(record.document for record in records):
        for path in (inside / name, inside / f"{name}.pdf"):
            # Names come from an untrusted file and must not lead out of the folder.
            if name and path.resolve().is_relative_to(inside) and path.is_file():
                found[name] = path
                break
    missing = [name for name in dict.fromkeys(record.document for record in records) if name not in found]
    if missing:
        listed = ", ".join(repr(name) for name in missing[:5])
        raise InputError(f"'{folder}' lacks {len(missing)} documents that the records name, such as {listed}")
    return found
