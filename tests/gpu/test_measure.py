"""Timing on a GPU: graphs, rotation, and the loops between fences that stand in for graphs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from statistics import median

import pytest
import torch

from pytest_cgins.core.measurement import ArmName, Measurement
from pytest_cgins.timing import environment
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared
from pytest_cgins.timing.cpu_timer import HostTimer
from pytest_cgins.timing.cuda_timer import (
    TARGET_S,
    CaptureError,
    GraphTimer,
    host_seconds_per_call,
    launch_seconds,
    make_timer,
)
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.rotation import Rotation, plan
from pytest_cgins.timing.sequential import Rule
from pytest_cgins.timing.timer import Arms, Order, Timer

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
ONE_COPY = Rotation(copies=1, bytes_per_call=0, cache_bytes=0)
PLENTY = 8 * 2**30
RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=10, most_blocks=64)
LETTERS: dict[str, ArmName] = {"K": "kernel", "B": "base", "T": "torch"}
Arm = Callable[[int], object]


def fenced(arms: Arms, *, copies: int, limit_s: float) -> HostTimer:
    """The timer of arms that no graph holds."""
    return HostTimer(arms, copies=copies, limit_s=limit_s, fence=torch.cuda.synchronize)


def adding(times: int, elements: int = 2**20) -> Arm:
    """An arm that adds 1 to a vector so many times; each addition is one launch."""
    vector = torch.zeros(elements, device=DEVICE)

    def arm(_: int) -> None:
        for _ in range(times):
            vector.add_(1)

    return arm


def rotating(copies: int, elements: int) -> Arm:
    """An arm that adds 1 to one of so many vectors."""
    vectors = [torch.zeros(elements, device=DEVICE) for _ in range(copies)]
    return lambda index: vectors[index].add_(1)


def measure(arms: Arms, rotation: Rotation = ONE_COPY) -> Measurement:
    """All blocks that a measurement of these arms takes."""
    timer, notes = make_timer(arms, copies=rotation.copies, limit_s=0.05)
    prepared = Prepared(
        arms=tuple(arms),
        method=timer.method,
        calls=timer.calls,
        batch_seconds=timer.batch_seconds,
        host_ns_per_call={},
        cold=rotation.is_cold(timer.distinct_calls),
        notes=notes,
    )
    sampler = BlockSampler(prepared, seed=1, base=RULE if "base" in arms else None)
    sampler.run(
        lambda orders: [
            Block(order=order, ns_per_call=tuple(times))
            for order, times in zip(orders, timer.blocks(map(names, orders)), strict=True)
        ]
    )
    return sampler.measurement()


def names(order: str) -> Order:
    return [LETTERS[letter] for letter in order]


def one_arm(timer: Timer, arm: ArmName = "kernel", blocks: int = 9) -> float:
    """Median of its batches, in nanoseconds a call."""
    return median(one for times in timer.blocks([(arm, arm)] * blocks) for one in times)


@pytest.mark.parametrize(("kernel", "reference", "ratio"), [(1, 4, 4.0), (4, 1, 0.25), (2, 2, 1.0)])
def test_a_known_ratio_is_found(kernel: int, reference: int, ratio: float) -> None:
    """Launch counts of a known ratio give a speed-up of about that, in graphs and without a fallback."""
    found = measure({"kernel": adding(kernel), "torch": adding(reference)})
    assert found.method == "cuda-graph"
    assert found.cache == "warm"
    assert ratio / 1.25 < found.speedup_vs_torch < ratio * 1.25


@pytest.mark.parametrize(("kernel", "outcome"), [(4, "clean"), (5, "slower"), (3, "faster")])
def test_a_kernel_is_held_against_its_base(kernel: int, outcome: str) -> None:
    """Beside torch, which takes far longer: it is timed in few blocks, and disturbs none."""
    found = measure({"kernel": adding(kernel), "base": adding(4), "torch": adding(20)})
    (comparison,) = found.comparisons
    assert comparison.outcome == outcome
    assert found.base is not None
    assert found.kernel.calls_per_batch == found.base.calls_per_batch
    assert found.torch.calls_per_batch < found.kernel.calls_per_batch


@pytest.mark.parametrize("timer_of", [GraphTimer, fenced])
def test_times_belong_to_arms(timer_of: Callable[..., GraphTimer | HostTimer]) -> None:
    """An arm that takes four times as long takes that at every place of every order."""
    adds = {"K": 1, "B": 4, "T": 2}
    arms: Arms = {LETTERS[letter]: adding(times, 2**22) for letter, times in adds.items()}
    for arm in arms.values():
        arm(0)
    timer = timer_of(arms, copies=1, limit_s=0.05)
    orders = ["".join(half) + "".join(reversed(half)) for half in itertools.permutations("KBT")]
    by_place: dict[tuple[str, int], list[float]] = {}
    for order, times in zip(orders * 5, timer.blocks(map(names, orders * 5)), strict=True):
        assert len(times) == 6
        for place, (letter, one) in enumerate(zip(order, times, strict=True)):
            by_place.setdefault((letter, place), []).append(one)
    unit = median(by_place["K", 0])
    assert len(by_place) == 18
    for (letter, place), taken in by_place.items():
        ratio = median(taken) / unit
        assert adds[letter] / 1.3 < ratio < adds[letter] * 1.3, (letter, place)


def test_blocks_are_queued_one_ahead() -> None:
    """While one block's times are read the next one runs: the GPU does not wait for the host."""
    timer = GraphTimer({"kernel": adding(1), "torch": adding(1)}, copies=1, limit_s=0.05)
    taken = 0

    def orders() -> Iterator[Order]:
        nonlocal taken
        for _ in range(4):
            taken += 1
            yield names("KTTK")

    blocks = timer.blocks(orders())
    assert taken == 0
    next(blocks)
    assert taken == 2
    assert not torch.cuda.current_stream().query()
    assert len(list(blocks)) == 3
    assert taken == 4
    assert torch.cuda.current_stream().query()


