"""Export for other trainers: LLaMA-Factory, ms-swift and TRL read messages and images.

    OUT/data.jsonl           one conversation a line
    OUT/images/<hash>.png    each page once
    OUT/dataset_info.json    for LLaMA-Factory

Tags of the protocol stand as text, as those trainers want them; what comes from documents and questions is defused, so
that it can spell neither a control token nor an image placeholder. They learn every word of the model's turns alike:
the loss classes of Seer's own trainer are finer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from seer.errors import InputError
from seer.protocol.call import render_call
from seer.protocol.control import CONTROL
from seer.protocol.literals import JOINER, neutralise
from seer.protocol.turns import render_observation
from seer.schema import Trajectory, Turn
from seer.shards.reader import ShardSet
from seer.storage import atomic_file, write_bytes, write_json

Format = Literal["llamafactory", "swift", "trl"]
FORMATS: tuple[Format, ...] = ("llamafactory", "swift", "trl")
TOOL_ROLES: dict[Format, str] = {"llamafactory": "observation", "swift": "tool_response", "trl": "tool"}
_PLACEHOLDER = re.compile(r"<(?=\u2060*(?:image|video|audio)>)")

Messages = list[dict[str, Any]]


def export(shards: ShardSet, out: Path, how: Format) -> int:
    """Write a set for another trainer; returns the number of conversations. Raises InputError where `out` holds one."""
    if (out / "data.jsonl").exists():
        raise InputError(f"'{out}' holds an export already; choose another folder")
    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    with atomic_file(out / "data.jsonl") as file:
        for trajectory in shards:
            record = {"messages": messages(trajectory, how), "images": _write_images(trajectory, images)}
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        if how == "llamafactory":
            write_json(out / "dataset_info.json", _DATASET_INFO)
    return len(shards)


_DATASET_INFO = {
    "seer": {
        "file_name": "data.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages", "images": "images"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
            "observation_tag": "observation",
        },
    }
}


def messages(trajectory: Trajectory, how: Format) -> Messages:
    """The conversation as messages: user, then assistant and tool in turns."""
    told: Messages = []
    said = ""
    for turn in trajectory.turns:
        if turn.kind == "prompt":
            told.append({"role": "user", "content": _prompt(turn, how)})
        elif turn.kind == "call":
            call = f"{CONTROL.open_call}{render_call(turn.pages)}{CONTROL.close_call}"
            told.append(_message("assistant", said + call, how))
            said = ""
        elif turn.kind == "observation":
            told.append(_message(TOOL_ROLES[how], defused(render_observation(turn)), how))
        elif turn.kind == "think":
            said = f"{CONTROL.open_think}{defused(turn.text)}{CONTROL.close_think}"
        else:
            told.append(_message("assistant", (said and f"{said}\n") + defused(turn.text), how))
    return told


def _message(role: str, text: str, how: Format) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if how == "trl" else text}


def _prompt(turn: Turn, how: Format) -> Any:
    question = f"\nQuery: {defused(turn.text)}"
    if how != "trl":
        return "".join(f"[Image {page}]<image>" for page in turn.pages) + question
    parts: list[dict[str, str]] = []
    for page in turn.pages:
        parts += [{"type": "text", "text": f"[Image {page}]"}, {"type": "image"}]
    return [*parts, {"type": "text", "text": question}]


def defused(text: str) -> str:
    """Text that spells neither a control token nor a placeholder; looks unchanged."""
    return _PLACEHOLDER.sub(f"<{JOINER}", neutralise(text))


def _write_images(trajectory: Trajectory, folder: Path) -> list[str]:
    """Paths, relative to the export, of the pages shown. Names are hashes: no text from outside becomes a path."""
    from seer.rendering import png_bytes, render_text

    names = []
    document = render_text(trajectory.source, trajectory.style)
    for page in _shown(trajectory):
        name = f"{document.page(page).content_hash}.png"
        if not (folder / name).exists():
            write_bytes(folder / name, png_bytes(document.page(page).image()))
        names.append(f"images/{name}")
    return names


def _shown(trajectory: Trajectory) -> Iterator[int]:
    return (page for turn in trajectory.turns if turn.kind == "prompt" for page in turn.pages)
