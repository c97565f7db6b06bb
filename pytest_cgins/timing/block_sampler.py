"""Samples blocks of timings: which blocks are taken, when sampling ends, and the measurement. Free of torch.

Whoever calls has the blocks taken, in this process or in a worker.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from pytest_cgins.core.measurement import Arm, ArmName, Comparison, Measurement, Method
from pytest_cgins.timing import clock_watch
from pytest_cgins.timing.block import Block, draw_order
from pytest_cgins.timing.sequential import LASTING, Rule, SequentialTest, median_interval, with_runs_test
from pytest_cgins.timing.stats import chance_of_so_few_runs, quartiles
from pytest_cgins.timing.sum_test import LEAST_CALLS, SumTest, can_prove, with_sums

REPORT_BLOCKS = 3
"""Blocks that have torch's arm where the kernel is tested against its base; torch is only reported."""
LEAST_BLOCKS = 3
REPORT_BUDGET_S = 0.03
"""Time for blocks that only report, beyond the least number of them."""
MOST_REPORT_BLOCKS = 16
TEST_BUDGET_S = 12.0
"""Time for the blocks of a test: a call that takes so long that this holds fewer of them than the rule allows ends
undecided sooner."""
SUMS_BUDGET_S = 60.0
"""Time for the sums of a test; most calls need only one sum."""
MOST_SUMS = 64
LOOK_BLOCKS = 64
"""So many blocks show states that last, of up to thirty blocks or so."""
CHUNK_S = 2.0
"""Blocks that are asked for at once take no longer, by and large."""

UNSUMMED = "a call takes too long for sums of many to be tested: a cost that comes rarely is not seen"
_RATIO_COVERAGE = 0.8
"""Coverage of the interval whose upper end `upper_ratio` gives."""
_WARM = "the tensors stay in the last-level cache between calls: times are those of a warm cache"

Take = Callable[[Sequence[str]], Sequence[Block]]
"""Runs blocks of these orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a timer has made ready."""

    arms: tuple[ArmName, ...]
    """The arms in any order; `kernel` is one."""
    method: Method
    """Clock and batching."""
    calls: Mapping[ArmName, int]
    """Calls in a batch of each arm."""
    batch_seconds: Mapping[ArmName, float]
    """How long a batch of each takes, about."""
    host_ns_per_call: Mapping[ArmName, float]
    """What launching costs the host; empty on a CPU."""
    cold: bool
    """Whether rotated inputs outrun the last-level cache."""
    launch_ns: float = 0.0
    """What the launch of a kernel that does nothing takes on the device; 0 on a CPU."""
    notes: tuple[str, ...] = ()
    """Fallbacks that were taken."""

    def seconds(self, arms: Sequence[ArmName]) -> float:
        """How long a block of these arms takes, about."""
        return 2 * sum(self.batch_seconds[arm] for arm in arms)

    def arm(self, name: ArmName, samples: Sequence[float]) -> Arm:
        """An arm's nanoseconds a call, as data."""
        spread = quartiles(samples)
        return Arm(
            name=name,
            samples_ns_per_call=tuple(samples),
            calls_per_batch=self.calls[name],
            median_ns_per_call=spread.median,
            iqr_ns_per_call=spread.range,
            host_ns_per_call=self.host_ns_per_call.get(name),
        )


