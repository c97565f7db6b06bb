"""Sampling of blocks, on blocks that are drawn instead of timed."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core.measurement import ARM_LETTERS, ArmName, Measurement
from pytest_cgins.timing.block import LETTER_ARMS, Block
from pytest_cgins.timing.block_sampler import (
    CHUNK_S,
    LEAST_BLOCKS,
    MOST_REPORT_BLOCKS,
    REPORT_BLOCKS,
    REPORT_BUDGET_S,
    TEST_BUDGET_S,
    BlockSampler,
    Prepared,
)
from pytest_cgins.timing.clock_watch import FREE_REDOS
from pytest_cgins.timing.sequential import Rule

RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=200, most_blocks=64)
KB: tuple[ArmName, ...] = ("kernel", "base", "torch")
KT: tuple[ArmName, ...] = ("kernel", "torch")
Clock = Callable[[int], tuple[int | None, tuple[str, ...]]]


def prepared(
    *arms: ArmName, batch_s: float = 300e-6, cold: bool = True, host: Mapping[ArmName, float] | None = None
) -> Prepared:
    return Prepared(
        arms=arms,
        method="cuda-graph",
        calls={arm: 10 * (place + 1) for place, arm in enumerate(arms)},
        batch_seconds=dict.fromkeys(arms, batch_s),
        host_ns_per_call=host or {},
        cold=cold,
        notes=("fell back",),
    )


class Device:
    """Draws the times of blocks: each arm has a median, and log-normal noise of one batch."""

    def __init__(
        self, *, sigma: float = 0.01, seed: int = 1, clock: Clock = lambda _: (1980, ()), **ns: float
    ) -> None:
        self.asked: list[list[str]] = []
        self.given: list[Block] = []
        self._ns, self._sigma, self._clock = ns, sigma, clock
        self._draw = random.Random(seed)

    def take(self, orders: Sequence[str]) -> list[Block]:
        self.asked.append(list(orders))
        blocks = [self._block(order, len(self.given) + place) for place, order in enumerate(orders)]
        self.given += blocks
        return blocks

    def _block(self, order: str, number: int) -> Block:
        mhz, throttled = self._clock(number)
        times = [
            self._ns[LETTER_ARMS[letter]] * math.exp(self._draw.gauss(0, self._sigma)) for letter in order
        ]
        return Block(order=order, ns_per_call=tuple(times), sm_mhz=mhz, throttled=throttled)


def run(sampler: BlockSampler, device: Device) -> Measurement:
    sampler.run(device.take)
    return sampler.measurement()


def against_base(device: Device, *arms: ArmName, rule: Rule = RULE, seed: int = 1) -> Measurement:
    return run(BlockSampler(prepared(*(arms or KB)), seed=seed, base=rule), device)


def test_an_unchanged_kernel_is_clean_after_nine_blocks() -> None:
    """All were asked for at once, since fewer prove nothing: one message to the worker."""
    device = Device(kernel=1000, base=1000, torch=3000)
    found = against_base(device)
    assert found.comparisons[0].outcome == "clean"
    assert len(found.orders.split()) == 9
    assert [len(one) for one in device.asked] == [9]


@pytest.mark.parametrize("slower", [1.05, 1.08, 1.5])
def test_a_slower_kernel_is_proven_slower(slower: float) -> None:
    """By as many blocks as it takes, none of them beyond the end."""
    device = Device(kernel=1000 * slower, base=1000, torch=3000)
    (comparison,) = against_base(device).comparisons
    assert comparison.outcome == "slower"
    assert comparison.against == "base"
    assert comparison.ratio == pytest.approx(slower, rel=0.02)
    assert comparison.ratio_low <= comparison.ratio <= comparison.ratio_high
    assert 14 <= len(comparison.log_ratios) == len(device.given) < 64


def test_a_faster_kernel_is_proven_faster() -> None:
    """It goes on where a clean one could end."""
    (comparison,) = against_base(Device(kernel=900, base=1000, torch=3000)).comparisons
    assert comparison.outcome == "faster"
    assert len(comparison.log_ratios) > 9


def test_noise_ends_undecided() -> None:
    """After all blocks that are allowed, and says what could have been seen."""
    (comparison,) = against_base(Device(kernel=1030, base=1000, torch=1, sigma=0.2)).comparisons
    assert comparison.outcome == "inconclusive"
    assert len(comparison.log_ratios) == RULE.most_blocks
    assert comparison.power.blocks_needed is None or comparison.power.blocks_needed > 64


def test_torch_is_timed_in_the_first_blocks_only() -> None:
    """Beside a base it is only reported; the kernel's and the base's samples are two a block."""
    found = against_base(Device(kernel=1050, base=1000, torch=3000))
    orders = found.orders.split()
    assert len(orders) > REPORT_BLOCKS
    assert all(len(order) == 6 for order in orders[:REPORT_BLOCKS])
    assert {*orders[REPORT_BLOCKS:]} == {"KBBK", "BKKB"}
    assert found.base is not None
    assert len(found.kernel.samples_ns_per_call) == len(found.base.samples_ns_per_call) == 2 * len(orders)
    assert len(found.torch.samples_ns_per_call) == 2 * REPORT_BLOCKS
    assert found.speedup_vs_torch == pytest.approx(3000 / 1050, rel=0.02)
    assert found.speedup_low <= found.speedup_vs_torch <= found.speedup_high


def test_without_a_base_there_are_only_reports() -> None:
    """As many as their time allows, and all of them have both arms."""
    device = Device(kernel=1000, torch=2500)
    found = run(BlockSampler(prepared(*KT), seed=1), device)
    assert found.comparisons == ()
    assert found.base is None
    orders = found.orders.split()
    assert len(orders) == min(MOST_REPORT_BLOCKS, int(REPORT_BUDGET_S / (4 * 300e-6)))
    assert set(orders) == {"KTTK", "TKKT"}
    assert found.speedup_vs_torch == pytest.approx(2.5, rel=0.02)
    slow = run(BlockSampler(prepared(*KT, batch_s=0.1), seed=1), Device(kernel=1e8, torch=2e8))
    assert len(slow.orders.split()) == LEAST_BLOCKS


def test_a_compiled_arm_is_reported() -> None:
    """In the blocks that torch is in."""
    device = Device(kernel=1000, base=1000, torch=3000, compile=2000)
    found = against_base(device, *KB, "compile")
    assert found.compiled is not None
    assert len(found.compiled.samples_ns_per_call) == 2 * REPORT_BLOCKS
    assert found.speedup_vs_compile == pytest.approx(2.0, rel=0.03)
    assert against_base(Device(kernel=1, base=1, torch=1)).speedup_vs_compile is None


@pytest.mark.parametrize(
    ("torch_ns", "floor", "outcome"),
    [
        (2000, 1.0, "faster"),
        (2000, 2.0, "clean"),
        (2000, 2.2, "slower"),
        (900, 0.8, "faster"),
        (900, 1.0, "slower"),
    ],
)
def test_a_floor_is_a_test_against_torch(torch_ns: float, floor: float, outcome: str) -> None:
    """Of the kernel's time times the least speed, against torch's; the record keeps times over times."""
    device = Device(kernel=1000, torch=torch_ns)
    found = run(BlockSampler(prepared(*KT), seed=1, floor=(RULE, floor)), device)
    (comparison,) = found.comparisons
    assert comparison.outcome == outcome
    assert comparison.against == "torch"
    assert comparison.shift == pytest.approx(math.log(floor))
    assert comparison.ratio == pytest.approx(1000 / torch_ns, rel=0.02)


def test_a_floor_and_a_base_are_tested_side_by_side() -> None:
    """The one that ends first is left alone, and every block of a test counts for it while it is open."""
    device = Device(kernel=1000, base=1000, torch=965)
    found = run(BlockSampler(prepared(*KB), seed=2, base=RULE, floor=(RULE, 1.0)), device)
    base, floor = found.against("base"), found.against("torch")
    assert base is not None
    assert floor is not None
    assert (base.outcome, len(base.log_ratios)) == ("clean", 9)
    assert len(floor.log_ratios) == len(found.orders.split()) > 9
    assert [one.against for one in found.comparisons] == ["base", "torch"]


def test_torch_is_kept_apart_by_the_base() -> None:
    """Beside twins its graph may hold part of a turn: no two of its batches follow each other to the end."""
    device = Device(kernel=1000, base=1000, torch=965)
    found = run(BlockSampler(prepared(*KB), seed=2, base=RULE, floor=(RULE, 1.0)), device)
    row = found.orders.replace(" ", "")
    assert len(row) > 9 * 6
    assert not [1 for one, following in pairwise(row) if one == following == "T"]


def test_the_record_is_what_was_taken() -> None:
    """Samples, orders, ratios and times of a measurement are those of its blocks, in their order."""
    device = Device(kernel=1040, base=1000, torch=3000)
    ready = prepared(*KB, host={"kernel": 5000.0})
    found = run(BlockSampler(ready, seed=3, base=RULE), device)
    blocks = device.given
    assert found.orders.split() == [one.order for one in blocks]
    for arm in (found.kernel, found.base, found.torch):
        assert arm is not None
        samples = [time for one in blocks for time in one.times(arm.name)]
        assert list(arm.samples_ns_per_call) == samples
        assert min(samples) <= arm.median_ns_per_call <= max(samples)
        assert 0 <= arm.iqr_ns_per_call <= max(samples) - min(samples)
        assert arm.calls_per_batch == ready.calls[arm.name]
        assert arm.host_ns_per_call == (5000.0 if arm.name == "kernel" else None)
    assert found.comparisons[0].log_ratios == tuple(one.log_ratio("kernel", "base") for one in blocks)
    whole = sum(
        time * ready.calls[LETTER_ARMS[letter]]
        for one in blocks
        for letter, time in zip(one.order, one.ns_per_call, strict=True)
    )
    assert found.timed_ns == pytest.approx(whole)
    assert found.clocks is not None
    assert found.clocks.sm_mhz == (1980,) * len(blocks)
    assert (found.method, found.cache, found.notes) == ("cuda-graph", "cold", ("fell back",))


def test_the_seed_repeats_the_orders() -> None:
    """And nothing else does: they are drawn where no kernel runs."""

    def orders(seed: int) -> str:
        return against_base(Device(kernel=1050, base=1000, torch=1), seed=seed).orders

    assert orders(3) == orders(3)
    assert len({orders(seed) for seed in range(5)}) == 5


# ---- how many


def test_a_slow_call_has_fewer_blocks() -> None:
    """As many as the time for a test holds, fixed before the first is seen; the record says how many."""
    device = Device(kernel=1030, base=1000, torch=1, sigma=0.2)
    found = run(BlockSampler(prepared(*KB, batch_s=0.1), seed=1, base=RULE), device)
    (comparison,) = found.comparisons
    assert comparison.most_blocks == len(comparison.log_ratios) == int(TEST_BUDGET_S / 0.4)
    assert comparison.outcome == "inconclusive"
    slower = run(
        BlockSampler(prepared(*KB, batch_s=30.0), seed=1, base=RULE), Device(kernel=2, base=1, torch=1)
    )
    assert (slower.comparisons[0].most_blocks, slower.comparisons[0].outcome) == (
        LEAST_BLOCKS,
        "inconclusive",
    )
    assert len(slower.orders.split()) == LEAST_BLOCKS


@pytest.mark.parametrize("batch_s", [1e-4, 0.05, 0.1, 3.0])
def test_no_request_takes_long(batch_s: float) -> None:
    """What is asked for at once fits the limit of one request, or is a single block."""
    device = Device(kernel=1030, base=1000, torch=1, sigma=0.2)
    run(BlockSampler(prepared(*KB, batch_s=batch_s), seed=1, base=RULE), device)
    for orders in device.asked:
        assert len(orders) == 1 or sum(map(len, orders)) * batch_s <= CHUNK_S * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    ratio=st.floats(0.8, 1.25),
    sigma=st.floats(0, 0.1),
    speed=st.none() | st.floats(0.3, 3.0),
    compiled=st.booleans(),
    seed=st.integers(0, 1000),
    most=st.integers(1, 80),
    batch_s=st.floats(1e-5, 1.0),
)
def test_every_course_ends_with_no_block_too_many(
    ratio: float, sigma: float, speed: float | None, compiled: bool, seed: int, most: int, batch_s: float
) -> None:
    """Each test ends by itself or has its blocks; the last block was wanted by a test or a report."""
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=20, most_blocks=most)
    arms: tuple[ArmName, ...] = (*KB, "compile") if compiled else KB
    device = Device(kernel=1000 * ratio, base=1000, torch=1500, compile=1200, sigma=sigma, seed=seed)
    sampler = BlockSampler(
        prepared(*arms, batch_s=batch_s), seed=seed, base=rule, floor=(rule, speed) if speed else None
    )
    found = run(sampler, device)
    blocks = found.orders.split()
    assert [one.order for one in device.given] == blocks
    for one in found.comparisons:
        assert one.outcome != "inconclusive" or len(one.log_ratios) == one.most_blocks
        assert one.most_blocks <= max(most, LEAST_BLOCKS)
    assert len(blocks) == max(REPORT_BLOCKS, *(len(one.log_ratios) for one in found.comparisons))


# ---- blocks that are taken again


def moved(*numbers: int, mhz: int = 1500) -> Clock:
    """A clock that was lower in these blocks."""
    return lambda number: (mhz if number in numbers else 1980, ())


def test_a_block_of_another_clock_is_taken_again() -> None:
    """Neither its times nor its clock are in the record, which says why; in its place comes one of the same order."""
    device = Device(kernel=1000, base=1000, torch=3000, clock=moved(5))
    found = against_base(device)
    assert found.clocks is not None
    assert found.clocks.redone == ("clock 1500 MHz, median 1980 MHz",)
    assert set(found.clocks.sm_mhz) == {1980}
    first, again = device.asked
    assert again == [first[5]]
    assert found.orders.split() == first
    kept = [*device.given[:5], device.given[9], *device.given[6:9]]
    assert len(device.given) == 10
    assert found.comparisons[0].log_ratios == tuple(one.log_ratio("kernel", "base") for one in kept)


CLOCK_SHIFTS: dict[str, Callable[[str], tuple[int | None, tuple[str, ...]]]] = {
    "kernel-lowers": lambda last: (1920 if last == "K" else 1980, ()),
    "kernel-raises": lambda last: (1980 if last == "K" else 1920, ()),
    "base-lowers": lambda last: (1900 if last == "B" else 1980, ()),
    "kernel-throttles": lambda last: (1980, ("sw-power-cap",) if last == "K" else ()),
    "rival-throttles-without-a-clock": lambda last: (None, () if last == "K" else ("hw-slowdown",)),
}
"""What is read after a block, by the arm that it ends with."""


@pytest.mark.parametrize("against", ["base", "torch"])
@pytest.mark.parametrize("shift", CLOCK_SHIFTS)
def test_a_kernel_that_moves_the_clock_has_no_more_false_alarms(shift: str, against: ArmName) -> None:
    """Each block's sign is that of its order, on δ₀: retaken in new orders, half of such tests would end in an alarm."""
    rule = Rule(tolerate=0.02, catch=0.05, alpha=0.05, beta=1e-9, tests=1, most_blocks=24)
    ready = prepared("kernel", "torch", *(["base"] if against == "base" else []))
    alarms = 0
    for seed in range(60):
        sampler = BlockSampler(
            ready, seed=seed, base=rule if against == "base" else None,
            floor=(rule, 1.0) if against == "torch" else None,
        )  # fmt: skip

        def take(orders: Sequence[str]) -> list[Block]:
            return [ordered(order, *CLOCK_SHIFTS[shift](order[-1])) for order in orders]

        sampler.run(take)
        alarms += sampler.comparisons()[0].outcome == "slower"
    assert alarms <= 9  # 3 are allowed on average


