"""Export sets as messages and images for LLaMA-Factory, ms-swift and TRL.

    OUT/data.jsonl           one conversation per line
    OUT/images/<hash>.png    each page once
    OUT/dataset_info.json    for LLaMA-Factory only

The protocol's tags are written as plain text, as these trainers expect. Text from documents and questions is escaped, so
it cannot spell a control token or an image placeholder. These trainers weight every token of the model's turns equally;
Seer's own trainer distinguishes loss classes.
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
    """Write a set for another trainer and return the number of conversations.

    data.jsonl is renamed into place last, so an interrupted export can be repeated. Raises InputError if `out` already
    holds a finished export.
    """
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
    """Convert a conversation to messages: user first, then assistant and tool alternate."""
    converted: Messages = []
    # A thought has no separate message: it opens the assistant message of the call or answer that follows.
    thought = ""
    for turn in trajectory.turns:
        if turn.kind == "prompt":
            converted.append({"role": "user", "content": _prompt(turn, how)})
        elif turn.kind == "call":
            call = f"{CONTROL.open_call}{render_call(turn.pages)}{CONTROL.close_call}"
            converted.append(_message("assistant", thought + call, how))
            thought = ""
        elif turn.kind == "observation":
            converted.append(_message(TOOL_ROLES[how], escape_tokens(render_observation(turn)), how))
        elif turn.kind == "think":
            thought = f"{CONTROL.open_think}{escape_tokens(turn.text)}{CONTROL.close_think}"
        else:
            converted.append(_message("assistant", (thought and f"{thought}\n") + escape_tokens(turn.text), how))
    return converted


def _message(role: str, text: str, how: Format) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}] if how == "trl" else text}


def _prompt(turn: Turn, how: Format) -> Any:
    question = f"\nQuery: {escape_tokens(turn.text)}"
    if how != "trl":
        return "".join(f"[Image {page}]<image>" for page in turn.pages) + question
    parts: list[dict[str, str]] = []
    for page in turn.pages:
        parts += [{"type": "text", "text": f"[Image {page}]"}, {"type": "image"}]
    return [*parts, {"type": "text", "text": question}]


def escape_tokens(text: str) -> str:
    """Insert invisible word joiners so that the text spells neither a control token nor a media placeholder."""
    return _PLACEHOLDER.sub(f"<{JOINER}", neutralise(text))


def _write_images(trajectory: Trajectory, folder: Path) -> list[str]:
    """Write the pages in the prompt and return their paths relative to the export.

    File names are content hashes, so no untrusted text becomes part of a path.
    """
    from seer.rendering import png_bytes, render_text

    names = []
    document = render_text(trajectory.source, trajectory.style)
    for page in _prompt_pages(trajectory):
        name = f"{document.page(page).content_hash}.png"
        if not (folder / name).exists():
            write_bytes(folder / name, png_bytes(document.page(page).image()))
        names.append(f"images/{name}")
    return names


def _prompt_pages(trajectory: Trajectory) -> Iterator[int]:
    return (page for turn in trajectory.turns if turn.kind == "prompt" for page in turn.pages)
