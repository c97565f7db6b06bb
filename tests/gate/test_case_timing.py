"""One kernel timed, with a worker that answers what a test has it answer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from pytest_cgins.config import TimingGate
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.errors import InfrastructureError, ServiceError, WorkerCrashed, WorkerTimeout
from pytest_cgins.core.trace import OpCall
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.case_timing import (
    BATCH_LIMIT_S,
    COMPILE_LIMIT_S,
    LENGTHENED,
    LONGEST,
    CaseTiming,
    Noise,
    TimingTask,
)
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.run.request_clock import RequestTime
from pytest_cgins.timing.block import LETTER_ARMS
from pytest_cgins.verify.messages import PackedInputs
from pytest_cgins.verify.timing_messages import OpenTiming

NS = {"kernel": 1000.0, "base": 1000.0, "torch": 3000.0, "compile": 2000.0}
GATE = TimingGate()
OPENED: dict[str, Any] = {
    "method": "cuda-graph", "calls": {"kernel": 300, "torch": 100}, "batch_seconds": {"kernel": 3e-4, "torch": 3e-4},
    "host_ns_per_call": {}, "launch_ns": 0.0, "cold": True, "notes": [], "refused": {},
}  # fmt: skip


@dataclass
class Worker:
    """One process: how long its arms take, and where it deviates from an honest one."""

    ns: dict[str, float] = field(default_factory=dict)
    """Differing from `NS`."""
    mean_ns: dict[str, float] = field(default_factory=dict)
    """Over all calls of a batch, where that is not the median."""
    true_ns: dict[str, float] = field(default_factory=dict)
    """What the arms take by the parent's clock, where that is not what is told."""
    alone_ns: float = NS["base"]
    """What the base takes in a process of its own."""
    alone_method: str = "cuda-graph"
    """How it is timed there, where nobody asks for fences."""
    state_blocks: int = 0
    """The kernel is slower for so many blocks of the usual length, and then faster for as many; 0: never."""
    raises: dict[str, Exception] = field(default_factory=dict)
    """By method."""
    dies_with_base: Exception | None = None
    """In `blocks`, if the base is there."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Instead of honest ones, by method."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Of the answer to `open`."""

    def took(self, params: dict[str, Any]) -> RequestTime:
        """Of calls in a row."""
        ns = (NS | self.ns | self.true_ns)[params["arm"]]
        return RequestTime(wall_ns=round(ns * params["calls"]), waited_ns=0, own_ns=0, others_ns=0)


