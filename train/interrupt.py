"""Conditions that end a run before its last step: a signal, a time limit, or a metric that is good enough."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from train.config import StopConfig
from train.parallel import World

REASONS = ("", "time", "signal")
"""If ranks have different reasons, the last one in this order applies to all."""


class Interrupts:
    """Records SIGTERM, SIGINT, Slurm's SIGUSR1 and the running time. The loop checks `reason` between steps.

    Use it as a context manager: it installs signal handlers and restores the previous ones.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self, config: StopConfig) -> None:
        self.config, self.signalled = config, False
        self._started = time.monotonic()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers there only
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signalled and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C ends the run without waiting for the step
        self.signalled = True

    def reason(self, world: World) -> str:
        """The reason to stop now, or an empty string; the same on every rank. A collective."""
        limit = self.config.max_seconds
        late = limit is not None and time.monotonic() - self._started > limit
        mine = "signal" if self.signalled else "time" if late else ""
        (agreed,) = world.largest([REASONS.index(mine)])
        return REASONS[int(agreed)]


def good_enough(config: StopConfig, record: dict[str, Any]) -> bool:
    """Whether an evaluation's record reaches `stop.at_least` in the metric that ends the run."""
    if config.metric is None:
        return False
    name = config.metric if config.metric in record else f"eval/{config.metric}"
    return name in record and record[name] >= config.at_least