def test_a_host_that_dawdles_is_not_timed() -> None:
    """Blocks behind a GPU that has run dry begin with something untimed: their launch is outside."""
    timer = GraphTimer({"kernel": adding(1, 1024), "torch": adding(1, 1024)}, copies=1, limit_s=0.05)
    first, others = [], []
    for times in timer.blocks(names(order) for order in ["KTTK"] * 30):
        time.sleep(0.005)
        first.append(times[0])
        others.append(times[3])
    # The GPU may clock down while it waits, which some blocks feel; a launch would be in all.
    assert min(first) < 1.1 * median(others)


def test_something_is_done_before_each_block_s_launch() -> None:
    """Once a block in graphs, where no code of a kernel runs in a batch; in loops once a batch."""
    arms: Arms = {"kernel": adding(1), "torch": adding(1)}
    called: list[str] = []
    makers: tuple[tuple[Callable[..., GraphTimer | HostTimer], int], ...] = ((GraphTimer, 3), (fenced, 12))
    for timer, times in makers:
        called.clear()
        made = timer(arms, copies=1, limit_s=0.05)
        assert len(list(made.blocks([names("KTTK")] * 3, lambda: called.append("")))) == 3
        assert len(called) == times


def test_the_host_s_launch_is_not_timed() -> None:
    """A tiny addition takes about a microsecond in a graph; launched one by one the host needs several."""
    found = measure({"kernel": adding(1, 1024), "torch": adding(1, 1024)})
    assert found.method == "cuda-graph"
    assert found.kernel.calls_per_batch >= 50
    assert found.kernel.median_ns_per_call < 3000


def test_launching_is_timed_apart() -> None:
    """What the host takes for a call grows with its launches, and is more than a tiny kernel takes."""
    one, ten = adding(1, 1024), adding(10, 1024)
    assert 1e-6 < host_seconds_per_call(one, 1) < 1e-3
    assert host_seconds_per_call(ten, 1) > 3 * host_seconds_per_call(one, 1)


