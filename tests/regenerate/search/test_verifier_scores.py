"""Opinions of verifiers, each held against what the gate found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app import cli
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.conversation import Message, Request
from pytest_cgins.regenerate.search.verifiers import rank, scores, truths
from tests.evaluations import make_evaluation
from tests.regenerate import journals

TARGET = journals.target("scale", goal="optimise")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Four candidates: right, right, wrong numbers, not built; a fifth was not tried. Two models say something of each."""
    made = journals.journal(tmp_path / "cgins.yaml", TARGET)
    right = {"trials": (journals.trial(make_evaluation(Status.PASSED)),)}
    wrong = {"trials": (journals.trial(make_evaluation(Status.INCORRECT, reason=Reason.GOLD_MISMATCH)),)}
    unbuilt = {"trials": (journals.trial(make_evaluation(Status.BUILD_ERROR, reason=Reason.COMPILER)),)}
    candidates: list[tuple[dict[str, Any], str, str]] = [
        ({**right, "time_ratio": 0.9}, "90 20 90", "90 90 90"),
        ({**right, "time_ratio": 0.8}, "90 30 90", "10 90 90"),
        (wrong, "90 60 80", "90 90 0"),
        (unbuilt, "90 10 10", "10 10 10"),
        ({}, "90 90 90", "90 90 90"),
    ]
    for number, (changes, *opinions) in enumerate(candidates, 1):
        journals.attempt(made, TARGET, number, "right", **changes)
        for index, (model, text) in enumerate(zip(("eager", "keen"), opinions, strict=True), 1):
            lines = [
                f"{name}: {share}%"
                for name, share in zip(("compiles", "memory", "numbers"), text.split(), strict=True)
            ]
            asked = Request(
                id=f"{TARGET.name}/attempt-{number:02d}/verifier-{index}",
                role="verifier", model=model, messages=(Message(role="user", text="?"),), max_tokens=100,
            )  # fmt: skip
            made.place(asked)
            journals.answer(made, asked, "\n".join(lines))
    return made


def test_each_model_and_question_has_its_score(run: Any) -> None:
    """What was not built tells nothing of memory and numbers; what was not tried, nothing at all."""
    found = {(one.model, one.question): one.score for one in scores(run)}
    assert len(found) == 6
    eager = found["eager", "compiles"]
    assert (eager.precision, eager.recall) == (3 / 4, 1.0)
    memory = found["eager", "memory"]
    assert (memory.right_and_said_so, memory.right_and_doubted) == (1, 2)
    assert (memory.precision, memory.recall) == (1.0, 1 / 3)
    numbers = found["keen", "numbers"]
    assert (numbers.precision, numbers.recall, numbers.wrong_and_doubted) == (1.0, 1.0, 1)
    keen = found["keen", "compiles"]
    assert (keen.right_and_said_so, keen.right_and_doubted, keen.wrong_and_doubted) == (2, 1, 1)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (Status.BUILD_ERROR, Reason.COMPILER, {"compiles": False}),
        (Status.RUNTIME_ERROR, Reason.ILLEGAL_ADDRESS, {"compiles": True, "memory": False}),
        (Status.INCORRECT, Reason.RACECHECK, {"compiles": True, "memory": False}),
        (Status.INCORRECT, Reason.MEMORY_LEAK, {"compiles": True, "memory": True}),
        (Status.INCORRECT, Reason.REFERENCE_MISMATCH, {"compiles": True, "memory": True, "numbers": False}),
        (Status.TIMEOUT, Reason.TIMED_OUT, {"compiles": True, "memory": True}),
    ],
)
def test_what_the_gate_found_is_the_truth(
    tmp_path: Path, status: Status, reason: Reason, expected: dict[str, bool]
) -> None:
    """Each verdict answers the questions that it got to."""
    made = journals.journal(tmp_path / "cgins.yaml", TARGET)
    trials = (journals.trial(make_evaluation(status, reason=reason)),)
    assert truths(journals.attempt(made, TARGET, 1, trials=trials)) == expected


def test_the_command_prints_a_table(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A row a model and question, in the order in which they are asked."""
    assert cli.main(["runs", "verifiers", "--runs", str(run.folder.parent)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[:2] for line in lines] == [
        [model, question] for model in ("eager", "keen") for question in ("compiles", "memory", "numbers")
    ]
    assert lines[1][2:4] == ["100%", "33%"]


def test_a_rank_is_the_chance_that_all_holds() -> None:
    """One doubt is not outvoted by other questions; several models are averaged, and who says nothing is left out."""
    sure, doubtful = "compiles: 100%\nmemory: 90%\nnumbers: 90%", "compiles: 100%\nmemory: 100%\nnumbers: 20%"
    assert rank([sure]) == pytest.approx(0.81)
    assert rank([doubtful]) == pytest.approx(0.2)
    assert rank([sure, doubtful, "no idea"]) == pytest.approx(0.505)
    assert rank(["no idea"]) == 0.5
