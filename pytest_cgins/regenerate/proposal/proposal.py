"""`proposal.json`: what a proposal says of itself."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.attempt import Goal, Outcome, Target

PROPOSAL_VERSION = 1

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})?")
_VERBS: dict[Goal, str] = {"repair": "Repair", "optimise": "Speed up", "generate": "Add"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Document):
    """What all answers of a target took together."""

    prompt_tokens: int
    """Tokens of the prompts."""
    cached_tokens: int
    """Those of them that the provider had cached."""
    answer_tokens: int
    """Tokens of the answers."""
    usd: float | None
    """By the user's price table; None where that lacks a model."""
    seconds: float
    """From question to answer, over all of them."""
    estimated: bool
    """Whether some tokens are estimated from texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before(Document):
    """What the gate said of a case before."""

    case: str
    """Name of the case."""
    status: Status
    """What became of it."""
    reason: Reason
    """Why, as a code."""
    message: str
    """Why, for a person; cut, and "" where it passed."""
    share: float | None
    """Greatest error as a share of what is allowed."""
    kernel_ns_per_call: float | None
    """Median time; None if it was not timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Document):
    """One attempt, in short; the journal of the run has it at length."""

    number: int
    """1-based."""
    goal: Goal
    """What was asked for."""
    outcome: Outcome
    """What became of it."""
    reason: str
    """Code of what decided."""
    message: str
    """The same in words, first line, cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(Document):
    """An accepted candidate. All paths start at the top of the repository, or of the project where there is none."""

    version: int
    """Schema version, `PROPOSAL_VERSION`."""
    id: str
    """`RUN/TARGET`."""
    run_id: str
    """The run that made it."""
    target: Target
    """Whose sources it replaces."""
    goal: Goal
    """What was reached."""
    title: str
    """One line; it follows from target and goal."""
    created_at: str
    """UTC, ISO 8601."""
    cgins: str
    """Version of pytest-cgins."""
    config: str
    """Path of the `cgins.yaml`."""
    base_commit: str
    """Commit that was measured on; "" where there is none, or where other files than the kernel's own were not as it has
    them."""
    base_digests: dict[str, str]
    """sha256 of the old contents by path; "" for a file that is new."""
    files: dict[str, str]
    """sha256 of the new contents by path."""
    patch_digest: str
    """sha256 of patch.diff."""
    evidence_digest: str
    """sha256 of evidence.json."""
    report_digest: str
    """sha256 of report.md."""
    guarded_digest: str
    """sha256 over what no candidate may change, and which was the same before and after."""
    before: tuple[Before, ...]
    """What the gate had said of its cases; empty for `generate`."""
    attempts: tuple[Tried, ...]
    """In order, the accepted one last."""
    provider: str
    """Who was asked: `openai`, `replay`, `exchange`, …"""
    models: tuple[str, ...]
    """Models that answered, each once."""
    cost: Cost
    """Of all answers."""
    sandbox: bool
    """Whether candidates ran fenced in."""
    sandbox_note: str
    """Why not; "" where they did."""
    sanitized: bool
    """Whether the accepted one ran under memcheck."""
    held_out_seed: int
    """Of the inputs of the acceptance."""
    command: str
    """Shell command that gates the target again, on these inputs; it follows from the rest."""
    environments: tuple[Environment, ...]
    """Devices that it was tested on."""
    notes: tuple[str, ...] = ()
    """What a person should know, one line each."""
    search: tuple[str, ...] = ()
    """What a search came to, one line each: headline, rounds, methods, cost; empty where nothing was searched."""

    def __post_init__(self) -> None:
        for name in (self.target.kernel, self.target.implementation):
            if not _NAME.fullmatch(name):
                raise ValueError("target: a name has letters, digits and `_.-` only")
        if not _RUN.fullmatch(self.run_id) or self.id != f"{self.run_id}/{self.target.name}":
            raise ValueError("id: is not that of the run and the target")
        if self.title != title_of(self.target, self.goal):
            raise ValueError(f"title: is not {title_of(self.target, self.goal)!r}")
        if not self.files or set(self.files) != set(self.base_digests):
            raise ValueError("files: are not those of base_digests, or none")
        digests = (self.patch_digest, self.evidence_digest, self.report_digest, self.guarded_digest)
        for digest in (*digests, *self.files.values(), *filter(None, self.base_digests.values())):
            if not _DIGEST.fullmatch(digest):
                raise ValueError("digests: one is not a sha256 in lower-case hex")
        if not _COMMIT.fullmatch(self.base_commit):
            raise ValueError("base_commit: is not a commit")
        command = command_of(self.target, self.held_out_seed, self.config, sandbox=self.sandbox)
        if self.command != command:
            raise ValueError(f"command: is not {command[:300]!a}")

    @property
    def created(self) -> frozenset[str]:
        """Paths of files that are new."""
        return frozenset(path for path, digest in self.base_digests.items() if not digest)


def title_of(target: Target, goal: Goal) -> str:
    """What the proposal does, as the title of a commit or pull request."""
    return f"{_VERBS[goal]} {target.kernel} ({target.implementation} on {target.device})"


def command_of(target: Target, seed: int, config: str, *, sandbox: bool) -> str:
    """Shell command that repeats an acceptance.

    Args:
        target: what was accepted.
        seed: of its inputs.
        config: path of the `cgins.yaml`.
        sandbox: whether it ran fenced in.
    """
    options = [f"--cgins-seed={seed}", f"--cgins-device={target.device}", "-k", target.kernel]
    options += ["--cgins-sandbox=on"] if sandbox else []
    return shlex.join(["pytest", "--cgins", *options, config])
