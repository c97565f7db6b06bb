# ruff: noqa: D102 - CandidateGate says what each method of Gate is
"""What tries the candidates of a target, as judge and search see it: here, or by requests to nodes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Goal, Target, Trial
from pytest_cgins.regenerate.candidate_gate import MOST_REPORTS_NBYTES
from pytest_cgins.regenerate.candidate_pool import Files
from pytest_cgins.regenerate.executor.archive import Archives
from pytest_cgins.regenerate.executor.dispatch import Answer, Dispatcher, Work
from pytest_cgins.regenerate.executor.messages import EvaluationRequest, EvaluationResult, TargetOnNode
from pytest_cgins.regenerate.executor.node import with_note
from pytest_cgins.regenerate.guard import digest
from pytest_cgins.regenerate.profiling import ncu
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.search.profile_figures import Evidence


class Gate(Protocol):
    """Tries candidates of one target; `CandidateGate` says what each method is."""

    @property
    def before(self) -> dict[str, Status]: ...
    def warm(self, count: int = 1) -> None: ...
    def begin(self, candidates: Sequence[Files], champion: Files | None) -> None: ...
    def touched(self) -> tuple[str, ...]: ...
    def check(self, files: Files) -> Trial: ...
    def times(self, files: Files, champion: Files | None) -> Trial: ...
    def evidence(self, files: Files, timed: Sequence[Evaluation]) -> Evidence: ...
    def sass_signatures(self, files: Files) -> SassRow | None: ...
    def accept(self, files: Files, *, goal: Goal, alpha_share: float = 1.0) -> Trial: ...
    def close(self) -> None: ...


class DispatchedGate:
    """Has nodes try the candidates of a target. Those of a batch are checked and timed on as many nodes as there are.

    Args:
        spec: the target.
        archives: its files.
        dispatcher: of all targets of its device.
        reports: the target's folder in the journal, which takes reports of ncu.
        tell: takes a line for the journal.
    """

    def __init__(
        self,
        spec: TargetOnNode,
        archives: Archives,
        dispatcher: Dispatcher,
        *,
        reports: Path,
        tell: Callable[[str], object],
    ) -> None:
        self.before = spec.before
        self._spec = spec
        self._archives = archives
        self._dispatcher = dispatcher
        self._reports = reports
        self._tell = tell
        self._numbers = itertools.count(1)
        self._batch: dict[str, Future[Answer]] = {}
        self._champion: Files | None = None
        self._touched: tuple[str, ...] = ()

    @property
    def target(self) -> Target:
        """What is regenerated."""
        return self._spec.target

    def warm(self, count: int = 1) -> None:
        """Have nodes ready for the next candidates, while their answers are awaited."""
        self._dispatcher.warm(count)

    def begin(self, candidates: Sequence[Files], champion: Files | None) -> None:
        """Check candidates, and time those that are right beside the champion, on as many nodes as there are."""
        self._end_batch()
        self._champion = champion
        is_timed = self._spec.timing and self.target.goal == "optimise"
        for files in candidates:
            self._batch[digest(files)] = self._submitted(
                "check", files, champion=_plain(champion), is_timed=is_timed
            )

    def check(self, files: Files) -> Trial:
        """Whether a candidate is right on the inputs of the run."""
        result = self._checked(files)
        self._touched = result.touched
        return result.trials[0]

    def times(self, files: Files, champion: Files | None) -> Trial:
        """How fast a candidate that is right is, beside the best one until now."""
        result = self._checked(files)
        if len(result.trials) > 1 and champion == self._champion:
            return result.trials[1]
        # Another of its batch has become the champion meanwhile.
        again = self._submitted("times", files, champion=_plain(champion))
        return self._answer(again).trials[0]

    def touched(self) -> tuple[str, ...]:
        """Files that changed in the copy in which a candidate was tried last, and are not its own."""
        return self._touched

    def evidence(self, files: Files, timed: Sequence[Evaluation]) -> Evidence:
        """What profilers find in a candidate that is right, on a node."""
        trial = Trial(
            stage="times", evaluations=tuple(timed), environments=(), seed=0, sandbox=False, sanitized=False, seconds=0.0
        )  # fmt: skip
        answer = self._submitted("evidence", files, times=(trial,)).result()
        evidence = self._told(answer).evidence
        assert evidence is not None
        for name, report in answer.reports.items():
            kept = sum(file.stat().st_size for file in self._reports.rglob(f"*{ncu.SUFFIX}"))
            if kept + len(report) > MOST_REPORTS_NBYTES:
                room = f"the reports of a search may take {MOST_REPORTS_NBYTES >> 20} MiB together"
                note = f"ncu's report was left out, {counted(len(report), 'byte', grouped=True)}: {room}"
                return replace(evidence, report="", degraded=(*evidence.degraded, note))
            (self._reports / Path(name).name).write_bytes(report)
        return evidence

    def sass_signatures(self, files: Files) -> SassRow | None:
        """Which methods left their mark in the machine code; None if there is no GPU's."""
        return None if self.target.device == "cpu" else self._answer(self._submitted("sass", files)).sass

    def hardware(self) -> Hardware:
        """What the device is on a node."""
        found = self._answer(self._submitted("hardware", {})).hardware
        assert found is not None
        return found

    def accept(self, files: Files, *, goal: Goal, alpha_share: float = 1.0) -> Trial:
        """The whole gate in fresh processes of one node, on inputs that this process draws the seed of."""
        assert goal == self.target.goal
        seed = random.SystemRandom().randrange(2**31)
        answer = self._submitted("acceptance", files, alpha_share=alpha_share, seed=seed)
        result = self._answer(answer)
        self._touched = result.touched
        return result.trials[0]

    def close(self) -> None:
        """Forget what was asked for; the executor ends it."""
        self._end_batch()

    def _checked(self, files: Files) -> EvaluationResult:
        name = digest(files)
        if name not in self._batch:
            self.begin([files], None)
        return self._answer(self._batch[name])

    def _end_batch(self) -> None:
        for future in self._batch.values():
            future.cancel()
        self._batch = {}

    def _submitted(self, stage: str, files: Files, **more: object) -> Future[Answer]:
        name = f"{self.target.name}/{next(self._numbers)}-{stage}"
        request = EvaluationRequest(id=name, stage=stage, files=dict(files), **more)  # type: ignore[arg-type]
        return self._dispatcher.submit(Work(self._spec, self._archives, request))

    def _answer(self, future: Future[Answer]) -> EvaluationResult:
        return self._told(future.result())

    def _told(self, answer: Answer) -> EvaluationResult:
        """What was answered, with what was lost on the way.

        Raises:
            RegenerateError: no node could answer.
        """
        result = answer.result
        for loss in answer.losses:
            self._tell(f"{result.id} was tried again: lost with {loss}")
        if result.error:
            raise RegenerateError(f"{result.node}: {result.error}", remedy=result.remedy)
        note = "; ".join(f"tried again: lost with {loss}" for loss in answer.losses)
        return replace(result, trials=tuple(with_note(trial, note) for trial in result.trials))


def _plain(files: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if files is None else dict(files)
