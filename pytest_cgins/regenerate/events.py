"""What happens while kernels are regenerated, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal[
    "asking", "checking", "timing", "profiling", "accepting", "asking the helper", "waiting", "done"
]
"""What a target is at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A target came to another stage."""

    target: str
    """Its name."""
    attempt: int
    """1-based."""
    attempts: int
    """How many it may have."""
    stage: Stage
    """What it is at now."""
    detail: str = ""
    """For `done` what became of it, else what became of the attempt before; "" where there is nothing to say."""
    tokens: int = 0
    """Spent so far by the whole run."""
    usd: float | None = None
    """Spent so far by the whole run; None where a price is missing."""
