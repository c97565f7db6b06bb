"""The last stage of a case: a right kernel is timed beside its base revision and torch, and judged by its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.revision.base_kernels import BaseKernel, BaseKernels
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import KernelEntry
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import CginsError, InfrastructureError
from pytest_cgins.core.measurement import Measurement, TunedConfig
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate.case_timing import CaseTiming, Noise, NoiseOf, Sample, Timed, TimingTask
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.gate.timing_verdict import decide_timing
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import UNGATED
from pytest_cgins.timing import lock
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.timing.roofline import factors_dtype, roofline
from pytest_cgins.verify.messages import CaseRequest, PackedInputs
from pytest_cgins.verify.timing_messages import Opened, OpenTiming, TimingJudgement

NO_BASE = BaseKernel(state="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """What a run asks of timing."""

    baseline: str = NONE
    """`merge-base`, a commit, or `none`."""
    tests: Callable[[], int] | None = None
    """How many tests share the chance of a false alarm: known once all cases are; None for those of one file."""
    unchanged: bool = False
    """Whether a kernel that did not change is timed against a second build of itself."""
    compile: bool = False
    """Whether torch.compile is an arm."""
    only_gains: bool = False
    """Whether tricks are looked for in processes of their own only where a kernel is faster than its base: what is not is
    dropped, and what is kept is gated as a whole."""
    noise: Callable[[Environment], NoiseOf] = lambda _: lambda _: Noise()
    """What is known of the noise of a device, as the reference worker describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCase:
    """A case that can be timed."""

    case: Case
    compiled: CompiledKernel
    role: str
    pairs: list[Pair]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the stage."""

    measurement: Measurement
    judged: TimingJudgement
    base: BaseKernel
    died_beside_base: bool = False
    """Whether the worker died with both in it, and did not with the kernel alone."""


def with_roofline(
    measurement: Measurement, inputs: PackedInputs, kernel: KernelEntry, case: Case, peaks: MeasuredPeaks
) -> Measurement:
    """A measurement on these inputs with its roofline, and what there is to note about it."""
    found, notes = roofline(
        inputs.call,
        inputs.metas,
        inputs.outputs,
        inputs.mutated,
        kernel.work,
        median_ns_per_call=measurement.kernel.median_ns_per_call,
        dtype=factors_dtype(case, inputs.context),
        tf32=kernel.allow_tf32 or inputs.context.float32_matmul_precision != "highest",
        cache=measurement.cache,
        peaks=peaks,
    )
    return replace(measurement, roofline=found, notes=(*measurement.notes, *notes))


def with_tuning_notes(measurement: Measurement, verified: tuple[TunedConfig, ...]) -> Measurement:
    """A measurement that tells where autotuners chose otherwise in another process, in which the kernel was verified or timed."""
    again = measurement.confirmation
    others = (*verified, *(again.tuned if again is not None else ()))
    notes = filter(None, (choice.unlike(others) for choice in measurement.tuned))
    return replace(measurement, notes=(*measurement.notes, *dict.fromkeys(notes)))


def compile_numbers(measurement: Measurement) -> dict[str, float]:
    """Compile time of a JIT compiler, of the kernel and of the base, for a verdict."""
    sides = (("compile_seconds", measurement.jit), ("base_compile_seconds", measurement.base_jit))
    return {name: jit.seconds for name, jit in sides if jit is not None}


class TimingStage:
    """Times the cases of one `cgins.yaml`; compilers rest meanwhile, and bases are closed by their owner."""

    def __init__(
        self,
        requests: ReferenceRequests,
        runs: KernelRuns,
        reference: ReferenceWorker,
        options: TimingOptions,
        bases: BaseKernels,
        *,
        builds: BuildQueue,
        own_tests: Callable[[], int],
        import_root: str,
    ) -> None:
        self._requests = requests
        self.bases = bases
        self._runs = runs
        self._reference = reference
        self._options = options
        self.only_gains = options.only_gains
        self._builds = builds
        self._own_tests = own_tests
        self._import_root = import_root
        self._fresh = not runs.pool.is_local

    def run(
        self,
        ready: ReadyCase,
        case_request: CaseRequest,
        *,
        runs: KernelRuns | None = None,
        devices: Sequence[str] = (),
        judge: Callable[[Timed], TimingJudgement] | None = None,
    ) -> Outcome:
        """Time one case.

        Args:
            ready: the case, whose kernel was found right; its worker forks another where it is compared with nothing.
            case_request: that it was prepared for.
            runs: asks its workers, if not those of the run.
            devices: what else of the machine nobody may use meanwhile.
            judge: says what probes saw meanwhile, if not the trusted worker.

        Raises:
            EndedError: the kernel failed meanwhile, or its base revision could not be built for what is missing here.
            InfrastructureError: the device was not to be had.
        """
        case = ready.case
        base = self._base(case, ready.compiled)
        task = self._task(ready, base)
        request = replace(task.request, probes=case_request.probes, compile=self._options.compile)
        role = ready.role
        role = role if base.compiled is not None or task.gate.floor_vs_torch else role + UNGATED
        task = replace(task, role=role, tests=self._tests(), request=request)
        noise = self._options.noise(self._reference.environment_of(case.device))
        alone = partial(self.alone_on, case.device, *devices)
        timer = CaseTiming(
            runs or self._runs,
            noise=noise,
            lock=alone,
            fresh=self._fresh,
            only_gains=self.only_gains,
        )
        timed = timer.time(task)
        with closing(timed.reply):
            judged = judge(timed) if judge else self._reference.judge_timing(case_request, timed)
        measurement = timed.measurement
        if "base" in timed.refused:
            base = replace(base, state="refused", compiled=None, note=timed.refused["base"])
        if "compile" in timed.refused:
            note = f"torch.compile was not timed: {timed.refused['compile']}"
            measurement = replace(measurement, notes=(*measurement.notes, note))
        return Outcome(measurement, judged, base, timed.died_beside_base)

    def compares(self, case: Case, compiled: CompiledKernel) -> bool:
        """Whether the time of a right kernel would be held against another, or was asked for beside one."""
        asked = self._options.unchanged or self._options.compile
        try:
            base = self.bases.of(*case.key, compiled).state
        except CginsError:  # told when it is timed
            base = "refused"
        held = self._requests.entry(case).timing.floor_vs_torch or base not in ("unchanged", "none")
        return self._requests.is_timed(case) and bool(asked or held)

    def sample(
        self, ready: ReadyCase, base: BaseKernel, *, blocks: int, longer: float = 1.0, seed: int = 0
    ) -> Sample:
        """A fixed number of blocks of a case, in the worker of its role as it is; nothing is judged.

        Raises:
            EndedError: the kernel failed meanwhile.
            InfrastructureError: the device was not to be had.
        """
        task = replace(self._task(ready, base), seed=seed)
        timer = CaseTiming(self._runs, lock=lambda: self.alone_on(ready.case.device), fresh=self._fresh)
        return timer.sample(task, blocks, longer=longer)

    def alone(
        self,
        ready: ReadyCase,
        orders: Sequence[str],
        *,
        fenced: bool,
        torch: bool,
        tuned: tuple[TunedConfig, ...],
    ) -> tuple[Opened, list[Block]]:
        """Blocks of kernel and torch in a process that may have run other kernels; whoever asks holds the device.

        Raises:
            EndedError: the kernel failed.
        """
        task = self._task(ready, NO_BASE)
        request = replace(task.request, fenced=fenced, torch=torch, tuned=tuned)
        task = replace(task, kernel=ready.role, request=request)
        return CaseTiming(self._runs, lock=nullcontext).alone(task, orders)

    def _task(self, ready: ReadyCase, base: BaseKernel) -> TimingTask:
        """Without probes, for a suite of one test."""
        gate = self._requests.entry(ready.case).timing
        request = OpenTiming(
            kernel=ready.compiled,
            base=base.compiled,
            device=ready.case.device,
            import_root=self._import_root,
            cache=gate.cache,
        )
        return TimingTask(
            role=ready.role,
            request=request,
            pairs=ready.pairs,
            seed=kernel_timing.seed_for(self._requests.seed, ready.case),
            gate=gate,
            tests=1,
            revision=base.revision,
        )

    def decide(self, verdict: Verdict, case: Case, outcome: Outcome) -> Verdict:
        """The verdict on answers, with that on the time."""
        decided = decide_timing(
            verdict,
            outcome.measurement,
            base_state=outcome.base.state,
            base_note=outcome.base.note,
            gate=self._requests.entry(case).timing,
            base_label=self.bases.label,
            kernel=case.kernel,
        )
        if outcome.died_beside_base and decided.status is Status.PASSED:
            # Whose fault it is nobody knows: a kernel that did so on purpose must not pass by it.
            return replace(decided, status=Status.INCONCLUSIVE, reason=Reason.NOT_COMPARABLE)
        return decided

    def decide_without_base(self, verdict: Verdict, case: Case, outcome: Outcome, why: str) -> Verdict:
        """Judge a kernel without its base, because it is slower than a base whose answers are wrong."""
        measured = outcome.measurement
        others = tuple(test for test in measured.comparisons if test.against != "base")
        note = f"slower than it, but its answers are wrong: {why}"
        base = replace(outcome.base, state="refused", note=note)
        without = Outcome(replace(measured, comparisons=others), outcome.judged, base)
        decided = self.decide(verdict, case, without)
        if decided.status is Status.PASSED:
            return replace(decided, reason=Reason.NOT_COMPARABLE)
        return decided

    def _base(self, case: Case, compiled: CompiledKernel) -> BaseKernel:
        try:
            base = self.bases.of(*case.key, compiled)
        except InfrastructureError as error:
            # Not "compared with nothing", which passes: the next run may well find it slower.
            what = f"its base revision could not be built: {error}"
            raise EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, what) from error
        if base.state == "unchanged" and self._options.unchanged:
            return self.bases.twin(compiled)
        return base

    def _tests(self) -> int:
        return max(1, (self._options.tests or self._own_tests)())

    @contextmanager
    def alone_on(self, *devices: str) -> Iterator[None]:
        """Have nobody else time or verify on devices, and no compiler of this process run.

        Raises:
            InfrastructureError: it was not to be had in time.
        """
        with ExitStack() as stack:
            for key in dict.fromkeys(map(self._reference.lock_key, devices)):
                stack.enter_context(lock.timing(key, wait_s=lock.WAIT_S))
            stack.enter_context(self._builds.quiet())
            yield