def ordered(order: str, mhz: int | None, throttled: tuple[str, ...]) -> Block:
    """One on δ₀, a hair above it where the kernel is first and last, else below it."""
    side = 1.0201 if order[0] == "K" else 1.0199
    times = tuple(1000 * side if letter == "K" else 1000.0 for letter in order)
    return Block(order=order, ns_per_call=times, sm_mhz=mhz, throttled=throttled)


def test_a_throttled_block_is_taken_again() -> None:
    """For what the management library said, by its name."""
    throttled: Clock = lambda number: (1980, ("hw-thermal",) if number in (3, 4) else ())  # noqa: E731
    found = against_base(Device(kernel=1000, base=1000, torch=3000, clock=throttled))
    assert found.clocks is not None
    assert found.clocks.redone == ("hw-thermal", "hw-thermal")
    assert found.clocks.throttled == ()


@pytest.mark.parametrize("arms", [KB, (*KB, "compile"), KT])
def test_reports_that_are_taken_again_have_all_arms(arms: tuple[ArmName, ...]) -> None:
    """A GPU that wakes up in the first blocks leaves torch with as many blocks as ever."""
    device = Device(kernel=1000, base=1000, torch=3000, compile=2000, clock=moved(0, 1, 2))
    sampler = BlockSampler(prepared(*arms), seed=1, base=RULE if "base" in arms else None)
    found = run(sampler, device)
    assert found.clocks is not None
    assert len(found.clocks.redone) == 3
    wanted = REPORT_BLOCKS if "base" in arms else MOST_REPORT_BLOCKS
    assert len(found.torch.samples_ns_per_call) == 2 * wanted
    assert found.orders.count(ARM_LETTERS["torch"]) == 2 * wanted


