"""The builds of a run: in the background, side by side, each once.

What is in the cache is looked up first. Of the rest, the kernel that is needed first goes first, then those
whose last build took longest, so that none of them is alone at the end. Whoever asks for a kernel that has not
begun has it begun at once, beyond the number of jobs: waiting for a slot would leave the asker idle.

Nothing is compiled while something is timed (`quiet`), for times beside a compiler would lie. Compilers are
suspended for it, which costs about ten milliseconds a timing. Waiting for the last of them instead would add all
builds to the run: the first case is timed right after it is verified, and builds and verification would hardly
overlap. Niceness would leave two compilers in the caches and on the cores that a kernel's threads use.
Verification runs beside compilers: it is slower then, and as right. Other processes' compilers, those of other
workers of xdist among them, are not suspended.

A kernel that another process builds is left alone until it is asked for. So the workers of pytest-xdist, who do
not know which items they will get, may all build all kernels, and build each once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building import build as builds
from pytest_cgins.building.cache.store import Cache, default_cache
from pytest_cgins.building.compilers import running as compilers
from pytest_cgins.building.compilers import slots
from pytest_cgins.building.progress import Progress
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import InfrastructureError, LockedError
from pytest_cgins.core.waiting import Wait

JOB_NBYTES = 3 << 29
"""Memory that is counted for one compiler."""
UNKNOWN_SECONDS = {"torch-extension": 30.0, "device": 0.1}
"""Expected build time by contract where there is none in the cache; others as of their device."""
POLL_S = 0.1
END_WAIT_S = 10.0

Outcome = CompiledKernel | Exception


@dataclass(slots=True, eq=False)
class _Task:
    source: KernelSource
    index: int
    state: str = "new"
    """`new`, `queued` (not in the cache), `elsewhere` (another process builds it), `running` or `done`."""
    awaited: bool = False
    """Whether somebody is idle until it is done."""
    known: bool = False
    """Whether it is known if the cache has it."""
    expected_s: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    """When its compiler did; 0 where the cache had it, or another process was faster."""
    outcome: Outcome | None = None

    @property
    def compile_s(self) -> float:
        """Wall time of its build, apart from waiting for its turn."""
        if isinstance(self.outcome, CompiledKernel):
            return self.outcome.build_seconds
        return self.ended - self.began


class BuildQueue:
    """Builds kernels before they are asked for.

    Args:
        jobs: builds at the same time; 0 is one a core, bounded by memory.
        cache: folder of built kernels, by default that of `beside`, else the user's.
        timeout_s: limit of one build.
        beside: builds with which these are quiet, and with which they end: others are counted apart. Their compilers
            are these builds' too.
        fence: put around compilers; see `compilers.Fence`. Not given with `beside`, which has its own.
        build: builds instead, in another environment; by default that of `beside`.
    """

    def __init__(
        self,
        *,
        jobs: int = 0,
        cache: Path | None = None,
        timeout_s: float = builds.DEFAULT_TIMEOUT_S,
        beside: BuildQueue | None = None,
        fence: compilers.Fence | None = None,
        build: Callable[[KernelSource], CompiledKernel] | None = None,
    ) -> None:
        self.jobs = jobs or default_jobs()
        self._cache: Cache = Cache(cache or (beside._cache.folder if beside is not None else default_cache()))
        self._timeout_s = timeout_s
        self._build_instead: Callable[[KernelSource], CompiledKernel] | None = build or (
            beside._build_instead if beside is not None else None
        )
        self._compilers: compilers.Compilers = (
            beside._compilers if beside is not None else compilers.Compilers(fence)
        )
        self._beside = beside is not None
        self._changed = threading.Condition()
        self._tasks: dict[KernelSource, _Task] = {}
        self._threads: set[threading.Thread] = set()
        self._helpers: set[threading.Thread] = set()
        self._closed = False

    @property
    def fence(self) -> compilers.Fence | None:
        """What is put around compilers."""
        return self._compilers.fence

    def add(self, sources: Iterable[KernelSource]) -> None:
        """Begin to build, and wait for nothing.

        Args:
            sources: in the order in which they will be needed; those that are known already are left out.
        """
        with self._changed:
            for source in sources:
                self._task(source)
            self._employ()

    def result(
        self, source: KernelSource, *, on_wait: Callable[[Progress | None], object] | None = None
    ) -> CompiledKernel:
        """The built kernel, before all others if it has not begun.

        Args:
            source: need not have been added.
            on_wait: called several times a second while it is not there yet, and with None when it is; returns
                whether people see what it was told.

        Raises:
            CginsError: as `build.build`.
            OSError: the cache cannot be used.
        """
        with self._changed:
            task = self._task(source)
            task.awaited = True
            if task.state in ("new", "queued", "elsewhere"):
                self._start_thread(task)
        try:
            with ExitStack() as waiting, Wait(f"the build of {source.name}") as wait:
                if task.outcome is None:
                    waiting.enter_context(self._compilers.resumed())
                return self._ended(task, on_wait, wait)
        finally:
            if on_wait is not None:
                on_wait(None)

    def _ended(
        self, task: _Task, on_wait: Callable[[Progress | None], object] | None, wait: Wait
    ) -> CompiledKernel:
        while True:
            with self._changed:
                if task.outcome is None and not self._closed:
                    self._changed.wait(POLL_S)
                outcome = task.outcome
            if isinstance(outcome, Exception):
                raise outcome.with_traceback(None)
            if outcome is not None:
                return outcome
            if self._closed:
                what = f"{task.source.name} was not built before the run ended"
                raise InfrastructureError(what, remedy="run again")
            wait.tick(shown=bool(on_wait is not None and on_wait(self.progress())))

    def looked_up(self, limit_s: float) -> Progress:
        """How far the builds are once it is known what the cache has, or after `limit_s`."""
        end = time.monotonic() + limit_s
        with self._changed:
            while any(not task.known for task in self._tasks.values()) and time.monotonic() < end:
                self._changed.wait(max(0.0, end - time.monotonic()))
            return self.progress()

    def is_cached(self, source: KernelSource) -> bool:
        """Whether it is known by now that the cache has a kernel."""
        task = self._tasks.get(source)
        return task is not None and isinstance(task.outcome, CompiledKernel) and task.outcome.cached

    def quiet(self) -> AbstractContextManager[None]:
        """Around what is timed: no compiler of this run runs meanwhile."""
        return self._compilers.suspended()

    def employ(self, work: Callable[[], None]) -> None:
        """Have a thread do something beside the builds, with their compilers: it rests and ends with them."""

        def run() -> None:
            compilers.use(self._compilers)
            work()
            with self._changed:
                self._helpers.discard(threading.current_thread())

        with self._changed:
            thread = threading.Thread(target=run, name="cgins-build-helper", daemon=True)
            self._helpers.add(thread)
            thread.start()

    def again(self, source: KernelSource) -> None:
        """Forget how a build ended: the next `result` looks into the cache anew, which trusts no altered file."""
        with self._changed:
            self._tasks.pop(source, None)

    def forget(self, device: str) -> None:
        """Do not begin what was added for a device, since it turned out not to be there."""
        with self._changed:
            for task in list(self._tasks.values()):
                if task.source.device == device and task.state in ("new", "queued", "elsewhere"):
                    del self._tasks[task.source]

    def close(self) -> None:
        """End what is under way, at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = [*self._threads, *self._helpers]
        if self._beside:  # a compiler that is under way goes on, and ends with those that it is beside
            return
        self._compilers.close()
        end = time.monotonic() + END_WAIT_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _task(self, source: KernelSource) -> _Task:
        """The task of a source, made if there is none. The lock is held, here and in what follows."""
        if source not in self._tasks:
            self._tasks[source] = _Task(source, len(self._tasks))
        return self._tasks[source]

    def _employ(self) -> None:
        """Start threads as long as there is work for them, up to `jobs`."""
        work = sum(task.state in ("new", "queued") for task in self._tasks.values())
        for _ in range(min(work, self.jobs - len(self._threads))):
            self._start_thread(None)

    def _start_thread(self, task: _Task | None) -> None:
        thread = threading.Thread(target=self._work, args=(task,), name="cgins-build", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self, own: _Task | None) -> None:
        """A thread: its own task, if it was started for one, and then the next as long as there are any."""
        compilers.use(self._compilers)
        while True:
            with self._changed:
                if own is not None and own.state in ("running", "done"):  # another thread was faster
                    own = None
                task = own or self._next()
                if task is None:
                    self._threads.discard(threading.current_thread())
                    return
                step = self._look_up if task.state == "new" else self._build
                task.state = "running"
            outcome = step(task)
            with self._changed:
                task.known = True
                if isinstance(outcome, str):
                    task.state = outcome
                else:
                    task.state, task.outcome = "done", outcome
                self._changed.notify_all()

    def _next(self) -> _Task | None:
        """The best task that nobody has taken; None if there is none for this thread."""
        if self._closed or len(self._threads) > self.jobs:
            return None
        ready = [
            task
            for task in self._tasks.values()
            if task.state in ("new", "queued") or (task.state == "elsewhere" and task.awaited)
        ]
        return min(ready, key=_rank, default=None)

    def _look_up(self, task: _Task) -> Outcome | str:
        if self._build_instead is not None:
            return "queued"
        try:
            found = builds.cached(task.source, cache=self._cache.folder)
        except Exception as error:  # noqa: BLE001 (whoever asks for the kernel gets it)
            return error
        if found is None:
            contract, device = task.source.contract, task.source.device
            guess = UNKNOWN_SECONDS.get(contract, 3.0 if device_of(device).is_cuda else 1.0)
            task.expected_s = self._cache.last_seconds(task.source.name) or guess
            return "queued"
        return found

    def _build(self, task: _Task) -> Outcome | str:
        task.began = time.monotonic()
        wait_s = self._timeout_s if task.awaited else 0.0
        slots.urgent(task.awaited)
        try:
            if self._build_instead is not None:
                found = self._build_instead(task.source)
            else:
                found = builds.build(
                    task.source, cache=self._cache.folder, timeout_s=self._timeout_s, wait_s=wait_s
                )
        except LockedError as error:
            return error if wait_s else "elsewhere"
        except Exception as error:  # noqa: BLE001 (as above)
            task.ended = time.monotonic()
            return error
        if not found.cached:
            task.ended = time.monotonic()
        return found

    def progress(self) -> Progress:
        """How far the builds are."""
        now = time.monotonic()
        with self._changed:
            done = [task for task in self._tasks.values() if task.state == "done"]
            compiled = [task for task in done if task.ended]
            left = [
                task
                for task in self._tasks.values()
                if task.state != "done" and task.source.contract != "python"
            ]
            running = [
                (one.source.name, now - one.began) for one in left if one.state == "running" and one.began
            ]
            loaded = [
                task.outcome for task in done if not task.ended and isinstance(task.outcome, CompiledKernel)
            ]
            return Progress(
                cached=sum(bool(kernel.library) for kernel in loaded),
                built=sum(isinstance(task.outcome, CompiledKernel) for task in compiled),
                failed=sum(isinstance(task.outcome, Exception) for task in done),
                waiting=len(left) - len(running),
                running=tuple(sorted(running, key=lambda named: -named[1])),
                seconds=max(one.ended for one in compiled) - min(one.began for one in compiled) if compiled else 0.0,
                compile_seconds=sum(task.compile_s for task in compiled),
            )  # fmt: skip


def _rank(task: _Task) -> tuple[bool, bool, bool, float, int]:
    """Least is done first: what is waited for, lookups, what is needed first, then the longest."""
    return not task.awaited, task.state != "new", task.index != 0, -task.expected_s, task.index


def default_jobs() -> int:
    """Cores that this process may use, bounded by memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), memory // JOB_NBYTES))
