"""The README of an exported model: where it comes from, how it was trained, what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train.config import TrainConfig


def model_card(
    config: TrainConfig, data: str, sets: Sequence[tuple[str, int]], steps: int, figures: Mapping[str, Any]
) -> str:
    """`data`: digest of the training data. `sets`: name and size of each. `figures`: what the last records hold."""
    import tomli_w

    resolved = tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))
    measured = "\n".join(
        f"| {name} | {value:.6g} |" for name, value in figures.items() if isinstance(value, int | float)
    )
    listed = "\n".join(f"- `{name}`: {size} trajectories" for name, size in sets)
    anew = " (weights drawn anew)" if config.model.from_nothing else ""
    return f"""---
library_name: transformers
pipeline_tag: image-text-to-text
---
# A Seer model

Trained with `seer-train` from `{config.model.path}`{anew}: it looks over page images,
selects pages by a tool call, reads their exact text and answers.

    seer ask FILE "question" --model FOLDER

## Data

Digest `{data}`, {steps} steps.

{listed}

## Measured

| figure | value |
|---|---|
{measured or "| none | |"}

## Configuration

```toml
{resolved}```
"""