def test_times_never_have_a_block_taken_again() -> None:
    """A block that took ten times as long at the same clock counts."""
    device = Device(kernel=1000, base=1000, torch=3000)

    def take(orders: Sequence[str]) -> list[Block]:
        blocks = device.take(orders)
        slow = tuple(10 * one for one in blocks[0].ns_per_call)
        return [Block(order=blocks[0].order, ns_per_call=slow, sm_mhz=1980), *blocks[1:]]

    sampler = BlockSampler(prepared(*KB), seed=1, base=RULE)
    sampler.run(take)
    found = sampler.measurement()
    assert found.clocks is not None
    assert found.clocks.redone == ()
    assert max(found.kernel.samples_ns_per_call) > 5000


def test_a_clock_that_never_settles_does_not_go_on_for_ever() -> None:
    """Past so many redone blocks all are kept: what a clock does to times is in them then."""
    wild: Clock = lambda number: (1000 + 400 * (number % 3), ())  # noqa: E731
    device = Device(kernel=1000, base=1000, torch=3000, sigma=0.2, clock=wild)
    found = against_base(device)
    assert found.clocks is not None
    kept = len(found.orders.split())
    assert FREE_REDOS <= len(found.clocks.redone) <= kept + FREE_REDOS + max(map(len, device.asked))
    assert len(device.given) == kept + len(found.clocks.redone)


