"""Systems by name: the one place where the command line, evaluation and the server build a system.

A run is chosen by two names that do not overlap: the system says how a document is read (Seer's loop, pages only, text
only, or one of the systems that collect evidence by free chats), the selector says who chooses the pages that Seer's
loop retrieves (the model or a baseline).

system = build_system("seer", model="path/to/checkpoint", selector="bm25", style="seer")
system = build_system("doclens", base_url="http://127.0.0.1:8000/v1", options=["answer_samples=4"])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from seer.config import load_config
from seer.engines.base import Engine
from seer.engines.build import build_engine
from seer.errors import InputError
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.schema import PageStyle
from seer.selection.base import SELECTORS, Hybrid, build_selector
from seer.selection.ranking import Ranker
from seer.systems.base import System
from seer.systems.evidence.config import EvidenceConfig, RoleModel
from seer.systems.evidence.memory import DocumentMemory
from seer.systems.evidence.system import EvidenceSystem
from seer.systems.seer import ReadingSystem

ReadingSystemName = Literal["seer", "seer-k0", "visual", "text", "auto"]
READING_SYSTEMS: tuple[str, ...] = get_args(ReadingSystemName)
"""Systems that are Seer's reading loop with a policy."""
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


@dataclass(frozen=True)
class _Evidence:
    """Where an evidence system and its settings are defined."""

    system: str
    config: str

    def load(self) -> tuple[type[EvidenceSystem], type[EvidenceConfig]]:
        """Import the system and its settings."""
        system, config = (
            getattr(import_module(module), name) for module, name in map(_split, (self.system, self.config))
        )
        return system, config


def _split(place: str) -> tuple[str, str]:
    module, name = place.split(":")
    return module, name


_EVIDENCE: dict[str, _Evidence] = {
    "doclens": _Evidence("seer.systems.doclens.system:DocLens", "seer.systems.doclens.config:DocLensConfig"),
    "docmemo": _Evidence("seer.systems.docmemo.system:DocMemo", "seer.systems.docmemo.config:DocMemoConfig"),
    "trident": _Evidence("seer.systems.trident.system:Trident", "seer.systems.trident.config:TridentConfig"),
}
EVIDENCE_SYSTEMS: tuple[str, ...] = tuple(_EVIDENCE)
"""Systems that collect evidence by free chats, with any chat model that reads images."""
SYSTEMS: tuple[str, ...] = (*READING_SYSTEMS, *EVIDENCE_SYSTEMS)


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
    if system in EVIDENCE_SYSTEMS and selector != "model":
        raise InputError(f"--selector {selector}: the system '{system}' chooses its own pages; leave --selector out")
    if system in _WITHOUT_SELECTION and selector != "model":
        raise InputError(
            f"--selector {selector}: the system '{system}' selects no pages; use --system seer or leave --selector out"
        )


def system_of_mode(mode: str) -> str:
    """Return the name of the system that reads in this mode of the reading policy; an unknown mode unchanged."""
    return _OF_MODE.get(mode, mode)


def selects_pages(system: str) -> bool:
    """Return whether the system chooses pages, so that a selector has an effect."""
    return system in READING_SYSTEMS and system not in _WITHOUT_SELECTION


def run_name(system: str, selector: str = "model") -> str:
    """Return the name under which a run is recorded: the system, followed by `+selector` if the model does not select.

    Raises InputError if the names are unknown or do not go together.
    """
    check_system(system, selector)
    return system if selector in ("model", "model+bm25") else f"{system}+{selector}"


def system_policy(system: str, policy: ReadingPolicy | None = None) -> ReadingPolicy:
    """Return the policy with which a system reads.

    Raises InputError if the system is unknown or has no reading policy, or if `policy` sets the mode, which is the
    system's to set.
    """
    check_system(system)
    rules = policy or ReadingPolicy()
    if system in EVIDENCE_SYSTEMS:
        if rules != ReadingPolicy():
            raise InputError(f"--policy: the system '{system}' has no reading policy; use --system-option KEY=VALUE")
        return rules
    changes = _POLICY_CHANGES[system]
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
    options: Sequence[str] = (),
    seed: int = 0,
    **engine_options: Any,
) -> System:
    """Build a system by name.

    Args:
        name: One of `SYSTEMS`.
        engine: The name of an engine for `build_engine`, or an engine that several systems share.
        selector: One of `SELECTORS`; the oracle takes each task's gold pages.
        policy: Reading policy; the system sets its mode.
        options: Settings of an evidence system as KEY=VALUE, such as "answer_samples=4".
        seed: Seed of the random selector, and of all sampling in an evidence system.
        engine_options: Further arguments of `build_engine`.

    Raises InputError for an unknown or contradictory choice, ConfigError for an invalid option, ModelError for an
    unusable checkpoint or a missing package.
    """
    check_system(name, selector)
    called, rules = run_name(name, selector), system_policy(name, policy)
    config = read_system_options(name, options)
    ready = build_engine(engine, model=model, **engine_options) if engine is None or isinstance(engine, str) else engine
    if config is not None:
        return build_evidence_system(name, ready, config, style=style, seed=seed)
    chosen = build_selector(selector, seed=seed, gold=lambda document, question: ())
    return ReadingSystem(called, Reader(ready, chosen, rules), style)


def read_system_options(name: str, options: Sequence[str]) -> EvidenceConfig | None:
    """Return the settings of an evidence system; None for a system that has none.

    Raises InputError for options of a system without any, ConfigError for an unknown option or an invalid value.
    """
    if name in _EVIDENCE:
        return load_config(_EVIDENCE[name].load()[1], None, options)
    if options:
        raise InputError(f"--system-option {options[0]}: the system '{name}' has none; use --policy KEY=VALUE")
    return None


def build_evidence_system(
    name: str, engine: Engine, config: EvidenceConfig, *, style: str | PageStyle = "seer", seed: int = 0
) -> EvidenceSystem:
    """Build an evidence system with the first stage, the memory and the engines of roles that its settings name.

    Raises InputError or ModelError if one of them cannot be built.
    """
    arguments: dict[str, Any] = {}
    if (stage := getattr(config, "first_stage", None)) is not None:
        arguments["pool" if name == "trident" else "scorer"] = build_ranker(stage)
    if folder := getattr(config, "memory", ""):
        arguments["memory"] = DocumentMemory(folder)
    roles = {role: _role_engine(role, chosen) for role, chosen in config.roles.items()}
    system: Callable[..., EvidenceSystem] = _EVIDENCE[name].load()[0]
    return system(engine, config=config, roles=roles, style=style, seed=seed, **arguments)


def build_ranker(name: Literal["bm25", "dense", "hybrid"]) -> Ranker:
    """Return the ranker of this name. Raises InputError if it needs an extra that is not installed."""
    from seer.selection.lexical import BM25

    if name == "bm25":
        return BM25()
    from seer.selection.dense import Dense

    return Dense() if name == "dense" else Hybrid(BM25(), Dense())


def _role_engine(role: str, chosen: RoleModel) -> Engine:
    """Build the engine of one role. Raises InputError if it names neither model nor address."""
    if not chosen.model and not chosen.base_url:
        raise InputError(f"roles.{role}: names neither model nor base_url; give at least one")
    return build_engine(model=chosen.model or None, base_url=chosen.base_url or None)
