"""Make one planned run, or finish it if its folder has a beginning.

A run that is complete on disk loads no model. Every folder is locked while it is written, so two processes can work on
different runs of one reproduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seer.errors import SeerError
from seer.evaluation.analysis.server_metrics import add_to_run, read_server_metrics
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import Benchmark, load_templates
from seer.evaluation.files import NUM_INPUTS, check_manifest, read_predictions, read_run_manifest
from seer.evaluation.paper.models import PageModel, PaperModels, ServedModel, TextModel
from seer.evaluation.paper.plan import LATENCY_RECORDS, PlannedRun, missing_part
from seer.evaluation.paper.prefill import sweep_prefill
from seer.evaluation.runs.labels import COUNTS_NAME, LABELS_NAME, label_pages
from seer.evaluation.runs.loop import BenchmarkInput, run_inputs
from seer.evaluation.runs.plan_longbench import PredictOptions, matched_budgets, plan_run
from seer.evaluation.runs.probing import probe_run, read_probes
from seer.evaluation.runs.sweep import Progress, no_progress
from seer.evaluation.scoring.pages import read_page_labels
from seer.storage import read_manifest

if TYPE_CHECKING:
    from seer.engines.base import Engine
    from seer.systems.base import System


@dataclass(frozen=True)
class Outcome:
    """What became of a planned run in this session."""

    name: str
    status: Literal["done", "complete before", "not run"]
    reason: str = ""
    """Why it was not run, or how many of its inputs failed."""


@dataclass
class Engines:
    """The engine of the last model that was used. Another model replaces it, so that only one is in memory."""

    device: str = "auto"
    _key: str = ""
    _engine: Any = None

    def load(self, key: str, served: ServedModel, **options: Any) -> Engine:
        """Return the engine of a model; `options` are further arguments of the engine."""
        from seer.engines.build import build_engine

        if key != self._key:
            self.close()
            given = {**served.engine_args, **options}
            self._engine = build_engine(
                served.engine, model=served.model, base_url=served.base_url, device=self.device, **given
            )
            self._key = key
        engine: Engine = self._engine
        return engine

    def close(self) -> None:
        """Release the engine."""
        if hasattr(self._engine, "close"):
            self._engine.close()
        self._key, self._engine = "", None


@dataclass
class Reproduction:
    """The inputs of all runs, and where they are written."""

    models: PaperModels
    records: Sequence[LongBenchRecord]
    benchmark: Benchmark
    out: Path
    engines: Engines = field(default_factory=Engines)
    retry_failed: bool = False
    progress: Progress = no_progress

    @property
    def style(self) -> Any:
        """The page style in the form of a manifest: a name, or all fields."""
        style = self.models.style
        return style if isinstance(style, str) else style.model_dump(mode="json")

    @property
    def labels_path(self) -> Path:
        """The file of page labels: the one that models.toml names, or that of the run `labels`."""
        return Path(self.models.labels) if self.models.labels else self.out / "labels" / LABELS_NAME


def execute(run: PlannedRun, work: Reproduction) -> Outcome:
    """Make a run. An error of the package, such as a server that does not answer, becomes the reason of the outcome."""
    if run.job == "foreign":
        # Its folder may be one that another run of this reproduction has just written, so look again.
        missing = missing_part(run, work.models)
        return Outcome(run.name, "not run", missing) if missing else Outcome(run.name, "complete before")
    if run.missing:
        return Outcome(run.name, "not run", run.missing)
    try:
        waiting = [name for name in run.needs if not is_complete(name, work)]
        if waiting:
            return Outcome(run.name, "not run", f"it needs the complete run '{waiting[0]}'; put its folder there")
        if run.job == "labels":
            return _label(run, work)
        if run.job == "prefill":
            return _sweep(run, work)
        return _predict(run, work)
    except SeerError as error:
        return Outcome(run.name, "not run", str(error))


def is_complete(name: str, work: Reproduction) -> bool:
    """Return whether a run that others need is complete on disk for these records."""
    if name == "labels":
        return _are_labelled(work)
    return not missing_inputs(work.out / name, Counter(record.task for record in work.records))


def missing_inputs(folder: Path, expected: Mapping[str, int]) -> int:
    """Return how many inputs of these numbers by task have no prediction in the folder of a run."""
    missing = 0
    for task, number in expected.items():
        file = folder / f"{task}.jsonl"
        # Another process may be writing the last line.
        found = {one.id for one in read_predictions(file, skip_incomplete=True)} if file.is_file() else set()
        missing += max(0, number - len(found))
    return missing


# ── Predictions ──────────────────────────────────────────────────────────────────────────────────


def _predict(run: PlannedRun, work: Reproduction) -> Outcome:
    served = work.models.served(run.model)
    assert served is not None
    timed = run.job == "latency"
    records = first_of_each_task(work.records, LATENCY_RECORDS) if timed else list(work.records)
    options = _options(run, served, work)
    inputs, manifest = _plan(run, served, records, options, work)
    folder = work.out / run.name
    check_manifest(folder, manifest)  # before a model is loaded, which takes minutes
    before = missing_inputs(folder, manifest[NUM_INPUTS]) == 0 and not work.retry_failed
    probes = len(read_probes(folder)) if folder.is_dir() else 0
    if before and (not timed or probes >= len(records)):
        return Outcome(run.name, "complete before", _failures(folder))
    system = _build(run, served, work)
    address = served.base_url if timed else ""
    at_server = read_server_metrics(address) if address else None
    with work.progress(run.name) as on_progress:
        run_inputs(inputs, system, folder, manifest, options, on_progress)
        # The probes that follow are not part of the timed requests.
        if address and at_server is not None and (after := read_server_metrics(address)) is not None:
            add_to_run(folder, after.since(at_server))
        if timed:
            tasks = {(one.task, one.id): one.to_task for one in inputs}
            probe_run(
                records,
                system,
                folder,
                lambda done, total: on_progress(done, total, 0),
                lambda record: tasks[record.task, record.id](),
            )
    return Outcome(run.name, "done", _failures(folder))


def first_of_each_task(records: Sequence[LongBenchRecord], number: int) -> list[LongBenchRecord]:
    """Return the first records of each task, at most `number` of each."""
    seen: Counter[str] = Counter()
    chosen = []
    for record in records:
        seen[record.task] += 1
        if seen[record.task] <= number:
            chosen.append(record)
    return chosen


def _options(run: PlannedRun, served: ServedModel, work: Reproduction) -> PredictOptions:
    timed = run.job == "latency"
    loop = {"batch_size": 1 if timed else served.batch_size, "concurrency": 1 if timed else served.concurrency}
    shared: dict[str, Any] = {**loop, "benchmark": work.benchmark, "retry_failed": work.retry_failed}
    if isinstance(served, TextModel):
        return PredictOptions(
            **shared,
            reasoning_tokens=served.thinking_tokens,
            max_context_tokens=served.max_context_tokens,
            templates=load_templates(work.models.prompts) if work.models.prompts else None,
            in_place=True,
        )
    assert isinstance(served, PageModel)
    return PredictOptions(
        **shared,
        reasoning_tokens=served.reasoning_tokens,
        gold_pages=read_page_labels(work.labels_path) if run.selector == "oracle" else {},
        # Every forced selector gets as many pages as Seer selected for the input, and at least one (paper, A.9).
        page_budgets=matched_budgets(work.out / "seer") if run.selector != "model" else {},
    )


def _plan(
    run: PlannedRun,
    served: ServedModel,
    records: Sequence[LongBenchRecord],
    options: PredictOptions,
    work: Reproduction,
) -> tuple[list[BenchmarkInput], dict[str, Any]]:
    """Return the inputs and the manifest of a run."""
    from seer.engines.build import choose_engine
    from seer.models.checkpoint import weights_digest
    from seer.models.counting import load_counter
    from seer.systems.build import run_name

    engine = choose_engine(served.engine, base_url=served.base_url)
    describe: dict[str, Any] = {
        "engine": engine,
        "model": served.model,
        "weights": weights_digest(served.model),
        "selector": run.selector,
        "style": work.style,
        "seed": work.models.seed,
        "recalls": _recalls(run, engine),
        "policy": {},
    }
    if isinstance(served, TextModel):
        describe |= {"extra_body": served.extra_body, "tokenizer": served.tokenizer, "style": None}
        count = load_counter(served.tokenizer).count if served.max_context_tokens is not None else None
        return plan_run(records, run.system, options, describe, count)
    describe["policy"] = _policy(run, served).model_dump(mode="json")
    return plan_run(records, run_name(run.system, run.selector), options, describe)


def _policy(run: PlannedRun, served: ServedModel) -> Any:
    from seer.config import build_config
    from seer.reading.policy import ReadingPolicy

    assert isinstance(served, PageModel)
    return build_config(ReadingPolicy, {**served.policy, **run.policy}, where=f"the policy of '{run.name}'")


def _recalls(run: PlannedRun, engine: str) -> bool:
    """Whether the run may reuse replies: controls share most requests with Seer's run, but reused ones take no time."""
    return engine == "hf" and run.job == "predict"


