"""Timing on the host."""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from pytest_cgins.core.measurement import ArmName
from pytest_cgins.timing import cpu_timer
from pytest_cgins.timing.cpu_timer import LOOPS, TARGET_S, HostTimer
from pytest_cgins.timing.devices.cpu import Cpu

Arm = Callable[[int], object]


def busy(rounds: int) -> Arm:
    """An arm that computes for a time in proportion to `rounds`."""

    def arm(_: int) -> None:
        for _ in range(rounds):
            pass

    return arm


def timer_for(kernel: Arm, torch: Arm | None = None, *, copies: int = 1, **changes: float) -> HostTimer:
    return HostTimer({"kernel": kernel, "torch": torch or busy(100)}, copies=copies, limit_s=0.05, **changes)


class Clock:
    """A clock that only arms move, by as many nanoseconds as they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        monkeypatch.setattr(cpu_timer, "perf_counter_ns", lambda: self.ns)

    def arm(self, ns_per_call: float) -> Arm:
        def call(_: int) -> None:
            self.ns += int(ns_per_call)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    "order", [("kernel", "base", "torch"), ("torch", "base", "kernel"), ("base", "kernel", "torch")]
)
def test_times_are_those_of_their_arms(clock: Clock, order: tuple[ArmName, ...]) -> None:
    """On a clock that only the arms move, each place of a block has its arm's time."""
    ns: dict[ArmName, float] = {"kernel": 1000, "base": 3000, "torch": 20_000}
    timer = HostTimer({name: clock.arm(one) for name, one in ns.items()}, copies=2, limit_s=0.05)
    assert timer.method == "perf-counter"
    (times,) = timer.blocks([(*order, *reversed(order))])
    assert times == [ns[arm] for arm in (*order, *reversed(order))]
    for name, one in ns.items():
        assert timer.batch_seconds[name] == pytest.approx(timer.calls[name] * one / 1e9)


def test_the_mean_has_what_the_middle_loop_has_not(clock: Clock) -> None:
    """A call in 500 that takes 20 ms: each batch has two, and three of its five loops none."""
    calls = itertools.count(1)

    def arm(_: int) -> None:
        clock.ns += 20_000_000 if next(calls) % 500 == 0 else 1000

    timer = HostTimer({"kernel": arm}, copies=1, limit_s=0.05)
    assert timer.calls["kernel"] >= 1000
    (times,) = timer.blocks([("kernel",) * 4])
    assert times == [1000.0] * 4
    assert timer.means == pytest.approx([41_000.0] * 4, rel=0.01)


def test_a_batch_is_long_enough(clock: Clock) -> None:
    """A millisecond of each arm's calls in five equal loops; the base has as many calls as the kernel."""
    ns: dict[ArmName, float] = {"kernel": 1000, "base": 2000, "torch": 7000}
    timer = HostTimer({name: clock.arm(one) for name, one in ns.items()}, copies=1, limit_s=0.05)
    assert timer.calls["kernel"] == timer.calls["base"]
    assert 1000 <= timer.calls["kernel"] <= 1000 + LOOPS
    assert timer.calls["torch"] == 145
    assert all(calls % LOOPS == 0 for calls in timer.calls.values())


def test_longer_batches(clock: Clock) -> None:
    """The factor is that of the calls; the limit still holds."""
    usual = HostTimer({"kernel": clock.arm(1000)}, copies=1, limit_s=0.05)
    longer = HostTimer({"kernel": clock.arm(1000)}, copies=1, limit_s=0.05, longer=4.0)
    assert 1000 <= usual.calls["kernel"] <= 1000 + LOOPS
    assert 4000 <= longer.calls["kernel"] <= 4000 + LOOPS
    limited = HostTimer({"kernel": clock.arm(1000)}, copies=1, limit_s=0.002, longer=4.0)
    assert limited.calls["kernel"] <= 2000 + LOOPS


def test_a_slow_call_is_a_batch_by_itself(clock: Clock) -> None:
    """It was called twice to know, and once more for its batch."""
    calls = 0

    def slow(_: int) -> None:
        nonlocal calls
        calls += 1
        clock.ns += 10**9

    timer = HostTimer({"kernel": slow}, copies=1, limit_s=0.05)
    assert (timer.calls["kernel"], calls) == (1, 2)
    assert list(timer.blocks([("kernel",)])) == [[1e9]]
    assert calls == 3


def test_a_first_call_that_was_slow_is_not_believed(clock: Clock) -> None:
    """Libraries load and code is compiled in it: the second one counts."""
    durations = itertools.chain([50_000_000], itertools.repeat(1000))

    def arm(_: int) -> None:
        clock.ns += next(durations)

    assert HostTimer({"kernel": arm}, copies=1, limit_s=0.2).calls["kernel"] >= 1000


def test_the_middle_loop_counts(clock: Clock) -> None:
    """Another process that takes the core during two loops of five leaves the batch's time as it is."""
    stolen: set[int] = set()
    calls = 0

    def arm(_: int) -> None:
        nonlocal calls
        calls += 1
        clock.ns += 5_000_000 if calls in stolen else 1000

    timer = HostTimer({"kernel": arm}, copies=1, limit_s=0.05)
    loop = timer.calls["kernel"] // LOOPS
    stolen |= {calls + 1, calls + 3 * loop + 1}
    assert list(timer.blocks([("kernel",)])) == [[1000.0]]
    stolen |= {calls + 1, calls + loop + 1, calls + 2 * loop + 1}
    ((time_ns,),) = timer.blocks([("kernel",)])
    assert time_ns > 10_000


