"""Write a document's pages: a folder of PNG files, a PDF, or a Hugging Face dataset.

    record = write_pages(document, Path("pages"))       # page-0001.png ..., text.txt, manifest.json
    write_pdf(document, Path("pages.pdf"))
    write_dataset(document, Path("dataset"))

Every format keeps the mapping to the source. A folder holds the exact source in text.txt, and its manifest records the
span of each page in it. The manifest is written last, so a folder that has one is complete. A PDF and a dataset get
their final names when they are complete.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from seer.errors import InputError
from seer.protocol.geometry import GLM_41V
from seer.rendering.cache import PageCache
from seer.rendering.drawing.raster import page_png
from seer.rendering.drawing.reportlab import pdf_bytes
from seer.rendering.layout.fonts import load_chain
from seer.rendering.layout.lines import PIECE_CHARS, PageLayout, lay_out
from seer.rendering.layout.measure import Measure
from seer.schema import Document, Page, PageStyle
from seer.storage import atomic_folder, replace_surrogates, write_bytes, write_manifest

Format = Literal["png", "pdf", "hf"]
"""The formats of `seer render`."""
MANIFEST = "manifest.json"
_BATCH_PAGES = 32
"""Pages that a worker process draws per task."""
_SHARD_PAGES = 1000
"""Pages per Parquet file of a dataset."""


def write_pages(
    document: Document,
    folder: Path,
    *,
    processes: int = 1,
    cache: PageCache | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the document as a folder of PNG files with text.txt and manifest.json.

    Args:
        document: the document to write.
        folder: the folder; it is created if needed, and files of the same names are replaced.
        processes: number of processes that draw laid-out pages.
        cache: cache for the pages of documents that keep their own pages, such as PDFs.
        progress: called with the number of pages written since the last call.

    Returns:
        The manifest, as `manifest` builds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Without its manifest the folder counts as incomplete while pages are replaced.
    (folder / MANIFEST).unlink(missing_ok=True)
    report = progress or (lambda pages: None)
    if keeps_own_pages(document):
        for page in document:
            data = cache.png(page) if cache else page.png()
            (folder / page_file(page.number)).write_bytes(data)
            report(1)
    else:
        _write_laid_out(document, folder, processes, report)
    (folder / "text.txt").write_bytes(document.text.encode("utf-8", "surrogatepass"))
    record = manifest(document)
    write_manifest(folder / MANIFEST, record, ensure_ascii=True, indent=1, end="")
    return record


def write_pdf(document: Document, path: Path) -> None:
    """Write a laid-out document as a PDF with every line at its position in the PNG files.

    Raises InputError if the document keeps its own pages.
    """
    if keeps_own_pages(document):
        raise InputError(
            f"'{document.name}' keeps its own pages and cannot be written as pdf; use --format png, or lay its text out "
            "with --reflow"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, pdf_bytes(document))


def write_dataset(document: Document, folder: Path, progress: Callable[[int], None] | None = None) -> None:
    """Write the document as a Hugging Face dataset: `datasets.load_dataset(folder)` returns one row per page.

    Page images are an Image feature. Parquet shards are written while pages are drawn, so memory stays bounded. They
    are written to a hidden folder, which replaces the shards of an earlier run when it is complete.

    `progress` is called with the number of pages written since the last call.
    """
    from datasets import Dataset, Features, Image, Value, disable_progress_bars

    disable_progress_bars()
    features = Features(
        {
            "image": Image(),
            "text": Value("string"),
            "document": Value("string"),
            "page": Value("int32"),
            "label": Value("string"),
            "start": Value("int64"),
            "end": Value("int64"),
            "content_hash": Value("string"),
        }
    )
    num_shards = -(-len(document.pages) // _SHARD_PAGES)
    with atomic_folder(folder / "data", keep=lambda entry: not entry.match("train-*.parquet")) as partial:
        for shard in range(num_shards):
            pages = document.pages[shard * _SHARD_PAGES : (shard + 1) * _SHARD_PAGES]
            rows = Dataset.from_list([_row(document, page) for page in pages], features=features)
            # If the disk is full, Parquet's writer fails again when it is garbage-collected. So it writes to memory.
            rows.to_parquet(shard_bytes := io.BytesIO())
            (partial / f"train-{shard:05d}-of-{num_shards:05d}.parquet").write_bytes(shard_bytes.getbuffer())
            if progress:
                progress(len(pages))


def _row(document: Document, page: Page) -> dict[str, Any]:
    """Return the dataset row of a page."""
    return {
        "image": {"bytes": page.png(), "path": None},
        # Arrow strings are UTF-8, which cannot encode a lone surrogate.
        "text": replace_surrogates(page.text),
        "document": replace_surrogates(document.name),
        "page": page.number,
        "label": page.label and replace_surrogates(page.label),
        "start": page.start,
        "end": page.end,
        "content_hash": page.content_hash,
    }


def manifest(document: Document) -> dict[str, Any]:
    """Return a JSON-serialisable record of the document, without its images and its text."""
    return {
        "name": document.name,
        "characters": len(document.text),
        "style": document.style.model_dump(mode="json"),
        "vision_tokens": sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document),
        "missing_glyphs": [glyph.model_dump(mode="json", exclude={"character"}) for glyph in document.missing_glyphs],
        "warnings": [warning.model_dump(mode="json") for warning in document.warnings],
        "pages": [
            {
                "file": page_file(page.number),
                **page.model_dump(mode="json", exclude={"text"}),
                "vision_tokens": GLM_41V.tokens(page.width_px, page.height_px),
            }
            for page in document
        ],
    }


def page_file(number: int) -> str:
    """Return the file name of a page, such as page-0001.png."""
    return f"page-{number:04d}.png"


def keeps_own_pages(document: Document) -> bool:
    """Return whether the document keeps its own pages, as PDFs and image files do, instead of being laid out."""
    return document.style.name in ("pdf", "image")


# ── Many processes ───────────────────────────────────────────────────────────────────────────────


def _write_laid_out(document: Document, folder: Path, processes: int, report: Callable[[int], None]) -> None:
    """Lay out pages in this process, and draw and write them in `processes` worker processes."""
    if processes <= 1:
        for page in document:
            (folder / page_file(page.number)).write_bytes(page.png())
            report(1)
        return
    # The document's pages hold functions that cannot be sent to another process, but layouts can. Laying the text out
    # again takes a tenth of the time of drawing.
    pieces = (document.text[at : at + PIECE_CHARS] for at in range(0, len(document.text), PIECE_CHARS))
    layouts = lay_out(pieces, _measure(document.style))
    with ProcessPoolExecutor(processes) as pool:
        jobs = [
            pool.submit(_write_batch, document.style, batch, first, str(folder)) for first, batch in _batches(layouts)
        ]
        for job in as_completed(jobs):
            report(job.result())


def _batches(layouts: Iterator[PageLayout]) -> Iterator[tuple[int, Sequence[PageLayout]]]:
    """Group layouts into batches; yield the number of the first page with each batch."""
    first = 1
    while batch := list(itertools.islice(layouts, _BATCH_PAGES)):
        yield first, batch
        first += len(batch)


def _write_batch(style: PageStyle, batch: Sequence[PageLayout], first: int, folder: str) -> int:
    """Draw and write the pages from number `first` on; return their number. Runs in a worker process."""
    for number, layout in enumerate(batch, first):
        (Path(folder) / page_file(number)).write_bytes(page_png(layout, _measure(style)))
    return len(batch)


@lru_cache(maxsize=4)
def _measure(style: PageStyle) -> Measure:
    """Return the measure of a style, once per process."""
    return Measure(style, load_chain(style.fonts))
