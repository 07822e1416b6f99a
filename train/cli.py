"""The command `seer-train`.

seer-train run CONFIG [--set a.b=value ...]      train, or resume
seer-train plan CONFIG --gpus 2 --gpu-gib 80     check whether a run fits into memory
seer-train admit CONFIG                          list the trajectories that fit, before any run
seer-train inspect DATA --model DIR              show which tokens are trained
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from seer.cli.command import AsJson, command_line
from seer.cli.command import run as run_command
from seer.errors import InputError

app = command_line("seer-train", "Train Seer models on trajectories (training conversations).")

ConfigPath = Annotated[Path, typer.Argument(help="A TOML file; see configs/.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, e.g. optimizer.lr=1e-6; may be repeated.")
]


@app.command()
def run(config: ConfigPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Train as configured; resume if an earlier run with this configuration was interrupted.

    Example: seer-train run configs/seer-9b.toml --set optimizer.lr=1e-6 --set out=runs/other

    On several GPUs: torchrun --nproc-per-node 2 -m train.sft configs/seer-9b.toml
    """
    from seer.config import load_config
    from train.config import TrainConfig

    resolved = load_config(TrainConfig, config, overrides or ())
    set_wait_policy()
    # Micro-batches differ in size; without this, the allocator's cache of fixed blocks fragments. A set value has priority.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    # After the configuration: importing torch takes seconds, and a wrong setting is reported at once.
    from torch.distributed.elastic.multiprocessing.errors import record

    from train.loop import fit

    # With `record`, torchrun's summary names the error of the rank that failed first.
    recorded = record(fit) if "TORCHELASTIC_ERROR_FILE" in os.environ else fit
    summary = recorded(resolved)
    assert summary is not None, "`record` returns None only for a run that exits with status 0"
    if int(os.environ.get("RANK", 0)) == 0:
        loss = summary.last.get("loss")
        if as_json:
            typer.echo(json.dumps({"out": str(resolved.out), **asdict(summary)}))
            return
        typer.echo(
            f"{summary.steps} steps in {summary.seconds:.0f} s ({summary.reason})"
            + (f", loss {loss:.4f}" if loss is not None else "")
            + f"; results are in '{resolved.out}'"
        )


@app.command()
def plan(
    config: ConfigPath,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs over all nodes.")] = 2,
    gpu_gib: Annotated[float, typer.Option(min=0.001, help="Memory of one GPU.")] = 80.0,
    vision_tokens: Annotated[
        int | None, typer.Option(min=0, help="Vision tokens of the longest trajectory. Default: all its tokens.")
    ] = None,
    supervised_tokens: Annotated[int, typer.Option(min=1, help="Supervised tokens of one micro-batch.")] = 1024,
    disk_gb_s: Annotated[float, typer.Option(min=0.001, help="Write speed of the disk in GB/s.")] = 1.0,
    as_json: AsJson = False,
    overrides: Overrides = None,
) -> None:
    """Show whether a run fits into GPU memory, part by part, and which changes would make it fit. Needs no weights and no GPU.

    Example: seer-train plan configs/seer-9b.toml --gpus 2 --gpu-gib 80
    """
    from seer.config import load_config
    from train.config import TrainConfig

    resolved = load_config(TrainConfig, config, overrides or ())
    from train import checkpoint
    from train.planning.memory import build_skeleton, plan_memory
    from train.planning.report import alternatives, as_record, model_shape, show
    from train.planning.storage import storage_record

    resolved = resolved.resolved(cuda=True)  # a plan is for GPUs
    glm, source = model_shape(resolved.model.path)
    load: dict[str, Any] = dict(vision_tokens=vision_tokens, supervised_tokens=supervised_tokens)
    planned = plan_memory(glm, resolved, gpus=gpus, **load)
    storage = storage_record(
        build_skeleton(glm), resolved, gpus=gpus, disk_gb_s=disk_gb_s, file_bytes=checkpoint.FILE_BYTES
    )
    record = as_record(planned, resolved, gpus=gpus, gpu_gib=gpu_gib, storage=storage)
    if as_json:
        typer.echo(json.dumps(record))
        return
    others = []
    if record["verdict"] != "fits":
        others = alternatives(glm, resolved, gpus=gpus, gpu_gib=gpu_gib, **load)
    show(record, source, others)


