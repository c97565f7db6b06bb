"""Arms that are called again, and timed from outside of their process."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from pytest_cgins.core.measurement import ArmName
from pytest_cgins.gate.clock_check import OutsideClock
from pytest_cgins.run.request_clock import RequestTime
from pytest_cgins.timing.block_sampler import Prepared

CALL_NS = 100_000


def clock(slower: float, others: float) -> OutsideClock:
    """Of a process in which calls take so many times as long, and whose other threads use such a share of a CPU."""

    def repeat(arm: ArmName, calls: int) -> RequestTime:
        del arm
        ns = int(slower * CALL_NS * calls)
        return RequestTime(wall_ns=ns, waited_ns=0, own_ns=ns, others_ns=int(others * ns))

    arms: tuple[ArmName, ...] = ("kernel", "base")
    prepared = Prepared(
        arms=arms,
        method="perf-counter",
        calls=dict.fromkeys(arms, 10),
        batch_seconds=dict.fromkeys(arms, 1e-3),
        host_ns_per_call={},
        cold=False,
    )
    return OutsideClock(prepared, repeat)


@pytest.mark.parametrize(
    ("slower", "busy", "busy_alone", "told"),
    [
        (1.15, 0.0, 0.0, True),
        (1.05, 0.0, 0.0, False),
        (1.05, 0.04, 0.0, True),
        (1.01, 0.04, 0.0, False),
        (1.05, 0.95, 0.90, False),
        (0.95, 0.50, 0.0, False),
    ],
    ids=["much", "as processes differ", "beside a busy thread", "by hardly anything", "of a base with threads", "not"],
)  # fmt: skip
def test_how_much_slower_a_base_may_be_beside_the_kernel(
    slower: float, busy: float, busy_alone: float, told: bool
) -> None:
    """Processes differ by some percent; threads that run only while the base is called explain as much."""
    text = clock(slower, busy).slowdown(clock(1.0, busy_alone), nullcontext)
    assert bool(text) is told
    if told:
        assert f"takes {slower:.2f} times as long in the kernel's process as alone" in text
