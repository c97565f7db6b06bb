"""The acceptance of a proposal, once more or on another base, in a process of its own that has no secrets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_cgins.core import documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import CginsError, ProposalError, RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Attempt, Guarded, Target, Trial
from pytest_cgins.regenerate.targets import REPAIR, is_of

if TYPE_CHECKING:
    from pytest_cgins.config import Config
    from pytest_cgins.regenerate.candidate_gate import CandidateGate
    from pytest_cgins.regenerate.project_copy import ProjectCopy

PLAN, MEASURED = "plan.json", "measured.json"
"""Files of the folder that it is started with: what it reads, and what it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Document):
    """What is measured."""

    config: str
    """Path of the `cgins.yaml` of the base, in files that nobody else writes to."""
    traces: tuple[str, ...]
    """Its packs, wherever they are."""
    commit: str
    """The base, which times are held against."""
    target: Target
    """Whose sources are replaced."""
    files: dict[str, str]
    """New sources by path, from the project's top."""
    overlay: dict[str, str]
    """New text of `cgins.yaml` by path, where the kernel is new."""
    repeats: int | None = None
    """Seed of an acceptance that is only repeated, on its inputs; None measures anew, without the proposal as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Document):
    """What came of it."""

    state: Literal["accepted", "refused", "moot", "failed"]
    """`moot`: a kernel that was to be repaired passes as it is; `failed`: the gate did not run."""
    message: str
    """Why it was refused, or failed; "" otherwise."""
    remedy: str = ""
    """What to do about a failure; "" otherwise."""
    before: tuple[Evaluation, ...] = ()
    """What the gate says of the target's cases on the base as it is; empty where the kernel is new."""
    trial: Trial | None = None
    """The acceptance; None where it did not come to that."""
    guarded: Guarded
    """What was the same before and after."""


def main(arguments: Sequence[str]) -> int:
    """Do what a folder's plan says, and write what came of it beside it; 2 if that is an error."""
    folder = Path(arguments[0])
    try:
        found = measured(documents.load(Plan, (folder / PLAN).read_bytes()), folder / "candidate")
    except CginsError as error:
        nothing = Guarded(files={})
        found = Measured(state="failed", message=error.what, remedy=error.remedy, guarded=nothing)
    (folder / MEASURED).write_text(documents.dump(found), encoding="utf-8")
    return 2 if found.state == "failed" else 0


def measured(plan: Plan, folder: Path) -> Measured:
    """Run the gate on the base as it is, and with the proposal, on inputs that are drawn now.

    Args:
        plan: what.
        folder: an absent folder.

    Raises:
        CginsError: a tool or a device is missing, or the project cannot be read.
    """
    from pytest_cgins.regenerate import guard
    from pytest_cgins.regenerate.project_copy import ProjectCopy

    config, target = _config(plan), plan.target
    copy = ProjectCopy(config, target.key, folder, baseline=plan.commit, overlay=plan.overlay)

    def guarded() -> Guarded:
        return guard.guarded(config, copy.project, copy.files, copy.base_commit)

    kept = guarded()
    with ExitStack() as stack:
        gate = _candidate_gate(stack, config, target, copy)
        if plan.repeats is not None:
            again = _accept(gate, plan.files, replace(target, goal="repair"), seed=plan.repeats)
            return Measured(state="accepted", message="", trial=again, guarded=kept)
        before: tuple[Evaluation, ...] = ()
        if target.goal != "generate":
            unchanged = _accept(gate, {}, replace(target, goal="repair"))
            gate.before.update({one.case.name: one.verdict.status for one in unchanged.evaluations})
            before = tuple(one for one in unchanged.evaluations if is_of(one.case, target))
        unwanted = _unwanted(before, target)
        if unwanted is not None:
            return Measured(state=unwanted[0], message=unwanted[1], before=before, guarded=kept)
        trial = _accept(gate, plan.files, target)
        message = _refusal(trial, target, gate, guard.differences(kept, guarded()))
    return Measured(
        state="refused" if message else "accepted", message=message, before=before, trial=trial, guarded=kept
    )


def _config(plan: Plan) -> Config:
    from pytest_cgins.config import load
    from pytest_cgins.regenerate.new_kernel import reloaded

    found = load(Path(plan.config), require_traces=False, require_sources=False)
    return reloaded(replace(found, traces=tuple(Path(pack) for pack in plan.traces)), plan.overlay)


def _candidate_gate(stack: ExitStack, config: Config, target: Target, copy: ProjectCopy) -> CandidateGate:
    from pytest_cgins.regenerate import run_setup
    from pytest_cgins.regenerate.candidate_gate import CandidateGate, TrialSettings
    from pytest_cgins.regenerate.candidate_pool import CandidatePool
    from pytest_cgins.run.pool import WorkerPool

    settings = TrialSettings.here(run_setup.sandbox_of("on"), seed=0)
    reference = stack.enter_context(WorkerPool())
    pool = CandidatePool.fenced(settings.sandbox)
    stack.callback(pool.close)
    gate = CandidateGate(
        target, copy, settings, reference=reference, pool=pool, trusted_root=config.root, before={}
    )
    stack.callback(gate.close)
    stack.callback(pool.stop)
    return gate


def _accept(gate: CandidateGate, files: dict[str, str], target: Target, *, seed: int | None = None) -> Trial:
    try:
        return gate.accept(files, goal=target.goal, seed=seed)
    except RegenerateError as error:
        raise ProposalError(error.what, remedy="run this where its device and tools are") from error


def _unwanted(before: Sequence[Evaluation], target: Target) -> tuple[Literal["refused", "moot"], str] | None:
    """Why the base as it is has no use for the proposal; None if it may have."""
    if target.goal == "generate":
        return None
    if not before:
        return "refused", f"it has no case of {target.name}"
    if target.goal == "repair":
        return ("moot", "") if all(one.verdict.status.outcome == "pass" for one in before) else None
    wrong = next((one for one in before if one.verdict.status in REPAIR), None)
    if wrong is None:
        return None
    said = f"{wrong.case.name} is {wrong.verdict.status.value} ({wrong.verdict.reason.value})"
    return "refused", f"without it {said}: the kernel is to be repaired before it is made faster"


def _refusal(trial: Trial, target: Target, gate: CandidateGate, moved: tuple[str, ...]) -> str:
    """Why a run of regeneration would not accept it; "" if it would."""
    from pytest_cgins.regenerate import judgement

    if not any(is_of(evaluation.case, target) for evaluation in trial.evaluations):
        return f"it has no case of {target.name}"
    moved += tuple(f"{path} (in the candidate's copy)" for path in gate.touched())
    made = Attempt(number=1, goal=target.goal, outcome="failed", reason="", message="", trials=(trial,))
    judged = judgement.accepted(made, target, gate.before, moved)
    return "" if judged.outcome == "accepted" else judged.message


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
