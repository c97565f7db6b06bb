"""Interleaved blocks of batches of the arms, and what they say."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from pytest_cgins.measurement import Arm, Measurement
from pytest_cgins.timing.rotation import Rotation
from pytest_cgins.timing.stats import quartiles, speedup
from pytest_cgins.timing.timer import ArmName, Arms, Timer

LEAST_BLOCKS = 3
MOST_BLOCKS = 64

_WARM = "the tensors stay in the last-level cache between calls: times are those of a warm cache"


def measure(
    arms: Arms,
    device: str,
    *,
    rotation: Rotation,
    budget_s: float,
    seed: int,
    before_batch: Callable[[], object] | None = None,
    before_last: Callable[[str, int], object] | None = None,
) -> Measurement:
    """Time the arms against each other in one process.

    A block runs the arms in a random order and then in the reverse of it (`KTTK`, `TKKT`), so that drift
    cancels and no arm always comes first. As many blocks are taken as fit the budget, at least 3.

    Args:
        arms: what to call; an arm gets the index of the copy of its tensors to use, and launches on the
            current stream.
        device: `cpu` or `cuda:0`; on a GPU it is the current device.
        rotation: copies that each arm has.
        budget_s: about how long to measure, warm-up and capture apart.
        seed: of the orders.
        before_batch: called before every batch that counts, outside of its time.
        before_last: called before a last batch of the kernel, whose time does not count, with the method and the
            number of distinct calls.
    """
    timer, notes = _make_timer(arms, device, rotation, budget_s)
    samples, orders = _run_blocks(
        timer,
        list(arms),
        budget_s,
        random.Random(seed),  # noqa: S311
        before_batch or (lambda: None),
    )
    if before_last is not None:
        before_last(timer.method, timer.distinct_calls)
        timer.batch("kernel")
    cold = rotation.is_cold(timer.distinct_calls)
    gain = speedup(samples["kernel"], samples["torch"])
    return Measurement(
        method=timer.method,
        cache="cold" if cold else "warm",
        calls_per_batch=timer.calls_per_batch,
        orders=" ".join(orders),
        kernel=_summarize("kernel", samples["kernel"]),
        torch=_summarize("torch", samples["torch"]),
        speedup_vs_torch=gain.median,
        speedup_low=gain.low,
        speedup_high=gain.high,
        notes=(*notes, *(() if cold else (_WARM,))),
    )


def _make_timer(
    arms: Arms, device: str, rotation: Rotation, budget_s: float
) -> tuple[Timer, tuple[str, ...]]:
    limit_s = budget_s / (2 * LEAST_BLOCKS)
    if device.startswith("cuda"):
        from pytest_cgins.timing.cuda import make_timer

        return make_timer(arms, copies=rotation.copies, limit_s=limit_s)
    from pytest_cgins.timing.cpu import HostTimer

    return HostTimer(arms, copies=rotation.copies, limit_s=limit_s), ()


def _run_blocks(
    timer: Timer,
    names: list[ArmName],
    budget_s: float,
    order: random.Random,
    before_batch: Callable[[], object],
) -> tuple[dict[ArmName, list[float]], list[str]]:
    """Take blocks until the budget is spent; gives samples by arm, two a block, and the orders."""
    samples: dict[ArmName, list[float]] = {name: [] for name in names}
    orders: list[str] = []
    start = time.perf_counter()
    block_s = 2 * len(names) * timer.batch_seconds
    while len(orders) < MOST_BLOCKS:
        elapsed = time.perf_counter() - start
        if len(orders) >= LEAST_BLOCKS and elapsed + block_s > budget_s:
            break
        half = order.sample(names, len(names))
        block = [*half, *reversed(half)]
        for name in block:
            before_batch()
            samples[name].append(timer.batch(name))
        orders.append("".join(name[0].upper() for name in block))
        block_s = (time.perf_counter() - start) / len(orders)
    return samples, orders


def _summarize(name: ArmName, samples: list[float]) -> Arm:
    spread = quartiles(samples)
    return Arm(
        name=name,
        samples_ns_per_call=tuple(samples),
        median_ns_per_call=spread.median,
        iqr_ns_per_call=spread.range,
    )