@app.command()
def admit(config: ConfigPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """List which trajectories fit into the token limit and can be encoded, and store the list next to each set.

    Every run of these sets with the same tokenizer and limit uses the stored list: the main run, controls and ablations.
    Without this command, the first run makes it. Needs no GPU; of the model, it reads only the tokenizer.

    Example: seer-train admit configs/seer-9b.toml
    """
    from seer.config import load_config
    from train.config import TrainConfig

    resolved = load_config(TrainConfig, config, overrides or ())
    import torch

    from seer.models.checkpoint import load_encoder
    from train.data.admission import admission_path
    from train.data.dataset import Recipe
    from train.data.sets import open_admitted
    from train.parallel import World

    encoder, _, scaling = load_encoder(resolved.model.path)
    recipe = Recipe(encoder, scaling, resolved.loss, resolved.batching.max_tokens, resolved.data.drop_turns)
    alone = World(0, 1, torch.device("cpu"), None)
    for entry in (*resolved.data.sets, *resolved.data.held_out):
        _, admission = open_admitted(entry, recipe, alone)
        admission.indices(resolved.data.over_long)
        record = {"set": entry.path, "list": str(admission_path(entry.path, admission.key))}
        if as_json:
            typer.echo(json.dumps(record | admission.counts()))
        else:
            typer.echo(f"'{entry.path}': {admission.summary()}; list in '{record['list']}'")


@app.command()
def inspect(
    data: Annotated[Path, typer.Argument(help="A folder of trajectory shards, or a .jsonl file.")],
    model: Annotated[Path, typer.Option(help="A checkpoint folder, for its tokenizer.")],
    config: Annotated[
        Path | None, typer.Option(help="A training configuration, for its loss weights and limits.")
    ] = None,
    first: Annotated[int, typer.Option(min=0, help="Index of the first trajectory to show, from 0.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Number of trajectories to show.")] = 3,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page to this file instead.")] = None,
    overrides: Overrides = None,
) -> None:
    """Show trajectories token by token: which tokens are context, which are trained, and with which weight.

    Example: seer-train inspect runs/data/paper/train --model path/to/checkpoint --html sample.html
    """
    from seer.config import load_config
    from seer.models.checkpoint import load_encoder
    from train.config import BatchingConfig, LossWeights, TrainConfig
    from train.data.dataset import Recipe, make_sample
    from train.data.inspection import to_html, to_terminal
    from train.data.pages import pictures_of
    from train.data.sets import open_trajectories

    encoder, _, scaling = load_encoder(model)
    recipe = Recipe(encoder, scaling, LossWeights(), BatchingConfig().max_tokens)
    if config is not None:
        run_config = load_config(TrainConfig, config, overrides or ())
        recipe = Recipe(encoder, scaling, run_config.loss, run_config.batching.max_tokens, run_config.data.drop_turns)
    trajectories = open_trajectories(data)
    chosen = _chosen(first, limit, len(trajectories), data)
    results = [make_sample(trajectories[i], recipe, pictures_of(trajectories, i)) for i in chosen]
    if html is None:
        to_terminal(results, encoder)
    else:
        html.write_text(to_html(results, encoder), encoding="utf-8")
        typer.echo(f"wrote '{html}'")


def _chosen(first: int, limit: int, available: int, data: Path) -> range:
    """Indices of the trajectories to show. Raises InputError if `first` is beyond the last one."""
    if first >= available:
        raise InputError(f"--first {first}: must be less than {available}, the number of trajectories in '{data}'")
    return range(first, min(first + limit, available))


def set_wait_policy() -> None:
    """Let OpenMP threads sleep while they wait if other processes use the cores. torch reads the policy once, when imported.

    Measured for a small model on two cores: with spinning threads a step is 1.6 times as fast if the cores are free, and
    half as fast next to one busy process. A policy set in the environment has priority.
    """
    import psutil

    if psutil.cpu_percent(interval=0.5) > 10:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> NoReturn:
    """Run the command line; exits with the status of the command."""
    run_command(app, "seer-train")


if __name__ == "__main__":
    main()
