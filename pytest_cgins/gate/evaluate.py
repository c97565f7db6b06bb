"""Build, verify, time, judge: one case in, one evaluation out.

The plugin and regeneration share this. Nothing that a kernel does makes `Evaluator.evaluate` raise:
whatever happens becomes a verdict of that case. torch is not imported here; it lives in the workers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pytest_cgins.building import stream_lines
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.builders import doomed
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.compilers.running import Fence
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.building.progress import Progress
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.building.revision.checkout import NONE
from pytest_cgins.config import Config, KernelEntry
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import BuildError, CginsError, InfrastructureError, ServiceError, WorkerError
from pytest_cgins.core.model import (
    Case,
    Check,
    CompiledKernel,
    Correctness,
    Environment,
    Evaluation,
    Reason,
    Status,
    Verdict,
)
from pytest_cgins.core.options import PROBE_LEVELS
from pytest_cgins.core.text import counted
from pytest_cgins.gate import evidence
from pytest_cgins.gate import verdict as gate
from pytest_cgins.gate.case_timing import Timed
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.gate.timing_stage import LOCK_WAIT_S, TimingOptions, TimingStage
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.device_peaks import DevicePeaks
from pytest_cgins.run.early_verdict import EndedError, forged, not_the_kernels
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import ALONE, Isolation, WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.run.sandbox.builds import BuildFence, sources_of
from pytest_cgins.run.sandbox.fence import Sandbox
from pytest_cgins.run.sanitize import Sanitizers
from pytest_cgins.timing import lock
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.verify.messages import (
    DevicePeak,
    FirstFailure,
    JudgeAnswers,
    Judgement,
    JudgeTiming,
    KernelAnswers,
    Machine,
    Nothing,
    PreparedCase,
    Question,
    Ready,
    RunKernel,
    TimingJudgement,
    read,
)
from pytest_cgins.verify.probes.registry import SPECS, switched_on, wrong_when

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_DRAWN = frozenset({"sizes", "arguments"})
"""Probes whose inputs differ from run to run in more than their numbers."""
AFTER_TIMING = "after_timing"
"""Probe of which one more call, in a process of its own, is a part."""
ORDINARY = "/ordinary"
"""Ends the role of that process."""
MOST_HANGS = 2
"""Cases in which a build may hang before its other cases are skipped: each costs the whole limit."""
REFERENCE_TIMEOUT_S = 600.0
"""Limit of one request to the trusted worker: four runs of the op on three sets of inputs, some in fp64."""


class Evaluator:
    """Evaluates the cases of one `cgins.yaml`, with worker processes that it owns.

    Args:
        config: the loaded file.
        seed: seed of the fresh inputs; the same seed repeats them.
        device: `cpu` or `cuda` leaves the other's cases out; `auto` keeps both, and those whose device is
            absent come out as `SKIPPED`.
        timing: whether right kernels are timed.
        timing_options: how they are; by default against torch alone.
        cache: folder of built kernels, by default the user's cache folder.
        timeout_s: limit for one request to a worker, in seconds.
        probes: level of the probes: `full`, `fast` or `off`.
        sanitize: tools of compute-sanitizer that CUDA kernels are run under.
        isolation: `none` runs kernels in this process, for debuggers; see `run.local`.
        sandbox: put around the workers that run kernels, and around compilers; shows them the project and the builds,
            and hides the packs.
        environment: added to that of all workers, such as which GPU they may see.
        builds: those of the run, shared by its evaluators and closed by their owner; by default ones of its own. Beside
            a sandbox their compilers must be fenced in, by a `BuildFence`.
        on_build: called several times a second while a kernel is waited for, and with None afterwards.
        reference: a pool whose trusted worker is used, closed by its owner; by default one of its own.
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
        trusted_root: Path | None = None,
    ) -> None:
        self.config = config
        self._trusted_root = trusted_root or config.root
        self.seed = seed
        self._device = device
        self._timing = timing
        self._timeout_s = timeout_s
        self._probes = probes
        self._sanitize = sanitize
        workers = {**worker_environment(), **(environment or {})}
        around_compilers = BuildFence(sandbox) if sandbox is not None and builds is None else None
        self.supply = KernelBuilds(
            config, builds=builds, cache=cache, on_wait=on_build, fence=around_compilers
        )
        self._bases = BaseKernels(
            config,
            wanted=timing_options.baseline if timing and timing_options else NONE,
            builds=self.supply.builds,
            cache=cache,
        )
        fence = _fence(sandbox, config, cache or default_cache(), self._bases) if sandbox else None
        if fence is not None:
            _show_compilers(self.supply.builds.fence, config, fence)
        self._pool = WorkerPool(env=workers, isolation=isolation, wrap=fence.wrap if fence else None)
        self._sanitizers = Sanitizers(sanitize, env=workers, seed=seed, timeout_s=timeout_s, sandbox=fence)
        self._trusted = reference or self._pool
        self._cases: tuple[Case, ...] | None = None
        self._environments: dict[str, Environment] | None = None
        self._locks: dict[str, str] = {}
        self._hung: dict[str, list[str]] = {}
        self._runs = KernelRuns(self._pool, seed=seed, timeout_s=timeout_s)
        self.stage = TimingStage(
            config,
            self._runs,
            timing_options or TimingOptions(),
            self._bases,
            seed=seed,
            timeout_s=timeout_s,
            builds=self.supply.builds,
            device_key=self._lock_key,
            environment=self._environment_of,
            own_tests=self.tests,
            fresh=isolation == "process",
        )
        self._peaks = DevicePeaks(
            self._environment_of,
            lambda device: self._reference("peaks", Ready(device), DevicePeak).result.peaks,
            self.stage.alone_on,
        )

    def cases(self) -> tuple[Case, ...]:
        """All cases, kernel by kernel in the order of the file; errors are those of `cases_of`."""
        if self._cases is None:
            self._cases = cases_of(self.config, device=self._device)
        return self._cases

    def require_base(self) -> None:
        """Raise RevisionError if a base revision was named that git does not know."""
        self._bases.label  # noqa: B018

    def tests(self) -> int:
        """How many tests of times the cases make: of medians and of sums, against the base revision and a declared floor."""
        floors = {one.name: one.timing.floor_vs_torch is not None for one in self.config.kernels}
        return sum(2 + 2 * floors[case.kernel] for case in self.cases())

    @property
    def pool(self) -> WorkerPool:
        """The worker processes, for callers that run a kernel themselves."""
        return self._pool

    def environments(self) -> tuple[Environment, ...]:
        """What the workers run on; empty if none was started."""
        return tuple((self._environments or {}).values())

    def close(self) -> None:
        """End the worker processes, and builds that are its own."""
        self._pool.close()
        self._sanitizers.close()
        self._bases.close()
        self.supply.close()

    def retire(self) -> None:
        """As `close`, beside nobody who times: a process that gives back its GPU disturbs as one that takes it."""
        try:
            with self.beside_no_timing():
                self.close()
        except (CginsError, EndedError):
            self.close()

    def build_ahead(self, cases: Iterable[Case]) -> None:
        """Begin to build the kernels of some cases, and wait for nothing; errors are told by `evaluate`.

        Args:
            cases: in the order in which they will be evaluated.
        """
        self.warm()
        wanted = [_kernel_of(case) for case in cases]
        if self._timing and any(self._bases.is_touched(*name) for name in dict.fromkeys(wanted)):
            self._pool.warm([f"timing{ALONE}"])
        self.supply.build_ahead(wanted)
        self._bases.build_ahead(wanted)

    def evaluate(self, case: Case) -> Evaluation:
        """Build, verify, time and judge one case."""
        started = time.monotonic()
        result = Evaluation(
            case=case,
            verdict=Verdict(status=Status.SKIPPED, reason=Reason.OK, message="", numbers={}),
            kernel_digest="",
            correctness=None,
            measurement=None,
            build_seconds=0.0,
            seconds=0.0,
        )
        try:
            self._require_device(case)
            compiled = self._compiled(case)
            self._require_no_hangs(compiled)
            result = replace(
                result,
                kernel_digest=compiled.source.digest,
                build_seconds=compiled.build_seconds,
                tested=evidence.tested(self.config, case, compiled, seed=self.seed),
            )
            result = self._verified_and_timed(result, compiled)
        except EndedError as end:
            result = replace(result, verdict=end.verdict, output=end.output)
            if end.verdict.status is Status.TIMEOUT:
                self._hung.setdefault(compiled.key, []).append(case.signature)
        seconds = time.monotonic() - started
        numbers = "".join(f", {name} {number:.4g}" for name, number in result.verdict.numbers.items())
        status, reason = result.verdict.status.value, result.verdict.reason.value
        logger.info("%s: %s (%s) in %.2f s%s", case.name, status, reason, seconds, numbers)
        return replace(result, seconds=seconds)

    def time(self, right: Evaluation) -> Evaluation:
        """Time a case that was verified before, by this evaluator or one with the same seed, and judge it by its time.

        Args:
            right: what was found of the case; its kernel is built from the same sources.
        """
        started = time.monotonic()
        result = replace(right, build_seconds=0.0)
        try:
            self._describe()
            self._require_device(right.case)
            compiled = self._compiled(right.case)
            question = self._question(right.case)
            with ExitStack() as open_buffers:
                with self._beside_no_timing(right.case.device):
                    prepared = open_buffers.enter_context(closing(self._prepared(question)))
                result = self._timed(result, compiled, question, prepared)
        except EndedError as end:
            result = replace(result, verdict=end.verdict, output=end.output)
        return replace(result, seconds=time.monotonic() - started)

    def can_build(self, case: Case) -> bool:
        """Whether a case's kernel can be built, once that is known; starts no worker that would run it."""
        with suppress(EndedError):
            self._describe()
        return self.supply.can_build(_kernel_of(case))

    def is_doomed(self, case: Case) -> bool:
        """Whether a case's kernel most likely cannot be built: known much sooner, and no verdict."""
        source = self.supply.source(_kernel_of(case))
        return source is not None and doomed.is_doomed(source, self.supply.builds)

    def start(self, role: str) -> None:
        """Have the process of a role begin its imports, beside nobody who times; errors are told when it is used.

        Args:
            role: `verification` or `timing`.
        """
        with suppress(CginsError, EndedError), self.beside_no_timing():
            self._pool.warm([self._role_of_cases(role)])

    def wait_until_ready(self, role: str) -> None:
        """Wait until the process of a role could be asked about a case, beside nobody who times; errors as of `start`."""
        with suppress(CginsError, EndedError), self.beside_no_timing():
            name = self._role_of_cases(role)
            self._pool.start(name)
            if role == "timing":
                self._runs.make_ready(name, self.cases()[0].device, timeout_s=self._timeout_s)

    @contextmanager
    def beside_no_timing(self) -> Iterator[None]:
        """Hold the devices of all cases, with others that verify on them or start processes.

        Raises:
            EndedError: others time all the while, or there is no trusted worker.
        """
        self._describe()
        with ExitStack() as stack:
            for device in sorted({case.device for case in self.cases()}):
                stack.enter_context(self._beside_no_timing(device))
            yield

    def _role_of_cases(self, role: str) -> str:
        return f"{role}/interpret" if any(map(self._is_interpreted, self.cases())) else role

    @contextmanager
    def made_ready(self, case: Case) -> Iterator[tuple[CompiledKernel, str, list[Pair]]]:
        """A case ready to be timed by `stage`, unverified: its kernel, the role of its worker, its sets of inputs.

        Raises:
            EndedError: it cannot be built or prepared.
        """
        self._require_device(case)
        compiled = self._compiled(case)
        with ExitStack() as open_buffers:
            with self._beside_no_timing(case.device):
                question = replace(self._question(case), probes=())
                prepared = open_buffers.enter_context(closing(self._prepared(question)))
            pairs = kernel_timing.timeable(prepared.result.sets, prepared.buffers)
            yield compiled, role_of("timing", compiled), pairs

    def peaks(self, device: str) -> MeasuredPeaks | None:
        """What a device reaches, as it is stored or measured now; None if it is not there, or busy all the while."""
        if device.partition(":")[0] not in self.described():
            return None
        try:
            return self._peaks.of(device)
        except InfrastructureError:
            return None

    def measure_peaks(self, device: str) -> None:
        """Measure anew what a device reaches.

        Raises:
            EndedError: it could not be.
            InfrastructureError: the device was not to be had.
        """
        self._peaks.measure(device)

    def described(self, *, warms: bool = True) -> Mapping[str, Environment]:
        """The devices of this machine, `cpu` and `cuda`, as the reference worker sees them; it is started for that.

        Args:
            warms: start the other workers meanwhile; they are not needed where nothing is verified.
        """
        if warms and self._environments is None:
            self.warm()
        return self._describe()

    def _describe(self) -> Mapping[str, Environment]:
        if self._environments is None:
            machine = self._reference("describe", Nothing(), Machine).result
            self._environments = machine.environments
            self._locks = machine.locks
            self.supply.found_devices(self._environments)
        return self._environments

    def _require_device(self, case: Case) -> None:
        device = case.device.split(":")[0]
        if device in self.described():
            return
        if self._device == "auto":
            raise EndedError(Status.SKIPPED, Reason.DEVICE_ABSENT, f"no {device} device on this machine")
        # Asked for by name: a skip would make a pipeline green that gated nothing.
        raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_ABSENT, self._absence(device))

    def _require_no_hangs(self, compiled: CompiledKernel) -> None:
        """Raise EndedError for a build that has hung too often: the rest of its cases would most likely, too."""
        hung = self._hung.get(compiled.key, [])
        if len(hung) >= MOST_HANGS:
            raise EndedError(
                Status.SKIPPED,
                Reason.TIMED_OUT,
                f"it hung in {counted(len(hung), 'case')} ({', '.join(hung)}), each for {self._timeout_s:g} s: not run in its others\n"
                "→ mend the loop or the deadlock, or raise the time limit with --cgins-timeout",
            )

    def warm(self) -> None:
        """Have all workers import torch at the same time, while something else is awaited."""
        self._trusted.warm(["reference"])
        self._pool.warm(["verification", *(["timing"] if self._timing else [])])

    def _absence(self, device: str) -> str:
        """Why a device that was asked for by name is not there, as far as the workers know."""
        found = (self._environments or {}).get("cpu")
        built = f"torch {found.torch} " if found else "torch "
        built += f"for CUDA {found.cuda} finds none" if found and found.cuda else "is built without CUDA"
        return (
            f"no {device.upper()} device: {built}, and --cgins-device={device} asks for it\n"
            "→ `cgins doctor` says what is missing; --cgins-device=auto skips such cases instead"
        )

    def _compiled(self, case: Case) -> CompiledKernel:
        """The built kernel; its build time is reported with the first case only."""
        try:
            return self.supply.kernel(*_kernel_of(case))
        except BuildError as error:
            raise EndedError(Status.BUILD_ERROR, Reason.COMPILER, str(error), error.log) from error
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, str(error)) from error
        except CginsError as error:
            raise EndedError(Status.BUILD_ERROR, Reason.SOURCE, str(error)) from error

    def _verified_and_timed(self, result: Evaluation, compiled: CompiledKernel) -> Evaluation:
        with ExitStack() as open_buffers:
            question = self._question(result.case)
            # Nobody times on the device meanwhile, and nobody who does is disturbed.
            with self._beside_no_timing(result.case.device), self._processes(result.case, compiled):
                prepared = open_buffers.enter_context(closing(self._prepared(question)))
                verified = self._verified(result, compiled, question, prepared)
            assert verified.correctness is not None
            if not (verified.correctness.passed and self._timing):
                return verified
            return self._timed(verified, compiled, question, prepared)

    @contextmanager
    def _processes(self, case: Case, compiled: CompiledKernel) -> Iterator[None]:
        """Start what a case needs; meanwhile they take hold of its GPU, which takes each about a second."""
        roles = [role_of("verification", compiled)]
        if self._timing:
            if AFTER_TIMING in self._probes_of(case):
                roles.append(roles[0] + ORDINARY)
            roles.append(role_of("timing", compiled))
            if self._bases.is_touched(*_kernel_of(case)):
                roles.append(roles[-1] + ALONE)
        fresh = [role for role in roles if not self._runs.has_run(role, compiled.key)]
        for role in fresh:
            self._pool.start_for(role, compiled.key)
        if not fresh or self._pool.is_local or not case.device.startswith("cuda"):
            yield
            return
        with ThreadPoolExecutor(len(fresh)) as pool:
            for role in fresh:
                pool.submit(self._runs.make_ready, role, case.device, timeout_s=self._timeout_s)
            yield

    def _verified(
        self, result: Evaluation, compiled: CompiledKernel, question: Question, prepared: Reply[PreparedCase]
    ) -> Evaluation:
        case, pairs = result.case, _pairs(prepared)
        request = self._request(case, compiled)
        try:
            role = role_of("verification", compiled)
            has_past = self._runs.has_run(role, compiled.key)
            output, correctness = self._judged(case, compiled, question, prepared)
            if not correctness.passed:
                # Neither the second try nor the next case finds what this one may have left behind.
                self._runs.renew(role)
            if has_past and not correctness.passed:
                output, again = self._judged(case, compiled, question, prepared)
                correctness = _told_again(correctness, again)
            correctness = self._dated(correctness, case, compiled, question, prepared)
        except EndedError as end:
            raise end.with_more(self._sanitizers.findings(case.device, request, pairs, end=end)) from end
        correctness = self._sanitized(correctness, request, pairs)
        return replace(
            result,
            correctness=correctness,
            verdict=gate.decide(correctness, None),
            output=output,
        )

    def _judged(
        self, case: Case, compiled: CompiledKernel, question: Question, prepared: Reply[PreparedCase]
    ) -> tuple[str, Correctness]:
        """What a kernel printed on all sets of inputs, and what the reference worker says of its answers."""
        request, role = self._request(case, compiled), role_of("verification", compiled)
        answers, notes = self._runs.run(role, request, _pairs(prepared))
        with closing(answers):
            correctness = self._asked_of(answers, "judge", question, Judgement).correctness
        correctness = replace(correctness, notes=(*correctness.notes, *notes))
        return answers.output, _with_lines(correctness, compiled)

    def _dated(
        self,
        correctness: Correctness,
        case: Case,
        compiled: CompiledKernel,
        question: Question,
        prepared: Reply[PreparedCase],
    ) -> Correctness:
        """Told which faults on drawn inputs the base revision has as well: its last run drew others."""
        tripped = {one.name for one in correctness.probes if one.outcome == "tripped"} & _DRAWN
        if not tripped or not all(check.passed for check in correctness.checks):
            return correctness
        with suppress(EndedError, InfrastructureError):
            base = self._bases.of(*_kernel_of(case), compiled)
            if base.compiled is not None:
                _, found = self._judged(case, base.compiled, question, prepared)
                tripped &= {one.name for one in found.probes if one.outcome == "tripped"}
            elif base.state != "unchanged":
                return correctness
            older = f"\nbase revision {base.revision[:10]} fails this on the same inputs, too: the fault is older than the change"
            return replace(
                correctness,
                probes=tuple(
                    replace(one, message=one.message + older) if one.name in tripped else one
                    for one in correctness.probes
                ),
            )
        return correctness

    def _environment_of(self, device: str) -> Environment:
        return (self._environments or {})[device.partition(":")[0]]

    def _lock_key(self, device: str) -> str:
        return self._locks.get(device, device)

    @contextmanager
    def _beside_no_timing(self, device: str) -> Iterator[None]:
        """Hold the device with others that verify.

        Raises:
            EndedError: others time on it all the while.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.verifying(self._lock_key(device), wait_s=LOCK_WAIT_S))
            except InfrastructureError as error:
                raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, str(error)) from error
            yield

    def _sanitized(self, correctness: Correctness, request: RunKernel, pairs: Sequence[Pair]) -> Correctness:
        """With what compute-sanitizer finds, also in a kernel that was found wrong: it may say why."""
        found = self._sanitizers.probes(request.device, request, pairs)
        judged = [probe for probe in correctness.probes if probe.name not in {one.name for one in found}]
        return replace(correctness, probes=(*judged, *found))

    def _asked_of(
        self, answers: Reply[KernelAnswers], method: str, question: Question, answer: type[_T]
    ) -> _T:
        """What the reference worker says of a kernel's answers."""
        return self._reference(
            method,
            JudgeAnswers(question=question, answers=answers.result),
            answer,
            answers.buffers,
            blame=lambda error: _blamed("verification", error, answers.output),
        ).result

    def _timed(
        self,
        verified: Evaluation,
        compiled: CompiledKernel,
        question: Question,
        prepared: Reply[PreparedCase],
    ) -> Evaluation:
        """With timings; what was verified stays known if the kernel fails while it is timed."""
        assert verified.correctness is not None
        case = verified.case
        pairs = kernel_timing.timeable(prepared.result.sets, prepared.buffers)
        try:
            outcome = self.stage.run(
                case,
                compiled,
                role=role_of("timing", compiled),
                probes=question.probes,
                pairs=pairs,
                judge=partial(self._judge_timed, question),
            )
        except EndedError as end:
            verdict = replace(end.verdict, message=f"right, but while it was timed: {end.verdict.message}")
            return replace(verified, verdict=verdict, output=end.output)
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, f"not timed: {error}") from error
        peaks = self._peaks.of(case.device)
        if peaks is not None:
            outcome = outcome.with_roofline(pairs[0][0], self._entry(case), case, peaks)
        correctness = outcome.timing.merged(verified.correctness)
        correctness = self._called_elsewhere(correctness, case, compiled, question, prepared)
        answers = gate.decide(correctness, outcome.timing.measurement)
        verdict = self.stage.decide(answers, case, outcome)
        if verdict.status is Status.SLOWER and outcome.base.compiled is not None:
            why = self._wrong_at_base(case, outcome.base.compiled, question, prepared)
            verdict = self.stage.decide_without_base(answers, case, outcome, why) if why else verdict
        return replace(
            verified,
            correctness=correctness,
            measurement=outcome.timing.measurement,
            verdict=replace(verdict, numbers={**verdict.numbers, **outcome.timing.numbers}),
            fail_on=self._entry(case).timing.fail_on,
        )

    def _judge_timed(self, question: Question, timed: Timed) -> TimingJudgement:
        request = JudgeTiming(
            question=question,
            cold=timed.measurement.cache == "cold",
            median_ns_per_call=timed.measurement.kernel.median_ns_per_call,
            launch_ns=timed.launch_ns,
            timing=timed.reply.result,
        )
        with self._beside_no_timing(question.case.device):
            return self._reference(
                "judge_timed",
                request,
                TimingJudgement,
                timed.reply.buffers,
                blame=lambda error: _blamed("timing", error, timed.reply.output),
            ).result

    def _wrong_at_base(
        self, case: Case, base: CompiledKernel, question: Question, prepared: Reply[PreparedCase]
    ) -> str:
        """Which check the base's answers fail; "" if they are right. A base that is wrong may well be faster."""
        try:
            failed = self._failed(role_of("verification", base), case, base, question, prepared)
        except EndedError:
            return ""  # it did not die when it was timed: the proof stands
        return failed.message if failed else ""

    def _called_elsewhere(
        self,
        correctness: Correctness,
        case: Case,
        compiled: CompiledKernel,
        question: Question,
        prepared: Reply[PreparedCase],
    ) -> Correctness:
        """With what the kernel gives after all in a process as a user's own would be, where nothing shows that it is gated."""
        held = next((one for one in correctness.probes if one.name == AFTER_TIMING), None)
        if held is None or held.outcome != "held" or self._pool.is_local:
            return correctness
        for _ in range(2):  # what is told was so in a process that had run nothing else
            if not (wrong := self._wrong_elsewhere(case, compiled, question, prepared)):
                return correctness
        told = replace(held, outcome="tripped", reason=SPECS[held.name].reason, message=wrong)
        return replace(correctness, probes=tuple(told if one is held else one for one in correctness.probes))

    def _wrong_elsewhere(
        self, case: Case, compiled: CompiledKernel, question: Question, prepared: Reply[PreparedCase]
    ) -> str:
        role = role_of("verification", compiled) + ORDINARY
        try:
            failed = self._failed(role, case, compiled, question, prepared, ordinary=True)
        except EndedError as end:
            if end.verdict.status is Status.INFRASTRUCTURE:
                raise
            wrong = wrong_when("ordinary", "all", end.verdict.message)
        else:
            wrong = wrong_when("ordinary", failed.inputs, failed.message) if failed else ""
        if wrong:
            self._runs.renew(role)
        return wrong

    def _failed(
        self,
        role: str,
        case: Case,
        compiled: CompiledKernel,
        question: Question,
        prepared: Reply[PreparedCase],
        *,
        ordinary: bool = False,
    ) -> Check | None:
        """The first check that a kernel fails without probes; None if it passes all.

        Raises:
            EndedError: it gave no answers.
        """
        core = [pair for pair in _pairs(prepared) if not pair[0].probe]
        request = replace(self._request(case, compiled), probes=(), ordinary=ordinary)
        with self._beside_no_timing(case.device):
            answers, _ = self._runs.run(role, request, core)
            with closing(answers):
                return self._asked_of(answers, "first_failure", question, FirstFailure).check

    def _question(self, case: Case) -> Question:
        """What the reference worker must know to prepare and to judge a case."""
        kernel = self._entry(case)
        return Question(
            case=case,
            tolerance=kernel.tolerance,
            seed=self.seed,
            import_root=str(self._trusted_root),
            probes=self._probes_of(case),
            exceptions=kernel.exceptions,
            repeatability=kernel.repeatability,
            claims=kernel.claims,
            semantics=kernel.semantics.plain(),
            allow_tf32=kernel.allow_tf32,
            interpreted=self._is_interpreted(case),
            untimed=kernel_timing.UNTIMED if self._timing else kernel_timing.NO_TIMING,
        )

    def _entry(self, case: Case) -> KernelEntry:
        return next(entry for entry in self.config.kernels if entry.name == case.kernel)

    def _probes_of(self, case: Case) -> tuple[str, ...]:
        kernel = self._entry(case)
        excused = [one.probe for one in kernel.exceptions]
        if self._is_interpreted(case):
            # Triton's interpreter itself keeps some memory of every call.
            excused.append("memory_leak")
        return switched_on(self._probes, excused, sanitize=self._sanitize)

    def _is_interpreted(self, case: Case) -> bool:
        return any(
            one.interpret for one in self._entry(case).implementations if one.name == case.implementation
        )

    def _request(self, case: Case, compiled: CompiledKernel) -> RunKernel:
        """What the verification worker must know besides the sets."""
        return RunKernel(
            kernel=compiled,
            device=case.device,
            import_root=str(self.config.root),
            probes=self._probes_of(case),
        )

    def _prepared(self, question: Question) -> Reply[PreparedCase]:
        """The inputs of a case.

        Raises:
            EndedError: torch no longer gives what was recorded, or there is no trusted worker.
        """
        prepared = self._reference("prepare", question, PreparedCase)
        if prepared.result.drift:
            raise EndedError(Status.TRACE_DRIFT, Reason.GOLD_DRIFT, prepared.result.drift)
        return prepared

    def _reference(
        self,
        method: str,
        request: object,
        answer: type[_T],
        buffers: tuple[Buffer, ...] = (),
        *,
        blame: Callable[[ServiceError], EndedError] = not_the_kernels,
    ) -> Reply[_T]:
        """A request to the trusted worker, tried once more if the worker is lost.

        No kernel runs there, so its limit is not the user's, who thinks of kernels.
        """
        params = documents.dump_python(request)
        for last in (False, True):
            try:
                reply = self._trusted.call(
                    "reference", method, params, buffers, timeout_s=REFERENCE_TIMEOUT_S
                )
                return replace(reply, result=read(answer, reply.result))
            except ServiceError as error:
                raise blame(error) from error
            except WorkerError as error:
                if last:
                    raise EndedError(
                        Status.INFRASTRUCTURE, Reason.WORKER_LOST, str(error), error.output
                    ) from error
        raise AssertionError("the loop above returns or raises")


