"""Build the API reference with pdoc: every module of the three packages, from its docstrings.

python scripts/build_docs.py FOLDER
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

PACKAGES = ("seer", "train", "data_pipeline")
ELSEWHERE = ("seer.evaluation.harness.model", "train.adapters.verl")
"""Modules that import other programs (lm-evaluation-harness, verl), which may not be installed."""


def main() -> None:
    """Build the reference into the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder

    import pdoc

    for name in PACKAGES:
        package = importlib.import_module(name)
        open_up(package)
        for part in pkgutil.walk_packages(package.__path__, f"{name}."):
            if part.ispkg:
                open_up(importlib.import_module(part.name))
    pdoc.render.configure(show_source=False)
    pdoc.pdoc(*PACKAGES, *(f"!{name}" for name in ELSEWHERE), output_directory=folder)
    print(folder / "index.html")


def open_up(package: ModuleType) -> None:
    """Prepare a package for pdoc: import names that load on first use, and add its modules to `__all__`.

    pdoc only documents names of `__all__` that exist.
    """
    if names := getattr(package, "__all__", None):
        for name in names:
            setattr(package, name, getattr(package, name))
        package.__all__ = [*names, *(part.name for part in pkgutil.iter_modules(package.__path__))]


if __name__ == "__main__":
    main()
