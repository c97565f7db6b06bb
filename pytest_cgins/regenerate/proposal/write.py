"""Writing a proposal: whole or not at all, and only one that `read` takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cgins import __version__
from pytest_cgins.core import atomic, documents
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.text import counted, now
from pytest_cgins.regenerate import guard
from pytest_cgins.regenerate.attempt import Attempt, Goal, Guarded, Target
from pytest_cgins.regenerate.conversation import Answer
from pytest_cgins.regenerate.proposal import patch as proposal_patch
from pytest_cgins.regenerate.proposal import paths as proposal_paths
from pytest_cgins.regenerate.proposal import proposal
from pytest_cgins.regenerate.proposal.read import (
    EVIDENCE,
    FILE_LIMIT_NBYTES,
    FILES,
    PATCH,
    PROPOSAL,
    REPORT,
    check_accepted,
    check_text,
    digest_of,
    read,
)
from pytest_cgins.report.escape import cut

MOST_BEFORE = 1000
MESSAGES_BEFORE = 50
"""Cases whose message of before is kept."""
MESSAGE_LENGTH = 1000
MOST_SEARCH_LINES = 100
UNSANDBOXED = "the sandbox was switched off: candidates ran with the user's own rights"


def write(
    folder: Path,
    *,
    run_id: str,
    target: Target,
    goal: Goal,
    config: str,
    base: Mapping[str, str | bytes],
    new: Mapping[str, str | bytes],
    before: Sequence[Evaluation],
    after: SessionReport,
    attempts: Sequence[Attempt],
    answers: Sequence[Answer],
    provider: str,
    sandbox: bool,
    sanitized: bool,
    guarded: Guarded,
    base_commit: str,
    notes: Sequence[str] = (),
    search: Sequence[str] = (),
) -> proposal.Proposal:
    """Write a proposal. Whoever looks sees the old folder, none, or the whole new one.

    All paths start at the top of the repository, or of the project where there is none.

    Args:
        folder: where to; an older proposal there is replaced.
        run_id: of the run.
        target: whose sources are replaced.
        goal: what was reached.
        config: path of the `cgins.yaml`.
        base: old contents. A path that is not in it, or is empty there, is a new file. Text must have its own line
            ends: read with `newline=""`, or as bytes.
        new: new contents; those that are the old ones are left out.
        before: what the gate said of the target's cases; () for `generate`.
        after: the acceptance. Its seed is the held-out one, its `base_revision` says what times were held against.
        attempts: all, the accepted one last.
        answers: all that were paid for.
        provider: its name in cgins.yaml.
        sandbox: whether candidates ran fenced in.
        sanitized: whether the accepted one ran under memcheck.
        guarded: digests that were the same before and after.
        base_commit: the commit that was measured on; "" if none.
        notes: what a person should know, one line each.
        search: what a search came to, one line each.

    Raises:
        ProposalError: such a proposal would not be read: nothing changes, a path or a file is not allowed, the
            evidence has a failure.
        OSError: the folder cannot be written.
    """
    old = {path: content for path, content in _bytes(base).items() if content}
    contents = {path: content for path, content in sorted(_bytes(new).items()) if old.get(path) != content}
    if not contents:
        raise ProposalError("the candidate is what was there", remedy="there is nothing to propose")
    old = {path: old[path] for path in contents if path in old}
    check_changeable(contents, old, goal=goal, config=config)
    check_changeable(contents, contents, goal=goal, config=config)
    for path, content in contents.items():
        check_text(path, content)
    check_accepted(target, goal, after.evaluations)
    patch = proposal_patch.make(old, contents)
    about = proposal.Proposal(
        version=proposal.PROPOSAL_VERSION,
        id=f"{run_id}/{target.name}",
        run_id=run_id,
        target=target,
        goal=goal,
        title=proposal.title_of(target, goal),
        created_at=now(),
        cgins=__version__,
        config=config,
        base_commit=base_commit,
        base_digests={path: digest_of(old[path]) if path in old else "" for path in contents},
        files={path: digest_of(content) for path, content in contents.items()},
        patch_digest=digest_of(patch),
        evidence_digest=digest_of(b""),
        report_digest=digest_of(b""),
        guarded_digest=guard.digest(guarded.files),
        before=short_of(before),
        attempts=tuple(_tried(attempt) for attempt in attempts),
        provider=provider,
        models=tuple(dict.fromkeys(answer.model for answer in answers if answer.model)),
        cost=_cost(answers),
        sandbox=sandbox,
        sandbox_note="" if sandbox else UNSANDBOXED,
        sanitized=sanitized,
        held_out_seed=after.seed,
        command=proposal.command_of(target, after.seed, config, sandbox=sandbox),
        environments=after.environments,
        notes=tuple(notes),
        search=tuple(_clean(line) for line in search[:MOST_SEARCH_LINES]),
    )
    return keep(folder, about, after, patch, contents)


def check_changeable(paths: Iterable[str], contents: Mapping[str, bytes], *, goal: Goal, config: str) -> None:
    """Refuse files that no proposal may change, by what is known of them before anybody is asked.

    Args:
        paths: from the top of the repository.
        contents: those that are there.
        goal: what is to be reached.
        config: path of the `cgins.yaml`, whose folder a proposal must be able to name.

    Raises:
        ProposalError: for the first of them.
    """
    proposal_paths.check_path(config, goal="generate", config=config)
    proposal_paths.check_paths(paths, goal=goal, config=config)
    for path, content in contents.items():
        if len(content) > FILE_LIMIT_NBYTES:
            raise ProposalError(
                f"{path}: has {counted(len(content), 'byte')}; at most {FILE_LIMIT_NBYTES} are allowed",
                remedy="split the file",
            )


def require_absent(folder: Path) -> None:
    """Refuse a place that is taken.

    Raises:
        ProposalError: something is there.
    """
    if os.path.lexists(folder):
        raise ProposalError(f"{folder}: already exists", remedy="name a folder that is not there yet")


def keep(
    folder: Path, about: proposal.Proposal, after: SessionReport, patch: bytes, files: Mapping[str, bytes]
) -> proposal.Proposal:
    """Write a proposal's files, with the digests of those that are made here.

    Args:
        folder: where to; an older proposal there is replaced.
        about: what it says of itself.
        after: the acceptance.
        patch: the change.
        files: new contents by path.

    Raises:
        ProposalError: such a proposal would not be read.
        OSError: the folder cannot be written.
    """
    from pytest_cgins.regenerate.proposal import report as proposal_report

    evidence = f"{documents.dump(after, indent=1)}\n".encode()
    about = replace(about, evidence_digest=digest_of(evidence))
    report = proposal_report.render(about, after, patch).encode()
    about = replace(about, report_digest=digest_of(report))
    parts = {f"{FILES}/{path}": content for path, content in files.items()}
    parts |= {PATCH: patch, EVIDENCE: evidence, REPORT: report}
    parts[PROPOSAL] = f"{documents.dump(about, indent=1)}\n".encode()
    with atomic.replaced_folder(folder) as made:
        for name, content in parts.items():
            file = made / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        read(made)
    return about


def _bytes(contents: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {
        path: content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
        for path, content in contents.items()
    }


def short_of(evaluations: Sequence[Evaluation]) -> tuple[proposal.Before, ...]:
    """What the gate said before, in short: those that failed come first, and keep their messages."""
    order = ("fail", "error", "skip", "pass")
    ranked = sorted(evaluations, key=lambda one: (order.index(one.verdict.status.outcome), one.case.name))
    failed = sum(evaluation.verdict.status.outcome in ("fail", "error") for evaluation in evaluations)
    return tuple(
        proposal.Before(
            case=one.case.name,
            status=one.verdict.status,
            reason=one.verdict.reason,
            message=_clean(one.verdict.message) if place < min(failed, MESSAGES_BEFORE) else "",
            share=one.correctness.share if one.correctness is not None else None,
            kernel_ns_per_call=one.measurement.kernel.median_ns_per_call
            if one.measurement is not None
            else None,
        )
        for place, one in enumerate(ranked[:MOST_BEFORE])
    )


def _clean(text: str) -> str:
    """What can be written as UTF-8, cut."""
    return cut(text.encode("utf-8", "replace").decode(), MESSAGE_LENGTH)


def _tried(attempt: Attempt) -> proposal.Tried:
    return proposal.Tried(
        number=attempt.number,
        goal=attempt.goal,
        outcome=attempt.outcome,
        reason=attempt.reason,
        message=cut(_clean(attempt.message).partition("\n")[0], 300),
    )


def _cost(answers: Sequence[Answer]) -> proposal.Cost:
    used = [answer.usage for answer in answers]
    prices = [one.usd for one in used]
    return proposal.Cost(
        prompt_tokens=sum(one.prompt_tokens for one in used),
        cached_tokens=sum(one.cached_tokens for one in used),
        answer_tokens=sum(one.answer_tokens for one in used),
        usd=None if None in prices else sum(price for price in prices if price is not None),
        seconds=sum(answer.seconds for answer in answers),
        estimated=any(one.estimated for one in used),
    )
