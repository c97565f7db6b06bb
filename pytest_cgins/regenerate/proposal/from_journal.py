"""An accepted candidate becomes a proposal, from nothing but the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pytest_cgins.config import Config
from pytest_cgins.core.device import device_of
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.attempt import Attempt, Guarded, Result, Target, Trial
from pytest_cgins.regenerate.conversation import Answer
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.run_status import is_proposed, is_superseded
from pytest_cgins.regenerate.search import summary, summary_text
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report import document

NOT_SANITIZED = "not run under compute-sanitizer"
"""Note of a proposal for a GPU."""
FASTER = "times before are those of the first right kernel of the same run"
"""Note of a proposal of a kernel that another one of its run was made faster to."""
UNCOMMITTED = "measured with changes that are not committed: "
"""What a note begins with that names them."""
SHOWN_CHANGES = 10


def proposed(journal: Journal, config: Config, copy: ProjectCopy | None, result: Result) -> Result:
    """The result, with its proposal written if it was accepted.

    Args:
        journal: of the run.
        config: the project's file.
        copy: of the project, for the target; None if it is proposed already.
        result: what became of the target.

    Raises:
        ProposalError: it cannot be proposed: it changes nothing, or what it changes is not allowed.
        OSError: the folder cannot be written.
    """
    if result.state != "accepted":
        return result
    target = result.target
    if is_superseded(journal, target):
        return result
    place = str(journal.proposal(target).relative_to(journal.folder))
    if not is_proposed(journal, target):
        assert copy is not None
        _write(journal, config, copy, target, journal.attempts(target))
        journal.tell(f"{target.name}: proposed in {place}")
    if target.improves and not result.proposal:
        journal.keep_result(replace(result, proposal=place), {})
    return replace(result, proposal=place)


def _write(
    journal: Journal, config: Config, copy: ProjectCopy, target: Target, attempts: tuple[Attempt, ...]
) -> None:
    record, first = journal.record, journal.first(target)
    # A search accepts the best of its candidates, which need not be the last.
    accepted = next(attempt for attempt in reversed(attempts) if attempt.outcome == "accepted")
    trial = accepted.trials[-1]
    answers = tuple(
        answer
        for request, answer in journal.answered()
        if request.id.partition("/")[0] in (target.name, first.name)
    )
    changes, found = copy.uncommitted(record.base_commit), summary.of(journal, target)
    new = {**journal.overlay(target), **journal.sources(target, accepted.number)}
    proposal.write(
        journal.proposal(target),
        run_id=record.id,
        target=first,
        goal=first.goal,
        config=copy.relative(config.file),
        base={path: text for path, text in copy.texts(new).items() if text},
        new=new,
        before=[one for one in journal.before(first) if is_of(one.case, target)],
        after=evidence(trial, record.created_at, copy.base_commit),
        attempts=attempts,
        answers=answers,
        provider=record.provider,
        sandbox=trial.sandbox,
        sanitized=trial.sanitized,
        guarded=journal.guarded(target) or Guarded(files={}),
        # Whoever publishes would take the commit for what was measured, and not measure again.
        base_commit="" if changes else record.base_commit,
        notes=[*([FASTER] if target.improves else []), *_notes(answers, trial, changes)],
        search=[f"{label}: {text}" for label, text in summary_text.brief(found)] if found is not None else [],
    )


def evidence(trial: Trial, started_at: str, base: str) -> SessionReport:
    """An acceptance as a report.

    Args:
        trial: the acceptance.
        started_at: ISO 8601.
        base: the revision that times were held against; "" for none.
    """
    return document.session_report(
        trial.evaluations,
        trial.environments,
        version=trial.evaluations[0].tested.cgins if trial.evaluations[0].tested else "",
        seed=trial.seed,
        started_at=datetime.fromisoformat(started_at),
        seconds=trial.seconds,
        exit_status=0,
        base_revision=base,
    )


def _notes(answers: tuple[Answer, ...], trial: Trial, changes: Sequence[str]) -> list[str]:
    lost = sum(answer.tries - 1 for answer in answers)
    notes = [f"{counted(lost, 'request')} had to be sent again"] if lost else []
    if device_of(trial.evaluations[0].case.device).is_cuda and not trial.sanitized:
        notes.append(NOT_SANITIZED)
    if changes:
        left_out = len(changes) - SHOWN_CHANGES
        more = f" and {left_out} more" if left_out > 0 else ""
        notes.append(f"{UNCOMMITTED}{', '.join(changes[:SHOWN_CHANGES])}{more}")
    return notes
