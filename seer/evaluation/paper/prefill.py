"""Prefill time by document length, as text and as pages, and the memory of the key-value cache (table 14).

Each measurement sends a document of its own, so that no prefix cache helps, and requests one token. The same pages are
sent once as images and once as their text. A prompt that the model's window does not hold is recorded as such. A local
engine measures the server's time; over an address the time includes the transfer of the images.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seer.errors import EngineError, InputError, PromptTooLong
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import Benchmark, build_context
from seer.schema import Excerpt, Page, PageStyle, Turn
from seer.storage import append_lines, folder_lock

if TYPE_CHECKING:
    from seer.engines.base import Engine, Request

POINTS_NAME = "prefill.jsonl"
QUESTION = "What is this document about?"
DOES_NOT_FIT = "does not fit"
Form = Literal["visual", "text"]
FORMS: tuple[Form, ...] = ("visual", "text")


@dataclass(frozen=True)
class PrefillPoint:
    """One prompt of a document of `num_pages` pages, with one generated token."""

    form: Form
    num_pages: int
    repetition: int
    prompt_tokens: int = 0
    seconds: float | None = None
    """From the request to the token; None if the prompt does not fit."""
    prepare_seconds: float = 0.0
    """Layout and drawing of the pages."""
    error: str = ""


def sweep_prefill(
    records: Sequence[LongBenchRecord],
    benchmark: Benchmark,
    load_engine: Callable[[], Engine],
    style: str | PageStyle,
    folder: Path,
    *,
    page_counts: Sequence[int],
    repetitions: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Measure every length, repetition and form that the folder lacks; return how many were measured.

    Raises EngineError if a request fails for another reason than its length, InputError if another process writes there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder):
        drop_incomplete_line(folder / POINTS_NAME)
        known = {(one.form, one.num_pages, one.repetition) for one in read_points(folder)}
        wanted = [
            (form, number, repetition)
            for number in sorted(page_counts)
            for repetition in range(repetitions)
            for form in FORMS
            if (form, number, repetition) not in known
        ]
        if not wanted:
            return 0
        engine = load_engine()
        for done, (form, number, repetition) in enumerate(wanted, 1):
            started = time.perf_counter()
            pages = first_pages(records, benchmark, style, number, repetition)
            if form == "visual":
                for page in pages:
                    page.image()  # Draw now: only the request belongs to the prefill time.
            prepared = time.perf_counter() - started
            point = _measure(engine, form, pages, repetition, prepared)
            append_lines(folder / POINTS_NAME, [json.dumps(asdict(point))])
            if on_progress:
                on_progress(done, len(wanted))
    return len(wanted)


def first_pages(
    records: Sequence[LongBenchRecord], benchmark: Benchmark, style: str | PageStyle, number: int, repetition: int
) -> list[Page]:
    """Return `number` pages of the benchmark's documents, joined. Another repetition begins with another document.

    Raises InputError if there are no records.
    """
    from seer.rendering import render_text

    if not records:
        raise InputError("there are no records to make documents of; check the data folder, --tasks and --limit")
    pages: list[Page] = []
    texts: list[str] = []
    # A stride spreads the repetitions over the benchmark, whose neighbouring records are of one task.
    place = repetition * max(1, len(records) // 7)
    while len(pages) < number:
        # Double the text rather than laying it out anew for every record.
        for _ in range(max(1, len(texts))):
            record = records[place % len(records)]
            # The heading keeps repeated documents of a small benchmark distinct.
            heading = f"Document {repetition}.{len(texts)}\n"
            texts.append(
                heading + build_context(benchmark.find(record.task), record.input, record.context).rstrip("\n") + "\n"
            )
            place += 1
        pages = list(render_text("".join(texts), style, name=f"prefill-{repetition}").pages)
    return pages[:number]


def _measure(engine: Engine, form: Form, pages: Sequence[Page], repetition: int, prepared: float) -> PrefillPoint:
    from seer.engines.base import CachingEngine

    if isinstance(engine, CachingEngine):
        engine.drop_caches()
    request = _request(form, pages, repetition)
    sent = time.perf_counter()
    try:
        (generation,) = engine.generate([request])
    finally:
        engine.forget(request.session)
    seconds = time.perf_counter() - sent
    if isinstance(generation.error, PromptTooLong):
        return PrefillPoint(form, len(pages), repetition, prepare_seconds=prepared, error=DOES_NOT_FIT)
    if generation.error is not None:
        raise EngineError(f"the prefill of {len(pages)} pages failed: {generation.error}") from generation.error
    return PrefillPoint(form, len(pages), repetition, generation.prompt_tokens, seconds, prepared)


def _request(form: Form, pages: Sequence[Page], repetition: int) -> Request:
    from seer.engines.base import Conversation, Request, Sampling

    session = f"prefill:{form}:{len(pages)}:{repetition}"
    sampling = Sampling(max_new_tokens=1)
    if form == "visual":
        shown = {page.number: page for page in pages}
        turn = Turn(kind="prompt", text=QUESTION, pages=tuple(shown))
        return Request(Conversation((turn,), shown), session, sampling=sampling)
    whole = Excerpt(page=0, start=0, text="".join(page.text for page in pages))
    return Request(Conversation((Turn(kind="prompt", text=QUESTION, excerpts=(whole,)),)), session, sampling=sampling)


def drop_incomplete_line(path: Path) -> None:
    """Remove the last line of a file if its writing was interrupted."""
    if path.is_file():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


def read_points(folder: Path) -> list[PrefillPoint]:
    """Read the measurements of a folder; an incomplete last line is ignored. Raises InputError for any other bad line."""
    path = folder / POINTS_NAME
    if not path.is_file():
        return []
    *whole, _ = path.read_text(encoding="utf-8").split("\n")
    points = []
    for number, line in enumerate(whole, 1):
        try:
            points.append(PrefillPoint(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InputError(f"'{path}', line {number}: not a measurement ({error}); delete the line") from None
    return points


@dataclass(frozen=True)
class PrefillRow:
    """Medians over the documents of one length. A form that does not fit has no seconds."""

    num_pages: int
    text_tokens: float | None
    text_seconds: float | None
    visual_tokens: float | None
    visual_seconds: float | None
    prepare_seconds: float | None

    @property
    def kv_saving(self) -> float | None:
        """Fraction of key-value memory that pages save over text: memory grows linearly with tokens."""
        if not self.text_tokens or not self.visual_tokens:
            return None
        return 1 - self.visual_tokens / self.text_tokens


def prefill_rows(points: Sequence[PrefillPoint]) -> list[PrefillRow]:
    """Return the medians by length, shortest first."""

    def median(number: int, form: Form, name: str) -> float | None:
        held = [
            getattr(one, name)
            for one in points
            if (one.num_pages, one.form) == (number, form) and one.seconds is not None
        ]
        return float(statistics.median(held)) if held else None

    return [
        PrefillRow(
            number,
            median(number, "text", "prompt_tokens"),
            median(number, "text", "seconds"),
            median(number, "visual", "prompt_tokens"),
            median(number, "visual", "seconds"),
            median(number, "visual", "prepare_seconds"),
        )
        for number in sorted({one.num_pages for one in points})
    ]


def kv_bytes_per_token(config: dict[str, Any], bytes_per_value: int = 2) -> int:
    """Return the bytes that one token takes in the key-value cache, from a checkpoint's config.json.

    Keys and values of every layer: 2 · layers · key-value heads · head size · bytes a value.
    """
    text = config.get("text_config", config)
    heads = int(text["num_attention_heads"])
    size = int(text.get("head_dim") or math.ceil(int(text["hidden_size"]) / heads))
    return 2 * int(text["num_hidden_layers"]) * int(text.get("num_key_value_heads", heads)) * size * bytes_per_value
