"""How long a repair goes on: so many answers, each with advice between, and the first that is accepted ends it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.config.llm import Budget, Models
from pytest_cgins.regenerate.attempt import Ask, Result
from pytest_cgins.regenerate.conversation import Request
from pytest_cgins.regenerate.judgement import Screen
from pytest_cgins.regenerate.search.policy import Means
from tests.regenerate.answers import answer as answer_of
from tests.regenerate.search import oracle

TARGET = replace(oracle.TARGET, goal="repair")


def repaired(
    folder: Path,
    right_at: int,
    stops_after: int = 10**6,
    *,
    side_by_side: int = 1,
    unread: Collection[int] = (),
) -> tuple[Result, list[Request]]:
    """What becomes of it if the answer of that number is right, and some cannot be read; a run that is there goes on."""

    def says(request: Request, number: int) -> str:
        if request.role == "helper":
            return "look at the tail"
        if number in unread:
            return f"no source {number}"
        return oracle.answer(oracle.source(1000, note=str(number), wrong=number != right_at))

    model = oracle.Model(says, stops_after)
    result = oracle.searched(
        folder, oracle.Oracle(), model, "repair", target=TARGET, attempts=Budget().repair_attempts,
        models=Models(helper=("helper",)), means=Means(models=("g", "h"), budget=Budget(side_by_side=side_by_side)),
    )  # fmt: skip
    return result, model.asked


def test_answers_side_by_side_come_first(tmp_path: Path) -> None:
    """Of the first ones the first right one is accepted, and what is beside it not tried; nobody is asked for advice."""
    result, asked = repaired(tmp_path, right_at=2, side_by_side=3)
    assert result.state == "accepted"
    told = [(attempt.outcome, attempt.reason) for attempt in result.attempts]
    assert told == [("failed", "gold-mismatch"), ("accepted", "ok"), ("not-tried", "not-needed")]
    assert result.attempts[2].message == "attempt 2 was accepted before it"
    assert [one.role for one in asked] == ["generator"] * 3
    assert [one.messages[0].text for one in asked] == ["0 attempts, 0 advices"] * 3
    asks = [attempt.ask for attempt in result.attempts]
    assert [bool(ask.variant) for ask in asks] == [False, True, True]


def test_the_most_promising_of_the_first_is_gone_on_with(tmp_path: Path) -> None:
    """It is mended with advice, and what follows is mended in turn."""
    result, asked = repaired(tmp_path, right_at=5, side_by_side=3, unread=(1, 3))
    assert result.state == "accepted"
    parents = [attempt.ask.parent for attempt in result.attempts]
    assert parents == [0, 0, 0, 2, 4]
    assert [one.role for one in asked] == ["generator"] * 3 + ["helper", "generator"] * 2


def test_five_attempts_and_no_more(tmp_path: Path) -> None:
    """By default five answers are asked for; each but the last is followed by the helper's advice, which the next prompt has."""
    result, asked = repaired(tmp_path, right_at=99)
    assert (result.state, len(result.attempts)) == ("failed", 5)
    assert "no valid kernel in 5 attempts" in result.why
    assert [one.role for one in asked] == ["generator", "helper"] * 4 + ["generator"]
    told = [one.messages[0].text for one in asked if one.role == "generator"]
    assert told == [f"{number} attempts, {number} advices" for number in range(5)]
    assert [one.model for one in asked if one.role == "generator"] == ["g", "h", "g", "h", "g"]


@pytest.mark.parametrize("right_at", [1, 3, 5])
def test_the_first_right_answer_ends_it(tmp_path: Path, right_at: int) -> None:
    """Nothing is asked for after it."""
    result, asked = repaired(tmp_path, right_at)
    assert (result.state, len(result.attempts)) == ("accepted", right_at)
    assert sum(one.role == "generator" for one in asked) == right_at


def test_a_run_of_a_former_version_goes_on(tmp_path: Path) -> None:
    """Former versions kept with an attempt of a repair nothing of what was asked for."""
    with pytest.raises(KeyboardInterrupt):
        repaired(tmp_path, right_at=4, stops_after=4)
    kept = sorted(tmp_path.rglob("attempt.json"))
    assert len(kept) == 2
    for file in kept:
        attempt = json.loads(file.read_text(encoding="utf-8"))
        assert attempt.pop("ask")
        file.write_text(json.dumps(attempt), encoding="utf-8")
    result, asked = repaired(tmp_path, right_at=4)
    assert (result.state, len(result.attempts)) == ("accepted", 4)
    told = [request.messages[0].text for request in asked if request.role == "generator"]
    assert told == ["2 attempts, 2 advices", "3 attempts, 3 advices"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The cause:\n the tail.\n```cpp k.cpp\nint a;\n```\nDone.", "The cause: the tail."),
        ("The tail.\n*** Begin Patch\n*** End Patch", "The tail."),
        ('{"k.cpp": "int a;"}', ""),
        ("word " * 1000, ("word " * 1000)[:600]),
    ],
)
def test_what_an_answer_says_before_its_sources_is_kept(text: str, said: str) -> None:
    """The cause that its author gives, for the prompts that follow, also of an answer without a source; no source is taken for it."""
    screen = Screen("repair", {"k.cpp": "int b;"}, lambda _: ())
    ask = Ask(parent=0, kind="fix", round=1)
    assert screen.read(1, ask, answer_of(text), {"k.cpp": "int b;"}).attempt.said == said
