"""One right kernel timed in worker processes: blocks until its tests have ended, and again in a fresh process."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pytest_cgins.config import TimingGate
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.measurement import ArmName, Measurement, TunedConfig
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.clock_check import OutsideClock
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import BASE_ONLY
from pytest_cgins.run.process import Reply
from pytest_cgins.run.request_clock import RequestTime
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared
from pytest_cgins.timing.sequential import Rule
from pytest_cgins.verify.messages import EmptyMessage, read
from pytest_cgins.verify.timing_messages import FinishedTiming, Opened, OpenTiming, RepeatCalls, RunBlocks

logger = logging.getLogger(__name__)

BATCH_LIMIT_S = 0.05
"""One batch of every arm together takes no longer, unless a single call does."""
COMPILE_LIMIT_S = 180.0
"""What torch.compile may take besides."""
LONGEST = 8.0
"""Factor for the length of batches where blocks of the usual length are correlated."""
LENGTHENED = "block times were autocorrelated: timed again with batches 8 times as long"
_REMEDIES = {
    Reason.TAMPERING: "the worker's clock was tampered with, or the kernel behaves differently while timed\n"
    "→ remove what the kernel does to clocks, and to the process that times it",
    Reason.SLOWS_BASE: "the kernel slows what it is compared with\n"
    "→ end or park threads when a call returns, and leave the process' settings and the base's code alone",
}
_DEATHS = (Status.RUNTIME_ERROR, Status.TIMEOUT)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of a device's noise for calls of some length."""

    spread_upper: float = 0.0
    """Upper bound at 95% of τ, the standard deviation between processes of the log ratio of a kernel to itself; where
    `why` says that nothing is known, what is assumed."""
    longer: float = 1.0
    """Factor for the length of batches, where blocks of the usual length are correlated."""
    why: str = ""
    """Why nothing is known; "" if something is."""


NoiseOf = Callable[[float], Noise]
"""Gives the noise of calls that take so many nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingTask:
    """What is to be timed, and how it is judged."""

    role: str
    request: OpenTiming
    """Without sets."""
    pairs: Sequence[Pair]
    """Sets of inputs with their buffers, as of `kernel_timing.timeable`."""
    seed: int
    """Seed of the orders of blocks. The worker is not told: whoever knows it knows the order of the next block."""
    gate: TimingGate
    tests: int
    """How many tests the suite makes."""
    revision: str
    """Commit of the base arm; "" without one."""
    kernel: str = ""
    """What a process is for, if that is another kernel than the one that is timed."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A measurement, what the worker told at its end, and why arms are not there."""

    measurement: Measurement
    reply: Reply[FinishedTiming]
    launch_ns: float
    refused: Mapping[ArmName, str]
    died_beside_base: bool = False
    disputed: tuple[Reason, str] | None = None
    """What speaks against the times: see `clock_check`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Blocks of one case in one process."""

    ns_per_call: float
    """Approximate time of a call of the kernel."""
    log_ratios: tuple[float, ...]
    """Log ratios of the kernel to its base, one a block; () without a base."""
    refused: Mapping[ArmName, str]


