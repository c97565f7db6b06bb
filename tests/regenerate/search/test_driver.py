"""A search from its first question to what is accepted, over a bench whose verdicts a test decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_cgins.config.llm import Budget
from pytest_cgins.measurement import Comparison, Measurement, Power
from pytest_cgins.methods.axis_budget import Gaps
from pytest_cgins.model import Evaluation, Reason, Status
from pytest_cgins.options import POLICIES
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal import Found, Journal
from pytest_cgins.regenerate.judgement import Goalposts
from pytest_cgins.regenerate.loop import Loop
from pytest_cgins.regenerate.model import (
    Answer,
    Ask,
    Finding,
    Guarded,
    Message,
    Request,
    Result,
    Trial,
    Usage,
)
from pytest_cgins.regenerate.search import verifiers
from pytest_cgins.regenerate.search.driver import Search, SearchSettings
from pytest_cgins.regenerate.search.evidence import Evidence
from pytest_cgins.regenerate.search.policies import policy
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.tree import Tree
from pytest_cgins.regenerate.trial import Bench
from tests.regenerate import journals

TARGET = journals.target("scale", goal="optimise")
MAIN = "kernels/scale.cpp"
INCUMBENT = {MAIN: "// time 1000\n"}
MEANS = Means(models=("m",), seed=3)
MakeEvaluation = Callable[..., Evaluation]


def source(time: float, *, note: str = "", wrong: bool = False) -> str:
    """A kernel that takes so long."""
    return f"// time {time}\n// {note}\n{'// wrong' if wrong else ''}\n"


def answer(text: str, picks: str = "") -> str:
    """What a model answers."""
    chosen = f'```json\n{{"picks": [{{"method": "{picks}", "why": "x"}}]}}\n```\n' if picks else ""
    return f"{chosen}```cpp {MAIN}\n{text}```\n"


class Oracle:
    """A bench that knows a kernel's time from its text; `noise` is added to what a comparison tells."""

    def __init__(self, make_evaluation: MakeEvaluation) -> None:
        self._make = make_evaluation
        self.before: dict[str, Status] = {}
        self.tried: list[str] = []
        self.begun: list[tuple[list[Mapping[str, str]], Mapping[str, str] | None]] = []
        self.accepted: list[float] = []
        self.profiled: list[float] = []
        self.peak = 0.0
        self.lucky: set[float] = set()
        """Times that look faster until they are measured again."""

    def begin(self, candidates: Sequence[Mapping[str, str]], champion: Mapping[str, str] | None) -> None:
        self.begun.append((list(candidates), champion))

    def check(self, files: Mapping[str, str]) -> Trial:
        self.tried.append(files[MAIN])
        wrong = "// wrong" in files[MAIN]
        status, reason = (Status.INCORRECT, Reason.GOLD_MISMATCH) if wrong else (Status.PASSED, Reason.OK)
        return self._trial(
            "check", self._make(status, reason=reason, message="wrong numbers" if wrong else "")
        )

    def times(self, files: Mapping[str, str], champion: Mapping[str, str] | None) -> Trial:
        base = time_of((champion or INCUMBENT)[MAIN])
        return self._trial("times", self._timed(time_of(files[MAIN]), base, self.lucky))

    def evidence(self, files: Mapping[str, str], times: Trial | None) -> Evidence:
        self.profiled.append(time_of(files[MAIN]))
        peak = "near its peak" if time_of(files[MAIN]) < self.peak else ""
        return Evidence(case="c", gaps=Gaps(), near_peak=peak, lines=("a figure",))

    def accept(self, files: Mapping[str, str], *, goal: str, alpha_share: float) -> Trial:
        self.accepted.append(alpha_share)
        return self._trial("acceptance", self._timed(time_of(files[MAIN]), time_of(INCUMBENT[MAIN]), set()))

    def _timed(self, own: float, base: float, lucky: set[float]) -> Evaluation:
        ratio = 0.9 if own in lucky else own / base
        status = Status.FASTER if ratio < 0.98 else Status.SLOWER if ratio > 1.02 else Status.PASSED
        return self._make(status, timing=_with(self._make(Status.PASSED).measurement, ratio))

    def _trial(self, stage: Any, evaluation: Evaluation) -> Trial:
        return Trial(
            stage=stage,
            evaluations=(evaluation,),
            environments=(),
            seed=0,
            sandbox=True,
            sanitized=False,
            seconds=0.0,
        )


