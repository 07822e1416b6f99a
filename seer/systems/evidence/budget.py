"""Limits on what one question may cost: calls, tokens, seconds and money.

spending = Spending(Budget(max_calls=20, usd_per_million_prompt=0.3))
spending.open_call()
spending.add(generation)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pydantic import Field

from seer.engines.base import Generation
from seer.errors import SeerError
from seer.schema import Record


class BudgetSpent(SeerError):
    """A question that needs more than its budget allows."""

    exit_code = 1


class Budget(Record):
    """Limits of one question; None means no limit. Prices are in US dollars per million tokens."""

    max_calls: int | None = Field(None, ge=1)
    max_tokens: int | None = Field(None, ge=1)
    """Prompt and completion tokens of all calls together. The call that crosses the limit is the last one."""
    max_seconds: float | None = Field(None, gt=0)
    max_usd: float | None = Field(None, gt=0)
    """Needs the prices. The call that crosses the limit is the last one."""
    usd_per_million_prompt: float = Field(0.0, ge=0)
    usd_per_million_cached: float | None = Field(None, ge=0)
    """Price of prompt tokens from a cache; None charges them like the others."""
    usd_per_million_completion: float = Field(0.0, ge=0)


@dataclass
class Spending:
    """What one question has cost so far."""

    budget: Budget
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt + self.completion

    @property
    def usd(self) -> float:
        """Money spent, by the budget's prices."""
        prices = self.budget
        cached_price = prices.usd_per_million_cached
        cached = prices.usd_per_million_prompt if cached_price is None else cached_price
        return (
            (self.prompt - self.cached) * prices.usd_per_million_prompt
            + self.cached * cached
            + self.completion * prices.usd_per_million_completion
        ) / 1e6

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the limit, at least 0; None without a limit."""
        if self.budget.max_seconds is None:
            return None
        return max(0.0, self.budget.max_seconds - (time.monotonic() - self.started))

    def open_call(self) -> None:
        """Count a call before it is sent. Raises BudgetSpent if the budget allows no further call."""
        budget = self.budget
        spent = {
            "max_calls": (self.calls, budget.max_calls),
            "max_tokens": (self.tokens, budget.max_tokens),
            "max_usd": (round(self.usd, 6), budget.max_usd),
        }
        for name, (used, limit) in spent.items():
            if limit is not None and used >= limit:
                raise BudgetSpent(f"the question's budget is spent: {used} of {name}={limit}; raise {name}")
        if self.seconds_left == 0:
            raise out_of_time(budget)
        self.calls += 1

    def add(self, generation: Generation) -> None:
        """Add the tokens of a call that has ended."""
        self.prompt += generation.prompt_tokens
        self.cached += generation.cached_tokens
        self.completion += generation.completion_tokens


def out_of_time(budget: Budget) -> BudgetSpent:
    """Return the error of a question that takes longer than its budget allows."""
    limit = budget.max_seconds
    return BudgetSpent(f"the question's budget is spent: max_seconds={limit:g}; raise max_seconds")
