"""One right kernel timed in worker processes: blocks until its tests have ended, and again in a fresh process."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pytest_cgins.config import TimingGate
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.measurement import ArmName, Measurement
from pytest_cgins.core.model import Reason, Status
from pytest_cgins.gate.clock_check import OutsideClock
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns
from pytest_cgins.run.pool import ALONE
from pytest_cgins.run.process import Reply
from pytest_cgins.run.request_clock import Took
from pytest_cgins.timing.measure import Course, Prepared
from pytest_cgins.timing.sequential import Rule

logger = logging.getLogger(__name__)

BATCH_LIMIT_S = 0.05
"""One batch of every arm together takes no longer, unless a single call does."""
COMPILE_LIMIT_S = 180.0
"""What torch.compile may take besides."""
LONGEST = 8.0
"""Factor for the length of batches where blocks of the usual length hang on each other."""
LENGTHENED = "states of one build lasted for many blocks: timed again with batches 8 times as long"
_REMEDIES = {
    Reason.TAMPERING: "the clock that the worker reads was changed, or its arms differ while that is read\n"
    "→ remove what the kernel does to clocks, and to the process that times it",
    Reason.SLOWS_BASE: "it slows what it is compared with\n"
    "→ end or park threads when a call returns, and leave the process' settings and the base's code alone",
}
_DEATHS = (Status.RUNTIME_ERROR, Status.TIMEOUT)
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of a device's noise for calls of some length."""

    spread_upper: float = 0.0
    """Upper bound at 95% of τ, the standard deviation between processes of the log ratio of a kernel to itself; where
    `why` says that nothing is known, what is assumed."""
    longer: float = 1.0
    """Factor for the length of batches, where blocks of the usual length hang on each other."""
    why: str = ""
    """Why nothing is known; "" if something is."""


NoiseOf = Callable[[float], Noise]
"""Gives the noise of calls that take so many nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be timed, and how it is judged."""

    role: str
    """Of the worker."""
    request: dict[str, Any]
    """As `TimingService.open` takes it, without `sets`, `limit_s` and `longer`."""
    pairs: Sequence[tuple[Any, Buffer]]
    """Sets of inputs with their buffers, as of `kernel_timing.timeable`."""
    gate: TimingGate
    """The kernel's."""
    tests: int
    """How many tests the suite makes."""
    revision: str
    """Commit of the base arm; "" without one."""
    timeout_s: float
    """For one request."""
    kernel: str = ""
    """What a process is for, if that is another kernel than the one that is timed."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A measurement, what the worker told at its end, and why arms are not there."""

    measurement: Measurement
    reply: Reply
    told: dict[str, Any]
    refused: dict[str, str]
    died_beside_base: bool = False
    disputed: tuple[Reason, str] | None = None
    """What speaks against the times: see `clock_check`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Blocks of one case in one process."""

    ns_per_call: float
    """Of the kernel, about."""
    log_ratios: tuple[float, ...]
    """Of the kernel against its base, one a block; () without a base."""
    refused: dict[str, str]
    """Why arms are not there."""