def time_of(text: str) -> float:
    return float(text.split()[2])


def _with(measured: Measurement | None, ratio: float) -> Measurement:
    assert measured is not None
    outcome: Any = "faster" if ratio < 0.98 else "slower" if ratio > 1.02 else "clean"
    comparison = Comparison(
        against="base", log_ratios=(math.log(ratio),), tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=1,
        most_blocks=100, log_e_slower=0.0, log_e_clean=0.0, log_e_faster=0.0, outcome=outcome, ratio=ratio,
        ratio_low=ratio, ratio_high=ratio, power=Power(sigma=0.01, detectable=0.05, blocks_needed=9),
    )  # fmt: skip
    return replace(measured, comparisons=(comparison,))


class Model:
    """A provider that answers at once; `says` is given each request and the candidate's number."""

    def __init__(self, says: Callable[[Request, int], str], stops_after: int = 10**6) -> None:
        self._says = says
        self.asked: list[Request] = []
        self._left = stops_after

    def ask(self, request: Request, place: Path) -> Answer | None:
        if len(self.asked) >= self._left:
            raise KeyboardInterrupt
        self.asked.append(request)
        number = int(request.id.split("attempt-")[1].partition("/")[0])
        usage = Usage(prompt_tokens=10, cached_tokens=0, answer_tokens=10, usd=None)
        return Answer(text=self._says(request, number), finish="stop", model="m", usage=usage, seconds=0.1)

    def wait(self, timeout_s: float) -> bool:
        return False

    def close(self) -> None:
        pass