class Pool:
    """Workers of one role, one after the other."""

    def __init__(self, *workers: Worker) -> None:
        self.asked: list[tuple[int, str, dict[str, Any], float]] = []
        """Number of the process, method, params, and limit of each request."""
        self.buffers: list[Buffer] = []
        """What was handed out at the ends."""
        self.alone: dict[str, Any] = {}
        """What the process of the base's own was asked to open."""
        self.held = False
        """Whether the lock is held now."""
        self._workers = workers
        self._now = 0
        self._params: dict[str, Any] = {}
        self._draw = random.Random(1)
        self._blocks_run = 0

    def discard(self, role: str) -> None:
        if role == "timing/base-only":
            return
        assert role == "timing"
        self._now = min(self._now + 1, len(self._workers) - 1)
        self._params = {}

    def stopped(self, role: str) -> AbstractContextManager[None]:
        assert role == "timing", "what it has left running would slow the base elsewhere, too"
        return nullcontext()

    def call(
        self, role: str, method: str, params: dict[str, Any], buffers: Sequence[Buffer], *, timeout_s: float,
        kernel: str,
    ) -> Reply:  # fmt: skip
        assert (role.removesuffix("/base-only"), kernel) == ("timing", "k")
        assert self.held is (method != "ready"), "nobody else may time meanwhile; nobody waits for a start"
        if method == "ready":
            assert params == {"device": "cuda:0"}
            return Reply({}, ())
        worker = self._workers[self._now]
        if role == "timing/base-only":
            assert (
                (params["kernel"]["key"], params["base"]) == ("b", None)
                if method == "open"
                else method == "repeat"
            )
            if method == "open":
                self.alone = params
            way = "fenced-loop" if self.alone["fenced"] else worker.alone_method
            answer: Reply[Any] = Reply({"arms": ["kernel", "torch"], **OPENED, "method": way}, ())
            took = RequestTime(
                wall_ns=round(worker.alone_ns * params.get("calls", 0)), waited_ns=0, own_ns=0, others_ns=0
            )
            return answer if method == "open" else Reply({}, (), took=took)
        if method in ("repeat", "look"):
            return Reply({}, (), took=worker.took(params) if params else None)
        self.asked.append((self._now, method, params, timeout_s))
        if method in worker.raises:
            self.discard(role)
            raise worker.raises[method]
        if method == "open":
            assert len(buffers) == len(params["sets"])
            self._params = params
        if method == "blocks" and self._params.get("base") and worker.dies_with_base:
            self.discard(role)
            raise worker.dies_with_base
        made = (Buffer.from_chunks([b"answer"]),) if method == "finish" else ()
        self.buffers += made
        return Reply(worker.answers.get(method, getattr(self, f"_{method}")(worker, params)), made)

    def _arms(self) -> list[str]:
        return ["kernel", "torch", *(arm for arm in ("base", "compile") if self._params.get(arm))]

    def _open(self, worker: Worker, params: dict[str, Any]) -> dict[str, Any]:
        del params
        arms, ns = self._arms(), NS | worker.ns
        batch_s = 3e-4 * self._params["longer"]
        return {
            "arms": arms, "method": "cuda-graph", "calls": {arm: round(batch_s * 1e9 / ns[arm]) for arm in arms},
            "batch_seconds": dict.fromkeys(arms, batch_s), "host_ns_per_call": {}, "launch_ns": 0.0, "cold": True, "notes": [],
            "refused": {}, **worker.changes,
        }  # fmt: skip

    def _blocks(self, worker: Worker, params: dict[str, Any]) -> dict[str, Any]:
        ns = NS | worker.ns
        mean_ns = ns | worker.mean_ns
        state_blocks = worker.state_blocks if self._params["longer"] == 1 else 0

        def factor(letter: str) -> float:
            slow = state_blocks and letter == "K" and self._blocks_run // state_blocks % 2 == 0
            return 1.05 if slow else 1.0

        self._blocks_run += len(params["orders"])
        return {
            "blocks": [
                {
                    "order": order,
                    "ns_per_call": [
                        ns[LETTER_ARMS[one]] * factor(one) * math.exp(self._draw.gauss(0, 0.01))
                        for one in order
                    ],
                    "mean_ns_per_call": [mean_ns[LETTER_ARMS[one]] for one in order],
                    "sm_mhz": 1980,
                    "throttled": [],
                }
                for order in params["orders"]
            ]
        }

    def _finish(self, worker: Worker, params: dict[str, Any]) -> dict[str, Any]:
        del worker, params
        return {"answers": [{"name": "0", "when": "last", "tensors": {}}], "observed": {"process": self._now}}


def a_set(name: str) -> PackedInputs:
    return PackedInputs(name=name, call=OpCall(op="torch.relu", arguments=()), tensors={}, outputs=())


def a_kernel(key: str) -> CompiledKernel:
    source = KernelSource(
        kernel="relu", implementation="cuda", op="torch.relu", device="cuda", contract="launcher", entry="relu", schema="",
        files=(),
    )  # fmt: skip
    return CompiledKernel(source=source, library="", key=key, build_seconds=0.0, cached=True)


def wanted(*, base: bool = True, compiles: bool = False, **changes: Any) -> TimingTask:
    request = OpenTiming(
        device="cuda:0", kernel=a_kernel("k"), base=a_kernel("b") if base else None, compile=compiles
    )
    default = TimingTask(
        role="timing",
        request=request,
        pairs=[(a_set("recorded"), Buffer.from_chunks([b"numbers"]))],
        seed=5,
        gate=GATE,
        tests=200,
        revision="1a2b3c" if base else "",
    )
    return replace(default, **changes)


