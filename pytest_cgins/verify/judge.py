"""The service of the trusted reference worker: prepares cases, and judges kernels' answers to them.

It alone sees gold, torch's answers and the references; the worker that runs kernels gets inputs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.config import Tolerance
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import DEVICES, device_of, torch_device
from pytest_cgins.core.errors import ProtocolError, TraceError
from pytest_cgins.core.keep_running import PARENT, keep_running
from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.model import Case, Check, Correctness, Environment, Reason, Trace
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.text import counted
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import MANIFEST, PackReader, open_pack
from pytest_cgins.timing import peak_measurement
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.environment import describe
from pytest_cgins.verify import arguments, diagnosis, form_checks, inputs, layouts, probing, sizes, timed
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.input_sets import InputSet, dense_meta
from pytest_cgins.verify.messages import (
    AskOutputs,
    DevicePeak,
    EmptyMessage,
    FirstFailure,
    JudgeAnswers,
    Judgement,
    JudgeTiming,
    KernelAnswers,
    Machine,
    OutputMetas,
    PackedInputs,
    PreparedCase,
    Question,
    Ready,
    SetAnswer,
    TimingJudgement,
    serves,
)
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.prepare_options import PrepareOptions, prepare_options_of
from pytest_cgins.verify.probe_verdicts import DeviatingRepeat, Permissions, Suspicions
from pytest_cgins.verify.probes import after_timing, on_stream, op_callback
from pytest_cgins.verify.probes.registry import TIMED
from pytest_cgins.verify.reference import answer, memory_taken
from pytest_cgins.verify.semantics import Semantics

CACHE_BYTES = 1 << 30
"""Memory for preparations that further implementations of the same trace may need; at least one is kept."""


class JudgeService:
    """Methods take and give messages, and buffers."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        if settings.get(PARENT):
            keep_running(int(settings[PARENT]))
        self._cache_bytes = int(settings.get("cache_bytes", CACHE_BYTES))
        self._prepared: OrderedDict[tuple[str, str, str, int, PrepareOptions], Preparation] = OrderedDict()
        self._held = 0  # bytes of all that is prepared
        self._packs: dict[str, _OpenPack] = {}
        self._right: tuple[object, dict[str, str]] = (None, {})

    @serves(EmptyMessage)
    def describe(self, request: EmptyMessage, buffers: list[Buffer]) -> tuple[Machine, list[Buffer]]:
        """Which devices there are."""
        del request, buffers
        kinds = [kind for kind in DEVICES if device_of(kind).count()]
        names = [f"{kind}:{index}" for kind in kinds for index in range(device_of(kind).count())]
        devices = [timed_device(name) for name in names]
        environments: dict[str, Environment] = {kind: describe(kind) for kind in kinds}
        locks = {device.case_name: device.lock_key() for device in devices}
        return Machine(environments=environments, devices=tuple(locks), locks=locks), []

    @serves(Ready)
    def peaks(self, request: Ready, buffers: list[Buffer]) -> tuple[DevicePeak, list[Buffer]]:
        """Measure what a device reaches, for rooflines; whoever asks holds the device's lock."""
        del buffers
        try:
            return DevicePeak(peak_measurement.measure(request.device)), []
        except RuntimeError:
            return DevicePeak(None), []

    @serves(Question)
    def prepare(self, question: Question, buffers: list[Buffer]) -> tuple[PreparedCase, list[Buffer]]:
        """Make the inputs of a case."""
        del buffers
        prepared = self._preparation(question)
        drift = prepared.drift(question.tolerance, question.case.device)
        if drift:
            return PreparedCase(drift=drift, sets=()), []
        own_calls = _own_calls(question, prepared)
        sets, contents = [], []
        for made in prepared.sets:
            header, content = pack(rebuild(made.layout.metas, made.layout.spans, "cpu"))
            contents.append(content)
            sets.append(
                PackedInputs(
                    name=made.expected.name,
                    call=made.call,
                    tensors=header,
                    outputs=tuple(made.outputs),
                    context=made.context,
                    mutated=tuple(made.mutated),
                    probe=made.probe,
                    op_calls=own_calls,
                )
            )
        return PreparedCase(drift=None, sets=tuple(sets)), contents

    @serves(JudgeAnswers)
    def judge(self, request: JudgeAnswers, buffers: list[Buffer]) -> tuple[Judgement, list[Buffer]]:
        """Compare a kernel's answers."""
        question, tolerance = request.question, request.question.tolerance
        case, observed = question.case, request.answers.observed
        prepared = self._preparation(question)
        answers = _Answers(request.answers, buffers, case.device)
        suspicions = Suspicions(question.probes, _permissions(question), tolerance)
        suspicions.own_calls = _own_calls(question, prepared)
        suspicions.own_memory = lambda name: _own_memory(prepared, name, case.device)
        core: list[diagnosis.Answered] = []
        probes: list[diagnosis.Answered] = []
        right: dict[str, str] = {}
        for made in prepared.sets:
            checked, got = self._check(made, answers, tolerance, suspicions)
            told = [_with_row(check, made, prepared.semantics) for check in checked]
            (probes if made.probe else core).append(diagnosis.Answered(made=made, got=got, checks=told))
            if not made.probe and after_timing.NAME in suspicions.wanted and core[-1].passed:
                right[made.expected.name] = answers.digest(made.expected.name)
        self._right = (_key(question), right)
        checks = diagnosis.explain(core, prepared.builder, prepared.semantics, tolerance)
        if all(answered.passed for answered in core):
            _take_probes(probes, prepared, suspicions, tolerance)
        else:
            why = "the kernel is wrong on the inputs that decide: it cannot be told what only this would show"
            suspicions.not_run |= {answered.made.probe: why for answered in probes if answered.checks}
        suspicions.not_run |= prepared.not_run
        suspicions.not_run |= dict.fromkeys(TIMED, question.untimed)
        suspicions.take_checks(checks)
        suspicions.take_facts(observed)
        expected = {made.expected.name: made.expected for made in prepared.sets}
        for second in answers.seconds(expected):
            suspicions.take_second(second)
        correctness = Correctness(
            checks=tuple(checks),
            power=prepared.power(tolerance),
            notes=(*prepared.notes, *on_stream.notes(observed.get(on_stream.NAME))),
            probes=suspicions.probes(),
        )
        return Judgement(correctness), []

    @serves(JudgeAnswers)
    def first_failure(
        self, request: JudgeAnswers, buffers: list[Buffer]
    ) -> tuple[FirstFailure, list[Buffer]]:
        """Compare a kernel's further answers to the sets that decide; what was prepared is not made again."""
        question, tolerance = request.question, request.question.tolerance
        prepared = self._preparation(question)
        answers = _Answers(request.answers, buffers, question.case.device)
        unwanted = Suspicions((), _permissions(question), tolerance)
        checks = (
            check for made in prepared.core for check in self._check(made, answers, tolerance, unwanted)[0]
        )
        return FirstFailure(next((check for check in checks if not check.passed), None)), []

    @serves(JudgeTiming)
    def judge_timed(
        self, request: JudgeTiming, buffers: list[Buffer]
    ) -> tuple[TimingJudgement, list[Buffer]]:
        """Judge what was seen of a kernel while it was timed."""
        question = request.question
        prepared = self._preparation(question)
        suspicions = Suspicions(question.probes, _permissions(question), question.tolerance)
        of, digests = self._right
        right = digests if of == _key(question) else {}
        return timed.judge(request, buffers, prepared, suspicions, right), []

    def _check(
        self, made: InputSet, answers: _Answers, tolerance: Tolerance, suspicions: Suspicions
    ) -> tuple[tuple[Check, ...], list[torch.Tensor]]:
        """The checks of one set of inputs, and the answer as far as it could be compared.

        There are none for a probe's set on which the kernel failed.
        """
        expected = made.expected
        first = answers.first.get(expected.name)
        if first is None:
            return (form_checks.failed(expected.name, Reason.OUTPUT_COUNT, "the kernel gave no answer"),), []
        if made.probe and first.error:
            probing.take_error(made, first.error, suspicions)
            return (), []
        suspicions.take_conduct(first, expected.name, list(expected.arguments))
        elsewhere = _elsewhere(first, answers.device)
        if elsewhere is not None:
            return (elsewhere,), []
        got = answers.tensors(expected.name)
        misnamed = _complexity(expected, got)
        if misnamed is not None:
            return (misnamed,), []
        real = [as_real(tensor) for tensor in got]
        if made.probe in (layouts.NAME, arguments.NAME):
            # How answers lie to inputs that lie elsewhere, or along another axis, is the kernel's choice.
            real = [tensor.contiguous() for tensor in real]
        return compare(expected, real, tolerance), real

    @serves(AskOutputs)
    def output_metas(self, request: AskOutputs, buffers: list[Buffer]) -> tuple[OutputMetas, list[Buffer]]:
        """Layouts of what torch returns for a call; the buffer holds its tensors."""
        _importable(request.import_root, request.call.op)
        tensors = unpack(request.tensors, buffers[0], request.device)
        outputs = answer(request.call, lay_out(tensors), request.context, request.device)
        return OutputMetas(tuple(dense_meta(output, index) for index, output in enumerate(outputs))), []

    def _preparation(self, question: Question) -> Preparation:
        case, options = question.case, prepare_options_of(question)
        key = (case.pack_path, case.trace_id, case.device, question.seed, options)
        if key not in self._prepared:
            _importable(question.import_root, case.op)
            made = self._prepared[key] = self._prepare(case, question.seed, options)
            self._held += made.nbytes
            # The case that comes next is prepared before this one is judged, unless on a GPU, whose memory is dear.
            self._evict(keep=2 if case.device == "cpu" else 1)
        self._prepared.move_to_end(key)
        return self._prepared[key]

    def _prepare(self, case: Case, seed: int, options: PrepareOptions) -> Preparation:
        """Validate the pack once, not once a case: that takes time in proportion to its size."""
        manifest = Path(case.pack_path) / MANIFEST
        status = manifest.stat() if manifest.exists() else None
        stamp = (status.st_mtime_ns, status.st_size) if status else (0, 0)
        opened = self._packs.get(case.pack_path)
        if opened is None or opened.stamp != stamp:
            reader = open_pack(case.pack_path)
            opened = _OpenPack(stamp, reader, {trace.id: trace for trace in reader.pack.traces})
            self._packs[case.pack_path] = opened
        if case.trace_id not in opened.traces:
            raise TraceError(
                f"the trace pack {case.pack} has no trace {case.trace_id}",
                remedy="the pack was changed while the tests ran: run them again",
            )
        trace = opened.traces[case.trace_id]
        others = [
            one.call for one in opened.traces.values() if one.call.op == trace.call.op and one is not trace
        ]
        return prepare(trace, opened.reader, case.device, seed, options, others)

    def _evict(self, *, keep: int) -> None:
        """Forget what was used longest ago until the rest fits; the newest stay, so many."""
        while len(self._prepared) > keep and self._held > self._cache_bytes:
            _, oldest = self._prepared.popitem(last=False)
            self._held -= oldest.nbytes


