"""The training loop: its log, its end conditions, and its errors; and the command `inspect`."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest
import torch
from train_fakes import config, tiny_base, tiny_checkpoint, trajectories, trajectory
from typer.testing import CliRunner

from seer.errors import InputError
from seer.protocol.turns import observation, observation_without_text
from train.cli import app
from train.data.dataset import without_turns
from train.evaluation import policy_of
from train.loop import fit
from train.metrics import MetricsFile, Wandb, read_metrics, wandb_mode
from train.parallel import World
from train.planning.flops import flops_model, peak_flops
from train.run import Run, build_run
from train.step import NonFiniteError, train_step

ALONE = World(0, 1, torch.device("cpu"), None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """A short run with every feature enabled, background threads included."""
    out = tmp_path_factory.mktemp("run")
    settings = config(
        out,
        steps=30,
        data={"sets": [{"path": "a", "share": 2}, {"path": "b"}], "held_out": [{"path": "h"}], "prefetch_steps": 2},
        optimizer={"lr": 3e-3, "warmup_steps": 3},
        evaluation={"every_steps": 10, "max_samples": 6, "generate_samples": 2},
        checkpoint={"every_steps": 10, "export": True},
    )
    summary = fit(settings, sources=[trajectories(8), trajectories(8, False)], held_out=[trajectories(8)])
    return out, settings, summary


def test_fit_lowers_the_loss_and_logs_every_step(finished) -> None:
    out, _, summary = finished
    records = read_metrics(out / "metrics.jsonl")
    steps = [r for r in records if "kind" not in r]
    assert [r["step"] for r in steps] == list(range(1, 31))
    assert steps[-1]["loss"] < steps[0]["loss"] / 2
    wanted = {"lr", "grad_norm", "tokens_per_s", "text_tokens", "vision_tokens", "supervised_share", "weight_sum"}
    wanted |= {"peak_memory_gib", "data_wait_s", "step_s", "loss/call", "loss/stop", "rejected", "flops"}
    assert wanted <= steps[0].keys()
    assert "loss/prompt" not in steps[0]
    assert "loss/observation" not in steps[0]
    assert steps[0]["lr"] == pytest.approx(1e-3)
    assert summary.reason == "steps"


def test_fit_logs_held_out_figures(finished) -> None:
    out, _, summary = finished
    evaluations = [r for r in read_metrics(out / "metrics.jsonl") if r.get("kind") == "eval"]
    assert [r["step"] for r in evaluations] == [10, 20, 30]
    assert evaluations[-1]["eval/loss"] < evaluations[0]["eval/loss"]
    assert 0 <= evaluations[-1]["eval/exact/call"] <= 1
    assert summary.evaluation.items() >= {k: v for k, v in evaluations[-1].items() if k != "kind"}.items()


def test_fit_answers_held_out_questions_with_the_exported_model(finished) -> None:
    out, _, summary = finished
    (record,) = [r for r in read_metrics(out / "metrics.jsonl") if r.get("kind") == "generation"]
    assert record["generated/samples"] == 2
    assert 0 <= record["generated/pages"] <= 1
    assert summary.evaluation["generated/answers"] == record["generated/answers"]
    assert "generated/pages" in (out / "model" / "README.md").read_text()


def test_policy_of_matches_the_conversation() -> None:
    """Without calls there is no selection, two calls are two rounds, and long reasoning raises the token limit."""
    encoder = tiny_checkpoint().encoder
    item = trajectory(0)
    prompt, call, seen, think, answer = item.turns
    once = policy_of(item.turns, encoder)
    assert (once.mode, once.rounds, once.think, once.retrieve, once.max_new_tokens) == ("select", 1, True, True, 256)
    assert policy_of([prompt, call, seen, call, seen, think, answer], encoder).rounds == 2
    assert not policy_of([prompt, call, seen, answer], encoder).think
    assert policy_of(without_turns(item.turns, ("call", "observation")), encoder).mode == "visual"
    assert not policy_of([prompt, call, observation_without_text(call.pages), think, answer], encoder).retrieve
    nothing = call.model_copy(update={"pages": ()})
    assert policy_of([prompt, nothing, observation([]), think, answer], encoder).retrieve
    many = call.model_copy(update={"pages": tuple(range(1, 13))})
    assert policy_of([prompt, many, seen, think, answer], encoder).max_pages == 12
    long = think.model_copy(update={"text": "It stands there. " * 300})
    words = encoder.count_text(long.text)
    assert policy_of([prompt, call, seen, long, answer], encoder).max_new_tokens > 2 * words


def test_generate_without_calls_has_no_figure_for_pages(tmp_path: Path) -> None:
    settings = config(
        tmp_path,
        steps=1,
        data={"held_out": [{"path": "h"}], "drop_turns": ["call", "observation"]},
        evaluation={"generate_samples": 2},
        checkpoint={"export": True},
    )
    summary = fit(settings, sources=[trajectories(8)], held_out=[trajectories(8)])
    assert summary.evaluation["generated/samples"] == 2
    assert "generated/answers" in summary.evaluation
    assert "generated/pages" not in summary.evaluation


def test_fit_writes_the_resolved_configuration(finished) -> None:
    from seer.config import load_config
    from train.config import TrainConfig

    out, settings, _ = finished
    assert load_config(TrainConfig, out / "config.toml") == settings.resolved(cuda=torch.cuda.is_available())


def test_fit_ends_when_the_metric_is_good_enough(tmp_path: Path) -> None:
    settings = config(
        tmp_path,
        steps=50,
        data={"held_out": [{"path": "h"}]},
        evaluation={"every_steps": 2},
        stop={"metric": "exact/call", "at_least": 0.0},
    )
    for _ in range(2):  # a second start, for example after a kill during export, makes no more steps
        summary = fit(settings, sources=[trajectories(8)], held_out=[trajectories(2)])
        assert (summary.steps, summary.reason) == (2, "metric")
    assert [record["step"] for record in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 2]


def test_fit_saves_each_state_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last state is saved once even if a checkpoint is due: for a large model it takes minutes and 100 GB."""
    saved: list[int] = []
    save = Run.save
    monkeypatch.setattr(Run, "save", lambda run, step: (saved.append(step), save(run, step)))
    fit(config(tmp_path, steps=4, checkpoint={"every_steps": 2}), sources=[trajectories(8)])
    assert saved == [2, 4]


