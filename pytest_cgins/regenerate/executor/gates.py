"""What tries the candidates of a target, as judge and search see it: here, or by requests to nodes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Goal, Trial
from pytest_cgins.regenerate.candidate_gate import CandidateGate, no_room, rejections
from pytest_cgins.regenerate.candidate_pool import Files
from pytest_cgins.regenerate.executor.archive import TargetOnNode
from pytest_cgins.regenerate.executor.dispatch import Answer, Dispatcher, Work
from pytest_cgins.regenerate.guard import digest
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.search.profile_figures import Evidence

T = TypeVar("T")


class DispatchedGate:
    """Has nodes try the candidates of a target. Those of a batch are checked and timed on as many nodes as there are.

    Args:
        spec: the target.
        dispatcher: of all targets of its device.
        reports: the target's folder in the journal, which takes reports of ncu.
        tell: takes a line for the journal.
    """

    def __init__(
        self, spec: TargetOnNode, dispatcher: Dispatcher, *, reports: Path, tell: Callable[[str], object]
    ) -> None:
        self.target, self.before = spec.target, spec.before
        self._spec = spec
        self._dispatcher = dispatcher
        self._reports = reports
        self._tell = tell
        self._numbers = itertools.count(1)
        self._batch: dict[str, Future[Answer[tuple[Trial, ...]]]] = {}
        self._champion: Files | None = None
        self._touched: tuple[str, ...] = ()

    def warm(self, count: int = 1) -> None:
        """Have nodes ready for the next candidates, while their answers are awaited."""
        self._dispatcher.warm(count)

    def begin(self, candidates: Sequence[Files], champion: Files | None) -> None:
        """Check candidates, and time those that are right beside the champion, on as many nodes as there are."""
        self.close()
        self._champion = champion
        is_timed = self._spec.timing and self.target.goal == "optimise"
        for files in candidates:
            evaluate = partial(checked, files=files, champion=champion, is_timed=is_timed)
            self._batch[digest(files)] = self._asked("check", evaluate)

    def check(self, files: Files) -> Trial:
        """Whether a candidate is right on the inputs of the run."""
        return self._checked(files)[0]

    def times(self, files: Files, champion: Files | None) -> Trial:
        """How fast a candidate that is right is, beside the best one until now."""
        trials = self._checked(files)
        if len(trials) > 1 and champion == self._champion:
            return trials[1]
        # Another of its batch has become the champion meanwhile.
        evaluate = partial(CandidateGate.times, files=files, champion=champion)
        return self._told(self._asked("times", evaluate))

    def touched(self) -> tuple[str, ...]:
        """Files that changed in the copy in which a candidate was tried last, and are not its own."""
        return self._touched

    def evidence(self, files: Files, timed: Sequence[Evaluation]) -> Evidence:
        """What profilers find in a candidate that is right, on a node."""
        asked = self._asked("evidence", partial(CandidateGate.evidence, files=files, timed=timed))
        evidence = self._told(asked)
        for name, report in asked.result().reports.items():
            if note := no_room(self._reports, len(report)):
                return replace(evidence, report="", degraded=(*evidence.degraded, note))
            (self._reports / Path(name).name).write_bytes(report)
        return evidence

    def sass_signatures(self, files: Files) -> SassRow | None:
        """Which methods left their mark in the machine code; None if there is no GPU's."""
        if self.target.device == "cpu":
            return None
        return self._told(self._asked("sass", partial(CandidateGate.sass_signatures, files=files)))

    def hardware(self) -> Hardware:
        """What the device is on a node."""
        return self._told(self._asked("hardware", CandidateGate.hardware))

    def accept(self, files: Files, *, goal: Goal, alpha_share: float = 1.0) -> Trial:
        """The whole gate in fresh processes of one node, on inputs that this process draws the seed of."""
        seed = random.SystemRandom().randrange(2**31)
        evaluate = partial(CandidateGate.accept, files=files, goal=goal, alpha_share=alpha_share, seed=seed)
        return self._tried(self._asked("acceptance", evaluate))

    def close(self) -> None:
        """Forget what was asked for; the executor ends it."""
        for future in self._batch.values():
            future.cancel()
        self._batch = {}

    def _checked(self, files: Files) -> tuple[Trial, ...]:
        name = digest(files)
        if name not in self._batch:
            self.begin([files], None)
        return self._tried(self._batch[name])

    def _asked(self, stage: str, evaluate: Callable[[CandidateGate], T]) -> Future[Answer[T]]:
        name = f"{self.target.name}/{next(self._numbers)}-{stage}"
        return self._dispatcher.submit(Work(name, self._spec, evaluate))

    def _tried(self, asked: Future[Answer[T]]) -> T:
        """The same of a trial, which tells what it found changed."""
        value = self._told(asked)
        self._touched = asked.result().touched
        return value

    def _told(self, asked: Future[Answer[T]]) -> T:
        """What was answered, with what was lost on the way.

        Raises:
            RegenerateError: no node could answer.
        """
        answer = asked.result()
        for loss in answer.losses:
            self._tell(f"{answer.id} was tried again: lost with {loss}")
        if answer.error:
            raise RegenerateError(f"{answer.node}: {answer.error}", remedy=answer.remedy)
        note = "; ".join(f"tried again: lost with {loss}" for loss in answer.losses)
        return _noted(answer.value, note) if note else answer.value


Gate = CandidateGate | DispatchedGate


def checked(gate: CandidateGate, files: Files, champion: Files | None, is_timed: bool) -> tuple[Trial, ...]:
    """On a node: whether a candidate is right and, if so, its times beside the champion's."""
    if is_timed:
        gate.begin([files], champion)
    trial = gate.check(files)
    if not is_timed or gate.touched() or rejections(trial.evaluations, gate.target):
        return (trial,)
    return trial, gate.times(files, champion)


def _noted(value: Any, note: str) -> Any:
    """Trials with one line more for a person; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(_noted(trial, note) for trial in value)
    return replace(value, notes=(*value.notes, note)) if isinstance(value, Trial) else value
