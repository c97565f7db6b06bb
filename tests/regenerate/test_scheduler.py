"""Whose turn it is among the targets of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pytest_cgins.config.llm import Budget, LlmSettings
from pytest_cgins.core.errors import ProviderError
from pytest_cgins.regenerate import run_status, run_text
from pytest_cgins.regenerate.attempt import Result, Target
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.candidate_gate import CandidateGate
from pytest_cgins.regenerate.conversation import Message, Request, Usage
from pytest_cgins.regenerate.journal.journal import Journal, RunRecord
from pytest_cgins.regenerate.judgement import GuardedFiles
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.scheduler import Scheduler
from pytest_cgins.regenerate.search.policies import policy
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.target_loop import Steps, TargetLoop
from tests.regenerate import journals
from tests.regenerate.search import oracle

TARGET = Target(kernel="k", implementation="cpp", device="cpu", op="o", contract="launcher", goal="repair")


class Asks:
    """The steps of a target that asks once; the gate has no part in whose turn it is."""

    target = TARGET

    done = False

    def steps(self) -> Steps:
        text = Message(role="user", text="write")
        yield (
            Request(
                id="k-cpu-cpp/attempt-01/generator",
                role="generator",
                model="m",
                messages=(text,),
                max_tokens=9,
            ),
        )
        raise AssertionError("nobody answers")

    def ended_early(self, state: Any, why: str, remedy: str = "") -> Result:
        return Result(target=TARGET, state=state, attempts=(), why=why, remedy=remedy)


class Silent:
    """A provider whose answer is always under way; each wait takes a minute of the clock."""

    now = 0.0

    def ask(self, request: Request, place: Path) -> None:
        return None

    def wait(self, timeout_s: float) -> bool:
        self.now += 60.0
        return True

    def close(self) -> None:
        pass


class Failing(Silent):
    """A provider that fails for good, after a try that was lost."""

    def ask(self, request: Request, place: Path) -> None:
        failure = files.Failure(what="gave up", remedy="wait", retry=True, tries=2, usage=LOST)
        files.write_json(place / files.ERROR, failure)
        files.answer_in(place)


LOST = Usage(prompt_tokens=700, cached_tokens=0, answer_tokens=200, usd=0.25)
RECORD = RunRecord(
    version=1, id="r", created_at="", cgins="", config="", targets=(TARGET,), provider="compatible", models={}
)


def _looped(journal: Journal, provider: Silent, ledger: Ledger) -> Result:
    (result,) = Scheduler([cast(TargetLoop, Asks())], journal, provider, ledger).run()
    return result


def test_what_a_failed_request_took_counts_in_a_resumed_run(tmp_path: Path) -> None:
    """Tokens and money of lost answers stay in the books of a run, its budget and its report, when it is resumed."""
    with Journal.create(tmp_path, RECORD) as journal:
        journal.begun()
        ledger = Ledger(Budget(tokens=1000), {})
        assert "gave up" in _looped(journal, Failing(), ledger).why
        assert (ledger.spent().tokens, ledger.spent().usd) == (900, 0.25)
    # The rest of the budget is too small for the prompt's worst case: nothing is asked.
    with Journal.resume(tmp_path / "r") as journal:
        ledger = Ledger(Budget(tokens=920), {})
        result = _looped(journal, Silent(), ledger)
        assert "900 of 920 tokens are spent" in result.why
        assert (ledger.spent().tokens, ledger.spent().usd) == (900, 0.25)
    # With more it is asked again. While that is under way, and if it never comes, the lost tries are known.
    with Journal.resume(tmp_path / "r") as journal:
        silent = Silent()
        ledger = Ledger(Budget(tokens=1000, minutes=5.0), {}, clock=lambda: silent.now)
        stopped = _looped(journal, silent, ledger)
        assert stopped.state == "stopped"
        assert "5.0 of 5 minutes have passed, none are left for the answers that are awaited" in stopped.why
        assert silent.now == 300.0
        assert not (journal.folder / "k-cpu-cpp/attempt-01/generator/error.json").exists()
        assert (ledger.spent().requests, ledger.spent().tokens, ledger.spent().usd) == (1, 900, 0.25)
        taken = run_status.spent_on(journal)
        assert (taken.requests, taken.tokens, taken.usd) == (1, 900, 0.25)


def _repair(journal: Journal) -> TargetLoop:
    return TargetLoop(
        TARGET,
        journal,
        cast(CandidateGate, None),
        oracle.Writes(),
        policy("repair", Means(models=("m",)), 1),
        settings=LlmSettings(provider="replay", max_answer_tokens=900, runs=journal.folder),
        incumbent={"k.cpp": ""},
        check=lambda _: (),
        goalposts=GuardedFiles(moved=lambda _: (), touched=lambda: ()),
        on_event=lambda _: None,
    )


class Ending(Silent):
    """A provider that ends the run; by then nothing is left of why an earlier part ended."""

    def __init__(self, journal: Journal, error: BaseException) -> None:
        self._journal = journal
        self._error = error

    def wait(self, timeout_s: float) -> bool:
        assert self._journal.ended(TARGET) is None
        raise self._error


def test_why_a_target_was_stopped_is_kept_until_the_run_goes_on(tmp_path: Path) -> None:
    """A budget, Ctrl-C or an error: `cgins runs show` tells it with the remedy, and the target is not done by that."""
    (tmp_path / "cgins.yaml").write_text("version: 1\nkernels: {}\n")
    folder = journals.journal(tmp_path / "cgins.yaml", TARGET).folder

    def shown() -> str:
        journal = Journal.read_only(folder)
        assert journal.result(TARGET) is None
        assert run_status.state_of(journal) == "stopped"
        return run_text.whole(journal)

    with Journal.resume(folder) as journal:
        ledger = Ledger(Budget(tokens=100), {})
        (result,) = Scheduler([_repair(journal)], journal, Silent(), ledger).run()
    assert (result.state, result.remedy[:24]) == ("stopped", "raise llm.budget.tokens ")
    for line in (
        "k-cpu-cpp: stopped\n",
        "  stopped     budget.tokens is used up: 0 of 100 tokens are spent, and k-cpu-cpp/attempt-01/generator may ",
        "  remedy      raise llm.budget.tokens in cgins.yaml, and go on with: cgins runs resume\n",
    ):
        assert line in shown()
    for error, words in (
        (KeyboardInterrupt(), "  stopped     interrupted\n"),
        (OSError(28, "no space"), "  stopped     the run ended with OSError: [Errno 28] no space\n"),
        (
            ProviderError("nobody there", remedy="start it"),
            "  stopped     nobody there\n  remedy      start it\n",
        ),
    ):
        with Journal.resume(folder) as journal:
            scheduler = Scheduler([_repair(journal)], journal, Ending(journal, error), Ledger(Budget(), {}))
            with pytest.raises(type(error)):
                scheduler.run()
        assert words in shown()
    with Journal.resume(folder) as journal:
        next(_repair(journal).steps())
    assert "  stopped  " not in shown()
