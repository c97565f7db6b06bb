"""Timing on a GPU: CUDA events around graphs of many launches, or around loops where that cannot be."""

from __future__ import annotations

import itertools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from pytest_cgins.measurement import ArmName, Method
from pytest_cgins.timing.rotation import REUSE_FACTOR, last_level_cache_bytes
from pytest_cgins.timing.timer import TWINS, Arms, Order, Timer, calls_for, segments_for

TARGET_S = 300e-6
"""Length of a batch: single launches are too short for events to time."""
MOST_LAUNCHES = 4096
"""In one graph: more do not make a batch steadier, only its capture longer."""
MOST_QUEUED_LAUNCHES = 256
"""In one loop: past about a thousand launches in the queue the host waits for the GPU."""
WARM_UP_S = 0.05
"""At most so long is waited for the clocks to rise."""

_PILOT_LAUNCHES = 16
_PILOT_ROUNDS = 3
_PILOT_S = 100e-6
_BUSY_CYCLES = 1_000_000
_WARM_UP_CALLS = 3
_HOST_ROUND_S = 5e-3
_STEADY = 0.01


def make_timer(
    arms: Arms, *, copies: int, limit_s: float, longer: float = 1.0
) -> tuple[Timer, tuple[str, ...]]:
    """The graph timer if every arm can be captured, else loops for all arms, and a note that says why."""
    for arm in arms.values():
        _warm_up(arm)
    try:
        return GraphTimer(arms, copies=copies, limit_s=limit_s, longer=longer), ()
    except CaptureError as error:
        note = (
            f"{error}: all arms were timed as loops of launches behind a filled queue, "
            "and calls that wait for the GPU show the host's time"
        )
    return LoopTimer(arms, copies=copies, limit_s=limit_s, longer=longer), (note,)


class CaptureError(Exception):
    """An arm did something that a CUDA graph cannot hold."""


