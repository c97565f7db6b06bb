"""Whether replaying a CUDA graph of a kernel's calls does what calling the kernel does.

What a kernel launches on the legacy default stream, on a stream of its own or from another thread runs once, as the
graph is captured, and is no part of it; so is what the host computes. A graph is trusted with a time only if a replay on
numbers that it was not captured with gives the answer that a call on them gives, and writes all that a call writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from pytest_cgins.core.bitwise import snapshot
from pytest_cgins.core.measurement import ArmName
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy

CLOSE = 1e-2
"""Answers are alike within this share of themselves, and of their root mean square; so may be their share that is not."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def require(name: ArmName, arm: Rotating, copy: TimedCopy, content: Content) -> None:
    """Hold a replay of one call on the numbers of `content` against the call itself; `copy` has its own set's again afterwards.

    Raises:
        CaptureError: they differ, or cannot be compared for want of memory; or there is no graph, or an empty one.
    """
    from pytest_cgins.timing import cuda_timer

    refusal: cuda_timer.CaptureError | None = None
    replay: Callable[[], object]
    try:
        replay = cuda_timer.capture(name, arm, 1, 1).replay
    except cuda_timer.EmptyGraphError as empty:
        refusal, replay = empty, bool
    own = copy.content
    captured = arm.results[0]
    try:
        before, replayed = _answer(copy, content, captured, replay)
        _, called = _answer(copy, content, captured, lambda: arm(0), arm)
        written = all(map(_writes_all, before, replayed, called))
        if not (written and alike(replayed, called)):
            _, again = _answer(copy, content, captured, lambda: arm(0), arm)
            if not written or alike(called, again):  # else the kernel draws numbers, or has no one answer
                refusal = refusal or cuda_timer.CaptureError(
                    f"replaying the {name} arm's CUDA graph does not do what its calls do (it launches on another "
                    "stream than the current one, works on the host, or does something else while it is captured)"
                )
                refusal.replayed = replayed
        if refusal is not None:
            raise refusal
    except torch.OutOfMemoryError as error:
        raise cuda_timer.CaptureError(
            f"no memory to hold the {name} arm's CUDA graph against its calls"
        ) from error
    finally:
        arm.results[0] = captured
        copy.take(own)
        copy.synchronize()


def _answer(
    copy: TimedCopy,
    content: Content,
    captured: object,
    run: Callable[[], object],
    arm: Rotating | None = None,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What outputs and changed inputs hold before and after a run on these numbers."""
    copy.take(content)
    copy.poison(captured)
    copy.synchronize()
    before = [*map(snapshot, copy.outputs_of(captured))]
    run()
    copy.synchronize()
    after = copy.outputs_of(captured if arm is None else arm.results[0])
    return before, [*map(snapshot, after)]


def _writes_all(before: torch.Tensor, replayed: torch.Tensor, called: torch.Tensor) -> bool:
    """Whether a replay leaves no element as it was that a call changes."""
    if replayed.shape != called.shape or replayed.dtype != called.dtype:
        return False
    old, new, wanted = map(_as_integers, (before, replayed, called))
    return not bool(((new == old) & (wanted != old)).any())


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each number, of which NaN equals itself."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    dense = real.detach().contiguous().reshape(-1)
    return dense.view(_INTEGERS[dense.dtype.itemsize])


def alike(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have the same numbers, but for a small share that is another or slightly so."""
    return len(some) == len(others) and all(map(_close, some, others))


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.numel() or torch.equal(_as_integers(one), _as_integers(other)):
        return True
    if not (one.is_floating_point() or one.is_complex()):
        differing = one != other
    else:
        first, second = (torch.view_as_real(x) if x.is_complex() else x for x in (one, other))
        first, second = first.double(), second.double()
        scale = float(second.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
        differing = ~torch.isclose(first, second, rtol=CLOSE, atol=CLOSE * scale, equal_nan=True)
    return float(differing.double().mean()) <= CLOSE
