"""`seer cache`: the drawn pages of PDFs that are kept on disk."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seer.cli.command import AsJson, counted
from seer.cli.options import check_choice


def cache(
    action: Annotated[str, typer.Argument(help="info or clear.")],
    as_json: AsJson = False,
) -> None:
    """Show how many pages of PDFs are cached on disk and where, or delete them.

    Example: seer cache info
    """
    from seer.rendering.cache import PageCache

    store = PageCache.default()
    if check_choice("the action", action, ("info", "clear")) == "clear":
        removed = store.clear()
        typer.echo(
            json.dumps({"removed": removed}) if as_json else f"{counted(removed, 'page')} removed from {store.folder}"
        )
        return
    info = store.info()
    record = {"folder": str(info.folder), "pages": info.pages, "bytes": info.bytes, "max_bytes": info.max_bytes}
    megabytes = f"{info.bytes / 2**20:.1f} of {info.max_bytes / 2**20:.0f} MB"
    typer.echo(json.dumps(record) if as_json else f"{counted(info.pages, 'page')}, {megabytes}, in {info.folder}")