def timing(
    pool: Pool, noise: Callable[[float], Noise] = lambda _: Noise(), *, only_gains: bool = False
) -> CaseTiming:
    @contextmanager
    def lock() -> Iterator[None]:
        pool.held = True
        try:
            yield
        finally:
            pool.held = False

    runs = KernelRuns(cast("WorkerPool", pool), seed=1, timeout_s=60.0)
    return CaseTiming(runs, noise=noise, lock=lock, only_gains=only_gains)


def are_closed(buffers: Sequence[Buffer]) -> list[bool]:
    def is_closed(buffer: Buffer) -> bool:
        try:
            buffer.fileno()
        except ValueError:
            return True
        return False

    return [is_closed(one) for one in buffers]


CRASH = WorkerCrashed("the timing worker died of SIGSEGV")


# ---- one process


def test_a_clean_case_takes_one_process() -> None:
    """Opened, blocks until it is clear, and its end; its buffers are the caller's."""
    pool = Pool(Worker())
    timed = timing(pool).time(wanted())
    assert [method for _, method, _, _ in pool.asked] == ["open", "blocks", "finish"]
    (comparison,) = timed.measurement.comparisons
    assert (comparison.outcome, len(comparison.log_ratios)) == ("clean", 9)
    assert (comparison.tests, comparison.alpha, comparison.most_blocks) == (200, 0.01, 64)
    assert timed.measurement.confirmation is None
    assert timed.measurement.base_revision == "1a2b3c"
    assert timed.measurement.seconds > 0
    assert [(answer.name, answer.when) for answer in timed.reply.result.answers] == [("recorded", "last")]
    assert timed.refused == {}
    assert are_closed(timed.reply.buffers) == [False]
    assert not pool.held


def test_what_is_asked_for_is_sent() -> None:
    """The request as it came, sets without names, and a limit; compiling has time of its own."""
    pool = Pool(Worker())
    timing(pool).time(wanted(compiles=True))
    (_, _, params, open_limit_s), (_, _, _, blocks_limit_s), *_ = pool.asked
    assert "seed" not in params  # the order of arms is drawn where no kernel runs
    assert params["base"]["key"] == "b"
    assert [one["name"] for one in params["sets"]] == ["0"]
    assert (params["limit_s"], params["longer"]) == (BATCH_LIMIT_S, 1.0)
    assert (open_limit_s, blocks_limit_s) == (60.0 + COMPILE_LIMIT_S, 60.0)


def test_without_a_base_there_is_no_test() -> None:
    """Nor a revision in the record."""
    timed = timing(Pool(Worker())).time(wanted(base=False))
    assert timed.measurement.comparisons == ()
    assert timed.measurement.base is None
    assert timed.measurement.base_revision == ""


def test_a_base_that_the_worker_refused_is_told() -> None:
    """The kernel is timed without it."""
    arms = {"arms": ["kernel", "torch"], "refused": {"base": "it cannot be loaded: ImportError"}}
    timed = timing(Pool(Worker(changes=arms))).time(wanted())
    assert timed.refused == {"base": "it cannot be loaded: ImportError"}
    assert timed.measurement.comparisons == ()
    assert timed.measurement.base_revision == ""


# ---- noise


def test_spread_between_processes_is_let_pass() -> None:
    """2.5 times the bound that was calibrated, besides what is tolerated, with what must be found above it; calls of this length are asked about."""
    asked: list[float] = []

    def noise(ns_per_call: float) -> Noise:
        asked.append(ns_per_call)
        return Noise(spread_upper=0.02)

    timed = timing(Pool(Worker(ns={"kernel": 1050.0})), noise).time(wanted())
    (comparison,) = timed.measurement.comparisons
    assert comparison.tolerate == pytest.approx(0.07)
    assert comparison.catch == pytest.approx(0.10)
    assert comparison.outcome == "clean"
    assert asked
    assert all(one == pytest.approx(1050, rel=0.01) for one in asked)


def test_blocks_that_hang_on_each_other_are_longer() -> None:
    """The arms are made ready once more, with batches and a limit so many times as long."""
    pool = Pool(Worker())
    timed = timing(pool, lambda _: Noise(longer=4.0)).time(wanted())
    opened = [(one["longer"], one["limit_s"]) for _, method, one, _ in pool.asked if method == "open"]
    assert opened == [(1.0, BATCH_LIMIT_S), (4.0, 4 * BATCH_LIMIT_S)]
    assert timed.measurement.kernel.calls_per_batch == 1200