class GraphTimer:
    """Events between replays of CUDA graphs, each of many launches that take the copies in turn.

    Where a batch is too short for all copies, each has the next segment of them: none is found in the cache, and a
    call of 30 µs on 233 copies need not be timed for 7 ms.

    The next block is queued before the last one is waited for, and something untimed goes before the first, so that
    the GPU never waits for the host inside of what is timed.
    """

    method: Method = "cuda-graph"

    def __init__(self, arms: Arms, *, copies: int, limit_s: float, longer: float = 1.0) -> None:
        """Capture pilots, choose the batches, capture them, and wait for steady clocks.

        Raises:
            CaptureError: if an arm cannot be captured.
        """
        seconds = {name: self._seconds_per_call(name, arm, copies) for name, arm in arms.items()}
        wanted = calls_for(TARGET_S * longer, seconds, limit_s)
        twins = [seconds[name] for name in TWINS if name in seconds]
        slowest = {name: max(twins) if name in TWINS else seconds[name] for name in arms}
        self.calls: dict[ArmName, int] = {}
        self._graphs: dict[ArmName, list[torch.cuda.CUDAGraph]] = {}
        for name, arm in arms.items():
            most = min(MOST_LAUNCHES, max(1, int(limit_s / len(arms) / slowest[name])))
            calls, segments = segments_for(min(wanted[name], MOST_LAUNCHES), copies, most)
            self.calls[name] = calls
            self._graphs[name] = [
                _capture(name, arm, calls, copies, first=calls * segment) for segment in range(segments)
            ]
        kernel = "kernel" if "kernel" in arms else next(iter(arms))
        self.batches_per_turn = len(self._graphs[kernel])
        self.distinct_calls = min(copies, self.calls[kernel] * self.batches_per_turn)
        self.batch_seconds = {name: self.calls[name] * seconds[name] for name in arms}
        self._at: dict[ArmName, int] = dict.fromkeys(arms, 0)
        for graphs in self._graphs.values():
            for graph in graphs:
                graph.replay()
        self._warm_up(kernel)

    def blocks(
        self, orders: Iterable[Order], before: Callable[[], object] = lambda: None
    ) -> Iterator[list[float]]:
        """See `Timer.blocks`."""
        queued: deque[tuple[Order, list[torch.cuda.Event]]] = deque()
        for order in orders:
            before()
            if not queued or _is_done(queued[-1][1][-1]):  # the GPU has nothing to do
                self._next(order[-1]).replay()
            queued.append((order, self._queue(order)))
            if len(queued) > 1:
                yield self._times(*queued.popleft())
        while queued:
            yield self._times(*queued.popleft())

    def _queue(self, order: Order) -> list[torch.cuda.Event]:
        events = [_event() for _ in range(len(order) + 1)]
        events[0].record()
        for arm, event in zip(order, events[1:], strict=True):
            self._next(arm).replay()
            event.record()
        return events

    def _next(self, arm: ArmName) -> torch.cuda.CUDAGraph:
        """The graph on the segment that was used longest ago, by whichever of the arms on the same tensors."""
        tensors = TWINS[0] if arm in TWINS and TWINS[0] in self._at else arm
        graphs = self._graphs[arm]
        at = self._at[tensors]
        self._at[tensors] = (at + 1) % len(graphs)
        return graphs[at]

    def _times(self, order: Order, events: Sequence[torch.cuda.Event]) -> list[float]:
        events[-1].synchronize()
        return [
            max(float(start.elapsed_time(end)) * 1e6, 1.0) / self.calls[arm]
            for arm, start, end in zip(order, events, events[1:], strict=False)
        ]

    def _warm_up(self, arm: ArmName) -> None:
        """Replay until two batches take as long as those before them: an idle GPU has low clocks."""
        end = time.perf_counter() + WARM_UP_S
        before, steady = 0.0, 0
        while steady < 2 and time.perf_counter() < end:
            (_, now), *_ = self.blocks([(arm, arm)])
            steady = steady + 1 if abs(now - before) <= _STEADY * now else 0
            before = now

    @staticmethod
    def _seconds_per_call(name: ArmName, arm: Callable[[int], object], copies: int) -> float:
        single = _time(lambda: arm(0), before=lambda: _occupy(arm))
        launches = max(1, min(_PILOT_LAUNCHES, int(_PILOT_S / single)))
        graph = _capture(name, arm, launches, copies)
        graph.replay()
        rounds = [
            _time(graph.replay, before=lambda: _occupy(lambda _: graph.replay()))
            for _ in range(_PILOT_ROUNDS)
        ]
        return sorted(rounds)[_PILOT_ROUNDS // 2] / launches


class LoopTimer:
    """Events around a loop of launches, queued behind writes that keep the GPU busy meanwhile.

    The current stream is the default one, which waits for all streams that were not made non-blocking: what a kernel
    forks to them is done before the last event. What it forks elsewhere and joins nowhere is found by `late_work`.
    """

    method: Method = "cuda-event"

    def __init__(self, arms: Arms, *, copies: int, limit_s: float, longer: float = 1.0) -> None:
        """Choose the batches, and how much work must precede them."""
        self._arms = arms
        self._turns = {name: itertools.cycle(range(copies)) for name in arms}
        self.distinct_calls = copies
        self.batches_per_turn = 1
        cache = last_level_cache_bytes(f"cuda:{torch.cuda.current_device()}")
        self._scratch = torch.empty(max(REUSE_FACTOR * cache, 2**26), dtype=torch.uint8, device="cuda")
        self._write_seconds = max(_time(self._scratch.zero_, before=self._scratch.zero_), 1e-6)

        host = {name: host_seconds_per_call(arm, copies) for name, arm in arms.items()}
        self._writes = {name: self._writes_for(host[name], _PILOT_LAUNCHES) for name in arms}
        seconds = {name: self._run(name, _PILOT_LAUNCHES) / _PILOT_LAUNCHES for name in arms}
        wanted = calls_for(TARGET_S * longer, seconds, limit_s)
        self.calls = {name: min(calls, MOST_QUEUED_LAUNCHES) for name, calls in wanted.items()}
        self._writes = {name: self._writes_for(host[name], self.calls[name]) for name in arms}
        self.batch_seconds = {
            name: self.calls[name] * max(seconds[name], host[name]) + self._writes[name] * self._write_seconds
            for name in arms
        }

    def blocks(
        self, orders: Iterable[Order], before: Callable[[], object] = lambda: None
    ) -> Iterator[list[float]]:
        """See `Timer.blocks`."""
        for order in orders:
            times = []
            for arm in order:
                before()
                times.append(self._run(arm, self.calls[arm]) * 1e9 / self.calls[arm])
            yield times

    def _run(self, arm: ArmName, calls: int) -> float:
        call, turn = self._arms[arm], self._turns[arm]

        def fill_queue() -> None:
            for _ in range(self._writes[arm]):
                self._scratch.zero_()

        def loop() -> None:
            for _ in range(calls):
                call(next(turn))

        return _time(loop, before=fill_queue)

    def _writes_for(self, host_seconds_per_call: float, calls: int) -> int:
        """Writes that outlast the launching of a batch by half."""
        wanted = 1.5 * host_seconds_per_call * calls / self._write_seconds
        return max(1, min(int(wanted) + 1, MOST_QUEUED_LAUNCHES))


def host_seconds_per_call(arm: Callable[[int], object], copies: int) -> float:
    """What the host takes to launch one call, outside of a graph."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    arm(0)
    torch.cuda.synchronize()
    launches = max(1, min(_PILOT_LAUNCHES, int(_HOST_ROUND_S / (time.perf_counter() - start))))
    rounds = []
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for index in range(launches):
            arm(index % copies)
        rounds.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return min(rounds) / launches


def _time(action: Callable[[], object], *, before: Callable[[], object]) -> float:
    """Seconds on the GPU between two events around `action`, which is queued behind `before`."""
    start, end = _event(), _event()
    before()
    start.record()
    action()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) * 1e-3, 1e-9)


def _occupy(arm: Callable[[int], object]) -> None:
    """Keep the GPU busy until a host that is late has queued what is to be timed: a gap would count as the kernel's."""
    torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]
    arm(0)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _is_done(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]


def _warm_up(arm: Callable[[int], object]) -> None:
    """Let lazy loading, autotuning and library handles happen before anything is captured."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            arm(0)
    torch.cuda.synchronize()


def _capture(
    name: ArmName, arm: Callable[[int], object], calls: int, copies: int, *, first: int = 0
) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    raised: Exception | None = None
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph):
            # An arm that launches elsewhere than on the current stream, or nothing at all.
            warnings.filterwarnings("error", message="The CUDA Graph is empty")
            try:
                for index in range(first, first + calls):
                    arm(index % copies)
            except Exception as error:
                raised = error  # leaving the capture raises another one, which says less
                raise
    except Exception as error:  # noqa: BLE001 - raised again, as what it means here
        cause = raised or error
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            raise cause from None  # the device is lost: no other way of timing will do
        text = str(cause).strip().split("\n", maxsplit=1)[0][:200]
        raise CaptureError(
            f"the {name} arm cannot be captured in a CUDA graph ({type(cause).__name__}: {text})"
        ) from cause
    return graph