class CaseTiming:
    """Times cases in the workers of a session."""

    def __init__(
        self,
        runs: KernelRuns,
        *,
        noise: NoiseOf = lambda _: Noise(),
        lock: Callable[[], AbstractContextManager[None]],
        fresh: bool = True,
        only_gains: bool = False,
    ) -> None:
        """`lock` is held while anything is timed; `only_gains` as in `TimingOptions`."""
        self._runs = runs
        self._noise = noise
        self._lock = lock
        self._fresh = fresh
        self._only_gains = only_gains

    def time(self, task: TimingTask) -> Timed:
        """Time a case; what comes out slower is timed again in a fresh process.

        Raises:
            EndedError: the kernel failed meanwhile.
            InfrastructureError: the device was not to be had.
        """
        timed = self._without_a_base_that_kills(task)
        disputed: tuple[Reason, str] | None = None
        slower: Timed | None = None
        while self._fresh:
            if timed.disputed and disputed:
                timed.reply.close()
                raise _told_falsely(disputed, timed.reply.output)
            if timed.disputed:
                disputed = timed.disputed
            elif slower is not None:
                return _confirmed(slower, timed)
            elif any(test.outcome == "slower" for test in timed.measurement.comparisons):
                slower = timed
            else:
                break
            # In other orders of blocks.
            task = replace(task, seed=task.seed + 1, tests=task.tests if slower is None else 1)
            timed = self._afresh(task, timed)
        return timed

    def _afresh(self, task: TimingTask, before: Timed) -> Timed:
        """Time the kernel again in a fresh process."""
        logger.info("slower, or told falsely: timed again in a fresh process")
        self._runs.pool.discard(task.role)
        if before.disputed:
            self._runs.pool.discard(task.role + BASE_ONLY)
        try:
            return self._without_a_base_that_kills(task)
        finally:
            before.reply.close()

    def sample(self, task: TimingTask, blocks: int, *, longer: float = 1.0) -> Sample:
        """A fixed number of blocks of kernel and base, or fewer where these take longer than a test may; nothing is judged.

        Raises:
            EndedError: the kernel failed meanwhile.
            InfrastructureError: the device was not to be had.
        """
        self._make_ready(task)
        with self._lock():
            opened = self._opened(task, longer)
            ratios = self._ratios(task, opened, blocks) if "base" in opened.arms else ()
            self._finished(task).close()
        return Sample(_ns_per_call(opened), ratios, opened.refused)

    def alone(self, task: TimingTask, orders: Sequence[str]) -> tuple[Opened, list[Block]]:
        """Blocks of these orders, in the worker of the role as it is; whoever asks holds the device.

        Raises:
            EndedError: the kernel failed.
        """
        opened = self._opened(task, 1.0)
        blocks = self._blocks(task, orders)
        self._finished(task).close()
        return opened, blocks

    def _ratios(self, task: TimingTask, prepared: Prepared, blocks: int) -> tuple[float, ...]:
        sampler = BlockSampler(prepared, seed=task.seed, base=_ends_late(blocks))
        sampler.run(lambda orders: self._blocks(task, orders))
        return tuple(sampler.log_ratios("base"))

    def _without_a_base_that_kills(self, task: TimingTask) -> Timed:
        """A worker that dies with the base in it, and lives without, died of the base."""
        try:
            return self._once(task)
        except EndedError as end:
            if task.request.base is None or end.verdict.status not in _DEATHS:
                raise
            self._runs.pool.discard(task.role)
            try:
                timed = self._once(replace(task, revision="", request=replace(task.request, base=None)))
            except EndedError:
                raise end from None
            first = end.verdict.message.partition("\n")[0]
            why = f"with the base loaded the worker ended: {first}"
            return replace(timed, refused={**timed.refused, "base": why}, died_beside_base=True)

    def _once(self, task: TimingTask) -> Timed:
        # A process that starts while the device is held would keep others waiting.
        self._make_ready(task)
        if task.request.base is not None and self._fresh and not self._only_gains:
            self._make_ready(_without_the_kernel(task, task.request.base))
        started = time.monotonic()
        with self._lock():
            opened, longer = self._open(task)
            sampler = self._sampled(task, opened, seed=task.seed)
            if sampler.lasting and longer < LONGEST:
                opened = self._opened(task, LONGEST)
                opened = replace(opened, notes=(*opened.notes, LENGTHENED))
                # Other orders: those of before had a part in that they are taken again.
                sampler = self._sampled(task, opened, seed=task.seed + 2)
            disputed = self._disputed(task, opened, sampler)
            reply = self._finished(task)
        seconds = time.monotonic() - started
        measurement = replace(
            sampler.measurement(),
            seconds=seconds,
            base_revision=task.revision if "base" in opened.arms else "",
            tuned=opened.tuned,
            base_tuned=opened.base_tuned,
            jit=opened.jit,
            base_jit=opened.base_jit,
            uncalibrated=self._noise(_ns_per_call(opened)).why if "base" in opened.arms else "",
        )
        return Timed(measurement, reply, opened.launch_ns, opened.refused, disputed=disputed)

    def _disputed(self, task: TimingTask, opened: Opened, sampler: BlockSampler) -> tuple[Reason, str] | None:
        """What speaks against the times of arms that nothing was proven slower than: a false clock may come out undecided."""
        clock = OutsideClock(opened, lambda arm, calls: self._repeat(task, arm, calls))
        passing = {test.against: test.outcome for test in sampler.comparisons() if test.outcome != "slower"}
        for arm in passing:
            if text := clock.dispute(arm, sampler.upper_ratio(arm)):
                return Reason.TAMPERING, text
        base, outcome = task.request.base, passing.get("base")
        is_asked = outcome == "faster" if self._only_gains else outcome is not None
        if is_asked and base and self._fresh and (text := self._slowdown(task, base, clock, opened)):
            return Reason.SLOWS_BASE, text
        return None

    def _slowdown(self, task: TimingTask, base: CompiledKernel, clock: OutsideClock, opened: Opened) -> str:
        """How the base is slower beside the kernel than in a process that this was never in."""
        # A graph and a loop of the same calls take different times.
        alone = _without_the_kernel(
            task, base, fenced=opened.method == "fenced-loop", tuned=opened.base_tuned
        )
        try:
            other = OutsideClock(self._opened(alone, 1.0), lambda arm, calls: self._repeat(alone, arm, calls))
            return clock.slowdown(other, lambda: self._runs.pool.stopped(task.role))
        except EndedError as end:
            if end.verdict.status in _DEATHS:
                return ""  # no doing of the kernel: the base dies by itself
            raise

    def _repeat(self, task: TimingTask, arm: ArmName, calls: int) -> RequestTime | None:
        took = self._ask(task, "repeat", RepeatCalls(arm, calls), partial(read, EmptyMessage)).took
        if arm == "kernel" and not task.kernel:
            self._ask(task, "look", EmptyMessage(), partial(read, EmptyMessage))
        return took

    def _sampled(self, task: TimingTask, prepared: Prepared, *, seed: int) -> BlockSampler:
        """All blocks of what is ready, and a look beyond a proof."""
        rule = self._rule(task, prepared)
        sampler = BlockSampler(
            prepared,
            seed=seed,
            base=rule if "base" in prepared.arms else None,
            floor=(rule, task.gate.floor_vs_torch) if task.gate.floor_vs_torch else None,
            warm_wanted=task.gate.cache == "warm",
            sums=True,
        )
        sampler.run(lambda orders: self._blocks(task, orders))
        sampler.check_autocorrelation(lambda orders: self._blocks(task, orders))
        return sampler

    def _open(self, task: TimingTask) -> tuple[Opened, float]:
        """Make ready; with batches so many times as long as the noise of calls of this length wants them."""
        opened = self._opened(task, 1.0)
        longer = self._noise(_ns_per_call(opened)).longer
        if longer > 1:
            opened = self._opened(task, longer)
        return opened, longer

    def _opened(self, task: TimingTask, longer: float) -> Opened:
        request = replace(
            task.request,
            sets=kernel_timing.request_sets(inputs for inputs, _ in task.pairs),
            limit_s=BATCH_LIMIT_S * longer,
            longer=longer,
        )
        buffers = [buffer for _, buffer in task.pairs]
        return self._ask(task, "open", request, partial(_read_opened, request=request), buffers).result

    def _blocks(self, task: TimingTask, orders: Sequence[str]) -> list[Block]:
        read_blocks = partial(kernel_timing.read_blocks, orders=orders)
        return self._ask(task, "blocks", RunBlocks(tuple(orders)), read_blocks).result

    def _finished(self, task: TimingTask) -> Reply[FinishedTiming]:
        names = [inputs.name for inputs, _ in task.pairs]
        return self._ask(task, "finish", EmptyMessage(), partial(kernel_timing.read_finished, names=names))

    def _make_ready(self, task: TimingTask) -> None:
        kernel = task.kernel or task.request.kernel.key
        self._runs.make_ready(task.role, task.request.device, kernel=kernel)

    def _ask(
        self,
        task: TimingTask,
        method: str,
        request: object,
        read_answer: Callable[[Any], _T],
        buffers: Sequence[Buffer] = (),
    ) -> Reply[_T]:
        compiles = isinstance(request, OpenTiming) and request.compile
        return self._runs.ask(
            task.role,
            method,
            request,
            read_answer,
            buffers,
            timeout_s=self._runs.timeout_s + (COMPILE_LIMIT_S if compiles else 0.0),
            kernel=task.kernel or task.request.kernel.key,
        )

    def _rule(self, task: TimingTask, prepared: Prepared) -> Rule:
        rule = Rule.of_gate(task.gate, task.tests)
        return rule.beside_spread(self._noise(_ns_per_call(prepared)).spread_upper)


