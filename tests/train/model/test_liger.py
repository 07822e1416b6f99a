"""Liger's patches of the norms on a CPU, with a norm in torch in place of the kernel.

Triton's interpreter cannot run Liger 0.8.5's kernels (they call a method of a value that is a Python float there). `Norm`
does what the kernel does, and like it writes its input's gradient over its output's if `in_place` is set. Liger replaces a
class inside transformers, so the test runs in a separate process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PROGRAM = """
import json, torch
import liger_kernel.transformers
from train_fakes import samples, tiny_checkpoint
from train.config import ModelConfig
from train.data.collate import collate
from train.model.glm4v import prepare, use_liger
class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps, offset, casting_mode, in_place, row_mode):
        scale = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        ctx.in_place = in_place
        return x * scale * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors
        grad_weight = (grad * x * scale).flatten(0, -2).sum(0)
        inner = grad * weight
        grad_x = scale * (inner - x * scale.square() * (inner * x).mean(-1, keepdim=True))
        return (grad.copy_(grad_x) if ctx.in_place else grad_x), grad_weight, None, None, None, None, None

import liger_kernel.transformers.monkey_patch
import liger_kernel.transformers.rms_norm
liger_kernel.transformers.rms_norm.LigerRMSNormFunction = Norm
liger_kernel.transformers.monkey_patch._patch_swiglu_module = lambda *_: None
base = tiny_checkpoint()
torch.cuda.is_available = lambda: True  # `use_liger` refuses a machine without a GPU
use_liger(base.model)
torch.cuda.is_available = lambda: False
liger, plain = prepare(base, ModelConfig(path="x"), 0), prepare(tiny_checkpoint(), ModelConfig(path="x"), 0)
batch = collate(samples(tiny_checkpoint(), 2))
for trainee in (liger, plain):
    trainee(batch).total.backward()
wanted = dict(plain.named_parameters())
worst = {n: float((p.grad - wanted[n].grad).norm() / (wanted[n].grad.norm() + 1e-6)) for n, p in liger.named_parameters()}
patched = sum(hasattr(module, "in_place") for module in liger.modules())
name = max(worst, key=worst.get)
print(json.dumps({"patched": patched, "name": name, "error": worst[name]}))
"""


def test_use_liger_gradients_equal_those_without_it() -> None:
    pytest.importorskip("liger_kernel")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["patched"] >= 8
    assert result["error"] < 1e-3, result
