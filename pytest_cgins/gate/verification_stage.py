"""The first stage of a case: its kernel is run on prepared inputs, and its answers are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pytest_cgins.building import stream_lines
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.verdict import Check, Correctness, Probe, Reason, Status, Verdict
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import BASE_ONLY
from pytest_cgins.run.process import Reply
from pytest_cgins.run.sanitize import Sanitizers
from pytest_cgins.verify.messages import (
    CaseRequest,
    CheckOperator,
    Judgement,
    KernelAnswers,
    OperatorFinding,
    PreparedCase,
    RunKernel,
    read,
)
from pytest_cgins.verify.probes.registry import PROBE_SPECS, wrong_when

_DRAWN = frozenset({"sizes", "arguments"})
"""Probes whose inputs differ from run to run in more than their numbers."""
AFTER_TIMING = "after_timing"
"""Probe that makes one more call in a separate process."""
OPCHECK = "/opcheck"
"""Role suffix of the process in which `--cgins-opcheck` looks at an operator."""
COMPILER_S = 120.0
"""Least limit of such a request: torch's compiler takes seconds to import and to begin."""
LARGE_INDICES = "large_indices"
"""Probe whose calls are made in a separate process."""
_WRONG_ONCE = "of two calls on the same inputs, one is right and one is wrong: "
_WRONG_TWICE = "two calls on the same inputs give two answers, both wrong: "
_CHANGES_BY_ITSELF = "→ look for a race, memory that nobody wrote, or what one call leaves for the next: these inputs are no cause"
UNINSTRUMENTED = "/uninstrumented"
"""Role suffix of the process that makes this call without guards, poison or watch."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case as it was prepared."""

    case_request: CaseRequest
    reply: Reply[PreparedCase]

    @property
    def case(self) -> Case:
        """The case."""
        return self.case_request.case

    @property
    def pairs(self) -> list[Pair]:
        """Sets of inputs with their buffers, but for those of `large_pairs`."""
        return [pair for pair in self._all_pairs if pair[0].probe != LARGE_INDICES]

    @property
    def large_pairs(self) -> list[Pair]:
        """Those that become large calls."""
        return [pair for pair in self._all_pairs if pair[0].probe == LARGE_INDICES]

    @property
    def core(self) -> list[Pair]:
        """Those that decide whether a kernel is right: those of no probe."""
        return [pair for pair in self._all_pairs if not pair[0].probe]

    @property
    def timeable(self) -> list[Pair]:
        """Those that a kernel may be timed on."""
        return kernel_timing.timeable(self._all_pairs)

    @property
    def _all_pairs(self) -> list[Pair]:
        return list(zip(self.reply.result.sets, self.reply.buffers, strict=True))

    def close(self) -> None:
        """Close the buffers."""
        self.reply.close()


