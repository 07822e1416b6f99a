"""What a system is: questions over documents in, answers out, failures among them.

system = build_system("seer", engine="hf", model="path/to/checkpoint", selector="model", style="seer")
answers = system.answer_batch([Task(id="1", context=text, question="Who?")])
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seer.engines.base import Engine
from seer.errors import InputError, SeerError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_batch
from seer.schema import Answer, Document, Failure, PageStyle, Status
from seer.selection.base import ModelPlusLexical, OraclePages, Selector, build_selector


@dataclass(frozen=True)
class Task:
    """One question over one text, or over a document that has pages of its own."""

    id: str
    context: str
    """Laid out in the system's page style; empty where there is a `document`."""
    question: str
    max_new_tokens: int | None = None
    gold_pages: tuple[int, ...] = ()
    """For the oracle selector and for counting; never shown to a model."""
    query: str = ""
    """The bare question, for lexical selectors, where `question` also holds instructions."""
    selector_pages: int | None = None
    """Page budget of selectors other than the model, matched per example as in the paper's A.9."""
    chat: bool = True
    """False: where the whole text is read, it is continued outside the chat template."""
    document: Document | None = None
    """Read in place of `context`: a PDF, for one."""


class System(Protocol):
    name: str

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        """One answer for every task, in order. What fails is an answer of status failed."""
        ...


class ReadingSystem:
    """Seer's reading loop with a fixed policy: seer, its ablations, and the visual and text baselines."""

    def __init__(self, name: str, reader: Reader, style: str | PageStyle) -> None:
        self.name, self.reader, self.style = name, reader, style

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        from seer.rendering import render_text

        answers: dict[int, Answer] = {}
        conversations = {}
        for index, task in enumerate(tasks):
            try:
                document = task.document or render_text(task.context, self.style, name=task.id)
                selector = _matched(self.reader.selector, task)
                policy = self._policy(task)
                conversations[index] = _failing_alone(
                    converse(document, task.question, self.reader.engine, selector, policy, query=task.query)
                )
            except SeerError as error:
                answers[index] = Answer(text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error))
        read = read_batch(conversations.values(), self.reader.engine)
        answers.update(zip(conversations, read, strict=True))
        return [answers[index] for index in range(len(tasks))]

    def _policy(self, task: Task) -> ReadingPolicy:
        changes: dict[str, Any] = {"chat": self.reader.policy.chat and task.chat}
        if task.max_new_tokens is not None:
            changes["max_new_tokens"] = task.max_new_tokens
        if task.selector_pages is not None:
            changes["selector_pages"] = task.selector_pages
        return self.reader.policy.model_copy(update=changes)


def _failing_alone(conversation: ReadingLoop) -> ReadingLoop:
    """The conversation; what it raises is its own answer and stops no other."""
    try:
        return (yield from conversation)
    except SeerError as error:
        return Answer(text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error))


def _matched(selector: Selector | ModelPlusLexical | None, task: Task) -> Selector | ModelPlusLexical | None:
    """The oracle knows each task's own gold pages."""
    if isinstance(selector, OraclePages):
        return OraclePages(lambda document, question: task.gold_pages)
    return selector


# ── Building systems by name ─────────────────────────────────────────────────────────────────────

_MODES: dict[str, dict[str, Any]] = {
    "seer": {},
    "seer-k0": {"retrieve": False},
    "visual": {"mode": "visual"},
    "text": {"mode": "text"},
    "auto": {"mode": "auto"},
}
SYSTEMS = (*_MODES, "bm25", "first", "random", "all", "oracle", "dense", "hybrid")
"""`seer` and its controls by mode; the rest force the selection and keep everything else."""


def system_name(name: str) -> str:
    """What runs call the system that `build_system` makes of this name. Raises InputError for an unknown one."""
    if name not in SYSTEMS:
        raise InputError(f"no system '{name}'; known: {', '.join(SYSTEMS)}")
    return name if name in _MODES else f"seer+{name}"


