"""The run of a calibration: kernels against second builds of themselves, in one fresh process after another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import zip_longest

from pytest_cgins import __version__
from pytest_cgins.building.revision.base_kernels import BaseKernel
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.calibration import (
    BOUNDS_NS,
    CALIBRATION_VERSION,
    LONGER,
    Calibration,
    SizeClass,
    key,
    size_class,
)
from pytest_cgins.gate.case_timing import Sample
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import NO_BASE, ReadyCase
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_timing import seed_for
from pytest_cgins.timing.process_noise import ALARMING, LEAST_BLOCKS, Levels, estimate

MOST_TRIED = 48
"""So many cases are timed shortly, at most, to find some of each size class."""
_STEPS = ((0.3, 8.0), (0.1, 4.0), (ALARMING, 2.0))
"""Correlation of blocks, and what makes batches so much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    processes: int = 10
    """Fresh ones."""
    blocks: int = 64
    """Blocks of each case in each process."""
    cases_per_class: int = 2
    """Cases of each size class, from different kernels where there are several."""


@dataclass(slots=True, kw_only=True)
class _Subject:
    """A case that is timed against a second build of its kernel."""

    ready: ReadyCase
    twin: BaseKernel
    rows: list[tuple[float, ...]] = field(default_factory=list)
    """Log ratios by process."""


