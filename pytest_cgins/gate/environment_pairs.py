"""Kernels that cannot share a process with their base: answers, builds, memory, and times in pairs of fresh processes.

Two builds that cannot share a process are timed in pairs: a fresh process of either environment, in an order drawn by
lot, both alone on the device, all kernels of the suite in each. A kernel's time in a process is the median of its
batches, and a pair gives one log ratio, whose sign goes into the sequential test. What differs from process to process
is noise of the pairs, which the test's bound covers, so a proof needs no confirmation. Drift of clocks favours
neither, because the order is drawn anew for each pair. `tests/benchmarks/pairs_simulation.py` has the formula and what
is found in how many pairs.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from pytest_cgins.building import resources
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.measurement import ARM_LETTERS, ArmName, Measurement, TunedConfig
from pytest_cgins.core.number_text import percent
from pytest_cgins.core.session_report import SAME_BITS, Environments, Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import ReadyCase, with_tuning_notes
from pytest_cgins.gate.timing_verdict import decide_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import Pair
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import times_of
from pytest_cgins.timing.sequential import Rule, SequentialTest
from pytest_cgins.timing.stats import quartiles
from pytest_cgins.verify.messages import Drift
from pytest_cgins.verify.timing_messages import Opened

logger = logging.getLogger(__name__)
BATCHES = 16
"""m: batches of a kernel in a process. With σ = 1% between batches their median has a standard error of 0.3%."""
REPORTS = 3
"""Blocks of the first pair that have torch's arm: it is only reported."""
MOST_INPUT_BYTES = 4 << 30
"""Inputs of kernels that are timed in the same processes: they are held from pair to pair."""
PROCESS = "timing/pair"
"""Role of the processes, before a number."""
MOST_PAIRS_AT_ONCE = 4
"""Pairs of processes that are started together: each takes half a gigabyte of a GPU for its context."""
CORES_PER_PAIR = 4
"""Cores that two processes keep busy while they import torch and take hold of a GPU."""

_Number = TypeVar("_Number", int, float)


@dataclass(slots=True, eq=False)
class _Pairing:
    """One case that is timed."""

    evaluation: Evaluation
    """As it was verified."""
    test: SequentialTest
    """One log ratio a pair."""
    inputs: list[Pair] = field(default_factory=list)
    """Sets that it is timed on, in both environments."""
    orders: list[str] = field(default_factory=list)
    times: dict[ArmName, list[float]] = field(default_factory=lambda: {"kernel": [], "base": []})
    opened: dict[ArmName, Opened] = field(default_factory=dict)
    """What the last process of each side made ready; the first one's choices of autotuners stay."""
    reported: Opened | None = None
    """The kernel's process that has torch's arm, which only the first pair has."""
    blocks: list[Block] = field(default_factory=list)
    """Its blocks that have that arm."""
    fenced: bool = False
    """Whether one side's calls cannot be captured, so that both are timed by loops."""
    ended: tuple[ArmName, EndedError] | None = None
    """The side that failed."""

    @property
    def case(self) -> Case:
        return self.evaluation.case

    @property
    def is_open(self) -> bool:
        return self.ended is None and not self.test.done


