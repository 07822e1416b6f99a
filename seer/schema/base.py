"""The base of every record: frozen, validated at construction, with unknown keys rejected."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Record(BaseModel):
    """A frozen record that rejects unknown keys and names the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = cls.__pydantic_fields__  # model_fields would be computed for every record
            for key in data:
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, n=1)
                    hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
                    raise ValueError(f"unknown key '{key}' in {cls.__name__}; {hint}")
        return data
