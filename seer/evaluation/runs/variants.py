"""Several runs over one question set and one loaded model: what controls and frontiers are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import check_manifest
from seer.evaluation.runs.longbench import PredictOptions, plan_run
from seer.evaluation.runs.loop import OnProgress, run_inputs
from seer.models.checkpoint import weights_digest
from seer.schema import PageStyle

if TYPE_CHECKING:
    from seer.engines.base import Engine

Progress = Callable[[str], AbstractContextManager[OnProgress]]
"""Makes a bar for what is being done."""


@dataclass(frozen=True)
class Variant:
    """One run: a system and a selector, what the policy changes, and how pages are laid out.

    The names are those of `seer.systems.seer.SYSTEMS` and `seer.selection.base.SELECTORS`.
    """

    name: str
    """Of its folder."""
    system: str = "seer"
    policy: Mapping[str, Any] = field(default_factory=dict)
    style: str | PageStyle = "seer"
    selector: str = "model"


class Engines:
    """Engines by model, each loaded when it is first needed and then kept.

    A local engine says again what it has said, since variants share requests. `max_batch`: its questions in one batch.
    """

    def __init__(self, device: str = "auto", name: str = "hf", max_batch: int = 8, **options: Any) -> None:
        self.device, self.name = device, name
        self.options = {"max_batch": max_batch, **options} if name == "hf" else options
        self._loaded: dict[str | None, Engine] = {}

    @property
    def recalls(self) -> bool:
        return self.name == "hf"

    def load(self, model: str | None) -> Engine:
        from seer.engines.build import build_engine
        from seer.engines.recalling import RecallingEngine

        if model not in self._loaded:
            engine = build_engine(self.name, model=model, device=self.device, **self.options)
            self._loaded[model] = RecallingEngine(engine) if self.recalls else engine
        return self._loaded[model]


@contextmanager
def no_progress(doing: str) -> Iterator[OnProgress]:
    yield lambda done, total, failed: None


def run_variant(
    variant: Variant,
    records: Sequence[LongBenchRecord],
    options: PredictOptions,
    out: Path,
    engines: Engines,
    model: str | None,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> None:
    """Predict into `<out>/<name>`; a run that is there is gone on with. `seed` is that of the random selector.

    Raises ConfigError where the folder holds another run, and before the model is loaded.
    """
    from seer.config import build_config
    from seer.reading.policy import ReadingPolicy
    from seer.systems.seer import build_system, run_name

    policy = build_config(ReadingPolicy, variant.policy, where=f"the policy of '{variant.name}'")
    style = variant.style if isinstance(variant.style, str) else variant.style.model_dump(mode="json")
    described = {
        "engine": engines.name,
        "model": model,
        "weights": weights_digest(model),
        "selector": variant.selector,
        "style": style,
        "seed": seed,
        "recalls": engines.recalls,
        "policy": policy.model_dump(mode="json"),
    }
    inputs, manifest = plan_run(records, run_name(variant.system, variant.selector), options, described)
    folder = out / variant.name
    check_manifest(folder, manifest)
    system = build_system(
        variant.system,
        engine=engines.load(model),
        selector=variant.selector,
        style=variant.style,
        policy=policy,
        seed=seed,
    )
    with progress(variant.name) as on_progress:
        run_inputs(inputs, system, folder, manifest, options, on_progress)
