"""A JSON object out of a free reply, for engines that cannot hold a model to a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_BEGIN = re.compile(r'\{(?=\s*["}])')
_MAX_PASSES = 16
"""A hostile reply may hold many beginnings of objects that never end. They are read this often the length at most."""


def read_json(text: str, schema: str | Mapping[str, Any] = "{}") -> str | None:
    """The last JSON object in the text that fits the schema's required keys and top-level types, or None.

    The object may be inside prose or a code fence. Values below the top level are not validated. The result is a piece
    of `text`, so numbers keep their spelling.
    """
    rules = json.loads(schema) if isinstance(schema, str) else schema
    decoder = json.JSONDecoder()
    found: str | None = None
    begin, left = _BEGIN.search(text), _MAX_PASSES * len(text)
    while begin is not None and left > 0:
        start, end = begin.start(), begin.start() + 1
        try:
            value, end = decoder.raw_decode(text, start)
            left -= end - start
            if _fits(value, rules):
                found = text[start:end]
        except json.JSONDecodeError as error:
            # The error counts the lines before its position, about a hundred times as fast as parsing.
            left -= error.pos - start + error.pos // 100
        except (ValueError, RecursionError):  # an integer with too many digits, or too many levels
            left -= len(text)
        begin = _BEGIN.search(text, end)
    return found


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the required keys are there, and the top-level values have the types of the schema."""
    required, properties = schema.get("required"), schema.get("properties")
    if not isinstance(value, dict) or not all(key in value for key in required or ()):
        return False
    rules = properties if isinstance(properties, Mapping) else {}
    return all(
        _has_type(item, rules[key].get("type")) for key, item in value.items() if isinstance(rules.get(key), dict)
    )


def _has_type(value: Any, name: Any) -> bool:
    """Whether a value has a JSON schema type. A list of types, or an unknown one, is not checked."""
    if not isinstance(name, str) or name not in _TYPES:
        return True
    # True is an int in Python, but not in JSON
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