def _with_lines(correctness: Correctness, compiled: CompiledKernel) -> Correctness:
    """With the lines of the source that probably take a kernel off its stream, where that was seen."""
    lines = stream_lines.suspect(compiled.source.files)
    return replace(
        correctness,
        probes=tuple(
            replace(probe, message="\n".join([probe.message, *(f"  {line}" for line in lines)]))
            if probe.reason is Reason.NOT_ON_STREAM
            else probe
            for probe in correctness.probes
        ),
    )


def _told_again(first: Correctness, again: Correctness) -> Correctness:
    """A failure as a process without a past shows it; where it does not, as it was, and what that says of the kernel."""
    if not again.passed:
        return again
    note = "wrong in a process that had run other cases of this kernel, right in a fresh one: it keeps something between calls"
    return replace(first, notes=(*first.notes, note))


def _fence(sandbox: Sandbox, config: Config, builds: Path, bases: BaseKernels) -> Sandbox:
    """With what the kernels of a project need, and without what they are judged by."""
    base = (bases.root,) if bases.root is not None else ()
    builds.mkdir(parents=True, exist_ok=True)  # what is not there when a worker starts, it will never see
    implementations = (one for entry in config.kernels for one in entry.implementations)
    sources = (source for one in implementations for source in one.sources)
    return sandbox.around(visible=(config.root, builds, *base, *sources), hidden=config.traces)


