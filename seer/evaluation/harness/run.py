"""Run lm-evaluation-harness with Seer as the model: its tasks, prompts and metrics, answered by `seer serve`.

    summary = run_harness("http://127.0.0.1:8080/v1", ["longbench"], "runs/harness", limit=50)

    OUT/
      results.json    results and version of the harness, and the number of failed inputs
      ledger.jsonl    all finished calls, so that none is repeated

The harness sends a single text. Because Seer reads documents, the prompt is split: the record's document becomes a file,
and the rest of the prompt the question. The harness strips predictions and uses its own metrics, so its figures differ
from those of `seer eval score`; report them as the harness's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seer.errors import InputError, ModelError
from seer.evaluation.harness.chats import DOCUMENT_FIELD
from seer.storage import write_json
from seer.teaching.settings import TeacherSpec

RESULTS_NAME = "results.json"
LEDGER_NAME = "ledger.jsonl"


@dataclass(frozen=True)
class HarnessSummary:
    """Results of the harness by task, and the requests behind them."""

    results: Mapping[str, Mapping[str, Any]]
    num_requests: int
    failures: Sequence[str]
    """Cause of each failed input. The harness scores failed inputs as empty predictions."""
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

    `include` is a folder with additional task files. `reasoning_tokens` are added to each task's own limit.
    `document_field` is the field of the records with the document.
    Raises ModelError if the harness is not installed, InputError if a task does not exist or has no documents or another
    process writes to the folder, and EngineError if no call to the server can succeed.
    """
    try:
        from lm_eval import __version__, simple_evaluate

        from seer.evaluation.harness.model import ServedSeer
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
    output = {
        "harness": __version__,
        "model": model,
        "tasks": list(tasks),
        "limit": limit,
        "reasoning_tokens": reasoning_tokens,
        "requests": served.num_requests,
        "failed": len(served.failures),
        "results": results,
    }
    write_json(folder / RESULTS_NAME, output, default=str)
    return HarnessSummary(results, served.num_requests, served.failures, folder / RESULTS_NAME)


def _task_manager(tasks: Sequence[str], include: str | Path | None) -> Any:
    """Return the harness's index of tasks.

    Indexing its built-in tasks takes half a minute, so they are loaded only if `include` does not have all tasks.
    """
    from lm_eval.tasks import TaskManager

    unknown: list[str] = list(tasks)
    for with_builtin in (False, True) if include else (True,):
        manager = TaskManager(include_path=str(include) if include else None, include_defaults=with_builtin)
        unknown = [name for name in tasks if name not in manager.all_tasks]
        if tasks and not unknown:
            return manager
    raise InputError(f"the harness has no task '{', '.join(unknown)}'; `lm-eval ls tasks` lists them")
