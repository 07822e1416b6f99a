"""Prefill probes of runs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from seer.cli.eval.main import app
from seer.engines.base import Generation
from seer.engines.scripted import ScriptedEngine
from seer.errors import EngineError, InputError
from seer.evaluation.analysis.scored_run import load_run
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.runs.plan_longbench import PredictOptions, predict
from seer.evaluation.runs.probing import PROBES_NAME, probe_run, read_probes
from seer.reading.policy import ReadingPolicy
from seer.reading.reader import Reader
from seer.systems.seer import ReadingSystem

SENTENCE = "Digger 7 found the ruin behind the third hill, and nobody has been there since. "


def records(number: int, repeats: int = 200) -> list[LongBenchRecord]:
    return [
        LongBenchRecord(
            f"hotpotqa-{n}", "hotpotqa", f"Who found ruin {n}?", SENTENCE * repeats, ("Digger 7",), 9, "en", None
        )
        for n in range(number)
    ]


def make_system(mode: str = "select") -> ReadingSystem:
    return ReadingSystem("seer", Reader(ScriptedEngine(), None, ReadingPolicy(mode=mode)), "seer")


def test_probe_run_probes_each_input_of_run_once(tmp_path):
    system = make_system()
    predict(records(3), system, tmp_path, PredictOptions(batch_size=1))
    engine = system.reader.engine
    engine.requests.clear()
    assert probe_run(records(5), system, tmp_path) == 3
    assert [request.sampling.max_new_tokens for request in engine.requests] == [1, 1, 1]
    assert len({request.session for request in engine.requests}) == 3
    assert set(engine.forgotten) >= {request.session for request in engine.requests}
    with (tmp_path / PROBES_NAME).open("a", encoding="utf-8") as file:
        file.write('{"id": "torn')
    assert probe_run(records(5), system, tmp_path) == 0
    probes = read_probes(tmp_path)
    assert sorted(probes) == ["hotpotqa-0", "hotpotqa-1", "hotpotqa-2"]
    assert all(probe.prompt_tokens > 100 and probe.seconds > 0 for probe in probes.values())
    assert load_run(tmp_path).probes == probes


def test_probe_run_drops_engine_caches_before_each_probe(tmp_path):
    system = make_system()
    predict(records(3), system, tmp_path, PredictOptions(batch_size=1))
    engine, happened = system.reader.engine, []
    generate = engine.generate
    engine.drop_caches = lambda: happened.append("drop")
    engine.generate = lambda requests: happened.append("generate") or generate(requests)
    probe_run(records(3), system, tmp_path)
    assert happened == ["drop", "generate"] * 3


def test_probe_run_sends_whole_text_in_text_mode(tmp_path):
    system = make_system("text")
    predict(records(1), system, tmp_path)
    probe_run(records(1), system, tmp_path)
    (turn,) = system.reader.engine.requests[-1].prompt.turns
    assert (turn.pages, turn.excerpts[0].text) == ((), SENTENCE * 200)


def test_probe_run_raises_on_failed_generation(tmp_path):
    system = make_system()
    predict(records(1), system, tmp_path)
    system.reader.engine.generate = lambda requests: [Generation.failed(EngineError("out of memory"))]
    with pytest.raises(EngineError, match="'hotpotqa-0' failed: out of memory"):
        probe_run(records(1), system, tmp_path)


def test_probe_run_rejects_system_of_several_models(tmp_path):
    class Other:
        name = "other"

    predict(records(1), make_system(), tmp_path)
    with pytest.raises(InputError, match="system 'other' reads with several models"):
        probe_run(records(1), Other(), tmp_path)


def test_probe_command_probes_own_runs_only(tmp_path):
    fields = {"input": "Who?", "context": SENTENCE, "answers": ["Digger 7"]}
    data = tmp_path / "data"
    data.mkdir()
    (data / "hotpotqa.jsonl").write_text(json.dumps(fields) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    common = ["--data", str(data), "--engine", "scripted", "--out", str(out), "--batch-size", "1"]
    assert CliRunner().invoke(app, ["predict", *common]).exit_code == 0
    probed = CliRunner().invoke(app, ["probe", str(out), "--data", str(data)])
    assert probed.exit_code == 0, probed.output
    assert list(read_probes(out)) == ["hotpotqa-0000"]
    elsewhere = CliRunner().invoke(app, ["probe", str(tmp_path), "--data", str(data)])
    assert "lacks system, engine" in str(elsewhere.exception)
    missing = CliRunner().invoke(app, ["probe", str(tmp_path / "none"), "--data", str(data)])
    assert f"no folder at '{tmp_path / 'none'}'; give a run that `seer eval predict` made" in str(missing.exception)


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "x"}', '{"id": "x", "extra": 1}'])
def test_read_probes_names_the_line_that_is_not_a_probe(tmp_path, line):
    system = make_system()
    predict(records(1), system, tmp_path, PredictOptions(batch_size=1))
    probe_run(records(1), system, tmp_path)
    with (tmp_path / PROBES_NAME).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=f"{PROBES_NAME}', line 2: not a probe .*; delete the line"):
        read_probes(tmp_path)