@dataclass(frozen=True, slots=True)
class _OpenPack:
    """A pack that was validated, and the state of the manifest that was."""

    stamp: tuple[int, int]
    reader: PackReader
    traces: dict[str, Trace]


def _own_calls(question: Question, prepared: Preparation) -> dict[str, int]:
    """What torch's own op runs, if a probe wants to know."""
    return prepared.op_calls(question.case.device) if op_callback.NAME in question.probes else {}


def _own_memory(prepared: Preparation, name: str, device: str) -> int:
    """What torch's own op takes on a set of inputs."""
    made = next((made for made in prepared.sets if made.expected.name == name), None)
    return memory_taken(made.call, made.layout, made.context, device) if made is not None else 0


def _importable(import_root: str, op: str) -> None:
    """Let the op be imported: the user named it in cgins.yaml, beside which its module lies."""
    import_from(import_root)
    trust(op)


def _take_probes(
    probes: Sequence[diagnosis.Answered],
    prepared: Preparation,
    suspicions: Suspicions,
    tolerance: Tolerance,
) -> None:
    """What the answers to the probes' sets tell of a kernel that is right on the others."""
    for probe in probes:
        found = None
        if not probe.passed and probe.made.probe in (sizes.NAME, arguments.NAME):
            found = diagnosis.explain_probe(probe, prepared.builder, prepared.semantics, tolerance)
        half = prepared.base.expected
        probing.take_checks(probe, suspicions, found, half=half, tolerance=tolerance)


