"""What the timing worker is sent, and what is made of its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_cgins import documents, kernel_timing
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.measurement import Arm, Measurement
from pytest_cgins.model import Case, Correctness, Probe, Reason

ARM = Arm(
    name="kernel", samples_ns_per_call=(1.0, 1.0), calls_per_batch=5, median_ns_per_call=1.0, iqr_ns_per_call=0.0
)  # fmt: skip
MEASUREMENT = Measurement(
    method="perf-counter", cache="warm", orders="KTTK", kernel=ARM,
    torch=replace(ARM, name="torch"), speedup_vs_torch=1.0, speedup_low=1.0, speedup_high=1.0,
)  # fmt: skip


@pytest.fixture
def case() -> Case:
    return Case(
        kernel="relu", implementation="cpp", device="cpu", op="torch.relu", pack="tiny", pack_path="/tiny",
        trace_id="0" * 16, signature="f32-4", dtype="float32",
    )  # fmt: skip


@pytest.fixture
def one_set() -> Callable[..., dict[str, Any]]:
    def make(name: str, **changes: Any) -> dict[str, Any]:
        same = {"call": {"op": "torch.relu"}, "tensors": {"spans": [4]}, "outputs": [], "context": {}}
        return {"name": name, **same, "mutated": [], "probe": "", **changes}

    return make


def test_only_a_fresh_set_of_the_same_form_is_timed_besides(one_set: Callable[..., dict[str, Any]]) -> None:
    """Edge rows and sets of probes may take another time, and other shapes are another call."""
    sets = [one_set("recorded"), one_set("fresh"), one_set("edge"), one_set("sizes-1", probe="sizes")]
    buffers = [Buffer.from_chunks([]) for _ in sets]
    pairs = kernel_timing.timeable(sets, buffers)
    assert [one["name"] for one, _ in pairs] == ["recorded", "fresh"]
    assert [buffer for _, buffer in pairs] == buffers[:2]
    sets[1]["tensors"] = {"spans": [8]}
    assert [one["name"] for one, _ in kernel_timing.timeable(sets, buffers)] == ["recorded"]


def test_the_worker_learns_no_names(one_set: Callable[..., dict[str, Any]]) -> None:
    """Sets are numbered, and what is there for us alone stays here."""
    pairs = [(one_set("recorded"), Buffer.from_chunks([])), (one_set("fresh"), Buffer.from_chunks([]))]
    asked = kernel_timing.request_sets(pairs)
    assert [one["name"] for one in asked] == ["0", "1"]
    assert "probe" not in asked[0]
    result = {
        "measurement": documents.dump_python(MEASUREMENT),
        "answers": [{"name": "1", "when": "last"}],
        "observed": {},
    }
    assert kernel_timing.told_of(result, pairs)["answers"] == [{"name": "fresh", "when": "last"}]
    with pytest.raises(KeyError):
        kernel_timing.told_of({**result, "answers": [{"name": "2"}]}, pairs)


def test_the_seed_of_the_run_is_not_told(case: Case) -> None:
    """Each case has a seed of its own, the same in every run with the same seed, and a JSON number."""
    first = kernel_timing.seed_for(7, case)
    assert first == kernel_timing.seed_for(7, case)
    assert first != kernel_timing.seed_for(8, case)
    assert first != kernel_timing.seed_for(7, replace(case, signature="f32-5"))
    assert 0 <= first < 2**56


def test_results_take_the_place_of_what_stood_for_them() -> None:
    """A probe that was not run before has its result now; the others keep theirs, and the order stays."""
    held = Probe(name="repeat", outcome="held", reason=Reason.OK)
    waiting = Probe(name="after_timing", outcome="not-run", reason=Reason.OK, message="not timed")
    tripped = replace(waiting, outcome="tripped", reason=Reason.WRONG_AFTER_TIMING)
    correctness = Correctness(checks=(), power=(), probes=(waiting, held))
    judged = {"probes": [documents.dump_python(tripped)], "floor_ns_per_call": 12.5}
    timing = kernel_timing.timing_of({"measurement": documents.dump_python(MEASUREMENT)}, judged)
    assert timing.merged(correctness).probes == (tripped, held)
    assert timing.numbers == {"floor_ns_per_call": 12.5}
    assert (
        kernel_timing.timing_of(
            {"measurement": documents.dump_python(MEASUREMENT)}, {"probes": [], "floor_ns_per_call": 0.0}
        ).numbers
        == {}
    )
