"""The command `seer-data`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from seer.errors import SeerError

app = typer.Typer(
    name="seer-data",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build trajectories from question sets: load, guard, judge pages, reason, filter, assemble, shard.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Folder = Annotated[Path, typer.Argument(help="A set, or the folder of a build.", show_default=False)]


@app.command()
def build(
    config: Annotated[str, typer.Argument(help="A TOML file; see configs/data-*.toml.", show_default=False)] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings as section.key=value.", show_default=False)
    ] = None,
    input: Annotated[str, typer.Option("--input", help="Without a CONFIG: one JSONL or Parquet file.")] = "",
    kind: Annotated[str, typer.Option(help="With --input: a known source, or table.")] = "table",
    map: Annotated[str, typer.Option("--map", help="With --input: columns, e.g. question=q,context=text.")] = "",
    split: Annotated[str, typer.Option(help="With --input: which split the file is.")] = "train",
    judge: Annotated[str, typer.Option(help="gold, answer or teacher; overrides the configuration.")] = "",
    out: Annotated[str, typer.Option("--out", help="The folder to write; overrides the configuration.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Build again over a finished build.")] = False,
    as_json: Json = False,
) -> None:
    """Build a set. Killed and run again, it goes on where it was: no finished teacher call is made twice.

    seer-data build configs/data-paper.toml
    seer-data build --input qa.jsonl --map question=q,context=text,evidence=quotes --out runs/data
    """
    from data_pipeline.build import build as run_build
    from data_pipeline.settings import BuildConfig
    from seer.config import build_config, load_config

    if config.partition("=")[1] and not Path(config).exists():
        config, overrides = "", [config, *(overrides or ())]
    changes = [
        *(overrides or ()),
        *([f"judge.kind={judge}"] if judge else []),
        *([f"out={json.dumps(out)}"] if out else []),
    ]
    if input:
        source = {"kind": kind, "path": input, "split": split, "map": parse_map(map)}
        settings = load_config_values(config, changes)
        resolved = build_config(BuildConfig, {**settings, "sources": [source]}, where="the command line")
    else:
        resolved = load_config(BuildConfig, config or None, changes)
    report = run_build(resolved, force=force)
    if as_json:
        sets = {name: {"rows": manifest.rows, "digest": manifest.digest} for name, manifest in report.sets.items()}
        print(json.dumps({"out": str(report.out), "sets": sets, "statistics": report.statistics}))
        return
    if report.table:
        print(report.table)
    for name, manifest in report.sets.items():
        print(f"{report.out / name}: {manifest.rows:,} trajectories, digest {manifest.digest[:12]}")
    if report.already_built:
        print("already built; --force builds it again")


def parse_map(text: str) -> dict[str, str]:
    """question=q,context=text → {"question": "q", "context": "text"}. Raises InputError."""
    from data_pipeline.sources import MAPPABLE
    from seer.errors import InputError

    columns = {}
    for part in filter(None, text.split(",")):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or not column or name not in MAPPABLE:
            raise InputError(f"--map '{part}' is not NAME=COLUMN with NAME one of {', '.join(MAPPABLE)}")
        columns[name] = column
    return columns


def load_config_values(config: str, changes: list[str]) -> dict[str, object]:
    """The settings of a configuration whose sources come from elsewhere."""
    from data_pipeline.settings import BuildConfig
    from seer.config import load_config

    placeholder = 'sources=[{path="-"}]'
    return load_config(BuildConfig, config or None, [placeholder, *changes]).model_dump(exclude={"sources"})


@app.command()
def sources(as_json: Json = False) -> None:
    """List the known sources: what is read, what evidence they mark, under which licence they stand."""
    from data_pipeline.sources import SOURCES

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
def verify(folder: Folder, as_json: Json = False) -> None:
    """Read every record of a set (or of all sets of a build) and compare it with the manifest."""
    from seer.shards import ShardSet

    checked = {}
    for path in set_folders(folder):
        shards = ShardSet(path)
        shards.verify()
        checked[str(path)] = {"rows": len(shards), "digest": shards.digest}
    if as_json:
        print(json.dumps(checked))
        return
    for name, values in checked.items():
        print(f"{name}: {values['rows']:,} trajectories, all as written, digest {str(values['digest'])[:12]}")


def set_folders(folder: Path) -> list[Path]:
    """The sets in a folder: itself, or those a build wrote into it. Raises what `read_manifest` raises."""
    from seer.shards import MANIFEST_NAME, read_manifest

    if not (folder / MANIFEST_NAME).exists():
        found = sorted({path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{MANIFEST_NAME}")})
        if found:
            return found
    read_manifest(folder)
    return [folder]


def main() -> None:
    """Run `seer-data`. Errors that Seer raises on purpose print one line and end with their exit code."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app()
    except SeerError as error:
        if debug:
            raise
        print(f"seer-data: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
