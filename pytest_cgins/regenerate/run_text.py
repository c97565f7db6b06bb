"""What became of runs, in words: `cgins runs ls` and `cgins runs show`.

What models, compilers and kernels have said is in it, so nothing goes to the terminal but what can be seen.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate import run_status
from pytest_cgins.regenerate.attempt import Attempt, Result, Target
from pytest_cgins.regenerate.budget import Spent
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.search import summary, summary_text
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.report.escape import cut, visible

MOST_CHARACTERS = 2000
"""Characters of one text at most, whoever wrote it; what is cut says so."""
_LABEL = 11
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


def line(journal: Journal) -> str:
    """One line about a run: name, state, accepted targets, attempts, what it took, when it began."""
    record = journal.record
    results = [journal.result(target) for target in record.targets]
    accepted = sum(result is not None and result.state == "accepted" for result in results)
    attempts = sum(len(journal.attempts(target)) for target in record.targets)
    cells = (
        _words(record.id).ljust(20),
        run_status.state_of(journal).ljust(7),
        f"{accepted}/{len(record.targets)} accepted",
        counted(attempts, "attempt").rjust(11),
        _tokens(run_status.spent_on(journal)),
        when(record.created_at),
    )
    return "  ".join(cells)


def damaged(folder: Path, error: CginsError) -> str:
    """The same for a run that cannot be read."""
    return f"{_words(folder.name).ljust(20)}  damaged  {_words(error.what)}"


def when(created_at: str, now: datetime | None = None) -> str:
    """How long ago that was: `5 min ago`; the date where it is more than two days."""
    try:
        began = datetime.fromisoformat(created_at)
    except ValueError:
        return _words(created_at)
    began = began if began.tzinfo else began.replace(tzinfo=timezone.utc)
    age_s = ((now or datetime.now(timezone.utc)) - began).total_seconds()
    if not 0 <= age_s < 2 * 86400:
        return f"{began:%Y-%m-%d}"
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if age_s >= unit_s:
            return f"{int(age_s // unit_s)} {unit} ago"
    return f"{int(age_s)} s ago"


def whole(journal: Journal) -> str:
    """All that there is to know of a run without opening its files."""
    state = run_status.state_of(journal)
    lines = [*_head(journal, state)]
    for target in journal.record.targets:
        lines += ["", *_of_target(journal, target, state)]
    return "\n".join([*lines, "", *_next(journal, state)]) + "\n"


# ---- the run


def _head(journal: Journal, state: run_status.State) -> Iterator[str]:
    record = journal.record
    models = "; ".join(
        f"{role}: {', '.join(names)}" for role, names in sorted(record.models.items()) if any(names)
    )
    commit = f" at {record.base_commit[:12]}" if record.base_commit else ""
    timing = "timed" if record.timing else "not timed"
    fence = "in a sandbox" if record.sandbox else "WITHOUT a sandbox"
    yield f"run {_words(record.id)}: {state}"
    yield _field("began", f"{record.created_at}, {when(record.created_at)}, by pytest-cgins {record.cgins}")
    yield _field("command", record.command or "not known")
    yield _field("project", f"{run_status.shown_path(journal.folder / record.config)}{commit}")
    yield _field("asked", f"{record.provider}{f' ({models})' if models else ''}")
    yield _field("candidates", f"seed {record.seed}, baseline {record.baseline}, {timing}, {fence}")
    yield _field("took", f"{_tokens(run_status.spent_on(journal))}, {_duration(journal.earlier_s())}")
    yield _field("files", run_status.shown_path(journal.folder))


def _next(journal: Journal, state: run_status.State) -> Iterator[str]:
    """How to go on."""
    record, again = journal.record, run_status.resume_command(journal)
    if state == "running":
        yield "next: wait; events.log of its folder tells what happens"
    elif state == "waiting":
        yield "next: write the answers, then"
        yield f"  {_words(again)}"
    elif state == "stopped":
        yield f"next: {_words(again)}"
    elif record.made_project:
        folder = run_status.shown_path((journal.folder / record.config).parent)
        yield f"next: pytest --cgins {_words(shlex.quote(folder))}"
    else:
        known = dict.fromkeys(map(journal.proposal, record.targets))
        proposed = [one for one in known if one.is_dir()]
        for folder in map(run_status.shown_path, proposed):
            yield f"next: cgins proposal apply {_words(shlex.quote(folder))}"
        if not proposed:
            yield "next: nothing is proposed; start a new run"


# ---- a target


def _of_target(journal: Journal, target: Target, state: run_status.State) -> Iterator[str]:
    result, attempts = journal.result(target), journal.attempts(target)
    request = None if result else run_status.open_request(journal, target)
    stopped = list(_stopped(journal, target, bool(result), bool(request)))
    became = _became(result, state, len(attempts), bool(request), bool(stopped))
    yield f"{_words(target.name)}: {became}"
    yield _field("goal", f"{target.goal} {target.op}, contract {target.contract}")
    yield _field("found", _found(journal, target))
    for attempt in attempts:
        yield from _of_attempt(journal, target, attempt)
    yield from _of_search(journal, target)
    if result is not None and result.why:
        yield _field("why", result.why)
    yield from stopped
    if request is not None:
        yield _field("waits for", _answer_to(journal, request.id))
    is_superseded = run_status.is_superseded(journal, target)
    for kind, folder in (
        *([] if is_superseded else [("proposal", journal.proposal(target))]),
        ("accepted", journal.folder / target.name / "final"),
        ("FAILED", journal.folder / target.name / "FAILED"),
    ):
        if folder.is_dir():
            yield _field(kind, run_status.shown_path(folder))


def _of_search(journal: Journal, target: Target) -> Iterator[str]:
    """What it found, in a few lines; `--summary` has it all."""
    found = summary.of(journal, target)
    if found is not None and found.candidates:
        for label, text in summary_text.brief(found):
            yield _field(label, text)
        kept = journal.folder / target.name / summary.MARKDOWN
        if kept.exists():
            yield _field("summary", run_status.shown_path(kept))


def _stopped(journal: Journal, target: Target, done: bool, asked: bool) -> Iterator[str]:
    """Why a target that is not done goes no further, as far as that is known: a run that was killed says nothing."""
    ended = None if done else journal.ended(target)
    failure = None if done or asked else run_status.last_failure(journal, target)
    if ended is not None and ended.state == "stopped":
        what, remedy = ended.why, ended.remedy
    elif failure is not None:
        what, remedy = failure.what, failure.remedy
    else:
        return
    yield _field("stopped", what)
    if remedy:
        yield _field("remedy", remedy)


def _became(result: Result | None, state: run_status.State, attempts: int, asked: bool, stopped: bool) -> str:
    after = f" after {counted(attempts, 'attempt')}" if attempts else ""
    if result is not None:
        return f"{result.state}{after}"
    if asked and state in ("waiting", "running"):
        return f"waits for an answer{after}"
    return f"{'under way' if state == 'running' else 'stopped' if stopped else 'not done'}{after}"


def _found(journal: Journal, target: Target) -> str:
    """What the gate had said of its cases."""
    own = [one for one in journal.before(target) if is_of(one.case, target)]
    if not own:
        return "there was no kernel" if target.goal == "generate" else "not known"
    counts = Counter(one.verdict.status.value for one in own)
    words = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    worst = next((one for one in own if one.verdict.status.outcome != "pass"), None)
    said = f"; {worst.case.signature}: {_first(worst.verdict.message)}" if worst else ""
    return f"{words} of {counted(len(own), 'case')}{said}"


def _of_attempt(journal: Journal, target: Target, attempt: Attempt) -> Iterator[str]:
    took = run_status.spent_on(journal, target, attempt.number)
    reason = f" ({attempt.reason})" if attempt.reason and attempt.reason != "ok" else ""
    folder = journal.folder_of(target, attempt.number)
    yield _field(
        f"attempt {attempt.number}",
        f"{attempt.outcome}{reason}; {_tokens(took)}, {_duration(took.seconds + attempt.seconds)}",
    )
    if attempt.message and attempt.outcome != "accepted":
        yield _field("", _telling(attempt))
    advice = journal.advice(target, attempt.number)
    if advice is not None and advice.text.strip():
        yield _field("", f"advice: {_first(advice.text)}")
    yield _field("", run_status.shown_path(folder))


def _answer_to(journal: Journal, request_id: str) -> str:
    """Where an answer is to be written, as far as that is known."""
    from pytest_cgins.regenerate.run_setup import answers_folder

    folder = answers_folder(journal) if journal.record.provider == "exchange" else None
    if folder is None:
        return f"an answer to {run_status.shown_path(journal.folder / request_id / 'prompt.md')}"
    return f"{run_status.shown_path(folder / request_id / 'answer.md')}, the answer to prompt.md beside it"


# ---- wording


def _field(label: str, text: str) -> str:
    return f"  {label.ljust(_LABEL)} {_words(text)}"


def _words(text: str) -> str:
    """The text on one line, without what a terminal would obey."""
    return cut(visible(" ".join(_ESCAPE.sub("", text).split())), MOST_CHARACTERS)


def _telling(attempt: Attempt) -> str:
    """The line that says most: of a compiler's words its first error."""
    words = map(_words, attempt.log.splitlines() if attempt.outcome == "build-error" else ())
    error = next((word for word in words if "error:" in word), "")
    # The candidate lay in a copy of the project, which is gone.
    return re.sub(r"^\S*/copy/", "", error) or _first(attempt.message)


def _first(text: str) -> str:
    return next((one for one in map(_words, text.splitlines()) if one), "")


def _tokens(took: Spent) -> str:
    return f"{counted(took.tokens, 'token', grouped=True)}, {took.cost()}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
