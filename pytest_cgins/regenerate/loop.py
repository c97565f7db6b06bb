"""All targets of a run: whose answer is there goes on, one at a time, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_cgins.core.errors import BudgetError, CginsError, ProviderError
from pytest_cgins.regenerate import run_status
from pytest_cgins.regenerate.budget import Inquiry, Ledger
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.model import Answer, Request, Result
from pytest_cgins.regenerate.provider.base import Provider
from pytest_cgins.regenerate.target_loop import Steps, TargetLoop

WAIT_S = 1.0
"""How long a provider is waited for before it is asked again."""


class _TargetRun:
    """A target on its way."""

    def __init__(self, work: TargetLoop, inquire: Callable[[Request], Inquiry]) -> None:
        self.work = work
        self.steps: Steps = work.steps()
        self.asked: list[Inquiry] = []
        self.result: Result | None = None
        self._inquire = inquire

    @property
    def open(self) -> list[Inquiry]:
        """Requests without an answer."""
        return [request for request in self.asked if request.answer is None] if self.result is None else []

    def begin(self) -> None:
        """To the first requests, or the end."""
        self._go(lambda: next(self.steps))

    def go_on(self) -> None:
        """With all answers, to the next requests, or the end."""
        answers = tuple(request.answer for request in self.asked if request.answer is not None)
        self._go(lambda: self.steps.send(answers))

    def give_up(self, error: BudgetError) -> None:
        """Without answers: to the end, if it can end with what it has.

        Raises:
            BudgetError: it cannot.
        """
        self._go(lambda: self.steps.throw(error))

    def _go(self, step: Callable[[], tuple[Request, ...]]) -> None:
        self.asked = []
        try:
            self.asked = [self._inquire(request) for request in step()]
        except StopIteration as end:
            self.result = end.value


class Loop:
    """Goes through all targets.

    Args:
        works: the targets.
        journal: of the run.
        provider: answers requests.
        ledger: counts what they take.
        on_wait: called before all wait for an answer: a moment to start processes.
        check: called before each round; what it raises ends the run.
        on_result: told what became of a target that is done; gives it back, with a proposal if there is one. What it
            raises stops that target.
    """

    def __init__(
        self,
        works: Sequence[TargetLoop],
        journal: Journal,
        provider: Provider,
        ledger: Ledger,
        *,
        on_wait: Callable[[], object] = lambda: None,
        check: Callable[[], object] = lambda: None,
        on_result: Callable[[Result], Result] = lambda result: result,
    ) -> None:
        self._running = [
            _TargetRun(work, lambda asked: Inquiry(asked, journal.folder / asked.id, ledger, journal.place))
            for work in works
        ]
        self._journal = journal
        self._provider = provider
        self._ledger = ledger
        self._on_wait = on_wait
        self._check = check
        self._on_result = on_result

    def run(self) -> tuple[Result, ...]:
        """Until each target is done, waits for answers that come by hand, or was stopped."""
        try:
            return self._run()
        except BaseException as error:
            # What ends the run ends its targets. The reason must not hide the error, as where the disk is full.
            with suppress(Exception):
                for run in self._running:
                    if run.result is None:
                        self._stop(run, error)
            raise

    def _run(self) -> tuple[Result, ...]:
        for request, answer in self._journal.answered():
            self._ledger.settle(request, answer)
        for request, usage in run_status.lost(self._journal):
            self._ledger.lose(request, usage)
        for run in self._running:
            self._advance(run, run.begin)
        while any(run.result is None for run in self._running):
            self._check()
            # All that can be asked is, before a candidate is tried: prompts of all kernels go out in one go.
            answered = sum(self._answers(run) for run in self._running)
            ready = [run for run in self._running if run.result is None and not run.open]
            for run in ready:
                self._go_on(run)
            if not answered and not ready and not self._wait():
                break
        return tuple(run.result for run in self._running if run.result is not None)

    def _stop(self, run: _TargetRun, error: BaseException) -> None:
        """Keep why a target goes no further."""
        if isinstance(error, CginsError):
            run.result = run.work.ended_early("stopped", error.what, error.remedy)
        elif isinstance(error, KeyboardInterrupt):
            run.result = run.work.ended_early("stopped", "interrupted")
        else:
            why = f"the run ended with {type(error).__name__}: {error}"
            run.result = run.work.ended_early("stopped", why, "report this")

    def _go_on(self, run: _TargetRun) -> None:
        try:
            self._ledger.seconds_left(f"{run.work.target.name}'s next step")
        except BudgetError as error:
            self._give_up(run, error)
        else:
            self._advance(run, run.go_on)

    def _give_up(self, run: _TargetRun, error: BudgetError) -> None:
        """What the budget does not allow any more."""
        self._advance(run, lambda: run.give_up(error))

    def _advance(self, run: _TargetRun, step: Callable[[], object]) -> None:
        """What one target cannot go on with is no other's business."""
        try:
            step()
            if run.result is not None:
                run.result = self._on_result(run.result)
        except CginsError as error:
            self._stop(run, error)

    def _answers(self, run: _TargetRun) -> int:
        """How many answers came; a target that cannot be asked any more is stopped."""
        came = 0
        for asked in run.open:
            answer = self._ask(run, asked)
            if asked not in run.asked or run.result is not None:
                break
            if answer is not None:
                self._journal.keep_answer(asked.request, answer)
                came += 1
        return came

    def _ask(self, run: _TargetRun, asked: Inquiry) -> Answer | None:
        """The answer, if it is there."""
        try:
            return asked.ask(self._provider)
        except BudgetError as error:
            # What others in flight have reserved may come free again.
            if not self._ledger.under_way():
                self._give_up(run, error)
        except ProviderError as error:
            self._stop(run, error)
        return None

    def _wait(self) -> bool:
        """Whether answers come by themselves and there is time; else all that have none wait for somebody, or stop."""
        waiting = [run for run in self._running if run.result is None]
        if not waiting:
            return True
        try:
            self._ledger.seconds_left("the answers that are awaited")
        except BudgetError as error:
            # What comes after all is kept by the courier, for when the run is resumed.
            for run in waiting:
                self._stop(run, error)
            return False
        self._on_wait()
        if self._provider.wait(WAIT_S):
            return True
        for run in waiting:
            missing = [asked.request.id for asked in run.open]
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            run.result = run.work.ended_early("waiting", f"for an answer to {missing[0]}{more}")
        return False
