"""Whose turn it is among the targets of a run."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

from pytest_cgins.config.llm import Budget
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal import Journal, RunRecord
from pytest_cgins.regenerate.loop import Loop
from pytest_cgins.regenerate.model import Answer, Message, Request, Result, Target
from pytest_cgins.regenerate.repair import Repair

TARGET = Target(kernel="k", implementation="cpp", device="cpu", op="o", contract="launcher", goal="repair")


class Asks:
    """The steps of a target that asks once; the gate has no part in whose turn it is."""

    target = TARGET

    def steps(self) -> Generator[Request, Answer, Result]:
        text = Message(role="user", text="write")
        yield Request(
            id="k-cpu-cpp/attempt-01/generator", role="generator", model="m", messages=(text,), max_tokens=9
        )
        raise AssertionError("nobody answers")

    def ended_early(self, state: Any, why: str) -> Result:
        return Result(target=TARGET, state=state, attempts=(), why=why)


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


def test_minutes_end_a_run_that_waits(tmp_path: Path) -> None:
    """An answer that does not come in the minutes of the budget is not waited for any longer."""
    record = RunRecord(
        version=1,
        id="r",
        created_at="",
        cgins="",
        config="",
        targets=(TARGET,),
        provider="compatible",
        models={},
    )
    silent = Silent()
    ledger = Ledger(Budget(tokens=None, minutes=5.0), {}, clock=lambda: silent.now)
    with Journal.create(tmp_path, record) as journal:
        (result,) = Loop([cast(Repair, Asks())], journal, silent, ledger).run()
    assert result.state == "stopped"
    assert "5.0 of 5 minutes have passed, none are left for the answers that are awaited" in result.why
    assert silent.now == 300.0
