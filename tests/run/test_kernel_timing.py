"""What the timing worker is sent, and what is made of its answer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.trace import OpCall
from pytest_cgins.core.verdict import Correctness, Probe, Reason
from pytest_cgins.run import kernel_timing
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import BlockSampler
from pytest_cgins.verify.messages import PackedInputs, read
from pytest_cgins.verify.timing_messages import Opened, TimedAnswer
from tests.whole_timing import RULE

CALL = OpCall(op="torch.relu", arguments=())


CASE = Case(
    kernel="relu", implementation="cpp", device="cpu", op="torch.relu", pack="tiny", pack_path="/tiny",
    trace_id="0" * 16, signature="f32-4", dtype="float32",
)  # fmt: skip


def one_set(name: str, probe: str = "") -> PackedInputs:
    return PackedInputs(
        name=name, call=CALL, tensors={"spans": [4]}, outputs=(), op_calls={"relu": 1}, probe=probe
    )


def test_only_a_fresh_set_of_the_same_form_is_timed_besides() -> None:
    """Edge rows and sets of probes may take another time, and other shapes are another call."""
    sets = [one_set("recorded"), one_set("fresh"), one_set("edge"), one_set("sizes-1", probe="sizes")]
    buffers = [Buffer.from_chunks([]) for _ in sets]
    pairs = kernel_timing.timeable(list(zip(sets, buffers, strict=True)))
    assert [one.name for one, _ in pairs] == ["recorded", "fresh"]
    assert [buffer for _, buffer in pairs] == buffers[:2]
    sets[1] = replace(sets[1], tensors={"spans": [8]})
    assert [one.name for one, _ in kernel_timing.timeable(list(zip(sets, buffers, strict=True)))] == [
        "recorded"
    ]


def test_the_worker_learns_no_names() -> None:
    """Sets are numbered, and what is there for us alone stays here."""
    asked = kernel_timing.request_sets([one_set("recorded"), one_set("fresh", probe="sizes")])
    assert [(one.name, one.probe, one.op_calls) for one in asked] == [("0", "", {}), ("1", "", {})]
    result = {"answers": [{"name": "1", "when": "last", "tensors": {}}], "observed": {"integrity": []}}
    finished = kernel_timing.read_finished(result, ["recorded", "fresh"])
    assert finished.answers == (TimedAnswer(name="fresh", when="last", tensors={}),)
    assert finished.observed == {"integrity": []}


@pytest.mark.parametrize(
    "result",
    [
        {"answers": [{"name": "2", "when": "last", "tensors": {}}], "observed": {}},
        {"answers": [{"name": "0", "when": "never", "tensors": {}}], "observed": {}},
        {"answers": [{}], "observed": {}},
        {"answers": 5, "observed": {}},
        {"answers": [], "observed": 5},
        {"answers": []},
    ],
)
def test_a_forged_end_is_noticed(result: dict[str, Any]) -> None:
    """By the error that whoever asks takes for a forged answer."""
    with pytest.raises(ValueError, match=r"FinishedTiming|not sent"):
        kernel_timing.read_finished(result, ["recorded"])


def test_the_seed_of_the_run_is_not_told() -> None:
    """Each case has a seed of its own, the same in every run with the same seed, and a JSON number."""
    first = kernel_timing.seed_for(7, CASE)
    assert first == kernel_timing.seed_for(7, CASE)
    assert first != kernel_timing.seed_for(8, CASE)
    assert first != kernel_timing.seed_for(7, replace(CASE, signature="f32-5"))
    assert 0 <= first < 2**56


def test_results_take_the_place_of_what_stood_for_them() -> None:
    """A probe that was not run before has its result now; the others keep theirs, and the order stays."""
    held = Probe(name="repeat", outcome="held", reason=Reason.OK)
    waiting = Probe(name="after_timing", outcome="not-run", reason=Reason.OK, message="not timed")
    tripped = replace(waiting, outcome="tripped", reason=Reason.WRONG_AFTER_TIMING)
    correctness = Correctness(checks=(), power=(), probes=(waiting, held))
    assert correctness.with_probes([tripped]).probes == (tripped, held)


# ---- what a worker makes ready


def ready(**changes: Any) -> dict[str, Any]:
    """What a worker answers to `open`."""
    arms = ("torch", "kernel", "base")
    return {
        "arms": list(arms), "method": "cuda-graph", "calls": dict.fromkeys(arms, 100),
        "batch_seconds": dict.fromkeys(arms, 3e-4), "host_ns_per_call": dict.fromkeys(arms, 5000.0), "launch_ns": 900.0, "cold": True,
        "notes": ["fell back"], "refused": {"compile": "no compiler"}, **changes,
    }  # fmt: skip


def test_what_is_ready_is_read() -> None:
    """In the order of the record's arms."""
    prepared = read(Opened, ready())
    assert prepared.arms == ("kernel", "base", "torch")
    assert prepared.calls == {"kernel": 100, "base": 100, "torch": 100}
    assert prepared.seconds(("kernel", "base")) == pytest.approx(12e-4)
    assert prepared.host_ns_per_call == {"kernel": 5000.0, "base": 5000.0, "torch": 5000.0}
    assert (prepared.method, prepared.cold, prepared.notes) == ("cuda-graph", True, ("fell back",))
    assert prepared.launch_ns == 900.0
    assert prepared.refused == {"compile": "no compiler"}
    assert read(Opened, ready(host_ns_per_call={})).host_ns_per_call == {}


def test_long_texts_are_cut() -> None:
    """A kernel that fills a report with its own words gets a few lines of it."""
    prepared = read(Opened, ready(notes=["x" * 10_000] * 100, refused={"base": "y" * 10_000}))
    assert len(prepared.notes) * len(prepared.notes[0]) + len(prepared.refused["base"]) < 20_000


