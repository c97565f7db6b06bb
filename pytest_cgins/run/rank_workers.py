"""Workers that answer together, a rank each: asked at once, ended together, and blamed by the number of their rank."""

from __future__ import annotations

import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal, TypeVar, get_args

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ServiceError, WorkerError, WorkerTimeout
from pytest_cgins.core.text import numbered
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.early_verdict import EndedError, forged, lost_by
from pytest_cgins.run.exits import last_stack
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.verify.messages import EmptyMessage, JoinRanks, read
from pytest_cgins.verify.timing_messages import TimedBlocks

T = TypeVar("T")
GRACE_S = 1.0
"""In which the others answer, too, once a rank has failed: after that they wait for it."""
JOIN_S = 60.0
HELD_S = 0.3
_PAUSE_S = (0.001, 0.006)
"""A rank is held for so long at some point of its call, whatever it does there."""
_LOST_PEER = re.compile(
    r"(?i)connection (?:closed|reset|refused)|broken pipe|peer|nccl|gloo|timed? ?out waiting"
)


def rank_devices(device: str, count: int) -> list[str]:
    """The device of each rank: one of its own, of those that have numbers."""
    kind = device_of(device.partition(":")[0])
    return [f"{kind.name}:{rank}" if kind.is_accelerator else kind.name for rank in range(count)]


