"""Candidates that are built and checked at the same time, each in a folder of its own; they are timed one after another.

All are built at once, as many compilers as the machine has cores for, and each is checked as soon as it is built. The
gate's own locks keep times clean: while one is timed nobody verifies on its device, and the compilers rest. A worker
that starts would disturb as well, so it starts under the same lock as a verification. What is asked of candidates comes
in an order that does not depend on which of them was quicker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_cgins.building.build_queue import BuildQueue, default_jobs
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.sandbox.builds import BuildFence
from pytest_cgins.run.sandbox.sandbox import Sandbox

CORES = 2
"""Cores that one candidate keeps busy: the process that checks it and the one that will time it, as they import torch."""
MOST = 8
"""Candidates that are checked at once, on however many cores: each has two processes with torch, and they share one GPU."""

Files = Mapping[str, str]
"""Sources of a candidate, by path."""


class CandidatePool:
    """What the candidates of all targets of a run share: threads, compilers, and how many processes may lie in wait.

    Args:
        builds: what all compilers of the run belong to, so that none runs while something is timed.
        threads: candidates that are checked at once; 0 for what the machine has room for.
    """

    def __init__(self, builds: BuildQueue, *, threads: int = 0) -> None:
        self.builds = builds
        """Other builds are made beside these."""
        self.threads = threads or max(1, min(MOST, default_jobs() // CORES))
        """As given."""
        self.waiting = threading.Semaphore(2 * self.threads)
        """Held by each candidate whose timing process waits for its turn."""
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="cgins-candidate")
        self._under_way: set[Future[Checked]] = set()
        self._lock = threading.Lock()

    @classmethod
    def fenced(cls, sandbox: Sandbox | None, *, cache: Path | None = None, threads: int = 0) -> CandidatePool:
        """One whose compilers run in a sandbox, if there is one."""
        fence = BuildFence(sandbox) if sandbox is not None else None
        return cls(BuildQueue(cache=cache, fence=fence), threads=threads)

    def submit(self, function: Callable[..., Checked], *arguments: object) -> Future[Checked]:
        """Have a candidate checked when it is its turn."""
        future = self._executor.submit(function, *arguments)
        with self._lock:
            self._under_way = {one for one in self._under_way if not one.done()} | {future}
        return future

    def wait(self) -> None:
        """Until no candidate of any target is under way."""
        with self._lock:
            known = tuple(self._under_way)
        wait(known)

    def stop(self) -> None:
        """End all compilers, at once."""
        self.builds.close()

    def close(self) -> None:
        """When all who use it have ended."""
        self._executor.shutdown(wait=True, cancel_futures=True)


EvaluatorFactory = Callable[[ProjectCopy, BuildQueue, Files | None, bool], Evaluator]
"""Makes the evaluator of a candidate that is in a copy already. The last argument says whether it is timed, against the
champion, or where that is None the incumbent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found of a candidate before it is timed."""

    evaluations: tuple[Evaluation, ...]
    """Of the cases that were run."""
    left: int
    """Cases that were not."""
    seconds: float
    """How long that took; the wait for its build and for processes is in it."""


@dataclass(eq=False, repr=False)
class Slot:
    """Where one candidate lies, and the processes that it is tried in."""

    copy: ProjectCopy
    """Its folder."""
    files: Files = field(default_factory=dict)
    """The candidate."""
    checker: Evaluator | None = None
    timer: Evaluator | None = None
    champion: Files | None = None
    checked: Future[Checked] | None = None
    waits: threading.Semaphore | None = None

    def result(self) -> Checked:
        """What was found of the candidate, once it is known."""
        assert self.checked is not None
        return self.checked.result()

    def close(self) -> None:
        """End its processes."""
        for evaluator in (self.checker, self.timer):
            if evaluator is not None:
                evaluator.close()
        self.checker = self.timer = None
        waits, self.waits = self.waits, None
        if waits is not None:
            waits.release()

    def stop(self) -> None:
        """Kill its processes; whoever waits for them finds out."""
        for evaluator in (self.checker, self.timer):
            if evaluator is not None:
                evaluator.pool.end()


@dataclass(eq=False, repr=False)
class ConcurrentCandidates:
    """The candidates that are under way for one target."""

    copy: ProjectCopy
    """The folder of the first candidate; the others have folders beside it."""
    evaluator: EvaluatorFactory
    """Makes evaluators."""
    check: Callable[[Evaluator, threading.Event], Checked]
    """Tries a candidate, until it is told to stop."""
    pool: CandidatePool
    """Shared with other targets."""

    def __post_init__(self) -> None:
        # With cores to spare, workers import torch while the kernel is compiled.
        self._starts_early = default_jobs() > CORES
        self._slots: list[Slot] = []
        self._under_way: list[Slot] = []
        self._builds: BuildQueue | None = None
        self._stopped = threading.Event()

    def warm(self, count: int) -> None:
        """Start the workers that will check so many candidates, and wait for nothing."""
        self._finish()
        for slot in self._first(min(count, self.pool.threads)):
            if slot.checker is None:
                slot.checker = self.evaluator(slot.copy, self._ahead(), None, False)
                slot.checker.processes.warm()

    def begin(self, candidates: Sequence[Files], champion: Files | None, *, timed: bool) -> None:
        """Build and check candidates from now on; what was begun before is at an end.

        Args:
            candidates: sources, in the order in which they will be asked for.
            champion: what they are likely to be timed beside; None for the incumbent.
            timed: whether those that are right will be.
        """
        self._finish()
        self._under_way = self._first(len(candidates))
        builds = self._ahead()
        for slot, files in zip(self._under_way, candidates, strict=True):
            slot.copy.put(files)
            slot.files, slot.champion = dict(files), champion
            slot.checker = slot.checker or self.evaluator(slot.copy, builds, None, False)
            # The builds alone: a worker starts when it is its candidate's turn.
            slot.checker.kernel_builds.build_ahead(case.key for case in slot.checker.cases())
        for slot in self._under_way:
            slot.checked = self.pool.submit(self._tried, slot, builds, timed)

    def slot_of(self, files: Files) -> Slot | None:
        """Where a candidate that is under way lies."""
        return next((one for one in self._under_way if one.files == files), None)

    def timer(self, slot: Slot, champion: Files | None) -> Evaluator:
        """The evaluator that times a candidate beside a champion; closed when the batch is at its end."""
        if slot.timer is None or slot.champion != champion:
            if slot.timer is not None:
                slot.timer.retire()
            slot.timer, slot.champion = None, champion
            slot.timer = self.evaluator(slot.copy, self._ahead(), champion, True)
        return slot.timer

    def alone(self, slot: Slot) -> Checked:
        """Check a candidate once more, when no other one is: side by side it may have lacked what others had."""
        self.pool.wait()
        checker = slot.checker = self.evaluator(slot.copy, self._ahead(), None, False)
        slot.checked = Future()
        try:
            slot.checked.set_result(self.check(checker, self._stopped))
        finally:
            checker.retire()
            slot.checker = None
        return slot.result()

    def close(self) -> None:
        """End all that is under way, at once."""
        self._stopped.set()
        for slot in self._slots:
            slot.stop()
        if self._builds is not None:
            self._builds.close()
        self._finish()
        for slot in self._slots:
            slot.close()
        self._end_builds()
        self._stopped.clear()

    def _tried(self, slot: Slot, builds: BuildQueue, timed: bool) -> Checked:
        """In a thread: check a candidate, and have the worker ready that will time it."""
        assert slot.checker is not None
        checker, started = slot.checker, time.monotonic()
        try:
            case, *_ = checker.cases()
            if (self._starts_early or checker.can_build(case)) and not self._stopped.is_set():
                if timed and self._may_wait(slot):
                    slot.timer = self.evaluator(slot.copy, builds, slot.champion, True)
                self._have_started(checker, slot.timer)
            found = self.check(checker, self._stopped)
        finally:
            checker.retire()
            slot.checker = None
        return replace(found, seconds=time.monotonic() - started)

    def _have_started(self, checker: Evaluator, timer: Evaluator | None) -> None:
        """Have the processes that a candidate needs, which import torch at the same time."""
        with ExitStack() as stack:
            with suppress(EndedError):
                stack.enter_context(checker.processes.verification_lock())
            checker.processes.start("verification")
            if timer is not None:
                timer.processes.start("timing")
                timer.processes.wait_until_ready("timing")
            checker.processes.wait_until_ready("verification")

    def _may_wait(self, slot: Slot) -> bool:
        """Whether a process may be started for a candidate before it is its turn to be timed: memory is bounded."""
        if slot.waits is None and self.pool.waiting.acquire(blocking=False):
            slot.waits = self.pool.waiting
        return slot.waits is not None

    def _first(self, count: int) -> list[Slot]:
        while len(self._slots) < count:
            number = len(self._slots)
            self._slots.append(Slot(self.copy.add_worktree(number) if number else self.copy))
        return self._slots[:count]

    def _ahead(self) -> BuildQueue:
        if self._builds is None:
            self._builds = BuildQueue(beside=self.pool.builds)
        return self._builds

    def _finish(self) -> None:
        """Wait for what was begun, and end it; workers that were warmed for what comes next stay."""
        if not self._under_way:
            return
        wait([one.checked for one in self._under_way if one.checked is not None and not one.checked.cancel()])
        # Processes with a GPU take their time to end.
        with ThreadPoolExecutor(max(1, len(self._under_way))) as ending:
            list(ending.map(Slot.close, self._under_way))
        self._under_way = []
        self._end_builds()

    def _end_builds(self) -> None:
        builds, self._builds = self._builds, None
        if builds is not None:
            with suppress(OSError):
                builds.close()
