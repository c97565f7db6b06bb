"""Where a run stands, from nothing but its folder."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_cgins.core.locks import is_locked
from pytest_cgins.core.options import RUNS_FOLDER
from pytest_cgins.regenerate.attempt import Result, Target
from pytest_cgins.regenerate.budget import Spent, spent_by, total
from pytest_cgins.regenerate.conversation import Answer, Request, Role, Usage
from pytest_cgins.regenerate.journal.journal import Journal, load
from pytest_cgins.regenerate.provider.files import Failure, failure_in, taken_in

State = Literal["running", "done", "waiting", "stopped"]
"""A process has it; every target is accepted or failed; answers that come by hand are missing; it can be resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run came to."""

    journal: Path
    """Its folder."""
    results: tuple[Result, ...]
    """One a target, in order."""
    spent: Spent
    """Over all its parts."""


def state_of(journal: Journal) -> State:
    """Where a run stands; what `journal` itself holds counts as running, too."""
    if is_locked(journal.folder / "run.lock"):
        return "running"
    left = [target for target in journal.record.targets if journal.result(target) is None]
    if not left:
        return "done"
    by_hand = journal.record.provider == "exchange"
    return "waiting" if by_hand and any(open_request(journal, target) for target in left) else "stopped"


def open_request(journal: Journal, target: Target) -> Request | None:
    """What was asked last for a target, if it has neither an answer nor a final failure."""
    places = sorted((journal.folder / target.name).glob("attempt-*/*/request.json"))
    for file in reversed(places):
        if not any((file.parent / name).exists() for name in ("answer.json", "error.json")):
            return load(Request, file)
    return None


def last_failure(journal: Journal, target: Target) -> Failure | None:
    """Why there was no answer to what was asked last for a target, if that is what stopped it."""
    places = sorted((journal.folder / target.name).glob("attempt-*/*/request.json"))
    return failure_in(places[-1].parent) if places else None


def give_up(journal: Journal) -> None:
    """Have every target that is not done be failed, with the last source that it had."""
    for target in journal.record.targets:
        if journal.result(target) is None:
            attempts = journal.attempts(target)
            tried = (journal.sources(target, attempt.number) for attempt in reversed(attempts))
            last = next(filter(None, tried), {})
            result = Result(target=target, state="failed", attempts=attempts, why="given up")
            journal.keep_result(result, last)


def spent_on(
    journal: Journal, target: Target | None = None, attempt: int | None = None, *, role: Role | None = None
) -> Spent:
    """What answers, and requests without one, have taken; `seconds` is how long answers were awaited.

    Args:
        journal: of the run.
        target: only for this one.
        attempt: only for this attempt of it; the helper's advice on it counts as well.
        role: only what this one was asked.
    """
    where = f"{target.name if target else '*'}/attempt-{'*' if attempt is None else f'{attempt:02d}'}"
    parts = []
    for file in sorted(journal.folder.glob(f"{where}/*/request.json")):
        request, answer = load(Request, file), journal.read(Answer, file.parent / "answer.json")
        usage = answer.usage if answer else taken_in(file.parent)
        if usage is not None and role in (None, request.role):
            parts.append(spent_by(request, usage, seconds=answer.seconds if answer else 0.0))
    return total(parts)


def lost(journal: Journal) -> tuple[tuple[Request, Usage], ...]:
    """All requests of a run that have no answer and took something all the same, with what that was."""
    files = sorted(journal.folder.glob("*/attempt-*/*/request.json"))
    open_ones = (file for file in files if not (file.parent / "answer.json").exists())
    taken = ((load(Request, file), taken_in(file.parent)) for file in open_ones)
    return tuple((request, usage) for request, usage in taken if usage is not None)


def done(journal: Journal) -> RunResult | None:
    """What a run came to, if nothing of it is left to do; then the project may be another one by now."""
    results = []
    for target in journal.record.targets:
        result, proposal = journal.result(target), journal.proposal(target)
        if result is None or not is_proposed(journal, target):
            return None
        is_shown = result.state == "accepted" and not is_superseded(journal, target)
        where = str(proposal.relative_to(journal.folder)) if is_shown else ""
        results.append(replace(result, proposal=where))
    return RunResult(journal=journal.folder, results=tuple(results), spent=spent_on(journal))


def is_proposed(journal: Journal, target: Target) -> bool:
    """Whether there is nothing to propose for a target, or that is done."""
    result = journal.result(target)
    if result is None or result.state != "accepted" or is_superseded(journal, target):
        return True
    # Of a faster kernel the first one's proposal may still be in its place.
    return bool(result.proposal) if target.improves else journal.proposal(target).is_dir()


def is_superseded(journal: Journal, target: Target) -> bool:
    """Whether the same run has accepted a faster kernel."""
    faster = journal.next(target)
    result = journal.result(faster) if faster is not None else None
    return result is not None and result.state == "accepted"


def resume_command(journal: Journal) -> str:
    """Shell command that goes on with a run."""
    runs = shown_path(journal.folder.parent)
    where = [] if runs == RUNS_FOLDER else ["--runs", runs]
    return shlex.join(["cgins", "runs", "resume", journal.record.id, *where])


def shown_path(path: Path) -> str:
    """As a person would write it: relative to the current folder if it lies below."""
    whole = Path(os.path.normpath(path.absolute()))
    return str(whole.relative_to(Path.cwd())) if whole.is_relative_to(Path.cwd()) else str(whole)
