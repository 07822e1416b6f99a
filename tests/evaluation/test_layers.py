"""Imports inside `seer.evaluation` run in one direction."""

from __future__ import annotations

import ast
from pathlib import Path

import seer.evaluation

ROOT = Path(seer.evaluation.__file__).parent
LAYERS = ("jsonlines", "files", "scoring", "benchmarks", "runs", "harness", "analysis", "reports", "paper")
"""Modules and folders from bottom to top. Each imports only from itself and from those before it."""


def imported_parts(path: Path) -> set[str]:
    """Return the modules and folders of `seer.evaluation` that a file imports at any depth."""
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    return {name.split(".")[2] for name in modules if name.startswith("seer.evaluation.")}


def test_evaluation_folders_import_only_lower_layers():
    paths = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]
    assert len(paths) > 30
    for path in paths:
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        higher = {other for other in imported_parts(path) if LAYERS.index(other) > LAYERS.index(part)}
        assert not higher, f"{path} imports from {higher}, which are in a higher layer"
