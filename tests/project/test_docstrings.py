"""The examples in docstrings are true, and the names that `seer` offers are the same for people, type checkers and imports."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import textwrap
from pathlib import Path

import pytest

import seer

ROOT = Path(__file__).parents[2]
SOURCES = [path for name in ("seer", "train", "data_pipeline") for path in sorted((ROOT / name).rglob("*.py"))]
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


def test_readme_and_the_package_show_the_same_example():
    example, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert textwrap.indent(example, "    ").strip() in seer.__doc__


@pytest.mark.parametrize("name", ["seer", "seer.rendering"])
def test_what_is_imported_at_first_use_is_known_to_type_checkers(name):
    module = importlib.import_module(name)
    known = {
        alias.name: node.module
        for branch in ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert known == module._EXPORTS
    assert set(module.__all__) - {"__version__"} == set(known)
    for exported in module.__all__:
        assert getattr(module, exported) is not None
