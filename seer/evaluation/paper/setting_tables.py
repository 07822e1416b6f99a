"""Tables that hold no results: the architecture, the special tokens, the data's retention, the training settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seer.evaluation.paper import published
from seer.evaluation.paper.loaded import NOT_RUN, Loaded
from seer.protocol.control import CONTROL
from seer.web.tables import Section, Table, columns, row

_ARCHITECTURE = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
    *("vocab_size", "max_position_embeddings", "depth", "patch_size", "num_heads"),
)
TRAINING_NAME = "config.toml"
_TRAINING = ("steps", "seed", "optimizer", "batching", "loss")
"""Parts of a training configuration that table 9 shows."""


def architecture(loaded: Loaded) -> Section:
    """Return table 5: the sizes in the checkpoint's config.json."""
    title = "Table 5: architecture"
    folder = _checkpoint(loaded)
    if folder is None:
        return Section(title, _no_checkpoint(loaded))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows = [row(name, str(value)) for name, value in _leaves(config) if name.rpartition(".")[2] in _ARCHITECTURE]
    return Section(title, "", [Table("Sizes", columns("setting", "value"), rows, f"From {folder}/config.json.")])


def special_tokens(loaded: Loaded) -> Section:
    """Return table 6: the special tokens and their ids."""
    from seer.models.checkpoint import load_encoder

    title = "Table 6: special tokens"
    folder = _checkpoint(loaded)
    if folder is None:
        return Section(title, _no_checkpoint(loaded))
    encoder = load_encoder(folder)[0]
    rows = [row(name, encoder.control(name)) for name in CONTROL.names()]
    note = f"From {folder}/tokenizer.json. The paper's ids, such as 151353 for </tool_call>, are those of Glyph's tokenizer."
    return Section(title, "", [Table("Special tokens", columns("token", "id"), rows, note)])


def retention(loaded: Loaded, *, by_source: bool) -> Section:
    """Return table 7, or table 8 (`by_source`): samples at each stage of the data build."""
    title = "Table 8: retention by source" if by_source else "Table 7: retention"
    sources: Mapping[str, Any] = loaded.statistics.get("sources", {})
    if not sources:
        where = loaded.models.build
        reason = f"'{where}' has no stats.json with sources" if where else "models.toml names no data build"
        return Section(title, f"{NOT_RUN}: {reason}. `seer-data build` writes the figures.")
    stages = list(next(iter(sources.values()))["retention"])
    heads = columns("source", *stages)
    rows = [row(name, *(one["retention"].get(stage, 0) for stage in stages)) for name, one in sources.items()]
    total = row(
        "all", *(sum(one["retention"].get(stage, 0) for one in sources.values()) for stage in stages), kind="total"
    )
    shown = [*rows, total] if by_source else [total]
    if not by_source and loaded.is_longbench:
        padding = [None] * (len(stages) - 1)
        shown += [row(name, *padding, number, kind="paper") for name, number in published.RETENTION]
    return Section(title, "", [Table("Samples at each stage", heads, shown, f"From {loaded.models.build}.")])


def training_settings(loaded: Loaded) -> Section:
    """Return table 9: the settings in the configuration that the trainer wrote beside the checkpoint."""
    title = "Table 9: training"
    folder = _checkpoint(loaded)
    found = [one / TRAINING_NAME for one in (folder, folder.parent)] if folder else []
    path = next((one for one in found if one.is_file()), None)
    if path is None:
        reason = f"no {TRAINING_NAME} of the trainer beside '{folder}'" if folder else _no_checkpoint(loaded)
        return Section(title, f"{NOT_RUN}: {reason}" if folder else reason)
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = [row(name, str(value)) for name, value in _leaves({key: config[key] for key in _TRAINING if key in config})]
    note = f"From {path}. The paper: 6,000 steps, learning rate 3e-6, batch 2, 16,384 tokens; it gives no loss weights."
    return Section(title, "", [Table("Training settings", columns("setting", "value"), rows, note)])


def _checkpoint(loaded: Loaded) -> Path | None:
    """Return the folder of Seer's checkpoint; None if it is not on this machine."""
    served = loaded.models.seer
    folder = Path(served.model) if served and served.model else None
    return folder if folder and (folder / "config.json").is_file() else None


def _no_checkpoint(loaded: Loaded) -> str:
    served = loaded.models.seer
    named = f"'{served.model}' is not a checkpoint folder here" if served else "models.toml names no [seer]"
    return f"{NOT_RUN}: {named}; name a local copy to show this table."


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of a nested mapping."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
