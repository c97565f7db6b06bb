"""Sets of inputs under names that tell a kernel nothing, in an order that it cannot foresee."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Any

from pytest_cgins.core.buffers import Buffer

_PRIVATE = ("name", "probe")
_MEMORY_USE = "memory_use"
"""The probe whose facts name sets; its module needs torch, which this process does without."""


class Blinding:
    """One request's sets, as a worker sees them.

    Args:
        pairs: sets as the reference worker prepared them, `name`, and `probe` where one is there for a probe
            alone; and their buffers.
        seed: decides the order.
    """

    def __init__(self, pairs: Sequence[tuple[dict[str, Any], Buffer]], *, seed: str) -> None:
        pairs = list(pairs)
        random.Random(seed).shuffle(pairs)  # noqa: S311 - the seed of the run repeats it
        self._names = {secrets.token_hex(8): one["name"] for one, _ in pairs}
        self.sets = [
            {
                "name": token,
                **{key: value for key, value in one.items() if key not in _PRIVATE},
                **({"once": True} if one.get("probe") else {}),
            }
            for token, (one, _) in zip(self._names, pairs, strict=True)
        ]
        """What the worker gets."""
        self.buffers = tuple(buffer for _, buffer in pairs)
        """In the same order."""

    def take_off(self, result: dict[str, Any]) -> None:
        """Put the real names back into a worker's answer.

        Raises:
            KeyError, TypeError, AttributeError, ValueError: it is not an answer to these sets.
        """
        if [one["name"] for one in result["sets"]] != list(self._names):
            raise ValueError("the answers are not those to the sets that were sent")
        for one in (*result["sets"], *result["deviations"]):
            one["name"] = self._names[one["name"]]
        for fact in result["observed"].get(_MEMORY_USE, ()):
            if "set" in fact:
                fact["set"] = self._names[fact["set"]]
