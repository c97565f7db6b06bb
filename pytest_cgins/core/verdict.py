"""Statuses and reasons, the checks and probes behind them, and the verdict on one case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import JitCompilations, TunedConfig


class Status(str, Enum):
    """What became of a case."""

    PASSED = "PASSED"
    FASTER = "FASTER"
    SAME = "SAME"
    NEW = "NEW"
    WEAK = "WEAK"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCORRECT = "INCORRECT"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    SUSPECT = "SUSPECT"
    BUILD_ERROR = "BUILD_ERROR"
    SLOWER = "SLOWER"
    BELOW_FLOOR = "BELOW_FLOOR"
    RESOURCES = "RESOURCES"
    TRACE_DRIFT = "TRACE_DRIFT"
    INFRASTRUCTURE = "INFRASTRUCTURE"
    SKIPPED = "SKIPPED"

    @property
    def outcome(self) -> Literal["pass", "fail", "error", "skip"]:
        """What it means to pytest, JUnit and the exit code, before `--cgins-strict` and `gate.fail_on`."""
        if self in (Status.TRACE_DRIFT, Status.INFRASTRUCTURE):
            return "error"
        if self is Status.SKIPPED:
            return "skip"
        good = (Status.PASSED, Status.FASTER, Status.SAME, Status.NEW, Status.WEAK, Status.INCONCLUSIVE)
        return "pass" if self in good else "fail"


class Reason(str, Enum):
    """Why a verdict is what it is; stable codes for scripts."""

    OK = "ok"
    NO_POWER = "no-power"
    OUTPUT_COUNT = "output-count"
    SHAPE = "shape"
    DTYPE = "dtype"
    DEVICE = "device"
    STRIDE = "stride"
    EMPTY = "empty"
    UNWRITTEN = "unwritten"
    INPUT_CHANGED = "input-changed"
    OUT_OF_BOUNDS = "out-of-bounds"
    NAN_PATTERN = "nan-pattern"
    INFINITE_PATTERN = "infinite-pattern"
    GOLD_MISMATCH = "gold-mismatch"
    REFERENCE_MISMATCH = "reference-mismatch"
    INDEX_OUT_OF_RANGE = "index-out-of-range"
    INDEX_MISMATCH = "index-mismatch"
    INDEX_REPEATED = "index-repeated"
    UNSTABLE_ORDER = "unstable-order"
    QUANTIZATION = "quantization"
    RAISED = "raised"
    ERROR_CODE = "error-code"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    RANK_HANG = "rank-hang"
    COMPILER = "compiler"
    SOURCE = "source"
    GOLD_DRIFT = "gold-drift"
    PACK_DAMAGED = "pack-damaged"
    WORKER_LOST = "worker-lost"
    REFERENCE_FAILED = "reference-failed"
    TOOL_MISSING = "tool-missing"
    DEVICE_ABSENT = "device-absent"
    DEVICE_BUSY = "device-busy"
    CONTRACT = "contract"
    RANDOM = "random"
    REGISTERS_GREW = "registers-grew"
    SPILLS_GREW = "spills-grew"
    ARCHITECTURE = "architecture"
    # probes
    NOT_REPEATABLE = "not-repeatable"
    STALE_ANSWER = "stale-answer"
    NOT_ON_STREAM = "not-on-stream"
    LATE_WORK = "late-work"
    DEVICE_ORDER = "device-order"
    LAZY_OUTPUT = "lazy-output"
    OP_CALLBACK = "op-callback"
    TAMPERING = "tampering"
    SNOOPING = "snooping"
    MEMORY_USE = "memory-use"
    MEMORY_LEAK = "memory-leak"
    SIZE_DEPENDENT = "size-dependent"
    ARGUMENT_IGNORED = "argument-ignored"
    LAYOUT_DEPENDENT = "layout-dependent"
    ALIGNMENT_DEPENDENT = "alignment-dependent"
    BATCH_VARIANT = "batch-variant"
    ROW_LEAK = "row-leak"
    INDEX_OVERFLOW = "index-overflow"
    LOW_PRECISION = "low-precision"
    HIDDEN_BY_PRECISION = "hidden-by-precision"
    WRONG_CONFIG = "wrong-config"
    RECOMPILES = "recompiles"
    RANK_RACE = "rank-race"
    RANKS_DISAGREE = "ranks-disagree"
    WRONG_AFTER_TIMING = "wrong-after-timing"
    TOO_FAST = "too-fast"
    L2_CARVE_OUT = "l2-carve-out"
    # how a worker ended
    ABORTED = "aborted"
    EXITED = "exited"
    ILLEGAL_ADDRESS = "illegal-address"
    DEVICE_ASSERT = "device-assert"
    OUT_OF_MEMORY = "out-of-memory"
    OUTPUT_FLOOD = "output-flood"
    PROCESS_FLOOD = "process-flood"
    CONNECTION_CLOSED = "connection-closed"
    FORGED_ANSWER = "forged-answer"
    # time
    SLOWER_THAN_BASE = "slower-than-base"
    BELOW_TORCH_FLOOR = "below-torch-floor"
    FASTER_THAN_BASE = "faster-than-base"
    NOT_SLOWER = "not-slower"
    UNCHANGED = "unchanged"
    NO_BASELINE = "no-baseline"
    NOISE = "noise"
    NOT_CONFIRMED = "not-confirmed"
    NOT_COMPARABLE = "not-comparable"
    SLOWS_BASE = "slows-base"
    # --cgins-opcheck
    UNDECLARED_MUTATION = "undeclared-mutation"
    UNDECLARED_ALIAS = "undeclared-alias"
    WRONG_SCHEMA = "wrong-schema"
    NO_FAKE = "no-fake"
    FAKE_SHAPE = "fake-shape"
    FAKE_DTYPE = "fake-dtype"
    FAKE_STRIDE = "fake-stride"
    FAKE_DEVICE = "fake-device"
    WRONG_FAKE = "wrong-fake"
    NOT_APPLICABLE = "not-applicable"
    NO_AUTOGRAD = "no-autograd"
    WRONG_AUTOGRAD = "wrong-autograd"
    WRONG_GRADIENT = "wrong-gradient"
    AOT_DISPATCH = "aot-dispatch"
    GRAPH_BREAK = "graph-break"
    COMPILED_DIFFERS = "compiled-differs"
    NOT_CAPTURABLE = "not-capturable"
    STALE_REPLAY = "stale-replay"
    # compute-sanitizer
    MEMCHECK = "memcheck"
    RACECHECK = "racecheck"
    INITCHECK = "initcheck"
    SYNCCHECK = "synccheck"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstElement(Document):
    """The element farthest outside (or nearest to) its tolerance."""

    output: int
    """Index of the output tensor."""
    index: tuple[int, ...]
    """Position in it."""
    expected: str
    """What was expected there, as text (round-trip digits; NaN and infinities spelled)."""
    got: str
    """What the kernel gave."""
    tolerance: float
    """Allowed absolute distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Document):
    """One comparison: a rule on one set of inputs."""

    rule: Literal["form", "gold", "reference"]
    """`form`: shape, dtype, stride, NaN pattern; `gold`: rule 1; `reference`: rule 2."""
    inputs: str
    """Name of the input set: `recorded`, `fresh`, `edge`."""
    passed: bool
    """Whether it held."""
    reason: Reason
    """`ok`, or why not."""
    message: str
    """One paragraph for a person; "" when it passed."""
    share: float | None
    """Error as a share of what is allowed, the greater of max and rms: above 1 fails. None for `form`."""
    wrong: int = 0
    """Elements outside tolerance."""
    compared: int = 0
    """Elements compared."""
    worst: WorstElement | None = None
    """The worst element."""
    map: str = ""
    """Compact picture of where the wrong elements are; "" when there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeryCheck(Document):
    """Whether the case tells one forged answer from the right one."""

    forgery: Literal["zeros", "ones", "input-copy", "permuted-gold"]
    """What was offered instead of the kernel's answer."""
    caught: bool
    """Whether some rule refused it."""