def test_train_step_with_non_finite_loss_makes_no_update_and_saves_the_batch(tmp_path: Path) -> None:
    run = build_run(config(tmp_path), ALONE, [trajectories(8)])
    train_step(run, 0, run.loader.take(0))
    with torch.no_grad():
        run.trainee.model.lm_head.weight[3] = float("inf")
    before = {n: p.detach().clone() for n, p in run.trainee.named_parameters()}
    with pytest.raises(NonFiniteError, match="the update was not made and the batch is kept in") as caught:
        train_step(run, 1, run.loader.take(1))
    assert all(torch.equal(p, before[n]) for n, p in run.trainee.named_parameters())
    folder = Path(re.search(r"kept in '([^']+)'", str(caught.value))[1])
    about = json.loads((folder / "about.json").read_text())
    assert sum(len(ids) for ids in about["samples"]) == 4
    assert list(folder.glob("*.safetensors"))


def test_fit_with_rejected_samples_only_is_an_error_and_makes_no_update(tmp_path: Path) -> None:
    """If every trajectory is too long, there is no step to make."""
    long = [trajectory(i, lines=40) for i in range(4)]
    run = build_run(config(tmp_path, batching={"global_batch": 2, "max_tokens": 100}), ALONE, [long])
    before = [p.detach().clone() for p in run.trainee.parameters()]
    with pytest.raises(
        InputError, match=r"every trajectory of set 0 is rejected \(over_long 4\); raise batching.max_tokens"
    ):
        train_step(run, 0, run.loader.take(0))
    assert all(torch.equal(p, b) for p, b in zip(run.trainee.parameters(), before, strict=True))


def test_fit_raises_errors_of_the_loader_thread(tmp_path: Path) -> None:
    broken = [trajectory(0).model_copy(update={"source": "x"})]
    with pytest.raises(InputError, match="shows pages"):
        fit(config(tmp_path, data={"prefetch_steps": 3}), sources=[broken])


def test_metrics_file_of_a_resumed_run_drops_repeated_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    log = MetricsFile(path, start_step=2)
    log.write({"step": 3, "again": True})
    log.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


def test_fit_with_wandb_works_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    fit(config(tmp_path, steps=2, log={"wandb": True}), sources=[trajectories(8)])
    assert list((tmp_path / "wandb").glob("offline-run-*"))
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2


@pytest.mark.parametrize(
    ("environment", "login", "mode"),
    [
        ({}, "", "offline"),
        ({"WANDB_API_KEY": "k"}, "", "online"),
        ({}, "machine api.wandb.ai login user password k", "online"),
        ({"WANDB_MODE": "offline"}, "machine api.wandb.ai login user password k", "offline"),
        ({"WANDB_BASE_URL": "https://own.example"}, "machine api.wandb.ai login user password k", "offline"),
        ({"WANDB_BASE_URL": "https://own.example:8080/x"}, "machine own.example login user password k", "online"),
        ({}, "machine machine machine", "offline"),
    ],
)
def test_wandb_mode_follows_the_key_and_the_login(
    environment: dict[str, str], login: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "netrc").write_text(login)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wandb_mode() == mode


