"""The Slurm script, with fakes of Slurm's commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "slurm_train.sbatch"
CONFIG = "configs/seer-9b.toml"


def fake_command(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment of two nodes with four GPUs each."""
    tools = tmp_path / "tools"
    tools.mkdir()
    fake_command(
        tools, "scontrol", 'if [[ $1 == show ]]; then printf "node7\\nnode8\\n"; else echo "$@" >> "$TMP_LOG"; fi'
    )
    fake_command(tools, "srun", 'echo "srun $*" >> "$TMP_LOG"; exec "${SRUN_DOES:-true}"')
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURM_JOB_ID": "4321",
        "SLURM_JOB_NODELIST": "node[7-8]",
        "TMP_LOG": str(tmp_path / "log"),
    }


def launch(environment: dict[str, str], *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", str(SCRIPT), *arguments], env=environment, cwd=cwd, capture_output=True, text=True)


def test_slurm_dry_run_prints_rendezvous_sharding_and_logs(slurm: dict[str, str]) -> None:
    done = launch({**slurm, "SEER_DRY_RUN": "1"}, CONFIG, "--set", "optimizer.lr=1e-6")
    assert done.returncode == 0, done.stderr
    assert "MASTER_ADDR=node7 MASTER_PORT=29821" in done.stdout
    assert "srun --nodes 2 --ntasks-per-node 4 --cpus-per-task 8 " in done.stdout
    assert "--output runs/slurm/4321/rank-%t.log" in done.stdout
    assert "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS" in done.stdout
    assert done.stdout.strip().endswith(f"-m train.sft {CONFIG} --set parallel.replicas=2 --set optimizer.lr=1e-6")


def test_slurm_given_replicas_come_after_the_default(slurm: dict[str, str]) -> None:
    done = launch({**slurm, "SEER_DRY_RUN": "1"}, CONFIG, "--set", "parallel.replicas=1")
    assert done.stdout.strip().endswith("--set parallel.replicas=2 --set parallel.replicas=1")


def test_slurm_on_one_node_sets_no_replicas(slurm: dict[str, str]) -> None:
    done = launch({**slurm, "SEER_DRY_RUN": "1", "SLURM_JOB_NUM_NODES": "1"}, CONFIG)
    assert "replicas" not in done.stdout


@pytest.mark.parametrize("arguments", [(), ("configs/nowhere.toml",)])
def test_slurm_with_bad_arguments_exits_with_2(slurm: dict[str, str], arguments: tuple[str, ...]) -> None:
    done = launch(slurm, *arguments)
    assert done.returncode == 2
    assert done.stderr


def test_slurm_preempted_job_is_requeued(slurm: dict[str, str], tmp_path: Path) -> None:
    body = 'trap \'echo saved >> "$TMP_LOG"; exit 0\' USR1; touch "$TMP_LOG.started"; while true; do sleep 0.1; done'
    fake_command(tmp_path / "tools", "slow", body)
    (tmp_path / "run.toml").write_text("")
    environment = {**slurm, "SRUN_DOES": str(tmp_path / "tools" / "slow")}
    job = subprocess.Popen(["bash", str(SCRIPT), "run.toml"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE)
    while not (tmp_path / "log.started").exists():
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)  # --signal=B: sends the signal to the script only
    output, _ = job.communicate(timeout=30)
    assert job.returncode == 0
    assert b"requeueing the job" in output
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["saved", "requeue 4321"]


def test_slurm_failed_run_is_not_requeued(slurm: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("")
    done = launch({**slurm, "SRUN_DOES": "false"}, "run.toml", cwd=tmp_path)
    assert done.returncode == 1
    assert "requeue" not in (tmp_path / "log").read_text()
