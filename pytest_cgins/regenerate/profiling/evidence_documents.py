"""Evidence as documents: one JSON file each, frozen and free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Roofline
from pytest_cgins.doctor.findings import Finding
from pytest_cgins.regenerate.methods import axis_budget
from pytest_cgins.regenerate.methods.definition import Axis
from pytest_cgins.regenerate.methods.sass_signature import Shown

EVIDENCE_VERSION = 1
NO_LATENCY_DATA = 0.5
"""What stands for the latency gap where nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight(Document):
    """Whether a case can be measured at all."""

    case: str
    """Its name."""
    status: str
    """As `pytest --cgins` says it, without a time."""
    outcome: str
    """`pass`, `fail`, `error` or `skip`."""
    message: str
    """The verdict's; "" if there is nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentEvidence(Document):
    """`env.json`: what this machine has to look into kernels with."""

    version: int
    """Of this document: 1."""
    cgins: str
    """Version of pytest-cgins."""
    platform: str
    """System, its release and the machine."""
    findings: tuple[Finding, ...]
    """GPU, driver, compilers, profilers, headers and libraries, as `cgins doctor` finds them."""
    counters: bool
    """Whether ncu is there and may read performance counters, as far as is known; `--probe` tries it."""
    sass: bool
    """Whether machine code can be disassembled."""
    degraded: tuple[str, ...]
    """What evidence will lack here and why, one line each, with the remedy."""
    preflight: tuple[Preflight, ...] = ()
    """The cases of the kernels that were named: the op replayed, the kernel built and checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps(Document):
    """How far a kernel is from each of three limits: 0 is at it."""

    compute: float
    """Δc = max(0, 1 − max(tensor pipe, fp32 pipe, multiprocessor throughput)); from the roofline 1 − share of compute."""
    memory: float
    """Δm = max(0, 1 − DRAM throughput); from the roofline 1 − share of bandwidth."""
    latency: float
    """Δl = share of the most frequent reason for warps to stall; 0.5 where nothing was measured."""
    latency_known: bool
    """False: no data, 0.5 stands for it."""
    source: Literal["ncu", "roofline"]
    """Performance counters, or work over time."""

    def measured(self) -> axis_budget.Gaps:
        """The same without what stands for missing data, none above 1: an estimate of latency may be."""
        return axis_budget.Gaps(
            compute=min(1.0, self.compute),
            memory=min(1.0, self.memory),
            latency=min(1.0, self.latency) if self.latency_known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRow(Document):
    """One case against the peaks of its device."""

    case: str
    """Its name."""
    key: str
    """Build key of the kernel."""
    status: str
    """The verdict's."""
    message: str
    """Why there are no figures, or what is to be known of them; "" if nothing."""
    median_ns_per_call: float | None
    """Of the kernel; None if it was not timed."""
    roofline: Roofline | None
    """Work, peaks and shares; None where the work or the peaks are not known."""
    gaps: Gaps | None
    """None without a roofline and without counters."""
    near_peak: bool | None
    """Whether the greater of both shares is 0.85 or more; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineEvidence(Document):
    """`roofline.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    rows: tuple[RooflineRow, ...]
    """One a case."""
    degraded: tuple[str, ...] = ()
    """What is missing and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue(Document):
    """One measured figure, and how bad it is."""

    name: str
    """Ours, such as `dram_pct`."""
    axis: Axis
    """What it speaks of."""
    title: str
    """For a person."""
    value: float
    """As measured, in `unit`."""
    unit: str
    """`%`, `ratio`, `count` or `warps`."""
    badness: float | None
    """0 is good, 1 as bad as it matters; None for figures that only describe."""
    reported_as: str
    """The profiler's name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledKernel(Document):
    """One kernel launch of a call, under ncu."""

    name: str
    """Demangled."""
    grid: str
    """Blocks, as ncu writes it."""
    block: str
    """Threads a block."""
    ns: float | None
    """Duration under ncu; None if it was not told."""
    time_share: float
    """Of the call's launches together, by duration; equal shares without durations."""
    metrics: tuple[MetricValue, ...]
    """All that were understood, by axis and badness."""
    raw: dict[str, float]
    """Every counter by ncu's own name, times in nanoseconds and sizes in bytes."""
    suggested: tuple[str, ...] = ()
    """What ncu's rules say of it, each with the speedup that they estimate, if they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineKernel(Document):
    """A kernel as torch's profiler saw it, without counters."""

    name: str
    """Demangled; copies and fills have names too."""
    count: int
    """Launches a call."""
    ns_per_call: float
    """Time of them together."""
    grid: str = ""
    """Blocks; "" if it was not told."""
    block: str = ""
    """Threads a block."""
    registers_per_thread: int | None = None
    """None if it was not told."""
    shared_nbytes_per_block: int | None = None
    """None if it was not told."""
    occupancy_pct: float | None = None
    """Estimated from the launch; None if it was not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction(Document):
    """What the compiler says of one function."""

    function: str
    """Demangled."""
    arch: str
    """Architecture of the machine code."""
    registers_per_thread: int
    """0 for a device function that was not inlined, and where it is not known."""
    spill_nbytes_per_thread: int | None
    """Bytes stored and loaded because registers ran out; None where no compiler's log says so."""
    stack_nbytes_per_thread: int
    """Stack frame in local memory: above 0 where registers ran out, or arrays are indexed by variables."""
    static_shared_nbytes_per_block: int
    """Shared memory that the code declares."""
    instructions: tuple[tuple[str, int], ...]
    """Opcodes and how often each is in the code, most frequent first; () if it was not disassembled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseProfile(Document):
    """One case of one kernel."""

    case: str
    """Its name."""
    key: str
    """Build key of the kernel."""
    kernels: tuple[ProfiledKernel, ...]
    """Launches of one call under ncu, in their order; () without counters."""
    top: tuple[MetricValue, ...]
    """The worst figures of each axis, of the kernel that takes most time."""
    timeline: tuple[TimelineKernel, ...]
    """The call under torch's profiler, longest first; () where that is not to be had."""
    functions: tuple[CompiledFunction, ...]
    """The compiler's report; () where there is none."""
    compiler: tuple[str, ...] = ()
    """The command of the build, and its warnings."""
    report: str = ""
    """Name of the .ncu-rep file beside this document; "" without one."""
    degraded: tuple[str, ...] = ()
    """What is missing and why, one line each, with the remedy."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as the configuration that autotuning chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEvidence(Document):
    """`ncu_top.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    top: int
    """How many metrics an axis are in each case's `top`."""
    ncu: str
    """Version of ncu; "" if it was not used."""
    cases: tuple[CaseProfile, ...]
    """One an implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisassembledFunction(Document):
    """Machine code of one function, counted."""

    function: str
    """Demangled."""
    arch: str
    """Architecture of the machine code."""
    opcodes: tuple[tuple[str, int], ...]
    """Without modifiers, most frequent first."""
    modified: tuple[tuple[str, int], ...]
    """With all modifiers, `LDG.E.128.CONSTANT`, most frequent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureCheck(Document):
    """Whether a method left its mark in machine code."""

    method: str
    """Id of the method."""
    arch: str
    """Architecture whose code was looked at."""
    state: Shown
    """`unknown` is no pass: the method has no signature, or nothing was disassembled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SassRow(Document):
    """One implementation."""

    implementation: str
    """`cuda-triton`."""
    key: str
    """Build key."""
    functions: tuple[DisassembledFunction, ...]
    """() where nothing could be disassembled."""
    signatures: tuple[SignatureCheck, ...] = ()
    """Of the methods that were asked for."""
    degraded: tuple[str, ...] = ()
    """What is missing and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SassEvidence(Document):
    """`sass_check.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    rows: tuple[SassRow, ...]
    """One an implementation that has machine code for a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyFinding(Document):
    """One line of clang-tidy."""

    file: str
    """Path from the project's folder where it lies in it."""
    line: int
    """From 1."""
    level: Literal["error", "warning"]
    """As clang-tidy says it."""
    check: str
    """`bugprone-integer-division`."""
    message: str
    """Its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyEvidence(Document):
    """`clang_tidy.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    clang_tidy: str
    """Version; "" if it is not installed."""
    files: tuple[str, ...]
    """What was looked at."""
    findings: tuple[TidyFinding, ...]
    """In the order of files and lines."""
    degraded: tuple[str, ...] = ()
    """What was not looked at and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(Document):
    """Time of another arm over the kernel's: above 1 the kernel is faster."""

    against: Literal["torch", "compile", "base"]
    """The arm."""
    ns_per_call: float
    """Median of the other arm."""
    ratio: float
    """exp of the median over blocks of the log ratio."""
    low: float
    """Lower end of the median's interval at 95% at least; with few blocks the least."""
    high: float
    """Upper end of it."""
    blocks: int
    """Blocks that have the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow(Document):
    """One case."""

    case: str
    """Its name."""
    key: str
    """Build key of the kernel; "" if it was not built."""
    status: str
    """The verdict's."""
    message: str
    """The verdict's."""
    ns_per_call: float | None
    """Median of the kernel; None if it was not timed."""
    iqr_ns_per_call: float | None
    """Distance of the quartiles."""
    method: str
    """Clock and batching; "" if it was not timed."""
    cache: str
    """`cold` or `warm`; "" if it was not timed."""
    ratios: tuple[Ratio, ...]
    """Against each arm that there was."""
    notes: tuple[str, ...] = ()
    """Why arms are not there, and what else is to be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEvidence(Document):
    """`bench.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    seed: int
    """Of the inputs."""
    device_name: str
    """What it ran on."""
    rows: tuple[BenchRow, ...]
    """One a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseAttribution(Document):
    """What one method is worth in one case."""

    case: str
    """Its name."""
    status: str
    """The variant's verdict, timed against the champion: `SLOWER` is proven in two processes."""
    message: str
    """The verdict's."""
    champion_ns_per_call: float | None
    """Median; None if it was not timed."""
    without_ns_per_call: float | None
    """Median of the variant."""
    attribution_ms: float | None
    """Milliseconds a call without the method, less those with it; above 0 it helps."""
    low_ms: float | None
    """Lower end of its interval at 95% at least."""
    high_ms: float | None
    """Upper end of it."""
    outcome: Literal["slower", "clean", "faster", "inconclusive", "none"]
    """Of the sequential test of the variant against the champion; `none`: there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution(Document):
    """A method, and the champion without it."""

    method: str
    """Its name, as it was given."""
    state: Literal["contributes", "no-gain", "essential", "not-ablated", "undecided"]
    """`contributes`: proven slower without it. `no-gain`: proven not slower without it. `essential`: wrong without it.
    `not-ablated`: the variant cannot be built, run or timed, which counts as not contributed. `undecided`: noise hides it."""
    contributes: bool
    """Whether it is proven that the champion needs it: `contributes` or `essential`."""
    message: str
    """Why, one line."""
    cases: tuple[CaseAttribution, ...]
    """One a case that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionEvidence(Document):
    """`attribution.json`."""

    version: int
    """Of this document: 1."""
    kernel: str
    """Name in cgins.yaml."""
    implementation: str
    """`cuda-triton`."""
    seed: int
    """Of the inputs."""
    methods: tuple[Attribution, ...]
    """In the order in which they were given."""
