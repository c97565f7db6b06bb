"""What went wrong, most telling first: each verdict once for all cases that share it, with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.compilers import diagnostics
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Attempt
from pytest_cgins.regenerate.prompts import blocks
from pytest_cgins.regenerate.prompts.templating import render

MOST_CHARACTERS = 9_000
_MOST_GROUPS = 5
_MOST_LOG = 5000
_LONGEST_LOG = 2 << 20
_HINTS = {
    Status.BUILD_ERROR: 0, Status.RUNTIME_ERROR: 1, Status.TIMEOUT: 2, Status.INCORRECT: 3, Status.SUSPECT: 4,
}  # fmt: skip
"""What to look at first: what does not build hides what is wrong."""


@dataclass(slots=True)
class Group:
    """Cases that fail in the same way."""

    first: Evaluation
    """The one that is shown."""
    cases: list[str]
    """Names of all."""


def of_evaluations(evaluations: Sequence[Evaluation], top: Path, most: int = MOST_CHARACTERS) -> str:
    """Failing cases of one kernel, those that share status and reason together; how many pass.

    Args:
        evaluations: at least one.
        top: folder that paths are relative to.
        most: characters of all groups of failures together; the first has its own bounds.
    """
    bad = _failing(evaluations)
    skipped = sum(evaluation.verdict.status is Status.SKIPPED for evaluation in evaluations)
    groups = _grouped(bad)
    shown: list[str] = []
    for group in groups[:_MOST_GROUPS]:
        text = render("failing_cases.md", group=group, top=top)
        if shown and sum(map(len, shown)) + len(text) > most:
            break
        shown.append(text)
    verdicts = [group.first.verdict for group in groups[_MOST_GROUPS:]]
    return render(
        "evaluations.md",
        total=len(evaluations),
        passing=len(evaluations) - len(bad) - skipped,
        failing=len(bad),
        skipped=skipped,
        shown=shown,
        is_cut=len(shown) < min(len(groups), _MOST_GROUPS),
        others=sorted({f"{verdict.status.value} {verdict.reason.value}" for verdict in verdicts}),
    )


def _failing(evaluations: Iterable[Evaluation]) -> tuple[Evaluation, ...]:
    return tuple(
        evaluation for evaluation in evaluations if evaluation.verdict.status.outcome in ("fail", "error")
    )


def _grouped(bad: Sequence[Evaluation]) -> list[Group]:
    groups: dict[tuple[str, ...], Group] = {}
    for evaluation in bad:
        checks = evaluation.correctness.checks if evaluation.correctness else ()
        wrong = next((check for check in checks if not check.passed), None)
        kind = wrong.map.split("\n", 1)[0].split(" ")[0] if wrong else ""
        key = (evaluation.verdict.status.value, evaluation.verdict.reason.value, kind)
        groups.setdefault(key, Group(evaluation, [])).cases.append(evaluation.case.name)
    return sorted(
        groups.values(),
        key=lambda group: (_HINTS.get(group.first.verdict.status, 9), -len(group.cases), group.cases[0]),
    )


def of_attempt(attempt: Attempt, files: Sequence[str], top: Path, most: int = MOST_CHARACTERS) -> str:
    """All that is known of a failed attempt, each thing once: a verdict's message is told with its cases.

    Args:
        attempt: it.
        files: paths of the sources.
        top: folder that paths are relative to.
        most: characters of all groups of failures together; the first has its own bounds.
    """
    trials = [trial for trial in attempt.trials if _failing(trial.evaluations)] or attempt.trials
    evaluations = trials[-1].evaluations if trials else ()
    reasons = [evaluation.verdict.reason.value for evaluation in _failing(evaluations)]
    if attempt.log:
        evaluations = _failing(
            evaluation for evaluation in evaluations if evaluation.verdict.status is not Status.BUILD_ERROR
        )
    return render(
        "attempt.md",
        attempt=attempt,
        top=top,
        log=of_log(attempt.log, files, top) if attempt.log else "",
        message="" if attempt.findings or attempt.log or attempt.reason in reasons else attempt.message,
        trial=trials[-1] if trials else None,
        cases=of_evaluations(evaluations, top, most) if evaluations else "",
    )


def of_log(log: str, files: Sequence[str], top: Path) -> str:
    """A compiler's output: its first errors with what explains them; its end if no error was found in it."""
    log = blocks.clean(log[:_LONGEST_LOG])
    errors, text = diagnostics.summarize(log, [str(top / file) for file in files], "")
    if errors > diagnostics.SHOWN_ERRORS:
        text += f"\n… {counted(errors, 'error')} in all; the first ones are shown"
    text = blocks.without_paths(text or blocks.tail(log, _MOST_LOG), top)
    return blocks.head(text, _MOST_LOG)


def last_judged(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last one that the gate compiled or ran: what it found there holds until it judges another."""
    return next((attempt for attempt in reversed(attempts) if attempt.trials or attempt.log), None)