class Writes:
    """Prompts that say what was asked, and nothing else."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    def candidate(
        self, ask: Ask, tree: Tree, sources: Callable[[int], Mapping[str, str]], evidence: Evidence | None
    ) -> tuple[Message, ...]:
        self.asks.append(ask)
        return (Message(role="user", text=f"{ask.kind} {sources(ask.parent)[MAIN]}"),)

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        return (Message(role="user", text=sources[MAIN]),)


def searched(
    folder: Path,
    bench: Oracle,
    model: Model,
    name: str,
    *,
    attempts: int = 12,
    verifiers_asked: tuple[str, ...] = ("",),
    budget: Budget = Budget(),  # noqa: B008
    check: Callable[[Mapping[str, str]], tuple[Finding, ...]] = lambda _: (),
) -> Result:
    """What a search comes to; its journal is in `folder`."""
    (folder / "cgins.yaml").parent.mkdir(exist_ok=True, parents=True)
    runs = folder / ".cgins" / "runs"
    if not runs.exists():
        journals.journal(folder / "cgins.yaml", TARGET)
    with Journal.resume(runs / journals.RUN) as journal:
        journal.begin(TARGET, Found(evaluations=()), INCUMBENT, Guarded(files={}))
        search = Search(
            TARGET, journal, cast(Bench, bench), Writes(), policy(name, MEANS, attempts),
            settings=SearchSettings(attempts=attempts, verifiers=verifiers_asked, max_tokens=1000),
            incumbent=INCUMBENT, check=check,
            goalposts=Goalposts(kept=None, now=lambda: Guarded(files={}), touched=lambda: ()),
            on_event=lambda _: None,
        )  # fmt: skip
        (result,) = Loop([search], journal, model, Ledger(budget, {})).run()
    return result


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_faster_is_found_and_accepted_once_more(
    name: str, tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """The best candidate is measured again on fresh blocks, at a share of alpha by how many were timed."""
    bench = Oracle(make_evaluation)
    model = Model(lambda request, number: answer(source(1000 * 0.9**number), "vectorized-loads"))
    result = searched(tmp_path, bench, model, name)
    assert result.state == "accepted", result.why
    accepted = [one for one in result.attempts if one.outcome == "accepted"]
    assert [one.trials[-1].stage for one in accepted] == ["acceptance"]
    assert accepted[0].number == max(one.number for one in result.attempts if one.beats_champion)
    assert accepted[0].time_ratio == pytest.approx(0.9 ** accepted[0].number)
    assert accepted[0].methods == ("vectorized-loads",)
    assert bench.accepted == [pytest.approx(1 / sum(1 for one in result.attempts if one.is_right))]
    kept = tmp_path / ".cgins/runs" / journals.RUN / "scale-cpu-cpp" / "final" / MAIN
    assert time_of(kept.read_text()) == pytest.approx(1000 * 0.9 ** accepted[0].number)


@pytest.mark.parametrize("name", POLICIES)
def test_the_incumbent_with_other_names_is_never_accepted(
    name: str, tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """However often it is sent."""
    bench = Oracle(make_evaluation)
    model = Model(lambda request, number: answer(source(1000, note=f"renamed {number}")))
    result = searched(tmp_path, bench, model, name, attempts=40)
    assert (result.state, bench.accepted) == ("failed", [])
    assert result.why.startswith(f"nothing faster in {len(result.attempts)} candidate")


def test_luck_does_not_survive_the_second_measurement(
    tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """A champion that is not faster on fresh blocks is not accepted; the one before it is tried."""
    bench = Oracle(make_evaluation)
    bench.lucky = {999.0}
    times = {1: 800.0, 2: 999.0}
    model = Model(lambda request, number: answer(source(times.get(number, 1500.0), note=str(number))))
    result = searched(tmp_path, bench, model, "refine", attempts=3)
    assert result.state == "accepted"
    assert {one.number: one.outcome for one in result.attempts} == {
        1: "accepted",
        2: "not-accepted",
        3: "right",
    }
    assert result.attempts[1].reason == "not-faster"


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("stops_after", [1, 3, 5, 8])
def test_a_search_that_is_cut_off_ends_as_one_that_is_not(
    name: str, stops_after: int, tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """Resumed, it asks for the same, tries nothing twice and accepts the same candidate."""

    def says(request: Request, number: int) -> str:
        if request.role == "verifier":
            return "compiles: 90%\nmemory: 80%\nnumbers: 70%"
        return answer(source(1000 - 10 * number, note=str(number), wrong=number % 3 == 0), "tiling")

    whole = searched(tmp_path / "whole", Oracle(make_evaluation), Model(says), name, verifiers_asked=("v",))
    bench = Oracle(make_evaluation)
    first = Model(says, stops_after)
    if len(whole.attempts) > 1:
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "cut", bench, first, name, verifiers_asked=("v",))
    second = Model(says)
    result = searched(tmp_path / "cut", bench, second, name, verifiers_asked=("v",))

    def told(one: Result) -> list[Any]:
        return [(a.number, a.ask, a.outcome, a.methods, a.time_ratio, a.rank) for a in one.attempts]

    assert told(result) == told(whole)
    assert len(bench.tried) == len(set(bench.tried))


@pytest.mark.parametrize("name", ["branch", "evolve"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_batch_that_is_cut_off_goes_on_against_the_same_champion(
    name: str, cut: int, tmp_path: Path, make_evaluation: MakeEvaluation
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

    asked = {"attempts": 4, "verifiers_asked": ("v",)}
    whole = searched(tmp_path / "whole", Oracle(make_evaluation), Model(says), name, **asked)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "cut", Cut(make_evaluation), Model(says), name, **asked)
    result = searched(tmp_path / "cut", Oracle(make_evaluation), Model(says), name, **asked)

    def told(one: Result) -> list[Any]:
        return [(a.number, a.outcome, a.message, a.time_ratio, a.beats_champion) for a in one.attempts]

    assert told(result) == told(whole)
    assert sum(one.beats_champion for one in whole.attempts) > 1


def test_all_candidates_of_a_batch_are_begun_at_once(tmp_path: Path, make_evaluation: MakeEvaluation) -> None:
    """In the order in which they are tried, beside the best one until then; what is no candidate is left out."""
    bench = Oracle(make_evaluation)
    model = Model(lambda request, number: "no source" if number == 2 else answer(source(1000 - number)))
    searched(tmp_path, bench, model, "branch", attempts=8)
    assert [[time_of(one[MAIN]) for one in batch] for batch, _ in bench.begun] == [
        [999.0, 997.0, 996.0],
        [995.0, 994.0, 993.0, 992.0],
    ]
    assert [champion for _, champion in bench.begun] == [None, None]
    assert len(bench.tried) == 7


def test_a_budget_that_is_used_up_leaves_what_was_found(
    tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """The best candidate until then is accepted; nothing more is asked."""
    bench = Oracle(make_evaluation)
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    result = searched(tmp_path, bench, model, "refine", budget=Budget(tokens=330))
    assert result.state == "accepted"
    assert 0 < len(model.asked) < 10


def test_verifiers_order_the_queue_and_are_scored(tmp_path: Path, make_evaluation: MakeEvaluation) -> None:
    """What they doubt most is not tried, and their word is held against the gate's."""

    def says(request: Request, number: int) -> str:
        if request.role == "verifier":
            share = 10 if "wrong" in request.messages[0].text else 90
            return f"compiles: {share}%\nmemory: {share}%\nnumbers: {share}%\n"
        return answer(source(1000 - number, note=str(number), wrong=number % 2 == 0))

    bench = Oracle(make_evaluation)
    result = searched(tmp_path, bench, Model(says), "evolve", attempts=6, verifiers_asked=("v",))
    outcomes = {one.number: one.outcome for one in result.attempts}
    assert [number for number, outcome in outcomes.items() if outcome == "not-tried"] == [4, 6]
    assert outcomes[2] == "failed"
    found = verifiers.score(result.attempts)
    assert (found.right_and_said_so, found.wrong_and_said_right) == (3, 0)
    assert (found.wrong_and_doubted, found.precision, found.recall) == (1, 1.0, 1.0)