def build_system(
    name: str,
    *,
    engine: str | Engine = "hf",
    model: str | None = None,
    selector: str = "model",
    style: str | PageStyle = "seer",
    policy: ReadingPolicy | None = None,
    seed: int = 0,
    **engine_options: Any,
) -> System:
    """The system of this name over an engine, given by its name or, to serve several systems, itself.

    Raises InputError for an unknown name, ModelError for a bad checkpoint.
    """
    called = system_name(name)
    changes = _MODES.get(name, {})
    if name not in _MODES:
        selector = name
    chosen = build_selector(selector, seed=seed, gold=lambda document, question: ())
    rules = (policy or ReadingPolicy()).model_copy(update=changes)
    ready = build_engine(engine, model=model, **engine_options) if isinstance(engine, str) else engine
    reader = Reader(ready, chosen, rules)
    return ReadingSystem(called, reader, style)


def build_engine(name: str, *, model: str | None = None, **options: Any) -> Any:
    """The engine of this name: hf (transformers), vllm, openai (any address) or scripted."""
    builders: dict[str, Callable[..., Any]] = {"hf": _hf, "scripted": _scripted, "vllm": _vllm, "openai": _openai}
    if name not in builders:
        raise InputError(f"no engine '{name}'; known: {', '.join(builders)}")
    return builders[name](model, **options)


def engine_at(engine: str, base_url: str | None) -> str:
    """The engine that is meant where an address may be given beside it. Raises InputError where they do not go together."""
    if base_url is None:
        return engine
    if engine not in ("hf", "openai"):  # hf is what stands where none was named
        raise InputError(f"--base-url goes with --engine openai, not with {engine}")
    return "openai"


NO_MODEL = (
    "no model given; pass --model DIR with a GLM-4V-family checkpoint "
    "(`seer make-small DIR` makes a small untrained one to try the machinery)"
)


def _hf(model: str | None, *, device: str = "auto", dtype: str = "auto", **options: Any) -> Any:
    if model is None:
        raise InputError(NO_MODEL)
    from seer.engines.hf.engine import HFEngine
    from seer.models.checkpoint import load

    _check_options("hf", HFEngine, options)
    return HFEngine(load(model, device=device, dtype=dtype), **options)


def _vllm(model: str | None, *, device: str = "auto", **options: Any) -> Any:
    if model is None:
        raise InputError(NO_MODEL)
    if device != "auto":
        raise InputError(f"--device {device}: vLLM takes the device that it was built for; leave --device out")
    from seer.engines.vllm.engine import VLLMEngine

    return VLLMEngine(model, **options)


def _openai(model: str | None, *, base_url: str | None = None, device: str = "auto", **options: Any) -> Any:
    if base_url is None:
        raise InputError("the openai engine needs an address: --base-url http://localhost:8000/v1")
    from seer.engines.openai.engine import OpenAIEngine

    _check_options("openai", OpenAIEngine, options)
    if model is not None and Path(model).is_dir():
        # a checkpoint that lies here too: its tokenizer counts, its name is the server's to say
        options.setdefault("tokenizer", model)
        model = None
    return OpenAIEngine(base_url, model, **options)


def _check_options(name: str, engine: type, options: dict[str, Any]) -> None:
    import inspect

    known = [key for key in inspect.signature(engine).parameters if key not in ("checkpoint", "base_url", "model")]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known)}"
            raise InputError(f"the engine '{name}' has no option '{option}'; {hint}")


def _scripted(model: str | None, **_: Any) -> Any:
    from seer.engines.scripted import ScriptedEngine

    if model is None:
        from seer.models.counting import tekken_encoder

        return ScriptedEngine(encoder=tekken_encoder())
    from seer.models.checkpoint import load_encoder

    return ScriptedEngine(encoder=load_encoder(model)[0])


def parse_engine_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """`--engine-arg key=value` as keywords: values are JSON where they parse as such, else text."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"'{pair}' is no engine argument; write it as key=value, e.g. max_model_len=32768")
        try:
            value = json.loads(text)
        except ValueError:
            value = {"True": True, "False": False, "None": None}.get(text, text)
        arguments[name.strip().replace("-", "_")] = value
    return arguments
