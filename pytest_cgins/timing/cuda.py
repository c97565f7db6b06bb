"""Timing on a GPU: CUDA events around graphs of many launches, or around loops where that cannot be."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Final, Literal

import torch

from pytest_cgins.timing.rotation import REUSE_FACTOR, last_level_cache_bytes
from pytest_cgins.timing.timer import ArmName, Arms, Timer, calls_for

TARGET_S = 300e-6
"""Length of the fastest arm's batch: single launches are too short for events to time."""
MOST_LAUNCHES = 4096
"""In one graph: more do not make a batch steadier, only its capture longer."""
MOST_QUEUED_LAUNCHES = 256
"""In one loop: past about a thousand launches in the queue the host waits for the GPU."""

_PILOT_LAUNCHES = 16
_PILOT_ROUNDS = 5
_WARM_UP_CALLS = 3


def make_timer(arms: Arms, *, copies: int, limit_s: float) -> tuple[Timer, tuple[str, ...]]:
    """The graph timer if every arm can be captured, else loops for all arms, and a note that says why."""
    for arm in arms.values():
        _warm_up(arm)
    try:
        return GraphTimer(arms, copies=copies, limit_s=limit_s), ()
    except CaptureError as error:
        note = (
            f"{error}: all arms were timed as loops of launches behind a filled queue, "
            "and calls that wait for the GPU show the host's time"
        )
    return LoopTimer(arms, copies=copies, limit_s=limit_s), (note,)


class CaptureError(Exception):
    """An arm did something that a CUDA graph cannot hold."""


class GraphTimer:
    """Events around the replay of a CUDA graph of `calls_per_batch` launches that take the copies in turn.

    An untimed replay goes before each timed one, so that the timed graph waits in the queue already and
    the host's launch latency stays outside the events.
    """

    method: Final[Literal["cuda-graph"]] = "cuda-graph"

    def __init__(self, arms: Arms, *, copies: int, limit_s: float) -> None:
        """Capture pilots, choose the batch, capture it.

        Raises:
            CaptureError: if an arm cannot be captured.
        """
        seconds = {name: self._seconds_per_call(name, arm, copies) for name, arm in arms.items()}
        calls = min(calls_for(TARGET_S, seconds, limit_s), MOST_LAUNCHES)
        # Whole turns, so that no copy is used more often than another; arms too slow for a whole turn
        # within the limit keep their length, and `distinct_calls` tells.
        whole_turns = -(-calls // copies) * copies
        if whole_turns * sum(seconds.values()) <= limit_s:
            calls = whole_turns
        self.calls_per_batch = calls
        self.distinct_calls = min(calls, copies)
        self.batch_seconds = 2 * calls * sum(seconds.values()) / len(seconds)
        self._graphs = {name: _capture(name, arm, calls, copies) for name, arm in arms.items()}
        for graph in self._graphs.values():
            graph.replay()
        torch.cuda.synchronize()

    def batch(self, arm: ArmName) -> float:
        """Replay one graph; gives nanoseconds a call."""
        replay = self._graphs[arm].replay
        return _time(replay, before=replay) * 1e9 / self.calls_per_batch

    @staticmethod
    def _seconds_per_call(name: ArmName, arm: Callable[[int], object], copies: int) -> float:
        graph = _capture(name, arm, _PILOT_LAUNCHES, copies)
        graph.replay()
        rounds = [_time(graph.replay, before=graph.replay) for _ in range(_PILOT_ROUNDS)]
        return sorted(rounds)[_PILOT_ROUNDS // 2] / _PILOT_LAUNCHES


class LoopTimer:
    """Events around a loop of launches, queued behind writes that keep the GPU busy meanwhile."""

    method: Final[Literal["cuda-event"]] = "cuda-event"

    def __init__(self, arms: Arms, *, copies: int, limit_s: float) -> None:
        """Choose the batch, and how much work must precede it."""
        self._arms = arms
        self._turns = {name: itertools.cycle(range(copies)) for name in arms}
        self.distinct_calls = copies
        cache = last_level_cache_bytes(f"cuda:{torch.cuda.current_device()}")
        self._scratch = torch.empty(max(REUSE_FACTOR * cache, 2**26), dtype=torch.uint8, device="cuda")
        self._write_seconds = max(_time(self._scratch.zero_, before=self._scratch.zero_), 1e-6)

        self._writes = dict.fromkeys(arms, 1)
        host = {name: self._host_seconds(name) for name in arms}
        self._writes = {name: self._writes_for(host[name], _PILOT_LAUNCHES) for name in arms}
        seconds = {name: self._run(name, _PILOT_LAUNCHES) / _PILOT_LAUNCHES for name in arms}
        self.calls_per_batch = min(calls_for(TARGET_S, seconds, limit_s), MOST_QUEUED_LAUNCHES)
        self._writes = {name: self._writes_for(host[name], self.calls_per_batch) for name in arms}
        self.batch_seconds = sum(
            self.calls_per_batch * max(seconds[name], host[name]) + self._writes[name] * self._write_seconds
            for name in arms
        ) / len(arms)

    def batch(self, arm: ArmName) -> float:
        """Run one loop; gives nanoseconds a call."""
        return self._run(arm, self.calls_per_batch) * 1e9 / self.calls_per_batch

    def _run(self, arm: ArmName, calls: int) -> float:
        call, turn = self._arms[arm], self._turns[arm]

        def fill_queue() -> None:
            for _ in range(self._writes[arm]):
                self._scratch.zero_()

        def loop() -> None:
            for _ in range(calls):
                call(next(turn))

        return _time(loop, before=fill_queue)

    def _host_seconds(self, arm: ArmName) -> float:
        """What the host takes to launch one call."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_PILOT_LAUNCHES):
            self._arms[arm](next(self._turns[arm]))
        elapsed = time.perf_counter() - start
        torch.cuda.synchronize()
        return elapsed / _PILOT_LAUNCHES

    def _writes_for(self, host_seconds_per_call: float, calls: int) -> int:
        """Writes that outlast the launching of a batch by half."""
        wanted = 1.5 * host_seconds_per_call * calls / self._write_seconds
        return max(1, min(int(wanted) + 1, MOST_QUEUED_LAUNCHES))


def _time(action: Callable[[], object], *, before: Callable[[], object]) -> float:
    """Seconds on the GPU between two events around `action`, which is queued behind `before`."""
    start, end = _event(), _event()
    before()
    start.record()
    action()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) * 1e-3, 1e-9)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _warm_up(arm: Callable[[int], object]) -> None:
    """Let lazy loading, autotuning and library handles happen before anything is captured."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            arm(0)
    torch.cuda.synchronize()


def _capture(name: ArmName, arm: Callable[[int], object], calls: int, copies: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    first: Exception | None = None
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph):
            # An arm that launches elsewhere than on the current stream, or nothing at all.
            warnings.filterwarnings("error", message="The CUDA Graph is empty")
            try:
                for index in range(calls):
                    arm(index % copies)
            except Exception as error:
                first = error  # leaving the capture raises another one, which says less
                raise
    except Exception as error:  # noqa: BLE001 - raised again, as what it means here
        cause = first or error
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise cause from None  # the device is lost: no other way of timing will do
        text = str(cause).strip().split("\n", maxsplit=1)[0][:200]
        raise CaptureError(
            f"the {name} arm cannot be captured in a CUDA graph ({type(cause).__name__}: {text})"
        ) from cause
    return graph
