"""Entry point for torchrun and srun: the same as `seer-train run`, as a module.

    torchrun --nproc-per-node 2 -m train.sft configs/seer-9b.toml --set optimizer.lr=1e-6

The training loop is `train.loop`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from seer.cli.command import run as run_command
from train.cli import app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `seer-train run` with `arguments`, by default those of the process. Exits with the command's status."""
    sys.argv[1:] = ["run", *(sys.argv[1:] if arguments is None else arguments)]
    run_command(app, "seer-train")


if __name__ == "__main__":
    main()
