"""What a system is: questions over documents in, answers out, failures among them.

system = build_system("seer", engine="hf", model="path/to/checkpoint", selector="model", style="seer")
answers = system.answer_batch([Task(id="1", context=text, question="Who?")])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seer.conversation import converse
from seer.errors import InputError, SeerError
from seer.policy import ReadingPolicy
from seer.reading import Reader, read_batch
from seer.schema import Answer, PageStyle, Status
from seer.selection.base import ModelPlusLexical, OraclePages, Selector, build_selector


@dataclass(frozen=True)
class Task:
    """One question over one text."""

    id: str
    context: str
    question: str
    max_new_tokens: int | None = None
    gold_pages: tuple[int, ...] = ()
    """For the oracle selector and for counting; never shown to a model."""
    selector_pages: int | None = None
    """Page budget of selectors other than the model, matched per example as in the paper's A.9."""


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
                document = render_text(task.context, self.style, name=task.id)
                selector = _matched(self.reader.selector, task)
                policy = self._policy(task)
                conversations[index] = converse(document, task.question, self.reader.engine, selector, policy)
            except SeerError as error:
                answers[index] = Answer(text="", status=Status.FAILED, cause=str(error))
        read = read_batch(conversations.values(), self.reader.engine)
        answers.update(zip(conversations, read, strict=True))
        return [answers[index] for index in range(len(tasks))]

    def _policy(self, task: Task) -> ReadingPolicy:
        changes: dict[str, Any] = {}
        if task.max_new_tokens is not None:
            changes["max_new_tokens"] = task.max_new_tokens
        if task.selector_pages is not None:
            changes["selector_pages"] = task.selector_pages
        return self.reader.policy.model_copy(update=changes)


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


def build_system(
    name: str,
    *,
    engine: str = "hf",
    model: str | None = None,
    selector: str = "model",
    style: str | PageStyle = "seer",
    policy: ReadingPolicy | None = None,
    seed: int = 0,
    **engine_options: Any,
) -> System:
    """The system of this name over an engine. Raises InputError for an unknown name, ModelError for a bad checkpoint."""
    if name not in SYSTEMS:
        raise InputError(f"no system '{name}'; known: {', '.join(SYSTEMS)}")
    changes = _MODES.get(name, {})
    if name not in _MODES:
        selector = name
    chosen = build_selector(selector, seed=seed, gold=lambda document, question: ())
    rules = (policy or ReadingPolicy()).model_copy(update=changes)
    reader = Reader(build_engine(engine, model=model, **engine_options), chosen, rules)
    return ReadingSystem(name if name in _MODES else f"seer+{name}", reader, style)


def build_engine(name: str, *, model: str | None = None, **options: Any) -> Any:
    """The engine of this name: hf (transformers) or scripted."""
    builders: dict[str, Callable[..., Any]] = {"hf": _hf, "scripted": _scripted}
    if name not in builders:
        raise InputError(f"no engine '{name}'; known: {', '.join(builders)}")
    return builders[name](model, **options)


def _hf(model: str | None, *, device: str = "auto", dtype: str = "auto", **options: Any) -> Any:
    if model is None:
        raise InputError(
            "no model given; pass --model DIR with a GLM-4V-family checkpoint "
            "(`seer make-small DIR` makes a small untrained one to try the machinery)"
        )
    from seer.engines.hf import HFEngine
    from seer.models import load

    return HFEngine(load(model, device=device, dtype=dtype), **options)


def _scripted(model: str | None, **_: Any) -> Any:
    from seer.engines.scripted import ScriptedEngine

    if model is None:
        return ScriptedEngine()
    from seer.models import load_encoder

    return ScriptedEngine(encoder=load_encoder(model)[0])
