"""Seer's reading loop as a system, and the systems that differ from it only in their reading policy.

A run is chosen by two names that do not overlap: the system says how a document is read (pages as images, as text, or
whichever costs less), the selector says who chooses the pages to retrieve (the model or a baseline).

system = build_system("seer", model="path/to/checkpoint", selector="bm25", style="seer")
answers = system.answer_batch([Task(id="1", context=text, question="Who?")])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from seer.engines.base import Engine
from seer.engines.build import build_engine
from seer.errors import InputError, SeerError
from seer.reading.conversation import ReadingLoop, converse
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader, read_batch
from seer.rendering.styles import with_newline
from seer.schema import Answer, Failure, PageStyle, Status
from seer.selection.base import SELECTORS, ModelPlusLexical, OraclePages, Selector, build_selector
from seer.systems.base import System, Task

SystemName = Literal["seer", "seer-k0", "visual", "text", "auto"]
SYSTEMS: tuple[str, ...] = get_args(SystemName)
_POLICY_CHANGES: dict[str, dict[str, Any]] = {
    "seer": {},
    "seer-k0": {"retrieve": False},
    "visual": {"mode": "visual"},
    "text": {"mode": "text"},
    "auto": {"mode": "auto"},
}
"""What each system changes in the reading policy."""
_WITHOUT_SELECTION = ("visual", "text")
_OF_MODE = {"select": "seer", "visual": "visual", "text": "text", "auto": "auto"}
"""The system that sets each mode of the reading policy."""


class ReadingSystem:
    """The reading loop with a fixed policy: Seer, its ablations, and the visual and text baselines."""

    def __init__(self, name: str, reader: Reader, style: str | PageStyle) -> None:
        self.name, self.reader, self.style = name, reader, style

    def answer_batch(self, tasks: Sequence[Task]) -> list[Answer]:
        from seer.rendering import render_text

        answers: dict[int, Answer] = {}
        conversations = {}
        for index, task in enumerate(tasks):
            try:
                style = with_newline(self.style, task.newline)
                document = task.document or render_text(task.context, style, name=task.id)
                selector = _for_task(self.reader.selector, task)
                policy = self._policy(task)
                conversations[index] = _with_failure_as_answer(
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


def _with_failure_as_answer(conversation: ReadingLoop) -> ReadingLoop:
    """Convert an exception into a failed answer so that other conversations continue."""
    try:
        return (yield from conversation)
    except SeerError as error:
        return Answer(text="", status=Status.FAILED, cause=str(error), failure=Failure.of(error))


def _for_task(selector: Selector | ModelPlusLexical | None, task: Task) -> Selector | ModelPlusLexical | None:
    """Return the selector to use for this task: the oracle gets the task's own gold pages."""
    if isinstance(selector, OraclePages):
        return OraclePages(lambda document, question: task.gold_pages)
    return selector


# ── Choosing and building systems by name ────────────────────────────────────────────────────────


def check_system(system: str, selector: str = "model") -> None:
    """Check that the names of a system and a selector exist and go together.

    Raises InputError if one is unknown, if a selector is given as a system, or if the system selects no pages.
    """
    if system in SELECTORS:
        raise InputError(f"no system '{system}': it is a selector; use --selector {system}")
    if system not in SYSTEMS:
        raise InputError(f"no system '{system}'; known: {', '.join(SYSTEMS)}")
    if selector not in SELECTORS:
        raise InputError(f"no selector '{selector}'; known: {', '.join(SELECTORS)}")
    if system in _WITHOUT_SELECTION and selector != "model":
        raise InputError(
            f"--selector {selector}: the system '{system}' selects no pages; use --system seer or leave --selector out"
        )


def system_of_mode(mode: str) -> str:
    """Return the name of the system that reads in this mode of the reading policy; an unknown mode unchanged."""
    return _OF_MODE.get(mode, mode)


def selects_pages(system: str) -> bool:
    """Return whether the system chooses pages, so that a selector has an effect."""
    return system not in _WITHOUT_SELECTION


def run_name(system: str, selector: str = "model") -> str:
    """Return the name under which a run is recorded: the system, followed by `+selector` if the model does not select.

    Raises InputError if the names are unknown or do not go together.
    """
    check_system(system, selector)
    return system if selector in ("model", "model+bm25") else f"{system}+{selector}"


def system_policy(system: str, policy: ReadingPolicy | None = None) -> ReadingPolicy:
    """Return the policy with which a system reads.

    Raises InputError if the system is unknown or if `policy` sets the mode, which is the system's to set.
    """
    check_system(system)
    rules, changes = policy or ReadingPolicy(), _POLICY_CHANGES[system]
    if rules.mode not in ("select", changes.get("mode", "select")):
        raise InputError(
            f"policy mode={rules.mode}: the system sets the mode; use --system {system_of_mode(rules.mode)}"
        )
    return rules.model_copy(update=changes)


def build_system(
    name: str,
    *,
    engine: str | Engine | None = None,
    model: str | None = None,
    selector: str = "model",
    style: str | PageStyle = "seer",
    policy: ReadingPolicy | None = None,
    seed: int = 0,
    **engine_options: Any,
) -> System:
    """Build a system by name.

    Args:
        name: One of `SYSTEMS`.
        engine: The name of an engine for `build_engine`, or an engine that several systems share.
        selector: One of `SELECTORS`; the oracle takes each task's gold pages.
        policy: Reading policy; the system sets its mode.
        seed: Seed of the random selector.
        engine_options: Further arguments of `build_engine`.

    Raises InputError for an unknown or contradictory choice, ModelError for an unusable checkpoint.
    """
    called, rules = run_name(name, selector), system_policy(name, policy)
    chosen = build_selector(selector, seed=seed, gold=lambda document, question: ())
    ready: Engine = (
        build_engine(engine, model=model, **engine_options) if engine is None or isinstance(engine, str) else engine
    )
    return ReadingSystem(called, Reader(ready, chosen, rules), style)