def test_states_that_last_are_timed_again_in_longer_batches() -> None:
    """In the same process: what was proven within one state is not, and a note says what happened."""
    pool = Pool(Worker(state_blocks=17))
    timed = timing(pool).time(wanted(tests=1))
    opened = [one["longer"] for _, method, one, _ in pool.asked if method == "open"]
    assert opened == [1.0, LONGEST]
    assert timed.measurement.comparisons[0].outcome == "clean"
    assert LENGTHENED in timed.measurement.notes
    known = Pool(Worker(ns={"kernel": 1100.0}))
    assert LENGTHENED not in timing(known).time(wanted()).measurement.notes


def test_what_is_not_known_of_noise_is_told() -> None:
    """With the measurement, where there is a base that it would matter for."""
    why = "T was not calibrated"
    assert timing(Pool(Worker()), lambda _: Noise(why=why)).time(wanted()).measurement.uncalibrated == why
    alone = timing(Pool(Worker()), lambda _: Noise(why=why)).time(wanted(base=False))
    assert alone.measurement.uncalibrated == ""


def test_a_sample_has_as_many_blocks_as_are_wanted() -> None:
    """However clear the case is; with batches as long as they are to be, and nothing left open."""
    pool = Pool(Worker(ns={"kernel": 1100.0}))
    found = timing(pool).sample(wanted(), 40, longer=2.0)
    assert len(found.log_ratios) == 40
    assert sum(found.log_ratios) / 40 == pytest.approx(math.log(1.1), abs=0.01)
    assert found.ns_per_call == pytest.approx(1100, rel=0.01)
    assert found.refused == {}
    assert [method for _, method, _, _ in pool.asked] == ["open", "blocks", "finish"]
    assert pool.asked[0][2]["longer"] == 2.0
    assert all(are_closed(pool.buffers))
    assert not pool.held


def test_a_sample_without_a_base() -> None:
    """Has a time, no ratios, and why."""
    arms = {"arms": ["kernel", "torch"], "refused": {"base": "it cannot be loaded: ImportError"}}
    found = timing(Pool(Worker(changes=arms))).sample(wanted(), 40)
    assert (found.log_ratios, found.refused) == ((), {"base": "it cannot be loaded: ImportError"})
    assert found.ns_per_call == pytest.approx(1000, rel=0.01)


# ---- the parent's clock


@pytest.mark.parametrize("told", [0.5, 0.85])
def test_times_that_did_not_pass_are_tampering(told: float) -> None:
    """A worker that tells less time than passes by the parent's clock, in both processes, is no faster kernel."""
    liar = Worker(ns={"kernel": 1000 * told}, true_ns={"kernel": 1000.0})
    pool = Pool(liar, liar)
    with pytest.raises(EndedError) as ended:
        timing(pool).time(wanted())
    assert (ended.value.verdict.status, ended.value.verdict.reason) == (Status.SUSPECT, Reason.TAMPERING)
    assert f"takes {told:.3g}" in ended.value.verdict.message
    assert are_closed(pool.buffers) == [True, True]


def test_times_that_did_not_pass_are_tampering_where_they_seem_slower_too() -> None:
    """Undecided passes, however high the interval reaches: a busy machine's noise is no cover for a false clock."""
    worker = Worker(ns={"kernel": 1030.0}, true_ns={"kernel": 8000.0})
    gate = replace(GATE, max_blocks=6)
    with pytest.raises(EndedError) as ended:
        timing(Pool(worker, worker)).time(wanted(gate=gate))
    assert ended.value.verdict.reason is Reason.TAMPERING


def test_times_that_did_not_pass_are_tampering_whatever_they_come_to() -> None:
    """A worker that is caught as it seems slower, and only there is not, is caught by two further processes."""
    slower = Worker(ns={"kernel": 1100.0}, true_ns={"kernel": 2000.0})
    liar = Worker(ns={"kernel": 1000.0}, true_ns={"kernel": 2000.0})
    pool = Pool(slower, liar, liar)
    with pytest.raises(EndedError) as ended:
        timing(pool).time(wanted())
    assert ended.value.verdict.reason is Reason.TAMPERING
    assert are_closed(pool.buffers) == [True, True, True]


