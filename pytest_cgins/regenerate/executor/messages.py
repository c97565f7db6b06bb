"""What is asked of a node, and what it answers. The driver alone asks models, counts budgets and writes the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Target, Trial
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.search.profile_figures import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOnNode(Document):
    """What a node needs to know of a target, besides the files in `archive.Archives`."""

    target: Target
    """What is regenerated."""
    top: str
    """The project's top folder on the driver."""
    config: str
    """Its cgins.yaml, relative to `top`."""
    traces: tuple[str, ...]
    """Its packs, on the driver."""
    files: tuple[str, ...]
    """The implementation's own sources, relative to `top`, main file first."""
    overlay: dict[str, str]
    """What the run adds to the project, by path."""
    base_commit: str
    """The project's base revision; "" where it has none."""
    before: dict[str, Status]
    """As of `CandidateGate`."""
    seed: int
    """As of `TrialSettings`, like those that follow."""
    timing: bool
    compile: bool
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest(Document):
    """One evaluation. It says all that it depends on, so that a second node gives an answer to the same question."""

    id: str
    """Of the run's requests; an answer is taken once."""
    stage: Literal["check", "times", "acceptance", "evidence", "sass", "hardware"]
    """`check`: with times beside the champion, if it is right and `is_timed`; otherwise methods of `Gate`."""
    files: dict[str, str]
    """The candidate's sources, by path."""
    champion: dict[str, str] | None = None
    """The best one until now; None for the incumbent."""
    is_timed: bool = False
    """Whether a check is followed by times."""
    alpha_share: float = 1.0
    """Of an acceptance."""
    seed: int = 0
    """Of an acceptance: drawn by the driver, the same for each node that tries."""
    times: tuple[Trial, ...] = ()
    """Of evidence: what the candidate's times are, as far as they were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult(Document):
    """What a node answers."""

    id: str
    """Of the request."""
    node: str
    """Who answers."""
    trials: tuple[Trial, ...] = ()
    """Of a check, its own and that of the times."""
    touched: tuple[str, ...] = ()
    """Files of the copy that changed, and are not the candidate's own."""
    evidence: Evidence | None = None
    sass: SassRow | None = None
    hardware: Hardware | None = None
    error: str = ""
    """Why there is no answer, where the same request would fail on each node; "" if there is one."""
    remedy: str = ""
    """What to do about that."""
    lost: str = ""
    """Why another node must be asked: what this one lacks, or its GPU is gone; "" if none need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport(Document):
    """What a node says of itself before it is asked."""

    name: str
    """Host and address, and its GPU if it has one."""
    node: str
    """Ray's id of it."""
    version: str
    """Of pytest-cgins there."""
    gpu: str = ""
    """Name of its GPU; "" if it has none."""
    trouble: str = ""
    """Why it can evaluate nothing; "" if it can."""
    remedy: str = ""
    """What to do about that."""
