"""Examples, inline commands, links and tables of README.md and docs/*.md agree with the code."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import serving_fakes
from guides import (
    BENCHMARKS,
    EXAMPLES,
    MENTIONED,
    PAGES,
    README,
    ROOT,
    TEXTS,
    TREE,
    find_command,
    known_extras,
    options_of_script,
    rows_of,
)


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
@pytest.mark.usefixtures("run_in_folder")
def test_python_example_runs(name, example, monkeypatch, capsys):
    from seer.reading.policy import ReadingPolicy

    monkeypatch.setattr("seer.reading.reader.ReadingPolicy", functools.partial(ReadingPolicy, max_new_tokens=8))
    with server_for(example) as source:
        exec(compile(source, name, "exec"), {})
    assert capsys.readouterr().out


SERVER = "http://127.0.0.1:8080"


@contextmanager
def server_for(example: str) -> Iterator[str]:
    """Start our server if the example uses one; yields the example with the server's address."""
    if SERVER not in example:
        yield example
        return
    pytest.importorskip("uvicorn")
    from seer.engines.build import build_engine, make_concurrent
    from seer.reading.policy import ReadingPolicy
    from seer.serving.server import create_app
    from seer.serving.settings import ServeSettings

    app = create_app(make_concurrent(build_engine("scripted")), ReadingPolicy(), ServeSettings())
    with serving_fakes.listening(app) as address:
        yield example.replace(SERVER, address)


@pytest.mark.parametrize("text", BENCHMARKS)
def test_benchmark_example_loads(text, tmp_path):
    from seer.evaluation.benchmarks.custom import FILE_NAME, load_benchmark

    (tmp_path / FILE_NAME).write_text(text)
    assert load_benchmark(tmp_path).tasks


@pytest.mark.parametrize("mention", MENTIONED)
def test_inline_command_exists_with_its_options(mention):
    words = tuple(shlex.split(mention))
    if words[0] == "bash":
        assert (ROOT / words[1]).is_file()
        return
    if words[0].endswith(".py"):
        options = options_of_script(words[0])
    else:
        command, _ = find_command(words)
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        options = {name for one in shown for name in (*one.opts, *one.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options | {"--help"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_paths_exist(path):
    text = TEXTS[path]
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", text):
        assert (path.parent / target).exists(), target
    for name in re.findall(r"`((?:seer|train|data_pipeline|scripts|configs|tests|docs)/[\w./*-]*)`", text):
        assert list(ROOT.glob(name.rstrip("/"))), name
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert list((ROOT / "tests").rglob(name)), name


def test_readme_tree_names_existing_folders():
    for line in TREE.splitlines():
        parent = ROOT / "seer" if line.startswith(" ") else ROOT
        for name in line.strip().partition("  ")[0].split():
            assert (parent / name).exists(), f"the tree names {name}"


def test_readme_is_short():
    assert len(TEXTS[README].splitlines()) < 150


def test_guides_list_every_system_style_extra_and_package():
    from seer.rendering.styles import STYLES
    from seer.systems.build import SYSTEMS

    assert rows_of("documents.md", "system") == list(SYSTEMS)
    assert sorted(rows_of("documents.md", "style")) == sorted([*STYLES, "auto"])
    assert set(rows_of("getting-started.md", "extra")) == known_extras()
    packages = {path.name for path in (ROOT / "seer").iterdir() if (path / "__init__.py").is_file()}
    assert packages - {"data"} <= set(rows_of("architecture.md", "package"))


def test_guides_name_existing_fields():
    from seer.reading.policy import ReadingPolicy
    from seer.serving.settings import ChatOptions, ServeSettings

    assert set(rows_of("documents.md", "field")) <= set(ReadingPolicy.model_fields)
    assert set(rows_of("serving.md", "option")) == set(ServeSettings.model_fields)
    assert set(rows_of("serving.md", "field of `seer` in the request")) == set(ChatOptions.model_fields)
