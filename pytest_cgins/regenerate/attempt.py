"""Targets, and the attempts at them with what the gate found. Every class is also a file of the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.case import Contract
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.core.verdict import Status

Goal = Literal["repair", "optimise", "generate"]
"""A kernel that is wrong; one that is right and too slow; one that is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Document):
    """One implementation that is to be regenerated."""

    kernel: str
    """Name of the kernel."""
    implementation: str
    """Name of the implementation."""
    device: DeviceName
    """Device type."""
    op: str
    """The op that it replaces."""
    contract: Contract
    """How it is called."""
    goal: Goal
    """What is asked for."""
    statuses: tuple[Status, ...] = ()
    """What the gate said of its cases, each once; empty for `generate`."""
    improves: str = ""
    """Name of the target of the same run whose accepted kernel is to become faster; "" for one of the project's."""

    @property
    def name(self) -> str:
        """Folder of its attempts, and what people call it: `softmax-cpu-cpp`."""
        return f"{self.kernel}-{self.device}-{self.implementation}{'-faster' if self.improves else ''}"

    @property
    def key(self) -> tuple[str, str, str]:
        """As of `Config.implementations`."""
        return self.kernel, self.implementation, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Document):
    """What a static check has against a source."""

    code: str
    """Stable, for scripts: `calls-op`, `process`, `network`, …"""
    file: str
    """Relative to the project."""
    line: int
    """1-based; 0 for the whole file."""
    message: str
    """What was found, and what to do instead."""


Outcome = Literal[
    "unusable", "refused", "build-error", "failed", "right", "not-tried", "not-accepted", "accepted", "tampered",
    "provider-error",
]  # fmt: skip
"""`unusable`: no source could be read from the answer; `refused`: by the static check; `failed`: a case did; `right`: of a
search, all cases passed, and times were taken; `not-tried`: verifiers put others before it, or another was accepted; `not-accepted`: it passed,
and not again on held-out inputs, or was not faster, or not proven so; `tampered`: it changed other files of its copy."""


Kind = Literal["optimise", "fix", "regenerate", "ablate"]
"""Make it faster; mend what the last one got wrong; take another way from the same source; leave one method out."""


INCUMBENT = 0
"""Number of the sources that a search began from, among its candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Document):
    """What the gate said of a candidate."""

    stage: Literal["check", "times", "acceptance"]
    """`check`: inputs of the run's seed; `times`: of a search, against the best candidate until then; `acceptance`: fresh
    processes, a seed that nobody knew before."""
    evaluations: tuple[Evaluation, ...]
    """Of its cases, and of those of other kernels that share a changed file."""
    environments: tuple[Environment, ...]
    """What it ran on, one a device."""
    seed: int
    """Of the inputs."""
    sandbox: bool
    """Whether it ran fenced in."""
    sanitized: bool
    """Whether it ran under memcheck."""
    seconds: float
    """How long it took."""
    notes: tuple[str, ...] = ()
    """What a person should know, one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Document):
    """One prompt that a policy wants answered."""

    parent: int
    """Candidate whose sources are shown and changed; 0 for the incumbent."""
    kind: Kind
    """What is asked for."""
    round: int
    """1-based; what belongs to one step of the policy has the same."""
    branch: int = 0
    """Which of those that are asked for at once."""
    model: str = ""
    """Who is asked; "" for a person or an agent."""
    temperature: float | None = None
    """None: the provider's default."""
    shows_evidence: bool = False
    """Whether figures of profilers are in the prompt."""
    variant: str = ""
    """What is to differ from the others of its round, in words of the prompt."""
    shown: tuple[int, ...] = ()
    """Other candidates that the prompt tells of, the nearest first."""
    method: str = ""
    """For `ablate`: id of the method that is to be left out."""
    staged: bool = True
    """Whether axes are looked at one after the other; else all in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Document):
    """One answer, and what became of it."""

    number: int
    """1-based."""
    goal: Goal
    """What was asked for."""
    outcome: Outcome
    """What became of it."""
    reason: str
    """Code: of the verdict that decided, of the finding, or of what was wrong with the answer."""
    message: str
    """The same in words, as the next prompt says it."""
    findings: tuple[Finding, ...] = ()
    """Of the static check."""
    log: str = ""
    """The compiler's output, if it refused."""
    trials: tuple[Trial, ...] = ()
    """In the order in which they were made."""
    said: str = ""
    """What its author gave as the cause, or set out to do: the answer's first words."""
    digest: str = ""
    """sha256 over the candidate's sources; "" where there are none."""
    seconds: float = 0.0
    """From the answer to the outcome."""
    ask: Ask = Ask(parent=INCUMBENT, kind="fix", round=1)
    """What its policy asked for."""
    methods: tuple[str, ...] = ()
    """Of a search: ids of the methods that the answer names."""
    complaints: tuple[str, ...] = ()
    """What in the answer was left out and, of a search, what is wrong with that choice of methods: told, decides nothing."""
    time_ratio: float | None = None
    """Of a search: its time over the incumbent's, geometric mean over the cases; None where it is not right."""
    beats_champion: bool = False
    """Of a search: whether it was proven faster than the best one until then."""
    rank: float | None = None
    """Of a search: how likely it is right, as verifiers think, 0 to 1; None where nobody was asked."""

    @property
    def is_right(self) -> bool:
        """Whether it passed all cases, and was timed."""
        return self.time_ratio is not None

    @property
    def is_wrong(self) -> bool:
        """Of a search: whether it is known not to be right."""
        return not self.is_right and self.outcome != "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice(Document):
    """What the helper made of a failed attempt."""

    text: str
    """What to do next."""
    avoid: tuple[str, ...] = ()
    """What was tried and must not be repeated, one line each."""
    attempt: int = 0
    """Number of the attempt that it is about; 0 in runs of older versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded(Document):
    """Digests of what no candidate may change."""

    files: dict[str, str]
    """sha256 by path, relative to the project: cgins.yaml, packs, tests, and all else that is not the kernel's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Document):
    """What became of a target."""

    target: Target
    """Which."""
    state: Literal["accepted", "failed", "waiting", "stopped"]
    """`failed`: attempts are used up; `waiting`: for answers; `stopped`: by a budget, a person or an error."""
    attempts: tuple[Attempt, ...]
    """In order."""
    why: str = ""
    """For a person, one line: why there is no kernel; "" where there is one."""
    remedy: str = ""
    """What to do about that, likewise; "" where there is nothing to say."""
    proposal: str = ""
    """Folder of the proposal, relative to the run's; "" where there is none."""
