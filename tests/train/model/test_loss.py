"""The loss: a weighted sum over supervised places, divided by the global sum of weights, and equal in slices."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from train.model import loss as loss_module
from train.model.loss import weighted_nll


def problem(rows: int = 37, width: int = 16, vocabulary: int = 53) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator, requires_grad=True)
    head = torch.randn(vocabulary, width, generator=generator, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    targets[::2] = (hidden @ head.T).argmax(1)[::2]  # half of the rows are predicted correctly
    weights = torch.rand(rows, generator=generator)
    return hidden, head, targets, weights


def gradients(hidden, head, targets, weights, scale: float = 0.37):
    total, nll, correct = weighted_nll(hidden, head, targets, weights)
    grads = torch.autograd.grad(total * scale, (hidden, head))
    return total, nll, correct, grads


@pytest.mark.filterwarnings("error")  # torch resizes an output of the wrong shape with only a warning
@pytest.mark.parametrize("columns", [1, 7, 52])
def test_weighted_nll_in_slices_equals_whole_vocabulary(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    hidden, head, targets, weights = problem()
    whole = gradients(hidden, head, targets, weights)
    reference = functional.cross_entropy(hidden @ head.T, targets, reduction="none")
    torch.testing.assert_close(whole[1], reference.detach())
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", columns * len(hidden))
    chunked = gradients(hidden, head, targets, weights)
    torch.testing.assert_close(chunked[0], whole[0])
    torch.testing.assert_close(chunked[1], whole[1])
    assert torch.equal(chunked[2], whole[2])
    assert chunked[2][::2].all()
    assert not chunked[1].requires_grad
    torch.testing.assert_close(chunked[3], whole[3])


def test_weighted_nll_with_ties_counts_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, head, _, weights = problem(vocabulary=2)
    twice = torch.cat([head, head])
    targets = (hidden @ head.T).argmax(1)
    assert weighted_nll(hidden, twice, targets, weights)[2].all()
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 2 * len(hidden))
    assert weighted_nll(hidden, twice, targets, weights)[2].all()


def test_weighted_nll_gradients_in_slices_equal_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, head, targets, weights = problem(rows=7, width=4, vocabulary=11)
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 22)
    hidden32, head32 = hidden.detach().requires_grad_(), head.detach().requires_grad_()
    (analytic,) = torch.autograd.grad(weighted_nll(hidden32, head32, targets, weights)[0], hidden32)
    epsilon = 1e-2
    for place in [(0, 0), (3, 2), (6, 3)]:
        up, down = hidden.detach().clone(), hidden.detach().clone()
        up[place] += epsilon
        down[place] -= epsilon
        rise = weighted_nll(up, head, targets, weights)[0] - weighted_nll(down, head, targets, weights)[0]
        assert analytic[place].item() == pytest.approx(rise.item() / (2 * epsilon), rel=2e-3, abs=1e-4)


def test_weighted_nll_with_frozen_head_has_no_head_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, head, targets, weights = problem()
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 5 * len(head))
    frozen = head.detach()
    weighted_nll(hidden, frozen, targets, weights)[0].backward()
    assert hidden.grad is not None
    assert frozen.grad is None


def test_weighted_nll_sum_over_micro_batches_equals_whole_unlike_mean_of_means() -> None:
    """The bug of gradient accumulation: with a mean of means, a token's weight depends on its micro-batch."""
    hidden, head, targets, weights = problem()
    whole = weighted_nll(hidden, head, targets, weights)[0] / weights.sum()
    pieces = [slice(0, 3), slice(3, 37)]
    sums = [weighted_nll(hidden[p], head, targets[p], weights[p])[0] for p in pieces]
    torch.testing.assert_close(sum(sums) / weights.sum(), whole)
    mean_of_means = sum(s / weights[p].sum() for s, p in zip(sums, pieces, strict=True)) / 2
    assert abs(mean_of_means - whole) > 1e-3


def test_weighted_nll_in_slices_never_allocates_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of 1/8 of the vocabulary, no allocation has the size of all logits."""
    rows, vocabulary = 256, 4096
    hidden, head, targets, weights = problem(rows, 8, vocabulary)

    def largest_allocation() -> int:
        with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
            weighted_nll(hidden, head, targets, weights)[0].backward()
        return max(event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")

    whole = largest_allocation()
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", rows * vocabulary // 8)
    assert whole >= 4 * rows * vocabulary
    assert largest_allocation() <= whole / 4