def _build(run: PlannedRun, served: ServedModel, work: Reproduction) -> System:
    from seer.engines.build import choose_engine
    from seer.engines.recalling import RecallingEngine
    from seer.systems.build import build_system
    from seer.systems.prompted import PromptedSystem

    if isinstance(served, TextModel):
        body = {"extra_body": served.extra_body} if served.extra_body else {}
        return PromptedSystem(work.engines.load(run.model, served, **body))
    engine = work.engines.load(run.model, served)
    if _recalls(run, choose_engine(served.engine, base_url=served.base_url)):
        engine = RecallingEngine(engine)
    return build_system(
        run.system,
        engine=engine,
        selector=run.selector,
        style=work.models.style,
        policy=_policy(run, served),
        seed=work.models.seed,
    )


def _failures(folder: Path) -> str:
    failed = sum(
        one.status == "failed"
        for task in read_run_manifest(folder).get(NUM_INPUTS, {})
        for one in read_predictions(folder / f"{task}.jsonl")
    )
    return f"{failed:,} inputs failed" if failed else ""


# ── Other jobs ───────────────────────────────────────────────────────────────────────────────────


def _label(run: PlannedRun, work: Reproduction) -> Outcome:
    judge = work.models.judge
    assert judge is not None
    folder = work.out / run.name
    if _are_labelled(work):
        return Outcome(run.name, "complete before")
    with work.progress(run.name) as on_progress:
        report = label_pages(
            work.records,
            judge.teacher,
            folder,
            benchmark=work.benchmark,
            style=work.models.style,
            reasks=judge.reasks,
            on_progress=on_progress,
        )
    if report.failed:
        first = report.failed[0].detail
        return Outcome(
            run.name, "not run", f"{len(report.failed):,} inputs failed, the first with: {first}; run it again"
        )
    return Outcome(run.name, "done")


def _are_labelled(work: Reproduction) -> bool:
    """Return whether page labels exist: a file that models.toml names, or those of a judge without failed calls."""
    if work.models.labels:
        return work.labels_path.is_file()
    counts = work.labels_path.with_name(COUNTS_NAME)
    if not counts.is_file():
        return False
    made = read_manifest(counts, remedy="delete it to label again").get("counts", {})
    return made.get("inputs", 0) >= len(work.records) and not made.get("unlabelled", {}).get("failed")


def _sweep(run: PlannedRun, work: Reproduction) -> Outcome:
    served = work.models.served(run.model)
    assert served is not None
    with work.progress(run.name) as on_progress:
        number = sweep_prefill(
            work.records,
            work.benchmark,
            lambda: work.engines.load(run.model, served),
            work.models.style,
            work.out / run.name,
            page_counts=work.models.prefill_pages,
            repetitions=work.models.prefill_repetitions,
            on_progress=lambda done, total: on_progress(done, total, 0),
        )
    return Outcome(run.name, "done" if number else "complete before")
