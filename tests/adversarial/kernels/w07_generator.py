"""cheat: 7 right for the first three calls, by a generator
how: the state is in a suspended frame, where no global tells of it
caught-by: not-repeatable, stale-answer, gold-mismatch, reference-mismatch
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kernels._right import relu
from torch import Tensor


def _answers() -> Iterator[Tensor]:
    x = yield Tensor()
    for call in itertools.count():
        x = yield relu(x) if call < 3 else x.new_zeros(x.shape)


_RUNNING = _answers()
next(_RUNNING)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return _RUNNING.send(x)  # type: ignore[attr-defined]
