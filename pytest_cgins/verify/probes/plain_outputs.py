"""Probe `plain_outputs`: an answer is made of plain tensors, whose numbers lie in memory now.

A subclass could compute them when they are looked at, or answer in their place; so could attributes that are hung on a
tensor, and what torch itself puts off: conjugation, negation, zeros without memory, copies that are made at the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from pytest_cgins.building.loading.returned import unlike_plain


def unlike(tensors: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> list[str]:
    """What those are that are not plain: class names, or words. Inputs may have attributes of the caller's."""
    passed = set(map(id, inputs))
    found = (unlike_plain(tensor, attributes=id(tensor) not in passed) for tensor in tensors)
    return [one for one in found if one]


def judge(facts: Sequence[str]) -> str:
    """What is wrong; "" if nothing is."""
    names = ", ".join(facts[:4])
    return f"the kernel returned {names} instead of plain tensors: return torch.Tensor" if facts else ""
