"""A proposal is measured again on a base that moved, and written again with that evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pytest_cgins.core import documents
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.regenerate import scratch
from pytest_cgins.regenerate.proposal import at_revision, measure
from pytest_cgins.regenerate.proposal import tree as proposal_tree
from pytest_cgins.regenerate.proposal.measure import Failed, Measured, Plan
from pytest_cgins.regenerate.proposal.read import Contents, digest_of
from pytest_cgins.regenerate.proposal.write import require_absent, write_anew
from pytest_cgins.regenerate.proposing import NOT_SANITIZED, UNCOMMITTED, evidence

LIMIT_S = 3600.0
"""For all that is run."""
ANEW = "measured again on "
"""What the note begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """What became of a proposal on another base."""

    state: Literal["written", "unneeded", "stale", "refused"]
    """`unneeded`: the base has its files, or needs no repair; `stale`: the kernel's files are others there; `refused`:
    by the gate. A folder is there after `written` alone."""
    line: str
    """For a person: what was found, and what to do."""


def rebase(contents: Contents, onto: str, folder: Path, root: Path) -> Rebased:
    """Accept a proposal anew on a commit of the clone, on inputs drawn now, and write it again.

    Args:
        contents: the proposal, read.
        onto: what git takes for the commit.
        folder: of the new proposal; it must not be there.
        root: a folder of the clone.

    Raises:
        ProposalError: there is no such commit, the files are not its kernel's own, or the gate did not run.
        ConfigError: `cgins.yaml` of that commit cannot be read.
        RevisionError: git cannot read the commit.
        OSError: a folder cannot be written.
    """
    require_absent(folder)
    top, is_repository = proposal_tree.top_of(root)
    if not is_repository:
        raise ProposalError(
            f"{root} is in no git repository", remedy="name a folder of the clone with --root"
        )
    commit = at_revision.commit_of(top, onto)
    with scratch.folder() as place:
        project = at_revision.checkout(top, commit, place)
        early = _without_gate(contents, project, commit)
        if early is not None:
            return early
        proposal_tree.check_own_sources(contents, project)
        started = datetime.now(timezone.utc)
        found = _measured(_plan(contents, project, top, commit), place, project, top)
    if found.state == "moot":
        return Rebased(state="unneeded", line=f"the kernel passes at {commit[:10]} without it: nothing to do")
    if found.state == "refused":
        return Rebased(state="refused", line=f"not accepted at {commit[:10]}: {found.message}")
    _write(folder, contents, found, commit, started)
    return Rebased(state="written", line=f"accepted at {commit[:10]}: wrote {folder}")


def _without_gate(contents: Contents, project: Path, commit: str) -> Rebased | None:
    """What the commit's own files decide; None if they are what the proposal was made on."""
    states = proposal_tree.states(contents, project)
    if set(states.values()) == {"applied"}:
        return Rebased(state="unneeded", line=f"{commit[:10]} has these files already: nothing to do")
    moved = sorted(path for path, state in states.items() if state != "base")
    if not moved:
        return None
    path, digest = moved[0], contents.proposal.base_digests[moved[0]]
    file = project / path
    now = digest_of(file.read_bytes())[:12] if file.exists() else "no file"
    stale = ProposalError(
        f'the proposal is stale: "{path}" at {commit[:10]} is not what it was made on '
        f"({now}, then {digest[:12] or 'no file'})",
        remedy=f"regenerate the kernel on {commit[:10]}",
    )
    return Rebased(state="stale", line=str(stale))


def _plan(contents: Contents, project: Path, top: Path, commit: str) -> Plan:
    about = contents.proposal
    config = at_revision.config_of(project, about.config, top)
    texts = {path: content.decode() for path, content in contents.files.items()}
    overlay = {about.config: texts.pop(about.config)} if about.config in texts else {}
    return Plan(
        config=str(project / about.config),
        traces=tuple(map(str, config.traces)),
        commit=commit,
        target=replace(about.target, goal=about.goal),
        files=texts,
        overlay=overlay,
    )


def _measured(plan: Plan, place: Path, project: Path, top: Path) -> Measured:
    """Have the plan done by a process without secrets."""
    (place / measure.PLAN).write_text(documents.dump(plan), encoding="utf-8")
    environment = without_secrets(os.environ)
    environment.pop("PYTHONPATH", None)
    words = [sys.executable, "-m", measure.__name__, str(place)]
    try:
        # Not in the project: `-m` puts the working folder first on the path of imports.
        done = subprocess.run(
            words, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProposalError(f"the gate took more than {LIMIT_S:.0f} s", remedy="run it by hand") from None
    # These files are gone when somebody reads of them; the clone has them.
    here, there = (json.dumps(str(one), ensure_ascii=False)[1:-1] for one in (project, top))
    told = {
        name: (place / name).read_text(encoding="utf-8").replace(here, there)
        for name in (measure.MEASURED, measure.ERROR)
        if (place / name).is_file()
    }
    if measure.MEASURED in told:
        return documents.load(Measured, told[measure.MEASURED])
    if measure.ERROR in told:
        failed = documents.load(Failed, told[measure.ERROR])
        raise ProposalError(f"the gate did not run: {failed.what}", remedy=failed.remedy)
    said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-15:]
    raise ProposalError(
        f"the gate did not run (exit status {done.returncode}):\n" + "\n".join(said),
        remedy="run it again; if it ends so once more, report it with these lines",
    )


def _write(folder: Path, contents: Contents, found: Measured, commit: str, started: datetime) -> None:
    about, trial = contents.proposal, found.trial
    assert trial is not None
    after = evidence(trial, started.isoformat(), commit)
    notes = [
        note for note in about.notes if note != NOT_SANITIZED and not note.startswith((ANEW, UNCOMMITTED))
    ]
    if device_of(about.target.device).is_cuda and not trial.sanitized:
        notes.append(NOT_SANITIZED)
    write_anew(
        folder,
        contents,
        base_commit=commit,
        before=found.before,
        after=after,
        sanitized=trial.sanitized,
        guarded=found.guarded,
        notes=(*notes, _note(contents, commit)),
    )


def _note(contents: Contents, commit: str) -> str:
    """What is said of the old base; a proposal that was measured anew before keeps its first one."""
    about = contents.proposal
    earlier = next((note for note in about.notes if note.startswith(ANEW)), "")
    first = f"first accepted on {about.base_commit or 'no commit'} in run {about.run_id}"
    return f"{ANEW}{commit}; {earlier.partition('; ')[2] or first}"