def _show_compilers(around: Fence | None, config: Config, fence: Sandbox) -> None:
    """Have compilers see what the kernels see, and what else is included or linked."""
    if not isinstance(around, BuildFence):
        raise TypeError("an evaluator with a sandbox was given builds whose compilers run outside of it")
    around.show(visible=(*fence.visible, *sources_of(config)), hidden=fence.hidden)


def _blamed(role: str, error: ServiceError, output: str) -> EndedError:
    """Whose fault it is that the reference worker cannot judge what another worker told."""
    return forged(role, error.text, output) if error.kind == "ProtocolError" else not_the_kernels(error)


def _kernel_of(case: Case) -> tuple[str, str, str]:
    """Names of kernel and implementation, and device type."""
    return case.kernel, case.implementation, case.device.split(":")[0]


def worker_environment() -> dict[str, str]:
    """A kernel's OpenMP and torch's are two thread pools in one process: while one works, the other must sleep.

    With the usual busy waiting, calls of microseconds took milliseconds on two cores.
    """
    return {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}


def role_of(role: str, compiled: CompiledKernel) -> str:
    """Role of the worker for a kernel: Triton decides for a whole process whether it compiles or interprets."""
    return f"{role}/interpret" if compiled.source.interpret else role


def _pairs(prepared: Reply[PreparedCase]) -> list[Pair]:
    return list(zip(prepared.result.sets, prepared.buffers, strict=True))