class VerificationStage:
    """Verifies the kernels of one `cgins.yaml`; bases are closed by their owner."""

    def __init__(
        self,
        runs: KernelRuns,
        reference: ReferenceWorker,
        sanitizers: Sanitizers,
        bases: BaseKernels,
        *,
        import_root: Path,
    ) -> None:
        self._runs = runs
        self._reference = reference
        self._sanitizers = sanitizers
        self._bases = bases
        self._import_root = str(import_root)
        self._isolated = not runs.pool.is_local

    def run(self, prepared: Prepared, compiled: CompiledKernel) -> tuple[Correctness, str]:
        """What is found of a kernel, and what it printed.

        Raises:
            EndedError: it failed before there was anything to compare.
        """
        device, request = prepared.case.device, self._request(prepared, compiled)
        role = role_of("verification", compiled)
        try:
            has_past = self._runs.pool.has_run(role, compiled.key)
            correctness, output = self._judged(prepared, compiled)
            if not correctness.passed:
                # Neither the second try nor the next case finds what this one may have left behind.
                self._runs.pool.discard(role)
            if has_past and not correctness.passed:
                again, output = self._judged(prepared, compiled)
                correctness = _told_again(correctness, again)
            correctness = self._dated(correctness, prepared, compiled)
        except EndedError as end:
            raise end.with_more(self._sanitizers.findings(device, request, prepared.pairs, end=end)) from end
        # Also in a kernel that was found wrong: compute-sanitizer may say why.
        sanitized = self._sanitizers.probes(device, request, prepared.pairs)
        names = {probe.name for probe in sanitized}
        judged = [probe for probe in correctness.probes if probe.name not in names]
        correctness = replace(correctness, probes=(*judged, *sanitized))
        return self._with_large_calls(correctness, prepared, compiled), output

    def check_operator(self, prepared: Prepared, compiled: CompiledKernel) -> tuple[Verdict, str]:
        """The verdict of the check that the case names, and what was printed.

        Raises:
            EndedError: the operator failed or died before anything was found.
        """
        core, check = prepared.timeable, prepared.case.check
        assert check != "model", "a whole model is no operator"
        request = CheckOperator(
            kernel=compiled,
            device=prepared.case.device,
            import_root=self._import_root,
            sets=tuple(inputs for inputs, _ in core),
            check=check,
            followed=tuple(n for n, meta in enumerate(prepared.case.tensors) if meta.requires_grad),
        )
        reply = self._runs.ask(
            role_of("verification", compiled) + OPCHECK,
            "check_operator",
            request,
            partial(read, OperatorFinding),
            tuple(buffer for _, buffer in core),
            timeout_s=max(self._runs.timeout_s, COMPILER_S),
            kernel=compiled.key,
        )
        reason = reply.result.reason
        status = {Reason.OK: Status.PASSED, Reason.NOT_APPLICABLE: Status.SKIPPED}.get(
            reason, Status.INCORRECT
        )
        verdict = Verdict(status=status, reason=reason, message=reply.result.message, numbers={})
        return verdict, reply.output

    def wrong_at_base(self, prepared: Prepared, base: CompiledKernel) -> str:
        """The check that the base's answers fail; "" if they are right. A base that is wrong may well be faster."""
        try:
            failed = self._first_failure(role_of("verification", base), prepared, base)
        except EndedError:
            return ""  # it did not die when it was timed: the proof stands
        return failed.message if failed else ""

    def compile_base(self, prepared: Prepared, compiled: CompiledKernel) -> None:
        """Run a Python kernel of the base once: its JIT compiler works now, and not while a GPU is held for timing."""
        source, device = compiled.source, prepared.case.device
        if source.contract != "python" or not device_of(device).is_accelerator or not self._isolated:
            return
        with suppress(EndedError, InfrastructureError):  # timing tells what is wrong with it
            base = self._bases.of(*prepared.case.key, compiled).compiled
            if base is not None:
                role = role_of("verification", base) + BASE_ONLY
                self.answers(role, prepared.case, base, prepared.pairs[:1]).close()

    def called_elsewhere(
        self, correctness: Correctness, prepared: Prepared, compiled: CompiledKernel
    ) -> Correctness:
        """The correctness with one more call in an ordinary process, in which nothing shows that the kernel is gated."""
        held = next((probe for probe in correctness.probes if probe.name == AFTER_TIMING), None)
        if held is None or held.outcome != "held" or not self._isolated:
            return correctness
        for _ in range(2):  # what is told was so in a process that had run nothing else
            if not (wrong := self._wrong_elsewhere(prepared, compiled)):
                return correctness
        tripped = replace(held, outcome="tripped", reason=PROBE_SPECS[held.name].reason, message=wrong)
        return correctness.with_probes([tripped])

    def _judged(self, prepared: Prepared, compiled: CompiledKernel) -> tuple[Correctness, str]:
        """What the reference worker says of a kernel's answers on all sets of inputs, and what it printed."""
        request, role = self._request(prepared, compiled), role_of("verification", compiled)
        answers, notes = self._runs.run(role, request, prepared.pairs)
        with closing(answers):
            judgement = self._reference.judge(prepared.case_request, answers)
        correctness = judgement.correctness.with_probes(
            self._wrong_only_once(judgement, prepared, compiled, role)
        )
        correctness = replace(correctness, notes=(*correctness.notes, *notes))
        return _with_lines(correctness, compiled), answers.output

    def _wrong_only_once(
        self, judgement: Judgement, prepared: Prepared, compiled: CompiledKernel, role: str
    ) -> Iterator[Probe]:
        """Probes whose sets are answered otherwise when they are asked once more: what these differ in is no cause then."""
        tripped = judgement.correctness.tripped
        if any(PROBE_SPECS[probe.name].explains for probe in tripped):
            return
        for probe in tripped:
            wrong = judgement.wrong.get(probe.name, ())
            names = {check.inputs for check in wrong}
            pairs = [pair for pair in prepared.pairs if not pair[0].probe or pair[0].name in names]
            # A process without a past answers as if nothing had been called before.
            if not names or not self._runs.pool.has_run(role, compiled.key):
                continue
            with suppress(EndedError), closing(self.answers(role, prepared.case, compiled, pairs)) as answers:
                if any(answer.error for answer in answers.result.sets):
                    continue
                again = self._reference.first_failure(prepared.case_request, answers)
                if again is None or _is_another(again, wrong):
                    told = [line for line in probe.message.splitlines() if not line.startswith("→")]
                    first = (_WRONG_TWICE if again else _WRONG_ONCE) + told[0]
                    message = "\n".join([first, *told[1:], _CHANGES_BY_ITSELF])
                    yield replace(probe, reason=Reason.NOT_REPEATABLE, message=message)

    def _dated(self, correctness: Correctness, prepared: Prepared, compiled: CompiledKernel) -> Correctness:
        """Told which faults on drawn inputs the base revision has as well: its last run drew others."""
        tripped = {probe.name for probe in correctness.probes if probe.outcome == "tripped"} & _DRAWN
        if not tripped or not all(check.passed for check in correctness.checks):
            return correctness
        with suppress(EndedError, InfrastructureError):
            base = self._bases.of(*prepared.case.key, compiled)
            if base.compiled is not None:
                at_base, _ = self._judged(prepared, base.compiled)
                tripped &= {probe.name for probe in at_base.probes if probe.outcome == "tripped"}
            elif base.state != "unchanged":
                return correctness
            older = f"\nbase revision {base.revision[:10]} fails this on the same inputs, too: the fault is older than the change"
            return correctness.with_probes(
                replace(probe, message=probe.message + older)
                for probe in correctness.probes
                if probe.name in tripped
            )
        return correctness

    def _with_large_calls(
        self, correctness: Correctness, prepared: Prepared, compiled: CompiledKernel
    ) -> Correctness:
        """The correctness with what large calls show, which a right kernel may not survive."""
        if not (correctness.passed and prepared.large_pairs and self._isolated):
            return correctness
        role = f"{role_of('verification', compiled)}/{LARGE_INDICES}"
        try:
            with closing(self.answers(role, prepared.case, compiled, prepared.large_pairs)) as answers:
                large = self._reference.judge_large(prepared.case_request, answers)
        except EndedError as end:
            if end.verdict.status is Status.INFRASTRUCTURE:
                raise
            return replace(
                correctness, notes=(*correctness.notes, f"probe {LARGE_INDICES}: {end.verdict.message}")
            )
        finally:
            if not device_of(prepared.case.device).is_accelerator:
                self._runs.pool.discard(role)  # what was mapped there stays
        return replace(correctness.with_probes(large.probes), notes=(*correctness.notes, *large.notes))

    def _wrong_elsewhere(self, prepared: Prepared, compiled: CompiledKernel) -> str:
        role = role_of("verification", compiled) + UNINSTRUMENTED
        try:
            failed = self._first_failure(role, prepared, compiled, ordinary=True)
        except EndedError as end:
            if end.verdict.status is Status.INFRASTRUCTURE:
                raise
            if end.verdict.status is Status.TIMEOUT:
                return ""  # it may compile anew, and an ordinary process is not asked whether it does
            wrong = wrong_when("ordinary", "all", end.verdict.message)
        else:
            wrong = wrong_when("ordinary", failed.inputs, failed.message) if failed else ""
        if wrong:
            self._runs.pool.discard(role)
        return wrong

    def _first_failure(
        self, role: str, prepared: Prepared, compiled: CompiledKernel, *, ordinary: bool = False
    ) -> Check | None:
        """The first check that a kernel fails without probes; None if it passes all.

        Raises:
            EndedError: it gave no answers.
        """
        with self._reference.verification_lock(prepared.case.device):
            answers = self.answers(role, prepared.case, compiled, prepared.core, ordinary=ordinary)
            with closing(answers):
                return self._reference.first_failure(prepared.case_request, answers)

    def answers(
        self,
        role: str,
        case: Case,
        compiled: CompiledKernel,
        pairs: Sequence[Pair],
        *,
        ordinary: bool = False,
    ) -> Reply[KernelAnswers]:
        """What a kernel answers to some sets of inputs without probes, in the process of a role; the caller closes it.

        Raises:
            EndedError: it fails.
        """
        request = RunKernel(
            kernel=compiled, device=case.device, import_root=self._import_root, ordinary=ordinary
        )
        return self._runs.run(role, request, pairs)[0]

    def _request(self, prepared: Prepared, compiled: CompiledKernel) -> RunKernel:
        return RunKernel(
            kernel=compiled,
            device=prepared.case.device,
            import_root=self._import_root,
            probes=prepared.case_request.probes,
        )


