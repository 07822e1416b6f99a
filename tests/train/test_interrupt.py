"""Signals to a run: the first asks for a stop after the step, a second Ctrl-C ends it, and handlers are restored."""

from __future__ import annotations

import signal

import pytest
import torch

from train.config import StopConfig
from train.interrupt import Interrupts, good_enough
from train.parallel import World

ALONE = World(0, 1, torch.device("cpu"), None)


@pytest.mark.parametrize("number", Interrupts.SIGNALS)
def test_first_signal_stops_after_the_step_and_the_block_restores_the_handler(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts(StopConfig()) as interrupts:
        assert interrupts.reason(ALONE) == ""
        signal.raise_signal(number)
        assert interrupts.reason(ALONE) == "signal"
    assert signal.getsignal(number) is before


def test_second_ctrl_c_ends_the_run_at_once() -> None:
    with Interrupts(StopConfig()) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.reason(ALONE) == "signal"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_run_that_takes_too_long_stops_by_time() -> None:
    with Interrupts(StopConfig(max_seconds=1e-9)) as interrupts:
        assert interrupts.reason(ALONE) == "time"


@pytest.mark.parametrize(
    ("record", "expected"),
    [({"exact/call": 0.9}, True), ({"eval/exact/call": 0.9}, True), ({"exact/call": 0.8}, False), ({}, False)],
)
def test_good_enough_compares_the_metric_with_its_target(record: dict[str, float], expected: bool) -> None:
    assert good_enough(StopConfig(metric="exact/call", at_least=0.9), record) is expected
    assert not good_enough(StopConfig(), record)
