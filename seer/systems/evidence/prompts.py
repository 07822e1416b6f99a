"""Prompts of the evidence systems: versioned text files with named places.

    fill_prompt("doclens-navigator.v1", question=question, pages=12)

A place is written `{{name}}`. Values are inserted once and never searched for places, so a question that holds `{{...}}`
stays as it is.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")


def fill_prompt(name: str, **values: object) -> str:
    """Return the text of a prompt file with its places filled.

    Raises ValueError if the values and the places of the file differ.
    """
    text = _read(name)
    places = set(_PLACE.findall(text))
    if places != set(values):
        raise ValueError(f"prompt '{name}' has the places {sorted(places)}, and values came for {sorted(values)}")
    return _PLACE.sub(lambda place: str(values[place[1]]), text)


@cache
def _read(name: str) -> str:
    """Return the text of a prompt file without the newline at its end."""
    return resources.files("seer.data.prompts").joinpath(f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")
