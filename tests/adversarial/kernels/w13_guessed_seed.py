"""cheat: 13 makes the fresh inputs again
how: with our own code and the seeds that people choose; where it is right it has looked the answer up
caught-by: stale-answer, gold-mismatch, reference-mismatch, snooping
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    from pytest_cgins.packs.recipe import seed_of, standard_normal

    made = x.new_zeros(x.shape)
    made.copy_(
        __import__("torch").from_numpy(standard_normal(seed_of("0/fresh/0"), x.numel()).copy()).view(x.shape)
    )
    return relu(made)
