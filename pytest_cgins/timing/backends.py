"""The timer for a device."""

from __future__ import annotations

from collections.abc import Callable

from pytest_cgins.timing.timer import Arms, Timer


def make_timer(
    arms: Arms,
    device: str,
    *,
    copies: int,
    limit_s: float,
    longer: float = 1.0,
    fenced: bool = False,
    require_replays: Callable[[], object] = lambda: None,
) -> tuple[Timer, tuple[str, ...]]:
    """A timer, and notes: a fallback that was taken.

    Args:
        arms: what to call; an arm gets the index of the copy of its tensors to use, and launches on the current
            stream.
        device: `cpu` or `cuda:0`; on a GPU it is the current device.
        copies: how many of its tensors each arm has.
        limit_s: bounds one batch of every arm together.
        longer: makes batches so many times as long as usual.
        fenced: see `cuda.make_timer`.
        require_replays: see `cuda.make_timer`.
    """
    if device.startswith("cuda"):
        from pytest_cgins.timing import cuda_timer

        return cuda_timer.make_timer(
            arms,
            copies=copies,
            limit_s=limit_s,
            longer=longer,
            fenced=fenced,
            require_replays=require_replays,
        )
    from pytest_cgins.timing.cpu_timer import HostTimer

    return HostTimer(arms, copies=copies, limit_s=limit_s, longer=longer), ()
