"""`seer plan`: what a document costs in each page style, before a page is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seer.cli.command import AsJson
from seer.cli.options import (
    Encoding,
    File,
    Font,
    Ocr,
    Pages,
    Password,
    StyleOptions,
    set_became_style_option,
    style_changes,
)
from seer.cli.progress import load_with_progress
from seer.errors import InputError

if TYPE_CHECKING:
    from seer.rendering.plan import PlanRow
    from seer.schema import Document, PageStyle

_PLAN_STYLES = "seer,paper,glyph,dense,large,auto"


@set_became_style_option
def plan(
    file: File,
    styles: Annotated[str, typer.Option("--styles", help="Styles to compare, separated by commas.")] = _PLAN_STYLES,
    style_options: StyleOptions = None,
    font: Font = None,
    encoding: Encoding = None,
    pages: Pages = None,
    ocr: Ocr = "auto",
    password: Password = None,
    model: Annotated[
        str | None, typer.Option(help="Checkpoint folder or tokenizer.json to count text tokens with. Default: tekken.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Also show how many such conversations a server holds at once.")
    ] = False,
    gpus: Annotated[int, typer.Option(min=1, help="With --serve: GPUs of one server.")] = 1,
    gpu_gib: Annotated[float, typer.Option(min=0.001, help="With --serve: memory of one GPU.")] = 80.0,
    as_json: AsJson = False,
) -> None:
    """Compare what a document costs in each page style and as text, without drawing a page.

    Example: seer plan report.txt --styles seer,auto --style-option font_size_pt=8
    Example: seer plan report.txt --serve --model path/to/checkpoint --gpus 2 --gpu-gib 80
    """
    from seer.models.counting import load_counter
    from seer.rendering.newlines import decide_newline
    from seer.rendering.output import keeps_own_pages
    from seer.rendering.plan import own_pages_row, settle
    from seer.rendering.plan import plan as plan_text
    from seer.rendering.styles import resolve_style

    options = {"encoding": encoding, "pages": pages, "ocr": ocr, "password": password}
    document = load_with_progress(file, "seer", options, quiet=as_json)
    changes = style_changes(style_options, font)
    newline = decide_newline(document.text, resolve_style("paper", **changes))
    names = [name.strip() for name in styles.split(",") if name.strip()]
    counter = load_counter(model)
    text_tokens = counter.count(document.text)
    wanted: list[PageStyle | str] = [settle(document.text, name, **changes) for name in names]
    measured = list(zip(names, plan_text(document.text, wanted), strict=True)) if document.text else []
    if keeps_own_pages(document):
        measured.insert(0, (document.style.name, own_pages_row(document)))
    rows = [_row(name, row, text_tokens) for name, row in measured]
    served = _serving(model, [(name, row.style, row.pages) for name, row in measured], gpus, gpu_gib) if serve else []
    if as_json:
        decision = asdict(newline) | {"reason": newline.reason}
        record = {"document": document.name, "counter": counter.name, "newline": decision, "styles": rows}
        typer.echo(json.dumps(record | ({"serving": served} if serve else {})))
    else:
        _print_plan(document, counter.name, rows)
        typer.echo(f"Newlines of this document: {newline.newline}, because {newline.reason} (rule of newline=auto).")
        for row in served:
            typer.echo(
                f"{row['style']}: {row['conversation_tokens']:,} tokens and {row['conversation_gb']:.2f} GB of cache a "
                f"conversation, {row['conversations']:,} at once on {gpus} x {gpu_gib:g} GiB"
            )


def _row(name: str, planned: PlanRow, text_tokens: int) -> dict[str, Any]:
    """Return one style's figures: what its pages cost, and what reading them with retrieval costs."""
    from seer.rendering.plan import reading_tokens

    read = reading_tokens(text_tokens, planned.pages, planned.vision_tokens)
    height = planned.letter_height_px
    return {
        "style": name,
        "layout": planned.style.name,
        "pages": planned.pages,
        "vision_tokens": planned.vision_tokens,
        "text_tokens": text_tokens,
        "ratio": round(text_tokens / planned.vision_tokens, 3),
        "reading_tokens": read,
        "reading_ratio": round(text_tokens / read, 3),
        "pays": read < text_tokens,
        "letter_height_px": None if height is None else round(height, 2),
    }


def _serving(
    model: str | None, measured: Iterable[tuple[str, PageStyle, int]], gpus: int, gpu_gib: float
) -> list[dict[str, Any]]:
    """Return, for each style, the cache that one conversation over the document takes, and how many fit at once."""
    from seer.serving.sizing import ServingLoad, shape_of, size_serving

    if model is None:
        raise InputError("--serve needs a model; give its checkpoint folder with --model")
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
            "Rendering does not pay: as text, the document costs less than its pages and the text that a question "
            "retrieves."
        )
    console.print(Text(verdict), soft_wrap=True)
