"""How long a repair goes on: so many answers, each with advice between, and the first that is accepted ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pytest_cgins.config.llm import Budget
from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal.journal import Found, Journal
from pytest_cgins.regenerate.judgement import Goalposts
from pytest_cgins.regenerate.loop import Loop
from pytest_cgins.regenerate.model import Advice, Attempt, Guarded, Message, Request, Result
from pytest_cgins.regenerate.repair import Repair, RepairSettings
from pytest_cgins.regenerate.trial import Bench
from tests.regenerate import journals
from tests.regenerate.search import oracle

TARGET = replace(oracle.TARGET, goal="repair")


class Writes:
    """Prompts that say how many attempts and advices they know of."""

    def first(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        return (Message(role="user", text=f"{len(attempts)} attempts, {len(advices)} advices"),)

    advise = first

    def read_advice(self, text: str) -> Advice:
        return Advice(text=text)


def repaired(
    folder: Path, make: Callable[..., Evaluation], right_at: int, attempts: int = Budget().repair_attempts
) -> tuple[Result, list[Request]]:
    """What becomes of it if the answer of that number is right."""
    journals.journal(folder / "cgins.yaml", TARGET)
    bench = oracle.Oracle(make)
    model = oracle.Model(
        lambda request, number: (
            "look at the tail"
            if request.role == "helper"
            else oracle.answer(oracle.source(1000, note=str(number), wrong=number != right_at))
        )
    )
    with Journal.resume(folder / ".cgins" / "runs" / journals.RUN) as journal:
        journal.begin(TARGET, Found(evaluations=()), oracle.INCUMBENT, Guarded(files={}))
        repair = Repair(
            TARGET, journal, cast(Bench, bench), Writes(),
            RepairSettings(
                attempts=attempts, generators=("g", "h"), helpers=("helper",), max_tokens=1000, temperature=None,
                helper_temperature=None,
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
