"""Probe `plain_outputs`: an answer is made of plain tensors, whose numbers lie in memory now.

A subclass could compute them when they are looked at, or answer in their place.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

NAME = "plain_outputs"


def subclasses(tensors: Iterable[torch.Tensor]) -> list[str]:
    """Class names of the tensors that are not plain, without those of torch's own parameters."""
    plain = (torch.Tensor, torch.nn.Parameter)
    return [type(tensor).__qualname__[:100] for tensor in tensors if type(tensor) not in plain]


def judge(facts: list[str]) -> str:
    """What is wrong; "" if nothing is."""
    names = ", ".join(map(str, facts[:4]))
    return f"the kernel returned {names} instead of plain tensors: return torch.Tensor" if facts else ""
