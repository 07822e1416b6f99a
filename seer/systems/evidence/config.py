"""Settings that all evidence systems have."""

from __future__ import annotations

from pydantic import Field

from seer.schema import Record
from seer.systems.evidence.budget import Budget


class RoleModel(Record):
    """The model that answers the calls of one role in place of the system's own."""

    model: str = ""
    """Its name at the address, or a checkpoint folder."""
    base_url: str = ""
    """Address of an OpenAI-compatible server; empty for a checkpoint in this process."""


class EvidenceConfig(Record):
    """Settings of every evidence system; each system adds its own."""

    budget: Budget = Budget()
    """Limits of one question."""
    roles: dict[str, RoleModel] = {}
    """Other models for some roles, such as a cheaper one for DocLens's "navigator"."""
    max_side_px: int | None = Field(None, ge=28)
    """Longest side of a page image; None keeps the page's size."""
    max_new_tokens: int = Field(2048, ge=16)
    """Limit of one reply (ours)."""
