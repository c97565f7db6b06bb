"""What candidates teach about methods, in a tree that is given, and over whole searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.methods.sass_signature import Shown
from pytest_cgins.regenerate.search.lessons import lessons
from pytest_cgins.regenerate.search.tree import Tree
from tests.evaluations import make_evaluation
from tests.regenerate import journals
from tests.regenerate.search.oracle import SITUATION, TARGET, Model, Oracle, answer, searched, source


def candidate(number: int, ratio: float | None, methods: Sequence[str] = (), **fields: Any) -> Attempt:
    """A candidate of round 1 of the incumbent, if nothing else is said."""
    ask = Ask(
        parent=fields.pop("parent", 0),
        kind=fields.pop("kind", "optimise"),
        round=fields.pop("round", 1),
        method=fields.pop("method", ""),
    )
    return Attempt(
        number=number, goal="optimise", outcome="right" if ratio is not None else "failed", reason="", message="",
        ask=ask, time_ratio=ratio, methods=tuple(methods), **fields,
    )  # fmt: skip


def learned(*candidates: Attempt, marks: dict[int, dict[str, Shown]] | None = None) -> dict[str, Tried]:
    """By method."""
    return {one.method: one for one in lessons(Tree(candidates), marks or {}, SITUATION, run="r")}


def test_several_methods_at_once_teach_nothing_of_any_of_them() -> None:
    """A candidate that is faster by two methods may owe it to one."""
    assert learned(candidate(1, 0.5, ["a", "b"], beats_champion=True)) == {}


def test_a_step_that_adds_one_method_is_its_proof() -> None:
    """What the parent lacks is what made the difference; how much it is worth is the ratio of their times."""
    first = candidate(1, 0.8, ["a"], beats_champion=True)
    second = candidate(2, 0.4, ["b"], parent=1, round=2, beats_champion=True)
    marks: dict[int, dict[str, Shown]] = {1: {"a": "present"}, 2: {"b": "present"}}
    found = learned(first, second, marks=marks)
    assert {name: (one.result, one.slowdown_without) for name, one in found.items()} == {
        "a": ("effective", pytest.approx(1.25)),
        "b": ("effective", pytest.approx(2.0)),
    }


def test_a_step_from_a_kernel_that_was_not_the_best_proves_nothing() -> None:
    """It was timed against the champion, and not against its parent."""
    first = candidate(1, 0.8, ["a"], beats_champion=True)
    aside = candidate(2, 0.9, (), parent=0, round=2)
    third = candidate(3, 0.7, ["b"], parent=2, round=3, beats_champion=True)
    assert set(learned(first, aside, third)) == {"a"}


def test_a_mending_has_the_methods_of_what_it_mends() -> None:
    """Its answer need not name them again; the kernel that both were made from lacks them."""
    wrong = candidate(1, None, ["a"])
    mended = candidate(2, 0.5, parent=1, kind="fix", beats_champion=True)
    found = learned(wrong, mended, marks={2: {"a": "present"}})
    assert (found["a"].result, found["a"].slowdown_without) == ("effective", pytest.approx(2.0))
    tree = Tree((wrong, mended, candidate(3, 0.4, ["b"], parent=2, round=2)))
    assert (tree.added(3), tree.applied(3)) == (("b",), ("a", "b"))


def test_what_its_round_brought_nothing_by_is_ineffective() -> None:
    """A method that is in the code of a kernel that is right, and gains nothing, is not to be repeated."""
    found = learned(candidate(1, 1.01, ["a"]), marks={1: {"a": "present"}})
    assert found["a"].result == "ineffective"
    assert found["a"].note == "nothing in its round was faster"


def test_a_branch_beside_a_champion_teaches_nothing() -> None:
    """It may be the tile that was wrong: its sibling with the same method was faster."""
    champion = candidate(1, 0.5, ["a", "b"], beats_champion=True)
    assert learned(champion, candidate(2, 1.1, ["a", "b"])) == {}


def test_what_machine_code_does_not_have_was_not_implemented() -> None:
    """That is known without any time; of a faster kernel, too."""
    found = learned(
        candidate(1, 0.5, ["a", "b"], beats_champion=True), marks={1: {"a": "absent", "b": "present"}}
    )
    assert {name: one.result for name, one in found.items()} == {"a": "implementation-failed"}


def test_wrong_candidates_teach_nothing() -> None:
    """What is wrong says nothing of what it wanted."""
    assert learned(candidate(1, None, ["a"])) == {}


@pytest.mark.parametrize(
    ("status", "reason", "ratio", "shown", "result", "proven"),
    [
        (Status.SLOWER, Reason.SLOWER_THAN_BASE, 0.9, "present", "effective", True),
        (Status.SLOWER, Reason.SLOWER_THAN_BASE, 0.9, "unknown", "unknown", True),
        (Status.INCORRECT, Reason.GOLD_MISMATCH, None, "present", "effective", True),
        (Status.BUILD_ERROR, Reason.COMPILER, None, "present", "ineffective", None),
    ],
)
def test_an_ablation_says_what_a_method_is_worth(
    status: Status, reason: Reason, ratio: float | None, shown: Shown, result: str, proven: bool | None
) -> None:
    """Slower or wrong without it: it contributes; what was not built says nothing, and so nothing for it."""
    champion = candidate(1, 0.6, ["a", "b"], beats_champion=True)
    without = candidate(
        2, ratio, parent=1, kind="ablate", method="a",
        trials=(journals.trial(make_evaluation(status=status, reason=reason)),),
    )  # fmt: skip
    found = learned(champion, without, marks={1: {"a": shown}})
    assert set(found) == {"a"}
    assert (found["a"].result, found["a"].proven) == (result, proven)
    assert found["a"].slowdown_without == (pytest.approx(1.5) if ratio else None)


def test_a_search_remembers_and_a_resumed_one_says_the_same(tmp_path: Path) -> None:
    """`branch` leaves each method of its champion out; what follows lies in the journal, and is told once more after."""

    def said(request: Any, number: int) -> str:
        prompt = request.messages[0].text
        if prompt.startswith("ablate"):
            return answer(source(900 + number, note="sass: vectorized-loads"))
        return answer(source(600 + number, note="sass: vectorized-loads"), "vectorized-loads")

    gate = Oracle()
    searched(tmp_path, gate, Model(said), "branch", attempts=5)
    with Journal.resume(tmp_path / ".cgins" / "runs" / journals.RUN) as journal:
        known = journal.tried(TARGET)
    assert [(one.method, one.result, one.run, one.round) for one in known] == [
        ("vectorized-loads", "effective", journals.RUN, 1)
    ]
    assert known[0].slowdown_without == pytest.approx(905 / 601, rel=0.01)


def test_complaints_about_a_choice_are_kept(tmp_path: Path) -> None:
    """They are told, and the candidate is tried in any case."""
    model = Model(lambda request, number: answer(source(900), "not-offered"))
    (attempt,) = searched(tmp_path, Oracle(), model, "single-shot").attempts
    assert attempt.complaints == ("it is not offered",)
    assert attempt.outcome == "accepted"