def test_a_kernel_that_slows_its_base_is_not_faster() -> None:
    """The base takes longer beside it than alone, in two pairs of processes."""
    worker = Worker(ns={"base": 2000.0})
    with pytest.raises(EndedError) as ended:
        timing(Pool(worker, worker)).time(wanted())
    assert (ended.value.verdict.status, ended.value.verdict.reason) == (Status.SUSPECT, Reason.SLOWS_BASE)
    assert "the base takes 2 times as long" in ended.value.verdict.message


def test_where_only_gains_count_the_base_is_timed_alone_beside_these() -> None:
    """What is no faster is dropped, whatever it does to its base."""
    pool = Pool(Worker())
    timing(pool, only_gains=True).time(wanted())
    assert not pool.alone
    worker = Worker(ns={"base": 2000.0})
    with pytest.raises(EndedError) as ended:
        timing(Pool(worker, worker), only_gains=True).time(wanted())
    assert ended.value.verdict.reason is Reason.SLOWS_BASE


@pytest.mark.parametrize("method", ["cuda-graph", "fenced-loop"])
def test_the_base_alone_is_timed_as_it_is_beside_the_kernel(method: str) -> None:
    """In loops beside a kernel that leaves its stream: calls of a graph take a twentieth, and speak against nobody."""
    pool = Pool(Worker(changes={"method": method}))
    timing(pool).time(wanted())
    assert pool.alone["fenced"] is (method == "fenced-loop")


def test_times_of_two_methods_are_not_held_against_each_other() -> None:
    """A base that cannot be captured alone, though it was beside the kernel, accuses no one."""
    pool = Pool(Worker(ns={"base": 2000.0}, alone_method="fenced-loop"))
    assert timing(pool).time(wanted()).disputed is None


def test_a_base_that_is_slow_everywhere_is_slow() -> None:
    """Also where processes differ by a little."""
    timed = timing(Pool(Worker(ns={"base": 2000.0}, alone_ns=1900.0))).time(wanted())
    assert timed.measurement.comparisons[0].outcome == "faster"
    assert timed.disputed is None


def test_a_dispute_that_a_fresh_process_does_not_share_is_dropped() -> None:
    """Then its times count."""
    pool = Pool(Worker(ns={"kernel": 500.0}, true_ns={"kernel": 1000.0}), Worker(ns={"kernel": 990.0}))
    timed = timing(pool).time(wanted())
    assert timed.measurement.comparisons[0].outcome == "clean"
    assert timed.measurement.confirmation is None
    assert are_closed(pool.buffers) == [True, False]


@pytest.mark.parametrize("rare_ns", [1000.0, 2000.0])
def test_costs_that_come_rarely_are_no_false_clock(rare_ns: float) -> None:
    """Calls in a row take what sums of calls take; medians may be lower."""
    worker = Worker(ns={"kernel": 900.0}, mean_ns={"kernel": rare_ns}, true_ns={"kernel": rare_ns})
    timing(Pool(worker, worker)).time(wanted())


# ---- the fresh process


def test_slower_is_timed_again_in_a_fresh_process() -> None:
    """With other orders, as a test that shares its chance with none; the first's buffers are closed."""
    pool = Pool(Worker(ns={"kernel": 1100.0}), Worker(ns={"kernel": 1090.0}))
    timed = timing(pool).time(wanted())
    assert [number for number, method, _, _ in pool.asked if method == "open"] == [0, 1]
    first, again = timed.measurement, timed.measurement.confirmation
    assert again is not None
    assert [one.comparisons[0].outcome for one in (first, again)] == ["slower", "slower"]
    assert [one.comparisons[0].tests for one in (first, again)] == [200, 1]
    assert len(again.comparisons[0].log_ratios) < len(first.comparisons[0].log_ratios)
    assert first.comparisons[0].ratio == pytest.approx(1.10, rel=0.02)
    assert again.comparisons[0].ratio == pytest.approx(1.09, rel=0.02)
    assert first.orders.split()[:9] != again.orders.split()[:9]
    assert timed.reply.result.observed == {"process": 1}
    assert are_closed(pool.buffers) == [True, False]
    assert timed.reply.buffers == (pool.buffers[1],)


