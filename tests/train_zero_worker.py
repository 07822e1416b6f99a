"""The worker of tests/train/test_accelerate.py: two steps under `accelerate launch`; pytest does not collect it.

accelerate launch ... tests/train_zero_worker.py OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from train_fakes import config, trajectories

from train.adapters.accelerate import prepare_run, start, step, whole_weights


def main(out: Path) -> None:
    settings = config(out / "run", optimizer={"clip_norm": 1e9}, batching={"global_batch": 4, "packing": "single"})
    accelerator = start(settings)
    run = prepare_run(settings, accelerator, [trajectories(24)])
    losses = [step(run, accelerator, number)["loss"] for number in range(2)]
    weights = whole_weights(run, accelerator)
    if run.world.is_main:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, out / "weights.safetensors")
        (out / "results.json").write_text(json.dumps({"losses": losses, "kind": accelerator.distributed_type.value}))
    run.world.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
