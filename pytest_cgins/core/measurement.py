"""How long a kernel took, against what, and what that proves: frozen and free of torch.

Times are in nanoseconds a call. A ratio is time over time: above 1 the kernel takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, MaxLen

from pytest_cgins.core.document_base import Document

ArmName = Literal["kernel", "base", "torch", "compile"]
ARM_LETTERS: dict[ArmName, str] = {"kernel": "K", "base": "B", "torch": "T", "compile": "C"}
"""How orders of blocks write the arms."""
Method = Literal["cuda-graph", "fenced-loop", "perf-counter", "cuda-event"]
"""How batches are timed: CUDA events around graphs; the host's clock around loops of calls, on a GPU between waits for the
whole device. `cuda-event` is in files of versions before 0.2 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(Document):
    """One side of a timing."""

    name: ArmName
    """Whose time it is."""
    samples_ns_per_call: tuple[float, ...]
    """One a batch, in the order in which they were taken; two a block that has the arm."""
    calls_per_batch: int
    """Calls in one timed batch."""
    median_ns_per_call: float
    """Median of the samples."""
    iqr_ns_per_call: float
    """Distance of the quartiles of the samples."""
    host_ns_per_call: float | None = None
    """What the host takes to launch one call, outside of a graph; None on a CPU, where the call is the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks(Document):
    """What the GPU's management library told while blocks were timed."""

    sm_mhz: tuple[int, ...]
    """Clock of the multiprocessors after each kept block."""
    redone: tuple[str, ...] = ()
    """Why blocks were thrown away and taken anew, one entry a block: the clock alone decides that."""
    throttled: tuple[str, ...] = ()
    """Reasons for lower clocks that stood during kept blocks too, each once: `sw-power-cap`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(Document):
    """What a comparison could have seen, by the noise that was observed."""

    sigma: float
    """Standard deviation of the log ratio of one block, 1.4826 times the median absolute deviation."""
    detectable: float | None
    """Least slowdown that would have been proven within the blocks that were allowed in 9 of 10 runs: 0.08 is
    8%; None if not even a doubled time would."""
    blocks_needed: int | None
    """Blocks that would decide in 9 of 10 runs, whether the kernel is as fast as before or slower by `catch`; None
    if no number up to 10,000 would."""


SumOutcome = Literal["slower", "faster", "maybe-slower", "maybe-faster", "alike"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums(Document):
    """The test on sums of calls: a cost that comes rarely is in them, and not in the median of blocks."""

    calls: int
    """Fewest calls of each arm in a sum: what comes less often than once in so many calls is not seen."""
    most: int
    """After so many sums the test ends."""
    log_ratios: tuple[float, ...]
    """One a superblock: the logarithm of the sum of the kernel's times over that of the other arm's."""
    ratio: float
    """exp of their median."""
    log_e_slower: float
    """Natural logarithm of the e-value against "not slower than `tolerate`"."""
    log_e_faster: float
    """Natural logarithm of the e-value against "not faster than `tolerate`"."""
    outcome: SumOutcome
    """What is proven; `maybe-…`: suspected when it ended; `alike`: there was no reason to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Document):
    """The sequential test of the kernel's time against another arm's."""

    against: Literal["base", "torch"]
    """`base` gates the regression; `torch` a declared floor."""
    unit: Literal["block", "pair"] = "block"
    """What has a log ratio: a block of both arms in one process, or a pair of fresh processes with an arm each, whose
    medians are compared. Pairs need no confirmation: each is in processes of its own."""
    log_ratios: tuple[float, ...]
    """Log ratio of each block: ½(ln k₁ + ln k₂ − ln b₁ − ln b₂), natural logarithm."""
    shift: float = 0.0
    """What is added to each before the test: ln(floor) where `against` is torch."""
    tolerate: float
    """δ₀: slowdown that passes, as it was used: 0.02 is 2%. What cgins.yaml tolerates, and 2.5 times the upper
    bound of the spread between processes."""
    catch: float
    """δ₁: slowdown that must be found."""
    alpha: float
    """Bound of the chance that any test of the whole suite calls a kernel slower that is not."""
    beta: float
    """Bound of the chance that a kernel slower by `catch` is called clean."""
    tests: int
    """N: how many tests of the suite share `alpha`."""
    most_blocks: int
    """After so many blocks it ends undecided."""
    log_e_slower: float
    """Natural logarithm of the e-value against "not slower than `tolerate`"."""
    log_e_clean: float
    """Natural logarithm of the e-value against "slower"."""
    log_e_faster: float
    """Natural logarithm of the e-value against "not faster than `tolerate`"."""
    outcome: Literal["slower", "clean", "faster", "inconclusive"]
    """What is proven; `clean`: not slower. `log_e_…` are of the medians: where `sums` prove something else, that stands."""
    ratio: float
    """exp of the median of `log_ratios`."""
    ratio_low: float
    """Lower end of the median's interval, by order statistics: at 95% at least, whenever the test ended; with fewer than
    eight blocks the least."""
    ratio_high: float
    """Upper end of it."""
    power: Power
    """What the observed noise allows."""
    runs: float | None = None
    """p-value of a runs test, where the medians were slower: the chance that independent blocks change sides of δ₀ as rarely
    as these did. Below 1% blocks are autocorrelated, and nothing is proven; None where it was not tested."""
    sums: Sums | None = None
    """The second test; None where there was none, as in older reports."""


