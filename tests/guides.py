"""README.md, CONTRIBUTING.md and docs/*.md as data for their tests: commands, examples, inline commands, tables."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from typer.main import get_command

import data_pipeline.cli
import seer.cli.main
import train.cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GUIDES = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = (*GUIDES, *(ROOT / name for name in ("SECURITY.md", "CHANGELOG.md")))
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}
BLOCKS = [
    (path.name, language, body)
    for path in GUIDES
    for language, body in re.findall(r"^ *```(\w*)\n(.*?)^ *```", TEXTS[path], re.MULTILINE | re.DOTALL)
]
LINES = [line for _, language, body in BLOCKS if language == "sh" for line in body.splitlines()]
COMMANDS = list(dict.fromkeys(words for line in LINES if (words := tuple(shlex.split(line, comments=True)))))
EXAMPLES = [(name, body) for name, language, body in BLOCKS if language == "python"]
BENCHMARKS = [body for _, language, body in BLOCKS if language == "toml"]
TREE = next(body for name, _, body in BLOCKS if name == "README.md" and body.startswith("seer/  "))
INLINE = r"`((?:seer|seer-data|seer-train|bash|scripts/[\w/]+\.py)(?: [^`]+)?)`"
MENTIONED = sorted({mention for path in PAGES for mention in re.findall(INLINE, TEXTS[path])})
APPS = {"seer": seer.cli.main.app, "seer-train": train.cli.app, "seer-data": data_pipeline.cli.app}


def find_command(words: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The command that these words call, and its arguments."""
    command, rest = get_command(APPS[words[0]]), list(words[1:])
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    return command, rest


def known_extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def options_of_script(path: str) -> set[str]:
    calls = [node for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.Call)]
    return {str(node.args[0].value) for node in calls if node.args and isinstance(node.args[0], ast.Constant)}


def rows_of(page: str, header: str) -> list[str]:
    """All names in the first column of the table with this header, over all tables of that header in a guide."""
    text = TEXTS[ROOT / "docs" / page]
    tables = re.findall(rf"^\| {re.escape(header)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert tables, f"{page} has no table '{header}'"
    return [
        name for table in tables for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]
