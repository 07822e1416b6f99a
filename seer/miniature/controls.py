"""The paper's control experiments in miniature: held-out questions, one benchmark run per control, and their figures.

    data = write_world(out / "data", n=500, seed=0)
    run_controls(data, out, model=SHIPPED, iso_model=None, seed=0)
    figures(load_controls(out), gold_pages(data), n=500, seed=0)

The world becomes a benchmark folder with one task per kind of question, so runs and reports are those of any benchmark.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seer.errors import InputError, ModelError
from seer.evaluation.analysis.scored_run import ScoredRun, load_run
from seer.evaluation.analysis.selections import count_invalid
from seer.evaluation.benchmarks.custom import FILE_NAME
from seer.evaluation.benchmarks.longbench import read_data
from seer.evaluation.runs.plan_longbench import PredictOptions, matched_budgets
from seer.evaluation.runs.sweep import Engines, Progress, RunSpec, no_progress, run_spec
from seer.evaluation.scoring.pages import PageMetric, page_score, read_page_labels
from seer.miniature.model import ROUNDS, SHIPPED
from seer.miniature.world import STYLE, MiniatureDocument, Question, QuestionKind, World
from seer.storage import write_text

MIX: dict[QuestionKind, float] = {"single": 0.40, "paraphrase": 0.20, "hop": 0.15, "many": 0.10, "unanswerable": 0.15}
"""The fraction of each kind of question. About a quarter of the documents is Chinese, as in every world."""
LEAST_QUESTIONS = 10
MAX_NEW_TOKENS: dict[QuestionKind, int] = {"single": 64, "paraphrase": 64, "hop": 96, "many": 224, "unanswerable": 64}
"""For reasoning and answer together; each limit is well above the longest reasoning of the template."""
CATEGORIES: dict[QuestionKind, str] = {
    "single": "one page",
    "paraphrase": "one page",
    "hop": "several pages",
    "many": "several pages",
    "unanswerable": "no page",
}
LOW_OVERLAP = "paraphrase"
BATCH_SIZE = 128
DATA, LABELS = "data", "labels.jsonl"


@dataclass(frozen=True)
class Control:
    """One run: a system, its changes to the reading policy, and the selector of pages."""

    name: str
    system: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    is_iso: bool = False
    """Uses the model that was trained on the same data without select turns."""
    selector: str = "model"


CONTROLS = (
    Control("full", "seer", {"rounds": ROUNDS}),
    Control("without-retrieve", "seer-k0"),
    Control("one-page", "seer", {"max_pages": 1}),
    Control("visual", "visual"),
    Control("iso", "visual", is_iso=True),
    *(Control(f"forced-{name}", "seer", selector=name) for name in ("random", "first", "bm25", "all", "oracle")),
)


# ── The world as a benchmark ─────────────────────────────────────────────────────────────────────


def draw_questions(n: int, seed: int) -> Iterator[tuple[MiniatureDocument, Question]]:
    """Yield `n` questions in the proportions of `MIX`, each about another document of the test world.

    Raises InputError if `n` is below `LEAST_QUESTIONS`.
    """
    if n < LEAST_QUESTIONS:
        raise InputError(f"n={n}: must be at least {LEAST_QUESTIONS}, so that every type of question occurs")
    left = quotas(n)
    world, rng = World(seed, "test"), random.Random(f"controls/{seed}")
    for number in itertools.count():
        document = world.document(number)
        wanted = {question.kind for question in document.questions if left[question.kind]}
        if wanted:
            # Take the kind with the largest deficit, so that kinds in few documents are not left to the end.
            kind = max(sorted(wanted), key=lambda one: left[one] / MIX[one])
            left[kind] -= 1
            yield document, rng.choice([question for question in document.questions if question.kind == kind])
        if not any(left.values()):
            return


def quotas(n: int) -> dict[QuestionKind, int]:
    """Return the number of questions of each kind: rounded down, the rest by largest remainder."""
    counts = {kind: math.floor(n * share) for kind, share in MIX.items()}
    by_remainder = sorted(MIX, key=lambda kind: n * MIX[kind] - counts[kind], reverse=True)
    for kind in by_remainder[: n - sum(counts.values())]:
        counts[kind] += 1
    return counts


def write_world(folder: str | Path, n: int, seed: int) -> Path:
    """Write the benchmark folder: benchmark.toml, `<kind>.jsonl` with the records, and labels.jsonl with gold pages.

    Returns the folder. Raises InputError if it cannot be created or contains another world, because runs over both would
    be scored as one.
    """
    import tomli_w

    target = Path(folder)
    records: dict[QuestionKind, list[dict[str, Any]]] = {kind: [] for kind in MIX}
    for document, question in draw_questions(n, seed):
        records[question.kind] += [record for record in document.records() if record["id"] == question.id]
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"'{target}' cannot be created ({error.strerror}); choose another folder") from None
    tasks = {
        kind: {
            "category": CATEGORIES[kind],
            "metric": "exact",
            "max_new_tokens": MAX_NEW_TOKENS[kind],
            "num_records": len(held),
        }
        for kind, held in records.items()
    }
    labels = [{"id": one["id"], "pages": one["pages"]} for held in records.values() for one in held]
    contents = {
        target / FILE_NAME: tomli_w.dumps({"name": "miniature", "tasks": tasks}),
        target / LABELS: _lines(labels),
    }
    contents |= {target / f"{kind}.jsonl": _lines(held) for kind, held in records.items()}
    # All files are compared before any is written, so that a rejected call changes nothing.
    if any(path.exists() and path.read_text(encoding="utf-8") != content for path, content in contents.items()):
        raise InputError(f"'{target}' contains another world than that of n={n} and seed={seed}; choose another folder")
    for path, content in contents.items():
        write_text(path, content)
    return target


def _lines(records: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def find_model(given: str | Path | None) -> Path:
    """Return the folder of the given checkpoint, or of the shipped one.

    Raises ModelError if the folder is not a checkpoint, or if none is given and none is shipped.
    """
    from seer.models.checkpoint import check_folder

    if given is None and not SHIPPED.is_dir():
        raise ModelError(
            "this installation contains no trained miniature; train one with `bash scripts/train_miniature.sh`, or give a "
            "checkpoint folder with --model"
        )
    return check_folder(given or SHIPPED)


def shipped_iso() -> Path | None:
    """Return the folder of the shipped iso-training control model; None if it is not shipped."""
    folder = SHIPPED.with_name("checkpoint_iso")
    return folder if folder.is_dir() else None


# ── The runs ─────────────────────────────────────────────────────────────────────────────────────


def run_controls(
    data: Path,
    out: Path,
    *,
    model: str | Path,
    iso_model: str | Path | None,
    seed: int,
    controls: Sequence[Control] = CONTROLS,
    device: str = "auto",
    progress: Progress = no_progress,
) -> None:
    """Run every control in its own folder below `out`; finished runs are skipped.

    data: the folder that `write_world` wrote.
    model, iso_model: checkpoint folders. Without `iso_model` its controls are left out.

    Forced selections get, for each question, the number of pages that the first run selected, at least one (section A.9
    of the paper).
    """
    records, benchmark = read_data(data)
    gold = gold_pages(data)
    engines = Engines(device, max_batch=BATCH_SIZE)
    budgets: dict[str, int] = {}
    for control in controls:
        path = iso_model if control.is_iso else model
        if path is None:
            continue
        options = PredictOptions(
            batch_size=BATCH_SIZE, retry_rounds=0, benchmark=benchmark, gold_pages=gold, page_budgets=budgets
        )
        spec = RunSpec(control.name, control.system, control.policy, STYLE, control.selector)
        run_spec(spec, records, options, out, engines, str(path), seed=seed, progress=progress)
        # The first run, "full", sets the page budgets of all forced selections.
        budgets = budgets or matched_budgets(out / control.name)


def load_controls(out: Path, controls: Sequence[Control] = CONTROLS) -> list[ScoredRun]:
    """Load the existing runs, in the order of `controls`."""
    return [load_run(out / one.name) for one in controls if (out / one.name).is_dir()]


def gold_pages(data: Path) -> dict[str, tuple[int, ...]]:
    """Read the gold pages of a world that `write_world` wrote, by question id."""
    return read_page_labels(data / LABELS)


# ── The figures ──────────────────────────────────────────────────────────────────────────────────


def figures(runs: Sequence[ScoredRun], gold: Mapping[str, tuple[int, ...]], *, n: int, seed: int) -> dict[str, Any]:
    """Compute the figures that `seer eval miniature --json` prints; None for those of a control without a run.

    runs: must contain the run "full".
    """
    by_name = {run.name: run for run in runs}
    full = by_name["full"]

    def f1(
        run: ScoredRun | None, task: str | None = None, metric: PageMetric = PageMetric.GOLD_NONEMPTY
    ) -> float | None:
        return None if run is None else page_score(_selections(run, gold, task), metric).f1

    def em(name: str) -> float | None:
        return exact_match(by_name[name]) if name in by_name else None

    return {
        "page_f1_single": f1(full, "single"),
        "page_f1_all": f1(full),
        "bm25_f1_low_overlap": f1(by_name.get("forced-bm25"), LOW_OVERLAP),
        "page_f1_low_overlap": f1(full, LOW_OVERLAP),
        "all_sample_f1": f1(full, metric=PageMetric.ALL_SAMPLES),
        "em": em("full"),
        "em_without_retrieve": em("without-retrieve"),
        "em_iso_control": em("iso"),
        "em_visual": em("visual"),
        "invalid_selections": sum(count_invalid(run.each()) for run in runs),
        "n": n,
        "seed": seed,
    }


def exact_match(run: ScoredRun) -> float:
    """Return the fraction of all questions with a correct answer; failures count as wrong."""
    scores = [score for by_id in run.sample_scores().values() for score in by_id.values()]
    return math.fsum(scores) / len(scores)


def _selections(
    run: ScoredRun, gold: Mapping[str, tuple[int, ...]], task: str | None
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(selected pages, gold pages) of every question, or of the questions of one task."""
    return [
        (one.selected_pages, gold[one.id])
        for name, by_id in run.predictions.items()
        if task in (None, name)
        for one in by_id.values()
    ]
