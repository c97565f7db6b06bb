"""The gate on a proposal, in a process of its own without secrets: is it as its evidence says?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config, load
from pytest_cgins.core import documents, scratch
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.proposal import measure
from pytest_cgins.regenerate.proposal.measure import Measured, Plan
from pytest_cgins.regenerate.proposal.read import Contents
from pytest_cgins.regenerate.targets import is_of

LIMIT_S = 3600.0


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
    """Run the target's cases on the held-out inputs, fenced in, in a copy of the project.

    Args:
        contents: the proposal.
        top: the folder that its paths start at; it is copied, and not changed.
        repository: whether that is a git repository's.

    Raises:
        ProposalError: the gate did not run.
        ConfigError: `cgins.yaml` of the working tree cannot be read.
    """
    about = contents.proposal
    config = load(top / about.config, require_traces=False, require_sources=False)
    base = about.base_commit if repository and about.base_commit else NONE
    with scratch.folder() as folder:
        plan = replace(plan_of(contents, config, base), repeats=about.held_out_seed)
        trial = measured(plan, folder, {}).trial
    found = {one.case.name: one for one in trial.evaluations} if trial is not None else {}
    return tuple(
        _compared(evaluation, found.get(evaluation.case.name))
        for evaluation in contents.evidence.evaluations
        if is_of(evaluation.case, about.target)
    )


def _compared(told: Evaluation, found: Evaluation | None) -> Compared:
    if found is None:
        said, holds = "not there", False
    else:
        status, message = found.verdict.status, found.verdict.message.partition("\n")[0]
        holds = status.outcome == told.verdict.status.outcome
        said = status.value if holds else f"{status.value} ({found.verdict.reason.value}): {message}"
    return Compared(case=told.case.name, told=told.verdict.status.value, found=said, holds=holds)


def plan_of(contents: Contents, config: Config, commit: str) -> Plan:
    """What is to be measured of a proposal.

    Args:
        contents: the proposal.
        config: the project's file.
        commit: what times are held against.
    """
    about = contents.proposal
    texts = {path: content.decode() for path, content in contents.files.items()}
    overlay = {about.config: texts.pop(about.config)} if about.config in texts else {}
    return Plan(
        config=str(config.file),
        traces=tuple(map(str, config.traces)),
        commit=commit,
        target=replace(about.target, goal=about.goal),
        files=texts,
        overlay=overlay,
    )


def measured(plan: Plan, folder: Path, names: Mapping[Path, Path]) -> Measured:
    """Have a plan done by a process of its own.

    Args:
        plan: what.
        folder: its working folder, which is not the project's.
        names: folders that are gone when somebody reads of them, and what is to be read instead.

    Raises:
        ProposalError: the gate did not run, or takes too long.
    """
    (folder / measure.PLAN).write_text(documents.dump(plan), encoding="utf-8")
    environment = without_secrets(os.environ)
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", measure.__name__, str(folder)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProposalError(f"the gate took more than {LIMIT_S:.0f} s", remedy="run it by hand") from None
    if not (folder / measure.MEASURED).is_file():
        said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-15:]
        raise ProposalError(
            f"the gate did not run (exit status {done.returncode}):\n" + "\n".join(said),
            remedy="run it again; if it ends so once more, report it with these lines",
        )
    text = (folder / measure.MEASURED).read_text(encoding="utf-8")
    told = {str(gone): str(instead) for gone, instead in names.items()}
    found = documents.renamed(documents.load(Measured, text), told)
    if found.state == "failed":
        raise ProposalError(f"the gate did not run: {found.message}", remedy=found.remedy)
    return found
