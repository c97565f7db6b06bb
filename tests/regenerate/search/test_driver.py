"""A search from its first question to what is accepted, over a gate whose verdicts a test decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.config.llm import Budget
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.core.options import POLICIES
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.regenerate.attempt import Finding, Result, Trial
from pytest_cgins.regenerate.conversation import Answer, Request
from pytest_cgins.regenerate.search import verifiers
from tests.regenerate import journals
from tests.regenerate.search.oracle import (
    MAIN,
    MEANS,
    VERIFIED,
    Model,
    Oracle,
    answer,
    searched,
    source,
    time_of,
)


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_faster_is_found_and_accepted_once_more(name: str, tmp_path: Path) -> None:
    """The best candidate is measured again on fresh blocks, at a share of alpha by how many were timed."""
    gate = Oracle()
    model = Model(lambda request, number: answer(source(1000 * 0.9**number), "vectorized-loads"))
    result = searched(tmp_path, gate, model, name)
    assert result.state == "accepted", result.why
    accepted = [one for one in result.attempts if one.outcome == "accepted"]
    assert [one.trials[-1].stage for one in accepted] == ["acceptance"]
    assert accepted[0].number == max(one.number for one in result.attempts if one.beats_champion)
    assert accepted[0].time_ratio == pytest.approx(0.9 ** accepted[0].number)
    assert accepted[0].methods == ("vectorized-loads",)
    assert gate.accepted == [pytest.approx(1 / sum(1 for one in result.attempts if one.is_right))]
    kept = tmp_path / ".cgins/runs" / journals.RUN / "scale-cpu-cpp" / "final" / MAIN
    assert time_of(kept.read_text()) == pytest.approx(1000 * 0.9 ** accepted[0].number)


@pytest.mark.parametrize("name", POLICIES)
def test_the_incumbent_with_other_names_is_never_accepted(name: str, tmp_path: Path) -> None:
    """However often it is sent."""
    gate = Oracle()
    model = Model(lambda request, number: answer(source(1000, note=f"renamed {number}")))
    result = searched(tmp_path, gate, model, name, attempts=40)
    assert (result.state, gate.accepted) == ("failed", [])
    assert result.why.startswith(f"nothing faster in {len(result.attempts)} candidate")


def test_luck_does_not_survive_the_second_measurement(tmp_path: Path) -> None:
    """A champion that is not faster on fresh blocks is not accepted; the one before it is tried."""
    gate = Oracle()
    gate.lucky = {999.0}
    times = {1: 800.0, 2: 999.0}
    model = Model(lambda request, number: answer(source(times.get(number, 1500.0), note=str(number))))
    result = searched(tmp_path, gate, model, "refine", attempts=3)
    assert result.state == "accepted"
    assert {one.number: one.outcome for one in result.attempts} == {
        1: "accepted",
        2: "not-accepted",
        3: "right",
    }
    assert result.attempts[1].reason == "not-faster"


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("moves_at", [1, 2])
def test_a_search_whose_goalposts_moved_goes_on_when_they_are_back(
    name: str, moves_at: int, tmp_path: Path
) -> None:
    """It stops, names all of them, blames no candidate, and resumed it ends as one that nobody disturbed."""

    def says(request: Request, number: int) -> str:
        return answer(source(1000 * 0.9**number))

    whole = searched(tmp_path / "whole", Oracle(), Model(says), name)
    names = tuple(f"tests/test_{number}.py" for number in range(9))
    looks = iter(range(1, 1000))
    first = searched(
        tmp_path / "cut", Oracle(), Model(says), name,
        moved=lambda _: names if next(looks) >= moves_at else (),
    )  # fmt: skip
    assert first.state == "stopped"
    assert first.why == f"changed since the run began: {', '.join(names)}"
    assert first.remedy.startswith("undo that and resume the run")
    assert "tampered" not in {one.outcome for one in first.attempts}
    result = searched(tmp_path / "cut", Oracle(), Model(says), name)
    assert [(one.number, one.outcome, one.time_ratio) for one in result.attempts] == [
        (one.number, one.outcome, one.time_ratio) for one in whole.attempts
    ]
    assert result.state == whole.state == "accepted"


@pytest.mark.parametrize("undecided", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
def test_nothing_is_accepted_while_a_case_is_undecided(undecided: tuple[int, ...], tmp_path: Path) -> None:
    """A candidate that is faster in some cases may be slower in one of which noise tells nothing, whatever fails the gate."""

    class Noisy(Oracle):
        def accept(self, files: Mapping[str, str], *, goal: str, alpha_share: float) -> Trial:
            trial = super().accept(files, goal=goal, alpha_share=alpha_share)
            verdict = Verdict(status=Status.INCONCLUSIVE, reason=Reason.NOISE, message="noisy", numbers={})
            told = [
                replace(one, verdict=verdict) if place in undecided else one
                for place, one in enumerate(trial.evaluations)
            ]
            return replace(trial, evaluations=tuple(told))

    gate = Noisy()
    gate.cases = ("f32-2x3-0001", "f32-8x3-0002", "f32-9x3-0003")
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    result = searched(tmp_path, gate, model, "refine", attempts=2)
    assert result.state == "failed"
    tried = [one for one in result.attempts if one.outcome == "not-accepted"]
    assert [one.reason for one in tried] == ["noise", "noise"]
    assert tried[0].message.count("INCONCLUSIVE (noise): noisy") == len(undecided)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("provider", "stops_after"),
    [
        ("replay", 1),
        ("compatible", 3),
        ("compatible", 8),
        pytest.param("replay", 5, marks=pytest.mark.exam),
        pytest.param("replay", 8, marks=pytest.mark.exam),
        pytest.param("compatible", 5, marks=pytest.mark.exam),
    ],
)
def test_a_search_that_is_cut_off_ends_as_one_that_is_not(
    name: str, stops_after: int, provider: str, tmp_path: Path
) -> None:
    """Resumed, it asks for the same, tries nothing twice and accepts the same candidate."""

    def says(request: Request, number: int) -> str:
        if request.role == "verifier":
            return "compiles: 90%\nmemory: 80%\nnumbers: 70%"
        return answer(source(1000 - 10 * number, note=str(number), wrong=number % 3 == 0), "tiling")

    asked: dict[str, Any] = {
        "models": VERIFIED,
        "provider": provider,
        "means": replace(MEANS, budget=Budget(side_by_side=2)),
    }
    whole = searched(tmp_path / "whole", Oracle(), Model(says), name, **asked)
    gate = Oracle()
    first = Model(says, stops_after)
    if len(whole.attempts) > 1:
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "cut", gate, first, name, **asked)
    second = Model(says)
    result = searched(tmp_path / "cut", gate, second, name, **asked)

    def told(one: Result) -> list[Any]:
        return [(a.number, a.ask, a.outcome, a.methods, a.time_ratio, a.rank) for a in one.attempts]

    assert told(result) == told(whole)
    assert len(gate.tried) == len(set(gate.tried))


@pytest.mark.parametrize("name", ["mcts", "evolve"])
def test_a_server_is_asked_ahead(name: str, tmp_path: Path) -> None:
    """What comes next is asked for before the last is tried, of a tree in which that is not known; by hand it is not."""

    def asked_before_a_trial(provider: str) -> list[int]:
        numbers: list[int] = []

        class Counted(Oracle):
            def check(self, files: Mapping[str, str]) -> Trial:
                counts.append(len(set(numbers)))
                return super().check(files)

        def says(request: Request, number: int) -> str:
            numbers.append(number)
            return answer(source(1000 - 10 * number, note=str(number)))

        counts: list[int] = []
        result = searched(tmp_path / provider, Counted(), Model(says), name, provider=provider, means=means)
        assert (result.state, len(result.attempts)) == ("accepted", 12)
        return counts

    means = replace(MEANS, budget=Budget(side_by_side=6))
    assert asked_before_a_trial("replay") == [6] * 6 + [12] * 6
    assert asked_before_a_trial("compatible") == [12] * 12


def test_what_cannot_be_asked_ahead_is_asked_in_its_turn(tmp_path: Path) -> None:
    """A provider that fails, or a budget that has no room while others are under way, ends no search by that."""
    failed: set[str] = set()

    class Failing(Model):
        def ask(self, request: Request, place: Path) -> Answer | None:
            if "attempt-0" not in request.id and request.id not in failed:
                failed.add(request.id)
                raise ProviderError("not now", remedy="wait")
            return super().ask(request, place)

    model = Failing(lambda _, number: answer(source(1000 - 10 * number, note=str(number))))
    means = replace(MEANS, budget=Budget(side_by_side=9))
    result = searched(tmp_path, Oracle(), model, "mcts", provider="compatible", means=means)
    assert (result.state, len(result.attempts), len(failed)) == ("accepted", 12, 3)


@pytest.mark.parametrize("name", ["branch", "evolve"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_batch_that_is_cut_off_goes_on_against_the_same_champion(
    name: str, cut: int, tmp_path: Path
) -> None:
    """What of a batch was timed before the end counts for the rest of it, in the order in which these are tried."""

    class Cut(Oracle):
        def times(self, files: Mapping[str, str], champion: Mapping[str, str] | None) -> Trial:
            if len(self.tried) > cut:
                raise KeyboardInterrupt
            return super().times(files, champion)

    def says(request: Request, number: int) -> str:
        share = 95 - 10 * (number % 3)
        if request.role == "verifier":
            return f"compiles: {share}%\nmemory: {share}%\nnumbers: {share}%"
        return answer(source(1000 - 50 * number, note=str(number)))

    asked = {"attempts": 4, "models": VERIFIED}
    whole = searched(tmp_path / "whole", Oracle(), Model(says), name, **asked)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "cut", Cut(), Model(says), name, **asked)
    result = searched(tmp_path / "cut", Oracle(), Model(says), name, **asked)

    def told(one: Result) -> list[Any]:
        return [(a.number, a.outcome, a.message, a.time_ratio, a.beats_champion) for a in one.attempts]

    assert told(result) == told(whole)
    assert sum(one.beats_champion for one in whole.attempts) > 1


def test_all_candidates_of_a_batch_are_begun_at_once(tmp_path: Path) -> None:
    """In the order in which they are tried, beside the best one until then; what is no candidate is left out."""
    gate = Oracle()
    model = Model(lambda request, number: "no source" if number == 2 else answer(source(1000 - number)))
    searched(tmp_path, gate, model, "branch", attempts=8)
    assert [[time_of(one[MAIN]) for one in batch] for batch, _ in gate.begun] == [
        [999.0, 997.0, 996.0],
        [995.0, 994.0, 993.0, 992.0],
    ]
    assert [champion for _, champion in gate.begun] == [None, None]
    assert len(gate.tried) == 7


def test_a_budget_that_is_used_up_leaves_what_was_found(tmp_path: Path) -> None:
    """The best candidate until then is accepted; nothing more is asked."""
    gate = Oracle()
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    result = searched(tmp_path, gate, model, "refine", budget=Budget(tokens=330))
    assert result.state == "accepted"
    assert 0 < len(model.asked) < 10


def test_verifiers_order_the_queue_and_are_scored(tmp_path: Path) -> None:
    """What they doubt most is not tried, and their word is held against the gate's."""

    def says(request: Request, number: int) -> str:
        if request.role == "verifier":
            share = 10 if "wrong" in request.messages[0].text else 90
            return f"compiles: {share}%\nmemory: {share}%\nnumbers: {share}%\n"
        return answer(source(1000 - number, note=str(number), wrong=number % 2 == 0))

    gate = Oracle()
    result = searched(tmp_path, gate, Model(says), "evolve", attempts=6, models=VERIFIED)
    outcomes = {one.number: one.outcome for one in result.attempts}
    assert [number for number, outcome in outcomes.items() if outcome == "not-tried"] == [4, 6]
    assert outcomes[2] == "failed"
    found = verifiers.score(result.attempts)
    assert (found.right_and_said_so, found.wrong_and_said_right) == (3, 0)
    assert (found.wrong_and_doubted, found.precision, found.recall) == (1, 1.0, 1.0)


