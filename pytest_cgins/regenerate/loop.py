"""All targets of a run: whose answer is there goes on, one at a time, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_cgins.errors import BudgetError, CginsError, ProviderError
from pytest_cgins.regenerate import standing
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal import Journal
from pytest_cgins.regenerate.model import Answer, Request, Result
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Provider
from pytest_cgins.regenerate.repair import Repair, Steps

WAIT_S = 1.0
"""How long a provider is waited for before it is asked again."""


class _Running:
    """A target on its way."""

    def __init__(self, repair: Repair) -> None:
        self.repair = repair
        self.steps: Steps = repair.steps()
        self.request: Request | None = None
        self.asked = False
        self.result: Result | None = None

    def go_on(self, answer: Answer | None) -> None:
        """To the next request, or the end."""
        self.asked = False
        try:
            self.request = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration as end:
            self.request, self.result = None, end.value


class Loop:
    """Goes through all targets.

    Args:
        repairs: the targets.
        journal: of the run.
        provider: answers requests.
        ledger: counts what they take.
        on_wait: called before all wait for an answer: a moment to start processes.
        check: called before each round; what it raises ends the run.
        on_result: told what became of a target that is done; gives it back, with a proposal if there is one.
    """

    def __init__(
        self,
        repairs: Sequence[Repair],
        journal: Journal,
        provider: Provider,
        ledger: Ledger,
        *,
        on_wait: Callable[[], object] = lambda: None,
        check: Callable[[], object] = lambda: None,
        on_result: Callable[[Result], Result] = lambda result: result,
    ) -> None:
        self._running = [_Running(repair) for repair in repairs]
        self._journal = journal
        self._provider = provider
        self._ledger = ledger
        self._on_wait = on_wait
        self._check = check
        self._on_result = on_result
        self._booked: set[str] = set()

    def run(self) -> tuple[Result, ...]:
        """Until each target is done, waits for answers that come by hand, or was stopped."""
        try:
            return self._run()
        except BaseException as error:
            # What ends the run ends its targets. The reason must not hide the error, as where the disk is full.
            with suppress(Exception):
                for one in self._running:
                    if one.result is None:
                        self._stop(one, error)
            raise

    def _run(self) -> tuple[Result, ...]:
        for request, answer in self._journal.answered():
            self._book(request, answer)
        for request, usage in standing.lost(self._journal):
            self._ledger.lose(request, usage)
        for one in self._running:
            self._advance(one, None)
        while any(one.result is None for one in self._running):
            self._check()
            # All that can be asked is, before a candidate is tried: prompts of all kernels go out in one go.
            answered = [(one, found) for one in self._running if (found := self._ask(one)) is not None]
            for one, answer in answered:
                assert one.request is not None
                self._journal.keep_answer(one.request, answer)
                self._advance(one, answer)
            if not answered and not self._wait():
                break
        return tuple(one.result for one in self._running if one.result is not None)

    def _stop(self, one: _Running, error: BaseException) -> None:
        """Keep why a target goes no further."""
        if isinstance(error, CginsError):
            one.result = one.repair.ended_early("stopped", error.what, error.remedy)
        elif isinstance(error, KeyboardInterrupt):
            one.result = one.repair.ended_early("stopped", "interrupted")
        else:
            said = f"the run ended with {type(error).__name__}: {error}"
            one.result = one.repair.ended_early("stopped", said, "report this")

    def _advance(self, one: _Running, answer: Answer | None) -> None:
        try:
            if answer is not None:
                self._ledger.seconds_left(f"{one.repair.target.name}'s next step")
            one.go_on(answer)
        except BudgetError as error:
            self._stop(one, error)
        else:
            if one.result is not None:
                one.result = self._on_result(one.result)

    def _ask(self, one: _Running) -> Answer | None:
        """The answer, if it is there; a target that cannot be asked any more is stopped."""
        if one.result is not None or one.request is None:
            return None
        place = self._journal.folder / one.request.id
        try:
            if not one.asked:
                self._begin(one)
            answer = self._provider.ask(one.request, place)
        except BudgetError as error:
            # What others in flight have reserved may come free again.
            if not self._ledger.under_way():
                self._stop(one, error)
            return None
        except ProviderError as error:
            self._ledger.lose(one.request, files.taken_in(place))
            self._stop(one, error)
            return None
        if answer is not None:
            self._book(one.request, answer)
        return answer

    def _begin(self, one: _Running) -> None:
        """Have a request's place ready, and its worst case within the budget.

        Raises:
            BudgetError: it does not fit.
        """
        assert one.request is not None
        place = self._journal.folder / one.request.id
        if not self._journal.was_asked(one.request):
            one.request = self._ledger.require(one.request)
            self._journal.place(one.request)
        elif files.failure_in(place) is not None:
            # An earlier part of the run asked in vain, and the remedy has been heeded meanwhile: it is asked anew.
            one.request = self._ledger.require(one.request)
            self._journal.write(place / files.REQUEST, one.request)
            files.retract_failure(place)
        elif one.request.id not in self._booked:
            self._ledger.resume(one.request)
        one.asked = True

    def _book(self, request: Request, answer: Answer) -> None:
        if request.id not in self._booked:
            self._booked.add(request.id)
            self._ledger.settle(request, answer)

    def _wait(self) -> bool:
        """Whether answers come by themselves and there is time; else all that have none wait for somebody, or stop."""
        waiting = [one for one in self._running if one.result is None]
        if not waiting:
            return True
        try:
            self._ledger.seconds_left("the answers that are awaited")
        except BudgetError as error:
            # What comes after all is kept by the courier, for when the run is resumed.
            for one in waiting:
                self._stop(one, error)
            return False
        self._on_wait()
        if self._provider.wait(WAIT_S):
            return True
        for one in waiting:
            assert one.request is not None
            one.result = one.repair.ended_early("waiting", f"for an answer to {one.request.id}")
        return False
