"""Build, verify, time, judge: one case in, one evaluation out.

The plugin and regeneration share this. Nothing that a kernel does makes `Evaluator.evaluate` raise:
whatever happens becomes a verdict of that case. torch is not imported here; it lives in the workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_cgins.building.build import jit_environment
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.cache.space import JIT
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.kernel_builds import KernelBuilds, has_driver
from pytest_cgins.building.progress import Progress
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import BuildError, CginsError, InfrastructureError
from pytest_cgins.core.options import PROBE_LEVELS
from pytest_cgins.core.session_report import Environment, Evaluation, unknown
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.case_processes import CaseProcesses
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.gate.devices import Devices
from pytest_cgins.gate.elsewhere import HERE, Elsewhere
from pytest_cgins.gate.known_verdicts import KnownVerdicts
from pytest_cgins.gate.ranks import RankStage
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.gate.timing_stage import (
    ReadyCase,
    TimingOptions,
    TimingStage,
    compile_numbers,
    with_roofline,
    with_tuning_notes,
)
from pytest_cgins.gate.timing_verdict import confirmed_outcome
from pytest_cgins.gate.verdict_keys import VerdictKeys
from pytest_cgins.gate.verification_stage import Prepared, VerificationStage, role_of
from pytest_cgins.run import jit_pool
from pytest_cgins.run.device_peaks import DevicePeaks
from pytest_cgins.run.early_verdict import EndedError, is_full
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import BASE_ONLY, Isolation, WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.run.sandbox.builds import BuildFence, around_kernels, show_compilers
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.sanitize import Sanitizers
from pytest_cgins.verify.messages import KernelAnswers

logger = logging.getLogger(__name__)

MOST_HANGS = 2
"""Cases in which a build may hang before its other cases are skipped: each costs the whole limit."""


class Evaluator:
    """Evaluates the cases of one `cgins.yaml`, with worker processes that it owns.

    Args:
        seed: seed of the fresh inputs; the same seed repeats them.
        device: `cpu` or `cuda` leaves the other's cases out; `auto` keeps both, and those whose device is
            absent come out as `SKIPPED`.
        timing_options: how they are; by default against torch alone.
        cache: folder of built kernels, by default the user's cache folder.
        probes: level of the probes: `full`, `fast` or `off`.
        isolation: `none` runs kernels in this process, for debuggers; see `run.pool.LocalWorker`.
        sandbox: put around the workers that run kernels, and around compilers; shows them the project and the builds,
            and hides the packs.
        environment: added to that of all workers, such as which GPU they may see.
        builds: those of the run, shared by its evaluators and closed by their owner; by default ones of its own. Beside
            a sandbox their compilers must be fenced in, by a `BuildFence`.
        on_build: called several times a second while a kernel is waited for, and with None afterwards.
        reference: a pool whose trusted worker is used, closed by its owner; by default one of its own.
        elsewhere: the environment that kernels are built and run in instead, and whether they are those of the base revision
            in `timing_options`; by default this process's, and the working tree's.
        known: verdicts that may be taken over; None for none, and no keys.
        trusted_root: folder that the trusted worker imports the project's ops from, by default that of the file. Where
            candidates lie in the file's own folder, it must be another: nothing of theirs may run in that worker.
    """

    def __init__(
        self,
        config: Config,
        *,
        seed: int,
        device: str = "auto",
        timing: bool = True,
        timing_options: TimingOptions | None = None,
        cache: Path | None = None,
        timeout_s: float = 60.0,
        probes: str = PROBE_LEVELS[0],
        sanitize: tuple[str, ...] = (),
        isolation: Isolation = "process",
        sandbox: Sandbox | None = None,
        environment: Mapping[str, str] | None = None,
        builds: BuildQueue | None = None,
        on_build: Callable[[Progress | None], object] | None = None,
        reference: WorkerPool | None = None,
        elsewhere: Elsewhere = HERE,
        known: KnownVerdicts | None = None,
        trusted_root: Path | None = None,
    ) -> None:
        self.config = config
        self.seed = seed
        self._device = device
        self._timing = timing
        self.requests = ReferenceRequests(
            config=config,
            seed=seed,
            level=probes,
            sanitize=sanitize,
            import_root=trusted_root or config.root,
            timing=timing,
            cases=self.cases,
        )
        caches = {} if sandbox else jit_environment(cache or default_cache())
        workers = {**caches, **(environment or {}), **elsewhere.variables}
        if elsewhere.environment is not None:
            elsewhere.require_replacing(config)
            builds = BuildQueue(cache=cache, beside=builds, build=elsewhere.environment.build)
        self._elsewhere = elsewhere
        around_compilers = BuildFence(sandbox) if sandbox is not None and builds is None else None
        self.kernel_builds = KernelBuilds(
            config, builds=builds, cache=cache, on_wait=on_build, fence=around_compilers
        )
        self._bases = BaseKernels(
            config,
            wanted=timing_options.baseline if timing_options and (timing or elsewhere != HERE) else NONE,
            builds=self.kernel_builds.builds,
            cache=cache,
            alone=elsewhere != HERE,
        )
        fence = None
        if sandbox is not None:
            base = (self._bases.root,) if self._bases.root is not None else ()
            fence = around_kernels(sandbox, config, (cache or default_cache(), *base))
            show_compilers(self.kernel_builds.builds.fence, config, fence)
        import_root, workers = elsewhere.import_root(config, self._bases, workers)
        self._import_root = str(import_root)
        self._workers = workers
        own = sandbox is None and elsewhere == HERE and isolation == "process"
        self._jit_folder = (cache or default_cache()) / JIT / "ahead" if own else None
        self.pool = WorkerPool(
            env=workers,
            isolation=isolation,
            sandbox=fence,
            interpreter=elsewhere.interpreter,
        )
        self._sanitizers = Sanitizers(sanitize, env=workers, seed=seed, timeout_s=timeout_s, sandbox=fence)
        self.reference = ReferenceWorker(reference or self.pool)
        self._cases: tuple[Case, ...] | None = None
        self._hung: dict[str, list[str]] = {}
        self._runs = KernelRuns(self.pool, seed=seed, timeout_s=timeout_s)
        self._verification = VerificationStage(
            self._runs, self.reference, self._sanitizers, self._bases, import_root=import_root
        )
        self.stage = TimingStage(
            self.requests,
            self._runs,
            self.reference,
            timing_options or TimingOptions(),
            self._bases,
            builds=self.kernel_builds.builds,
            own_tests=self.tests,
            import_root=str(import_root),
        )
        self._ranks = RankStage(
            self.requests, self._runs, self.reference, self.stage, trusted=reference or self.pool,
            import_root=str(import_root),
        )  # fmt: skip
        path = workers.get("PYTHONPATH", "").replace(str(config.root), ".")
        limits = f"{timeout_s:g} s, {isolation}, sandbox {sandbox is not None}, seed {known and known.seed}, {path}"
        self._keys = VerdictKeys(
            config, self.requests, self.reference.environment_of, limits,
            known=known if elsewhere == HERE else None,
        )  # fmt: skip
        self.peaks = DevicePeaks(self.reference.environment_of, self.reference.peaks, self.stage.alone_on)
        self.devices = Devices(
            reference=self.reference, pool=self.pool, builds=self.kernel_builds, stage=self.stage, reached=self.peaks,
            asked=device, import_root=str(self.requests.import_root),
        )  # fmt: skip
        self.processes = CaseProcesses(
            pool=self.pool, runs=self._runs, requests=self.requests, reference=self.reference, bases=self._bases,
            devices=self.devices, only_gains=self.stage.only_gains,
        )  # fmt: skip

    def cases(self) -> tuple[Case, ...]:
        """All cases, kernel by kernel in the order of the file; errors are those of `cases_of`."""
        if self._cases is None:
            self._cases = cases_of(self.config, device=self._device)
        return self._cases

    def is_timed_apart(self, case: Case) -> bool:
        """Whether the kernel's base revision is to be timed, and cannot be loaded beside it."""
        if not self.requests.is_timed(case) or not self._bases.is_touched(*case.key):
            return False
        with suppress(EndedError, CginsError):
            self.devices.require(case)
            return self._bases.of(*case.key, self.compiled(case)).state == "apart"
        return False

    def require_base(self) -> None:
        """Raise RevisionError if a base revision was named that git does not know."""
        self._bases.label  # noqa: B018

    def tests(self) -> int:
        """How many tests of times the cases make: of medians and of sums, against the base revision and a declared floor."""
        floors = {entry.name: entry.timing.floor_vs_torch is not None for entry in self.config.kernels}
        return sum(2 + 2 * floors[case.kernel] for case in self.cases())

    def environments(self) -> tuple[Environment, ...]:
        """What the workers run on; empty if none was started."""
        return tuple(self.reference.known.values())

    def close(self) -> None:
        """End the worker processes, and builds that are its own."""
        self._ranks.close()
        self.pool.close()
        self.reference.close()
        self._sanitizers.close()
        self._bases.close()
        self.kernel_builds.close()

    def retire(self) -> None:
        """Close while nothing is being timed: giving back a GPU disturbs timings as taking one does."""
        try:
            with self.processes.verification_lock():
                self.close()
        except (CginsError, EndedError):
            self.close()

    def build_ahead(self, cases: Iterable[Case]) -> None:
        """Begin to build the kernels of cases, in the order in which these will be evaluated; errors are told by `evaluate`."""
        self.processes.warm()
        cases = list(cases)
        wanted = [case.key for case in cases]
        if self._timing and any(self._bases.is_touched(*name) for name in dict.fromkeys(wanted)):
            self.pool.warm(["timing", f"timing{BASE_ONLY}"])
        self.kernel_builds.build_ahead(wanted)
        self._bases.build_ahead(wanted)
        if self._jit_folder is not None and has_driver():
            jit_pool.compile_ahead(
                [
                    case
                    for case in cases
                    if device_of(case.device).is_cuda and not (case.check or self._is_ranked(case))
                ],
                self.kernel_builds,
                import_root=self._import_root,
                environment=self._workers,
                folder=self._jit_folder,
            )

    def evaluate(self, case: Case, *, upcoming: Case | None = None) -> Evaluation:
        """Build, verify, time and judge one case; the upcoming one is prepared while the kernel is verified."""
        started = time.monotonic()
        result = unknown(case)
        try:
            self.devices.require(case)
            compiled = self.compiled(case)
            self._require_no_hangs(compiled)
            result = self._keys.with_digests(result, compiled, self.kernel_builds.untold_seconds(compiled))
            if (taken := self._taken_over(result, compiled)) is not None:
                return replace(taken, seconds=time.monotonic() - started)
            if case.check:
                return replace(self._checked(result, compiled), seconds=time.monotonic() - started)
            if self._is_ranked(case):
                timing = self._timing and self._elsewhere == HERE
                result = self._ranks.evaluate(result, compiled, timing=timing)
            else:
                result = self._with_room(result, compiled, upcoming)
        except EndedError as end:
            result = replace(result, verdict=end.verdict, output=end.output)
            if end.verdict.status is Status.TIMEOUT:
                self._hung.setdefault(compiled.key, []).append(case.signature)
        seconds = time.monotonic() - started
        numbers = "".join(f", {name} {number:.4g}" for name, number in result.verdict.numbers.items())
        status, reason = result.verdict.status.value, result.verdict.reason.value
        logger.info("%s: %s (%s) in %.2f s%s", case.name, status, reason, seconds, numbers)
        return replace(result, seconds=seconds)

    def known(self, case: Case) -> Evaluation | None:
        """What an earlier run found of a case whose kernel is built; None where `evaluate` has to find out."""
        if not (self._keys.known and self._keys.known.any and self.kernel_builds.is_cached(case.key)):
            return None
        started = time.monotonic()
        with suppress(EndedError):
            self.devices.require(case)
            compiled = self.compiled(case)
            seconds = self.kernel_builds.untold_seconds(compiled)
            taken = self._taken_over(self._keys.with_digests(unknown(case), compiled, seconds), compiled)
            if taken is not None:
                return replace(taken, seconds=time.monotonic() - started)
        return None

    def _taken_over(self, result: Evaluation, compiled: CompiledKernel) -> Evaluation | None:
        """What an earlier run found of a case whose time would gate nothing; None where there is nothing to take."""
        return None if self.stage.compares(result.case, compiled) else self._keys.taken_over(result)

    def time(self, right: Evaluation) -> Evaluation:
        """Time a case that was verified before, by this evaluator or one with the same seed, and judge it by its time.

        Its kernel is built from the same sources.
        """
        started = time.monotonic()
        result = replace(right, build_seconds=0.0)
        try:
            self.devices.describe()
            self.devices.require(right.case)
            compiled = self.compiled(right.case)
            with closing(self.prepared(right.case)) as prepared:
                result = self._timed(result, compiled, prepared)
        except EndedError as end:
            result = replace(result, verdict=end.verdict, output=end.output)
        return replace(result, seconds=time.monotonic() - started)

    def can_build(self, case: Case) -> bool:
        """Whether a case's kernel can be built, once that is known; starts no worker that would run it."""
        with suppress(EndedError):
            self.devices.describe()
        return self.kernel_builds.can_build(case.key)

    @contextmanager
    def made_ready(self, case: Case) -> Iterator[ReadyCase]:
        """A case ready to be timed by `stage`, unverified.

        Raises:
            EndedError: it cannot be built or prepared.
        """
        self.devices.require(case)
        compiled = self.compiled(case)
        with closing(self.prepared(case, probes=False)) as prepared:
            yield _ready(compiled, prepared)

    def _require_no_hangs(self, compiled: CompiledKernel) -> None:
        """Raise EndedError for a build that has hung too often: the rest of its cases would most likely, too."""
        hung = self._hung.get(compiled.key, [])
        if len(hung) >= MOST_HANGS:
            raise EndedError(
                Status.SKIPPED,
                Reason.TIMED_OUT,
                f"it hung in {counted(len(hung), 'case')} ({', '.join(hung)}), each for {self._runs.timeout_s:g} s: not run in its others\n"
                "→ fix the loop or the deadlock, or raise the time limit with --cgins-timeout",
            )

    def compiled(self, case: Case) -> CompiledKernel:
        """The built kernel."""
        try:
            compiled = self.kernel_builds.kernel(*case.key)
            return self._elsewhere.in_place_of(compiled, case, self.config, self._bases)
        except BuildError as error:
            raise EndedError(Status.BUILD_ERROR, Reason.COMPILER, str(error), error.log) from error
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, str(error)) from error
        except CginsError as error:
            raise EndedError(Status.BUILD_ERROR, Reason.SOURCE, str(error)) from error

    def _with_room(self, result: Evaluation, compiled: CompiledKernel, upcoming: Case | None) -> Evaluation:
        """Verified and timed: once more, alone on the device, if others held the memory that was needed.

        This session's own processes are ended before, so that of several that wait none holds what the first of them needs.
        """
        try:
            found = self._verified_and_timed(result, compiled, upcoming)
        except EndedError as end:
            if not is_full(end.verdict):
                raise
        else:
            if not is_full(found.verdict):
                return found
        logger.info(
            "%s: others held the memory that it needs: once more, alone on the device", result.case.name
        )
        self.pool.close()
        with ExitStack() as alone:
            try:
                alone.enter_context(self.stage.alone_on(result.case.device))
            except InfrastructureError as error:
                raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, str(error)) from error
            return self._verified_and_timed(result, compiled, None)

    def _verified_and_timed(
        self, result: Evaluation, compiled: CompiledKernel, upcoming: Case | None
    ) -> Evaluation:
        case = result.case
        with ExitStack() as open_buffers:
            # Nothing is timed on the device meanwhile, so no timing is disturbed.
            with self.reference.verification_lock(case.device), self.processes.beside(case, compiled):
                prepared = open_buffers.enter_context(closing(self.prepared(case)))
                with self._preparing(upcoming, beside=case):
                    correctness, output = self._verification.run(prepared, compiled)
                if correctness.passed and self._timing and self._elsewhere == HERE:
                    self._verification.compile_base(prepared, compiled)
            verdict = gate.decide(correctness, None)
            verified = replace(result, correctness=correctness, verdict=verdict, output=output)
            if not (correctness.passed and self.requests.is_timed(case)):
                return verified
            return self._timed(verified, compiled, prepared)

    def _is_ranked(self, case: Case) -> bool:
        return self.requests.entry(case).ranks.count > 1

    def _checked(self, result: Evaluation, compiled: CompiledKernel) -> Evaluation:
        """What one check of `--cgins-opcheck` finds of a kernel that is a torch operator."""
        case = result.case
        with ExitStack() as opened:
            opened.enter_context(self.reference.verification_lock(case.device))
            prepared = opened.enter_context(closing(self.prepared(case)))
            verdict, output = self._verification.check_operator(prepared, compiled)
        return replace(result, verdict=verdict, output=output)

    def _preparing(self, upcoming: Case | None, *, beside: Case) -> AbstractContextManager[None]:
        """Not on a GPU, where the memory that another process takes would be noticed as the kernel's."""
        if (
            upcoming is None
            or self.pool.is_local
            or self._is_ranked(upcoming)
            or {upcoming.device, beside.device} != {"cpu"}
        ):
            return nullcontext()
        return self.reference.preparing(self.requests.for_case(upcoming))

    def _timed(self, verified: Evaluation, compiled: CompiledKernel, prepared: Prepared) -> Evaluation:
        """The evaluation with timings; the verification's results stay if the kernel fails while it is timed."""
        assert verified.correctness is not None
        case = verified.case
        ready = _ready(compiled, prepared)
        try:
            outcome = self.stage.run(ready, prepared.case_request)
        except EndedError as end:
            verdict = replace(end.verdict, message=f"right, but while it was timed: {end.verdict.message}")
            return replace(verified, verdict=verdict, output=end.output)
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, f"not timed: {error}") from error
        entry, measured = self.requests.entry(case), outcome.measurement
        draw = partial(with_roofline, measured, ready.pairs[0][0], entry, case)
        measured = self.peaks.roofline(case.device, measured, draw)
        measured = with_tuning_notes(measured, verified.correctness.tuned)
        outcome = replace(outcome, measurement=measured)
        correctness = verified.correctness.with_probes(outcome.judged.probes)
        if not self.stage.only_gains or confirmed_outcome(measured, "base") == "faster":
            correctness = self._verification.called_elsewhere(correctness, prepared, compiled)
        answers = gate.decide(correctness, measured)
        verdict = self.stage.decide(answers, case, outcome)
        if verdict.status is Status.SLOWER and outcome.base.compiled is not None:
            why = self._verification.wrong_at_base(prepared, outcome.base.compiled)
            verdict = self.stage.decide_without_base(answers, case, outcome, why) if why else verdict
        numbers = {**verdict.numbers, **compile_numbers(measured)}
        if outcome.judged.floor_ns_per_call:
            numbers["floor_ns_per_call"] = outcome.judged.floor_ns_per_call
        return replace(
            verified,
            correctness=correctness,
            measurement=measured,
            verdict=replace(verdict, numbers=numbers),
            fail_on=entry.timing.fail_on,
        )

    def prepared(self, case: Case, *, probes: bool = True) -> Prepared:
        """A case's inputs, which the caller closes; without those of probes where nothing but times is wanted.

        Raises:
            EndedError: it cannot be prepared.
        """
        case_request = self.requests.for_case(case)
        if not probes:
            case_request = replace(case_request, probes=())
        with self.reference.verification_lock(case.device):
            return Prepared(case_request, self.reference.prepare(case_request))

    def compared_answers(self, case: Case, pairs: Sequence[Pair]) -> Reply[KernelAnswers]:
        """What a case's kernel answers to some sets of inputs, in a process that runs nothing else; the caller closes it.

        Raises:
            EndedError: it fails.
        """
        compiled = self.compiled(case)
        with self.reference.verification_lock(case.device):
            return self._verification.answers(
                f"{role_of('verification', compiled)}/compared", case, compiled, pairs
            )


def _ready(compiled: CompiledKernel, prepared: Prepared) -> ReadyCase:
    return ReadyCase(
        case=prepared.case, compiled=compiled, role=role_of("timing", compiled), pairs=prepared.timeable
    )
