"""Part of probe `poison`: memory that a Python or C++ kernel allocates through torch is poisoned like a launcher's.

What `torch.empty` and its kin return, also to C++ on the calling thread and to operators that the kernel defines (if
they have tensors as arguments), is filled with values that answers rarely
have. A tensor that is handed back without having been written all over then shows. It is evaded by memory that does
not come through torch's dispatcher: `malloc`, `at::detail::empty_cpu`, another thread.
"""

from __future__ import annotations

from contextlib import suppress

import torch

from pytest_cgins.building.loading.launcher import poison
from pytest_cgins.core.device import DEVICES, device_of

_ALLOCATORS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)


def fill(op: object, result: object) -> None:
    """Poison what an allocating operator returns; anything else stays as it is."""
    if not isinstance(op, torch._ops.OpOverload) or op._schema.name not in _ALLOCATORS:
        return
    if type(result) is not torch.Tensor or result.layout is not torch.strided:
        return
    if result.device.type in DEVICES:
        device = device_of(str(result.device))
        if not device.is_capturing():
            _poison(result)
            # A kernel may use its memory on another stream at once: nothing would order the poison before that.
            device.wait_for_stream()


def _poison(memory: torch.Tensor) -> None:
    with suppress(RuntimeError, NotImplementedError):  # types that nothing can be filled with
        poison(memory)