def _read_opened(result: Any, request: OpenTiming) -> Opened:
    """What a worker has made ready: an arm that was asked for is there, or it is said why not; no other one is.

    Raises:
        ValueError: otherwise.
    """
    opened = read(Opened, result)
    asked = {"kernel"}
    asked |= {"torch"} if request.torch else set()
    asked |= {"base"} if request.base is not None else set()
    asked |= {"compile"} if request.compile else set()
    if {*opened.arms, *opened.refused} != asked or set(opened.arms) & opened.refused.keys():
        raise ValueError(
            f"{sorted(asked)} were to be timed; there are {opened.arms}, refused {sorted(opened.refused)}"
        )
    return opened


def _ends_late(blocks: int) -> Rule:
    """A rule by which nothing is proven before the last of so many blocks."""
    never = sys.float_info.min
    return Rule(tolerate=0.0, catch=1.0, alpha=never, beta=never, tests=1, most_blocks=blocks)


def _ns_per_call(prepared: Prepared) -> float:
    return 1e9 * prepared.batch_seconds["kernel"] / max(1, prepared.calls["kernel"])


def _without_the_kernel(
    task: TimingTask, base: CompiledKernel, *, fenced: bool = False, tuned: tuple[TunedConfig, ...] = ()
) -> TimingTask:
    """The base in the place of the kernel, in a process of its own."""
    request = replace(task.request, kernel=base, base=None, compile=False, fenced=fenced, tuned=tuned)
    return replace(task, role=task.role + BASE_ONLY, kernel=task.request.kernel.key, request=request)


def _told_falsely(disputed: tuple[Reason, str], output: str) -> EndedError:
    """What ends a case whose times were disputed in two processes."""
    reason, text = disputed
    return EndedError(
        Status.SUSPECT, reason, f"{text}; it was so in a fresh process, too: {_REMEDIES[reason]}", output
    )


def _confirmed(first: Timed, second: Timed) -> Timed:
    """A slowdown, and what a fresh process told of it."""
    return replace(
        second,
        measurement=replace(first.measurement, confirmation=second.measurement),
        refused={**first.refused, **second.refused},
        died_beside_base=first.died_beside_base or second.died_beside_base,
    )
