"""Reader for JSON-lines files written by people and other programs; every error names the file and the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seer.errors import InputError


def read_json_lines(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a file together with its location, such as `'labels.jsonl', line 3`. Skips empty lines.

    Raises InputError if the file does not exist, cannot be read as UTF-8, or has a line that is not a JSON object.
    """
    try:
        # A byte-order mark at the start is dropped; spreadsheets and some editors write one.
        # Split at "\n" only: a text may contain other line separators, such as U+2028, unescaped.
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except FileNotFoundError:
        raise InputError(f"no file at '{path}'; give the path of a file of JSON lines") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read: {error}; give a UTF-8 file") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"'{path}', line {number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not JSON ({error}); correct or remove the line") from None
        if not isinstance(fields, dict):
            raise InputError(f"{place}: a JSON object was expected, not {line[:40]!r}")
        yield place, fields
