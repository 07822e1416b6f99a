"""`seer render`: page images of a document."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seer.cli.command import AsJson, counted, printable
from seer.cli.options import (
    Encoding,
    File,
    Font,
    Ocr,
    Pages,
    Password,
    Reflow,
    Style,
    StyleOptions,
    check_choice,
    set_became_style_option,
    style_changes,
)
from seer.cli.progress import load_with_progress, open_bar
from seer.errors import InputError

if TYPE_CHECKING:
    from seer.schema import Document


_CHECK_DPI = 150
"""The resolution at which OCR reads the pages of a PDF well."""
_EXIT_DIFFERS = 4


@set_became_style_option
def render(
    file: File,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder, or .pdf file. Default: <name>-pages.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="png, pdf, or hf: a Hugging Face dataset folder.")] = None,
    style: Style = "seer",
    style_options: StyleOptions = None,
    font: Font = None,
    encoding: Encoding = None,
    pages: Pages = None,
    dpi: Annotated[float, typer.Option(help="Resolution of a PDF's own pages.")] = 96,
    reflow: Reflow = False,
    ocr: Ocr = "auto",
    password: Password = None,
    strict_glyphs: Annotated[
        bool, typer.Option("--strict-glyphs", help="Fail if no font covers a character, instead of drawing a box.")
    ] = False,
    processes: Annotated[int, typer.Option("-j", "--processes", min=1, help="Number of processes that draw.")] = 1,
    contact_sheet: Annotated[Path | None, typer.Option(help="Also write one image of all pages to this PNG.")] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Write only the first page in these two styles, side by side.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; compare each page of a PDF or image, read by OCR, with its text."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the pages of a document as images, with a manifest of spans, sizes and hashes.

    Example: seer render report.txt -o pages --style auto --contact-sheet sheet.png
    Example: seer render report.txt -o report.pdf --style-option font_size_pt=8
    Example: seer render report.pdf --check

    Exit code 4: with --check, the text of a page differs from what the page shows.
    """
    from seer.rendering.cache import PageCache
    from seer.rendering.output import keeps_own_pages, manifest, write_dataset, write_pages, write_pdf

    options: dict[str, Any] = {
        "changes": style_changes(style_options, font),
        "encoding": encoding,
        "pages": pages,
        "dpi": dpi,
        "reflow": reflow,
        "ocr": ocr,
        "password": password,
        "strict_glyphs": strict_glyphs,
    }
    if compare is not None:
        _compare(file, compare, out or Path("compare.png"), options, as_json)
        return
    if check:
        _check(file, style, options, as_json)
        return
    kind = format or ("pdf" if out is not None and out.suffix.lower() == ".pdf" else "png")
    check_choice("--format", kind, ("png", "pdf", "hf"))
    target = out or Path(f"{_stem(file)}-pages{'.pdf' if kind == 'pdf' else ''}")
    _check_target(kind, target)
    document = load_with_progress(file, style, options, quiet=as_json)
    with open_bar("drawing pages", len(document.pages), quiet=as_json) as (bar, task):
        advance = partial(bar.advance, task)
        if kind == "pdf":
            write_pdf(document, target)
        elif kind == "hf":
            write_dataset(document, target, advance)
        else:
            cache = PageCache.default() if keeps_own_pages(document) else None
            write_pages(document, target, processes=processes, cache=cache, progress=advance)
    if contact_sheet is not None:
        _write_sheet(document, contact_sheet)
    if as_json:
        typer.echo(json.dumps({"out": str(target), **manifest(document)}))
    else:
        _report(document, target, contact_sheet)


def _check(file: str, style: str, options: dict[str, Any], as_json: bool) -> None:
    """Print the comparison of each page with its text. Exits with code 4 if a page differs."""
    from seer.rendering.checking import MIN_SCORE, check_pages
    from seer.rendering.formats.scans import ocr_installed

    if not ocr_installed():
        raise InputError("--check reads the pages by OCR; install it with: pip install 'seer-vlm[ocr]'")
    options = options | {"dpi": max(options["dpi"], _CHECK_DPI)}
    document = load_with_progress(file, style, options, quiet=as_json)
    checks = []
    with open_bar("reading pages", len(document.pages), quiet=as_json) as (bar, task):
        for checked in check_pages(document):
            checks.append(checked)
            bar.advance(task)
    differing = [checked for checked in checks if checked.differs]
    if as_json:
        rows = [{**asdict(checked), "differs": checked.differs} for checked in checks]
        warnings = [warning.model_dump() for warning in document.warnings]
        typer.echo(json.dumps({"pages": rows, "differing": len(differing), "warnings": warnings}))
    else:
        for checked in differing:
            typer.echo(f"page {checked.page}: score {checked.score:.2f}")
            for side, lines in (
                ("only in the picture", checked.only_in_picture),
                ("only in the text", checked.only_in_text),
            ):
                for line in lines:
                    typer.echo(f"  {side}: {printable(line)}")
        lowest = min(checked.score for checked in checks)
        result = f"{len(differing)} of {counted(len(checks), 'page')} differ, lowest score {lowest:.2f}"
        typer.echo(f"{result} (at least {MIN_SCORE:g} expected)")
    if differing:
        raise typer.Exit(_EXIT_DIFFERS)


def _check_target(kind: str, target: Path) -> None:
    if kind != "pdf" and target.exists() and not target.is_dir():
        raise InputError(f"'{target}' is a file; give a folder for the pages with --out")


def _stem(file: str) -> str:
    return "stdin" if file == "-" else Path(file).stem


def _compare(file: str, styles: tuple[str, str], out: Path, options: dict[str, Any], as_json: bool) -> None:
    from seer.protocol.geometry import GLM_41V
    from seer.rendering.drawing.png import png_bytes
    from seer.rendering.sheets import side_by_side

    documents = [load_with_progress(file, style, options | {"reflow": True}, quiet=as_json) for style in styles]
    tokens = [sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document) for document in documents]
    captions = [
        f"{document.style.name}: {counted(len(document.pages), 'page')}, {counted(count, 'vision token')}"
        for document, count in zip(documents, tokens, strict=True)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(png_bytes(side_by_side(documents, captions)))
    typer.echo(json.dumps({"out": str(out), "styles": captions}) if as_json else "\n".join([*captions, str(out)]))


def _write_sheet(document: Document, path: Path) -> None:
    from seer.rendering.drawing.png import png_bytes
    from seer.rendering.sheets import contact_sheet

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png_bytes(contact_sheet(document.pages)))


def _report(document: Document, target: Path, sheet: Path | None) -> None:
    from seer.protocol.geometry import GLM_41V

    tokens = sum(GLM_41V.tokens(page.width_px, page.height_px) for page in document)
    size = f"{counted(len(document.pages), 'page')}, {counted(tokens, 'vision token')}"
    typer.echo(f"{size}, style {document.style.name}: {target}")
    if sheet is not None:
        typer.echo(f"contact sheet: {sheet}")
