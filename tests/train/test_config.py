"""Invalid configurations and their error messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from train_fakes import config
from typer.testing import CliRunner

from seer.config import build_config, load_config
from seer.errors import ConfigError, SeerError
from seer.schema import LossClass
from train.cli import app, set_wait_policy
from train.config import LossWeights, OptimizerConfig, TrainConfig
from train.optimizer import learning_rate

CONFIGS = Path(__file__).parents[2] / "configs"
TRAINING = sorted(
    p
    for p in CONFIGS.rglob("*.toml")
    if not p.name.startswith(("data-", "miniature", "paper-")) and "verl" not in p.parts
)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"optimizer": {"lrr": 1}}, "unknown key 'lrr'.*did you mean 'lr'"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr"),
        (
            {"optimizer": {"lr": 3e-6}, "parallel": {"precision": "bf16"}},
            "plain bf16 weights at lr 3e-06 hardly change",
        ),
        (  # 8-bit moments do not change how bf16 weights are rounded
            {"optimizer": {"kind": "adamw_8bit", "lr": 3e-6}, "parallel": {"precision": "bf16"}},
            "plain bf16 weights at lr 3e-06 hardly change",
        ),
        ({"optimizer": {"kind": "adamw_bf16_states", "betas": (0.9, 0.999)}}, "beta2 = 0.999 never decays"),
        ({"optimizer": {"kind": "adamw_stochastic"}}, 'set it to "bf16"'),
        ({"loss": dict.fromkeys(LossWeights.model_fields, 0)}, "every loss weight is 0"),
        ({"batching": {"max_tokens": 1024, "micro_batch_tokens": 512}}, "would fit no micro-batch"),
        ({"stop": {"metric": "exact/call"}}, "needs figures"),
        ({"data": {"sets": [{"path": "a", "samples_per_step": 3}]}}, 'belongs to data.mixing = "step"'),
        ({"data": {"sets": []}}, "data.sets"),
        (
            {"evaluation": {"generate_samples": 2}},
            "evaluation.generate_samples needs data.held_out and checkpoint.export = true",
        ),
    ],
)
def test_config_rejects_bad_settings_with_a_remedy(sections: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config("out", **sections)


def test_loss_weights_by_default_learn_the_turns_of_the_model_only() -> None:
    weights = LossWeights()
    assert {c: weights.of(c) for c in LossClass} == {
        LossClass.PROMPT: 0,
        LossClass.OBSERVATION: 0,
        **dict.fromkeys((LossClass.CALL, LossClass.STRUCTURE, LossClass.THINK, LossClass.ANSWER, LossClass.STOP), 1),
    }


def test_learning_rate_follows_warmup_and_schedule() -> None:
    cosine = OptimizerConfig(lr=1.0, warmup_steps=4, schedule="cosine", final_lr_share=0.1)
    rates = [learning_rate(cosine, step, 20) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert learning_rate(OptimizerConfig(lr=2.0), 999, 1000) == 2.0
    assert learning_rate(OptimizerConfig(lr=2.0, schedule="linear"), 9, 10) == 0.0
    assert learning_rate(OptimizerConfig(schedule="linear"), 0, 1) > 0


@pytest.mark.parametrize("path", TRAINING, ids=lambda p: p.stem)
def test_shipped_config_loads_and_differs_from_the_defaults(path: Path) -> None:
    import tomllib

    resolved = load_config(TrainConfig, path)
    written = tomllib.loads(path.read_text())
    defaults = build_config(
        TrainConfig, {"out": "x", "data": {"sets": [{"path": "x"}]}, "model": {"path": "x"}}, where=""
    )
    for section, values in written.items():
        for key, value in values.items() if isinstance(values, dict) and section not in ("data", "model") else ():
            assert getattr(getattr(defaults, section), key) != value, f"{section}.{key} only repeats the default"
    assert resolved.steps > 0


def test_iso_control_config_differs_from_the_paper_run_in_one_field() -> None:
    paper, control = (load_config(TrainConfig, CONFIGS / f"{n}.toml").model_dump() for n in ("seer-9b", "iso-control"))
    assert paper.pop("out") != control.pop("out")
    assert control["data"].pop("drop_turns") == ("call", "observation")
    assert paper["data"].pop("drop_turns") == ()
    assert paper == control


ABLATIONS = {
    "bf16-moments": {("optimizer", "kind")},
    "call-weight-4": {("loss", "structure")},
    "equal-weights": {("loss", "call"), ("loss", "structure")},
    "frozen-vision": {("model", "freeze_vision"), ("model", "freeze_merger")},
    "no-tags": {("loss", "structure"), ("loss", "stop")},
    "no-think": {("data", "drop_turns")},
}


def test_ablation_configs_differ_from_the_paper_run_in_the_ablated_fields() -> None:
    paper = load_config(TrainConfig, CONFIGS / "seer-9b.toml").model_dump()
    files = {path.stem: path for path in (CONFIGS / "ablations").glob("*.toml")}
    assert files.keys() == ABLATIONS.keys()
    for name, path in files.items():
        ablation = load_config(TrainConfig, path).model_dump()
        differing = {
            (section, key)
            for section, values in ablation.items()
            if isinstance(values, dict)
            for key, value in values.items()
            if value != paper[section][key]
        }
        assert differing == ABLATIONS[name], name
        assert (ablation["steps"], ablation["seed"]) == (paper["steps"], paper["seed"])


def test_paper_config_upweights_calls_and_format_tags_only() -> None:
    """The paper upweights both without numbers; an ablation has weight 1 everywhere."""
    loss = load_config(TrainConfig, CONFIGS / "seer-9b.toml").loss
    assert loss.call == loss.structure > loss.think == loss.answer == loss.stop == 1
    assert loss.observation == 0
    assert load_config(TrainConfig, CONFIGS / "ablations" / "equal-weights.toml").loss == LossWeights()


def test_training_configs_read_the_output_of_the_data_build() -> None:
    """`seer-data build configs/data-paper.toml` and `seer-train run` fit together without --set."""
    import tomllib

    built = tomllib.loads((CONFIGS / "data-paper.toml").read_text())
    assert built["validation_share"] > 0
    for path in (CONFIGS / "seer-9b.toml", CONFIGS / "iso-control.toml", *(CONFIGS / "ablations").glob("*.toml")):
        data = load_config(TrainConfig, path).data
        assert [entry.path for entry in data.sets] == [f"{built['out']}/train"], path
        assert [entry.path for entry in data.held_out] == [f"{built['out']}/validation"], path


def test_verl_config_has_the_data_and_weights_of_the_paper_run() -> None:
    yaml = pytest.importorskip("yaml")
    verl = yaml.safe_load((CONFIGS / "verl" / "seer-9b.yaml").read_text())["data"]
    paper = load_config(TrainConfig, CONFIGS / "seer-9b.toml")
    assert verl["train_files"] == [entry.path for entry in paper.data.sets]
    assert verl["val_files"] == [entry.path for entry in paper.data.held_out]
    assert LossWeights(**verl["seer"]["weights"]) == paper.loss
    assert verl["max_length"] == paper.batching.max_tokens


def test_paper_config_has_the_values_of_the_paper() -> None:
    paper = load_config(TrainConfig, CONFIGS / "seer-9b.toml")
    assert (paper.optimizer.lr, paper.steps, paper.batching.global_batch, paper.batching.max_tokens) == (
        3e-6,
        6000,
        2,
        16384,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.toml"], "no configuration at 'nowhere.toml'"),
        (["run", "{config}"], "no checkpoint folder at 'no-model'"),
        (["run", "{config}", "--set", "optimizer.lr=-1"], "optimizer.lr"),
        (["run", "{config}", "--set", "nonsense"], "is not an override"),
    ],
)
def test_run_command_with_bad_input_exits_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'out = "{tmp_path}/run"\n[data]\nsets = [{{ path = "no-data" }}]\n[model]\npath = "no-model"\n')
    result = CliRunner().invoke(app, [a.format(config=path) for a in arguments])
    assert isinstance(result.exception, SeerError) and result.exception.exit_code == 2
    assert message in str(result.exception)


def test_cli_import_loads_no_heavy_library() -> None:
    code = (
        "import sys, train.cli; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'numpy', 'pyarrow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=CONFIGS.parent).returncode == 0


@pytest.mark.parametrize(
    ("busy", "given", "policy"), [(3.0, None, None), (50.0, None, "PASSIVE"), (50.0, "ACTIVE", "ACTIVE")]
)
def test_set_wait_policy_is_passive_only_on_busy_cores(monkeypatch, busy, given, policy) -> None:
    psutil = pytest.importorskip("psutil")
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: busy)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    set_wait_policy()
    assert os.environ.get("OMP_WAIT_POLICY") == policy
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
