"""Reading a proposal that anybody may have made.

Nothing of it is trusted, nothing in it is run, and neither the project nor git is needed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pytest_cgins.core import documents
from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.session_report import REPORT_VERSION, Evaluation, SessionReport
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Goal, Target
from pytest_cgins.regenerate.proposal import patch as proposal_patch
from pytest_cgins.regenerate.proposal import paths as proposal_paths
from pytest_cgins.regenerate.proposal.entry import check_new_entry
from pytest_cgins.regenerate.proposal.paths import REMEDY, Folder
from pytest_cgins.regenerate.proposal.proposal import PROPOSAL_VERSION, Proposal
from pytest_cgins.regenerate.targets import is_of

PROPOSAL, PATCH = "proposal.json", "patch.diff"
EVIDENCE, REPORT, FILES = "evidence.json", "report.md", "files"
FILE_LIMIT_NBYTES = 256 << 10
PROPOSAL_LIMIT_NBYTES = 4 << 20
LIMITS_NBYTES = {PATCH: 32 << 20, EVIDENCE: 64 << 20, REPORT: 1 << 20}
MOST_VALUES = 4_000_000
"""Of evidence: that of a thousand cases with times has a million."""
MOST_DEPTH = 64

T = TypeVar("T", Proposal, SessionReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A proposal, read and found to be in order; whoever uses it takes what is here, and not the folder again."""

    proposal: Proposal
    """What it says of itself."""
    base: dict[str, bytes]
    """Old contents by path, taken back from the patch; new files are not among them."""
    files: dict[str, bytes]
    """New contents by path."""
    patch: bytes
    """patch.diff."""
    evidence: SessionReport
    """evidence.json."""
    report_text: str
    """report.md as it lies there: shown to nobody before it was compared with what is made of the rest."""


def read(folder: Path) -> Contents:
    """Read a proposal that anybody may have made.

    Raises:
        ProposalError: it is damaged or hostile; the message says what, and in which file.
    """
    with Folder(folder) as opened:
        proposal = _load(Proposal, opened.read(PROPOSAL, PROPOSAL_LIMIT_NBYTES), PROPOSAL, PROPOSAL_VERSION)
        _check_paths(proposal)
        opened.require_only(
            [PROPOSAL, PATCH, EVIDENCE, REPORT, *(f"{FILES}/{path}" for path in proposal.files)]
        )
        new = {path: opened.read(f"{FILES}/{path}", FILE_LIMIT_NBYTES) for path in proposal.files}
        for path, digest in proposal.files.items():
            _require_digest(f"{FILES}/{path}", new[path], digest)
            check_text(f"{FILES}/{path}", new[path])
        patch, text, report = (opened.read(name, limit) for name, limit in LIMITS_NBYTES.items())
    _require_digest(PATCH, patch, proposal.patch_digest)
    _require_digest(EVIDENCE, text, proposal.evidence_digest)
    _require_digest(REPORT, report, proposal.report_digest)
    base = proposal_patch.invert(patch, new, proposal.created)
    for path, old in base.items():
        if digest_of(old) != proposal.base_digests[path]:
            raise ProposalError(
                f"{PATCH}: what it makes of {path} does not start from the base's file", remedy=REMEDY
            )
    check_new_entry(proposal.target, proposal.goal, proposal.config, base, new)
    evidence = _load(SessionReport, text, EVIDENCE, REPORT_VERSION)
    _check_evidence(proposal, evidence)
    return Contents(
        proposal=proposal,
        base=base,
        files=new,
        patch=patch,
        evidence=evidence,
        report_text=_utf8(REPORT, report),
    )


def check_text(name: str, content: bytes) -> None:
    """Refuse what is no text.

    Raises:
        ProposalError: it is empty, has a zero byte, or is not UTF-8.
    """
    if not content:
        raise ProposalError(f"{name}: is empty", remedy="propose no empty file")
    if b"\0" in content:
        raise ProposalError(f"{name}: has a zero byte", remedy="only texts can be proposed")
    _utf8(name, content)


def digest_of(content: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _check_paths(proposal: Proposal) -> None:
    if proposal.config.rpartition("/")[2] != proposal_paths.CONFIG_NAME:
        raise ProposalError(f"{PROPOSAL}: config: names no {proposal_paths.CONFIG_NAME}", remedy=REMEDY)
    # As if it were to be changed: its folder has to be one that a proposal may name.
    proposal_paths.check_path(proposal.config, goal="generate", config=proposal.config)
    proposal_paths.check_paths(sorted(proposal.files), goal=proposal.goal, config=proposal.config)


def _require_digest(name: str, content: bytes, wanted: str) -> None:
    if digest_of(content) != wanted:
        raise ProposalError(f"{name}: its sha256 is not the one in {PROPOSAL}", remedy=REMEDY)


def _utf8(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProposalError(f"{name}: not UTF-8 at byte {error.start}", remedy="save it as UTF-8") from None


def _load(cls: type[T], text: bytes, name: str, version: int) -> T:
    """A document, once its extent and version are known to be good."""
    _utf8(name, text)
    values, depth = documents.extent(text, MOST_VALUES)
    if values > MOST_VALUES or depth > MOST_DEPTH:
        raise ProposalError(f"{name}: has too many values, or is nested too deep", remedy=REMEDY)
    try:
        found = documents.load(cls, text)
    except ValueError as error:
        raise _unreadable(text, name, version, error) from None
    if found.version != version:
        raise _unreadable(text, name, version, ValueError())
    return found


def _unreadable(text: bytes, name: str, version: int, error: ValueError) -> ProposalError:
    """A document of another version has other fields: that is said, rather than the first that is unknown."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ProposalError(f"{name}: is not JSON", remedy=REMEDY)
    found = document.get("version") if isinstance(document, dict) else None
    if isinstance(found, int) and found != version:
        return ProposalError(
            f"{name}: has version {found}; this pytest-cgins reads {version}",
            remedy="read it with the version of pytest-cgins that wrote it",
        )
    return ProposalError(f"{name}: {ascii(documents.complaint(error))[1:-1][:200]}", remedy=REMEDY)


def _check_evidence(proposal: Proposal, evidence: SessionReport) -> None:
    """The evidence is that of the acceptance, and says that the target passed."""
    check_accepted(proposal.target, proposal.goal, evidence.evaluations)
    pairs = {
        "held_out_seed": proposal.held_out_seed == evidence.seed,
        "environments": proposal.environments == evidence.environments,
    }
    for field, is_same in pairs.items():
        if not is_same:
            raise ProposalError(f"{PROPOSAL}: {field}: is not that of {EVIDENCE}", remedy=REMEDY)


def check_accepted(target: Target, goal: Goal, evaluations: tuple[Evaluation, ...]) -> None:
    """Refuse evidence by which no candidate is accepted.

    Raises:
        ProposalError: the target has no cases, or one of them failed, or may be slower where all are to be faster.
    """
    own = [evaluation for evaluation in evaluations if is_of(evaluation.case, target)]
    if not any(one.verdict.status.outcome == "pass" for one in own):
        raise ProposalError(
            f"{EVIDENCE}: has no case of {target.name} that passed",
            remedy="propose what the gate has accepted",
        )
    for one in own:
        status = one.verdict.status
        if status.outcome in ("fail", "error") or (goal == "optimise" and status is Status.INCONCLUSIVE):
            raise ProposalError(
                f"{EVIDENCE}: {proposal_paths.quoted(one.case.name)[1:-1]} is {one.verdict.status.value}",
                remedy="propose what the gate has accepted",
            )
