"""A small benchmark in LongBench's form, and models.toml with scripted engines in place of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

MODELS = """
style = "seer"
labels = "{labels}"
prefill_pages = [1, 2]
prefill_repetitions = 1
[seer]
engine = "scripted"
[glyph]
engine = "scripted"
[text.plain]
engine = "scripted"
thinks = false
[foreign.rlm]
path = "{foreign}"
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three records of each of two tasks; the first line of each document is the answer."""
    folder = tmp_path / "data"
    folder.mkdir()
    for task in ("hotpotqa", "qasper"):
        lines = [
            {"_id": f"{task}-{n}", "input": f"Who found {n}?", "context": f"Digger {n}\nfound {task} {n}.\n" * 3,
             "answers": [f"Digger {n}"], "length": 5, "all_classes": None}
            for n in range(3)
        ]  # fmt: skip
        (folder / f"{task}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def models_path(tmp_path: Path) -> Path:
    """models.toml with labels and foreign predictions that exist, and without [iso]."""
    labels = tmp_path / "labels.jsonl"
    ids = [f"{task}-{n}" for task in ("hotpotqa", "qasper") for n in range(3)]
    labels.write_text("".join(json.dumps({"id": one, "pages": [1]}) + "\n" for one in ids))
    foreign = tmp_path / "rlm"
    foreign.mkdir()
    for task in ("hotpotqa", "qasper"):
        rows = [{"pred": "Digger 0", "answers": [f"Digger {n}"], "all_classes": None, "length": 5} for n in range(3)]
        (foreign / f"{task}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "models.toml"
    path.write_text(MODELS.format(labels=labels, foreign=foreign))
    return path
