"""What a session reports: its environment, evaluations, compilations and shards; times are in seconds or as names say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.case import Case, KernelResources, _on_device
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.verdict import Correctness, Reason, Status, Verdict

REPORT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Document):
    """What a measurement or report was made with."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    """CPU or GPU model."""
    python: str
    """Python version."""
    torch: str
    """torch version."""
    cuda: str = ""
    """CUDA version that torch was built with, "" without."""
    driver: str = ""
    """NVIDIA driver version, "" without."""
    triton: str = ""
    """Triton version, "" without."""
    host_cores: int = 0
    """Cores that the process may use."""
    device_uuid: str = ""
    """UUID of the GPU or the part of one, as NVML writes it: `GPU-…`, `MIG-…`; "" for a CPU."""
    sm_count: int = 0
    """Multiprocessors of the GPU; 0 for a CPU."""
    memory_nbytes: int = 0
    """Memory of the GPU, as CUDA tells it; 0 for a CPU."""
    mig: bool | None = None
    """Whether the GPU is divided (MIG), or is such a part; None where nobody tells."""
    ecc: bool | None = None
    """Whether its memory is corrected; None where nobody tells."""
    clock_policy: str = ""
    """GPU: `default`, or `applications-1410-mhz`. CPU: `governor performance, turbo off`. "" where nobody tells."""
    cudnn: str = ""
    """cuDNN version, "" without."""
    cublas: str = ""
    """cuBLAS version, "" without."""
    protocol: int = 0
    """Version of the procedure of timing, `environment_key.TIMING_PROTOCOL`; 0: from before there were versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested(Document):
    """What an evaluation stands for: with other sources, traces or settings it says nothing.

    All digests are sha256 in hex.
    """

    sources: str
    """Digest of the kernel's sources and how they are built, as `Evaluation.kernel_digest`."""
    build: str
    """Build key: over the sources, the headers that they include, flags and compiler."""
    library: str
    """Digest of the file that the workers loaded, read when it was handed to them; "" for contract `python`."""
    trace: str
    """Id of the trace."""
    pack: str
    """Digest of the pack's `manifest.json`; "" if it could not be read."""
    config: str
    """Digest of what cgins.yaml says of this implementation: op, tolerance, exceptions, claims, flags."""
    cgins: str
    """Version of pytest-cgins."""
    seed: int
    """Seed of the fresh inputs."""
    key: str = ""
    """Digest of all that could change the verdict, the seed apart; "" where that was not found out."""
    environment: str = ""
    """Device and versions, in words; "" without a key."""
    unknown: str = ""
    """Why there is no key: what could change the verdict unseen; "" where there is one, or none was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(Document):
    """Which run verified a case whose verdict was taken over, not found anew."""

    key: str
    """`Tested.key`, then as now."""
    verified_at: str
    """When: UTC, ISO 8601."""
    writer: str
    """Which run: its address in CI, else who ran it where."""
    revision: str
    """Commit of the project; "" outside of git."""
    environment: str
    """As of `Tested`."""

    def __str__(self) -> str:
        date, time = self.verified_at[:10], self.verified_at[11:16]
        at = f", revision {self.revision[:10]}" if self.revision else ""
        return f"verified on {date} {time} UTC by {self.writer}{at}, digest {self.key[:16]}"


SAME_BITS = "the same bits"
"""Of answers in two environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments(Document):
    """One kernel in two environments, beside its time: the base's figure first in each pair."""

    base: str
    """The base's environment, in words."""
    same_sources: bool
    """Whether the base is of the same sources."""
    base_status: str = ""
    """What the base's answers gave there: `PASSED`, `INCORRECT`, …"""
    drift: str = ""
    """How the answers differ from those of the base; "" where that was not found out."""
    compile_seconds: tuple[float, float] | None = None
    """Wall time of both builds when they were made; None where nothing is built."""
    library_nbytes: tuple[int, int] | None = None
    """Size of both libraries."""
    registers_per_thread: tuple[int, int] | None = None
    """Most registers of any function; None without a report of ptxas."""
    spill_nbytes: tuple[int, int] | None = None
    """Bytes that a thread of any function spills at most, stores and loads together."""
    peak_nbytes: tuple[int, int] | None = None
    """Memory that a call takes at its peak beyond its inputs, outputs included; None on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedKernel(Document):
    """One kernel in one run of a whole model."""

    kernel: str
    """`NAME/IMPLEMENTATION`, as in cgins.yaml."""
    op: str
    """What it replaces."""
    calls: int
    """Calls of the op that the kernel answered."""
    left: dict[str, int]
    """Calls that torch answered, by the reason."""
    torch_ns_per_run: float = 0.0
    """What the op takes in a run without kernels, over all its calls; 0 where that was not measured."""
    kernel_ns_per_run: float = 0.0
    """What it takes with them, calls included that are left to torch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTimes(Document):
    """Times of a whole model by the plain protocol: the mean of ten runs after one that is discarded, each by itself."""

    kernel_ns: float
    """With kernels."""
    torch_ns: float
    """Without."""
    base_ns: float | None = None
    """With those that they are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Document):
    """All that is known of one case after it ran."""

    case: Case
    """The case."""
    verdict: Verdict
    """The outcome."""
    kernel_digest: str
    """Digest of the kernel that was run; "" if it was never found."""
    correctness: Correctness | None
    """None if it never ran."""
    measurement: Measurement | None
    """None if it was not timed."""
    build_seconds: float
    """Wall time of its build, 0 from the cache."""
    seconds: float
    """Wall time of the whole evaluation."""
    output: str = ""
    """Tail of what the kernel printed."""
    config: str = ""
    """Path of the `cgins.yaml` that has the case, from the folder where pytest began; "" where nobody noted it."""
    tested: Tested | None = None
    """Digests of what was tested; None if the kernel was not built."""
    fail_on: Literal["regression", "inconclusive", "never"] = "regression"
    """`gate.fail_on`: whether a proven slowdown fails, an undecided time too, or neither."""
    environments: Environments | None = None
    """What differs between two environments; None in a run in one."""
    stored: Provenance | None = None
    """Where the verdict comes from; None if it was found in this run."""
    device_name: str = ""
    """Model of the device, as in `Environment`; only in merged reports that have several of one type."""
    swapped: tuple[SwappedKernel, ...] = ()
    """Of a whole model: the kernels in it."""
    plain: PlainTimes | None = None
    """Of a whole model: its times by the plain protocol."""

    @property
    def label(self) -> str:
        """What a reader knows the case by: its name, with the device where the name alone is not enough."""
        return f"{self.case.name} on {self.device_name}" if self.device_name else self.case.name


def unknown(case: Case) -> Evaluation:
    """What is told of a case before anything is found."""
    return Evaluation(
        case=case,
        verdict=Verdict(status=Status.SKIPPED, reason=Reason.OK, message="", numbers={}),
        kernel_digest="",
        correctness=None,
        measurement=None,
        build_seconds=0.0,
        seconds=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation(Document):
    """One kernel implementation built for one architecture, without being run."""

    kernel: str
    """Kernel name."""
    implementation: str
    """Implementation name."""
    arch: str
    """Architecture, such as `sm_90a`."""
    verdict: Verdict
    """`PASSED`, `NEW` (no baseline), `RESOURCES`, `BUILD_ERROR`, `SKIPPED` or `INFRASTRUCTURE`."""
    resources: tuple[KernelResources, ...]
    """One a `__global__` function, by name; () if it was not built."""
    base: tuple[KernelResources, ...]
    """Functions of the build at the base revision; () if there is none."""
    base_revision: str
    """Commit that it was compared with; "" if with none."""
    build_seconds: float
    """Wall time of its build, 0 from the cache."""
    seconds: float
    """Wall time of all of it, the base's build included."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that no tool could disassemble."""
    config: str = ""
    """Path of the `cgins.yaml`, as in `Evaluation`."""

    @property
    def name(self) -> str:
        """Node name: `layer_norm/cuda/sm_90a`."""
        return f"{self.kernel}/{_on_device(self.implementation, 'cuda')}/{self.arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(Document):
    """The part of a suite that was run: `--cgins-shard`."""

    number: int
    """Number of the part, from 1."""
    count: int
    """How many parts the suite has."""
    durations: str = ""
    """Digest of the `--cgins-durations` that it was cut by; "" for none."""

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            raise ValueError(f"shard {self.number} of {self.count}: the number is one of 1 to {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRun(Document):
    """One of the runs that a merged report was made of."""

    seed: int
    """The value in `SessionReport`."""
    started_at: str
    """The value in `SessionReport`."""
    exit_status: int
    """Exit status with which the run ended by itself."""
    tests: int
    """N by which the run judged its times; 0 if it made no test."""
    devices: tuple[str, ...]
    """Models of the devices that it used."""
    shard: Shard | None = None
    """The part of a suite that was run; None if it was no numbered one."""
    digest: str = ""
    """sha256 of its report, in hex: no two runs share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport(Document):
    """What `--cgins-json` writes."""

    version: int
    """Schema version, `REPORT_VERSION`."""
    cgins: str
    """Version of pytest-cgins."""
    seed: int
    """Seed of the fresh inputs: `--cgins-seed` repeats them."""
    started_at: str
    """UTC, ISO 8601."""
    seconds: float
    """Wall time of the session; in a merged report of all of them together."""
    exit_status: int
    """Exit code of the session."""
    environments: tuple[Environment, ...]
    """One a device that was used."""
    evaluations: tuple[Evaluation, ...]
    """Ordered by case name."""
    strict: bool = False
    """Whether `--cgins-strict` was in force."""
    compilations: tuple[Compilation, ...] = ()
    """What `--cgins-compile-only` built, ordered by name."""
    missing: tuple[str, ...] = ()
    """Cases that the base revision has and this session's files do not: `cgins.yaml::KERNEL/…`, with the path from
    the folder where pytest began. Cases that the command line left out are not among them."""
    base_revision: str = ""
    """What the cases were compared with: `1a2b3c4d5e (merge-base with main)`; "" if nothing."""
    stale: tuple[str, ...] = ()
    """What changed after it was tested, one line a kernel or pack: its evaluations are not those of the files."""
    empty: bool = False
    """Whether no kernel was run: there was no case, or all were skipped."""
    ci: bool = False
    """Whether it ran in CI: there missing cases, stale evidence and an empty run fail."""
    allow_fewer: bool = False
    """Whether `--cgins-allow-fewer` lets missing cases and an empty run pass."""
    told_only: bool = False
    """Whether missing cases fail nowhere: this is no pull request's run, and no `--cgins-baseline` was given."""
    coverage_note: str = ""
    """Why cases were not compared with the base revision's; "" if they were."""
    weaker: tuple[str, ...] = ()
    """Settings, pipelines and options of pytest that are weaker than at the base revision, one line each."""
    allow_weaker: bool = False
    """Whether `--cgins-allow-weaker` lets them pass."""
    unread: bool = False
    """Whether cases were to be compared with the base, and it could not be read; like `missing`, that fails in CI."""
    suite_tests: int = 0
    """`--cgins-suite-tests`: tests of the suite that several runs make up; 0 where the run counted its own."""
    shard: Shard | None = None
    """`--cgins-shard`; None where the run was no numbered part."""
    merged: tuple[MergedRun, ...] = ()
    """What `cgins merge` made this of; () in a run's own report."""
    other_failures: int = 0
    """Failures that no case or build stands for: a test of the user's own, a file that could not be collected."""
    stopped: bool = False
    """Whether `-x` or `--maxfail` stopped the run: of what was left nobody knows."""