LIES: list[Any] = [math.nan, math.inf, -math.inf, -1.0, 1e300, 10**400, None, "many", [], {}]


@pytest.mark.parametrize("lie", LIES, ids=str)
@pytest.mark.parametrize("key", ["calls", "batch_seconds", "host_ns_per_call"])
def test_numbers_that_no_timer_tells_are_refused(key: str, lie: Any) -> None:
    """They would end pytest's own process later on, or stand in its report."""
    with pytest.raises(ValueError, match=key):
        read(Opened, ready(**{key: {"kernel": lie, "base": 1, "torch": 1}}))


@pytest.mark.parametrize(
    "changes",
    [
        {"arms": ["torch"]},
        {"arms": 5},
        {"arms": [["kernel"], ["torch"]]},
        {"method": "sundial"},
        {"method": ["cuda-graph"]},
        {"calls": {"kernel": 0, "base": 1, "torch": 1}},
        {"calls": {"kernel": 1}},
        {"calls": 5},
        {"batch_seconds": "long"},
        {"notes": 5},
        {"refused": ["base"]},
    ],
    ids=str,
)
def test_what_is_no_measurement_is_refused(changes: dict[str, Any]) -> None:
    """A worker under a kernel's control may tell anything."""
    with pytest.raises(ValueError, match="Opened"):
        read(Opened, ready(**changes))


def block(order: str, **changes: Any) -> dict[str, Any]:
    times = [1000.0] * len(order)
    return {
        "order": order,
        "ns_per_call": times,
        "mean_ns_per_call": times,
        "sm_mhz": 1980,
        "throttled": [],
    } | changes


def test_blocks_are_read() -> None:
    """Times by letter, clocks, and reasons."""
    told = {"blocks": [block("KBBK", throttled=["sw-power-cap"]), block("BKKB", sm_mhz=None)]}
    first, second = kernel_timing.read_blocks(told, ["KBBK", "BKKB"])
    assert first == Block(
        order="KBBK",
        ns_per_call=(1000.0,) * 4,
        mean_ns_per_call=(1000.0,) * 4,
        sm_mhz=1980,
        throttled=("sw-power-cap",),
    )
    assert (second.sm_mhz, second.times("base")) == (None, (1000.0, 1000.0))
    assert kernel_timing.read_blocks({"blocks": [block("KBBK", sm_mhz=0)]}, ["KBBK"])[0].sm_mhz == 0


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [block("BKKB")],
        [block("KBBK"), block("KBBK")],
        [block("KBBK", ns_per_call=[1.0] * 3)],
        [block("KBBK", ns_per_call=5)],
        [block("KBBK", sm_mhz=-5)],
        [block("KBBK", sm_mhz=math.nan)],
        [block("KBBK", sm_mhz=10**400)],
        [block("KBBK", throttled=7)],
        [{}],
        5,
        [block("KBBK", mean_ns_per_call=[1.0] * 3)],
        *(
            [block("KBBK", **{times: [1.0, 1.0, lie, 1.0]})]
            for times in ("ns_per_call", "mean_ns_per_call")
            for lie in [*LIES, 0.0, 1e-300, 1e30]
        ),
    ],
    ids=lambda blocks: str(blocks)[-90:],
)
def test_blocks_that_were_not_asked_for_are_refused(blocks: Any) -> None:
    """Other orders, other numbers of them, and times of which no ratio can be taken."""
    with pytest.raises(ValueError, match=r"Block|block|time|mean|order"):
        kernel_timing.read_blocks({"blocks": blocks}, ["KBBK"])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
times = st.lists(st.floats() | st.integers(), min_size=6, max_size=6)


@given(data=st.data())
@settings(deadline=None)
def test_whatever_is_told_is_refused_or_can_be_reported(data: st.DataObject) -> None:
    """No numbers of a worker end pytest's process: a measurement comes out that can be written and read."""
    key = data.draw(st.sampled_from(list(ready())))
    told = ready(**{key: data.draw(anything)}) if data.draw(st.booleans()) else ready()
    try:
        prepared = read(Opened, told)
        sampler = BlockSampler(prepared, seed=1, base=RULE if "base" in prepared.arms else None)

        def take(orders: Any) -> Any:
            ns = data.draw(times)
            mhz = data.draw(st.none() | st.integers() | st.floats())
            blocks = [block(order, ns_per_call=ns[: len(order)], sm_mhz=mhz) for order in orders]
            return kernel_timing.read_blocks({"blocks": blocks}, orders)

        sampler.run(take)
    except ValueError:
        return
    found = sampler.measurement()
    assert documents.load(Measurement, documents.dump(found)) == found


@pytest.mark.exam
@given(data=st.data())
@settings(deadline=None)
def test_any_times_that_are_taken_make_a_report(data: st.DataObject) -> None:
    """Up to the bounds of what is believed, in whatever order."""
    prepared = read(Opened, ready(calls=dict.fromkeys(("kernel", "base", "torch"), 10**9)))
    sampler = BlockSampler(
        prepared, seed=1, base=replace(RULE, most_blocks=10), floor=(replace(RULE, most_blocks=10), 1e-3)
    )
    believed = st.sampled_from([1e-9, 1e-8, 1.0, 1e17, 1e18])

    def take(orders: Any) -> Any:
        blocks = [block(order, ns_per_call=[data.draw(believed) for _ in order]) for order in orders]
        return kernel_timing.read_blocks({"blocks": blocks}, orders)

    sampler.run(take)
    found = sampler.measurement()
    assert documents.load(Measurement, documents.dump(found)) == found