class BlockSampler:
    """Takes blocks until every test has ended, and enough are there to report."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        seed: int,
        base: Rule | None = None,
        floor: tuple[Rule, float] | None = None,
        warm_wanted: bool = False,
        sums: bool = False,
    ) -> None:
        """Nothing is taken yet.

        Args:
            prepared: what there is to time.
            seed: of the orders.
            base: rule of the test against the base arm, which there must be then.
            floor: rule of the test against torch's arm, and the least speed against it.
            warm_wanted: whether a warm cache is what was asked for, and so needs no note.
            sums: whether sums of calls are tested too; each such test counts in N.
        """
        self._prepared = prepared
        self._choice = random.Random(seed)  # noqa: S311
        self._warm_wanted = warm_wanted
        self._blocks: list[Block] = []
        self._redone: list[str] = []
        self._tests: dict[ArmName, SequentialTest] = {}
        if base is not None:
            self._tests["base"] = SequentialTest(self._affordable(base, ("kernel", "base")))
        if floor is not None:
            rule, speed = floor
            arms: tuple[ArmName, ...] = ("kernel", "torch", *(("base",) if base is not None else ()))
            self._tests["torch"] = SequentialTest(self._affordable(rule, arms), shift=math.log(speed))
        self._sums = {
            arm: found for arm in self._tests if sums and (found := self._superblocks(arm)) is not None
        }
        self._unsummed = sums and len(self._sums) < len(self._tests)
        self._runs: dict[ArmName, float] = {}
        self._report_blocks = self._report_blocks_within_budget()

    def run(self, take: Take) -> None:
        """Take blocks to the end. Clocks alone decide whether one is taken again."""
        while orders := self._next():
            for block in self._settled(orders, take):
                self._keep(block)

    def check_autocorrelation(self, take: Take) -> None:
        """Where medians are slower, take blocks beyond the proof: states of one build that last are seen by them.

        A build that is slow for tens of blocks, and then fast for as many, is proven slower within one state.
        """
        for arm, test in self._tests.items():
            if test.outcome != "slower":
                continue
            arms: list[ArmName] = ["kernel", *(other for other in self._tests if other in ("base", arm))]
            at_once = max(1, int(CHUNK_S / max(self._prepared.seconds(arms), 1e-9)))
            most = min(LOOK_BLOCKS, test.rule.most_blocks)
            while left := max(0, most - len(self.log_ratios(arm))):
                orders = [draw_order(arms, self._choice) for _ in range(min(left, at_once))]
                self._blocks += self._settled(orders, take)
            above = [ratio + test.shift > test.rule.slower_bound for ratio in self.log_ratios(arm)]
            self._runs[arm] = chance_of_so_few_runs(above)

    @property
    def lasting(self) -> bool:
        """Whether blocks are correlated where that matters."""
        return any(chance < LASTING for chance in self._runs.values())

    def upper_ratio(self, arm: ArmName) -> float:
        """The highest ratio of the kernel's time to an arm's that the blocks speak for, by medians or by sums."""
        blocks = [block for block in self._blocks if block.times(arm)]
        sums = [math.fsum(block.total(name) for block in blocks) for name in ("kernel", arm)]
        return max(math.exp(median_interval(self.log_ratios(arm), _RATIO_COVERAGE)[2]), sums[0] / sums[1])

    def measurement(self) -> Measurement:
        """What came out.

        Raises:
            ValueError: before `run`.
        """
        prepared = self._prepared
        arms = {name: prepared.arm(name, times_of(name, self._blocks)) for name in prepared.arms}
        gain = quartiles([-log_ratio for log_ratio in self.log_ratios("torch")])
        compiled = self.log_ratios("compile")
        return Measurement(
            method=prepared.method,
            cache="cold" if prepared.cold else "warm",
            orders=" ".join(block.order for block in self._blocks),
            kernel=arms["kernel"],
            torch=arms["torch"],
            base=arms.get("base"),
            compiled=arms.get("compile"),
            speedup_vs_torch=math.exp(gain.median),
            speedup_low=math.exp(gain.low),
            speedup_high=math.exp(gain.high),
            speedup_vs_compile=math.exp(-median(compiled)) if compiled else None,
            comparisons=self.comparisons(),
            clocks=clock_watch.clocks(self._blocks, self._redone),
            timed_ns=sum(
                time * prepared.calls[name] for name in arms for time in arms[name].samples_ns_per_call
            ),
            notes=(
                *prepared.notes,
                *(() if prepared.cold or self._warm_wanted else (_WARM,)),
                *((UNSUMMED,) if self._unsummed else ()),
            ),
        )

    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons of all tests so far.

        Raises:
            ValueError: before `run`.
        """
        sides: tuple[Literal["base", "torch"], ...] = ("base", "torch")
        return tuple(self._comparison(side) for side in sides if side in self._tests)

    def _comparison(self, side: Literal["base", "torch"]) -> Comparison:
        comparison = self._tests[side].comparison(side)
        if (runs := self._runs.get(side)) is not None:
            comparison = with_runs_test(comparison, runs)
        superblocks = self._sums.get(side)
        return with_sums(comparison, superblocks.test.sums()) if superblocks else comparison

    def log_ratios(self, against: ArmName) -> list[float]:
        """Log ratios of the kernel to another arm, one a block that has both."""
        ratios = (block.log_ratio("kernel", against) for block in self._blocks)
        return [ratio for ratio in ratios if ratio is not None]

    # ---- which blocks

    def _affordable(self, rule: Rule, arms: Sequence[ArmName]) -> Rule:
        """The rule with no more blocks than the time for them allows; fixed before the first is seen."""
        fits = int(TEST_BUDGET_S / max(self._prepared.seconds(arms), 1e-9))
        return replace(rule, most_blocks=max(LEAST_BLOCKS, min(rule.most_blocks, fits)))

    def _superblocks(self, arm: ArmName) -> _Superblocks | None:
        """None where the time for sums holds too few of them to prove anything."""
        test, calls = self._tests[arm], self._prepared.calls
        fewest = min(calls["kernel"], calls[arm])
        blocks = -(-LEAST_CALLS // (2 * fewest))
        fits = int(SUMS_BUDGET_S / max(blocks * self._prepared.seconds(("kernel", arm)), 1e-9))
        rule = replace(test.rule, most_blocks=max(1, min(MOST_SUMS, fits)))
        if not can_prove(rule):
            return None
        return _Superblocks(arm, blocks, SumTest(rule, calls=2 * fewest * blocks, shift=test.shift))

    def _report_blocks_within_budget(self) -> int:
        if "base" in self._tests:
            return REPORT_BLOCKS
        fits = int(REPORT_BUDGET_S / max(self._prepared.seconds(self._prepared.arms), 1e-9))
        return max(LEAST_BLOCKS, min(MOST_REPORT_BLOCKS, fits))

    def _next(self) -> list[str]:
        """Orders of the blocks that are certainly wanted; [] at the end."""
        orders: list[str] = []
        seconds = 0.0
        reports = self._reports_left()
        for index in range(self._fewest_left()):
            arms = self._prepared.arms if index < reports else self._tested()
            seconds += self._prepared.seconds(arms)
            if orders and seconds > CHUNK_S:
                break
            orders.append(draw_order(arms, self._choice))
        return orders

    def _fewest_left(self) -> int:
        summed = self._summed()
        left = (
            test.fewest_left or (self._sums[arm].left if arm in summed else 0)
            for arm, test in self._tests.items()
        )
        return max(self._reports_left(), min(filter(None, left), default=0))

    def _summed(self) -> list[ArmName]:
        """Arms of which a further sum could change what is proven."""
        return [arm for arm, one in self._sums.items() if one.test.wanted(self._tests[arm].outcome)]

    def _reports_left(self) -> int:
        """Blocks of all arms that are wanted still: those that were taken again left none."""
        whole = 2 * len(self._prepared.arms)
        return max(0, self._report_blocks - sum(len(block.order) == whole for block in self._blocks))

    def _tested(self) -> list[ArmName]:
        """Arms that are tested still, and the base beside torch: it keeps torch's batches apart, see `draw_order`."""
        summed = self._summed()
        wanted = [arm for arm, test in self._tests.items() if arm == "base" or not test.done or arm in summed]
        return ["kernel", *wanted]

    def _settled(self, orders: Sequence[str], take: Take) -> list[Block]:
        """One block of each order, retaken in that order until its clock is like the others'.

        A kernel that moves the clock has one order retaken more often than the other. A new order would replace it by
        the other one, and counting the rest meanwhile would do the same: the orders that are counted would be a choice
        of the clock, no longer of the lot.
        """
        settled: dict[int, Block] = {}
        while missing := [index for index in range(len(orders)) if index not in settled]:
            kept = [*self._blocks, *settled.values()]
            blocks = take([orders[index] for index in missing])
            for index, block, why in zip(missing, blocks, self._judged(blocks, kept), strict=True):
                if why:
                    self._redone.append(why)
                else:
                    settled[index] = block
        return [settled[index] for index in range(len(orders))]

    def _judged(self, blocks: Sequence[Block], kept: Sequence[Block]) -> Sequence[str | None]:
        """Why each is to be taken again; None for those that are kept."""
        if len(self._redone) >= clock_watch.redos_allowed(len(kept)):
            return [None] * len(blocks)  # clocks that never settle: noise then shows in the numbers
        return clock_watch.judge(blocks, kept)

    def _keep(self, block: Block) -> None:
        self._blocks.append(block)
        for arm, test in self._tests.items():
            ratio = block.log_ratio("kernel", arm)
            if ratio is not None and not test.done:
                test.add(ratio)
        for superblocks in self._sums.values():
            superblocks.add(block)


class _Superblocks:
    """Blocks in a row that have an arm, until their sums are worth a look."""

    def __init__(self, arm: ArmName, blocks: int, test: SumTest) -> None:
        self.test = test
        self._arm = arm
        self._size = blocks
        self._blocks: list[Block] = []

    @property
    def left(self) -> int:
        """Blocks to the end of the present one."""
        return self._size - len(self._blocks)

    def add(self, block: Block) -> None:
        """Take a block, if it has the arm and the test goes on."""
        if not (self.test.open and block.times(self._arm)):
            return
        self._blocks.append(block)
        if not self.left:
            kernel, other = (
                math.fsum(one.total(name) for one in self._blocks) for name in ("kernel", self._arm)
            )
            self._blocks.clear()
            self.test.add(math.log(kernel / other))


def times_of(arm: ArmName, blocks: Sequence[Block]) -> list[float]:
    """All times of an arm."""
    return [time for block in blocks for time in block.times(arm)]
