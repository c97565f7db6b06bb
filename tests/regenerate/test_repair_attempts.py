"""How long a repair goes on: so many answers, each with advice between, and the first that is accepted ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pytest_cgins.config.llm import Budget, LlmSettings, Models
from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal.journal import Found, Journal
from pytest_cgins.regenerate.judgement import Goalposts
from pytest_cgins.regenerate.loop import Loop
from pytest_cgins.regenerate.model import Guarded, Request, Result
from pytest_cgins.regenerate.search.policies import policy
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.target_loop import TargetLoop
from pytest_cgins.regenerate.trial import Bench
from tests.regenerate import journals
from tests.regenerate.search import oracle

TARGET = replace(oracle.TARGET, goal="repair")


def repaired(
    folder: Path,
    make: Callable[..., Evaluation],
    right_at: int,
    attempts: int = Budget().repair_attempts,
    stops_after: int = 10**6,
) -> tuple[Result, list[Request]]:
    """What becomes of it if the answer of that number is right; a run that is there goes on."""
    if not (folder / ".cgins").exists():
        journals.journal(folder / "cgins.yaml", TARGET)
    bench = oracle.Oracle(make)
    model = oracle.Model(
        lambda request, number: (
            "look at the tail"
            if request.role == "helper"
            else oracle.answer(oracle.source(1000, note=str(number), wrong=number != right_at))
        ),
        stops_after,
    )
    with Journal.resume(folder / ".cgins" / "runs" / journals.RUN) as journal:
        journal.begin(TARGET, Found(evaluations=()), oracle.INCUMBENT, Guarded(files={}))
        repair = TargetLoop(
            TARGET, journal, cast(Bench, bench), oracle.Writes(),
            policy("repair", Means(models=("g", "h")), attempts),
            settings=LlmSettings(
                provider="replay", models=Models(helper=("helper",)), budget=Budget(repair_attempts=attempts), runs=folder
            ),
            incumbent=oracle.INCUMBENT, check=lambda _: (),
            goalposts=Goalposts(moved=lambda _: (), touched=lambda: ()),
            on_event=lambda _: None,
        )  # fmt: skip
        (result,) = Loop([repair], journal, model, Ledger(Budget(), {})).run()
    return result, model.asked


def test_five_attempts_and_no_more(tmp_path: Path, make_evaluation: Callable[..., Evaluation]) -> None:
    """By default five answers are asked for; each but the last is followed by the helper's advice, which the next prompt has."""
    result, asked = repaired(tmp_path, make_evaluation, right_at=99)
    assert (result.state, len(result.attempts)) == ("failed", 5)
    assert "no valid kernel in 5 attempts" in result.why
    assert [one.role for one in asked] == ["generator", "helper"] * 4 + ["generator"]
    told = [one.messages[0].text for one in asked if one.role == "generator"]
    assert told == [f"{number} attempts, {number} advices" for number in range(5)]
    assert [one.model for one in asked if one.role == "generator"] == ["g", "h", "g", "h", "g"]


@pytest.mark.parametrize("right_at", [1, 3, 5])
def test_the_first_right_answer_ends_it(
    tmp_path: Path, make_evaluation: Callable[..., Evaluation], right_at: int
) -> None:
    """Nothing is asked for after it."""
    result, asked = repaired(tmp_path, make_evaluation, right_at)
    assert (result.state, len(result.attempts)) == ("accepted", right_at)
    assert sum(one.role == "generator" for one in asked) == right_at


def test_a_run_of_a_former_version_goes_on(
    tmp_path: Path, make_evaluation: Callable[..., Evaluation]
) -> None:
    """Former versions kept with an attempt of a repair nothing of what was asked for."""
    with pytest.raises(KeyboardInterrupt):
        repaired(tmp_path, make_evaluation, right_at=4, stops_after=4)
    kept = sorted(tmp_path.rglob("attempt.json"))
    assert len(kept) == 2
    for file in kept:
        attempt = json.loads(file.read_text(encoding="utf-8"))
        assert attempt.pop("ask")
        file.write_text(json.dumps(attempt), encoding="utf-8")
    result, asked = repaired(tmp_path, make_evaluation, right_at=4)
    assert (result.state, len(result.attempts)) == ("accepted", 4)
    told = [request.messages[0].text for request in asked if request.role == "generator"]
    assert told == ["2 attempts, 2 advices", "3 attempts, 3 advices"]