def _is_another(again: Check, wrong: Sequence[Check]) -> bool:
    """Whether an answer that is wrong again is another one: to a set that was right, or its worst element has moved too far."""
    before = {check.inputs: check.worst for check in wrong}
    old, new = before.get(again.inputs), again.worst
    if again.inputs not in before or old is None or new is None:
        return again.inputs not in before
    is_same_element = (old.output, old.index) == (new.output, new.index)
    return is_same_element and abs(float(old.got) - float(new.got)) > new.tolerance


def role_of(role: str, compiled: CompiledKernel) -> str:
    """Role of the worker for a kernel: Triton decides for a whole process whether it compiles or interprets."""
    return f"{role}/interpret" if compiled.source.interpret else role


def _with_lines(correctness: Correctness, compiled: CompiledKernel) -> Correctness:
    """The correctness with the source lines that probably take a kernel off its stream, if a probe saw that."""
    lines = stream_lines.suspect(compiled.source.files)
    return correctness.with_probes(
        replace(probe, message="\n".join([probe.message, *(f"  {line}" for line in lines)]))
        for probe in correctness.probes
        if probe.reason is Reason.NOT_ON_STREAM
    )


def _told_again(first: Correctness, again: Correctness) -> Correctness:
    """A failure as a process without a past shows it; where it does not, as it was, and what that says of the kernel."""
    if not again.passed:
        return again
    note = "wrong in a process that had run other cases of this kernel, right in a fresh one: it keeps something between calls"
    return replace(first, notes=(*first.notes, note))
