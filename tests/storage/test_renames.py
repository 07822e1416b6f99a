"""Renames and locks are in seer/storage.py alone, where their rules are kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def renames_and_locks(tree: ast.AST) -> Iterator[str]:
    """Every call in a module that renames, locks or flushes a file by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            imported = {alias.name for alias in node.names} | {module}
            yield from sorted(imported & {"fcntl"})
            if module in ("os", "shutil"):
                yield from sorted(imported & {"replace", "rename", "move"})
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        called = f"{owner}.{node.func.attr}"
        # A path's `replace` takes one argument, a string's takes two, and dataclasses.replace takes fields by name.
        is_path_method = node.func.attr in ("replace", "rename") and len(node.args) == 1 and not node.keywords
        if called in ("os.replace", "os.rename", "os.renames", "shutil.move", "fcntl.flock") or is_path_method:
            yield called


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("os.replace(a, b)", 1),
        ("a.rename(b)", 1),
        ("(folder / name).replace(target)", 1),
        ("import fcntl", 1),
        ("from os import replace", 1),
        ("text.replace('a', 'b'); dataclasses.replace(run, step=1); copy.replace(run)", 1),
    ],
)
def test_search_for_renames_finds_them(code: str, count: int) -> None:
    assert len(list(renames_and_locks(ast.parse(code)))) == count


def test_no_other_module_renames_or_locks_files() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for package in ("seer", "train", "data_pipeline", "scripts")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (calls := list(renames_and_locks(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert set(found) == {"seer/storage.py"}, found
