"""Which signatures take the time."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.recording.record import record
from pytest_cgins.recording.top_time import Candidate, OpTime, select

SECONDS = st.just(0.0) | st.floats(1e-12, 10)
CANDIDATES = st.lists(
    st.builds(Candidate, st.sampled_from("abc"), SECONDS, st.integers(1, 4)), min_size=1, max_size=12
)


def test_the_longest_are_chosen_until_the_share_is_covered() -> None:
    """6 of 10 seconds are not 80%, 6 + 3 are."""
    candidates = [Candidate("a", 1, 1), Candidate("b", 6, 1), Candidate("c", 3, 2)]
    found = select(candidates, share=0.8, max_per_op=None)
    assert found.traces == [0, 1, 2]
    assert found.share == pytest.approx(0.9)


def test_without_a_share_the_first_are_kept() -> None:
    """The limit counts by op, in the order of the candidates."""
    candidates = [Candidate("a", 1, 1), Candidate("a", 9, 3), Candidate("b", 1, 1), Candidate("a", 9, 1)]
    assert select(candidates, share=None, max_per_op=2).traces == [1, 1, 1, 0]
    assert select(candidates, share=0.9, max_per_op=2).traces == [0, 2, 1, 0]


def test_the_least_time_there_is_keeps_one() -> None:
    """Half of the smallest float is 0, and one trace is kept all the same."""
    assert select([Candidate("a", 5e-324, 1)], share=0.5, max_per_op=None).traces == [1]


@pytest.mark.exam
@given(CANDIDATES, st.floats(0.01, 1), st.none() | st.integers(1, 3))
def test_no_shorter_one_is_kept_while_a_longer_one_is_left_out(candidates, share, limit) -> None:
    """Unless the limit of its op leaves it out; without a limit the share is reached, and one less would not do."""
    found = select(candidates, share=share, max_per_op=limit)
    total = sum(candidate.seconds for candidate in candidates)
    kept = [c.seconds for c, traces in zip(candidates, found.traces, strict=True) if traces]
    left = [c.seconds for c, traces in zip(candidates, found.traces, strict=True) if not traces]
    assert kept
    if limit is None and total:
        assert max(left, default=0) <= min(kept)
        assert sum(kept) >= share * total * (1 - 1e-6)
        assert sum(kept) - min(kept) < share * total
        assert found.share == pytest.approx(sum(kept) / total)
    for op in "abc":
        used = sum(t for c, t in zip(candidates, found.traces, strict=True) if c.op == op)
        assert limit is None or used <= limit


def test_the_first_call_does_not_count_for_what_is_made_once() -> None:
    """Ten seconds once and three later ones of one second are four seconds, whatever one of them waited for."""
    measured = OpTime()
    for seconds in (10, 1, 1, 7):
        measured.add(seconds)
    assert measured.seconds(4) == 4
    alone = OpTime()
    alone.add(10)
    assert alone.seconds(1) == 10
    assert OpTime().seconds(4) == 0


CLOCKED = """
import torch, pytest_cgins

class Clock:
    now = 0.0

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Clock.now += 0.01
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        Clock.now += 5.0
        return g.clone()

@pytest_cgins.mark
def takes(x, seconds):
    Clock.now += seconds
    return x + 1

@pytest_cgins.mark
def planned(x):
    Clock.now += 0.5 if planned.has_plan else 9.0
    planned.has_plan = True
    return x + 1

planned.has_plan = False

@pytest_cgins.mark
def wants_ones(x):
    assert x.all()
    Clock.now += 4.0
    return x + 1

@pytest_cgins.mark
def step(x):
    Clock.now += 1.0
    return x + 1

@pytest_cgins.mark
def differentiable(x):
    return Slow.apply(x)
"""


@pytest.fixture
def clocked(project, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Marked functions on a clock that they alone move."""
    module = project(CLOCKED)
    monkeypatch.setattr(time, "perf_counter", lambda: module.Clock.now)
    return module


def test_only_what_takes_long_is_kept_and_the_rest_is_said(clocked: ModuleType, tmp_path: Path) -> None:
    """Two long signatures cover 90% of the time; what the recorder itself does is no time."""
    x = torch.randn(4)
    with record(tmp_path / "pack", top_time=0.9) as recording:
        for _ in range(3):
            for seconds in (0.25, 3.0, 6.0):
                clocked.takes(x, seconds)
            F.gelu(x)
    seconds = [float.fromhex(trace.call.arguments[1].value.value) for trace in recording.pack.traces]
    assert sorted(seconds) == [3.0, 6.0]
    assert recording.left_out() == [
        "the traces cover 97.3% of the recorded ops' time; left out: 2 signatures (6 calls)"
    ]