FailureKind = Literal["died", "raised", "hung", "lost", "waited"]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank failed."""

    rank: int
    kind: FailureKind
    """`lost`: it raised since it had lost another; `waited`: it was ended since another had failed. The first of these that
    there is says why."""
    end: EndedError


class RankPool:
    """Workers of a pool that answer together, one a rank: a role stands for all its ranks. A failure of one ends all of them."""

    def __init__(self, pool: WorkerPool, devices: Sequence[str], limit_s: float) -> None:
        self.inputs: Sequence[Sequence[Buffer]] = ()
        """What `call` sends each rank in the place of a request's buffers."""
        self.finished: list[Reply[Any]] = []
        """What each rank answered to the last `finish`."""
        self.devices = devices
        self._pool, self._limit_s = pool, limit_s
        self._folders: dict[str, tempfile.TemporaryDirectory[str]] = {}

    def ask(
        self,
        role: str,
        method: str,
        requests: Sequence[object],
        answer: type[T],
        buffers: Sequence[Sequence[Buffer]] = (),
        *,
        timeout_s: float = 0.0,
        kernel: str = "",
        failed: Callable[[Reply[T]], EndedError | None] = lambda _: None,
    ) -> list[Reply[T]]:
        """One request to each rank at once; without `timeout_s` its limit is that of all requests.

        `failed` gives the verdict on an answer that tells of a failure, after which others may wait for its rank.

        Raises:
            EndedError: a rank failed.
        """
        if role not in self._folders:
            self._join(role, kernel)
        names, limit_s = self._names(role), timeout_s or self._limit_s

        def one(rank: int) -> Reply[T] | Failure:
            params, sent = documents.dump_python(requests[rank]), buffers[rank] if buffers else ()
            try:
                reply = self._pool.call(
                    names[rank], method, params, sent, timeout_s=limit_s, kernel=kernel, extends=False
                )
            except WorkerError as error:
                return Failure(rank, _kind_of(error), lost_by(error))
            try:
                told = replace(reply, result=read(answer, reply.result))
                end = failed(told)
            except ValueError as error:
                end = forged(names[rank], str(error), reply.output)
            if end is None:
                return told
            reply.close()
            return Failure(rank, "lost" if _LOST_PEER.search(str(end)) else "raised", end)

        with ThreadPoolExecutor(len(names)) as threads:
            futures = [threads.submit(one, rank) for rank in range(len(names))]
            waited = self._awaited(names, futures)
        found = [future.result() for future in futures]
        replies = [reply for reply in found if isinstance(reply, Reply)]
        if len(replies) == len(found):
            return replies
        for reply in replies:
            reply.close()
        self.discard(role)
        failures = [failure for failure in found if isinstance(failure, Failure)]
        raise blamed(
            [replace(one, kind="waited") if one.rank in waited else one for one in failures],
            len(names),
            limit_s,
        )

    def call(
        self,
        role: str,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        kernel: str = "",
    ) -> Reply[Any]:
        """What `WorkerPool.call` does, of all ranks; times are those of the slowest.

        Raises:
            EndedError: a rank failed.
        """
        own = [{**params, "device": device} if "device" in params else params for device in self.devices]
        answer: Any = TimedBlocks if method == "blocks" else dict
        sent = self.inputs if buffers else ()
        replies = self.ask(role, method, own, answer, sent, timeout_s=timeout_s, kernel=kernel)
        if method == "finish":
            self.forget()
            self.finished = replies
            return replace(replies[0], buffers=())
        if method != "blocks":
            return replies[0]
        try:
            told = slowest([reply.result for reply in replies])
        except ValueError as error:
            self.discard(role)
            raise forged(role, str(error), replies[0].output) from error
        return replace(replies[0], result=documents.dump_python(told))

    def discard(self, role: str) -> None:
        """End all ranks of a role, with their descendants."""
        for name in self._names(role):
            self._pool.discard(name)
        if (folder := self._folders.pop(role, None)) is not None:
            folder.cleanup()

    @contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        """Keep all ranks of a role from running meanwhile."""
        with ExitStack() as stack:
            for name in self._names(role):
                stack.enter_context(self._pool.stopped(name))
            yield

    def close(self) -> None:
        """End all ranks of all roles."""
        for role in list(self._folders):
            self.discard(role)
        self.forget()

    def forget(self) -> None:
        """Close what `finished` has."""
        for reply in self.finished:
            reply.close()
        self.finished = []

    @contextmanager
    def held_now_and_then(self, role: str) -> Iterator[None]:
        """Meanwhile, for a while, keep one rank or another from running for milliseconds: it is late where no call begins."""
        over, lot = threading.Event(), secrets.SystemRandom()

        def hold() -> None:
            until = time.monotonic() + HELD_S
            while not over.wait(lot.uniform(*_PAUSE_S)) and time.monotonic() < until:
                with self._pool.stopped(lot.choice(self._names(role))):
                    time.sleep(lot.uniform(*_PAUSE_S))

        thread = threading.Thread(target=hold, name="cgins-late", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _names(self, role: str) -> list[str]:
        """Roles of the ranks: what a role ends with says whether its process may be forked."""
        name, slash, variant = role.partition("/")
        return [f"{name}/rank{rank}{slash}{variant}" for rank in range(len(self.devices))]

    def _join(self, role: str, kernel: str) -> None:
        self._pool.warm(self._names(role))
        # It stays: torch looks into it whenever a group is made. It tells where ranks are, and nothing that they send.
        folder = tempfile.TemporaryDirectory(prefix="cgins-ranks-", ignore_cleanup_errors=True)
        self._folders[role] = folder
        count = len(self.devices)
        requests = [
            JoinRanks(rank=rank, count=count, device=device, folder=folder.name, limit_s=self._limit_s)
            for rank, device in enumerate(self.devices)
        ]
        self.ask(role, "join", requests, EmptyMessage, timeout_s=JOIN_S, kernel=kernel)

    def _awaited(self, names: Sequence[str], futures: Sequence[Future[Reply[T] | Failure]]) -> set[int]:
        """Wait for all answers, or for a failure and a little longer; the ranks that had not answered then, which are killed."""
        pending = set(futures)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            if any(future.exception() or isinstance(future.result(), Failure) for future in done):
                break
        _, pending = wait(pending, timeout=GRACE_S)
        waited = {rank for rank, future in enumerate(futures) if future in pending}
        for rank in waited:
            self._pool.kill(names[rank])
        wait(pending)
        return waited


def slowest(of_ranks: Sequence[TimedBlocks]) -> TimedBlocks:
    """Blocks whose batches take as long as on the slowest rank. Each rank tells so itself, unless its kernel has it lie.

    Raises:
        ValueError: they are not the same blocks.
    """
    blocks = []
    for of_block in zip(*(one.blocks for one in of_ranks), strict=True):
        times = zip(*(one.ns_per_call for one in of_block), strict=True)
        means = zip(*(one.mean_ns_per_call for one in of_block), strict=True)
        blocks.append(
            replace(of_block[0], ns_per_call=tuple(map(max, times)), mean_ns_per_call=tuple(map(max, means)))
        )
    return TimedBlocks(tuple(blocks))


def _kind_of(error: WorkerError) -> FailureKind:
    if isinstance(error, WorkerTimeout):
        return "hung"
    if isinstance(error, ServiceError):
        return "lost" if _LOST_PEER.search(error.text) else "raised"
    # NCCL ends a process whose peer is gone.
    is_lost = error.fault == Reason.ABORTED.value and _LOST_PEER.search(error.output)
    return "lost" if is_lost else "died"


def blamed(failures: Sequence[Failure], count: int, limit_s: float) -> EndedError:
    """The verdict for what became of ranks: of one that died comes before that of those that lost it or wait for it."""
    first = min(failures, key=lambda one: get_args(FailureKind).index(one.kind))
    if first.kind == "hung":
        return _hang(failures, count, limit_s)
    verdict = first.end.verdict
    waiting = [f"rank {one.rank} waited for it, and was ended" for one in failures if one.kind == "waited"]
    message = "\n".join([f"rank {first.rank} of {count}: {verdict.message}", *waiting])
    return EndedError(verdict.status, verdict.reason, message, first.end.output)


def _hang(failures: Sequence[Failure], count: int, limit_s: float) -> EndedError:
    """Which rank did not come back, and which waited for it, by where each of them was."""
    places = {one.rank: where_it_was(one.end.output) for one in failures}
    waiting = [one.rank for one in failures if one.kind != "hung" or places[one.rank][1]]
    hung = [rank for rank in places if rank not in waiting] or waiting
    told = [f"rank {rank} {places[rank][0]}" for rank in places]
    return EndedError(
        Status.TIMEOUT,
        Reason.RANK_HANG,
        f"{numbered('rank', hung)} of {count} did not come back within {limit_s:g} s: {'; '.join(told)}\n→ have all ranks make the same collectives in "
        "the same order, and let none leave early or wait for what is not sent; --cgins-timeout raises the limit",
        "\n".join(f"rank {one.rank}:\n{one.end.output}" for one in failures if one.end.output),
    )


def where_it_was(output: str) -> tuple[str, bool]:
    """Where a rank was, by the stack that it printed at its limit, and whether it waited there for others.

    On a GPU a collective returns at once, and the wait for the device is ours.
    """
    frames = last_stack(output)
    inner = list(takewhile(lambda frame: "/pytest_cgins/" not in frame[0], frames))
    collective = next((name for file, _, name in inner if "/torch/distributed/" in file), "")
    own = next((frame for frame in inner if "/torch/" not in frame[0]), None)
    place = f"{own[0].rpartition('/')[2]}:{own[1]} ({own[2]})" if own else ""
    if collective:
        return f"waited in torch.distributed.{collective}, {place}", True
    if own:
        return f"was at {place}", False
    return ("waited for its device", True) if frames else ("did not say where it was", False)
