"""Which target of a run goes on: one whose answer is there, one at a time, and the others wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from pytest_cgins.core.errors import BudgetError, CginsError, ProviderError
from pytest_cgins.regenerate import run_status
from pytest_cgins.regenerate.attempt import Result
from pytest_cgins.regenerate.budget import Inquiry, Ledger
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.provider.base import Provider
from pytest_cgins.regenerate.target_loop import Ahead, Requests, Steps, TargetLoop

WAIT_S = 1.0
"""How long a provider is waited for before it is asked again."""


@dataclass(slots=True)
class _TargetRun:
    """A target on its way."""

    work: TargetLoop
    steps: Steps
    is_begun: bool = False
    asked: list[Inquiry] = field(default_factory=list)
    ahead: list[Inquiry] = field(default_factory=list)
    result: Result | None = None

    @property
    def open(self) -> list[Inquiry]:
        """Requests without an answer."""
        return [request for request in self.asked if request.answer is None] if self.result is None else []


@dataclass(eq=False, repr=False)
class Scheduler:
    """Goes through all targets."""

    works: Sequence[TargetLoop]
    """The targets."""
    journal: Journal
    """Of the run."""
    provider: Provider
    """Answers requests."""
    ledger: Ledger
    """Counts what they take."""
    _: KW_ONLY
    on_wait: Callable[[], object] = lambda: None
    """Called before all wait for an answer: a moment to start processes."""
    check: Callable[[], object] = lambda: None
    """Called before each round; what it raises ends the run."""
    on_result: Callable[[Result], Result] = lambda result: result
    """Told what became of a target that is done; gives it back, with a proposal if there is one. What it raises
    stops that target."""
    gives_up: bool = False
    """Whether nothing more is asked for: a search ends with the best that it has."""
    follow: Callable[[Result], TargetLoop | None] = lambda _: None
    """What is to be worked on because of a result."""

    def __post_init__(self) -> None:
        self._running = [_TargetRun(work, work.steps()) for work in self.works]

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
        for request, answer in self.journal.answered():
            self.ledger.settle(request, answer)
        for request, usage in run_status.lost(self.journal):
            self.ledger.lose(request, usage)
        while any(run.result is None for run in self._running):
            self.check()
            while fresh := [run for run in self._running if not run.is_begun]:
                for run in fresh:
                    run.is_begun = True
                    self._advance(run, partial(next, run.steps))
            if self.gives_up:
                for run in [run for run in self._running if run.result is None]:
                    self._give_up(run, BudgetError("given up", remedy="start a new run"))
                continue
            # All that can be asked is, before a candidate is tried: prompts of all kernels go out in one go.
            answered = sum(self._answers(run) for run in self._running)
            ready = [run for run in self._running if run.result is None and not run.open]
            for run in ready:
                self._go_on(run)
            is_idle = not answered and not ready and all(run.is_begun for run in self._running)
            if is_idle and not self._wait():
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
        """With all answers, to the next requests, or the end."""
        try:
            self.ledger.seconds_left(f"{run.work.target.name}'s next step")
        except BudgetError as error:
            self._give_up(run, error)
        else:
            answers = tuple(request.answer for request in run.asked if request.answer is not None)
            self._advance(run, partial(run.steps.send, answers))

    def _give_up(self, run: _TargetRun, error: BudgetError) -> None:
        """Without the answers that the budget does not allow: to the end, if it can end with what it has."""
        self._advance(run, partial(run.steps.throw, error))

    def _advance(self, run: _TargetRun, step: Callable[[], Requests]) -> None:
        """What one target cannot go on with is no other's business."""
        run.asked = []
        try:
            requests = step()
            begun = {inquiry.request.id: inquiry for inquiry in run.ahead}
            asked = [
                begun.get(one.id)
                or Inquiry(one, self.journal.folder / one.id, self.ledger, self.journal.place)
                for one in requests
            ]
            if isinstance(requests, Ahead):
                run.ahead = asked
            else:
                run.asked, run.ahead = asked, [inquiry for inquiry in run.ahead if inquiry not in asked]
        except StopIteration as end:
            self._end(run, end.value)
        except CginsError as error:
            self._stop(run, error)

    def _end(self, run: _TargetRun, result: Result) -> None:
        try:
            run.result = self.on_result(result)
            following = self.follow(run.result)
        except CginsError as error:
            self._stop(run, error)
        else:
            if following is not None:
                self._running.append(_TargetRun(following, following.steps()))

    def _answers(self, run: _TargetRun) -> int:
        """How many answers came; a target that cannot be asked any more is stopped."""
        came = 0
        for asked in [inquiry for inquiry in run.ahead if inquiry.answer is None]:
            try:
                came += self._has_answer(asked)
            except (BudgetError, ProviderError):
                run.ahead.remove(asked)  # it is asked when it is its turn
        for asked in run.open:
            try:
                came += self._has_answer(asked)
            except BudgetError as error:
                # What others in flight have reserved may come free again.
                if self.ledger.under_way():
                    continue
                self._give_up(run, error)
                break
            except ProviderError as error:
                self._stop(run, error)
                break
        return came

    def _has_answer(self, asked: Inquiry) -> bool:
        """Whether an answer has come, which is kept.

        Raises:
            BudgetError, ProviderError: as of `Inquiry.ask`.
        """
        answer = asked.ask(self.provider)
        if answer is not None:
            self.journal.keep_answer(asked.request, answer)
        return answer is not None

    def _wait(self) -> bool:
        """Whether answers come by themselves and there is time; else all that have none wait for somebody, or stop."""
        waiting = [run for run in self._running if run.result is None]
        if not waiting:
            return True
        try:
            self.ledger.seconds_left("the answers that are awaited")
        except BudgetError as error:
            # What comes after all is kept by the courier, for when the run is resumed.
            for run in waiting:
                self._stop(run, error)
            return False
        self.on_wait()
        if self.provider.wait(WAIT_S):
            return True
        for run in waiting:
            missing = [asked.request.id for asked in run.open]
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            run.result = run.work.ended_early("waiting", f"for an answer to {missing[0]}{more}")
        return False