GOLD_ALONE = "no reference is named: the recorded gold alone tells what is right, on the recorded inputs, and the kernel is not timed"
"""Note of a case that is held against nothing else."""
PROBES = (
    "on_stream", "poison", "guards", "inputs_unchanged", "repeat", "fresh_memory", "late_work", "device_order", "plain_outputs",
    "autotuner", "recompiles", "op_callback", "libraries", "integrity", "snooping", "memory_use", "memory_leak", "sizes", "invariance", "arguments", "layouts",
    "special_values", "second_precision", "large_indices", "ranks", "after_timing", "content_cache", "physical_floor",
    "l2_carve_out", "memcheck", "racecheck", "initcheck", "synccheck",
)  # fmt: skip
"""Names of all probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(Document):
    """One thing that a wrong kernel might do to pass, looked for in one case."""

    name: str
    """Name of the probe, as in cgins.yaml: `repeat`, `late_work`."""
    outcome: Literal["held", "tripped", "excused", "not-run"]
    """`tripped`: the kernel fails; `excused`: not looked for, and cgins.yaml says why; `not-run`: the probe
    does not apply to this case, or could not be finished."""
    reason: Reason
    """`ok`, or what it tripped with."""
    message: str = ""
    """What was seen, or why it was not run, or the reason that cgins.yaml gives; "" when it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correctness(Document):
    """All that was checked of a kernel's answers on one case."""

    checks: tuple[Check, ...]
    """Checks in the order in which they were made."""
    power: tuple[ForgeryCheck, ...]
    """One a forgery that can be made for this case."""
    notes: tuple[str, ...] = ()
    """What a reader must know: a rule that does not apply, a reference that is not fp64."""
    probes: tuple[Probe, ...] = ()
    """One a probe that was switched on."""
    tuned: tuple[TunedConfig, ...] = ()
    """What the kernel's autotuners chose where it was verified."""
    jit: JitCompilations | None = None
    """What was compiled for all sets of inputs, those of other sizes included; None as for `Measurement.jit`."""

    @property
    def passed(self) -> bool:
        """Whether there was a check, all held, and no probe tripped."""
        return bool(self.checks) and all(check.passed for check in self.checks) and not self.tripped

    @property
    def tripped(self) -> tuple[Probe, ...]:
        """The probes that the kernel fails."""
        return tuple(probe for probe in self.probes if probe.outcome == "tripped")

    def with_probes(self, probes: Iterable[Probe]) -> Correctness:
        """The same with these probes' results in the place of what stood for them."""
        results = {probe.name: probe for probe in probes}
        return replace(self, probes=tuple(results.get(probe.name, probe) for probe in self.probes))

    @property
    def share(self) -> float | None:
        """Greatest error as a share of what is allowed."""
        return max((check.share for check in self.checks if check.share is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Document):
    """Status, reason, message, numbers."""

    status: Status
    """What became of the case."""
    reason: Reason
    """Why, as a code."""
    message: str
    """Why, for a person."""
    numbers: dict[str, float]
    """What it rests on; keys carry their unit."""
