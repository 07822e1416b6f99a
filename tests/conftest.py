"""Fixtures for all tests: the shared real data (tests skip without it) and one small real checkpoint a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# waiting threads sleep, so that tests on a busy machine do not slow each other down
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real LongBench records and training sources, kept beside the project."""
    folder = Path(os.environ.get("SEER_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; set SEER_SHARED_DATA to run this test")
    return folder


@pytest.fixture(scope="session")
def small_checkpoint_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained Glm4vForConditionalGeneration of 1.5 M parameters, as a checkpoint folder."""
    pytest.importorskip("transformers")
    from seer.models.small import build_small

    return build_small(tmp_path_factory.mktemp("small"), seed=0)


@pytest.fixture(scope="session")
def small_checkpoint(small_checkpoint_dir: Path):
    """The small checkpoint, loaded."""
    from seer.models.checkpoint import load

    return load(small_checkpoint_dir, device="cpu")
