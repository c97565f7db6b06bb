"""What went wrong, most telling first: each verdict once for all cases that share it, with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.compilers import diagnostics
from pytest_cgins.core.case import Case
from pytest_cgins.core.dtypes import SHORT
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Attempt
from pytest_cgins.regenerate.prompts import blocks, traces
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.templating import render

MOST_CHARACTERS = 9_000
_MOST_GROUPS = 5
_MOST_NAMES = 4
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
    cases: list[Case]
    """All."""

    def called(self, numbers: Mapping[tuple[str, str], int]) -> str:
        """The numbers of their calls in the prompt's list, each with its element types; names of cases that are not in it."""
        dtypes: dict[int, list[str]] = {}
        others: list[str] = []
        for case in self.cases:
            number = numbers.get((case.pack, case.trace_id))
            if number is None:
                others.append(blocks.one_line(case.name, 120))
            else:
                dtypes.setdefault(number, []).append(SHORT.get(case.dtype, case.dtype))
        told = [
            f"call {number} ({', '.join(sorted(set(types)))})" for number, types in sorted(dtypes.items())
        ]
        more = [f"{len(others) - _MOST_NAMES} more"] if len(others) > _MOST_NAMES else []
        return ", ".join([*told, *others[:_MOST_NAMES], *more])


def of_evaluations(context: Context, evaluations: Sequence[Evaluation], most: int = MOST_CHARACTERS) -> str:
    """Failing cases of one kernel, those that share status and reason together, the first of each in full; how many pass.

    Args:
        context: of the prompt.
        evaluations: at least one.
        most: characters of all groups of failures together; the first has its own bounds.
    """
    bad = _failing(evaluations)
    skipped = sum(evaluation.verdict.status is Status.SKIPPED for evaluation in evaluations)
    groups = _grouped(bad)
    numbers = traces.call_numbers(context)
    shown: list[str] = []
    told: set[str] = set()
    for group in groups[:_MOST_GROUPS]:
        reason = group.first.verdict.reason.value
        text = render("failing_cases.md", group=group, numbers=numbers, top=context.top, brief=reason in told)
        told.add(reason)
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
    return tuple(one for one in evaluations if one.verdict.status.outcome in ("fail", "error"))


def _grouped(bad: Sequence[Evaluation]) -> list[Group]:
    groups: dict[tuple[str, ...], Group] = {}
    for evaluation in bad:
        checks = evaluation.correctness.checks if evaluation.correctness else ()
        wrong = next((check for check in checks if not check.passed), None)
        kind = wrong.map.split("\n", 1)[0].split(" ")[0] if wrong else ""
        key = (evaluation.verdict.status.value, evaluation.verdict.reason.value, kind)
        groups.setdefault(key, Group(evaluation, [])).cases.append(evaluation.case)
    return sorted(
        groups.values(),
        key=lambda group: (_HINTS.get(group.first.verdict.status, 9), -len(group.cases), group.cases[0].name),
    )


def of_attempt(context: Context, attempt: Attempt, most: int = MOST_CHARACTERS) -> str:
    """All that is known of a failed attempt, each thing once: a verdict's message is told with its cases.

    Args:
        context: of the prompt.
        attempt: it.
        most: characters of all groups of failures together; the first has its own bounds.
    """
    trials = [trial for trial in attempt.trials if _failing(trial.evaluations)] or attempt.trials
    evaluations = trials[-1].evaluations if trials else ()
    reasons = [evaluation.verdict.reason.value for evaluation in _failing(evaluations)]
    if attempt.log:
        evaluations = _failing(one for one in evaluations if one.verdict.status is not Status.BUILD_ERROR)
    return render(
        "attempt.md",
        attempt=attempt,
        top=context.top,
        log=of_log(attempt.log, list(context.sources), context.top) if attempt.log else "",
        message="" if attempt.findings or attempt.log or attempt.reason in reasons else attempt.message,
        trial=trials[-1] if trials else None,
        cases=of_evaluations(context, evaluations, most) if evaluations else "",
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
