"""Which of its argument tensors a call changed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash

from pytest_cgins.packs.gold import to_bytes


def hashes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """A hash of the elements of each tensor, in row-major order."""
    return [xxhash.xxh3_128_intdigest(to_bytes(tensor)) for tensor in tensors]


def changed(tensors: Sequence[torch.Tensor], before: Sequence[int]) -> list[int]:
    """Indices of tensors whose hashes are others than before."""
    return [index for index, now in enumerate(hashes(tensors)) if now != before[index]]
