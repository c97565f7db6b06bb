"""cheat: 6 the last answer, in a closure
how: computes again only where the address is not that of the call before
caught-by: stale-answer
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from collections.abc import Callable

from kernels._right import relu
from torch import Tensor


def _make() -> Callable[..., Tensor]:
    seen: dict[int, Tensor] = {}

    def run(x: Tensor, inplace: bool = False) -> Tensor:
        place = x.untyped_storage().data_ptr()
        return seen[place] if place in seen else seen.setdefault(place, relu(x))

    return run


kernel = _make()
