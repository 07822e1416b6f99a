"""Is this checkpoint fit for Seer? Each check looks at one thing that goes wrong in practice and says what it found.

    for check in check_model("path/to/checkpoint"):
        print(check.ok, check.name, check.detail)

Most checks need no weights; `weights=True` also loads the model and compares positions with transformers'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seer.errors import SeerError
from seer.models.checkpoint import check_folder, load, load_encoder, read_json
from seer.protocol.control import CONTROL, KNOWN_CONTROL_LITERALS
from seer.protocol.encoding import Encoder
from seer.schema import Turn

SIZES = {1: (595, 842), 2: (588, 840), 3: (300, 100)}
QUESTION = "Which page?"
PROMPT = Turn(kind="prompt", text=QUESTION, pages=tuple(SIZES))


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str


def check_model(path: str | Path, *, weights: bool = False) -> Iterator[Check]:
    """Run every check, in order of what the later ones need. Stops where a checkpoint cannot be read at all."""
    try:
        folder = check_folder(path)
        yield Check("folder", True, "configuration, tokenizer, processor settings and weights are there")
        encoder, tokenizer, _ = load_encoder(folder)
    except SeerError as error:
        yield Check("folder", False, str(error))
        return
    ids = ", ".join(f"{name}={token_id}" for name, token_id in encoder.control_ids.items())
    yield Check("control tokens", True, f"each a single token: {ids}")
    checks: list[tuple[str, Callable[[], str]]] = [
        ("configuration", lambda: _configuration(folder, encoder)),
        ("stop tokens", lambda: _stop_tokens(folder, encoder)),
        ("plain text", lambda: _plain_text(encoder)),
        ("chat template", lambda: _chat_template(tokenizer)),
        ("processor", lambda: _processor(folder, encoder)),
    ]
    if weights:
        checks.append(("positions", lambda: _positions(folder)))
    for name, look in checks:
        try:
            yield Check(name, True, look())
        except (_Unfit, SeerError, OSError, ValueError, KeyError, TypeError, ImportError) as error:
            yield Check(name, False, str(error) or type(error).__name__)


class _Unfit(Exception):
    """A check that found something wrong."""


def _configuration(folder: Path, encoder: Encoder) -> str:
    config = read_json(folder / "config.json")
    expected = {
        "image_token_id": CONTROL.image,
        "image_start_token_id": CONTROL.begin_image,
        "image_end_token_id": CONTROL.end_image,
    }
    for key, name in expected.items():
        if config.get(key) != encoder.control(name):
            found = f"config.json says {key}={config.get(key)}"
            raise _Unfit(f"{found}, but the tokenizer's {name} is {encoder.control(name)}")
    text = config.get("text_config", config)
    head, width = text.get("head_dim"), text.get("hidden_size", 0) // max(1, text.get("num_attention_heads", 1))
    if head is not None and head != width:
        raise _Unfit(
            f"text_config.head_dim is {head}, hidden_size / heads is {width}: transformers ignores head_dim and vLLM does "
            "not, so the two would disagree; remove head_dim"
        )
    return f"{config.get('model_type', 'unknown')}, image tokens agree with the tokenizer"


def _stop_tokens(folder: Path, encoder: Encoder) -> str:
    path = folder / "generation_config.json"
    eos = read_json(path).get("eos_token_id") if path.is_file() else None
    stops = [eos] if isinstance(eos, int) else list(eos or [])
    if encoder.control(CONTROL.observation) in stops:
        raise _Unfit(
            f"generation_config.json stops at {CONTROL.observation} ({encoder.control(CONTROL.observation)}): the model must "
            f"go on after the tool has spoken; set eos_token_id to {list(encoder.stop_ids)}"
        )
    if encoder.control(CONTROL.user) not in stops:
        raise _Unfit(
            f"generation_config.json does not stop at {CONTROL.user}; set eos_token_id to {list(encoder.stop_ids)}"
        )
    return f"eos_token_id {stops}"


def _plain_text(encoder: Encoder) -> str:
    for literal in (*KNOWN_CONTROL_LITERALS, "".join(KNOWN_CONTROL_LITERALS)):
        ids = encoder.encode_text(f"a {literal} b")
        if encoder.added_ids & set(ids):
            raise _Unfit(f"the text '{literal}' becomes a control token")
        if encoder.decode(ids) != f"a {literal} b":
            raise _Unfit(f"the text 'a {literal} b' comes back as {encoder.decode(ids)!r}")
    return f"{len(KNOWN_CONTROL_LITERALS)} control spellings stay text and come back unchanged"


def _messages() -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for page in SIZES:
        content += [{"type": "text", "text": f"[Image {page}]"}, {"type": "image"}]
    return [{"role": "user", "content": [*content, {"type": "text", "text": f"\nQuery: {QUESTION}"}]}]


def _chat_template(tokenizer: Any) -> str:
    text = tokenizer.apply_chat_template(_messages(), add_generation_prompt=True, tokenize=False)
    image = f"{CONTROL.begin_image}{CONTROL.image}{CONTROL.end_image}"
    labels = "".join(f"[Image {page}]{image}" for page in SIZES)
    expected = f"{CONTROL.mask}{CONTROL.start}{CONTROL.user}\n{labels}\nQuery: {QUESTION}{CONTROL.assistant}\n"
    if text != expected:
        raise _Unfit(
            f"the template renders a three-image chat as {text!r} where Seer's prompt is {expected!r}; Seer's own engines do "
            "not use the template, but a stock server would: save the checkpoint again with seer.models.checkpoint.save"
        )
    spoken = [
        *_messages(),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "select", "arguments": {"indices": [1]}}}],
        },
        {"role": "tool", "content": "Text from image 1: x"},
    ]
    text = tokenizer.apply_chat_template(spoken, add_generation_prompt=True, tokenize=False)
    if "Text from image 1" not in text or text.count(CONTROL.assistant) != 1:
        raise _Unfit(
            "the template loses tool calls or observations; save the checkpoint again with seer.models.checkpoint.save"
        )
    return "images interleaved with their labels; tool calls and observations kept"


def _processor(folder: Path, encoder: Encoder) -> str:
    from PIL import Image
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    text = processor.apply_chat_template(_messages(), add_generation_prompt=True, tokenize=False)
    images = [Image.new("L", size, 255) for size in SIZES.values()]
    theirs = processor(text=[text], images=images, return_tensors="np")
    ours = encoder.encode([PROMPT], SIZES)
    if "mm_token_type_ids" not in theirs:
        raise _Unfit("the processor gives no mm_token_type_ids; the model's positions would be those of plain text")
    counted = [int(np.prod(grid)) // encoder.geometry.merge**2 for grid in theirs["image_grid_thw"]]
    predicted = [slot.tokens for slot in ours.slots]
    if counted != predicted:
        raise _Unfit(
            f"the processor makes {counted} tokens of pages of {list(SIZES.values())} px, geometry says {predicted}"
        )
    if not np.array_equal(theirs["input_ids"][0], ours.ids):
        raise _Unfit("the processor's ids differ from Seer's for the same prompt")
    return f"placeholders {counted} as geometry predicts; ids equal to Seer's; mm_token_type_ids present"


def _positions(folder: Path) -> str:
    import torch

    checkpoint = load(folder)
    encoded = checkpoint.encoder.encode([PROMPT], SIZES)
    expected, _ = checkpoint.model.model.get_rope_index(
        torch.from_numpy(encoded.ids.astype(np.int64))[None],
        torch.from_numpy(encoded.mm_token_type_ids())[None],
        image_grid_thw=torch.from_numpy(encoded.grid_thw()),
    )
    if not np.array_equal(encoded.positions(), expected[:, 0].numpy()):
        raise _Unfit("M-RoPE positions of a three-image prompt differ from transformers' get_rope_index")
    return f"M-RoPE ids of a three-image prompt ({len(encoded)} tokens) equal get_rope_index"