def _with_row(check: Check, made: InputSet, semantics: Semantics) -> Check:
    """A failed check with what the inputs are like where it failed most."""
    if check.passed or check.worst is None:
        return check
    shape = made.expected.outputs[check.worst.output].shape
    tensors = rebuild(made.layout.metas, made.layout.spans, "cpu")
    row = inputs.row_at(semantics, made.call, tensors, shape, check.worst.index)
    words, arrow, remedy = check.message.partition("\n→")
    return replace(check, message=f"{words} {row}{arrow}{remedy}") if row else check


def _complexity(expected: ExpectedSet, got: list[torch.Tensor]) -> Check | None:
    """Whether an output is complex where the op's is: afterwards both are pairs of real numbers."""
    for output, tensor in zip(expected.outputs, got, strict=False):
        if tensor.is_complex() != output.complex:
            names = {True: "complex", False: "real"}
            what = (
                f"output {output.index} is {names[tensor.is_complex()]}, expected is {names[output.complex]}"
            )
            return form_checks.failed(expected.name, Reason.DTYPE, what)
    return None


def _elsewhere(answer: SetAnswer, device: str) -> Check | None:
    """Whether an output is on another device than the case's."""
    for index, place in enumerate(answer.devices):
        if place != torch_device(device):
            what = f"output {index} is on {place}, expected is {device}"
            return form_checks.failed(answer.name, Reason.DEVICE, what)
    return None