def test_what_the_static_check_refuses_is_no_candidate(
    tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """It is not tried, and the next prompt mends it."""
    bench = Oracle(make_evaluation)

    def check(sources: Mapping[str, str]) -> tuple[Finding, ...]:
        bad = "calls torch" in sources[MAIN]
        return (Finding(code="calls-op", file=MAIN, line=1, message="calls the op"),) if bad else ()

    model = Model(lambda request, number: answer(source(900, note="calls torch" if number == 1 else "own")))
    result = searched(tmp_path, bench, model, "single-shot", check=check)
    assert [(one.outcome, one.reason) for one in result.attempts] == [
        ("refused", "calls-op"),
        ("accepted", "ok"),
    ]
    assert result.attempts[1].ask is not None
    assert (result.attempts[1].ask.kind, result.attempts[1].ask.parent) == ("fix", 1)


def test_profilers_are_asked_once_a_kernel_and_not_before_its_structure_has_settled(
    tmp_path: Path, make_evaluation: MakeEvaluation
) -> None:
    """`refine` shows nothing of them in its first step; then each champion is profiled."""
    bench = Oracle(make_evaluation)
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    searched(tmp_path, bench, model, "refine", attempts=4)
    assert bench.profiled == [pytest.approx(1000 * 0.9**number) for number in (1, 2, 3)]


def test_a_kernel_near_its_peak_ends_the_search(tmp_path: Path, make_evaluation: MakeEvaluation) -> None:
    """There is little left to win; what was found is accepted."""
    bench = Oracle(make_evaluation)
    bench.peak = 850.0
    model = Model(lambda request, number: answer(source(1000 * 0.9**number)))
    result = searched(tmp_path, bench, model, "refine")
    assert result.state == "accepted"
    assert len(result.attempts) == 2
