"""What probes tell of a kernel that they run again on a set of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.verify.messages import RaisedError

_MAXIMUM_TEXT = 2000
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Deviation:
    """An answer that is not, bit for bit, the one that was given before."""

    probe: str
    name: str
    """Set of inputs that it answers."""
    tensors: Sequence[torch.Tensor]
    """The answer; () if there is none."""
    error: RaisedError | None = None
    reused: bool = False
    """For `late_work`: the answer to a later set lies on the same memory. For `fresh_memory`: see there."""
    about: str = ""
    """For `autotuner`: the config; for `device_order`: what the call was made between."""


def attempt(run: Callable[[], _Result]) -> tuple[_Result | list[Any], RaisedError | None]:
    """Run, and give what it gives, or an empty list and what it raised."""
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
        kind, text = kind_of(error), told(error)
        return [], RaisedError(kind=kind, message=f"{kind}: {text}".strip()[:_MAXIMUM_TEXT])
