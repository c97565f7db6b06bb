"""Workers that answer together, a rank each: asked at once, ended together, and blamed by the number of their rank."""

from __future__ import annotations

import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ServiceError, WorkerError, WorkerTimeout
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.early_verdict import EndedError, forged, lost_by
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.verify.messages import EmptyMessage, JoinRanks, read

T = TypeVar("T")
GRACE_S = 1.0
"""In which the others answer, too, once a rank has failed: after that they wait for it."""
JOIN_S = 60.0
_PAUSE_S = (0.001, 0.006)
"""A rank is held for so long at some point of its call, whatever it does there."""
_LOST_PEER = re.compile(
    r"(?i)connection (?:closed|reset|refused)|broken pipe|peer|nccl|gloo|timed? ?out waiting"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


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


class RankWorkers:
    """The ranks of one role. A failure of one ends all of them.

    Args:
        pool: has their workers.
        role: `ranks`, `timed-ranks` or `reference`, with a variant behind a slash; a rank's own has its number behind.
        devices: one a rank.
        limit_s: of a request.
    """

    def __init__(self, pool: WorkerPool, role: str, devices: Sequence[str], limit_s: float) -> None:
        self.pool = pool
        self.devices = devices
        self._limit_s = limit_s
        name, _, variant = role.partition("/")
        # A process that times may only be forked by what its role ends with.
        self.roles = [f"{name}/rank{rank}{'/' if variant else ''}{variant}" for rank in range(len(devices))]
        self._joined = False

    def join(self, kernel: str = "") -> None:
        """Have all of them started, and know each other.

        Raises:
            EndedError: they cannot.
        """
        if self._joined:
            return
        for role in self.roles:
            self.pool.warm([role])
        # It stays: torch looks into it whenever a group is made. It tells where ranks are, and nothing that they send.
        self._folder = tempfile.TemporaryDirectory(prefix="cgins-ranks-", ignore_cleanup_errors=True)
        requests = [
            JoinRanks(
                rank=rank,
                count=len(self.devices),
                device=device,
                folder=self._folder.name,
                limit_s=self._limit_s,
            )
            for rank, device in enumerate(self.devices)
        ]
        self._joined = True
        self.ask("join", requests, partial(read, EmptyMessage), timeout_s=JOIN_S, kernel=kernel)

    def ask(
        self,
        method: str,
        requests: Sequence[object],
        read_answer: Callable[[Any], T],
        buffers: Sequence[Sequence[Buffer]] = (),
        *,
        timeout_s: float,
        kernel: str = "",
        failed: Callable[[Reply[T]], EndedError | None] = lambda _: None,
    ) -> list[Reply[T]]:
        """One request to each rank at once.

        Args:
            method: of the service.
            requests: one a rank.
            read_answer: from the answer's JSON; a ValueError says that our own service would never give it.
            buffers: of each rank's request.
            timeout_s: limit for all answers.
            kernel: see `WorkerPool.call`.
            failed: the verdict on an answer that tells of a failure, after which others may wait for the rank.

        Raises:
            EndedError: a rank failed; all are ended.
        """

        def call(rank: int) -> Reply[T]:
            params = documents.dump_python(requests[rank])
            sent = buffers[rank] if buffers else ()
            reply = self.pool.call(self.roles[rank], method, params, sent, timeout_s=timeout_s, kernel=kernel)
            try:
                return replace(reply, result=read_answer(reply.result))
            except ValueError as error:
                reply.close()
                raise forged(self.roles[rank], str(error), reply.output) from error

        with ThreadPoolExecutor(len(self.roles)) as threads:
            futures = [threads.submit(call, rank) for rank in range(len(self.roles))]
            waited = self._awaited(futures, failed)
        failures = [
            found for rank, future in enumerate(futures) if (found := _failure(rank, future, waited, failed))
        ]
        if not failures:
            return [future.result() for future in futures]
        for future in futures:
            if future.exception() is None:
                future.result().close()
        self.end()
        raise blamed(failures, len(self.roles), timeout_s)

    def _awaited(
        self, futures: Sequence[Future[Reply[T]]], failed: Callable[[Reply[T]], EndedError | None]
    ) -> set[int]:
        """Wait for all answers, or for a failure and a little longer; the ranks that had not answered then."""
        pending = set(futures)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            if any(future.exception() is not None or failed(future.result()) for future in done):
                break
        _, pending = wait(pending, timeout=GRACE_S)
        waited = {rank for rank, future in enumerate(futures) if future in pending}
        for rank in waited:
            self.pool.kill(self.roles[rank])
        wait(pending)
        return waited

    @contextmanager
    def held_now_and_then(self, seconds: float) -> Iterator[None]:
        """Meanwhile, for so long, keep one rank or another from running for milliseconds: it is late where no call begins."""
        over = threading.Event()
        lot = secrets.SystemRandom()

        def hold() -> None:
            until = time.monotonic() + seconds
            while not over.wait(lot.uniform(*_PAUSE_S)) and time.monotonic() < until:
                with self.pool.stopped(lot.choice(self.roles)):
                    time.sleep(lot.uniform(*_PAUSE_S))

        thread = threading.Thread(target=hold, name="cgins-late", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep all of them from running meanwhile."""
        with ExitStack() as stack:
            for role in self.roles:
                stack.enter_context(self.pool.stopped(role))
            yield

    def end(self) -> None:
        """End all processes, with their descendants."""
        for role in self.roles:
            self.pool.discard(role)
        if self._joined:
            self._joined = False
            self._folder.cleanup()


def _failure(
    rank: int, future: Future[Reply[T]], waited: set[int], failed: Callable[[Reply[T]], EndedError | None]
) -> Failure | None:
    error = future.exception()
    if error is None:
        end = failed(future.result())
        kind: FailureKind = "lost" if end is not None and _LOST_PEER.search(str(end)) else "raised"
        return None if end is None else Failure(rank, kind, end)
    if isinstance(error, EndedError):
        return Failure(rank, "died", error)
    if not isinstance(error, WorkerError):
        raise error
    kind = "died"
    if rank in waited:
        kind = "waited"
    elif isinstance(error, WorkerTimeout):
        kind = "hung"
    elif isinstance(error, ServiceError):
        kind = "lost" if _LOST_PEER.search(error.text) else "raised"
    return Failure(rank, kind, lost_by(error))


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
    waiting = [rank for rank, (_, in_collective) in places.items() if in_collective]
    hung = [rank for rank in places if rank not in waiting] or waiting
    told = [f"rank {rank} {places[rank][0]}" for rank in places]
    names = ", ".join(map(str, hung))
    what = f"rank {names}" if len(hung) == 1 else f"ranks {names}"
    return EndedError(
        Status.TIMEOUT,
        Reason.RANK_HANG,
        f"{what} of {count} did not come back within {limit_s:g} s: {'; '.join(told)}\n→ have all ranks make the same collectives in "
        "the same order, and let none leave early or wait for what is not sent; --cgins-timeout raises the limit",
        "\n".join(f"rank {one.rank}:\n{one.end.output}" for one in failures if one.end.output),
    )


def where_it_was(output: str) -> tuple[str, bool]:
    """Where a rank was, as it printed it shortly before its limit: the kernel's line, and whether it was in a collective."""
    threads = [
        part for part in re.split(r"(?m)^(?=(?:Current t|T)hread 0x)", output) if "rank_service.py" in part
    ]
    frames = _FRAME.findall(threads[-1]) if threads else []
    inner: list[tuple[str, str, str]] = []
    for frame in frames:  # the innermost comes first
        if "/pytest_cgins/" in frame[0]:
            break
        inner.append(frame)
    collective = next((name for file, _, name in inner if "/torch/distributed/" in file), "")
    own = next((frame for frame in inner if "/torch/" not in frame[0]), None)
    place = f"{own[0].rpartition('/')[2]}:{own[1]} ({own[2]})" if own else "for its device" if frames else ""
    if collective:
        return f"waited in torch.distributed.{collective}, {place}", True
    return f"was at {place}" if own else f"was waiting {place}".strip(), False