class CaseTiming:
    """Times cases in the workers of a session."""

    def __init__(
        self,
        runs: KernelRuns,
        *,
        noise: NoiseOf = lambda _: Noise(),
        lock: Callable[[], AbstractContextManager[None]],
        fresh: bool = True,
    ) -> None:
        """`lock` is held while anything is timed."""
        self._runs = runs
        self._noise = noise
        self._lock = lock
        self._fresh = fresh

    def time(self, wanted: Wanted) -> Timed:
        """Time a case; what comes out slower is timed again in a fresh process.

        Raises:
            EndedError: the kernel failed meanwhile.
            InfrastructureError: the device was not to be had.
        """
        timed = self._without_a_base_that_kills(wanted)
        disputed: tuple[Reason, str] | None = None
        slower: Timed | None = None
        while self._fresh:
            if timed.disputed and disputed:
                for buffer in timed.reply.buffers:
                    buffer.close()
                raise _told_falsely(disputed, timed.reply.output)
            if timed.disputed:
                disputed = timed.disputed
            elif slower is not None:
                return _confirmed(slower, timed)
            elif _alarming(timed.measurement):
                slower = timed
            else:
                break
            request = {**wanted.request, "seed": wanted.request["seed"] + 1}  # other orders of blocks
            wanted = replace(wanted, request=request, tests=wanted.tests if slower is None else 1)
            timed = self._afresh(wanted, timed)
        return timed

    def _afresh(self, wanted: Wanted, before: Timed) -> Timed:
        """The same in a fresh process."""
        logger.info("slower, or told falsely: timed again in a fresh process")
        self._runs.renew(wanted.role)
        if before.disputed:
            self._runs.renew(wanted.role + ALONE)
        try:
            return self._without_a_base_that_kills(wanted)
        finally:
            for buffer in before.reply.buffers:
                buffer.close()

    def sample(self, wanted: Wanted, blocks: int, *, longer: float = 1.0) -> Sample:
        """A fixed number of blocks of kernel and base; nothing is judged.

        Args:
            wanted: without probes; of its gate nothing counts.
            blocks: how many, or fewer where these take longer than a test may.
            longer: factor for the length of batches.

        Raises:
            EndedError: the kernel failed meanwhile.
            InfrastructureError: the device was not to be had.
        """
        self._ask(wanted, "ready", {"device": wanted.request["device"]}, ())
        with self._lock():
            prepared, refused = self._opened(wanted, longer)
            ratios = self._ratios(wanted, prepared, blocks) if "base" in prepared.arms else ()
            for buffer in self._ask(wanted, "finish", {}, ()).buffers:
                buffer.close()
        return Sample(_ns_per_call(prepared), ratios, refused)

    def _ratios(self, wanted: Wanted, prepared: Prepared, blocks: int) -> tuple[float, ...]:
        course = Course(prepared, seed=wanted.request["seed"], base=_ends_late(blocks))
        course.run(lambda orders: self._blocks(wanted, orders))
        return tuple(course.log_ratios("base"))

    def _without_a_base_that_kills(self, wanted: Wanted) -> Timed:
        """A worker that dies with the base in it, and lives without, died of the base."""
        try:
            return self._once(wanted)
        except EndedError as end:
            if not wanted.request.get("base") or end.verdict.status not in _DEATHS:
                raise
            self._runs.renew(wanted.role)
            try:
                timed = self._once(replace(wanted, revision="", request={**wanted.request, "base": None}))
            except EndedError:
                raise end from None
            first = end.verdict.message.partition("\n")[0]
            why = f"beside it the worker ended: {first}"
            return replace(timed, refused={**timed.refused, "base": why}, died_beside_base=True)

    def _once(self, wanted: Wanted) -> Timed:
        # A process that starts while the device is held would keep others waiting.
        rivals = [_without_the_kernel(wanted)] if wanted.request.get("base") and self._fresh else []
        for one in (wanted, *rivals):
            self._ask(one, "ready", {"device": one.request["device"]}, ())
        started = time.monotonic()
        with self._lock():
            prepared, refused, longer = self._open(wanted)
            course = self._course(wanted, prepared, seed=wanted.request["seed"])
            if course.lasting and longer < LONGEST:
                prepared, refused = self._opened(wanted, LONGEST)
                prepared = replace(prepared, notes=(*prepared.notes, LENGTHENED))
                # Other orders: those of before had a part in that they are taken again.
                course = self._course(wanted, prepared, seed=wanted.request["seed"] + 2)
            disputed = self._disputed(wanted, prepared, course)
            reply = self._ask(wanted, "finish", {}, ())
        seconds = time.monotonic() - started
        measurement = replace(
            course.measurement(),
            seconds=seconds,
            base_revision=wanted.revision if "base" in prepared.arms else "",
            uncalibrated=self._noise(_ns_per_call(prepared)).why if "base" in prepared.arms else "",
        )
        try:
            told = kernel_timing.told_of(
                reply.result, wanted.pairs, measurement, launch_ns=prepared.launch_ns
            )
        except _MALFORMED as error:
            for buffer in reply.buffers:
                buffer.close()
            raise self._runs.refuse(wanted.role, error, reply.output) from error
        return Timed(measurement, reply, told, refused, disputed=disputed)

    def _disputed(self, wanted: Wanted, prepared: Prepared, course: Course) -> tuple[Reason, str] | None:
        """What speaks against the times of arms that nothing was proven slower than: a false clock may come out undecided."""
        clock = OutsideClock(prepared, lambda arm, calls: self._repeat(wanted, arm, calls))
        passing = [one.against for one in course.comparisons() if one.outcome != "slower"]
        for arm in passing:
            if text := clock.dispute(arm, course.told(arm)):
                return Reason.TAMPERING, text
        if "base" in passing and self._fresh and (text := self._slowdown(wanted, clock)):
            return Reason.SLOWS_BASE, text
        return None

    def _slowdown(self, wanted: Wanted, clock: OutsideClock) -> str:
        """How the base is slower beside the kernel than in a process that this was never in."""
        # A graph and a loop of the same calls take different times.
        alone = _without_the_kernel(wanted, fenced=clock.prepared.method == "fenced-loop")
        try:
            prepared, _ = self._opened(alone, 1.0)
            other = OutsideClock(prepared, lambda arm, calls: self._repeat(alone, arm, calls))
            return clock.slowdown(other, lambda: self._runs.stopped(wanted.role))
        except EndedError as end:
            if end.verdict.status in _DEATHS:
                return ""  # no doing of the kernel: the base dies by itself
            raise

    def _repeat(self, wanted: Wanted, arm: ArmName, calls: int) -> Took | None:
        took = self._ask(wanted, "repeat", {"arm": arm, "calls": calls}, ()).took
        if arm == "kernel" and not wanted.kernel:
            self._ask(wanted, "look", {}, ())
        return took

    def _course(self, wanted: Wanted, prepared: Prepared, *, seed: int) -> Course:
        """All blocks of what is ready, and a look beyond a proof."""
        rule = self._rule(wanted, prepared)
        course = Course(
            prepared,
            seed=seed,
            base=rule if "base" in prepared.arms else None,
            floor=(rule, wanted.gate.floor_vs_torch) if wanted.gate.floor_vs_torch else None,
            warm_wanted=wanted.gate.cache == "warm",
            sums=True,
        )
        course.run(lambda orders: self._blocks(wanted, orders))
        course.look_on(lambda orders: self._blocks(wanted, orders))
        return course

    def _open(self, wanted: Wanted) -> tuple[Prepared, dict[str, str], float]:
        """Make ready; with batches so many times as long as the noise of calls of this length wants them."""
        prepared, refused = self._opened(wanted, 1.0)
        longer = self._noise(_ns_per_call(prepared)).longer
        if longer > 1:
            prepared, refused = self._opened(wanted, longer)
        return prepared, refused, longer

    def _opened(self, wanted: Wanted, longer: float) -> tuple[Prepared, dict[str, str]]:
        params = {
            **wanted.request,
            "sets": kernel_timing.request_sets(wanted.pairs),
            "limit_s": BATCH_LIMIT_S * longer,
            "longer": longer,
        }
        del params["seed"]  # whoever knows it knows the order of the next block
        reply = self._ask(wanted, "open", params, [buffer for _, buffer in wanted.pairs])
        try:
            prepared, refused = kernel_timing.prepared_of(reply.result)
            _require_wanted(wanted.request, prepared, refused)
            return prepared, refused
        except _MALFORMED as error:
            raise self._runs.refuse(wanted.role, error, reply.output) from error

    def _blocks(self, wanted: Wanted, orders: Sequence[str]) -> Sequence[Any]:
        reply = self._ask(wanted, "blocks", {"orders": list(orders)}, ())
        try:
            return kernel_timing.blocks_of(reply.result, orders)
        except _MALFORMED as error:
            raise self._runs.refuse(wanted.role, error, reply.output) from error

    def _ask(self, wanted: Wanted, method: str, params: Any, buffers: Sequence[Buffer]) -> Reply:
        limit_s = wanted.timeout_s + (COMPILE_LIMIT_S if params.get("compile") else 0.0)
        kernel = wanted.kernel or wanted.request["kernel"]["key"]
        return self._runs.ask(wanted.role, method, params, buffers, timeout_s=limit_s, kernel=kernel)

    def _rule(self, wanted: Wanted, prepared: Prepared) -> Rule:
        gate = wanted.gate
        rule = Rule(
            tolerate=gate.tolerate,
            catch=gate.catch,
            alpha=gate.alpha,
            beta=gate.beta,
            tests=wanted.tests,
            most_blocks=gate.max_blocks,
        )
        return rule.beside_spread(self._noise(_ns_per_call(prepared)).spread_upper)


