"""lm-evaluation-harness with Seer as the model: its tasks, prompts and metrics, answered by `seer serve`.

    summary = run_harness("http://127.0.0.1:8080/v1", ["longbench"], "runs/harness", limit=50)

    OUT/
      results.json    the harness's own results, its version, and how many inputs failed
      ledger.jsonl    every finished call, so that none is made twice

The harness hands over one text. Seer reads documents, so the prompt is taken apart again: the record's document goes as
a file of its own, the rest of the prompt is the question. The harness trims predictions and uses metrics of its own,
so that its figures are not those of `seer eval score`: report them as the harness's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError, ModelError
from seer.evaluation.runfiles import write_whole
from seer.teaching.settings import TeacherSpec

DOCUMENT_FIELD = "context"
"""LongBench's name for the document in a record."""
RESULTS_NAME = "results.json"
LEDGER_NAME = "ledger.jsonl"
DEFAULT_ANSWER_TOKENS = 256
"""The harness's own default, where a task sets no limit."""


@dataclass(frozen=True)
class HarnessSummary:
    """What the harness measured, by task, and what stood behind it."""

    results: Mapping[str, Mapping[str, Any]]
    num_requests: int
    failures: Sequence[str]
    """Why inputs failed, one each. They stand in the harness's means as empty predictions."""
    path: Path


def run_harness(
    base_url: str,
    tasks: Sequence[str],
    out_dir: str | Path,
    *,
    model: str = "seer",
    include: str | Path | None = None,
    limit: int | None = None,
    reasoning_tokens: int = 1024,
    concurrency: int = 8,
    timeout_s: float = 600.0,
    document_field: str = DOCUMENT_FIELD,
) -> HarnessSummary:
    """Run tasks of the harness against a server and write its results.

    `include`: a folder of further task files. `reasoning_tokens` are granted on top of each task's own limit.
    Raises ModelError (the harness is not installed), InputError (no such task, a task without documents, another
    process at work there), TeacherError (a server that no call can succeed with).
    """
    try:
        from lm_eval import __version__, simple_evaluate

        from seer.evaluation.harness_model import ServedSeer
    except ImportError as error:
        raise ModelError(f"this needs lm-evaluation-harness ({error}): pip install 'seer-vlm[lm-eval]'") from None
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    manager = _task_manager(tasks, include)
    spec = TeacherSpec(
        base_url=base_url, model=model, concurrency=concurrency, timeout_s=timeout_s, api_key_env="SEER_API_KEY"
    )
    served = ServedSeer(spec, folder / LEDGER_NAME, reasoning_tokens, document_field)
    found = simple_evaluate(
        model=served, tasks=list(tasks), limit=limit, task_manager=manager, log_samples=False, bootstrap_iters=0
    )
    results = found["results"] if found else {}
    told = {
        "harness": __version__,
        "model": model,
        "tasks": list(tasks),
        "limit": limit,
        "reasoning_tokens": reasoning_tokens,
        "requests": served.num_requests,
        "failed": len(served.failures),
        "results": results,
    }
    write_whole(folder / RESULTS_NAME, json.dumps(told, ensure_ascii=False, indent=2, default=str) + "\n")
    return HarnessSummary(results, served.num_requests, served.failures, folder / RESULTS_NAME)


def _task_manager(tasks: Sequence[str], include: str | Path | None) -> Any:
    """The harness's index of tasks. Its own tasks take it half a minute, so they are left out where they are not asked."""
    from lm_eval.tasks import TaskManager

    unknown: list[str] = list(tasks)
    for with_its_own in (False, True) if include else (True,):
        manager = TaskManager(include_path=str(include) if include else None, include_defaults=with_its_own)
        unknown = [name for name in tasks if name not in manager.all_tasks]
        if tasks and not unknown:
            return manager
    raise InputError(f"the harness has no task '{', '.join(unknown)}'; `lm-eval ls tasks` lists them")


# ── From the harness's requests to chats, and back ───────────────────────────────────────────────


def take_apart(prompt: str, record: Mapping[str, Any], field: str = DOCUMENT_FIELD) -> tuple[str, str]:
    """(document, question): the record's document, and what else the prompt says.

    Raises InputError where the record has no such text, or the prompt does not hold it.
    """
    document = record.get(field)
    if not isinstance(document, str) or not document.strip():
        raise InputError(f"the task's records have no text '{field}'; name the field that holds the document")
    # the harness may have trimmed the prompt at its ends
    held = next((text for text in (document, document.strip()) if text in prompt), None)
    if held is None:
        raise InputError(f"the task's prompt does not hold its record's '{field}'; few-shot prompts cannot be read")
    before, _, after = prompt.partition(held)
    return document, f"{before.strip()}\n\n{after.strip()}".strip()


def chat_of(document: str, question: str) -> list[dict[str, Any]]:
    """One message: the document as a file, which no length can make into talk, then the question."""
    data = base64.b64encode(document.encode("utf-8", "replace")).decode()
    file = {"filename": "document.txt", "file_data": f"data:text/plain;base64,{data}"}
    return [{"role": "user", "content": [{"type": "file", "file": file}, {"type": "text", "text": question}]}]


def sampling_of(arguments: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """Temperature and completion tokens as the task asks for them, with room for reasoning."""
    sizes = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    size = next((int(arguments[name]) for name in sizes if arguments.get(name)), DEFAULT_ANSWER_TOKENS)
    temperature = float(arguments.get("temperature") or 0) if arguments.get("do_sample") else 0.0
    return {"temperature": temperature, "max_tokens": size + reasoning_tokens}


def cut_at_stops(text: str, stops: str | Sequence[str] | None) -> str:
    """The text before the first stop sequence. A line break before the answer is none of its own."""
    text = text.lstrip("\n")
    for stop in [stops] if isinstance(stops, str) else stops or ():
        if stop:
            text = text.partition(stop)[0]
    return text
