"""Several runs over the same records and one loaded model, as controls and frontiers need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.files import check_manifest
from seer.evaluation.runs.loop import OnProgress, run_inputs
from seer.evaluation.runs.plan_longbench import PredictOptions, plan_run
from seer.models.checkpoint import weights_digest
from seer.schema import PageStyle

if TYPE_CHECKING:
    from seer.engines.base import Engine

Progress = Callable[[str], AbstractContextManager[OnProgress]]
"""Returns a context with a progress callback for the run of the given name."""


@dataclass(frozen=True)
class RunSpec:
    """One run of a sweep: a system and a selector, changes to the reading policy, and the page style.

    The names are those of `seer.systems.build.SYSTEMS` and `seer.selection.base.SELECTORS`.
    """

    name: str
    """Name of the run's folder."""
    system: str = "seer"
    policy: Mapping[str, Any] = field(default_factory=dict)
    style: str | PageStyle = "seer"
    selector: str = "model"


class Engines:
    """Engines by model, each loaded at first use and then kept.

    A local engine reuses its answers to identical requests, since the runs of a sweep share many. `max_batch` is the
    number of requests in one batch of a local engine; `options` are further options of the engine.
    """

    def __init__(self, device: str = "auto", name: str = "hf", max_batch: int = 8, **options: Any) -> None:
        self.device, self.name = device, name
        self.options = {"max_batch": max_batch, **options} if name == "hf" else options
        self._loaded: dict[str | None, Engine] = {}

    @property
    def recalls(self) -> bool:
        """Whether engines reuse answers to identical requests."""
        return self.name == "hf"

    def load(self, model: str | None) -> Engine:
        """Return the engine of a model; loads it at the first call."""
        from seer.engines.build import build_engine
        from seer.engines.recalling import RecallingEngine

        if model not in self._loaded:
            engine = build_engine(self.name, model=model, device=self.device, **self.options)
            self._loaded[model] = RecallingEngine(engine) if self.recalls else engine
        return self._loaded[model]


@contextmanager
def no_progress(doing: str) -> Iterator[OnProgress]:
    """Report no progress: the default of `run_spec`."""
    yield lambda done, total, failed: None


def run_spec(
    spec: RunSpec,
    records: Sequence[LongBenchRecord],
    options: PredictOptions,
    out: Path,
    engines: Engines,
    model: str | None,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> None:
    """Predict into `<out>/<name>`, and resume the run there if it has the same settings.

    `seed` is the seed of the random selector. Raises ConfigError if the folder holds another run; the check precedes
    loading the model.
    """
    from seer.config import build_config
    from seer.reading.policy import ReadingPolicy
    from seer.systems.build import build_system, run_name

    policy = build_config(ReadingPolicy, spec.policy, where=f"the policy of '{spec.name}'")
    style = spec.style if isinstance(spec.style, str) else spec.style.model_dump(mode="json")
    described = {
        "engine": engines.name,
        "model": model,
        "weights": weights_digest(model),
        "selector": spec.selector,
        "style": style,
        "seed": seed,
        "recalls": engines.recalls,
        "policy": policy.model_dump(mode="json"),
    }
    inputs, manifest = plan_run(records, run_name(spec.system, spec.selector), options, described)
    # Check before loading: a model takes minutes to load, and another run in the folder is an error anyway.
    folder = out / spec.name
    check_manifest(folder, manifest)
    system = build_system(
        spec.system,
        engine=engines.load(model),
        selector=spec.selector,
        style=spec.style,
        policy=policy,
        seed=seed,
    )
    with progress(spec.name) as on_progress:
        run_inputs(inputs, system, folder, manifest, options, on_progress)
