"""Imports inside the trainer run one way, imports inside functions included."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in (ROOT / "train").rglob("*.py")
    if path.name != "__init__.py"
}
ENTRY_POINTS = {"train.sft"}


def imports_of(path: Path) -> set[str]:
    """Modules of the trainer that a file imports, at any depth, except those for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(MODULES)


def test_train_imports_have_no_circle() -> None:
    graph = {name: imports_of(path) for name, path in MODULES.items()}
    assert any(graph.values())
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_train_cli_is_imported_by_entry_points_only() -> None:
    assert {name for name, path in MODULES.items() if "train.cli" in imports_of(path)} == ENTRY_POINTS