def test_without_a_management_library_there_are_no_clocks() -> None:
    """And no block is taken again."""
    found = against_base(Device(kernel=1000, base=1000, torch=3000, clock=lambda _: (None, ())))
    assert found.clocks is None
    assert len(found.orders.split()) == 9


# ---- what is said


@pytest.mark.parametrize(
    ("cold", "wanted", "notes"), [(True, False, 1), (False, False, 2), (False, True, 1), (True, True, 1)]
)
def test_a_warm_cache_is_said(cold: bool, wanted: bool, notes: int) -> None:
    """Unless it is what was asked for."""
    sampler = BlockSampler(prepared(*KT, cold=cold), seed=1, warm_wanted=wanted)
    found = run(sampler, Device(kernel=1000, torch=1000))
    assert found.cache == ("cold" if cold else "warm")
    assert len(found.notes) == notes
    assert any("warm cache" in note for note in found.notes) == (notes == 2)


def test_nothing_is_known_before_it_ran() -> None:
    """An error in words, not an empty record."""
    with pytest.raises(ValueError, match="at least one sample"):
        BlockSampler(prepared(*KT), seed=1).measurement()


@pytest.mark.exam
def test_pytest_s_process_needs_no_torch_for_it() -> None:
    """The course is run there."""
    code = "import sys, pytest_cgins.timing.block_sampler, pytest_cgins.gate.case_timing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
