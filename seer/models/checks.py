"""Checks whether a checkpoint works with Seer. Each check covers one fault that occurs in practice.

    for check in check_model("path/to/checkpoint"):
        print(check.status, check.name, check.detail)

A check fails only if Seer cannot use the checkpoint. A stock checkpoint of the family, which Seer did not save, has another
chat template and other stop tokens. Seer's engines supply both themselves, so these checks pass with a note for other
programs.

Most checks need no weights. `weights=True` also loads the model and compares its positions with those of transformers.
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

_SIZES = {1: (595, 842), 2: (588, 840), 3: (300, 100)}
"""(width, height) in pixels: the paper's page, the same on the grid of 28 px, and a small one off the grid."""
_QUESTION = "Which page?"
_PROMPT = Turn(kind="prompt", text=_QUESTION, pages=tuple(_SIZES))


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    """What was found, and what to change if the check failed or has a note."""
    note: bool = False
    """Seer supplies itself what the checkpoint lacks. Another program that uses the folder may need a change."""

    @property
    def status(self) -> str:
        """`ok`, `note` or `FAIL`."""
        return "FAIL" if not self.ok else "note" if self.note else "ok"


def check_model(path: str | Path, *, weights: bool = False) -> Iterator[Check]:
    """Run all checks and yield their results; stop after the first one if the checkpoint cannot be read at all.

    weights: also load the model and compare positions.
    """
    try:
        folder = check_folder(path)
        yield Check("folder", True, "configuration, tokenizer, processor settings and weights are present")
    except SeerError as error:
        yield Check("folder", False, str(error))
        return
    try:
        encoder, tokenizer, _ = load_encoder(folder)
    except SeerError as error:
        yield Check("encoder", False, str(error))
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
    for name, check in checks:
        try:
            yield Check(name, True, check())
        except _Supplied as error:
            yield Check(name, True, str(error), note=True)
        # A broken file can raise any of these; the other checks still run.
        except (_Unfit, SeerError, OSError, ValueError, KeyError, TypeError, ImportError) as error:
            yield Check(name, False, str(error) or type(error).__name__)


class _Unfit(Exception):
    """Raised inside a check that found a fault."""


class _Supplied(Exception):
    """Raised inside a check that found something missing or different which Seer supplies itself."""


def _configuration(folder: Path, encoder: Encoder) -> str:
    """Compare image token ids with the tokenizer, and head_dim with the hidden size."""
    from transformers import Glm4vConfig

    config, defaults = read_json(folder / "config.json"), Glm4vConfig()
    expected = {
        "image_token_id": CONTROL.image,
        "image_start_token_id": CONTROL.begin_image,
        "image_end_token_id": CONTROL.end_image,
    }
    for key, name in expected.items():
        # transformers uses the ids of the large models for keys that a stock configuration does not have.
        value = config.get(key, getattr(defaults, key))
        if value != encoder.control(name):
            raise _Unfit(
                f"config.json has {key}={value}, but the tokenizer's {name} is {encoder.control(name)}; set it to "
                "the tokenizer's id"
            )
    text = config.get("text_config", config)
    head, width = text.get("head_dim"), text.get("hidden_size", 0) // max(1, text.get("num_attention_heads", 1))
    if head is not None and head != width:
        raise _Unfit(
            f"text_config.head_dim is {head}, but hidden_size / num_attention_heads is {width}: transformers ignores head_dim "
            "and vLLM does not, so their results would differ; remove head_dim"
        )
    return f"{config.get('model_type', 'unknown')}, image tokens agree with the tokenizer"


def _stop_tokens(folder: Path, encoder: Encoder) -> str:
    """Note stops that differ from Seer's: the user marker ends a turn, and the observation marker does not."""
    path = folder / "generation_config.json"
    eos = read_json(path).get("eos_token_id") if path.is_file() else None
    stops = [eos] if isinstance(eos, int) else list(eos or [])
    ours = f"Seer's engines use their own stops; for other programs, set eos_token_id to {list(encoder.stop_ids)}"
    if encoder.control(CONTROL.observation) in stops:
        raise _Supplied(
            f"generation_config.json stops at {CONTROL.observation} ({encoder.control(CONTROL.observation)}), but the model "
            f"must continue after the tool result. {ours}"
        )
    if encoder.control(CONTROL.user) not in stops:
        raise _Supplied(f"generation_config.json does not stop at {CONTROL.user}. {ours}")
    return f"eos_token_id {stops}"


def _plain_text(encoder: Encoder) -> str:
    """Spellings of control tokens must stay text and decode unchanged."""
    # The last text joins all spellings, which could form a control token across their borders.
    for literal in (*KNOWN_CONTROL_LITERALS, "".join(KNOWN_CONTROL_LITERALS)):
        ids = encoder.encode_text(f"a {literal} b")
        if encoder.added_ids & set(ids):
            raise _Unfit(f"the text '{literal}' becomes a control token; use another tokenizer.json")
        if encoder.decode(ids) != f"a {literal} b":
            raise _Unfit(
                f"the text 'a {literal} b' decodes to {encoder.decode(ids)!r}; use a tokenizer.json that keeps every byte"
            )
    return f"{len(KNOWN_CONTROL_LITERALS)} control spellings stay text and decode unchanged"


