"""Every error that pytest-cgins raises on purpose.

    CginsError
    ├── ConfigError            cgins.yaml, an option or an environment variable is wrong
    ├── TraceError             something about traces
    │   ├── PackError          a trace pack on disk is corrupt, hostile, or of another version
    │   ├── RecordError        a call cannot be recorded as it is
    │   │   └── DiskError      the disk does not take what is recorded
    │   └── ReplayError        a record does not reproduce its own gold
    │       └── RandomOp       its op draws random numbers, which no other device repeats
    ├── KernelError            something about one kernel
    │   ├── SourceError        its sources, entry point or schema line
    │   ├── BuildError         its compiler said no
    │   ├── ContractError      it does not take such a call; the case is skipped
    │   └── LaunchError        it returned an error code, or raised
    ├── WorkerError            a worker process
    │   ├── WorkerCrashed      it died: signal, abort, exit
    │   ├── WorkerTimeout      it did not answer within its limit and was killed
    │   ├── WorkerExceeded     it took more memory, output or processes than it may, and was killed
    │   ├── ProtocolError      it answered something that is not in the protocol
    │   └── ServiceError       the service in it raised; carries the remote type and traceback
    ├── ReferenceStopped       torch's own code stopped the device on inputs of ours
    ├── GitError               git failed
    ├── RevisionError          the commit to compare with cannot be found or read
    ├── HistoryError           a history of times is damaged, or held by another process
    ├── MergeError             reports of runs do not add up to one
    ├── RegenerateError        something about kernels that a model is asked for
    │   ├── ProviderError      the model cannot be asked, or its provider gave up; `retry` says whether later may do
    │   ├── BudgetError        no tokens, money, attempts or minutes are left
    │   ├── AnswerError        no source can be read from an answer; `code` says why
    │   ├── JournalError       a run's folder is damaged, or another process works on it
    │   └── ProposalError      a proposal is damaged, hostile, or no longer fits the project
    ├── GitHubError            git or GitHub refused, or cannot be reached
    └── InfrastructureError    a tool or device that is needed is not there
        ├── LockedError        another process builds the kernel
        └── SandboxUnavailable this host cannot fence kernels in

Each message has three parts: what happened, the value that was met, and the remedy. `remedy` is an
argument of its own so that no error can forget it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False, repr=False)
class CginsError(Exception):
    """Base of all. `str(error)` is "what happened" followed by "→ remedy"."""

    what: str
    """What happened, with the value that was met."""
    remedy: str = field(default="", kw_only=True)
    """What to do about it; "" where nothing is."""

    def __str__(self) -> str:
        return f"{self.what}\n→ {self.remedy}" if self.remedy else self.what


class ConfigError(CginsError):
    """`cgins.yaml`, an ini value or an option is wrong. `file:line` leads the message where known."""


class TraceError(CginsError):
    """Base of what concerns traces."""


class PackError(TraceError):
    """A trace pack is corrupt, truncated, oversized, hostile, or of another schema version."""


class RecordError(TraceError):
    """An op call cannot be recorded: an opaque leaf, a wrapper tensor, an unbound argument."""


class DiskError(RecordError):
    """The disk does not take what is recorded, as when it is full: no call is at fault."""


class ReplayError(TraceError):
    """A record, replayed on the device it was recorded on, does not give its own gold."""


class RandomOp(ReplayError):
    """A trace's op draws random numbers from torch's generator: no kernel can be asked for the same."""


class ReferenceStopped(CginsError):
    """torch's own code stopped the device on some inputs; `what` names them. The process has no device any more."""


class KernelError(CginsError):
    """Base of what concerns one kernel."""


class SourceError(KernelError):
    """A kernel's source, entry point or schema line is missing or does not fit the op."""


@dataclass(eq=False, repr=False, kw_only=True)
class BuildError(KernelError):
    """A compiler refused the kernel. `log` is its whole output."""

    log: str = ""


class ContractError(KernelError):
    """A call is outside what the kernel declares to take: contract not met, no fault of its answers."""


class LaunchError(KernelError):
    """A launcher returned an error code, or a callable raised, on valid inputs."""


@dataclass(eq=False, repr=False, kw_only=True)
class WorkerError(CginsError):
    """Base of what concerns worker processes.

    `output` is the tail of the worker's stdout, and of its stderr below a line `stderr:`. `fault` is the value of
    the `core.verdict.Reason` that a verdict gives when a kernel was to blame.
    """

    output: str = ""
    fault: str = "crashed"


@dataclass(eq=False, repr=False, kw_only=True)
class WorkerCrashed(WorkerError):
    """The process ended while a request was open. `returncode` is negative for a signal."""

    returncode: int | None = None


class WorkerTimeout(WorkerError):
    """The process did not answer within the request's limit, and was killed."""


class WorkerExceeded(WorkerError):
    """The process and its descendants took more of the machine than they may, and were killed."""


class ProtocolError(WorkerError):
    """The process sent something that the protocol does not have."""


class ServiceError(WorkerError):
    """The service raised.

    `kind` is the remote exception's class name, `text` its own message, `trace` its traceback.
    """

    def __init__(
        self, what: str, *, remedy: str = "", kind: str = "", text: str = "", trace: str = ""
    ) -> None:
        super().__init__(what, remedy=remedy, output=trace, fault="raised")
        self.kind = kind
        self.text = text
        self.trace = trace


class HistoryError(CginsError):
    """A history of times cannot be read or appended to. `file:line` leads the message where known."""


class VerdictStoreError(CginsError):
    """Verdicts of earlier runs cannot be read or written."""


@dataclass(eq=False, repr=False, kw_only=True)
class GitError(CginsError):
    """git failed. `output` is what it printed; None where it did not run, or not to its end."""

    output: bytes | None = None


class RevisionError(CginsError):
    """There is no commit to compare with: no repository, a shallow clone, an unknown name."""


class MergeError(CginsError):
    """Reports do not add up to one: a part is missing, cases are there twice, or a verdict cannot be decided again."""


class RegenerateError(CginsError):
    """Base of what concerns regeneration."""


@dataclass(eq=False, repr=False, kw_only=True)
class ProviderError(RegenerateError):
    """A model cannot be asked, or its provider gave up. `retry`: whether asking later may do."""

    retry: bool = False


class BudgetError(RegenerateError):
    """A budget is used up: attempts, tokens, money or minutes."""


@dataclass(eq=False, repr=False, kw_only=True)
class AnswerError(RegenerateError):
    """No source can be read from an answer. `code` is stable: `no-code`, `foreign-file` and so on."""

    code: str


class JournalError(RegenerateError):
    """A run's folder is damaged, or another process works on it."""


class ProposalError(RegenerateError):
    """A proposal is damaged, hostile, or no longer fits the project."""


@dataclass(eq=False, repr=False, kw_only=True)
class GitHubError(CginsError):
    """git or GitHub refused, or cannot be reached. `status` is HTTP's, 0 where there was none."""

    status: int = 0


class InfrastructureError(CginsError):
    """A tool or device that the run needs is missing or was lost."""


class LockedError(InfrastructureError):
    """Another process has been building a kernel for as long as one may wait for it."""


class SandboxUnavailable(InfrastructureError):
    """A sandbox cannot be made on this host."""
