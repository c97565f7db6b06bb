"""A proposal is measured again on a base that moved, and written again with that evidence."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pytest_cgins import __version__
from pytest_cgins.building.revision.merge_base import LFS_POINTER, LFS_POINTER_LIMIT_NBYTES
from pytest_cgins.config import Config, load
from pytest_cgins.core import git, scratch
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.text import now
from pytest_cgins.regenerate import guard
from pytest_cgins.regenerate.proposal import gate
from pytest_cgins.regenerate.proposal import tree as proposal_tree
from pytest_cgins.regenerate.proposal.from_journal import NOT_SANITIZED, UNCOMMITTED, evidence
from pytest_cgins.regenerate.proposal.measure import Measured
from pytest_cgins.regenerate.proposal.proposal import command_of
from pytest_cgins.regenerate.proposal.read import Contents, check_accepted, digest_of
from pytest_cgins.regenerate.proposal.write import keep, require_absent, short_of

_DEPTH = 12
"""Folders above the project, so that paths in `cgins.yaml` that lead out of it are told from absolute ones."""


def commit_of(top: Path, name: str) -> str:
    """The commit that a name means in a repository.

    Raises:
        ProposalError: git knows none.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    found = git.read(top, *words, check=False).strip()
    if not found:
        raise ProposalError(
            f'git knows no commit "{name}" in {top}', remedy="name an existing one, or fetch it first"
        )
    return found


def checkout(top: Path, commit: str, folder: Path) -> Path:
    """Write the files of a commit; what is below is a repository with the same history.

    Args:
        top: of the clone, whose objects are used where they lie. The commit need not be on a branch.
        commit: which.
        folder: an empty folder.

    Returns:
        Top of the files, somewhere below.

    Raises:
        RevisionError: git cannot read it.
    """
    place = Path(os.path.realpath(folder)).joinpath(*["d"] * _DEPTH, "project")
    place.mkdir(parents=True)
    kind = git.read(top, "rev-parse", "--show-object-format").strip()
    git.read(place, "init", "--quiet", "--template=", f"--object-format={kind}")
    # `git clone --shared` does not share the objects of a shallow clone, and brings none that are on no branch.
    objects = Path(os.path.realpath(top / git.read(top, "rev-parse", "--git-path", "objects").rstrip("\n")))
    alternates = place / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")
    git.read(place, "checkout", "--quiet", "--detach", commit)
    return place


def config_of(project: Path, path: str, top: Path) -> Config:
    """The `cgins.yaml` of such files; packs that are outside of git are those of the clone.

    Args:
        project: as `checkout` gave it.
        path: of the file, from the top.
        top: of the clone.

    Raises:
        ConfigError: it cannot be read.
    """
    found = load(project / path, require_traces=False, require_sources=False)
    return replace(found, traces=tuple(_pack(pack, project, top) for pack in found.traces))


def _pack(pack: Path, project: Path, top: Path) -> Path:
    place = Path(os.path.normpath(pack))
    if not place.is_relative_to(project):
        inside = place.is_relative_to(project.parents[_DEPTH])
        return Path(os.path.normpath(top / os.path.relpath(place, project))) if inside else place
    path = place.relative_to(project)
    words = ("--literal-pathspecs", "ls-files", "--cached", "-z", "--", str(path))
    tracked = set(git.read(top, *words).split("\0")[:-1])
    if not place.exists() and not tracked:
        return top / path
    for origin in sorted((top / path).rglob("*")):
        name = str(origin.relative_to(top))
        if origin.is_file() and (
            (name not in tracked and not os.path.lexists(project / name))
            or _points_to(project / name, origin)
        ):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, project / name)
    return place


def _points_to(file: Path, origin: Path) -> bool:
    """Whether a file stands for another that Git LFS keeps."""
    if not file.is_file() or file.stat().st_size > LFS_POINTER_LIMIT_NBYTES:
        return False
    found = LFS_POINTER.match(file.read_bytes())
    return found is not None and digest_of(origin.read_bytes()) == found[1].decode()


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
    commit = commit_of(top, onto)
    with scratch.folder() as place:
        project = checkout(top, commit, place)
        early = _without_gate(contents, project, commit)
        if early is not None:
            return early
        proposal_tree.check_own_sources(contents, project)
        started = datetime.now(timezone.utc)
        config = config_of(project, contents.proposal.config, top)
        found = gate.measured(gate.plan_of(contents, config, commit), place, {project: top})
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
        return Rebased(state="unneeded", line=f"{commit[:10]} already has these files: nothing to do")
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


def _write(folder: Path, contents: Contents, found: Measured, commit: str, started: datetime) -> None:
    about, trial = contents.proposal, found.trial
    assert trial is not None
    after = evidence(trial, started.isoformat(), commit)
    check_accepted(about.target, about.goal, after.evaluations)
    notes = [
        note for note in about.notes if note != NOT_SANITIZED and not note.startswith((ANEW, UNCOMMITTED))
    ]
    if device_of(about.target.device).is_cuda and not trial.sanitized:
        notes.append(NOT_SANITIZED)
    again = replace(
        about,
        created_at=now(),
        cgins=__version__,
        base_commit=commit,
        guarded_digest=guard.digest(found.guarded.files),
        before=short_of(found.before),
        sandbox=True,
        sandbox_note="",
        sanitized=trial.sanitized,
        held_out_seed=after.seed,
        command=command_of(about.target, after.seed, about.config, sandbox=True),
        environments=after.environments,
        notes=(*notes, _note(contents, commit)),
    )
    require_absent(folder)
    keep(folder, again, after, contents.patch, contents.files)


def _note(contents: Contents, commit: str) -> str:
    """What is said of the old base; a proposal that was measured anew before keeps its first one."""
    about = contents.proposal
    earlier = next((note for note in about.notes if note.startswith(ANEW)), "")
    first = f"first accepted on {about.base_commit or 'no commit'} in run {about.run_id}"
    return f"{ANEW}{commit}; {earlier.partition('; ')[2] or first}"
