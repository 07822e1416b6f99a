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
def test_docstring_examples_run_and_match(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


def test_readme_example_equals_package_docstring():
    example, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert textwrap.indent(example, "    ").strip() in seer.__doc__


@pytest.mark.parametrize("name", ["seer", "seer.rendering"])
def test_lazy_exports_are_visible_to_type_checkers(name):
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


# ── What is documented ───────────────────────────────────────────────────────────────────────────

PROPERTIES = {"property", "cached_property", "functools.cached_property"}
UNDOCUMENTED_ERRORS = {"AssertionError", "NotImplementedError", "StopIteration", "typer.Exit", "SystemExit"}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def parts_of(packages: tuple[str, ...] = ("seer", "train", "data_pipeline")) -> list[str]:
    """Each package of `seer`, its root modules together, and the two packages around it."""
    names = {path.relative_to(ROOT).parts[:2] for path in SOURCES if path.parts[len(ROOT.parts)] == "seer"}
    inside = sorted("/".join(parts) for parts in names if not parts[1].endswith(".py"))
    return ["seer/*.py", *inside, *packages[1:]]


def sources_of(part: str) -> list[Path]:
    if part.endswith("*.py"):
        return sorted((ROOT / part).parent.glob("*.py"))
    return sorted((ROOT / part).rglob("*.py"))


def public_functions(path: Path) -> list[tuple[str, FunctionNode, ast.ClassDef | None]]:
    """(dotted name, function, its class) of every public function and method of a module; nested ones are internal."""
    found: list[tuple[str, FunctionNode, ast.ClassDef | None]] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, FunctionNode) and not node.name.startswith("_"):
            found.append((node.name, node, None))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found += [
                (f"{node.name}.{one.name}", one, node)
                for one in node.body
                if isinstance(one, FunctionNode) and not one.name.startswith("_")
            ]
    return found


def is_trivial_property(function: FunctionNode) -> bool:
    marked = {ast.unparse(decorator) for decorator in function.decorator_list} & PROPERTIES
    return bool(marked) and len(function.body) == 1


def interface_methods() -> set[str]:
    """Names of methods that a Protocol or abstract class of the project documents for all that implement them."""
    names = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(
                base.split("[")[0] in ("Protocol", "ABC") for base in map(ast.unparse, node.bases)
            ):
                names |= {one.name for one in node.body if isinstance(one, FunctionNode) and ast.get_docstring(one)}
    return names


def raised_by(function: FunctionNode) -> set[str]:
    """Names of the errors that the function's own body constructs and raises."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            names.add(ast.unparse(node.exc.func))
        waiting += ast.iter_child_nodes(node)
    return {name for name in names if name.split(".")[-1][:1].isupper()} - UNDOCUMENTED_ERRORS


@pytest.mark.parametrize("part", parts_of())
def test_public_functions_have_docstrings(part):
    interface = interface_methods()
    missing = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for path in sources_of(part)
        for name, function, owner in public_functions(path)
        if not ast.get_docstring(function)
        and not is_trivial_property(function)
        and not (owner is not None and function.name in interface)
    ]
    assert not missing, "\n".join(["public functions without a docstring:", *missing])


@pytest.mark.parametrize("part", parts_of())
def test_public_functions_say_what_they_raise(part):
    silent = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name} raises {', '.join(sorted(raised))}"
        for path in sources_of(part)
        for name, function, _ in public_functions(path)
        if (raised := raised_by(function)) and "raise" not in (ast.get_docstring(function) or "").lower()
    ]
    assert not silent, "\n".join(["public functions that raise and do not say so:", *silent])
