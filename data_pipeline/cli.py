"""The command line `seer-data`: build, inspect, verify and export trajectory sets.

A form feed in a docstring ends the help text of a command; what follows is for readers of the code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from seer.cli.command import AsJson, command_line, run
from seer.errors import DocumentNotFound, InputError

if TYPE_CHECKING:
    from data_pipeline.settings import BuildConfig

app = command_line("seer-data", "Build trajectories (training conversations) from question sets.")

Folder = Annotated[Path, typer.Argument(help="A set, or the output folder of a build.", show_default=False)]


@app.command()
def build(
    config: Annotated[str, typer.Argument(help="A TOML file; see configs/data-*.toml.", show_default=False)] = "",
    input: Annotated[str, typer.Option("--input", help="One JSONL or Parquet file; replaces the sources.")] = "",
    kind: Annotated[str, typer.Option(help="With --input: the name of a known source, or table.")] = "table",
    map: Annotated[str, typer.Option("--map", help="With --input: columns, e.g. question=q,context=text.")] = "",
    split: Annotated[str, typer.Option(help="With --input: the split that the file contains.")] = "train",
    judge: Annotated[
        str, typer.Option(help="How pages are judged: gold, answer or teacher; overrides the configuration.")
    ] = "",
    out: Annotated[str, typer.Option("--out", help="The output folder; overrides the configuration.")] = "",
    runner: Annotated[str, typer.Option(help="local: one process; ray: several Ray processes.")] = "local",
    workers: Annotated[int, typer.Option(min=1, help="With --runner ray: number of processes.")] = 2,
    limit: Annotated[
        int, typer.Option(min=0, help="Read this many samples, divided like the sources' targets; 0 reads all.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate calls, tokens, hours and cost; send and write nothing.")
    ] = False,
    pilot: Annotated[
        str, typer.Option(help="With --dry-run: output folder of a pilot, whose measurements replace assumptions.")
    ] = "",
    assume: Annotated[
        list[str] | None, typer.Option("--assume", help="With --dry-run: change an assumption, e.g. phase2=0.5.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a finished build.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting, e.g. reason.samples=4; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a set of trajectories.

    An interrupted build resumes when run again: no finished teacher call is repeated.

    Example: seer-data build configs/data-paper.toml --set reason.samples=4 --out runs/other
    Example: seer-data build configs/data-paper.toml --limit 200 --out runs/pilot
    Example: seer-data build configs/data-paper.toml --dry-run --pilot runs/pilot --assume usd_per_hour=6
    Example: seer-data build --input qa.jsonl --map question=q,context=text,evidence=quotes --out runs/data

    \f
    Raises InputError if `runner` is unknown, and what `data_pipeline.build.build` raises.
    """
    from data_pipeline.build import build as run_build
    from data_pipeline.progress import ProgressLine, total_rows, total_target
    from data_pipeline.settings import pilot_of

    if runner not in ("local", "ray"):
        raise InputError(f"--runner {runner}: must be local or ray")
    settings = _settings(config, overrides or [], input, kind, map, split, judge, out)
    settings = pilot_of(settings, limit) if limit else settings
    if dry_run:
        _estimate(settings, pilot, assume or [], as_json)
        return
    progress = ProgressLine(total_rows(settings.sources), target=None if limit else total_target(settings.sources))
    chosen: Literal["local", "ray"] = "ray" if runner == "ray" else "local"
    try:
        report = run_build(settings, force=force, runner=chosen, workers=workers, on_progress=progress)
    finally:
        progress.close()
    if as_json:
        sets = {name: {"rows": manifest.rows, "digest": manifest.digest} for name, manifest in report.sets.items()}
        print(json.dumps({"out": str(report.out), "sets": sets, "statistics": report.statistics}))
        return
    if report.table:
        print(report.table)
    for name, manifest in report.sets.items():
        print(f"{report.out / name}: {manifest.rows:,} trajectories, digest {manifest.digest[:12]}")
    if report.already_built:
        print("already built; pass --force to build it again")


def _estimate(settings: BuildConfig, pilot: str, assume: list[str], as_json: bool) -> None:
    from data_pipeline.estimate import estimate_build, parse_assumptions, read_pilot

    estimate = estimate_build(settings, parse_assumptions(assume), read_pilot(pilot) if pilot else None)
    print(json.dumps(estimate.as_json()) if as_json else estimate.table())