def test_what_a_fresh_process_does_not_show_stands_beside() -> None:
    """A process whose memory lay badly, say."""
    timed = timing(Pool(Worker(ns={"kernel": 1100.0}), Worker())).time(wanted())
    assert timed.measurement.comparisons[0].outcome == "slower"
    assert timed.measurement.confirmation is not None
    assert timed.measurement.confirmation.comparisons[0].outcome == "clean"


def test_a_floor_that_is_missed_is_timed_again_too() -> None:
    """With or without a base."""
    gate = replace(GATE, floor_vs_torch=4.0)
    timed = timing(Pool(Worker(), Worker())).time(wanted(base=False, gate=gate))
    assert [one.against for one in timed.measurement.comparisons] == ["torch"]
    assert timed.measurement.comparisons[0].outcome == "slower"
    assert timed.measurement.confirmation is not None
    assert timed.measurement.confirmation.comparisons[0].outcome == "slower"


def test_a_cost_that_comes_rarely_is_timed_again_too() -> None:
    """The medians are the same, the sums are not: both processes' sums prove it."""
    pool = Pool(*(Worker(mean_ns={"kernel": 2300.0}) for _ in range(2)))
    timed = timing(pool).time(wanted())
    again = timed.measurement.confirmation
    assert again is not None
    first, second = timed.measurement.comparisons[0], again.comparisons[0]
    assert [one.outcome for one in (first, second)] == ["slower", "slower"]
    assert first.ratio == pytest.approx(1.0, abs=0.02)
    assert first.sums is not None
    assert first.sums.ratio == pytest.approx(2.3)
    assert {number for number, *_ in pool.asked} == {0, 1}


def test_noise_takes_no_second_process() -> None:
    """Undecided stays undecided."""
    pool = Pool(Worker(ns={"kernel": 1027.0}))
    timed = timing(pool).time(wanted(gate=replace(GATE, max_blocks=10)))
    assert timed.measurement.comparisons[0].outcome == "inconclusive"
    assert {number for number, *_ in pool.asked} == {0}


def test_a_kernel_that_dies_in_the_fresh_process_has_died() -> None:
    """And nothing stays open."""
    dead = Worker(raises={"blocks": CRASH})
    pool = Pool(Worker(ns={"kernel": 1100.0}), dead, dead)
    with pytest.raises(EndedError) as ended:
        timing(pool).time(wanted())
    assert ended.value.verdict.status is Status.RUNTIME_ERROR
    assert are_closed(pool.buffers) == [True]


def test_a_base_that_dies_in_the_fresh_process_confirms_nothing() -> None:
    """The kernel by itself lives: the death is not its own, and what was found stays unconfirmed."""
    second = Worker(dies_with_base=CRASH)
    timed = timing(Pool(Worker(ns={"kernel": 1100.0}), second, Worker())).time(wanted())
    assert timed.measurement.comparisons[0].outcome == "slower"
    assert timed.measurement.confirmation is not None
    assert timed.measurement.confirmation.comparisons == ()
    assert timed.refused["base"].startswith("with the base loaded the worker ended: ")


def test_a_device_that_is_not_to_be_had_again_leaves_nothing_open() -> None:
    """Others time on it all the while: the error passes through."""
    pool = Pool(Worker(ns={"kernel": 1100.0}), Worker())
    taken = 0

    @contextmanager
    def lock() -> Iterator[None]:
        nonlocal taken
        taken += 1
        if taken > 1:
            raise InfrastructureError("others time on cuda:0", remedy="wait")
        pool.held = True
        yield
        pool.held = False

    runs = KernelRuns(cast("WorkerPool", pool), seed=1, timeout_s=60.0)
    with pytest.raises(InfrastructureError, match="others time"):
        CaseTiming(runs, lock=lock).time(wanted())
    assert are_closed(pool.buffers) == [True]


# ---- deaths


