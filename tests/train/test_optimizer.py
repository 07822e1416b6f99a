"""Our optimisers: the size and direction of an update, and that every kind learns."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import train.optimizer
from seer.errors import ConfigError
from train.config import OptimizerConfig
from train.optimizer import AdamWBf16States, Muon, build_optimizer, orthogonalised, set_learning_rate


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 8, 40), (2, 40, 8)])
def test_orthogonalised_has_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
    assert values.min() > 0.5 and values.max() < 1.3


def test_orthogonalised_keeps_the_singular_vectors() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(1, 12, 12)
    left, _, right = torch.linalg.svd(matrix)
    turned = left.mT @ orthogonalised(matrix) @ right.mT
    off_diagonal = turned - torch.diag_embed(turned.diagonal(dim1=1, dim2=2))
    assert off_diagonal.abs().max() < 1e-3


def test_orthogonalised_of_zero_is_zero() -> None:
    assert torch.equal(orthogonalised(torch.zeros(2, 4, 6)), torch.zeros(2, 4, 6))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(10, 8)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.lm_head = nn.Linear(8, 10, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.second(torch.relu(self.first(self.embed_tokens(ids)))))


def test_muon_orthogonalises_only_matrices_of_the_layers() -> None:
    model = Small()
    optimizer = build_optimizer(model, OptimizerConfig(kind="muon", weight_decay=0.1))
    taken = [p for group in optimizer.param_groups if group["orthogonal"] for p in group["params"]]
    assert isinstance(optimizer, Muon)
    assert {id(p) for p in taken} == {id(model.first.weight), id(model.second.weight)}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))


def test_muon_update_has_the_size_of_an_adamw_update() -> None:
    torch.manual_seed(0)
    model, lr = Small(), 1e-2
    before = model.first.weight.detach().clone()
    optimizer = build_optimizer(model, OptimizerConfig(kind="muon", lr=lr))
    nn.functional.cross_entropy(model(torch.arange(10)), torch.arange(10)).backward()
    optimizer.step()
    moved = (model.first.weight - before).square().mean().sqrt()
    assert 0.1 * lr < moved < 0.4 * lr


@pytest.mark.parametrize("kind", ["adamw", "muon", "adamw_bf16_states"])
def test_build_optimizer_every_kind_learns(kind: str) -> None:
    torch.manual_seed(0)
    model = Small()
    optimizer = build_optimizer(model, OptimizerConfig(kind=kind, lr=2e-2))
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.arange(10)), (torch.arange(10) * 3) % 10)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


# ── Rejected configurations ──────────────────────────────────────────────────────────────────────


def test_build_optimizer_rejects_a_model_without_trainable_parameters() -> None:
    model = Small().requires_grad_(False)
    with pytest.raises(ConfigError, match=r"every parameter is frozen: unfreeze a part .*model.freeze_vision"):
        build_optimizer(model, OptimizerConfig())


@pytest.mark.parametrize("kind", ["adamw_8bit", "adamw_stochastic"])
def test_build_optimizer_without_torchao_names_the_command_that_installs_it(kind: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ConfigError, match=rf"optimizer.kind = \"{kind}\" needs torchao: pip install 'seer-vlm\[gpu\]'"):
        build_optimizer(Small(), OptimizerConfig(kind=kind))


@pytest.mark.parametrize(("kind", "name"), [("adamw_8bit", "AdamW8bit"), ("adamw_stochastic", "_AdamW")])
def test_build_optimizer_gives_torchao_the_groups_and_settings(kind: str, name: str, monkeypatch) -> None:
    received: dict[str, Any] = {}
    fake = types.ModuleType("torchao")
    fake.optim = types.SimpleNamespace(**{name: lambda groups, **options: received.update(groups=groups, **options)})
    monkeypatch.setitem(sys.modules, "torchao", fake)
    build_optimizer(Small(), OptimizerConfig(kind=kind, lr=0.5, weight_decay=0.25))
    assert [group["weight_decay"] for group in received["groups"]] == [0.25, 0.0]
    assert received["lr"] == 0.5
    assert received.get("bf16_stochastic_round", False) is (kind == "adamw_stochastic")


def test_adamw_bf16_states_rejects_a_second_moment_that_never_decays() -> None:
    with pytest.raises(ConfigError, match="beta2 = 0.999: must be at most 0.99 for bf16 moments; lower it"):
        AdamWBf16States(Small().parameters(), lr=1e-3, betas=(0.9, 0.999))


def test_muon_in_small_groups_equals_muon_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for elements in (2**28, 1):
        monkeypatch.setattr(train.optimizer, "MUON_ELEMENTS", elements)
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
        optimizer = build_optimizer(layers, OptimizerConfig(kind="muon", lr=0.1))
        for parameter in layers.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in layers.parameters()]))
    torch.testing.assert_close(*results)


def test_set_learning_rate_changes_numbers_and_tensors_in_place() -> None:
    optimizer = build_optimizer(Small(), OptimizerConfig(lr=1.0))
    on_device = torch.tensor(1.0)
    optimizer.param_groups[0]["lr"] = on_device
    set_learning_rate(optimizer, 0.25)
    assert on_device.item() == 0.25
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.25]
