"""Readers of published downloads that are more than one file of rows: GovReport's folder and NarrativeQA's tables.

Names that come from a download, such as the ids in a split list, are untrusted: a file is read only inside its folder.
"""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from data_pipeline.records import Rejection
from data_pipeline.sources.rawfiles import Row, read_rows
from seer.errors import DocumentNotFound, InputError

MAX_CSV_FIELD_CHARS = 16 << 20


def read_inside(folder: str, name: str) -> str:
    """Return the text of a file inside `folder`, or "" if it does not exist or `name` leads outside the folder.

    `name` is untrusted: it comes from the rows of a source.
    """
    if not folder or not name:
        return ""
    root = Path(folder).resolve()
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            return ""
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


# ── GovReport ────────────────────────────────────────────────────────────────────────────────────

_REPORT_TYPES = ("crs", "gao")
_SPLIT_LISTS = "split_ids"


def gov_report_rows(
    path: str, *, split: str = "", hub_config: str = "", max_bytes: int = 32 << 20
) -> Iterator[Row | Rejection]:
    """Yield the reports of one split of the official download; takes the arguments of `read_rows`.

    The download has one JSON file for each report, `gao/ID.json` and `crs/ID.json`, and the ids of a split in
    `split_ids/gao_train.ids` and so on. Any other path is read as rows.

    Raises InputError if the folder has reports but no list of the split, and what `read_rows` raises.
    """
    folder = Path(path)
    if not any((folder / name).is_dir() for name in _REPORT_TYPES):
        yield from read_rows(path, split=split, hub_config=hub_config, max_bytes=max_bytes)
        return
    wanted = {"validation": "valid", "val": "valid", "dev": "valid"}.get(split, split)
    lists = [(name, folder / _SPLIT_LISTS / f"{name}_{wanted}.ids") for name in _REPORT_TYPES]
    if not any(file.is_file() for _, file in lists):
        names = " or ".join(f"{_SPLIT_LISTS}/{file.name}" for _, file in lists)
        raise InputError(
            f"'{path}' holds reports of all splits and no {names}; copy {_SPLIT_LISTS}/ of the download there"
        )
    for name, file in lists:
        for report_id in file.read_text(encoding="utf-8").split() if file.is_file() else ():
            yield _report(path, f"{name}/{report_id}.json", report_id)


def _report(folder: str, name: str, report_id: str) -> Row | Rejection:
    text = read_inside(folder, name)
    if not text:
        return Rejection("missing_text", f"the split list names '{name}', which is not in '{folder}'", id=report_id)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Rejection("broken_json", f"{name}: {error}", id=report_id)
    if not isinstance(value, dict):
        return Rejection("broken_json", f"{name}: {type(value).__name__} where an object is required", id=report_id)
    return {**value, "id": report_id}


# ── NarrativeQA ──────────────────────────────────────────────────────────────────────────────────


def narrativeqa_rows(
    path: str, *, split: str = "", hub_config: str = "", max_bytes: int = 32 << 20
) -> Iterator[Row | Rejection]:
    """Yield the rows of the official qaps.csv; takes the arguments of `read_rows`, which reads any other file.

    Raises DocumentNotFound if the file does not exist, and what `read_rows` raises.
    """
    if path.endswith(".csv"):
        yield from _csv_rows(path, "pass the official qaps.csv")
    else:
        yield from read_rows(path, split=split, hub_config=hub_config, max_bytes=max_bytes)


def _csv_rows(path: str, remedy: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_CSV_FIELD_CHARS)
    try:
        with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
            yield from csv.DictReader(file)
    except FileNotFoundError:
        raise DocumentNotFound(f"no data at '{path}'; {remedy}") from None
    except csv.Error as error:
        raise InputError(f"'{path}' is not CSV: {error}; {remedy}") from None


def story_text(texts: str, document_id: str) -> str:
    """Return the text of a NarrativeQA document, or "" if it is missing.

    `texts` is the folder of downloaded stories (ID.content or ID.txt), or the official summaries.csv: a question can be
    answered from the whole story or from its summary. Film scripts are published as HTML, whose text is returned.

    Raises DocumentNotFound or InputError if summaries.csv cannot be read.
    """
    if texts.endswith(".csv"):
        return _summaries(texts).get(document_id, "")
    return _story(texts, document_id)


@functools.lru_cache(maxsize=2)
def _summaries(path: str) -> dict[str, str]:
    rows = _csv_rows(path, "pass the official summaries.csv")
    return {row.get("document_id") or "": row.get("summary") or "" for row in rows}


@functools.lru_cache(maxsize=2)
def _story(folder: str, document_id: str) -> str:
    """Read a story. Rows of the same story are adjacent, so a cache of two reads each story once."""
    text = read_inside(folder, f"{document_id}.content") or read_inside(folder, f"{document_id}.txt")
    if re.search(r"<(?:!doctype|html|body|pre)\b", text[:4000], re.I):
        from seer.rendering.formats.markup.html import html_text

        return html_text(text)
    return text