def _messages() -> list[dict[str, Any]]:
    """The prompt of the checks as chat messages."""
    content: list[dict[str, Any]] = []
    for page in _SIZES:
        content += [{"type": "text", "text": f"[Image {page}]"}, {"type": "image"}]
    return [{"role": "user", "content": [*content, {"type": "text", "text": f"\nQuery: {_QUESTION}"}]}]


def _prompt_text() -> str:
    """The prompt of the checks as Seer writes it."""
    image = f"{CONTROL.begin_image}{CONTROL.image}{CONTROL.end_image}"
    labels = "".join(f"[Image {page}]{image}" for page in _SIZES)
    return f"{CONTROL.mask}{CONTROL.start}{CONTROL.user}\n{labels}\nQuery: {_QUESTION}{CONTROL.assistant}\n"


_OWN_PROMPTS = (
    "Seer's engines write their prompts without the template. For a stock server, save the checkpoint again with "
    "seer.models.checkpoint.save. Seer's training saves its own template, so this checkpoint is probably not trained to "
    "select pages: `seer-train run` trains it"
)


def _chat_template(tokenizer: Any) -> str:
    """Note a chat template that does not render Seer's prompt, tool calls and observations."""
    text, expected = _render(tokenizer, _messages()), _prompt_text()
    if text != expected:
        raise _Supplied(
            f"the template renders a three-image chat as {text!r:.400}, but Seer's prompt is {expected!r}. {_OWN_PROMPTS}"
        )
    with_call = [
        *_messages(),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "select", "arguments": {"indices": [1]}}}],
        },
        {"role": "tool", "content": "Text from image 1: x"},
    ]
    # The template must also render a tool call and its result, which clients send back as messages.
    text = _render(tokenizer, with_call)
    if "Text from image 1" not in text or text.count(CONTROL.assistant) != 1:
        raise _Supplied(f"the template loses tool calls or observations. {_OWN_PROMPTS}")
    return "images follow their labels; tool calls and observations are kept"


def _render(tokenizer: Any, messages: list[dict[str, Any]]) -> str:
    """Render messages with the checkpoint's template."""
    if not getattr(tokenizer, "chat_template", None):
        raise _Supplied(f"the checkpoint has no chat template. {_OWN_PROMPTS}")
    try:
        return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception as error:  # a template is a program of the checkpoint and raises its own errors
        raise _Supplied(f"the template does not render a chat with images ({error!s:.200}). {_OWN_PROMPTS}") from error


def _processor(folder: Path, encoder: Encoder) -> str:
    """The image processor must produce the ids and image token counts of the encoder."""
    from PIL import Image
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder, local_files_only=True)
    images = [Image.new("L", size, 255) for size in _SIZES.values()]
    theirs = processor(text=[_prompt_text()], images=images, return_tensors="np")
    ours = encoder.encode([_PROMPT], _SIZES)
    if "mm_token_type_ids" not in theirs:
        raise _Unfit(
            "the processor returns no mm_token_type_ids, so the model would use the positions of plain text; install the "
            "transformers version that Seer requires"
        )
    counted = [int(np.prod(grid)) // encoder.geometry.merge**2 for grid in theirs["image_grid_thw"]]
    predicted = [slot.tokens for slot in ours.slots]
    if counted != predicted:
        raise _Unfit(
            f"the processor makes {counted} tokens of pages of {list(_SIZES.values())} px, but Seer's geometry predicts "
            f"{predicted}; check preprocessor_config.json"
        )
    if not np.array_equal(theirs["input_ids"][0], ours.ids):
        raise _Unfit(
            "the processor's ids differ from Seer's for the same prompt; use the tokenizer files of the original checkpoint, or "
            "save it again with seer.models.checkpoint.save"
        )
    return f"{counted} placeholders, as predicted; ids equal Seer's; mm_token_type_ids present"


def _positions(folder: Path) -> str:
    """M-RoPE positions must equal those of transformers."""
    import torch

    checkpoint = load(folder)
    encoded = checkpoint.encoder.encode([_PROMPT], _SIZES)
    expected, _ = checkpoint.model.model.get_rope_index(
        torch.from_numpy(encoded.ids.astype(np.int64))[None],
        torch.from_numpy(encoded.mm_token_type_ids())[None],
        image_grid_thw=torch.from_numpy(encoded.grid_thw()),
    )
    if not np.array_equal(encoded.positions(), expected[:, 0].numpy()):
        raise _Unfit(
            "M-RoPE positions of a three-image prompt differ from transformers' get_rope_index; install the transformers "
            "version that Seer requires"
        )
    return f"M-RoPE ids of a three-image prompt ({len(encoded)} tokens) equal get_rope_index"
