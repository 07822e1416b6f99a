"""How the generations of a run ended: with an answer, cut at the token limit, or still inside the thinking.

A model that thinks needs tokens for it. Where they are missing, the generation ends before the answer, the input counts 0,
and every comparison with the run measures the limit instead of the model. A run in which this happens often is therefore
marked in the terminal and in every report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seer.protocol.control import CONTROL
from seer.schema import Prediction

MAX_CUT_FRACTION = 0.02
"""A run with a larger fraction of inputs that were cut or ended inside the thinking is marked."""
Ending = Literal["complete", "cut", "thinking"]


@dataclass(frozen=True)
class Endings:
    """Numbers of inputs of a run by how their last generation ended."""

    num_inputs: int
    num_cut: int
    """The answer reached the token limit."""
    num_thinking: int
    """The generation ended before the thinking was closed, so there is no answer."""

    @property
    def cut_fraction(self) -> float:
        """Fraction of inputs, in [0, 1], that were cut or ended inside the thinking."""
        return (self.num_cut + self.num_thinking) / self.num_inputs if self.num_inputs else 0.0

    @property
    def needs_warning(self) -> bool:
        """Whether more inputs are affected than `MAX_CUT_FRACTION`."""
        return self.cut_fraction > MAX_CUT_FRACTION


def ending_of(prediction: Prediction) -> Ending:
    """Return how the last generation of an input ended.

    Inputs without a generation count as complete, and so does thinking that was closed without an answer.
    """
    written = [step for step in prediction.trace if step.finish]
    if not written:
        return "complete"
    last = written[-1]
    if last.name == "reason" and CONTROL.close_think not in str(last.outputs.get("raw", "")):
        return "thinking"
    return "cut" if last.finish == "length" else "complete"


def count_endings(predictions: Iterable[Prediction]) -> Endings:
    """Count the inputs of a run by how their last generation ended."""
    endings = [ending_of(one) for one in predictions]
    return Endings(len(endings), endings.count("cut"), endings.count("thinking"))


def ending_warnings(runs: Sequence[tuple[str, Iterable[Prediction]]]) -> list[str]:
    """Return a warning for each run, given by name and predictions, in which too many inputs were cut."""
    warnings = []
    for name, predictions in runs:
        found = count_endings(predictions)
        if found.needs_warning:
            warnings.append(
                f"{name}: {found.num_thinking:,} of {found.num_inputs:,} inputs ended inside the thinking and "
                f"{found.num_cut:,} were cut at the token limit ({100 * found.cut_fraction:.1f} %, at most "
                f"{100 * MAX_CUT_FRACTION:.0f} % is comparable); give the run more reasoning tokens"
            )
    return warnings