def test_wandb_resumed_run_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict] = []
    fake = types.ModuleType("wandb")
    fake.init = lambda **options: started.append(options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for _ in range(2):
        Wandb("seer", tmp_path, {})
    assert started[0]["id"] == started[1]["id"] != ""
    assert started[1]["resume"] == "allow"


def test_flops_model_counts_a_frozen_tower_below_a_trained_merger_once() -> None:
    shape = tiny_checkpoint().model.config
    whole, merger, frozen = (flops_model(shape, *trained) for trained in ((True, True), (False, True), (False, False)))
    patches = [model.of(0, 100, 0, 0, 0) for model in (whole, merger, frozen)]
    assert patches[2] * 3 == pytest.approx(patches[0])
    assert patches[1] - patches[2] == pytest.approx(2 * 100 * whole.per_merged_patch)


def test_flops_model_equals_the_counter_of_torch() -> None:
    """The formula equals torch's FlopCounter on the model, forward and backward, with vision."""
    from torch.utils.flop_counter import FlopCounterMode
    from train_fakes import samples

    from train.config import ModelConfig
    from train.data.collate import collate
    from train.model.glm4v import prepare

    checkpoint = tiny_checkpoint()
    batch = collate(samples(checkpoint, 3))
    trainee = prepare(checkpoint, ModelConfig(path="x"), 0)
    with FlopCounterMode(display=False) as counter:
        trainee(batch).total.backward()
    planned = flops_model(checkpoint.model.config).of_batch(batch)
    # torch does not count attention on a CPU, so the formula's attention is subtracted; it is small here.
    attention = planned - flops_model(checkpoint.model.config).of(
        batch.num_tokens, len(batch.patches_PX), len(batch.targets_N), 0, 0
    )
    assert counter.get_total_flops() == pytest.approx(planned - attention, rel=0.1)


def test_peak_flops_matches_the_most_specific_name() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA L40") == 181e12
    assert peak_flops("NVIDIA L4") == 121e12
    assert peak_flops("cpu") is None


# ── inspect ──────────────────────────────────────────────────────────────────────────────────────


def hostile_file(folder: Path) -> Path:
    item = trajectory(0)
    turns = (
        item.turns[0].model_copy(update={"text": "<script>alert(1)</script> \x1b[31mred [bold]x[/bold]"}),
        *item.turns[1:],
    )
    path = folder / "data.jsonl"
    path.write_text(item.model_copy(update={"turns": turns, "id": "<b>id</b>"}).model_dump_json() + "\n")
    return path


def test_inspect_shows_classes_and_escapes_hostile_text(tmp_path: Path) -> None:
    data = hostile_file(tmp_path)
    shown = CliRunner().invoke(app, ["inspect", str(data), "--model", str(tiny_base())])
    assert shown.exit_code == 0, shown.output
    assert "\x1b[31m" not in shown.output
    assert "\\x1b[31mred [bold]x[/bold]" in shown.output.replace("\n", "")
    assert "vision tokens" in shown.output

    page = tmp_path / "page.html"
    written = CliRunner().invoke(app, ["inspect", str(data), "--model", str(tiny_base()), "--html", str(page)])
    assert written.exit_code == 0, written.output
    text = page.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<b>id" not in text
    assert 'class="loss call learned"' in text
    assert 'class="loss observation"' in text


def test_inspect_shows_rejections_and_rejects_an_empty_range(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(trajectory(0).model_dump_json() + "\n")
    settings = tmp_path / "run.toml"
    settings.write_text(
        f'out = "x"\n[data]\nsets = [{{ path = "x" }}]\n[model]\npath = "{tiny_base()}"\n[batching]\nmax_tokens = 20\n'
    )
    common = ["inspect", str(data), "--model", str(tiny_base())]
    shown = CliRunner().invoke(app, [*common, "--config", str(settings)])
    assert "rejected, over_long" in shown.output
    beyond = CliRunner().invoke(app, [*common, "--first", "5"])
    assert isinstance(beyond.exception, InputError)
    assert f"--first 5: must be less than 1, the number of trajectories in '{data}'" in str(beyond.exception)


# ── `seer-train run` ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A run of one step on trajectories in a file."""
    data = tmp_path / "data.jsonl"
    data.write_text("".join(item.model_dump_json() + "\n" for item in trajectories(4)))
    path = tmp_path / "run.toml"
    path.write_text(
        f'out = "{tmp_path / "run"}"\nsteps = 1\n[data]\nsets = [{{ path = "{data}" }}]\nprefetch_steps = 0\n'
        f'[model]\npath = "{tiny_base()}"\n[batching]\nglobal_batch = 2\nmax_tokens = 1024\n'
        "[parallel]\nthreads = 1\n[checkpoint]\nexport = false\n"
    )
    return path


def test_run_prints_a_summary_and_as_json_the_same_figures(configuration: Path) -> None:
    shown = CliRunner().invoke(app, ["run", str(configuration)])
    assert shown.exit_code == 0, shown.output
    out = configuration.parent / "run"
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert shown.stdout.startswith("1 steps in ")
    assert f"loss {logged[-1]['loss']:.4f}; results are in '{out}'" in shown.stdout

    printed = CliRunner().invoke(
        app, ["run", str(configuration), "--json", "--set", f"out={configuration.parent / 'b'}"]
    )
    assert printed.exit_code == 0, printed.output
    summary = json.loads(printed.stdout.splitlines()[-1])
    assert summary["out"] == str(configuration.parent / "b")
    assert (summary["steps"], summary["last"]["loss"]) == (1, logged[-1]["loss"])
