"""Requests and results with a fake lm-evaluation-harness; `test_harness` runs the real one if it is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fixtures.data.teacher_server import Say, serve
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.errors import EngineUnavailable, InputError, ModelError
from seer.evaluation.harness.run import run_harness

RECORDS = [{"context": f"{n * n}\nis a square.", "question": f"Which, {n}?"} for n in range(4)]


STOPS = {"until": ["\n"], "max_gen_toks": 16}


class LM:
    """The harness's base class."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.cache_hook = SimpleNamespace(add_partial=lambda kind, arguments, text: self.kept.append(text))


class TaskManager:
    all_tasks = ("small",)

    def __init__(self, include_path: str | None, include_defaults: bool) -> None:
        pass


def simple_evaluate(model: Any, tasks: list[str], limit: int | None, **_: Any) -> dict[str, Any]:
    """Request a text for each record, and score the fraction of texts that are not empty."""
    requests = [
        SimpleNamespace(args=(f"{record['context']}\n\n{record['question']}", STOPS), doc=record)
        for record in RECORDS[:limit]
    ]
    texts = model.generate_until(requests)
    assert model.kept == texts
    return {"results": {"small": {"alias": "small", "not_empty,none": sum(map(bool, texts)) / len(texts)}}}


@pytest.fixture
def fake_harness(monkeypatch) -> None:
    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    module("lm_eval", __version__="0.4.9", simple_evaluate=simple_evaluate)
    module("lm_eval.tasks", TaskManager=TaskManager)
    module("lm_eval.api")
    module("lm_eval.api.instance", Instance=SimpleNamespace)
    module("lm_eval.api.model", LM=LM)
    # The module of our model must be imported with the fake and removed after the test. Set it first, so that monkeypatch
    # restores its absence, then delete it to force the import.
    module("seer.evaluation.harness.model")
    monkeypatch.delitem(sys.modules, "seer.evaluation.harness.model")


def run(url: str, out: Path, *more: str) -> Any:
    return CliRunner().invoke(app, ["harness", "--base-url", url, "--tasks", "small", "--out", str(out), *more])


def test_run_harness_sends_documents_as_files_and_cuts_at_stops(fake_harness, tmp_path):
    with serve(lambda body, n: Say("16\nand more")) as server:
        result = run(server.base_url, tmp_path, "--limit", "3", "--json")
        assert result.exit_code == 0, result.output
        assert run(server.base_url, tmp_path, "--limit", "3").exit_code == 0
        requests = server.asked
    assert len(requests) == 3  # Finished calls are not repeated.
    types = [part["type"] for part in requests[0]["messages"][-1]["content"]]
    assert types == ["file", "text"]
    assert {body["max_tokens"] for body in requests} == {1024 + 16}
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["harness"], results["requests"], results["failed"]) == ("0.4.9", 3, 0)
    assert results["results"]["small"]["not_empty,none"] == 1.0
    assert json.loads(result.stdout.splitlines()[-1])["results"] == results["results"]


def test_run_harness_counts_failed_request_as_empty_text(fake_harness, tmp_path):
    with serve(lambda body, n: Say(status=400) if n == 0 else Say("4")) as server:
        summary = run_harness(server.base_url, ["small"], tmp_path)
    assert (summary.num_requests, len(summary.failures)) == (4, 1)
    assert "400" in summary.failures[0]
    assert summary.results["small"]["not_empty,none"] == 0.75


def test_run_harness_stops_at_unusable_server(fake_harness, tmp_path):
    with serve(lambda body, n: Say(status=401)) as server, pytest.raises(EngineUnavailable, match="401"):
        run_harness(server.base_url, ["small"], tmp_path)
    assert not (tmp_path / "results.json").exists()


def test_run_harness_rejects_unknown_task_and_likelihoods(fake_harness, tmp_path):
    with pytest.raises(InputError, match="the harness has no task 'large'; `lm-eval ls tasks` lists them"):
        run_harness("http://127.0.0.1:9/v1", ["small", "large"], tmp_path, include=tmp_path)
    from seer.evaluation.harness.model import ServedSeer

    model = ServedSeer(None, tmp_path / "ledger.jsonl", 0, "context")  # type: ignore[arg-type]
    for method in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(InputError, match="gives no likelihoods; choose tasks that generate"):
            method([])


def test_run_harness_without_package_names_install_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ModelError, match=r"this needs lm-evaluation-harness .*pip install 'seer-vlm\[lm-eval\]'"):
        run_harness("http://127.0.0.1:9/v1", ["longbench"], tmp_path)
