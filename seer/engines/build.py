"""Engines by name: the one place where the command line, systems and the server build an engine.

engine = build_engine("hf", model="path/to/checkpoint", device="cuda:0")
engine = build_engine(base_url="http://127.0.0.1:8000/v1", max_concurrent=32)
engine = build_engine(replicas="http://a/v1,http://b/v1")
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.engines.base import ConcurrentEngine, Engine
from seer.errors import InputError, ModelError

if TYPE_CHECKING:
    from seer.engines.openai.engine import OpenAIEngine
    from seer.engines.vllm.stock import VLLMChatEngine

NO_MODEL = (
    "no model given; pass --model DIR with a GLM-4V-family checkpoint "
    "(`seer make-small DIR` makes a small untrained one for trying commands)"
)
_OWN_OPTIONS = {"model": "--model", "base_url": "--base-url", "replicas": "--replicas", "device": "--device"}
"""Arguments of `build_engine` that have separate options, which `--engine-arg` must not repeat."""


def choose_engine(
    name: str | None, *, base_url: str | None = None, replicas: str | None = None, default: str = "hf"
) -> str:
    """Return the name of the engine to build: `openai` if an address is given, else `name`, else `default`.

    Raises InputError if the options contradict each other.
    """
    if base_url is not None and replicas is not None:
        raise InputError("--replicas names the servers itself; leave --base-url out")
    for option, value in (("--base-url", base_url), ("--replicas", replicas)):
        if value is not None and name not in (None, "openai"):
            raise InputError(f"{option} goes with --engine openai, not with {name}; leave --engine out")
    return "openai" if base_url is not None or replicas is not None else name or default


def build_engine(
    name: str | None = None,
    /,
    *,
    model: str | None = None,
    base_url: str | None = None,
    replicas: str | None = None,
    device: str = "auto",
    default: str = "hf",
    **options: Any,
) -> Engine:
    """Build an engine.

    Args:
        name: hf (transformers), vllm, openai (any address) or scripted. Without it, `openai` if there is an address,
            else `default`.
        model: Checkpoint folder, or the model's name at the address.
        base_url: Address of an OpenAI-compatible server.
        replicas: Several such addresses, separated by commas, that together become one engine.
        device: auto, cpu, cuda, cuda:1 …; only hf uses it.
        options: Further arguments of the engine itself.

    Raises InputError if a name or option is unknown or missing, or if the options contradict each other; ModelError
    if the checkpoint is unusable.
    """
    builders: dict[str, Callable[..., Engine]] = {"hf": _hf, "scripted": _scripted, "vllm": _vllm, "openai": _openai}
    chosen = choose_engine(name, base_url=base_url, replicas=replicas, default=default)
    if chosen not in builders:
        raise InputError(f"no engine '{chosen}'; known: {', '.join(builders)}")
    if replicas is not None:
        return _replicated(replicas, model, **options)
    if base_url is not None:
        options["base_url"] = base_url
    return builders[chosen](model, device=device, **options)


def build_chat_engine(
    model: str, *, base_url: str = "", chat_template_kwargs: Mapping[str, Any] | None = None, **options: Any
) -> OpenAIEngine | VLLMChatEngine:
    """Build an engine for `Chat` prompts with any chat model: teachers, judges, and systems without select calls.

    Args:
        model: The model's name at the address; without an address, the model that vLLM loads in this process.
        base_url: Address of an OpenAI-compatible server. It is contacted at the first request.
        chat_template_kwargs: Arguments of the model's chat template; for a model in this process only.
        options: Further arguments of the engine itself.

    Raises ModelError if a package that the engine needs is not installed.
    """
    if base_url:
        from seer.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(base_url, model, check_at_start=False, **options)
    if importlib.util.find_spec("vllm") is None:
        raise ModelError(
            "a model without base_url runs in this process through vLLM, which is not installed; "
            "install the extra 'vllm', or name a server in base_url"
        )
    from seer.engines.vllm.stock import VLLMChatEngine

    return VLLMChatEngine(model, chat_template_kwargs=chat_template_kwargs, **options)


def make_concurrent(engine: Engine) -> Any:
    """Return an engine that accepts single requests from many conversations at once, as a server needs it.

    An engine that only takes batches is wrapped in a `BatchedEngine`; any other is returned unchanged.
    """
    from seer.engines.batched import BatchedEngine

    return engine if isinstance(engine, ConcurrentEngine) else BatchedEngine(engine)


def parse_engine_arguments(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Parse `--engine-arg KEY=VALUE` pairs into keyword arguments: JSON values where they parse as JSON, else text.

    Raises InputError if a pair has no key or no `=`, or if there is a separate option for its key.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or not name:
            raise InputError(f"'{pair}' is not an engine argument; write it as key=value, e.g. max_model_len=32768")
        if name in _OWN_OPTIONS:
            raise InputError(f"--engine-arg {pair}: this argument has its own option; use {_OWN_OPTIONS[name]} {text}")
        try:
            arguments[name] = json.loads(text)
        except ValueError:
            arguments[name] = {"True": True, "False": False, "None": None}.get(text, text)
    return arguments


# ── One builder an engine ────────────────────────────────────────────────────────────────────────


def _hf(
    model: str | None, *, device: str = "auto", dtype: str = "auto", attention: str = "sdpa", **options: Any
) -> Engine:
    if model is None:
        raise InputError(NO_MODEL)
    from seer.engines.hf.engine import HFEngine
    from seer.models.checkpoint import load

    _check_options("hf", HFEngine, options)
    return HFEngine(load(model, device=device, dtype=dtype, attention=attention), **options)


def _vllm(model: str | None, *, device: str = "auto", **options: Any) -> Engine:
    if model is None:
        raise InputError(NO_MODEL)
    if device != "auto":
        raise InputError(f"--device {device}: vLLM uses the device that it was built for; leave --device out")
    from seer.engines.vllm.engine import VLLMEngine

    return VLLMEngine(model, **options)


def _openai(model: str | None, *, base_url: str | None = None, device: str = "auto", **options: Any) -> OpenAIEngine:
    if base_url is None:
        raise InputError("the openai engine needs an address: --base-url http://localhost:8000/v1")
    from seer.engines.openai.engine import OpenAIEngine

    _check_options("openai", OpenAIEngine, options)
    if model is not None and Path(model).is_dir():
        # A local copy of the served checkpoint: its tokenizer counts tokens, but the server names the model.
        options.setdefault("tokenizer", model)
        model = None
    return OpenAIEngine(base_url, model, **options)


def _replicated(replicas: str, model: str | None, **options: Any) -> Engine:
    from seer.engines.replicas import ReplicatedEngine

    addresses = [address.strip() for address in replicas.split(",") if address.strip()]
    if not addresses:
        raise InputError(f"--replicas '{replicas}' holds no address; write URL,URL")
    return ReplicatedEngine([_openai(model, base_url=address, **options) for address in addresses])


def _scripted(model: str | None, *, device: str = "auto", **options: Any) -> Engine:
    from seer.engines.scripted import ScriptedEngine

    if options:
        raise InputError(f"the engine 'scripted' has no option '{next(iter(options))}'; leave --engine-arg out")
    if model is None:
        from seer.models.counting import tekken_encoder

        return ScriptedEngine(encoder=tekken_encoder())
    from seer.models.checkpoint import load_encoder

    return ScriptedEngine(encoder=load_encoder(model)[0])


def _check_options(name: str, engine: type, options: dict[str, Any]) -> None:
    """Raise InputError for an option that the engine's constructor does not have."""
    known = [key for key in inspect.signature(engine).parameters if key not in ("checkpoint", "base_url", "model")]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known)}"
            raise InputError(f"the engine '{name}' has no option '{option}'; {hint}")
