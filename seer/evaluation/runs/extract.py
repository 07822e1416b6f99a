"""Short answers extracted from long ones: the step that document-QA benchmarks take before they score.

    report = extract_answers(records, "runs/mine", TeacherSpec(base_url=..., model=...))

A model extracts the short answer of each prediction. The answers are written to RUN/short.jsonl, which
`seer eval score --benchmark docqa` reads, and every call to RUN/ledger.jsonl, so that no call is made twice. Failed inputs
stay failed; a prediction without a short answer becomes a failed input, which scores 0.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.engines.base import Chat
from seer.errors import EngineError, InputError
from seer.evaluation.benchmarks.docqa import DocQARecord, extraction_prompt, read_extraction
from seer.evaluation.runs.score_docqa import read_docqa_predictions
from seer.evaluation.scoring.short_answers import NOT_ANSWERABLE
from seer.protocol.literals import CHAT_LITERALS
from seer.storage import write_text
from seer.teaching.ledger import Budget, Ledger
from seer.teaching.settings import TeacherSpec
from seer.teaching.teachers import Teacher, ends_run, open_teacher
from seer.teaching.verdicts import strip_thinking

SHORT_NAME = "short.jsonl"
LEDGER_NAME = "ledger.jsonl"


@dataclass(frozen=True)
class ExtractionReport:
    """Counts of an extraction. `num_unread`: replies of the model without a short answer, and failed calls."""

    num_answers: int
    num_failed_before: int
    num_unread: int
    path: Path


def extract_answers(records: Sequence[DocQARecord], run: str | Path, spec: TeacherSpec) -> ExtractionReport:
    """Write the short answer of every prediction of a run.

    Raises InputError (no run there, an input without a prediction), ModelError (a package is
    missing, or the model cannot be loaded), EngineError (a teacher with a wrong key or address).
    """
    folder = Path(run)
    if not folder.is_dir():
        raise InputError(f"no folder at '{run}'; give a run of `seer eval docqa`")
    predictions = read_docqa_predictions(folder)
    missing = [record.id for record in records if record.id not in predictions]
    if missing:
        raise InputError(
            f"'{run}' lacks {len(missing)} of {len(records)} inputs, such as '{missing[0]}'; finish the run"
        )
    with Ledger(folder / LEDGER_NAME) as ledger:
        short = asyncio.run(_extract_all(records, predictions, spec, ledger))
    lines = (json.dumps({"id": identifier, "pred": answer}, ensure_ascii=False) for identifier, answer in short.items())
    write_text(folder / SHORT_NAME, "".join(f"{line}\n" for line in lines))
    failed = sum(predictions[record.id] is None for record in records)
    unread = sum(answer is None for answer in short.values()) - failed
    return ExtractionReport(len(records), failed, unread, folder / SHORT_NAME)


async def _extract_all(
    records: Sequence[DocQARecord], predictions: Mapping[str, str | None], spec: TeacherSpec, ledger: Ledger
) -> dict[str, str | None]:
    async with open_teacher(spec, ledger, Budget(), role="extract") as teacher:
        calls = (_extract(record, predictions[record.id], teacher) for record in records)
        found: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException):
            raise answer
    return {record.id: answer for record, answer in zip(records, found, strict=True)}


async def _extract(record: DocQARecord, prediction: str | None, teacher: Teacher) -> str | None:
    if prediction is None or prediction == NOT_ANSWERABLE:
        return prediction
    prompt = extraction_prompt(record.question, prediction)
    try:
        reply = await teacher.ask(Chat.of(prompt))
    except EngineError as error:
        if ends_run(error):
            raise
        return None
    visible = None if reply.error else strip_thinking(reply.text)
    return None if visible is None else read_extraction(CHAT_LITERALS.restore(visible))