def _key(question: Question) -> tuple[Case, Tolerance, int]:
    """What digests of right answers belong to."""
    return question.case, question.tolerance, question.seed


def _permissions(question: Question) -> Permissions:
    return Permissions(
        exceptions=question.exceptions, repeatability=question.repeatability, claims=question.claims
    )


class _Answers:
    """What the verification worker gave: an answer a set, and those that deviate from it."""

    def __init__(self, answers: KernelAnswers, buffers: list[Buffer], device: str) -> None:
        self.device = device
        sets, deviations = answers.sets, answers.deviations
        if len(sets) + len(deviations) != len(buffers):
            raise ProtocolError(
                f"{counted(len(sets), 'answer')} and {counted(len(deviations), 'deviation')} came with {counted(len(buffers), 'buffer')}"
            )
        self.first = {answer.name: answer for answer in sets}
        self._buffers = {answer.name: buffer for answer, buffer in zip(sets, buffers, strict=False)}
        self._deviations = list(zip(deviations, buffers[len(sets) :], strict=True))

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The first answer to a set."""
        return unpack(self.first[name].tensors, self._buffers[name], self.device)

    def digest(self, name: str) -> str:
        """Of the first answer to a set."""
        return timed.digest(self.first[name].tensors, self._buffers[name])

    def seconds(self, expected: dict[str, ExpectedSet]) -> Iterator[DeviatingRepeat]:
        """The deviations."""
        for deviant, buffer in self._deviations:
            name = deviant.name
            yield DeviatingRepeat(
                probe=deviant.probe,
                expected=expected[name],
                first=self.tensors(name) if name in self.first else (),
                given=unpack(deviant.tensors, buffer, self.device),
                error=deviant.error.message if deviant.error else "",
                reused=deviant.reused,
            )
