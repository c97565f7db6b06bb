"""Calls that a recording of the default ops had to leave out."""

from __future__ import annotations

from collections import Counter

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted


class Skipped:
    """How many calls were left out, by op and reason."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._remedies: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, op: str, reason: RecordError, calls: int = 1) -> None:
        """Count calls of an op that were left out for one reason."""
        self._calls[op, reason.what] += calls
        self._remedies[reason.remedy] = None

    def warning(self) -> str:
        """`calls were left out that cannot be recorded: torch.matmul, 2 calls: a tensor with …`."""
        left_out = "; ".join(
            f"{op}, {counted(calls, 'call')}: {reason}" for (op, reason), calls in self._calls.items()
        )
        return f"calls were left out that cannot be recorded: {left_out}"

    def error(self) -> RecordError:
        """What to raise when nothing else was recorded."""
        what = "; ".join(
            f"{op} cannot be recorded, in {counted(calls, 'call')}: {reason}"
            for (op, reason), calls in self._calls.items()
        )
        return RecordError(
            f"{what}; no other call of a recordable op was seen", remedy="; ".join(self._remedies)
        )