def test_launching_a_slow_call_is_timed_by_few() -> None:
    """Of a call that waits for the GPU, or takes long there, nobody needs fifty."""
    calls = 0

    def slow(_: int) -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.02)

    assert 0.02 <= host_seconds_per_call(slow, 1) < 0.1
    assert calls == 3


def test_rotation_leaves_the_cache_behind() -> None:
    """The same addition is slower on copies that outrun L2 twice over than on one that stays in it."""
    elements = 2**22
    cache = timed_device(DEVICE).last_level_cache_nbytes()
    rotation = plan(4 * elements, cache, memory_bytes=PLENTY)
    assert cache > 2**20
    assert rotation.copies > 2
    timed = {}
    for name, chosen in {"cold": rotation, "warm": ONE_COPY}.items():
        arms: Arms = {"kernel": rotating(chosen.copies, elements), "torch": rotating(chosen.copies, elements)}
        timed[name] = measure(arms, chosen)
    assert timed["cold"].cache == "cold"
    assert timed["warm"].cache == "warm"
    assert timed["cold"].kernel.median_ns_per_call > timed["warm"].kernel.median_ns_per_call


@pytest.mark.parametrize("twins", [("kernel",), ("kernel", "base")])
def test_every_copy_is_captured_equally_often(twins: tuple[ArmName, ...]) -> None:
    """A graph holds whole turns of the copies, and a kernel's and its base's hold as many."""
    used: dict[ArmName, list[int]] = {name: [] for name in twins}
    vectors = [torch.zeros(2**16, device=DEVICE) for _ in range(7)]

    def recording(name: ArmName) -> Arm:
        def arm(index: int) -> None:
            used[name].append(index)
            vectors[index].add_(1)

        return arm

    timer = GraphTimer({name: recording(name) for name in twins}, copies=7, limit_s=0.1)
    assert timer.distinct_calls == 7
    assert len(set(timer.calls.values())) == 1
    for name in twins:
        calls = timer.calls[name]
        last_graph = used[name][-calls:]
        assert {last_graph.count(index) for index in range(7)} == {calls // 7}


def test_batches_too_short_for_all_copies_go_on_where_the_last_one_ended() -> None:
    """A slow kernel's segments hold each copy once; it and its base take them in one turn, whoever comes next."""
    used: list[tuple[ArmName, int]] = []
    vectors = [torch.zeros(2**24, device=DEVICE) for _ in range(30)]

    def recording(name: ArmName) -> Arm:
        def arm(index: int) -> None:
            used.append((name, index))
            vectors[index].add_(1)

        return arm

    timer = GraphTimer({name: recording(name) for name in ("kernel", "base")}, copies=30, limit_s=0.1)
    assert timer.batches_per_turn > 1
    assert timer.distinct_calls == 30
    for name in ("kernel", "base"):
        captured = [index for own, index in used if own == name][
            -timer.calls["kernel"] * timer.batches_per_turn :
        ]
        assert set(captured) == set(range(30))
    torch.cuda.synchronize()
    before = [float(vector[0]) for vector in vectors]
    turns = [("kernel", "base")] * timer.batches_per_turn
    for _ in timer.blocks(turns):
        pass
    assert "base" in timer.left_by
    risen = [float(vector[0]) - one for vector, one in zip(vectors, before, strict=True)]
    assert min(risen) >= 2
    assert sum(risen) <= (len(turns) + 1) * 2 * timer.calls["kernel"]


@pytest.mark.parametrize("longer", [1.0, 4.0])
def test_longer_batches(longer: float) -> None:
    """As many calls as last that much longer than usual, by what one call was found to take."""
    timer = GraphTimer({"kernel": adding(1, 2**22)}, copies=1, limit_s=0.2, longer=longer)
    a_call = timer.batch_seconds["kernel"] / timer.calls["kernel"]
    assert timer.calls["kernel"] == pytest.approx(longer * TARGET_S / a_call, abs=1)


def test_streams_that_are_joined_are_timed() -> None:
    """What an arm forks to another stream and waits for is within its time."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    work = adding(8)

    def forks(_: int) -> None:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work(0)
        torch.cuda.current_stream().wait_stream(stream)

    timer, notes = make_timer({"kernel": forks, "torch": adding(1)}, copies=1, limit_s=0.1)
    assert notes == ()
    assert one_arm(timer) > 4 * one_arm(timer, "torch")


def test_an_arm_that_launches_nothing_is_no_graph() -> None:
    """An empty graph would be infinitely fast: it is not taken for a measurement."""
    with pytest.raises(CaptureError, match="empty"):
        GraphTimer({"kernel": lambda _: None}, copies=1, limit_s=0.1)


ELSEWHERE = {
    "default": torch.cuda.default_stream,
    "own": lambda: torch.cuda.Stream(priority=-1),  # of another pool than the one of captures
    "per-thread": lambda: torch.cuda.ExternalStream(2),
}
"""Streams that no graph of the current one holds."""


@pytest.mark.parametrize("stream", ELSEWHERE)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_work_on_another_stream_is_timed_whole(stream: str, share: float) -> None:
    """All of it there, or half: a graph of the rest is no measurement, and a loop's time is that of both."""
    other = ELSEWHERE[stream]()
    vector = torch.zeros(2**26, device=DEVICE)
    at = int(share * vector.numel())

    def leaves(_: int) -> None:
        with torch.cuda.stream(other):
            vector[:at].add_(1)
        if share < 1:
            vector[at:].add_(1)

    def stays(_: int) -> None:
        vector.add_(1)

    def is_no_graph() -> None:
        if share < 1:
            raise CaptureError("a replay does not do what calls do")

    arms: Arms = {"kernel": leaves, "torch": stays}
    timer, (note,) = make_timer(arms, copies=1, limit_s=0.2, require_replays=is_no_graph)
    assert timer.method == "fenced-loop"
    assert "two waits for the whole GPU" in note
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert one_arm(timer) == pytest.approx(one_arm(timer, "torch"), rel=0.1)


def test_a_failed_capture_leaves_the_stream_as_it_was() -> None:
    """torch leaves the capture's own current: events on it would wait for nothing that is launched elsewhere."""
    vector = torch.zeros(8, device=DEVICE)
    for arm in (lambda _: None, lambda _: vector.sum().item()):
        with pytest.raises(CaptureError):
            GraphTimer({"kernel": arm}, copies=1, limit_s=0.1)
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_launch_takes_about_a_microsecond() -> None:
    """The least that a call can take, and no more than a tiny addition does."""
    timer = GraphTimer({"kernel": adding(1, 1)}, copies=1, limit_s=0.1)
    assert 0.2e-6 < launch_seconds() < 1.05e-9 * one_arm(timer)


def test_memory_that_an_arm_allocates_is_its_own() -> None:
    """An arm that allocates its outputs can be captured, and keeps what it has returned."""
    vector = torch.arange(2**16, device=DEVICE, dtype=torch.float32)
    kept: list[torch.Tensor] = []

    def allocates(_: int) -> None:
        kept[:] = [vector + 1]

    timer, notes = make_timer({"kernel": allocates}, copies=1, limit_s=0.1)
    assert timer.method == "cuda-graph"
    assert notes == ()
    assert one_arm(timer) > 0
    assert torch.equal(kept[0], vector + 1)


def test_the_gpu_is_described() -> None:
    """Name, driver and CUDA version are there, and the key does not depend on the index."""
    described = environment.describe(DEVICE)
    assert described.device == "cuda"
    assert described.device_name == torch.cuda.get_device_name(0)
    assert described.cuda == torch.version.cuda
    assert described.driver.split(".")[0].isdigit()
    assert timed_device(DEVICE).lock_key().startswith("gpu-")