def test_an_op_that_ran_once_is_timed_without_its_plan(clocked: ModuleType, tmp_path: Path) -> None:
    """Nine seconds of its only call are the plan's; half a second is its own, and the longer op is kept."""
    with record(tmp_path / "pack", top_time=0.5) as recording:
        clocked.planned(torch.ones(2))
        clocked.takes(torch.ones(2), 2.0)
    assert [trace.call.op.rpartition(".")[2] for trace in recording.pack.traces] == ["takes"]
    assert recording.outcome.share == pytest.approx(2 / 2.5)


def test_what_cannot_be_run_again_keeps_the_time_of_its_call(clocked: ModuleType, tmp_path: Path) -> None:
    """Zeros stand for the values in tier shapes, and an op may refuse them."""
    with record(tmp_path / "pack", top_time=0.5, tier="shapes") as recording:
        clocked.wants_ones(torch.ones(2))
        clocked.takes(torch.ones(2), 2.0)
    assert [trace.call.op.rpartition(".")[2] for trace in recording.pack.traces] == ["wants_ones"]


def test_the_limit_keeps_the_longest_of_an_op(clocked: ModuleType, tmp_path: Path) -> None:
    """With top_time max_per_op is no longer about which came first."""
    with record(tmp_path / "pack", top_time=1.0, max_per_op=1) as recording:
        for seconds in (1.0, 3.0, 2.0):
            clocked.takes(torch.ones(2), seconds)
    assert [trace.call.arguments[1].value.value for trace in recording.pack.traces] == [(3.0).hex()]


@pytest.mark.parametrize("tier", ["shapes", "recipe", "full"])
def test_a_backward_is_timed_on_its_recorded_inputs(clocked: ModuleType, tmp_path: Path, tier: str) -> None:
    """Autograd runs it unseen; its own time, without the forward, counts for it."""
    x = torch.randn(4, requires_grad=True)
    with record(tmp_path / "pack", top_time=0.5, backward=True, tier=tier) as recording:
        clocked.differentiable(x).square().sum().backward()
    (trace,) = recording.pack.traces
    assert trace.call.op == f"{clocked.__name__}.differentiable@backward(x)"
    assert recording.outcome.share == pytest.approx(5 / 5.01)


def test_the_time_of_all_lengths_counts_for_those_that_are_kept(clocked: ModuleType, tmp_path: Path) -> None:
    """Twenty short steps of a generation are longer than one long call."""
    with record(tmp_path / "pack", top_time=0.6) as recording:
        clocked.takes(torch.ones(3), 8.0)
        for length in range(1, 21):
            clocked.step(torch.ones(length))
    assert {trace.call.op.rpartition(".")[2] for trace in recording.pack.traces} == {"step"}
    assert sum(trace.count for trace in recording.pack.traces) == 20


def test_backwards_of_all_lengths_count_too(clocked: ModuleType, tmp_path: Path) -> None:
    """Those whose content was given up meanwhile take what the others do: 30 times 5 seconds of 30 times 5.01."""
    with record(
        tmp_path / "pack", top_time=0.9, backward=True, ops=[f"{clocked.__name__}.differentiable"]
    ) as done:
        for length in range(2, 32):
            clocked.differentiable(torch.ones(length, requires_grad=True)).sum().backward()
    assert {"@" in trace.call.op for trace in done.pack.traces} == {True}
    assert sum(trace.count for trace in done.pack.traces) == 30
    assert done.outcome.share == pytest.approx(5 / 5.01)


@pytest.mark.parametrize("share", [0, -0.1, 1.5, 80])
def test_a_share_that_is_none_fails_before_the_model_runs(tmp_path: Path, share: float) -> None:
    """top_time lies within (0, 1]."""
    with pytest.raises(RecordError, match=rf"top_time is {share}, .*\n→ use a number above 0"):
        record(tmp_path / "pack", top_time=share)


def test_without_top_time_nothing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is not read for each call."""
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("the clock was read"))
    with record(tmp_path / "pack"):
        F.gelu(torch.ones(2))
        F.gelu(torch.ones(2))
