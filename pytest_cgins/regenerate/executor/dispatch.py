"""Requests in a queue, and slots that take one at a time: back-pressure, retries of what was lost, and an end."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.executor.archive import Archives
from pytest_cgins.regenerate.executor.messages import EvaluationRequest, EvaluationResult, TargetOnNode
from pytest_cgins.regenerate.executor.node import Reports

logger = logging.getLogger(__name__)

MOST_LOSSES = 3
"""A request that was lost with so many nodes is tried no more: its candidate may be what ends them."""


@dataclass(frozen=True, slots=True)
class Work:
    """A request with what a node needs that has not seen its target."""

    spec: TargetOnNode
    archives: Archives
    request: EvaluationRequest


class SlotLost(Exception):
    """The node of a slot is gone, or cannot be used any more; what it was doing is not known."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"{node}: {why}")


class Slot(Protocol):
    """A node, or a GPU of one, that does one evaluation at a time."""

    @property
    def is_lost(self) -> bool:
        """Whether it is of no more use."""

    def answer(self, work: Work) -> tuple[EvaluationResult, Reports]:
        """Do it.

        Raises:
            SlotLost: it is not known what came of it, and this slot is of no more use.
        """

    def lose(self) -> None:
        """Use it no more, and have nobody be given what it has."""

    def close(self) -> None:
        """End what it is doing, and give its node back."""


@dataclass(slots=True)
class Answer:
    """What came of a request."""

    result: EvaluationResult
    reports: Reports
    losses: tuple[str, ...]
    """Nodes with which it was lost before, and why."""


@dataclass(slots=True)
class _Entry:
    work: Work
    future: Future[Answer]
    losses: list[str] = field(default_factory=list)


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
        self._slots: dict[threading.Thread, Slot] = {}
        self._under_way = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def submit(self, work: Work) -> Future[Answer]:
        """Have a request answered when it is its turn."""
        entry = _Entry(work, Future())
        with self._changed:
            self._queue.append(entry)
            self._start(self._under_way + len(self._queue))
            self._changed.notify_all()
        return entry.future

    def warm(self, count: int) -> None:
        """Open so many slots, and wait for nothing."""
        with self._changed:
            self._start(count)

    def close(self) -> None:
        """End all that is under way, at once."""
        with self._changed:
            self._is_closed = True
            slots, threads = list(self._slots.values()), list(self._threads)
            for entry in self._queue:
                if not entry.future.cancel():  # it was lost before, and is under way for whoever waits
                    entry.future.set_exception(SlotLost(entry.losses[-1], "the run has ended"))
            self._queue.clear()
            self._changed.notify_all()
        for slot in slots:
            slot.close()
        for thread in threads:
            thread.join()

    def _start(self, wanted: int) -> None:
        while len(self._threads) < min(wanted, self._most):
            thread = threading.Thread(target=self._serve, name="cgins-slot", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _is_wanted(self) -> bool:
        return not self._is_closed

    def _serve(self) -> None:
        """In a thread: one slot after another, each until it is lost."""
        me = threading.current_thread()
        try:
            while (slot := self._open_slot(self._is_wanted)) is not None:
                with self._changed:
                    self._slots[me] = slot
                while (entry := self._next(slot)) is not None:
                    self._answer(entry, slot)
                with self._changed:
                    self._slots.pop(me, None)
                    if self._is_closed:
                        return
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            self._fail(error, me)
        finally:
            with self._changed:
                if me in self._threads:
                    self._threads.remove(me)

    def _next(self, slot: Slot) -> _Entry | None:
        with self._changed:
            while not (self._is_closed or slot.is_lost):
                while self._queue:
                    entry = self._queue.popleft()
                    if entry.losses or entry.future.set_running_or_notify_cancel():
                        self._under_way += 1
                        return entry
                self._changed.wait()
        return None

    def _answer(self, entry: _Entry, slot: Slot) -> None:
        lost = None
        try:
            result, reports = slot.answer(entry.work)
            if not result.lost:
                entry.future.set_result(Answer(result, reports, tuple(entry.losses)))
            else:
                lost = SlotLost(result.node, result.lost)
        except SlotLost as error:
            lost = error
        except BaseException as error:  # noqa: BLE001 - whoever waits for the answer gets it
            entry.future.set_exception(error)
        with self._changed:
            self._under_way -= 1
        if lost is not None:
            slot.lose()
            self._lose(entry, lost)

    def _lose(self, entry: _Entry, lost: SlotLost) -> None:
        entry.losses.append(str(lost))
        name = entry.work.request.id
        with self._changed:
            if self._is_closed:
                entry.future.set_exception(lost)
                return
            if len(entry.losses) < MOST_LOSSES:
                logger.warning("%s is tried again elsewhere: lost with %s", name, lost)
                self._queue.appendleft(entry)
                self._changed.notify_all()
                return
        losses = "; ".join(entry.losses)
        entry.future.set_exception(
            RegenerateError(
                f"INFRASTRUCTURE: {name} was lost with {counted(MOST_LOSSES, 'node')}: {losses}",
                remedy="look at these nodes, then go on with cgins runs resume: the answer is kept",
            )
        )

    def _fail(self, error: Exception, me: threading.Thread) -> None:
        """No slot could be opened: all that waits fails, unless another slot is there for it."""
        with self._changed:
            self._threads.remove(me)
            if self._slots:
                return
            waiting, self._queue = self._queue, deque()
        for entry in waiting:
            if entry.losses or entry.future.set_running_or_notify_cancel():
                entry.future.set_exception(error)
