"""Samples, rejections and outcomes as JSON: how they travel between the processes of the Ray runner."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from data_pipeline.records import Evidence, Outcome, Rejection, Sample
from seer.schema import Trajectory
from seer.teaching.relevance import Agreement


def dump_item(item: Sample | Rejection) -> str:
    kind = "sample" if isinstance(item, Sample) else "rejection"
    return json.dumps({"kind": kind, **asdict(item)})


def load_item(text: str) -> Sample | Rejection:
    values = json.loads(text)
    if values.pop("kind") == "rejection":
        return Rejection(**values)
    evidence = values.pop("evidence")
    values["evidence"] = None if evidence is None else tuple(Evidence(**item) for item in evidence)
    values["answers"] = tuple(values["answers"])
    values["segments"] = tuple((start, end) for start, end in values["segments"])
    return Sample(**values)


def dump_outcome(outcome: Outcome) -> str:
    values: dict[str, Any] = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    values["rejection"] = None if outcome.rejection is None else asdict(outcome.rejection)
    values["instead_of"] = None if outcome.instead_of is None else asdict(outcome.instead_of)
    values["agreement"] = None if outcome.agreement is None else asdict(outcome.agreement)
    values["notes"] = dict(outcome.notes)
    values["trajectories"] = {form: told.model_dump(mode="json") for form, told in outcome.trajectories.items()}
    return json.dumps(values)


def load_outcome(text: str) -> Outcome:
    values = json.loads(text)
    values["rejection"] = None if values["rejection"] is None else Rejection(**values["rejection"])
    values["instead_of"] = None if values["instead_of"] is None else Rejection(**values["instead_of"])
    values["agreement"] = None if values["agreement"] is None else Agreement(**values["agreement"])
    values["trajectories"] = {form: Trajectory.model_validate(told) for form, told in values["trajectories"].items()}
    return Outcome(**values)
