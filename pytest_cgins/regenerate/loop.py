"""All targets of a run: whose answer is there goes on, one at a time, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_cgins.errors import BudgetError, ProviderError
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.journal import Journal
from pytest_cgins.regenerate.model import Answer, Request, Result
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
        self.result: Result | None = None
        self.asked = False

    def go_on(self, answer: Answer | None) -> None:
        """To the next request, or the end."""
        self.asked = False
        try:
            self.request = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration as end:
            self.request, self.result = None, end.value


def drive(
    repairs: Sequence[Repair],
    journal: Journal,
    provider: Provider,
    ledger: Ledger,
    *,
    on_wait: Callable[[], object] = lambda: None,
    on_result: Callable[[Result], Result] = lambda result: result,
) -> tuple[Result, ...]:
    """Go through all targets until each is done, waits for answers that come by hand, or was stopped.

    Args:
        repairs: the targets.
        journal: of the run.
        provider: answers requests.
        ledger: counts what they take.
        on_wait: called before all wait for an answer: a moment to start processes.
        on_result: told what became of a target as soon as it is known; gives it back, with a proposal if there is one.
    """
    running = [_Running(repair) for repair in repairs]
    settled: set[str] = set()
    for request, answer in journal.answered():
        ledger.settle(request, answer)
        settled.add(request.id)
    while True:
        # All that can be asked is, before a candidate is tried: prompts of all kernels go out in one go.
        for one in running:
            if one.result is None and one.request is None:
                one.go_on(None)
                _close_if_done(one, on_result)
        answered = [
            (one, found)
            for one in running
            for found in [_ask(one, journal, provider, ledger, settled)]
            if found
        ]
        for one, answer in answered:
            assert one.request is not None
            journal.keep_answer(one.request, answer)
            one.go_on(answer)
            _close_if_done(one, on_result)
        waiting = [one for one in running if one.result is None]
        if not waiting:
            break
        if not answered:
            on_wait()
            if not provider.wait(WAIT_S):
                for one in waiting:
                    assert one.request is not None
                    one.result = one.repair.ended_early("waiting", f"for an answer to {one.request.id}")
                break
    return tuple(one.result for one in running if one.result is not None)


def _ask(
    one: _Running, journal: Journal, provider: Provider, ledger: Ledger, settled: set[str]
) -> Answer | None:
    """The answer, if it is there; a target that cannot be asked any more is stopped."""
    if one.result is not None or one.request is None:
        return None
    try:
        if not one.asked:
            if not journal.was_asked(one.request):
                one.request = ledger.require(one.request).request
            journal.place(one.request)
            one.asked = True
        answer = provider.ask(one.request, journal.folder / one.request.id)
        if answer is not None and one.request.id not in settled:
            settled.add(one.request.id)
            ledger.settle(one.request, answer)
        if answer is not None:
            ledger.seconds_left(f"the answer to {one.request.id}")
        return answer
    except BudgetError as error:
        # What others in flight have reserved may come free again.
        if one.asked or not ledger.under_way():
            one.result = one.repair.ended_early("stopped", str(error))
    except ProviderError as error:
        ledger.lose(one.request, None)
        one.result = one.repair.ended_early("stopped", str(error))
    return None


def _close_if_done(one: _Running, on_result: Callable[[Result], Result]) -> None:
    if one.result is not None:
        one.result = on_result(one.result)