class CalibrationRun:
    """Measures the noise of one device, by an evaluator without a base revision."""

    def __init__(
        self, evaluator: Evaluator, device: str, plan: Plan, *, say: Callable[[str], object]
    ) -> None:
        self._evaluator = evaluator
        self._device = device
        self._plan = plan
        self._say = say

    def run(self, cases: Sequence[Case]) -> Calibration:
        """Choose among these cases, and measure.

        Raises:
            InfrastructureError: the device was not to be had, or none of the cases could be timed.
            EndedError: the trusted worker was lost.
        """
        started = time.monotonic()
        environment = self._evaluator.devices.described()[self._device]
        with ExitStack() as stack:
            chosen = self._chosen(stack, cases)
            classes = self._measured(chosen)
        if not classes:
            raise InfrastructureError(
                f"none of {counted(len(cases), 'case')} could be timed against a second build of its kernel on {self._device}",
                remedy="the lines above say why; `pytest --cgins` says what is wrong with a kernel",
            )
        return Calibration(
            version=CALIBRATION_VERSION,
            key=key(environment),
            cgins=__version__,
            measured_at_s=time.time(),
            seconds=time.monotonic() - started,
            classes=tuple(classes[name] for name in BOUNDS_NS if name in classes),
        )

    # ---- which cases

    def _chosen(self, stack: ExitStack, cases: Sequence[Case]) -> dict[str, list[_Subject]]:
        """Cases of each size class, made ready; classes without one are missing."""
        sized = self._sized(cases)
        chosen: dict[str, list[_Subject]] = {}
        for name in BOUNDS_NS:
            for case in _by_kernel(case for case, ns in sized if size_class(ns) == name):
                if len(chosen.get(name, [])) == self._plan.cases_per_class:
                    break
                subject = self._subject(stack, case)
                if subject is not None:
                    chosen.setdefault(name, []).append(subject)
        return chosen

    def _sized(self, cases: Sequence[Case]) -> list[tuple[Case, float]]:
        """What calls take, in nanoseconds, until each class has enough kernels, or enough cases were tried."""
        found: list[tuple[Case, float]] = []
        tried = _by_kernel(cases)[:MOST_TRIED]
        unbuilt: set[tuple[str, str]] = set()
        for number, case in enumerate(tried, 1):
            if (case.kernel, case.implementation) in unbuilt:
                continue
            self._say(f"looking for calls of each length: {number} of at most {len(tried)}")
            try:
                with self._evaluator.made_ready(case) as ready:
                    sample = self._evaluator.stage.sample(ready, NO_BASE, blocks=LEAST_BLOCKS)
            except EndedError as end:
                self._say(f"{case.name} is left out: {_first(end)}")
                if end.verdict.status is Status.BUILD_ERROR:
                    unbuilt.add((case.kernel, case.implementation))
                continue
            found.append((case, sample.ns_per_call))
            if self._enough(found):
                break
        return found

    def _enough(self, found: Iterable[tuple[Case, float]]) -> bool:
        kernels: dict[str, set[str]] = {name: set() for name in BOUNDS_NS}
        for case, ns in found:
            kernels[size_class(ns)].add(case.kernel)
        return min(map(len, kernels.values())) >= self._plan.cases_per_class

    def _subject(self, stack: ExitStack, case: Case) -> _Subject | None:
        with ExitStack() as own:
            try:
                ready = own.enter_context(self._evaluator.made_ready(case))
            except EndedError as end:
                self._say(f"{case.name} is left out: {_first(end)}")
                return None
            twin = self._evaluator.stage.bases.twin(ready.compiled)
            if twin.compiled is None:
                self._say(f"{case.name} is left out: {twin.note}")
                return None
            stack.enter_context(own.pop_all())
        return _Subject(ready=ready, twin=twin)

    # ---- what is measured

    def _measured(self, chosen: Mapping[str, list[_Subject]]) -> dict[str, SizeClass]:
        """Each class with the shortest batches at which its blocks are independent, or the longest that there are."""
        found: dict[str, SizeClass] = {}
        longer = dict.fromkeys(chosen, LONGER[0])
        still = dict(chosen)
        while still:
            self._take([(subject, longer[name]) for name, subjects in still.items() for subject in subjects])
            timed = {
                name: [subject for subject in subjects if len(subject.rows) == self._plan.processes]
                for name, subjects in still.items()
            }
            still = {}
            for name, subjects in timed.items():
                if not subjects:
                    continue
                found[name] = self._class(name, subjects, longer[name])
                wanted = longer_batches(found[name])
                if wanted != longer[name]:
                    longer[name], still[name] = wanted, subjects
                    rho = found[name].rho
                    self._say(
                        f"{name}: blocks are correlated, rho = {rho:.2f}: again with batches {wanted:g} times as long"
                    )
        return found

    def _take(self, subjects: Sequence[tuple[_Subject, float]]) -> None:
        """Blocks of all in each process, in turns that begin elsewhere each time; who fails has fewer rows."""
        for subject, _ in subjects:
            subject.rows.clear()
        failed: set[str] = set()
        for process in range(self._plan.processes):
            self._say(
                f"process {process + 1} of {self._plan.processes}: {counted(len(subjects) - len(failed), 'kernel')}"
            )
            for role in {subject.ready.role for subject, _ in subjects}:
                self._evaluator.pool.discard(role)
            first = process % len(subjects)
            for subject, longer in (*subjects[first:], *subjects[:first]):
                if subject.ready.case.name in failed:
                    continue
                try:
                    sample = self._sample(subject, longer, process)
                except EndedError as end:
                    why = _first(end)
                else:
                    subject.rows.append(sample.log_ratios)
                    why = sample.refused.get("base", "")
                if why:
                    failed.add(subject.ready.case.name)
                    subject.rows.clear()
                    self._say(f"{subject.ready.case.name} is left out: {why}")

    def _sample(self, subject: _Subject, longer: float, process: int) -> Sample:
        return self._evaluator.stage.sample(
            subject.ready,
            subject.twin,
            blocks=self._plan.blocks,
            longer=longer,
            seed=seed_for(process, subject.ready.case),
        )

    def _class(self, name: str, subjects: Sequence[_Subject], longer: float) -> SizeClass:
        levels: list[Levels] = [subject.rows for subject in subjects]
        return SizeClass(
            name=name,
            cases=tuple(subject.ready.case.name for subject in subjects),
            processes=self._plan.processes,
            blocks=max(len(row) for subject in subjects for row in subject.rows),
            longer=longer,
            **asdict(estimate(levels)),
        )


def longer_batches(found: SizeClass) -> float:
    """Factor for the length of batches that is tried next; the present one where it will do, or is the longest."""
    if not found.alarming:
        return found.longer
    factor = next(factor for least, factor in _STEPS if found.rho >= least)
    return min(LONGER[-1], found.longer * factor)


def _by_kernel(cases: Iterable[Case]) -> list[Case]:
    """One of each kernel, then another one of each; within a kernel one of each implementation first."""
    rows: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        rows.setdefault(case.kernel, {}).setdefault(case.implementation, []).append(case)
    return _in_turns(
        [_in_turns([list(_from_both_ends(row)) for row in one.values()]) for one in rows.values()]
    )


def _in_turns(rows: Sequence[Sequence[Case]]) -> list[Case]:
    return [one for turn in zip_longest(*rows) for one in turn if one is not None]


def _from_both_ends(row: Sequence[Case]) -> Iterator[Case]:
    """The first, the last, the second, …: sizes often differ by place."""
    for index in range(math.ceil(len(row) / 2)):
        yield row[index]
        if index != len(row) - 1 - index:
            yield row[len(row) - 1 - index]


def _first(end: EndedError) -> str:
    return end.verdict.message.partition("\n")[0]
