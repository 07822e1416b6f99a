"""Prefill probes: for each input of a run, the time to generate one token on a cold cache.

A probe sends the first prompt of a reading (all pages as images, or the whole text) and requests a single token. Each
probe is its own conversation and is forgotten afterwards. An engine that keeps more than conversations drops its caches
before each probe, so local engines cannot reuse earlier computation; the prefix cache of a remote server must be
disabled there. Probes are stored in the folder of the run, one JSON line each, and an interrupted call can be resumed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seer.errors import EngineError, InputError
from seer.evaluation.benchmarks.custom import from_manifest
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import RunFolder, read_predictions, read_run_manifest
from seer.evaluation.runs.plan_longbench import PredictOptions, to_task
from seer.rendering.styles import with_newline
from seer.schema import Excerpt, Turn
from seer.storage import append_lines

if TYPE_CHECKING:
    from seer.engines.base import Engine, Request
    from seer.systems.base import System, Task

PROBES_NAME = "probes.jsonl"


@dataclass(frozen=True)
class PrefillProbe:
    """One generation of one token on a cold cache."""

    id: str
    prompt_tokens: int
    seconds: float
    """From the request to the token."""
    prepare_seconds: float = 0.0
    """Layout of the document and drawing of its pages, before the request."""


def probe_run(
    records: Sequence[LongBenchRecord],
    system: System,
    run: str | Path,
    on_progress: Callable[[int, int], None] | None = None,
    make_task: Callable[[LongBenchRecord], Task] | None = None,
) -> int:
    """Probe each input that the run holds and that has no probe yet. Returns the number of new probes.

    `make_task` makes the task of a record as the run does; by default with the settings of a plain run.
    """
    folder = Path(run)
    options = PredictOptions(benchmark=from_manifest(read_run_manifest(folder), f"the manifest of '{run}'"))
    with RunFolder(folder):
        # Probe only inputs with a prediction and without a probe, so that an interrupted call can be resumed.
        known = read_probes(folder, repair=True)
        tasks = sorted({record.task for record in records})
        files = [folder / f"{task}.jsonl" for task in tasks if (folder / f"{task}.jsonl").is_file()]
        held = {one.id for file in files for one in read_predictions(file)}
        wanted = [record for record in records if record.id in held and record.id not in known]
        for done, record in enumerate(wanted, 1):
            probe = probe_prefill(make_task(record) if make_task else to_task(record, options, None), system)
            append_lines(folder / PROBES_NAME, [json.dumps(asdict(probe), ensure_ascii=False)])
            if on_progress:
                on_progress(done, len(wanted))
    return len(wanted)


def probe_prefill(task: Task, system: System) -> PrefillProbe:
    """Time the first prompt of one task and a single token.

    Raises InputError if the system does not read with a single engine, and EngineError if the generation fails.
    """
    from seer.engines.base import Conversation, Request, Sampling
    from seer.rendering import render_text
    from seer.systems.prompted import PromptedSystem
    from seer.systems.seer import ReadingSystem

    if isinstance(system, PromptedSystem):
        request = system.request(task, max_new_tokens=1)
        return _time(task.id, system.engine, request, prepare_seconds=0.0)
    if not isinstance(system, ReadingSystem):
        raise InputError(f"system '{system.name}' reads with several models or calls; probe one that reads by itself")
    engine, mode = system.reader.engine, system.reader.policy.mode
    key = f"probe:{task.id}"
    started = time.perf_counter()
    document = task.document or render_text(task.context, with_newline(system.style, task.newline), name=task.id)
    if mode == "text":
        whole = Excerpt(page=0, start=0, text=document.text)
        chat = task.chat and system.reader.policy.chat
        prompt = Turn(kind="prompt", text=task.question, excerpts=(whole,), chat=chat)
        pages = {}
    else:
        pages = {page.number: page for page in document.pages}
        prompt = Turn(kind="prompt", text=task.question, pages=tuple(pages))
        for page in document.pages:
            page.image()  # Draw now: only the request belongs to the prefill time.
    request = Request(Conversation((prompt,), pages), key, sampling=Sampling(max_new_tokens=1))
    return _time(task.id, engine, request, prepare_seconds=time.perf_counter() - started)


def _time(identifier: str, engine: Engine, request: Request, *, prepare_seconds: float) -> PrefillProbe:
    """Time a request of one token on a cold cache. Raises EngineError if it fails."""
    from seer.engines.base import CachingEngine

    if isinstance(engine, CachingEngine):
        engine.drop_caches()
    sent = time.perf_counter()
    try:
        (generation,) = engine.generate([request])
    finally:
        engine.forget(request.session)  # The next probe must not reuse this conversation's prefix.
    seconds = time.perf_counter() - sent
    if generation.finish == "error":
        raise EngineError(f"the prefill probe of '{identifier}' failed: {generation.error}") from generation.error
    return PrefillProbe(identifier, generation.prompt_tokens, seconds, prepare_seconds)


def read_probes(folder: Path, *, repair: bool = False) -> dict[str, PrefillProbe]:
    """Read the probes of a run by input id. `repair` removes an incomplete last line.

    Raises InputError if a line is not a probe.
    """
    path = folder / PROBES_NAME
    if not path.is_file():
        return {}
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if repair and whole < len(content):
        with path.open("rb+") as file:
            file.truncate(whole)
    probes: dict[str, PrefillProbe] = {}
    for number, line in enumerate(content[:whole].decode("utf-8").split("\n"), 1):
        if line:
            try:
                probe = PrefillProbe(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise InputError(f"'{path}', line {number}: not a probe ({error}); delete the line") from None
            probes[probe.id] = probe
    return probes
