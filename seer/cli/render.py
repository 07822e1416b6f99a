"""`seer render`, `seer plan` and `seer cache`, for the command line to mount. Heavy imports are inside functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seer.cli.command import AsJson, counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from seer.schema import Document, PageStyle

_PLAN_STYLES = "seer,glyph,dense,large,auto"

FileArgument = Annotated[
    str, typer.Argument(help="A document: .txt .md .html .docx .pdf, code, an image, or - for stdin.")
]
StyleOption = Annotated[str, typer.Option(help="Page style: seer, glyph, dense, large, or auto: the cheapest layout.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any field of the style, e.g. --set font_size_pt=8.")
]
EncodingOption = Annotated[str | None, typer.Option(help="Encoding of a text file that is not UTF-8, e.g. gb18030.")]
PagesOption = Annotated[str | None, typer.Option(help="Keep these pages only, e.g. 10-40,52.")]
ReflowOption = Annotated[
    bool, typer.Option("--reflow", help="Lay out the text of a PDF instead of showing its own pages.")
]
OcrOption = Annotated[
    Literal["auto", "always", "never"],
    typer.Option(help="Read scans: auto (pages without usable text), always, never."),
]
PasswordOption = Annotated[str | None, typer.Option(help="Password of an encrypted PDF.", envvar="SEER_PDF_PASSWORD")]


def render(
    file: FileArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder, or .pdf file. Default: <name>-pages.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="png, pdf, or hf: a Hugging Face dataset folder.")] = None,
    style: StyleOption = "seer",
    settings: SetOption = None,
    encoding: EncodingOption = None,
    pages: PagesOption = None,
    dpi: Annotated[float, typer.Option(help="Resolution of a PDF's own pages.")] = 96,
    reflow: ReflowOption = False,
    ocr: OcrOption = "auto",
    password: PasswordOption = None,
    strict_glyphs: Annotated[
        bool, typer.Option("--strict-glyphs", help="Fail where no font covers a character, instead of drawing a box.")
    ] = False,
    processes: Annotated[int, typer.Option("-j", "--processes", min=1, help="Processes that draw.")] = 1,
    contact_sheet: Annotated[Path | None, typer.Option(help="Also write one picture of all pages to this PNG.")] = None,
    compare: Annotated[
        tuple[str, str] | None, typer.Option(help="Two styles: write their first pages side by side, nothing else.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make page images of a document.

    Example: seer render report.txt -o pages --style auto --contact-sheet sheet.png
    """
    from seer.errors import InputError
    from seer.rendering.cache import PageCache
    from seer.rendering.output import keeps_own_pages, manifest, write_dataset, write_pages, write_pdf

    options: dict[str, Any] = {
        "changes": _changes(settings),
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
    kind = format or ("pdf" if out is not None and out.suffix.lower() == ".pdf" else "png")
    _one_of("--format", kind, ("png", "pdf", "hf"))
    target = out or Path(f"{_stem(file)}-pages{'.pdf' if kind == 'pdf' else ''}")
    if kind != "pdf" and target.exists() and not target.is_dir():
        raise InputError(f"'{target}' is a file; give a folder for the pages with --out")
    document = _load(file, style, options, quiet=as_json)
    with _progress("drawing pages", len(document.pages), quiet=as_json) as (bar, task):
        tell = partial(bar.advance, task)
        if kind == "pdf":
            write_pdf(document, target)
        elif kind == "hf":
            write_dataset(document, target, tell)
        else:
            cache = PageCache.default() if keeps_own_pages(document) else None
            write_pages(document, target, processes=processes, cache=cache, progress=tell)
    if contact_sheet is not None:
        _write_sheet(document, contact_sheet)
    if as_json:
        typer.echo(json.dumps({"out": str(target), **manifest(document)}))
    else:
        _report(document, target, contact_sheet)


def plan(
    file: FileArgument,
    styles: Annotated[str, typer.Option("--styles", help="Styles to compare, parted by commas.")] = _PLAN_STYLES,
    settings: SetOption = None,
    encoding: EncodingOption = None,
    pages: PagesOption = None,
    ocr: OcrOption = "auto",
    password: PasswordOption = None,
    model: Annotated[str | None, typer.Option(help="Checkpoint or tokenizer.json to count text tokens by.")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Also say how many such conversations --model serves at once.")
    ] = False,
    gpus: Annotated[int, typer.Option(min=1, help="With --serve: GPUs of one server.")] = 1,
    gpu_gib: Annotated[float, typer.Option(min=0.001, help="With --serve: memory of one GPU.")] = 80.0,
    as_json: AsJson = False,
) -> None:
    """What a document would cost in each style, without drawing a page.

    Example: seer plan report.txt --styles seer,auto --set font_size_pt=8
    Example: seer plan report.txt --serve --model path/to/checkpoint --gpus 2 --gpu-gib 80
    """
    from seer.models.counting import load_counter
    from seer.rendering.output import keeps_own_pages
    from seer.rendering.plan import own_pages_row, reading_tokens, settle
    from seer.rendering.plan import plan as plan_text

    options = {"encoding": encoding, "pages": pages, "ocr": ocr, "password": password}
    document = _load(file, "seer", options, quiet=as_json)
    changes = _changes(settings)
    names = [name.strip() for name in styles.split(",") if name.strip()]
    counter = load_counter(model)
    text_tokens = counter.count(document.text)
    wanted: list[PageStyle | str] = [settle(document.text, name, **changes) for name in names]
    measured = list(zip(names, plan_text(document.text, wanted), strict=True)) if document.text else []
    if keeps_own_pages(document):
        measured.insert(0, (document.style.name, own_pages_row(document)))
    rows = [
        {
            "style": name,
            "layout": row.style.name,
            "pages": row.pages,
            "vision_tokens": row.vision_tokens,
            "text_tokens": text_tokens,
            "ratio": round(text_tokens / row.vision_tokens, 3),
            "reading_tokens": (read := reading_tokens(text_tokens, row.pages, row.vision_tokens)),
            "reading_ratio": round(text_tokens / read, 3),
            "pays": read < text_tokens,
            "letter_height_px": None if row.letter_height_px is None else round(row.letter_height_px, 2),
        }
        for name, row in measured
    ]
    served = _serving(model, [(name, row.style, row.pages) for name, row in measured], gpus, gpu_gib) if serve else []
    if as_json:
        record = {"document": document.name, "counter": counter.name, "styles": rows}
        typer.echo(json.dumps(record | ({"serving": served} if serve else {})))
    else:
        _print_plan(document, counter.name, rows)
        for row in served:
            typer.echo(
                f"{row['style']}: {row['conversation_tokens']:,} tokens and {row['conversation_gb']:.2f} GB of cache a "
                f"conversation, {row['conversations']:,} at once on {gpus} x {gpu_gib:g} GiB"
            )


def cache(
    action: Annotated[str, typer.Argument(help="info, or clear.")],
    as_json: AsJson = False,
) -> None:
    """The pages of PDFs kept on disk: how many, where, or away with them.

    Example: seer cache info
    """
    from seer.rendering.cache import PageCache

    store = PageCache.default()
    if _one_of("the action", action, ("info", "clear")) == "clear":
        removed = store.clear()
        typer.echo(
            json.dumps({"removed": removed}) if as_json else f"{counted(removed, 'page')} removed from {store.folder}"
        )
        return
    info = store.info()
    record = {"folder": str(info.folder), "pages": info.pages, "bytes": info.bytes, "max_bytes": info.max_bytes}
    megabytes = f"{info.bytes / 2**20:.1f} of {info.max_bytes / 2**20:.0f} MB"
    typer.echo(json.dumps(record) if as_json else f"{counted(info.pages, 'page')}, {megabytes}, in {info.folder}")


def _serving(
    model: str | None, measured: Iterable[tuple[str, PageStyle, int]], gpus: int, gpu_gib: float
) -> list[dict[str, Any]]:
    """For each style, the cache that one conversation over the document takes, and how many fit at once."""
    from seer.errors import InputError
    from seer.serving.sizing import ServingLoad, shape_of, size_serving

    if model is None:
        raise InputError("--serve needs the model that is served; give its checkpoint folder with --model")
    shape, rows = shape_of(model), []
    for name, style, pages in measured:
        size = {"page_width_px": style.page_width_px, "page_height_px": style.page_height_px}
        sizing = size_serving(shape, ServingLoad(gpus=gpus, gpu_memory_gib=gpu_gib, pages=pages, **size))
        rows.append(
            {
                "style": name,
                "conversation_tokens": sizing.conversation_tokens,
                "conversation_gb": round(sizing.kv_bytes_per_token * sizing.conversation_tokens / 1e9, 4),
                "pages_cached": sizing.pages_cached,
                "conversations": sizing.conversations,
            }
        )
    return rows


# ── Parts ────────────────────────────────────────────────────────────────────────────────────────


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> str:
    from seer.errors import InputError

    if value not in allowed:
        raise InputError(f"{what} is '{value}'; use {', '.join(allowed[:-1])} or {allowed[-1]}")
    return value


def _changes(settings: list[str] | None) -> dict[str, Any]:
    """The style fields that `--set` names, as validated values."""
    from seer.config import load_config
    from seer.schema import PageStyle

    if not settings:
        return {}
    style = load_config(PageStyle, None, settings)
    return {key: getattr(style, key) for key in (setting.partition("=")[0].strip() for setting in settings)}


def _stem(file: str) -> str:
    return "stdin" if file == "-" else Path(file).stem


def _load(file: str, style: str, options: dict[str, Any], *, quiet: bool) -> Document:
    from seer.rendering.documents import load

    with _progress("reading", None, quiet=quiet) as (bar, task):

        def tell(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        return load(file, style, progress=tell, **options)


def _compare(file: str, styles: tuple[str, str], out: Path, options: dict[str, Any], as_json: bool) -> None:
    from seer.protocol.geometry import GLM_41V
    from seer.rendering.drawing.png import png_bytes
    from seer.rendering.sheets import side_by_side

    documents = [_load(file, style, options | {"reflow": True}, quiet=as_json) for style in styles]
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
    for glyph in document.missing_glyphs[:10]:
        typer.echo(f"  no font covers {glyph.code_point} ({glyph.count} times): drawn as a box", err=True)
    if len(document.missing_glyphs) > 10:
        typer.echo(f"  and {len(document.missing_glyphs) - 10} more characters, see the manifest", err=True)
    if sheet is not None:
        typer.echo(f"contact sheet: {sheet}")


def _print_plan(document: Document, counter: str, rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=Text(f"{document.name}: {rows[0]['text_tokens']:,} text tokens ({counter})"),
    )
    for heading in ("style", "pages", "vision tokens", "text/vision", "text/read", "pays", "letters px"):
        table.add_column(heading, justify="left" if heading == "style" else "right")
    for row in rows:
        name = row["style"] if row["style"] == row["layout"].rstrip("*") else f"{row['style']} ({row['layout']})"
        table.add_row(
            Text(name),
            f"{row['pages']:,}",
            f"{row['vision_tokens']:,}",
            f"{row['ratio']:.2f}",
            f"{row['reading_ratio']:.2f}",
            "yes" if row["pays"] else "no",
            "" if row["letter_height_px"] is None else f"{row['letter_height_px']:.1f}",
        )
    console = Console(highlight=False)
    console.print(table)
    best = max(rows, key=lambda row: row["reading_ratio"])
    if best["pays"]:
        saved = f"about {best['text_tokens'] - best['reading_tokens']:,} tokens"
        verdict = f"Rendering pays: in style {best['style']} a question saves {saved}, retrieved text included."
    else:
        verdict = (
            "Rendering does not pay: as text the document costs less than its pages and what a question retrieves."
        )
    console.print(Text(verdict), soft_wrap=True)


@contextmanager
def _progress(what: str, total: int | None, *, quiet: bool) -> Iterator[tuple[Progress, TaskID]]:
    """A progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        yield bar, bar.add_task(what, total=total)