TUNED_TEXT = 300
"""Characters of a text about an autotuner, which comes from the kernel's process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedConfig(Document):
    """What an autotuner has chosen in one process."""

    kernel: Annotated[str, MaxLen(TUNED_TEXT)]
    """Function that it launches."""
    key: Annotated[str, MaxLen(TUNED_TEXT)]
    """Values that it chose for: those of its key, and dtypes."""
    config: Annotated[str, MaxLen(TUNED_TEXT)]
    """Its choice, as the library writes it: `BLOCK: 128, num_warps: 4, …`."""
    configs: int
    """Configs that it has."""

    def unlike(self, others: Iterable[TunedConfig]) -> str:
        """How another process chose for the same key; "" if it chose the same, or did not choose."""
        texts = {choice.config for choice in others if (choice.kernel, choice.key) == (self.kernel, self.key)}
        other = next((text for text in sorted(texts) if text != self.config), "")
        return (
            f"the autotuner of {self.kernel} is unstable: it chose {self.config} in one process and {other} in another"
            if other
            else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JitCompilations(Document):
    """What a JIT compiler was asked for in one process."""

    count: Annotated[int, Ge(0), Le(10**6)] = 0
    """Compilations: one a function and signature."""
    seconds: Annotated[float, Ge(0), Le(1e6)] = 0.0
    """Time that they took, also where it was another process that took it, and this one found the results on disk."""
    cached: Annotated[int, Ge(0), Le(10**6)] = 0
    """Those that were found on disk."""
    registers_per_thread: Annotated[int, Ge(0), Le(10**6)] | None = None
    """Most of any function; None where the compiler does not tell, as for an interpreter."""
    spill_nbytes: Annotated[int, Ge(0), Le(10**9)] | None = None
    """Most bytes that a thread of any function spills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(Document):
    """A call's work compared with what the device was measured to do."""

    nbytes: int
    """Bytes that the call reads and writes: each tensor once."""
    flops: int
    """Floating-point operations, a multiply-add being two; 0 where nobody knows."""
    source: Literal["signature", "declared"]
    """Where the work is known from: the op's signature, or `work` in cgins.yaml."""
    peak_bytes_per_s: float
    """Measured: a copy of memory, bytes read and written."""
    peak_flops_per_s: float
    """Measured: a product of matrices of the case's dtype; 0 where none was measured."""
    share_of_bandwidth: float
    """Share of `peak_bytes_per_s`; above 1 the data came from a cache."""
    share_of_compute: float
    """Share of `peak_flops_per_s`."""
    bound: Literal["memory", "compute"]
    """The resource that takes longer at its peak."""

    def gflops(self, ns_per_call: float) -> float | None:
        """What a call that takes so long reaches, in GFLOP/s: `flops` over its time; None where nobody counts them.

        They are counted by `timing.nominal_work` from the op's signature, or by what `work` in cgins.yaml declares.
        """
        return self.flops / ns_per_call if self.flops else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Document):
    """Interleaved timings of a case's arms in one process, and what they prove."""

    method: Method
    """Clock and batching; the same for all arms."""
    cache: Literal["cold", "warm"]
    """Whether rotated inputs outrun the last-level cache twice over."""
    orders: str
    """Order of arms a block by their letters (K, B, T, C: kernel, base, torch, compile): `KBBK TKBBKT`."""
    kernel: Arm
    """The kernel's times."""
    torch: Arm
    """torch's times, eager."""
    base: Arm | None = None
    """The kernel's at the base revision; None if there is none, or it is the same build."""
    compiled: Arm | None = None
    """torch.compile's, if asked for."""
    speedup_vs_torch: float
    """exp of the median over blocks of ½(ln t₁ + ln t₂ − ln k₁ − ln k₂): above 1 the kernel is faster."""
    speedup_low: float
    """First quartile of the same over blocks."""
    speedup_high: float
    """Third quartile of the same over blocks."""
    speedup_vs_compile: float | None = None
    """Median speed against torch.compile."""
    comparisons: tuple[Comparison, ...] = ()
    """Sequential tests that were made: against the base revision, and against torch where a floor is declared."""
    clocks: Clocks | None = None
    """None on a CPU, and where no management library answers."""
    roofline: Roofline | None = None
    """None where the device's peaks or the op's work are not known."""
    base_revision: str = ""
    """Commit of the base arm; "" without one."""
    uncalibrated: str = ""
    """Why nothing was known of the device's noise; "" where it was, and without a base."""
    timed_ns: float = 0.0
    """Time in batches that count, over all arms."""
    seconds: float = 0.0
    """Wall time of the measurement, copies, warm-up and capture included."""
    confirmation: Measurement | None = None
    """Measurement in a fresh process, where the first one found the kernel slower or below its floor."""
    tuned: tuple[TunedConfig, ...] = ()
    """What the kernel's autotuners chose where it was timed."""
    base_tuned: tuple[TunedConfig, ...] = ()
    """What the base's chose, or were given: the notes say which."""
    jit: JitCompilations | None = None
    """What the kernel had compiled in the process where it was timed, before that; None if nothing, or Triton is older
    than 3.4."""
    base_jit: JitCompilations | None = None
    """What the base had."""
    notes: tuple[str, ...] = ()
    """What a reader must know: a fallback that was taken, a warm cache."""

    def against(self, arm: Literal["base", "torch"]) -> Comparison | None:
        """The test against an arm, if one was made."""
        return next((comparison for comparison in self.comparisons if comparison.against == arm), None)
