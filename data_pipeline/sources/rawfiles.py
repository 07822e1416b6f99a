"""Read rows from JSON, JSON Lines and Parquet files and from saved or hub datasets.

A broken row becomes a `Rejection` and reading continues; a file that is unreadable as a whole raises an error.

    for row in read_rows("train.jsonl", max_bytes=32 << 20):
        row                      # a dict, or a Rejection
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from data_pipeline.records import Rejection
from seer.errors import DocumentNotFound, InputError

HUB_PREFIX = "hub:"
Row = Mapping[str, Any]


def read_rows(
    path: str, *, split: str = "", hub_config: str = "", max_bytes: int = 32 << 20
) -> Iterator[Row | Rejection]:
    """Yield every row of a file, of all data files in a folder (in name order), or of a dataset.

    Args:
        path: A file, a folder, a dataset saved by `datasets`, or hub:owner/name, which `datasets` streams.
        split: Skip files of a folder whose names state another split.
        hub_config: Configuration name of a hub dataset.
        max_bytes: Longer lines of JSON Lines files become rejections and are never held in memory.

    Raises DocumentNotFound if the path does not exist; InputError if a file has an unknown type or is unreadable, or a
    folder has only files of other splits.
    """
    if path.startswith(HUB_PREFIX):
        yield from _hub_rows(path.removeprefix(HUB_PREFIX), split, hub_config)
        return
    place = Path(path)
    if not place.exists():
        raise DocumentNotFound(
            f"no data at '{path}'; pass a .jsonl, .json or .parquet file, a folder of them, or hub:owner/name"
        )
    if (place.is_dir() and (place / "dataset_info.json").exists()) or (place / "dataset_dict.json").exists():
        yield from _saved_rows(place, split)
        return
    for file in _files_in(place, split) if place.is_dir() else [place]:
        if file.suffix not in _READERS:
            raise InputError(f"'{file}' has an unsupported file type; supported: {', '.join(_READERS)}")
        yield from _READERS[file.suffix](file, max_bytes)


def _files_in(folder: Path, split: str) -> list[Path]:
    """Return the data files of a folder without those of other splits: a downloaded set has all splits in one folder."""
    candidates = sorted(file for file in folder.rglob("*") if file.suffix in _READERS)
    if not candidates:
        raise InputError(f"'{folder}' holds no .jsonl, .json or .parquet file; give a folder that does")
    wanted = ("", _canonical_split(split))
    files = [file for file in candidates if not split or _split_of(file.relative_to(folder)) in wanted]
    if not files:
        raise InputError(
            f"'{folder}' holds only files of other splits than '{split}', e.g. '{candidates[0].name}'; give that split's"
        )
    return files


def _split_of(place: Path) -> str:
    """Return the split named by a file, or else by its nearest folder; "" if no part of the path names one."""
    return _canonical_split(next(filter(None, map(split_in_name, reversed(place.parts))), ""))


def split_in_name(path: str) -> str:
    """Return the split that the last part of a path names, or "" if it names none."""
    name = Path(path.removeprefix(HUB_PREFIX)).name.lower()
    found = re.findall(r"(?<![a-z])(train|dev|validation|valid|val|test)(?![a-z])", name)
    return found[0] if found else ""


def _canonical_split(split: str) -> str:
    return "validation" if split in ("dev", "valid", "val") else split


def _jsonl_rows(path: Path, max_bytes: int) -> Iterator[Row | Rejection]:
    with path.open("rb") as file:
        for number, line in enumerate(_bounded_lines(file, max_bytes), 1):
            where = f"line {number}"
            if line is None:
                yield Rejection("too_large", f"{where} has more than {max_bytes} bytes", id=where)
            elif line.strip():
                value = _parse_line(line, where)
                # Some files hold all records in one line, e.g. TriviaQA's {"Data": [...]}.
                yield from [value] if isinstance(value, Rejection) else records_of(value, where)


def _bounded_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """Yield the lines of a file, and None in place of a line longer than `max_bytes`, which is skipped in chunks."""
    while line := file.readline(max_bytes + 1):
        if len(line) <= max_bytes or line.endswith(b"\n"):
            yield line
            continue
        # The line is longer: read and drop the rest in chunks.
        while rest := file.readline(1 << 20):
            if rest.endswith(b"\n"):
                break
        yield None


def _parse_line(line: bytes, where: str) -> Row | Rejection:
    try:
        text = line.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        return Rejection("not_utf8", f"{where}: byte 0x{error.object[error.start]:02x} at {error.start}", id=where)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Rejection("broken_json", f"{where}: {error}", id=where)
    if not isinstance(value, dict):
        return Rejection("broken_json", f"{where}: {type(value).__name__} where an object is required", id=where)
    return value


def _json_rows(path: Path, max_bytes: int) -> Iterator[Row | Rejection]:
    """Yield the records of a JSON file. A file that turns out to hold JSON Lines is read as such."""
    if _holds_json_lines(path, max_bytes):
        yield from _jsonl_rows(path, max_bytes)
        return
    data = path.read_bytes()
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{path}' is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; convert it to UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        # Some published .json files hold one object per line.
        if data.count(b"\n") > 1 and data.lstrip()[:1] == b"{":
            yield from _jsonl_rows(path, max_bytes)
            return
        raise InputError(f"'{path}' is not JSON: {error}; correct it or download it again") from None
    yield from records_of(value, str(path))


def _holds_json_lines(path: Path, max_bytes: int) -> bool:
    """Return whether the first line is a whole object and more follows: such files may be too large to load at once."""
    with path.open("rb") as file:
        line = file.readline(max_bytes + 1)
        if not line.endswith(b"\n") or not file.read(1):
            return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def records_of(value: Any, where: str) -> Iterator[Row | Rejection]:
    """Yield the records of a JSON value: a list, TriviaQA's {"Data": [...]}, Qasper's {id: record}, or one record.

    Raises InputError if the value has another shape. `where` names it in messages.
    """
    if isinstance(value, dict) and isinstance(value.get("Data"), list):
        value = value["Data"]
    elif isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
        value = [{"id": key, **item} for key, item in value.items()]
    elif isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise InputError(f"'{where}' holds {type(value).__name__}; a list or an object of records is required")
    for number, item in enumerate(value, 1):
        if isinstance(item, dict):
            yield item
        else:
            yield Rejection("broken_json", f"record {number} is {type(item).__name__}", id=f"record {number}")


def _parquet_rows(path: Path, max_bytes: int) -> Iterator[Row | Rejection]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            # Small batches bound memory: one row may hold a whole book.
            for batch in file.iter_batches(batch_size=64):
                yield from batch.to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"'{path}' is not readable Parquet: {error}; download it again") from None


def _hub_rows(name: str, split: str, hub_config: str) -> Iterator[Row]:
    from datasets import load_dataset

    yield from load_dataset(name, hub_config or None, split=split or "train", streaming=True)


def _saved_rows(folder: Path, split: str) -> Iterator[Row]:
    """Yield the rows of a dataset that `datasets` saved to disk: one split, or all splits in name order."""
    from datasets import DatasetDict, load_from_disk

    dataset = load_from_disk(str(folder))
    if not isinstance(dataset, DatasetDict):
        yield from dataset
        return
    if split and split not in dataset:
        raise InputError(f"'{folder}' has no split '{split}'; it has {', '.join(dataset)}")
    for name in [split] if split else sorted(dataset):
        yield from dataset[name]


_READERS = {".jsonl": _jsonl_rows, ".ndjson": _jsonl_rows, ".json": _json_rows, ".parquet": _parquet_rows}