class EnvironmentPairs:
    """Compares the kernels of one `cgins.yaml` in two environments.

    Both evaluators share the trusted worker, and neither times by itself. `environment` is the base's, in words; "" where both
    builds are of one, and cannot share a process.
    """

    def __init__(
        self,
        kernel: Evaluator,
        base: Evaluator,
        *,
        environment: str,
        tests: Callable[[], int],
        seed: int,
        progress: Callable[[str], object],
    ) -> None:
        self._evaluators: dict[ArmName, Evaluator] = {"kernel": kernel, "base": base}
        self._environment = environment
        self._tests = tests
        self._choice = random.Random(f"pairs/{seed}")  # noqa: S311
        self._progress = progress

    def compare(self, cases: Sequence[Case], *, timing: bool = True) -> dict[str, Evaluation]:
        """Verify in both environments, then time what is right in both; by name of the case."""
        for evaluator in self._evaluators.values():
            evaluator.build_ahead(cases)
        evaluations: dict[str, Evaluation] = {}
        to_time: list[Case] = []
        for index, case in enumerate(cases):
            self._progress(f"verifying in two environments: {index + 1} of {counted(len(cases), 'case')}")
            evaluation = self._verified(case)
            evaluations[case.name] = evaluation
            if environments := evaluation.environments:
                statuses = {evaluation.verdict.status.value, environments.base_status}
                if timing and statuses <= {Status.PASSED.value, Status.WEAK.value}:
                    to_time.append(case)
        for evaluator in self._evaluators.values():
            evaluator.pool.close()
        for group in self._groups(to_time, evaluations):
            with ExitStack() as buffers:
                pairings = list(self._prepared(group, evaluations, buffers))
                self._time(pairings)
                for pairing in pairings:
                    evaluations[pairing.case.name] = self._decided(pairing)
        if not self._environment:
            return {name: replace(one, environments=None) for name, one in evaluations.items()}
        return evaluations

    @property
    def _base_label(self) -> str:
        return self._environment or self._evaluators["base"].stage.bases.label

    @property
    def _there(self) -> str:
        return f"{'in' if self._environment else 'at'} {self._base_label}"

    # ---- answers and builds

    def _verified(self, case: Case) -> Evaluation:
        """A kernel as it is evaluated by itself, and where it is right its base on the same inputs."""
        kernel = self._evaluators["kernel"]
        evaluation = kernel.evaluate(case)
        if evaluation.correctness is None or not evaluation.correctness.passed:
            return evaluation
        environments = Environments(base=self._environment, same_sources=False)
        try:
            with ExitStack() as buffers:
                environments, wrong = self._compared(environments, case, buffers)
        except EndedError as end:
            status, first = end.verdict.status, end.verdict.message.partition("\n")[0]
            if status is Status.INFRASTRUCTURE:
                # Not "compared with nothing", which passes: the next run may well find it slower.
                message = f"{self._there}: {end.verdict.message}"
                return replace(evaluation, verdict=replace(end.verdict, message=message))
            environments = replace(environments, base_status=status.value)
            wrong = f"{self._there} the base is {status.value} ({end.verdict.reason.value}): {first}"
        evaluation = replace(evaluation, environments=environments)
        if wrong and evaluation.verdict.status is Status.PASSED:
            absent = environments.base_status == Status.SKIPPED.value
            reason = Reason.NO_BASELINE if absent else Reason.NOT_COMPARABLE
            return replace(evaluation, verdict=replace(evaluation.verdict, reason=reason, message=wrong))
        return evaluation

    def _compared(
        self, environments: Environments, case: Case, buffers: ExitStack
    ) -> tuple[Environments, str]:
        """Builds and answers of both, and what is wrong with the base's.

        Raises:
            EndedError: the base cannot be built, or gives no answers.
        """
        kernel, base = self._evaluators["kernel"], self._evaluators["base"]
        builds = [base.compiled(case), kernel.compiled(case)]
        environments = replace(
            environments,
            same_sources=builds[0].source.digest == builds[1].source.digest,
            library_nbytes=_both(*map(_size, builds)),
        )
        prepared = buffers.enter_context(closing(kernel.prepared(case)))
        answers = [
            buffers.enter_context(closing(one.compared_answers(case, prepared.core)))
            for one in (base, kernel)
        ]
        first, second = (
            reply.result.jit or resources.of_build(build)
            for reply, build in zip(answers, builds, strict=True)
        )
        if first is not None and second is not None:
            environments = replace(
                environments,
                compile_seconds=(first.seconds, second.seconds),
                registers_per_thread=_both(first.registers_per_thread, second.registers_per_thread),
                spill_nbytes=_both(first.spill_nbytes, second.spill_nbytes),
            )
        if failed := kernel.reference.first_failure(prepared.case_request, answers[0]):
            status = Status.INCORRECT.value
            wrong = f"{self._there} the base is {status} ({failed.reason.value}): {failed.message}"
            return replace(environments, base_status=status), wrong.partition("\n")[0]
        drift = kernel.reference.drift(*answers)
        text = SAME_BITS
        if drift.differing:
            again = buffers.enter_context(closing(kernel.compared_answers(case, prepared.core)))
            text = _drift_text(drift, kernel.reference.drift(answers[1], again))
        return replace(environments, base_status=Status.PASSED.value, drift=text), ""

    # ---- times

    def _groups(self, cases: Sequence[Case], evaluations: dict[str, Evaluation]) -> Iterator[list[Case]]:
        """Cases of one device whose inputs fit in memory together, interpreted ones apart."""
        groups: dict[tuple[str, bool], list[tuple[Case, int]]] = {}
        for case in cases:
            nbytes = sum(math.prod(meta.shape) * 8 for meta in evaluations[case.name].case.tensors)
            interpreted = self._evaluators["kernel"].compiled(case).source.interpret
            groups.setdefault((case.device, interpreted), []).append((case, 2 * nbytes))
        for members in groups.values():
            group: list[Case] = []
            held = 0
            for case, nbytes in members:
                if group and held + nbytes > MOST_INPUT_BYTES:
                    yield group
                    group, held = [], 0
                group.append(case)
                held += nbytes
            yield group

    def _prepared(
        self, cases: Iterable[Case], evaluations: dict[str, Evaluation], buffers: ExitStack
    ) -> Iterator[_Pairing]:
        for case in cases:
            gate = self._evaluators["kernel"].requests.entry(case).timing
            rule = Rule.of_gate(gate, max(1, self._tests()))
            pairing = _Pairing(evaluations[case.name], SequentialTest(rule, unit="pair"))
            try:
                prepared = self._evaluators["kernel"].prepared(case, probes=False)
                pairing.inputs = buffers.enter_context(closing(prepared)).timeable
            except EndedError as end:
                pairing.ended = ("kernel", end)
            yield pairing

    def _time(self, pairings: Sequence[_Pairing]) -> None:
        """Pairs of processes until each case is decided, or no process or device is to be had."""
        count = 0
        while left := [pairing for pairing in pairings if pairing.is_open]:
            try:
                for role in self._fresh_roles(left[0].case):
                    left = [pairing for pairing in left if pairing.is_open]
                    if left:
                        count += 1
                        undecided = counted(len(left), "case is", "cases are")
                        self._progress(f"pair {count} of processes: {undecided} undecided")
                        self._pair(left, role)
            except (EndedError, InfrastructureError) as error:
                busy = EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, f"not timed: {error}")
                end = error if isinstance(error, EndedError) else busy
                for pairing in left:
                    pairing.ended = pairing.ended or ("kernel", end)

    def _fresh_roles(self, case: Case) -> list[str]:
        """Roles of the next pairs, whose processes start together while nothing is timed."""
        interpreted = "/interpret" if self._evaluators["kernel"].compiled(case).source.interpret else ""
        count = max(1, min(MOST_PAIRS_AT_ONCE, len(os.sched_getaffinity(0)) // CORES_PER_PAIR))
        roles = [f"{PROCESS}{number}{interpreted}" for number in range(count)]
        started = time.monotonic()
        with ThreadPoolExecutor(2 * count) as starts:
            ready = [
                starts.submit(evaluator.processes.fresh, role, case.device)
                for role in roles
                for evaluator in self._evaluators.values()
            ]
        for process in ready:
            process.result()
        seconds = time.monotonic() - started
        logger.info("%s ready in %.1f s", counted(count, "pair of processes", "pairs of processes"), seconds)
        return roles

    def _pair(self, pairings: Sequence[_Pairing], role: str) -> None:
        sides: list[ArmName] = ["kernel", "base"]
        self._choice.shuffle(sides)
        started = time.monotonic()
        taken: dict[_Pairing, dict[ArmName, float]] = {pairing: {} for pairing in pairings}
        with self._evaluators["kernel"].stage.alone_on(pairings[0].case.device):
            for side in sides:
                for pairing in pairings:
                    if pairing.ended is None and (ns := self._taken(pairing, side, role)) is not None:
                        taken[pairing][side] = ns
        logger.info("%s timed in %.1f s", counted(len(taken), "case"), time.monotonic() - started)
        for pairing, times in taken.items():
            methods = {pairing.opened[side].method for side in times}
            if len(times) < 2 or pairing.ended is not None:
                continue
            if len(methods) > 1:  # a graph and a loop of the same calls take different times
                pairing.fenced = True
                continue
            pairing.orders.append("".join(ARM_LETTERS[side] for side in sides))
            for side, ns in times.items():
                pairing.times[side].append(ns)
            pairing.test.add(math.log(times["kernel"] / times["base"]))

    def _taken(self, pairing: _Pairing, side: ArmName, role: str) -> float | None:
        """Nanoseconds a call in the process of one side; None if it failed."""
        evaluator, case = self._evaluators[side], pairing.case
        reports = not pairing.orders  # in both processes, so that they have the same past
        orders = ["KTTK"] * REPORTS if reports else []
        orders += ["KK"] * (BATCHES // 2 - len(orders))
        try:
            ready = ReadyCase(case=case, compiled=evaluator.compiled(case), role=role, pairs=pairing.inputs)
            opened, blocks = evaluator.stage.alone(
                ready,
                orders,
                fenced=pairing.fenced,
                torch=reports,
                tuned=pairing.opened[side].tuned if side in pairing.opened else (),
            )
        except EndedError as end:
            pairing.ended = side, end
            evaluator.processes.fresh(role, case.device)
            return None
        pairing.opened[side] = opened
        if reports and side == "kernel":
            pairing.reported, pairing.blocks = opened, blocks[:REPORTS]
        return median(times_of("kernel", blocks))

    # ---- verdicts

    def _decided(self, pairing: _Pairing) -> Evaluation:
        """The evaluation with its time, judged."""
        evaluation = pairing.evaluation
        if pairing.ended is not None:
            side, end = pairing.ended
            if side == "kernel" or end.verdict.status is Status.INFRASTRUCTURE:
                message = f"right, but while it was timed: {end.verdict.message}"
                return replace(evaluation, verdict=replace(end.verdict, message=message), output=end.output)
            first = end.verdict.message.partition("\n")[0]
            text = f"{self._there} the base failed while it was timed: {first}"
            verdict = replace(evaluation.verdict, reason=Reason.NOT_COMPARABLE, message=text)
            return replace(evaluation, verdict=verdict)
        if not pairing.times["kernel"]:
            return evaluation
        assert evaluation.correctness is not None  # what is timed was found right, beside its base
        assert evaluation.environments is not None
        revision = "" if self._environment else self._evaluators["base"].stage.bases.commit
        measurement = replace(_measurement(pairing), base_revision=revision)
        measurement = with_tuning_notes(measurement, evaluation.correctness.tuned)
        gate = self._evaluators["kernel"].requests.entry(pairing.case).timing
        verdict = decide_timing(
            evaluation.verdict,
            measurement,
            base_state="changed",
            base_note="",
            gate=gate,
            base_label=self._base_label,
            kernel=pairing.case.kernel,
        )
        peaks = (pairing.opened[side].peak_nbytes for side in ("base", "kernel"))
        environments = replace(evaluation.environments, peak_nbytes=_both(*peaks))
        judged = replace(evaluation, measurement=measurement, verdict=verdict)
        return replace(judged, environments=environments, fail_on=gate.fail_on)


def _measurement(pairing: _Pairing) -> Measurement:
    opened, base = pairing.opened["kernel"], pairing.opened["base"]
    gain = quartiles(
        [-ratio for block in pairing.blocks if (ratio := block.log_ratio("kernel", "torch")) is not None]
    )
    assert pairing.reported is not None  # the first pair that gave times has torch's arm
    return Measurement(
        method=opened.method,
        cache="cold" if opened.cold else "warm",
        orders=" ".join(pairing.orders),
        kernel=opened.arm("kernel", pairing.times["kernel"]),
        base=replace(base.arm("kernel", pairing.times["base"]), name="base"),
        torch=pairing.reported.arm("torch", times_of("torch", pairing.blocks)),
        speedup_vs_torch=math.exp(gain.median),
        speedup_low=math.exp(gain.low),
        speedup_high=math.exp(gain.high),
        comparisons=(pairing.test.comparison("base"),),
        timed_ns=sum(
            ns * pairing.opened[side].calls["kernel"] * BATCHES
            for side in ("kernel", "base")
            for ns in pairing.times[side]
        ),
        notes=(*opened.notes, *_own_choices(opened.tuned, base.tuned)),
        tuned=opened.tuned,
        base_tuned=base.tuned,
        jit=opened.jit,
        base_jit=base.jit,
    )


def _own_choices(kernel: Sequence[TunedConfig], base: Sequence[TunedConfig]) -> Iterator[str]:
    """Where the autotuners of both sides, each of which chose for itself in its first process, chose otherwise."""
    there = {(choice.kernel, choice.key): choice.config for choice in base}
    for choice in kernel:
        other = there.get((choice.kernel, choice.key), choice.config)
        if other != choice.config:
            yield f"the autotuner of {choice.kernel} chose {choice.config} for the kernel and {other} for the base; each was timed with its own"


def _both(base: _Number | None, kernel: _Number | None) -> tuple[_Number, _Number] | None:
    return None if base is None or kernel is None else (base, kernel)


def _drift_text(drift: Drift, own: Drift) -> str:
    """How far answers lie from the base's, and how far those of the kernel from each other."""
    greatest = f"up to {drift.greatest:.2g} of the greatest"
    if math.isinf(drift.greatest):
        greatest = "NaN or infinite"
    text = f"{percent(drift.differing / drift.elements)} of elements differ, {greatest}"
    if own.differing:
        text += f"; from call to call {percent(own.differing / own.elements)} do, up to {own.greatest:.2g}"
    return text


def _size(compiled: CompiledKernel) -> int | None:
    return Path(compiled.library).stat().st_size if compiled.library else None
