"""The plan of a reproduction: its runs, their order, what is missing, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from seer.config import build_config
from seer.errors import ConfigError, InputError
from seer.evaluation.benchmarks.longbench import LongBenchRecord
from seer.evaluation.benchmarks.tasks import LONGBENCH
from seer.evaluation.paper.estimate import TaskSize, estimate, measure_tasks
from seer.evaluation.paper.models import THINKING_TOKENS, PaperModels, load_models
from seer.evaluation.paper.plan import PLACES, choose_runs, plan_runs
from seer.evaluation.paper.report import SECTIONS

EVERYTHING = {
    "seer": {"model": "s"},
    "glyph": {"model": "g"},
    "iso": {"model": "i"},
    "text": {"qwen": {"model": "q", "thinks": False}, "deep": {"model": "d", "thinks": True}},
    "judge": {"model": "j"},
    "foreign": {"rlm": {"path": "rlm"}},
}


def models(**values: object) -> PaperModels:
    return build_config(PaperModels, values, where="test")


def names(values: dict[str, object], *only: str) -> list[str]:
    return [run.name for run in choose_runs(plan_runs(models(**values)), only)]


def test_plan_runs_covers_every_place_that_needs_a_run():
    plan = plan_runs(models(**EVERYTHING))
    assert [(run.name, run.missing) for run in plan if run.missing] == [
        ("foreign-rlm", "no folder at 'rlm'; put the predictions there")
    ]
    assert len({run.name for run in plan}) == len(plan)
    without_runs = {"table5", "table6", "table7", "table8", "table9"}
    assert {place for run in plan for place in run.places} == set(PLACES) - without_runs
    assert set(SECTIONS) == set(PLACES), "every table and figure has its place in the report"
    assert list(SECTIONS)[:20] == [f"table{number}" for number in range(1, 21)]


def test_plan_runs_puts_each_run_after_those_it_needs():
    done: set[str] = set()
    for run in plan_runs(models(**EVERYTHING)):
        assert set(run.needs) <= done, run.name
        done.add(run.name)


def test_plan_runs_offers_both_readings_of_one_page_and_withheld_retrieval():
    plan = {run.name: run for run in plan_runs(models(**EVERYTHING))}
    assert plan["k0"].system == "seer-k0"
    assert plan["k1-select"].policy == {"max_pages": 1}
    assert plan["k1-retrieve"].policy == {"max_retrieved_pages": 1}
    assert plan["unconstrained"].policy == {"constraint": "none"}
    assert {name for name in plan if name.startswith("forced")} == {
        *("forced-first", "forced-random", "forced-bm25", "forced-all", "forced-oracle")
    }


def test_plan_runs_without_models_says_what_is_missing():
    plan = {run.name: run.missing for run in plan_runs(models(seer={"model": "s"}))}
    assert plan["seer"] == plan["prefill"] == ""
    assert plan["glyph"] == "models.toml names no [glyph]"
    assert plan["text"] == "models.toml names no [text.NAME]"
    assert plan["labels"] == "models.toml names no [judge]"
    assert "neither [judge] nor labels" in plan["forced-oracle"]
    assert plan["foreign"] == "models.toml names no [foreign.NAME]"
    labelled = {run.name: run for run in plan_runs(models(seer={"model": "s"}, labels="l.jsonl"))}
    assert labelled["forced-oracle"].missing == "" and labelled["forced-oracle"].needs == ("seer",)


def test_choose_runs_adds_what_a_run_needs():
    assert names(EVERYTHING, "forced-oracle") == ["seer", "labels", "forced-oracle"]
    assert names(EVERYTHING, "table4") == ["seer", "glyph"]
    assert names(EVERYTHING, "table13", "calls") == [
        *("unconstrained", "latency-seer", "latency-glyph", "latency-qwen", "latency-deep")
    ]
    assert len(names(EVERYTHING)) == len(plan_runs(models(**EVERYTHING)))
    with pytest.raises(InputError, match="--only table21: must be a table"):
        names(EVERYTHING, "table21")


def test_models_that_think_get_tokens_to_think_by_default():
    spec = models(**EVERYTHING)
    assert spec.seer and spec.glyph and spec.iso
    assert spec.seer.reasoning_tokens == spec.glyph.reasoning_tokens == spec.iso.reasoning_tokens == THINKING_TOKENS
    assert spec.text["deep"].thinking_tokens == THINKING_TOKENS
    assert spec.text["qwen"].thinking_tokens == 0
    assert spec.judge and spec.judge.teacher.max_tokens >= 2048, "a judge that thinks is not cut"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[glyf]\nmodel = "g"', "unknown key 'glyf'.*did you mean 'glyph'"),
        ('[text.q]\nmodel = "q"', "text.q.thinks"),
        ('[text."a/b"]\nmodel = "q"\nthinks = true', "can't be part of a folder's name"),
        ('[seer]\nmodel = "s"\nreasoning_tokens = -1', "seer.reasoning_tokens"),
        ("[seer", "is not TOML"),
    ],
)
def test_load_models_rejects_invalid_files(tmp_path, content, message):
    path = tmp_path / "models.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_models(path)


SIZES = {"qasper": TaskSize({"visual": 300.0, "select-2": 500.0, "text": 900.0}, 100.0, 128)}
RECORDS = [
    LongBenchRecord(f"q{n}", "qasper", "Who?", "text " * 20, ("x",), None, "en", None) for n in range(20)
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inputs", "prompt", "completion"),
    [
        ("seer", 20, 10_000, 20 * 381),
        ("k0", 20, 6_000, 20 * 381),
        ("forced-all", 20, 24_000, 20 * 381),
        ("text-qwen", 20, 8_000, 20 * 128),
        ("latency-glyph", 10, 3_000, 10 * 381),
        ("labels", 20, 20 * 900 + 180 * 200, 180 * 381),
        ("foreign-rlm", 0, 0, 0),
    ],
)
def test_estimate_scales_task_means_to_all_records(name, inputs, prompt, completion):
    text = {"qwen": {"model": "q", "thinks": False, "max_context_tokens": 400}}
    spec = models(**{**EVERYTHING, "text": text})
    run = next(run for run in plan_runs(spec) if run.name == name)
    found = estimate(run, RECORDS, SIZES, spec)
    assert (found.num_inputs, found.prompt_tokens, found.completion_tokens) == (inputs, prompt, completion)


def test_estimate_multiplies_tokens_by_prices():
    prices = {"usd_per_million_prompt_tokens": 2.0, "usd_per_million_completion_tokens": 10.0}
    spec = models(seer={"model": "s", **prices}, style="seer")
    found = estimate(plan_runs(spec)[0], RECORDS, SIZES, spec)
    assert found.usd == pytest.approx((10_000 * 2 + 7_620 * 10) / 1e6)


def test_measure_tasks_counts_a_sample_of_each_task():
    sizes = measure_tasks(RECORDS, LONGBENCH, models(style="seer"), sample=1)
    assert sizes.keys() == {"qasper"}
    assert sizes["qasper"].prompts["text"] > 20 and sizes["qasper"].max_new_tokens == 128


def test_shipped_models_file_names_every_model():
    spec = load_models(Path(__file__).parents[3] / "configs" / "paper-models.toml")
    # Predictions of other programs are made elsewhere; their folder is missing until they are put there.
    assert [run.name for run in plan_runs(spec) if run.missing] == ["foreign-rlm"]
    assert spec.reference in spec.text
