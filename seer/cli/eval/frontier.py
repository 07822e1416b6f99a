"""`seer eval frontier`: what accuracy costs, over print density and retrieval budget."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seer.cli.command import AsJson
from seer.cli.eval.predict import REASONING_TOKENS
from seer.cli.options import (
    BaseUrl,
    BatchSize,
    Device,
    Engine,
    EngineArgs,
    Limit,
    Policy,
    ReasoningTokens,
    Tasks,
    load_policy,
    set_became_policy,
    with_options,
)
from seer.cli.progress import progress
from seer.errors import InputError

if TYPE_CHECKING:
    from seer.evaluation.analysis.frontier import Point
    from seer.evaluation.benchmarks.longbench import LongBenchRecord
    from seer.evaluation.benchmarks.tasks import Benchmark
    from seer.evaluation.runs.plan_longbench import PredictOptions
    from seer.evaluation.runs.sweep import RunSpec

MINIATURE_FONTS_PT = (11.0, 8.0, 5.5)
"""The first is the size that the miniature was trained on."""
MINIATURE_NOTE = (
    "The miniature was trained at 11 pt only: a lower score at other densities shows what it was not trained on, not "
    "what is illegible."
)
DEFAULT_PAGES = (0, 1, 2, 8)


@dataclass(frozen=True, kw_only=True)
class FrontierOptions:
    """The densities and budgets to sweep, the questions, and the model."""

    out: Annotated[Path, typer.Option(help="Folder for the runs and the report.")] = Path("runs/frontier")
    data: Annotated[
        Path | None, typer.Option(help="A question set, as for `seer eval longbench`. Default: the miniature world.")
    ] = None
    model: Annotated[str | None, typer.Option(help="Checkpoint folder. Default, without --data: the miniature.")] = None
    styles: Annotated[
        list[str] | None,
        typer.Option("--style", help="Page style; repeat for several. Default: miniature, or seer with --data."),
    ] = None
    fonts: Annotated[
        list[float] | None,
        typer.Option("--font-pt", help="Font size in points, line height in proportion; repeat for several."),
    ] = None
    page_sizes: Annotated[
        list[str] | None, typer.Option("--page-px", help="Page size in pixels, e.g. 595x842; repeat for several.")
    ] = None
    max_pages: Annotated[
        list[int] | None,
        typer.Option(help="Pages to retrieve, 0 for page images only; repeat for several. Default: 0 1 2 8."),
    ] = None
    max_retrieved_tokens: Annotated[
        list[int] | None,
        typer.Option(help="Cap on retrieved tokens, with the largest number of pages; repeat for several."),
    ] = None
    with_text: Annotated[bool, typer.Option("--with-text", help="Also read whole documents as text.")] = False
    n: Annotated[int, typer.Option("--n", help="Without --data: questions of the miniature world.")] = 200
    seed: Annotated[int, typer.Option(help="Without --data: seed of the held-out world.")] = 0
    tasks: Tasks = None
    limit: Limit = None
    engine: Engine = None
    base_url: BaseUrl = None
    engine_args: EngineArgs = None
    device: Device = "auto"
    policy: Policy = None
    reasoning_tokens: ReasoningTokens = None
    batch_size: BatchSize = 64


@set_became_policy
@with_options(FrontierOptions)
def frontier(options: FrontierOptions, as_json: AsJson = False) -> None:
    """Measure what accuracy costs: sweep print density and retrieval budget, plot score against prompt tokens.

    Runs that are complete in the folder are not repeated.

    Example: seer eval frontier --data longbench/ --tasks hotpotqa --limit 50 --model path/to/checkpoint
    --font-pt 9 --font-pt 7 --max-pages 0 --max-pages 1 --max-pages 4
    """
    from seer.evaluation.analysis.frontier import mark_front, measure
    from seer.evaluation.analysis.scored_run import load_run
    from seer.evaluation.reports.build import write_report
    from seer.evaluation.reports.frontier import frontier_report

    specs = _specs(options)
    records, benchmark, model = _questions(options)
    _run(options, specs, records, benchmark, model)
    runs = [load_run(options.out / one.name) for one in specs]
    points = mark_front([measure(one, run, records) for one, run in zip(specs, runs, strict=True)])
    note = MINIATURE_NOTE if options.data is None else ""
    for path in write_report(frontier_report(points, runs, note), options.out):
        typer.echo(str(path), err=as_json)
    _show(points, as_json)


def _specs(options: FrontierOptions) -> list[RunSpec]:
    from seer.evaluation.analysis.frontier import TEXT, budgets, densities, frontier_specs
    from seer.miniature.model import ROUNDS
    from seer.miniature.world import STYLE

    own = options.data is None
    own_policy = [f"rounds={ROUNDS}"] if own else []
    policy = load_policy([*own_policy, *(options.policy or [])]).model_dump()
    styles = options.styles or (STYLE if own else "seer",)
    fonts = options.fonts or (MINIATURE_FONTS_PT if own and not options.styles else ())
    swept = densities(styles, fonts, [page_size(text) for text in options.page_sizes or ()])
    allowed = budgets(options.max_pages or DEFAULT_PAGES, options.max_retrieved_tokens or ())
    return [*frontier_specs(swept, allowed, policy), *([TEXT] if options.with_text else [])]


def page_size(text: str) -> tuple[int, int]:
    """Parse `595x842` into (595, 842). Raises InputError if the text is not a size."""
    width, by, height = text.partition("x")
    if not by or not width.isdigit() or not height.isdigit():
        raise InputError(f"--page-px {text}: not a page size; write width and height in pixels, e.g. 595x842")
    return int(width), int(height)


def _questions(options: FrontierOptions) -> tuple[list[LongBenchRecord], Benchmark, str | None]:
    from seer.evaluation.benchmarks.longbench import read_data
    from seer.miniature import controls as world

    names = options.tasks.split(",") if options.tasks else None
    if options.data is not None:
        return (*read_data(options.data, names, options.limit), options.model)
    model = str(world.find_model(options.model))
    written = world.write_world(options.out / world.DATA, options.n, options.seed)
    return (*read_data(written, names, options.limit), model)


def _run(
    options: FrontierOptions,
    specs: list[RunSpec],
    records: list[LongBenchRecord],
    benchmark: Benchmark,
    model: str | None,
) -> None:
    from seer.engines.build import choose_engine, parse_engine_arguments
    from seer.evaluation.runs.sweep import Engines, run_spec

    given = parse_engine_arguments(options.engine_args)
    if options.base_url is not None:
        given["base_url"] = options.base_url
    name = choose_engine(options.engine, base_url=options.base_url)
    engines = Engines(options.device, name, **{"max_batch": options.batch_size, **given})
    for spec in specs:
        rules = _rules(options, benchmark)
        run_spec(spec, records, rules, options.out, engines, model, progress=progress)


def _rules(options: FrontierOptions, benchmark: Benchmark) -> PredictOptions:
    """Return the prediction options of a run. The miniature's own limits leave room for reasoning; others need it added."""
    from seer.evaluation.runs.plan_longbench import PredictOptions

    added = 0 if options.data is None else REASONING_TOKENS
    wanted = added if options.reasoning_tokens is None else options.reasoning_tokens
    return PredictOptions(batch_size=options.batch_size, benchmark=benchmark, reasoning_tokens=wanted)


def _show(points: list[Point], as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Score against prompt tokens", caption="* no other run scores as high with as few tokens")
    for name in ("density", "budget"):
        table.add_column(name, no_wrap=True)
    for name in ("score", "prompt tokens", "compression", "front"):
        table.add_column(name, justify="right")
    for one in sorted(points, key=lambda point: point.prompt_tokens):
        figures = (f"{one.score:.2f}", f"{one.prompt_tokens:,.1f}", f"{one.compression:.2f}")
        table.add_row(one.density, one.budget, *figures, "*" if one.is_on_front else "")
    Console(stderr=as_json, highlight=False, markup=False).print(table)
    if as_json:
        typer.echo(json.dumps({"points": [asdict(point) for point in points]}, ensure_ascii=False))