@pytest.mark.parametrize(
    "death", [CRASH, WorkerTimeout("no answer in 60 s"), ServiceError("CUDA error: an illegal memory access")]
)
def test_a_base_that_kills_the_worker_is_refused(death: Exception) -> None:
    """The worker lives without it: the kernel is timed, and it is told what happened beside the base."""
    pool = Pool(Worker(dies_with_base=death), Worker())
    timed = timing(pool).time(wanted())
    assert timed.refused["base"].startswith("with the base loaded the worker ended: ")
    assert str(death).partition("\n")[0] in timed.refused["base"]
    assert timed.measurement.base is None
    assert timed.measurement.base_revision == ""
    assert timed.measurement.comparisons == ()
    assert [one["base"] and one["base"]["key"] for _, method, one, _ in pool.asked if method == "open"] == [
        "b",
        None,
    ]


def test_a_kernel_that_dies_by_itself_is_to_blame() -> None:
    """What is told is what happened first."""
    pool = Pool(
        Worker(raises={"blocks": CRASH}), Worker(raises={"open": WorkerTimeout("later, something else")})
    )
    with pytest.raises(EndedError) as ended:
        timing(pool).time(wanted())
    assert ended.value.verdict.status is Status.RUNTIME_ERROR
    assert "SIGSEGV" in ended.value.verdict.message


@pytest.mark.parametrize("method", ["open", "blocks", "finish"])
def test_without_a_base_a_death_is_asked_about_once(method: str) -> None:
    """In whatever request it happens."""
    pool = Pool(Worker(raises={method: CRASH}), Worker())
    with pytest.raises(EndedError):
        timing(pool).time(wanted(base=False))
    assert {number for number, *_ in pool.asked} == {0}
    assert not pool.held


# ---- answers that our own service would never give


def lies() -> Iterator[Any]:
    honest = {"arms": ["kernel", "torch"], "method": "cuda-graph", "calls": {"kernel": 1, "torch": 1}}
    rest = {
        "batch_seconds": {"kernel": 1e-3, "torch": 1e-3},
        "host_ns_per_call": {},
        "launch_ns": 0.0,
        "cold": True,
        "notes": [],
    }
    yield pytest.param("open", None, id="open-nothing")
    yield pytest.param("open", {**honest, **rest, "refused": {}}, id="open-silently-without-the-base")
    yield pytest.param("open", {**honest, **rest, "refused": {"torch": "no"}}, id="open-refused-and-there")
    yield pytest.param(
        "open",
        {**honest, **rest, "batch_seconds": {"kernel": math.nan, "torch": 1}, "refused": {"base": ""}},
        id="open-nan",
    )
    yield pytest.param("blocks", {"blocks": []}, id="blocks-none")
    yield pytest.param("blocks", [], id="blocks-a-list")
    yield pytest.param(
        "finish",
        {"answers": [{"name": "7", "when": "last", "tensors": {}}], "observed": {}},
        id="finish-a-set-that-is-none",
    )
    yield pytest.param("finish", "done", id="finish-a-text")


@pytest.mark.parametrize(("method", "answer"), list(lies()))
def test_a_forged_answer_ends_the_worker(method: str, answer: Any) -> None:
    """It is suspect, with a base too: that is no way to get rid of what a kernel is held against."""
    pool = Pool(Worker(answers={method: answer}), Worker())
    with pytest.raises(EndedError) as ended:
        timing(pool).time(wanted())
    assert (ended.value.verdict.status, ended.value.verdict.reason) == (Status.SUSPECT, Reason.FORGED_ANSWER)
    assert "the kernel tampers with its process" in ended.value.verdict.message
    assert {number for number, *_ in pool.asked} == {0}
    assert pool._now == 1
    assert all(are_closed(pool.buffers))


def test_an_arm_that_nobody_asked_for_is_forged() -> None:
    """A base that there is none of would be compared with."""
    arms = ["kernel", "torch", "base"]
    changes = {"arms": arms, "calls": dict.fromkeys(arms, 9), "batch_seconds": dict.fromkeys(arms, 3e-4)}
    with pytest.raises(EndedError, match="were to be timed"):
        timing(Pool(Worker(changes=changes), Worker())).time(wanted(base=False))
