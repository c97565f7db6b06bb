"""Sets of inputs under names that tell a kernel nothing, in an order that it cannot foresee."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.verify.messages import KernelAnswers, PackedInputs

_MEMORY_USE = "memory_use"
"""The probe whose facts name sets; its module needs torch, which this process does without."""


class Blinding:
    """One request's sets, as a worker sees them: in an order that the seed decides."""

    def __init__(self, pairs: Sequence[tuple[PackedInputs, Buffer]], *, seed: str) -> None:
        pairs = list(pairs)
        random.Random(seed).shuffle(pairs)  # noqa: S311 - the seed of the run repeats it
        self._names = {secrets.token_hex(8): inputs.name for inputs, _ in pairs}
        self.sets = tuple(
            replace(inputs, name=token, probe="", once=bool(inputs.probe))
            for token, (inputs, _) in zip(self._names, pairs, strict=True)
        )
        """What the worker gets."""
        self.buffers = tuple(buffer for _, buffer in pairs)
        """Buffers in the order of the shuffled sets."""

    def take_off(self, answers: KernelAnswers) -> KernelAnswers:
        """A worker's answers under the real names.

        Raises:
            ValueError: they are not answers to these sets.
        """
        if [answer.name for answer in answers.sets] != list(self._names):
            raise ValueError("the answers are not those to the sets that were sent")
        observed = dict(answers.observed)
        if isinstance(facts := observed.get(_MEMORY_USE), list):
            observed[_MEMORY_USE] = [*map(self._renamed, facts)]
        return KernelAnswers(
            sets=tuple(replace(answer, name=self._name(answer.name)) for answer in answers.sets),
            deviations=tuple(replace(answer, name=self._name(answer.name)) for answer in answers.deviations),
            tuned=answers.tuned,
            jit=answers.jit,
            observed=observed,
        )

    def _renamed(self, fact: Any) -> Any:
        return {**fact, "set": self._name(fact["set"])} if isinstance(fact, dict) and "set" in fact else fact

    def _name(self, token: Any) -> str:
        if not isinstance(token, str) or token not in self._names:
            raise ValueError("an answer is to a set that was not sent")
        return self._names[token]
