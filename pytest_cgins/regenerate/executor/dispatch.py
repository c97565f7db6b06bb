"""Requests in a queue, and slots that take one at a time: back-pressure, retries of what was lost, and an end."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.candidate_gate import CandidateGate
from pytest_cgins.regenerate.executor.archive import TargetOnNode

logger = logging.getLogger(__name__)

MOST_LOSSES = 3
"""A request that was lost with so many nodes is tried no more: its candidate may be what ends them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """One evaluation. It says all that it depends on, so that a second node gives an answer to the same question."""

    id: str
    """Of the run's requests; an answer is taken once."""
    spec: TargetOnNode
    """What it is about."""
    evaluate: Callable[[CandidateGate], T]
    """What is asked of a gate there: a function that has a name, and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What came of a request."""

    id: str
    """Of the request."""
    node: str
    """Who answers."""
    value: T = None  # type: ignore[assignment]
    """What was asked for; None if that is not known."""
    touched: tuple[str, ...] = ()
    """Files of the copy that changed, and are not the candidate's own."""
    reports: dict[str, bytes] = field(default_factory=dict)
    """Reports of ncu by name, for the driver's journal."""
    error: str = ""
    """Why there is no answer, where the same request would fail on each node; "" if there is one."""
    remedy: str = ""
    """What to do about that."""
    lost: str = ""
    """Why another node must be asked: what this one lacks, or it or its GPU is gone; "" if none need be."""
    losses: tuple[str, ...] = ()
    """Nodes with which it was lost before, and why."""


class Slot(Protocol):
    """A node, or a GPU of one, that does one evaluation at a time."""

    @property
    def is_lost(self) -> bool:
        """Whether it is of no more use."""

    def answer(self, work: Work[Any]) -> Answer[Any]:
        """Do it; a slot that is lost with it says so."""

    def stop(self) -> None:
        """End what it is doing, in another thread."""

    def close(self) -> None:
        """Give its node back; of one that is lost have nobody be given what it has."""


@dataclass(slots=True)
class _Entry:
    work: Work[Any]
    future: Future[Answer[Any]] = field(default_factory=Future)
    losses: tuple[str, ...] = ()

    def begin(self) -> bool:
        """Whether somebody still waits for it."""
        return bool(self.losses) or self.future.set_running_or_notify_cancel()


class Dispatcher:
    """Hands requests to slots, in their order.

    Nothing is sent ahead: a slot takes its next request once it has answered, so there are never more under way than there are
    slots. One that is lost with its node goes to the head of the queue.

    Args:
        open_slot: gives a slot once there is one; it is told how to ask whether it is still wanted, and gives None then.
        most: slots.
    """

    def __init__(self, open_slot: Callable[[Callable[[], bool]], Slot | None], most: int) -> None:
        self._open_slot = open_slot
        self._most = most
        self._queue: deque[_Entry] = deque()
        self._threads: list[threading.Thread] = []
        self._slots: list[Slot] = []
        self._under_way = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def submit(self, work: Work[T]) -> Future[Answer[T]]:
        """Have a request answered when it is its turn."""
        entry = _Entry(work)
        with self._changed:
            self._queue.append(entry)
            self.warm(self._under_way + len(self._queue))
            self._changed.notify_all()
        return entry.future

    def warm(self, count: int) -> None:
        """Open so many slots, and wait for nothing."""
        with self._changed:
            while len(self._threads) < min(count, self._most):
                thread = threading.Thread(target=self._serve, name="cgins-slot", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """End all that is under way, at once."""
        with self._changed:
            self._is_closed = True
            slots, threads = [*self._slots], [*self._threads]
            for entry in self._queue:
                entry.future.cancel()
            self._changed.notify_all()
        for slot in slots:
            slot.stop()
        for thread in threads:
            thread.join()
        self._fail(RegenerateError("the run has ended", remedy="go on with cgins runs resume"))

    def _serve(self) -> None:
        """In a thread: one slot after another, each until it is lost."""
        error = None
        try:
            while not self._is_closed and (slot := self._open_slot(lambda: not self._is_closed)) is not None:
                self._slots.append(slot)
                try:
                    while (entry := self._next(slot)) is not None:
                        self._answer(entry, slot)
                finally:
                    self._slots.remove(slot)
                    slot.close()
        except Exception as raised:  # noqa: BLE001 - nobody else would tell those who wait
            error = raised
        with self._changed:
            self._threads.remove(threading.current_thread())
            if error is not None and not self._slots:  # of no other slot is an answer to be had
                self._fail(error)

    def _next(self, slot: Slot) -> _Entry | None:
        with self._changed:
            while not (self._is_closed or slot.is_lost):
                while self._queue:
                    entry = self._queue.popleft()
                    if entry.begin():
                        self._under_way += 1
                        return entry
                self._changed.wait()
        return None

    def _answer(self, entry: _Entry, slot: Slot) -> None:
        try:
            answer = slot.answer(entry.work)
            if not answer.lost:
                entry.future.set_result(replace(answer, losses=entry.losses))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the answer gets it
            entry.future.set_exception(error)
        else:
            if answer.lost:
                self._lose(entry, f"{answer.node}: {answer.lost}")
        with self._changed:
            self._under_way -= 1

    def _lose(self, entry: _Entry, lost: str) -> None:
        entry.losses += (lost,)
        if len(entry.losses) < MOST_LOSSES:
            logger.warning("%s is tried again elsewhere: lost with %s", entry.work.id, lost)
            with self._changed:
                self._queue.appendleft(entry)
                self._changed.notify_all()
            return
        entry.future.set_exception(
            RegenerateError(
                f"INFRASTRUCTURE: {entry.work.id} was lost with {counted(MOST_LOSSES, 'node')}: {'; '.join(entry.losses)}",
                remedy="look at these nodes, then go on with cgins runs resume: the answer is kept",
            )
        )

    def _fail(self, error: Exception) -> None:
        with self._changed:
            waiting, self._queue = self._queue, deque()
        for entry in waiting:
            if entry.begin():
                entry.future.set_exception(error)
