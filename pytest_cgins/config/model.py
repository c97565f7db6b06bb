"""`cgins.yaml` as one frozen `Config`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.config.pull_request import PullRequestSettings
from pytest_cgins.config.semantics import Declared
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.model import Contract, Specialized


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a kernel may be from gold: the derived rule, or plain allclose."""

    kind: Literal["derived", "explicit"] = "derived"
    """`explicit`: |y − gold| ≤ atol + rtol·|gold|, every element."""
    rtol: float = 0.0
    """Relative part, for `explicit`."""
    atol: float = 0.0
    """Absolute part, for `explicit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """How far a kernel's resources may grow without failing the compile gate."""

    registers: int | None = None
    """Growth up to so many registers a thread is accepted; None: up to what costs no resident warps."""
    spill_nbytes: int = 0
    """Growth up to so many spilled bytes a thread, stores and loads together, is accepted."""


FailOn = Literal["regression", "inconclusive", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingGate:
    """How a kernel's time is judged: `gate` of the file, and of the kernel, which comes before it."""

    tolerate: float = 0.02
    """δ₀: slowdowns up to this against the base revision pass; 0.02 is 2%."""
    catch: float = 0.05
    """δ₁: slowdown that must be caught."""
    floor_vs_torch: float | None = None
    """Least speed against torch, eager: 0.9 is nine tenths of torch's; None for none."""
    fail_on: FailOn = "regression"
    """`regression`: a proven slowdown fails; `inconclusive`: an undecided case too; `never`: neither does."""
    alpha: float = 0.01
    """Chance of a false alarm in the whole suite."""
    beta: float = 0.01
    """Chance of clearing a kernel that is slower by `catch`."""
    max_blocks: int = 64
    """After so many blocks a case is undecided."""
    cache: Literal["cold", "warm"] = "cold"
    """`cold`: inputs rotate through more than twice the last-level cache; `warm`: they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWork:
    """What cgins.yaml says a call must do, as expressions over the op's arguments; "" where it does not say."""

    nbytes: str = ""
    """Bytes read and written."""
    flops: str = ""
    """Floating-point operations, a multiply-add being two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatability:
    """How far a kernel's answers to the same inputs may differ from each other."""

    kind: Literal["exact", "tolerance", "explicit"] = "exact"
    """`exact`: bit for bit; `tolerance`: each within the case's tolerance; `explicit`: |a − b| ≤ atol + rtol·|a|."""
    rtol: float = 0.0
    """Relative part, for `explicit`."""
    atol: float = 0.0
    """Absolute part, for `explicit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeException:
    """A probe that a kernel is excused from."""

    probe: str
    """Its name."""
    reason: str
    """Why, as the user wrote it; reports show it."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""


Claim = Literal["strided", "misaligned"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
"""What a kernel may claim to take beyond the recording: any strides; addresses that are no multiple of 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One way in which a kernel is written."""

    name: str
    """Unique among the kernel's implementations for one device."""
    device: DeviceName
    """Device type."""
    contract: Contract
    """How it is called."""
    sources: tuple[Path, ...]
    """Absolute paths, main file first."""
    target: str = ""
    """`module:function`, contract `python`."""
    entry: str = ""
    """Function in the main source (contract `torch-extension`); that of a launcher or device kernel is in its schema line."""
    defines: tuple[tuple[str, str], ...] = ()
    """Preprocessor definitions, in the order of the file."""
    specialized: Specialized | None = None
    """Further builds for some sizes, as `specialize` says."""
    flags: tuple[str, ...] = ()
    """Further compiler flags."""
    archs: tuple[str, ...] = ()
    """CUDA architectures such as `sm_90a`."""
    interpret: bool = False
    """Run a Triton kernel in Triton's interpreter (device `cpu`)."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """One kernel of cgins.yaml."""

    name: str
    """Its key."""
    op: str
    """Qualified name of the op it replaces."""
    implementations: tuple[Implementation, ...]
    """At least one."""
    tolerance: Tolerance = Tolerance()
    """For rule 1."""
    limits: ResourceLimits = ResourceLimits()
    """For the compile gate."""
    timing: TimingGate = TimingGate()
    """How its time is judged."""
    work: DeclaredWork = DeclaredWork()
    """For the roofline."""
    exceptions: tuple[ProbeException, ...] = ()
    """Probes that it is excused from."""
    repeatability: Repeatability = Repeatability()
    """For the probe `repeat`."""
    claims: tuple[Claim, ...] = ()
    """What it takes beyond what was recorded: the probe `layouts` tries it."""
    allow_tf32: bool = False
    """Whether fp32 products may be computed on inputs of 11 significant bits (TF32)."""
    semantics: Declared = field(default_factory=Declared)
    """What the user says of its op."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole cgins.yaml."""

    file: Path
    """Absolute path of the file."""
    traces: tuple[Path, ...]
    """Absolute paths of the trace packs' folders."""
    kernels: tuple[KernelEntry, ...]
    """In the order of the file."""
    baseline: str = ""
    """`gate.baseline`: what `--cgins-baseline` is where it is not given; "" for that option's own default."""
    llm: LlmSettings | None = None
    """Who is asked for kernels; None where the file does not say."""
    pull_request: PullRequestSettings = field(default_factory=PullRequestSettings)
    """What pull requests of proposals are given."""

    @property
    def root(self) -> Path:
        """Folder of the file: relative paths start here, and Python targets and ops are imported from it."""
        return self.file.parent

    @property
    def implementations(self) -> dict[tuple[str, str, str], tuple[KernelEntry, Implementation]]:
        """Each implementation with its kernel, by the kernel's name, its own name, and the device type."""
        return {
            (entry.name, implementation.name, implementation.device): (entry, implementation)
            for entry in self.kernels
            for implementation in entry.implementations
        }
