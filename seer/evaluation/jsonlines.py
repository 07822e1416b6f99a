"""Reading JSON lines that people and other programs wrote: every fault is named with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seer.errors import InputError


def read_json_lines(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of a file, behind its place in words ("'labels.jsonl', line 3"). Empty lines are passed over.

    Raises InputError: no such file, not readable, not UTF-8, a line that is no JSON object.
    """
    try:
        # Split at "\n" alone: a text may hold other line separators, such as U+2028, unescaped.
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise InputError(f"no file at '{path}'; give the path of a file of JSON lines") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"'{path}', line {number}"
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not JSON ({error}); was writing it interrupted?") from None
        if not isinstance(fields, dict):
            raise InputError(f"{place}: a JSON object was expected, not {line[:40]!r}")
        yield place, fields