def test_a_clock_that_stands_gives_a_time_above_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some virtual machines' clocks are coarse: no ratio is taken of 0."""
    timer = timer_for(busy(10))
    monkeypatch.setattr(cpu_timer, "perf_counter_ns", lambda: 5)
    (times,) = timer.blocks([("kernel", "kernel")])
    assert all(0 < one <= 1 for one in times)


def test_the_faster_arm_is_found() -> None:
    """Ten times the work takes three times as long at least, on a host that is not idle."""
    timer = timer_for(busy(300), busy(3000))
    blocks = list(timer.blocks([("kernel", "torch", "torch", "kernel")] * 5))
    ratios = sorted((t1 * t2) / (k1 * k2) for k1, t1, t2, k2 in blocks)
    assert ratios[2] > 9
    kernel_ns, torch_ns, *_ = blocks[2]
    assert min(timer.calls["kernel"] * kernel_ns, timer.calls["torch"] * torch_ns) > 0.2e9 * TARGET_S


def test_the_copies_are_taken_in_turn() -> None:
    """Every copy is used as often as any other by each arm, from one batch to the next and block to block."""
    used: dict[str, list[int]] = {"kernel": [], "torch": []}

    def counting(name: str) -> Arm:
        def arm(index: int) -> None:
            used[name].append(index)
            busy(50)(0)

        return arm

    timer = timer_for(counting("kernel"), counting("torch"), copies=3)
    for _ in timer.blocks([("kernel", "torch", "torch", "kernel")] * 2):
        pass
    assert timer.distinct_calls == 3
    for taken in used.values():
        assert taken == [index % 3 for index in range(len(taken))]
        assert len(taken) > 3


def test_who_called_a_copy_last_is_known() -> None:
    """Also of copies that the last batch did not come to: they hold an answer of the base."""
    last: dict[int, str] = {}

    def writing(name: ArmName) -> Arm:
        return lambda index: last.update({index: name})

    arms = {name: writing(name) for name in ("kernel", "base")}
    timer = HostTimer({**arms, "torch": busy(100)}, copies=100_000, limit_s=0.005)
    seen = set()
    for _ in timer.blocks([("kernel", "torch", "base"), ("base", "kernel")] * 20):
        assert timer.left_by == [last.get(index) for index in range(100_000)]
        seen |= set(timer.left_by)
    assert {"kernel", "base"} <= seen


def test_no_garbage_is_collected_during_a_batch() -> None:
    """The collector is off while an arm runs, and on again afterwards, or off if it was off before."""
    states: Counter[bool] = Counter()
    timer = timer_for(lambda _: states.update([gc.isenabled()]))
    for _ in timer.blocks([("kernel",)]):
        assert gc.isenabled()
    assert set(states) == {False}
    gc.disable()
    try:
        for _ in timer.blocks([("kernel",)]):
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_of_an_arm_passes_through() -> None:
    """Timing does not hide that a kernel fails when called often, and leaves the collector on."""

    def fail(_: int) -> None:
        raise RuntimeError("only once")

    with pytest.raises(RuntimeError, match="only once"):
        timer_for(fail)
    assert gc.isenabled()
    calls = 0

    def fail_later(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 100_000:
            fail(0)

    timer = timer_for(fail_later)
    with pytest.raises(RuntimeError, match="only once"):
        for _ in timer.blocks(itertools.repeat(("kernel",))):
            pass
    assert gc.isenabled()


def test_what_is_called_before_a_batch_is_not_timed(clock: Clock) -> None:
    """It comes before each batch, since a kernel's own code runs in every one."""
    called: list[int] = []

    def before() -> None:
        called.append(clock.ns)
        clock.ns += 10**9

    timer = HostTimer({"kernel": clock.arm(1000), "torch": clock.arm(2000)}, copies=1, limit_s=0.05)
    blocks = list(timer.blocks([("kernel", "torch", "torch", "kernel")] * 2, before))
    assert blocks == [[1000, 2000, 2000, 1000]] * 2
    assert len(called) == 8


def test_blocks_are_run_as_they_are_asked_for() -> None:
    """None is run before somebody wants it, and none if nobody does."""
    ran = 0

    def kernel(_: int) -> None:
        nonlocal ran
        ran += 1

    timer = timer_for(kernel)
    before = ran

    def orders() -> Iterator[tuple[ArmName, ...]]:
        yield ("kernel",)
        raise AssertionError("nobody asked for a second")

    blocks = timer.blocks(orders())
    assert ran == before
    next(blocks)
    assert ran == before + timer.calls["kernel"]


def test_the_host_s_timer_is_made_for_the_cpu() -> None:
    """Without a note."""
    timer, notes = Cpu().make_timer({"kernel": busy(10)}, copies=4, limit_s=0.05, longer=2.0)
    assert isinstance(timer, HostTimer)
    assert (timer.distinct_calls, notes) == (4, ())


def test_real_time_is_read() -> None:
    """A call that sleeps 3 ms takes as much, and not much more than the host adds."""
    timer = HostTimer({"kernel": lambda _: time.sleep(3e-3)}, copies=1, limit_s=0.02)
    ((one,),) = timer.blocks([("kernel",)])
    assert 3e6 <= one < 3e7


def test_a_clock_that_is_replaced_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that replaces the module's function is found out by `integrity`, and is timed rightly meanwhile."""
    timer = HostTimer({"kernel": lambda _: time.sleep(3e-3)}, copies=1, limit_s=0.02)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    ((one,),) = timer.blocks([("kernel",)])
    assert one >= 3e6