def _settings(
    config: str, overrides: list[str], path: str, kind: str, columns: str, split: str, judge: str, out: str
) -> BuildConfig:
    """Return the configuration that the command line describes.

    Raises ConfigError if a value is invalid, InputError if there is neither a configuration nor an input.
    """
    from data_pipeline.settings import BuildConfig, SourceSpec
    from seer.config import build_config, load_config

    changes = [*overrides]
    if judge:
        changes.append(f"judge.kind={json.dumps(judge)}")
    if out:
        changes.append(f"out={json.dumps(out)}")
    if not path:
        if not config:
            raise InputError("nothing to build: pass a CONFIG, or --input with --out; see seer-data build --help")
        return load_config(BuildConfig, config, changes)
    values = {"kind": kind, "path": path, "split": split, "map": parse_map(columns)}
    source = build_config(SourceSpec, values, where="the command line")
    # The placeholder passes the check that a configuration has sources; the real source replaces it below.
    settings = load_config(BuildConfig, config or None, ['sources=[{path="-"}]', *changes])
    return settings.model_copy(update={"sources": (source,)})


def parse_map(text: str) -> dict[str, str]:
    """Parse the value of --map: `question=q,context=text` gives {"question": "q", "context": "text"}.

    Raises InputError if a part is not NAME=COLUMN with a known name.
    """
    from data_pipeline.sources.registry import MAPPABLE

    columns = {}
    for part in filter(None, text.split(",")):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not column or name not in MAPPABLE:
            raise InputError(f"--map '{part}': must be NAME=COLUMN with NAME one of {', '.join(MAPPABLE)}")
        columns[name] = column
    return columns


