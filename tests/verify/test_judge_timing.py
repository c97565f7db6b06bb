"""What is told of a timing, judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_cgins
from pytest_cgins.core import documents
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.verdict import Probe, Reason
from pytest_cgins.verify.judge import JudgeService
from pytest_cgins.verify.probes.registry import TIMED
from tests.verify.test_judge import parameters, record

RELU = "torch.nn.functional.relu"


class Timed:
    """A case, of relu by default, and what a timing worker could tell of it."""

    def __init__(
        self,
        folder: Path,
        run: Callable[[], object] = lambda: torch.nn.functional.relu(torch.randn(40, 60)),
        op: str = RELU,
    ) -> None:
        case = record(folder, run, op)
        self.service = JudgeService()
        self.params = {**parameters(case), "probes": [*TIMED, "integrity", "snooping"]}
        prepared, buffers = self.service.prepare(self.params, [])
        self.inputs = {
            one["name"]: unpack(one["tensors"], buffer, "cpu")[0]
            for one, buffer in zip(prepared["sets"], buffers, strict=True)
        }

    def judge(
        self, answers: dict[tuple[str, str], Any] | None = None, /, **told: Any
    ) -> tuple[dict[str, Probe], float]:
        """Results by probe, and the floor; an answer is a tensor or what was raised."""
        entries, buffers = [], []
        for (name, when), answer in (answers or {}).items():
            error = {"kind": "E", "message": answer} if isinstance(answer, str) else None
            header, buffer = pack([] if error else [answer])
            entries.append({"name": name, "when": when, "tensors": header, "error": error})
            buffers.append(buffer)
        timing = {"answers": entries, "observed": {}}
        timing |= {key: told.pop(key) for key in timing.keys() & told.keys()}
        request = {
            "case_request": self.params, "cold": False, "median_ns_per_call": 9e6, "launch_ns": 0.0, "timing": timing, **told,
        }  # fmt: skip
        result, _ = self.service.judge_timed(request, buffers)
        probes = [documents.load_python(Probe, one) for one in result["probes"]]
        return {probe.name: probe for probe in probes}, result["floor_ns_per_call"]


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Timed:
    return Timed(tmp_path_factory.mktemp("timed") / "pack")


def test_right_answers_hold(timed: Timed) -> None:
    """Every probe of timing has a result, and a floor is known for an elementwise op."""
    answers = {
        (name, when): timed.inputs[name].relu()
        for name in ("recorded", "fresh")
        for when in ("last", "after")
    }
    probes, floor = timed.judge(answers)
    assert {name: probe.outcome for name, probe in probes.items()} == dict.fromkeys(TIMED, "held")
    assert floor > 0


def test_a_wrong_answer_is_told_with_its_set(timed: Timed) -> None:
    """The first is shown, the others are counted."""
    probes, _ = timed.judge(
        {("recorded", "last"): timed.inputs["recorded"], ("fresh", "after"): "ValueError: tired"}
    )
    assert probes["after_timing"].reason is Reason.WRONG_AFTER_TIMING
    assert "wrong in the last timed call (recorded inputs)" in probes["after_timing"].message
    assert "(and 1 more like it)" in probes["after_timing"].message
    probes, _ = timed.judge({("fresh", "captured"): timed.inputs["fresh"]})
    assert "does something else while it is captured" in probes["after_timing"].message
    probes, _ = timed.judge({("fresh", "after"): "ValueError: tired"})
    assert (
        "a call after it was timed (fresh inputs): the kernel raised ValueError: tired"
        in probes["after_timing"].message
    )


def test_what_was_found_right_is_known_by_its_bytes(timed: Timed) -> None:
    """Answers that verification saw are right; the same bytes for another set are not."""
    right = {name: x.relu() for name, x in timed.inputs.items()}
    sets, buffers = [], []
    for name, answer in right.items():
        header, buffer = pack([answer])
        sets.append({"name": name, "tensors": header, "devices": ["cpu"], "error": None})
        buffers.append(buffer)
    timed.service.judge({"case_request": timed.params, "answers": {"sets": sets}}, buffers)
    probes, _ = timed.judge({("recorded", "last"): right["recorded"], ("fresh", "last"): right["fresh"]})
    assert probes["after_timing"].outcome == "held"
    probes, _ = timed.judge({("fresh", "last"): right["recorded"]})
    assert probes["after_timing"].outcome == "tripped"


@pytest_cgins.mark
def half_beside(x: torch.Tensor) -> torch.Tensor:
    """0.5, as near as rounding to the size of `x` lets it be."""
    return (x + 0.5) - x


def test_what_was_right_at_a_second_look_is_right_when_it_comes_again(tmp_path: Path) -> None:
    """Another element may be off the next time, as by atomics."""
    beside = Timed(tmp_path, lambda: half_beside(torch.full((64,), 512.0)), f"{__name__}.half_beside")

    def off(element: int, by: float = 7e-6) -> torch.Tensor:
        answer = torch.full((64,), 0.5)
        answer[element] += by
        return answer

    header, buffer = pack([off(0)])
    entry = {"name": "recorded", "tensors": header, "devices": ["cpu"], "error": None}
    reply, _ = beside.service.judge({"case_request": beside.params, "answers": {"sets": [entry]}}, [buffer])
    checks = [one for one in reply["correctness"]["checks"] if one["inputs"] == "recorded"]
    assert checks
    assert all(one["passed"] for one in checks)
    assert beside.judge({("recorded", "last"): off(1)})[0]["after_timing"].outcome == "held"
    assert beside.judge({("recorded", "last"): off(1, 0.1)})[0]["after_timing"].outcome == "tripped"


def test_a_time_below_the_floor_trips(timed: Timed) -> None:
    """With both times; a time above it holds."""
    probes, floor = timed.judge(median_ns_per_call=1e-3)
    assert probes["physical_floor"].reason is Reason.TOO_FAST
    assert "at the peaks of the device" in probes["physical_floor"].message
    probes, _ = timed.judge(median_ns_per_call=1.01 * floor)
    assert probes["physical_floor"].outcome == "held"


def test_a_cold_cache_has_no_lower_floor(timed: Timed) -> None:
    """Memory is no faster than the cache before it."""
    _, warm = timed.judge(cold=False)
    _, cold = timed.judge(cold=True)
    assert 0 < warm <= cold


def test_facts_are_judged_and_reasons_not_to_look_are_shown(timed: Timed) -> None:
    """`integrity` and `snooping` are there only if they tripped; what is no probe of timing is not heard."""
    probes, _ = timed.judge(
        observed={
            "content_cache": {"not_run": "x" * 1000},
            "integrity": [{"what": "replaced time.time", "when": "as it ran"}],
            "snooping": [{"what": "walked the stack", "where": "relu.py:3"}],
            "late_work": [{"what": "works on"}],
        }
    )
    assert probes["content_cache"].outcome == "not-run"
    assert len(probes["content_cache"].message) == 300
    assert probes["integrity"].reason is Reason.TAMPERING
    assert probes["snooping"].reason is Reason.SNOOPING
    assert "late_work" not in probes


@pytest.mark.parametrize(
    "told",
    [
        {"observed": {"content_cache": 5}},
        {"observed": {"content_cache": {"rounds": [[1, 2], [3]]}}},
        {"observed": 3},
        {"answers": [{"name": "recorded"}]},
        {"median_ns_per_call": "fast"},
        {"median_ns_per_call": None},
        {"launch_ns": None},
    ],
)
def test_what_no_service_of_ours_would_tell_is_refused(timed: Timed, told: dict[str, Any]) -> None:
    """A worker under a kernel's control may tell anything."""
    with pytest.raises(ProtocolError, match="malformed"):
        timed.judge(**told)
