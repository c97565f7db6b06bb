"""The gate on a proposal, in a copy of the project and in a process of its own: is it as its evidence says?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import load
from pytest_cgins.core import documents, git
from pytest_cgins.core.errors import CginsError, ProposalError
from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.regenerate.proposal.read import Contents
from pytest_cgins.regenerate.proposal.tree import write_files
from pytest_cgins.regenerate.targets import is_of

LIMIT_S = 3600.0
_SKIPPED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "venv", "build", "dist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case, by the evidence and now."""

    case: str
    """Its name."""
    told: str
    """Status in the evidence."""
    found: str
    """Status now, with its message where it failed; "not there" where there was none."""
    holds: bool
    """Whether it passed both times."""


def gate(contents: Contents, top: Path, *, repository: bool) -> tuple[Compared, ...]:
    """Run the target's cases on the held-out inputs, fenced in.

    Args:
        contents: the proposal.
        top: the folder that its paths start at; it is copied, and not changed.
        repository: whether that is a git repository's.

    Raises:
        ProposalError: it does not fit the working tree, or the gate did not run.
    """
    with tempfile.TemporaryDirectory(prefix="cgins-proposal-") as name:
        folder = Path(name)
        copy = folder / "project"
        _copy(contents.proposal.config, top, copy, repository=repository)
        write_files(contents, copy)
        found = {one.case.name: one for one in _run(contents, folder, copy, repository=repository)}
    return tuple(
        _compared(evaluation, found.get(evaluation.case.name))
        for evaluation in contents.evidence.evaluations
        if is_of(evaluation.case, contents.proposal.target)
    )


def _compared(told: Evaluation, found: Evaluation | None) -> Compared:
    if found is None:
        said, holds = "not there", False
    else:
        status, message = found.verdict.status, found.verdict.message.partition("\n")[0]
        holds = status.outcome == told.verdict.status.outcome
        said = status.value if holds else f"{status.value} ({found.verdict.reason.value}): {message}"
    return Compared(case=told.case.name, told=told.verdict.status.value, found=said, holds=holds)


def _copy(config: str, top: Path, copy: Path, *, repository: bool) -> None:
    """The working tree as it is, with the history that times are held against."""
    if not repository:
        shutil.copytree(top, copy, symlinks=True, ignore=_SKIPPED)
        return
    words = ("clone", "--quiet", "--shared", "--no-checkout", "--template=")
    git.read(top, *words, "--", str(top), str(copy))
    for path in dict.fromkeys([*git.files(top), *_of_packs(config, top)]):
        origin, place = top / path, copy / path
        if origin.is_symlink() or origin.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, place, follow_symlinks=False)


def _of_packs(config: str, top: Path) -> Iterator[str]:
    """Packs are often kept out of git; those elsewhere are found where they are."""
    try:
        packs = load(top / config, require_traces=False, require_sources=False).traces
    except CginsError:
        return
    for pack in packs:
        if pack.is_relative_to(top):
            yield from (str(file.relative_to(top)) for file in sorted(pack.rglob("*")) if file.is_file())


def _run(contents: Contents, folder: Path, copy: Path, *, repository: bool) -> tuple[Evaluation, ...]:
    about = contents.proposal
    report, settings = folder / "report.json", folder / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")
    base = about.base_commit if repository and about.base_commit else NONE
    own = [
        evaluation.case.name
        for evaluation in contents.evidence.evaluations
        if is_of(evaluation.case, about.target)
    ]
    command = [
        sys.executable, "-m", "pytest", "-p", "pytest_cgins.plugin", "-p", "no:cacheprovider", "--noconftest",
        "-c", str(settings), f"--rootdir={copy}", "--cgins", "--cgins-sandbox=on", f"--cgins-json={report}",
        f"--cgins-seed={about.held_out_seed}", f"--cgins-baseline={base}",
        *(f"{copy / about.config}::{name}" for name in own),
    ]  # fmt: skip
    environment = {**without_secrets(os.environ), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in ("PYTEST_ADDOPTS", "PYTHONPATH", "CI"):
        environment.pop(name, None)
    run_apart(
        command, folder, environment, report.name,
        remedy="kernels of a proposal run in a sandbox only: cgins doctor says what this host lacks",
    )  # fmt: skip
    return documents.load(SessionReport, report.read_bytes()).evaluations


def run_apart(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], name: str, *, remedy: str
) -> None:
    """Have a process gate a proposal.

    Args:
        command: Python with `-m`, which puts the working folder first on the path of imports.
        folder: the working folder, which is not the project's.
        environment: all of it.
        name: file of the folder that it writes.
        remedy: what to do where it does not.

    Raises:
        ProposalError: it does not write it, or takes too long.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProposalError(f"the gate took more than {LIMIT_S:.0f} s", remedy="run it by hand") from None
    if not (folder / name).is_file():
        said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-15:]
        raise ProposalError(
            f"the gate did not run (exit status {done.returncode}):\n" + "\n".join(said), remedy=remedy
        )
