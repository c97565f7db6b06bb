"""What a run has taken so far, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import Request, Usage


def money(usd: float) -> str:
    """`0.42 USD`; four digits behind the point where it is less than ten cents."""
    return f"{usd:,.{2 if usd >= 0.1 or not usd else 4}f} USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has taken so far."""

    requests: int = 0
    """Answers, and requests that were lost."""
    prompt_tokens: int = 0
    """Tokens of prompts, cached ones among them."""
    answer_tokens: int = 0
    """Tokens of answers."""
    usd: float = 0.0
    """Cost of all requests that have one."""
    estimated: int = 0
    """Requests whose provider did not count, or not all: their tokens are estimated."""
    unpriced: int = 0
    """Requests of models without a price: their cost is unknown."""
    seconds: float = 0.0
    """Wall time over all parts of the run."""

    @property
    def tokens(self) -> int:
        """Of prompts and answers."""
        return self.prompt_tokens + self.answer_tokens

    def cost(self) -> str:
        """The money in words: `0.42 USD`, `cost unknown`, or both."""
        known = money(self.usd) if self.usd or not self.unpriced else ""
        unknown = f"cost of {self.unpriced} unknown" if known else "cost unknown"
        return ", ".join(filter(None, [known, unknown if self.unpriced else ""]))

    def words(self) -> str:
        """In one line: `41,203 tokens, 0.42 USD, 3.1 min`."""
        requests = counted(self.requests, "request")
        how = f" (of {self.estimated} of {requests} by estimate)" if self.estimated else ""
        return (
            f"{counted(self.tokens, 'token', grouped=True)}{how}, {self.cost()}, {self.seconds / 60:.1f} min"
        )


def spent_by(request: Request, usage: Usage, *, seconds: float = 0.0) -> Spent:
    """What one request took."""
    return Spent(
        requests=1,
        prompt_tokens=usage.prompt_tokens,
        answer_tokens=usage.answer_tokens,
        usd=usage.usd or 0.0,
        estimated=int(usage.estimated),
        # Who has no name is a person or an agent, whom the run does not pay.
        unpriced=int(usage.usd is None and bool(request.model)),
        seconds=seconds,
    )


def total(parts: Iterable[Spent]) -> Spent:
    """All of them together."""
    known = tuple(parts)
    return Spent(
        requests=sum(part.requests for part in known),
        prompt_tokens=sum(part.prompt_tokens for part in known),
        answer_tokens=sum(part.answer_tokens for part in known),
        usd=math.fsum(part.usd for part in known),
        estimated=sum(part.estimated for part in known),
        unpriced=sum(part.unpriced for part in known),
        seconds=math.fsum(part.seconds for part in known),
    )
