"""Timing on a GPU: CUDA events around graphs of many launches, or the host's clock around loops between two fences."""

from __future__ import annotations

import functools
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from pytest_cgins.core.measurement import ArmName, Method
from pytest_cgins.timing.cpu_timer import HostTimer
from pytest_cgins.timing.timer import TWINS, Arms, Order, Timer, calls_for, mark, segments_for

TARGET_S = 300e-6
"""Length of a batch: single launches are too short for events to time."""
MOST_LAUNCHES = 4096
"""Most calls in one graph: more do not make a batch steadier, only its capture longer."""
WARM_UP_S = 0.05
"""At most so long is waited for the clocks to rise."""

_FLOOR_LAUNCHES = 256
_FLOOR_ROUNDS = 20
_PILOT_LAUNCHES = 16
_PILOT_ROUNDS = 3
_PILOT_S = 100e-6
_BUSY_CYCLES = 1_000_000
_WARM_UP_CALLS = 3
_HOST_ROUND_S = 5e-3
_STEADY = 0.01
_wait = torch.cuda.synchronize  # taken before any kernel is loaded


def make_timer(
    arms: Arms,
    *,
    copies: int,
    limit_s: float,
    longer: float = 1.0,
    fenced: bool = False,
    require_replays: Callable[[], object] = lambda: None,
) -> tuple[Timer, tuple[str, ...]]:
    """Graphs if every arm can be captured whole, else loops between fences for all arms, and a note that says why.

    `require_replays` raises CaptureError where a graph is known not to do what calls do. A loop's time holds whatever
    its calls launch, on any stream and from any thread, and what launching costs besides. `fenced` asks for loops, by
    whom their times are compared with others' loops.
    """
    for arm in arms.values():
        _warm_up(arm)
    loops = functools.partial(HostTimer, arms, copies=copies, limit_s=limit_s, longer=longer, fence=_wait)
    if fenced:
        return loops(), ()
    try:
        require_replays()
        return GraphTimer(arms, copies=copies, limit_s=limit_s, longer=longer), ()
    except CaptureError as error:
        note = (
            f"{error}: all arms were timed as loops of calls between two waits for the whole GPU, and their times "
            "hold what launching costs the host"
        )
    return loops(), (note,)


class CaptureError(Exception):
    """An arm did something that a CUDA graph cannot hold."""

    replayed: Sequence[torch.Tensor] | None = None
    """What a replay gave, if the graph is refused since that is not what a call gives."""


class EmptyGraphError(CaptureError):
    """A graph of an arm's calls holds nothing."""


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
                capture(name, arm, calls, copies, first=calls * segment) for segment in range(segments)
            ]
        kernel = "kernel" if "kernel" in arms else next(iter(arms))
        self.batches_per_turn = len(self._graphs[kernel])
        self.distinct_calls = min(copies, self.calls[kernel] * self.batches_per_turn)
        self.batch_seconds = {name: self.calls[name] * seconds[name] for name in arms}
        self.means: list[float] = []
        self._at: dict[ArmName, int] = dict.fromkeys(arms, 0)
        self.left_by: list[ArmName | None] = [None] * copies
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

    def repeat(self, arm: ArmName, calls: int) -> None:
        """See `Timer.repeat`."""
        for _ in range(-(-calls // self.calls[arm])):
            self._next(arm).replay()
        torch.cuda.synchronize()

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
        mark(self.left_by, arm, at * self.calls[arm], self.calls[arm])
        return graphs[at]

    def _times(self, order: Order, events: Sequence[torch.cuda.Event]) -> list[float]:
        events[-1].synchronize()
        self.means = [
            max(float(start.elapsed_time(end)) * 1e6, 1.0) / self.calls[arm]
            for arm, start, end in zip(order, events, events[1:], strict=False)
        ]
        return self.means

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
        graph = capture(name, arm, launches, copies)
        graph.replay()
        rounds = [
            _time(graph.replay, before=lambda: _occupy(lambda _: graph.replay()))
            for _ in range(_PILOT_ROUNDS)
        ]
        return sorted(rounds)[_PILOT_ROUNDS // 2] / launches


@functools.cache
def launch_seconds() -> float:
    """What the launch of a kernel that does nothing takes in a graph of many, on the current device.

    The least of some rounds: others may use the GPU, and its clocks may have to rise.
    """
    graph = capture("kernel", lambda _: torch.cuda._sleep(0), _FLOOR_LAUNCHES, 1)  # type: ignore[no-untyped-call]
    rounds = [_time(graph.replay, before=lambda: _occupy(lambda _: None)) for _ in range(_FLOOR_ROUNDS)]
    return min(rounds) / _FLOOR_LAUNCHES


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


def capture(
    name: ArmName, arm: Callable[[int], object], calls: int, copies: int, *, first: int = 0
) -> torch.cuda.CUDAGraph:
    """A graph of so many calls, which take the copies in turn.

    Raises:
        CaptureError: there can be none, or nothing is in it: the arm launches nothing, or on another stream.
        RuntimeError: the device is lost.
    """
    graph = torch.cuda.CUDAGraph()
    raised: Exception | None = None
    current = torch.cuda.current_stream()
    try:
        with warnings.catch_warnings(record=True) as warned, torch.cuda.graph(graph):
            warnings.simplefilter("always")
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
    finally:
        torch.cuda.set_stream(current)  # torch leaves the capture's stream current where the capture fails
    if any("Graph is empty" in str(one.message) for one in warned):
        raise EmptyGraphError(
            f"the graph of the {name} arm is empty: its calls launch nothing, or on another stream"
        )
    return graph