def test_what_the_static_check_refuses_is_no_candidate(tmp_path: Path) -> None:
    """It is not tried, and the next prompt mends it."""
    gate = Oracle()

    def check(sources: Mapping[str, str]) -> tuple[Finding, ...]:
        bad = "calls torch" in sources[MAIN]
        return (Finding(code="calls-op", file=MAIN, line=1, message="calls the op"),) if bad else ()

    model = Model(lambda request, number: answer(source(900, note="calls torch" if number == 1 else "own")))
    result = searched(tmp_path, gate, model, "single-shot", check=check)
    assert [(one.outcome, one.reason) for one in result.attempts] == [
        ("refused", "calls-op"),
        ("accepted", "ok"),
    ]
    assert (result.attempts[1].ask.kind, result.attempts[1].ask.parent) == ("fix", 1)


def test_profilers_are_asked_once_a_kernel_and_not_before_its_structure_has_settled(tmp_path: Path) -> None:
    """`refine` shows nothing of them in its first step; then each champion is profiled."""
    gate = Oracle()
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    searched(tmp_path, gate, model, "refine", attempts=4)
    assert gate.profiled == [pytest.approx(1000 * 0.9**number) for number in (1, 2, 3)]


def test_a_kernel_near_its_peak_ends_the_search(tmp_path: Path) -> None:
    """There is little left to win; what was found is accepted."""
    gate = Oracle()
    gate.peak = 850.0
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    result = searched(tmp_path, gate, model, "refine")
    assert result.state == "accepted"
    assert len(result.attempts) == 2