@app.command("serve-teachers")
def serve_teachers(
    config: Annotated[str, typer.Argument(help="A TOML file; see configs/data-*.toml.", show_default=False)],
    print_only: Annotated[bool, typer.Option("--print", help="Print the commands and start nothing.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting, e.g. serve.judge.gpus=1; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a vLLM server for each teacher of a configuration, with the context length that it needs.

    The command ends when it is interrupted, or with an error when a server ends.

    Example: seer-data serve-teachers configs/data-paper.toml
    Example: seer-data serve-teachers configs/data-paper.toml --print

    \f
    Raises what `data_pipeline.serve.teacher_servers` and `run_servers` raise.
    """
    from data_pipeline.serve import run_servers, teacher_servers
    from data_pipeline.settings import BuildConfig
    from seer.config import load_config

    servers = teacher_servers(load_config(BuildConfig, config, overrides or []))
    if as_json:
        print(json.dumps([{"roles": s.roles, "gpus": s.gpus, "command": s.command, "port": s.port} for s in servers]))
    elif print_only:
        print("\n".join(server.line for server in servers))
    if not print_only and not as_json:
        run_servers(servers)


@app.command()
def sources(as_json: AsJson = False) -> None:
    """List the known sources with their file shapes, evidence and licences.

    Example: seer-data sources
    """
    from data_pipeline.sources.registry import SOURCES

    if as_json:
        rows = {
            name: {
                "title": s.title,
                "licence": s.licence,
                "evidence": s.gold_evidence,
                "shapes": s.shapes,
                "in_paper": s.in_paper,
            }
            for name, s in SOURCES.items()
        }
        print(json.dumps(rows))
        return
    for name, source in SOURCES.items():
        print(f"{name:<12} {source.title}{' (in the paper)' if source.in_paper else ''}")
        print(
            f"{'':<12} shapes: {source.shapes}\n{'':<12} evidence: {source.gold_evidence}\n"
            f"{'':<12} licence: {source.licence}"
        )
    print(f"{'table':<12} any JSONL or Parquet: --map question=q,context=text,answers=a,evidence=e,id=i,document=d")


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read every record of a set, or of all sets of a build, and compare it with the manifest.

    Example: seer-data verify runs/data/paper
    """
    from seer.shards.reader import ShardSet

    checked = {}
    for path in find_sets(folder):
        shards = ShardSet(path)
        shards.verify()
        checked[str(path)] = {"rows": len(shards), "digest": shards.digest}
    if as_json:
        print(json.dumps(checked))
        return
    for name, values in checked.items():
        print(f"{name}: {values['rows']:,} trajectories verified, digest {str(values['digest'])[:12]}")


@app.command()
def stats(folder: Folder, as_json: AsJson = False) -> None:
    """Show the outcome of a build: records kept by source and stage, and the reasons for rejections.

    Example: seer-data stats runs/data/paper

    \f
    Raises DocumentNotFound if the folder has no statistics, InputError if they are invalid.
    """
    from data_pipeline.collect import STATISTICS_NAME
    from data_pipeline.tally import outcome_table

    path = folder / STATISTICS_NAME
    try:
        statistics = json.loads(path.read_bytes())
        table = outcome_table(statistics)
    except FileNotFoundError:
        raise DocumentNotFound(f"no {STATISTICS_NAME} in '{folder}'; pass the folder of a finished build") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"'{path}' does not hold the statistics of a build: {error!r}; build it again") from None
    print(json.dumps(statistics) if as_json else table)


@app.command()
def show(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="The HTML file to write; by default in the set's folder.")] = None,
    first: Annotated[int, typer.Option(min=0, help="Index of the first trajectory, counted from 0.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of trajectories.")] = 20,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the file in a browser.")] = True,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that shows trajectories: pages, selected pages, and text coloured by loss class.

    Example: seer-data show runs/data/paper --limit 50 --out gallery.html

    \f
    Raises InputError if `first` is past the end of the set.
    """
    from data_pipeline.gallery import gallery_html
    from seer.shards.reader import ShardSet
    from seer.storage import write_text

    shards = ShardSet(find_sets(folder)[0])
    if first >= max(1, len(shards)):
        raise InputError(
            f"--first {first}: must be below {len(shards)}, the number of trajectories in '{shards.folder}'"
        )
    wanted = range(first, min(first + limit, len(shards)))
    page = gallery_html(str(shards.folder), (shards[index] for index in wanted), len(shards))
    target = out or shards.folder / "gallery.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, page)
    print(json.dumps({"out": str(target), "shown": len(wanted)}) if as_json else target)
    if open_browser and not as_json and sys.stdout.isatty():
        typer.launch(str(target))


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    format: Annotated[
        str, typer.Option("--format", help="The target trainer: llamafactory, swift or trl.")
    ] = "llamafactory",
    as_json: AsJson = False,
) -> None:
    """Write a set for LLaMA-Factory, ms-swift or TRL, as messages and images.

    Example: seer-data export runs/data/paper/train --format trl --out runs/trl

    \f
    Raises InputError if the format is unknown, the folder holds several sets, or `out` holds an export.
    """
    from data_pipeline.export import FORMATS
    from data_pipeline.export import export as run_export
    from seer.shards.reader import ShardSet

    chosen = next((name for name in FORMATS if name == format), None)
    if chosen is None:
        raise InputError(f"--format {format}: unknown; known: {', '.join(FORMATS)}")
    found = find_sets(folder)
    if len(found) > 1:
        raise InputError(f"'{folder}' holds {len(found)} sets; pass one of {', '.join(map(str, found))}")
    count = run_export(ShardSet(found[0]), out, chosen)
    if as_json:
        print(json.dumps({"out": str(out), "conversations": count, "format": chosen}))
        return
    print(f"{out / 'data.jsonl'}: {count:,} conversations for {chosen}")


@app.command()
def guard(
    benchmark: Annotated[Path, typer.Argument(help="A folder of LongBench JSONL files.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The index to write, ending in .npz.")],
    as_json: AsJson = False,
) -> None:
    """Index a benchmark for the leakage guard; set guard.benchmark to the index in the builds that use it.

    Example: seer-data guard data/longbench --out runs/longbench.npz

    \f
    Raises InputError if `out` does not end in .npz or a benchmark file is unreadable, DocumentNotFound if there is none.
    """
    from data_pipeline.steps.guard import BenchmarkIndex

    if out.suffix != ".npz":
        raise InputError(f"--out {out}: the index must end in .npz")
    index = BenchmarkIndex.from_folder(benchmark)
    index.save(out)
    if as_json:
        print(json.dumps({"out": str(out), "records": index.records, "grams": len(index.context_grams)}))
        return
    print(f"{out}: {index.records:,} records, {len(index.context_grams):,} context n-grams")


def find_sets(folder: Path) -> list[Path]:
    """Return the finished sets at a path: the folder itself, or the sets that a build wrote below it.

    Raises DocumentNotFound or InputError if there is none, as `seer.shards.reader.read_shard_manifest` does.
    """
    from seer.shards.reader import MANIFEST_NAME, read_shard_manifest

    if not (folder / MANIFEST_NAME).exists():
        found = [path.parent for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/{MANIFEST_NAME}"))]
        if found:
            return found
    read_shard_manifest(folder)
    return [folder]


def main() -> NoReturn:
    """Run `seer-data`. An error that Seer raises on purpose prints one line and sets the exit code."""
    run(app, "seer-data")


if __name__ == "__main__":
    main()