def _require_wanted(request: Mapping[str, Any], prepared: Prepared, refused: Mapping[str, str]) -> None:
    """An arm that was asked for is there, or it is said why not; no other one is.

    Raises:
        ValueError: otherwise.
    """
    wanted = {"kernel", "torch"} | {arm for arm in ("base", "compile") if request.get(arm)}
    if {*prepared.arms, *refused} != wanted or set(prepared.arms) & set(refused):
        raise ValueError(
            f"{sorted(wanted)} were to be timed; there are {prepared.arms}, refused {sorted(refused)}"
        )


def _ends_late(blocks: int) -> Rule:
    """A rule by which nothing is proven before the last of so many blocks."""
    never = sys.float_info.min
    return Rule(tolerate=0.0, catch=1.0, alpha=never, beta=never, tests=1, most_blocks=blocks)


def _ns_per_call(prepared: Prepared) -> float:
    return 1e9 * prepared.batch_seconds["kernel"] / max(1, prepared.calls["kernel"])


def _without_the_kernel(wanted: Wanted, *, fenced: bool = False) -> Wanted:
    """The base in the place of the kernel, in a process of its own."""
    own = {"kernel": wanted.request["base"], "base": None, "compile": False, "fenced": fenced}
    request = {**wanted.request, **own}
    key = wanted.request["kernel"]["key"]
    return replace(wanted, role=wanted.role + ALONE, kernel=key, request=request)


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


def _alarming(measurement: Measurement) -> bool:
    return any(one.outcome == "slower" for one in measurement.comparisons)
