"""Versions of the libraries that can change an answer or a score."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

ANSWERING = ("seer-vlm", "torch", "transformers", "vllm", "xgrammar", "bm25s", "pillow")
SCORING = ("seer-vlm", "jieba", "rapidfuzz")


def library_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Python's version and those of the named packages that are installed."""
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def scored_with() -> str:
    """One phrase for notes under tables."""
    return ", ".join(f"{name} {number}" for name, number in library_versions(SCORING).items())
