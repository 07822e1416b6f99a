"""Our optimisers: the size and direction of an update, and that every kind learns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from train.config import OptimizerConfig
from train.optimizer import Muon, build_optimizer, orthogonalised


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
