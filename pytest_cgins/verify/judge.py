"""The service of the trusted reference worker: prepares cases, and judges kernels' answers to them.

It alone sees gold, torch's answers and the references; the worker that runs kernels gets inputs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real, distances
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case
from pytest_cgins.core.device import DEVICES, device_of, give_back_unused, torch_device
from pytest_cgins.core.errors import ConfigError, ProtocolError, TraceError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.tensors import pack_layout, unpack
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace
from pytest_cgins.core.verdict import Check, Correctness, Reason
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import MANIFEST, PackReader, open_pack
from pytest_cgins.recording import profiler
from pytest_cgins.recording.profile import PackProfile
from pytest_cgins.timing import least_work, peak_measurement
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.environment import describe
from pytest_cgins.verify import diagnosis, inputs, rank_inputs, second_look
from pytest_cgins.verify.changed_rows import own_rows
from pytest_cgins.verify.compare import ExpectedSet, compare, failed_form
from pytest_cgins.verify.expected import gold_order
from pytest_cgins.verify.input_sets import InputSet, dense_meta
from pytest_cgins.verify.messages import (
    AskOutputs,
    CaseRequest,
    CompareAnswers,
    DevicePeak,
    Drift,
    EmptyMessage,
    FirstFailure,
    JoinRanks,
    JudgeAnswers,
    Judgement,
    Machine,
    OutputMetas,
    PackedInputs,
    PreparedCase,
    PrepareOptions,
    ProfileRequest,
    serves,
)
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.probe_verdicts import ProbeResults
from pytest_cgins.verify.probes import (
    after_timing,
    arguments,
    autotuner,
    integrity,
    large_indices,
    layouts,
    on_stream,
    op_callback,
    physical_floor,
    recompiles,
    sizes,
    snooping,
)
from pytest_cgins.verify.probes.registry import TIMED
from pytest_cgins.verify.rank_group import RankGroup
from pytest_cgins.verify.received_answers import ReceivedAnswers, judge_timed_answers
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.timing_messages import JudgeTiming, Ready, TimingJudgement

CACHE_BYTES = 1 << 30
"""Memory for preparations that further implementations of the same trace may need; at least one is kept."""


class JudgeService:
    """Methods take and give messages, and buffers."""

    def __init__(self) -> None:
        self._prepared: OrderedDict[tuple[str, str, str, int, PrepareOptions], Preparation] = OrderedDict()
        self._held = 0  # bytes of all that is prepared
        self._packs: dict[str, _OpenPack] = {}
        self._right: tuple[object, dict[str, str], dict[str, ExpectedSet]] = (None, {}, {})
        self._group: RankGroup | None = None
        self.rest = give_back_unused

    @serves(EmptyMessage)
    def describe(self) -> Machine:
        """The devices of this machine."""
        kinds = [kind for kind in DEVICES if device_of(kind).count()]
        names = [f"{kind}:{index}" for kind in kinds for index in range(device_of(kind).count())]
        devices = [timed_device(name) for name in names]
        environments: dict[str, Environment] = {kind: describe(kind) for kind in kinds}
        locks = {device.case_name: device.lock_key() for device in devices}
        return Machine(environments=environments, locks=locks)

    @serves(JoinRanks)
    def join(self, request: JoinRanks) -> EmptyMessage:
        """Be one of several processes that prepare and judge together."""
        self._group = RankGroup(request)
        return EmptyMessage()

    @serves(Ready)
    def peaks(self, request: Ready) -> DevicePeak:
        """Measure what a device reaches, for rooflines; whoever asks holds the device's lock."""
        try:
            return DevicePeak(peak_measurement.measure(request.device))
        except RuntimeError:
            return DevicePeak(None)

    @serves(ProfileRequest)
    def profile(self, request: ProfileRequest) -> PackProfile:
        """Measure a pack; traces that cannot be replayed are left out. Whoever asks holds the device's lock."""
        reader = open_pack(request.pack)
        for op in {trace.call.op for trace in reader.pack.traces}:
            _importable(request.import_root, op)
        return profiler.profile(reader, request.device, reader.pack.traces)[0]

    @serves(CaseRequest)
    def prepare(self, case_request: CaseRequest) -> tuple[PreparedCase, list[Buffer]]:
        """Make the inputs of a case."""
        prepared = self._preparation(case_request)
        drift = prepared.drift(case_request.tolerance, case_request.case.device)
        if drift:
            return PreparedCase(drift=drift, sets=()), []
        own_calls = _own_calls(case_request, prepared)
        sets, contents = [], []
        for each in prepared.sets:
            header, content = pack_layout(each.layout)
            contents.append(content)
            packed = PackedInputs(
                name=each.expected.name, call=each.call, tensors=header, outputs=each.outputs, context=each.context,
                mutated=each.mutated, probe=each.probe, large=each.large, op_calls=own_calls,
            )  # fmt: skip
            sets.append(packed)
        return PreparedCase(drift=None, sets=tuple(sets)), contents

    @serves(JudgeAnswers)
    def judge(self, request: JudgeAnswers, buffers: list[Buffer]) -> Judgement:
        """Compare a kernel's answers."""
        case_request, tolerance = request.case_request, request.case_request.tolerance
        case, observed = case_request.case, request.answers.observed
        prepared = self._preparation(case_request)
        builder, reference = prepared.builder, prepared.reference_set
        answers = ReceivedAnswers(request.answers, buffers, case.device)
        results = _probe_results(case_request)
        results.own_calls = _own_calls(case_request, prepared)
        results.own_memory = lambda name: prepared.memory_taken(name, case.device)
        core: list[diagnosis.Answered] = []
        probes: list[diagnosis.Answered] = []
        right: dict[str, str] = {}
        for input_set in prepared.sets:
            if input_set.probe == large_indices.NAME:
                continue  # see `judge_large`
            again = all(one.passed for one in core)
            checked, got = self._check(input_set, answers, results, again=again)
            checked_rows = [_with_row(check, input_set, builder.semantics) for check in checked]
            if prepared.ranked is not None:
                checked_rows = [prepared.ranked.explained(check, got) for check in checked_rows]
            answered = diagnosis.Answered(inputs=input_set, got=got, checks=checked_rows)
            (probes if input_set.probe else core).append(answered)
            if not input_set.probe and after_timing.NAME in results.wanted and core[-1].passed:
                right[input_set.expected.name] = answers.digest(input_set.expected.name)
        self._right = (_key(case_request), right, answers.judged_by)
        checks = (
            [check for answered in core for check in answered.checks]
            if prepared.gold_alone or prepared.ranked  # no mistake can be made on purpose here
            else diagnosis.explain(core, builder, tolerance)
        )
        if all(answered.passed for answered in core):
            for answered in probes:
                cause = None
                if not answered.passed and answered.inputs.probe in (sizes.NAME, arguments.NAME):
                    cause = diagnosis.explain_probe(answered, builder, tolerance, reference)
                results.add_answer(answered, cause, reference.expected)
            results.add_other_seed([*core, *probes])
            right_rows = [each for each in probes if each.inputs.rows and each.passed and each.checks]
            changed = results.add_rows([(each.inputs, each.got) for each in right_rows])
        else:
            changed = []
            why = "not run: the kernel has already failed"
            results.not_run |= {answered.inputs.probe: why for answered in probes if answered.checks}
        results.not_run.setdefault(
            large_indices.NAME, "not run: it has a process of its own, once the kernel is right"
        )
        results.not_run |= {**prepared.not_run, **dict.fromkeys(TIMED, case_request.untimed)}
        results.add_checks(checks)
        results.add_facts(observed)
        expected = {one.expected.name: one.expected for one in prepared.sets} | answers.judged_by
        if prepared.ranked is not None:
            prepared.ranked.add_to(results, answers.seconds(expected), core)
        else:
            for second in answers.seconds(expected):
                results.add_rerun(second)
        wrong = results.found.keys() & {each.inputs.probe for each in probes}
        tuned = autotuner.notes(request.answers.tuned) if wrong else ()
        correctness = Correctness(
            checks=tuple(checks),
            power=prepared.power(tolerance),
            notes=(*prepared.notes, *changed, *tuned, *on_stream.notes(observed.get(on_stream.NAME))),
            probes=results.probes(),
            tuned=request.answers.tuned,
            jit=request.answers.jit,
        )
        return Judgement(correctness, results.wrong_alone(probes))

    @serves(JudgeAnswers)
    def judge_large(self, request: JudgeAnswers, buffers: list[Buffer]) -> Judgement:
        """Judge a kernel's answers to the sets of `large_indices`, which come after all others, from another process."""
        prepared, tolerance = self._preparation(request.case_request), request.case_request.tolerance
        answers = ReceivedAnswers(request.answers, buffers, request.case_request.case.device)
        results = _probe_results(request.case_request)
        given = []
        for input_set in prepared.sets:
            if input_set.probe == large_indices.NAME and input_set.rows is not None:
                name = input_set.expected.name
                tensors = answers.tensors(name)
                count = input_set.rows.count
                got = own_rows(input_set, [as_real(tensor) for tensor in tensors[:count]])
                error = answers.first[name].error
                checks = () if error else compare(input_set.expected, got, tolerance)
                given.append(
                    large_indices.LargeAnswer(
                        inputs=input_set,
                        error=error,
                        failed=next((check for check in checks if not check.passed), None),
                        got=got,
                        places=tensors[count] if len(tensors) > count else None,
                    )
                )
        wrong, told = large_indices.judge(given)
        for message in wrong:
            results.trip(large_indices.NAME, message)
        left_out = "; ".join(told)
        if not wrong and not any(each.right and each.inputs.rows.base for each in given if each.inputs.rows):
            results.not_run[large_indices.NAME], left_out = f"left out {left_out}", ""
        probes = tuple(probe for probe in results.probes() if probe.name == large_indices.NAME)
        notes = (f"probe {large_indices.NAME} left out {left_out}",) if left_out else ()
        return Judgement(Correctness(checks=(), power=(), notes=notes, probes=probes))

    @serves(JudgeAnswers)
    def first_failure(self, request: JudgeAnswers, buffers: list[Buffer]) -> FirstFailure:
        """Compare a kernel's further answers to some sets; what was prepared is not made again."""
        case_request = request.case_request
        prepared = self._preparation(case_request)
        answers = ReceivedAnswers(request.answers, buffers, case_request.case.device)
        unwanted = replace(_probe_results(case_request), wanted=())
        for input_set in prepared.sets:
            if input_set.probe and input_set.expected.name not in answers.first:
                continue
            for check in self._check(input_set, answers, unwanted)[0]:
                if not check.passed:
                    return FirstFailure(check)
        return FirstFailure(None)

    @serves(CompareAnswers)
    def drift(self, request: CompareAnswers, buffers: list[Buffer]) -> Drift:
        """How far answers to the same sets lie from each other."""
        count = len(request.first.sets)
        answers = zip(request.second.sets, buffers[count:], strict=True)
        second = {one.name: (one, buffer) for one, buffer in answers}  # each run has an order of its own
        elements = differing = 0
        greatest = 0.0
        for ours, buffer in zip(request.first.sets, buffers[:count], strict=True):
            theirs, other = second[ours.name]
            pair = unpack(ours.tensors, buffer, "cpu"), unpack(theirs.tensors, other, "cpu")
            for one, another in zip(*pair, strict=True):
                distance = _distance(as_real(one), as_real(another))
                elements += distance.numel()
                differing += int(distance.count_nonzero())
                greatest = max(greatest, float(distance.max()) if len(distance) else 0.0)
        return Drift(elements=elements, differing=differing, greatest=greatest)

    @serves(JudgeTiming)
    def judge_timed(self, request: JudgeTiming, buffers: list[Buffer]) -> TimingJudgement:
        """Judge what was seen of a kernel while it was timed.

        `integrity` and `snooping` are among the probes if they tripped: timing has a process of its own, in which the
        timer can be replaced and its samples can be reached.

        Raises:
            ProtocolError: if it is not what our own service would tell.
        """
        case_request = request.case_request
        prepared = self._preparation(case_request)
        results = _probe_results(case_request)
        of, digests, judged_by = self._right
        is_same = of == _key(case_request)
        right = dict(digests) if is_same else {}
        expected = {input_set.expected.name: input_set.expected for input_set in prepared.core}
        expected |= judged_by if is_same else {}
        try:
            judge_timed_answers(request.timing.answers, buffers, expected, results, right)
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"what was told of a timing is malformed: {error}") from error
        known = TIMED | {integrity.NAME, snooping.NAME, recompiles.NAME}
        results.add_facts({key: facts for key, facts in request.timing.observed.items() if key in known})
        device = case_request.case.device
        floor = _floor_ns_per_call(prepared, device, cold=request.cold, launch_ns=request.launch_ns)
        if not floor:
            results.not_run[physical_floor.NAME] = (
                "no lower bound on time is known: the op returns no new memory"
            )
        results.trip(physical_floor.NAME, physical_floor.judge(request.median_ns_per_call, floor))
        probes = (probe for probe in results.probes() if probe.name in TIMED or probe.outcome == "tripped")
        return TimingJudgement(tuple(probes), floor)

    def _check(
        self, input_set: InputSet, answers: ReceivedAnswers, results: ProbeResults, *, again: bool = True
    ) -> tuple[tuple[Check, ...], list[torch.Tensor]]:
        """The checks of one set of inputs, and the answer as far as it could be compared.

        There are none for a probe's set on which the kernel failed. `again` looks at answers a second time.
        """
        expected = input_set.expected
        first = answers.first.get(expected.name)
        if first is None:
            return (failed_form(expected.name, Reason.OUTPUT_COUNT, "the kernel gave no answer"),), []
        if input_set.probe and first.error:
            results.add_error(input_set, first.error)
            return (), []
        results.add_conduct(first, expected.name, list(expected.arguments))
        for index, device in enumerate(first.devices):
            if device != torch_device(answers.device):
                problem = f"output {index} is on {device}, expected is {answers.device}"
                return (failed_form(expected.name, Reason.DEVICE, problem),), []
        got = answers.tensors(expected.name)
        for output in expected.outputs[: len(got)]:
            tensor = got[min(output.index, len(got) - 1)]
            if tensor.is_complex() != output.complex:  # afterwards both are pairs of real numbers
                names = {True: "complex", False: "real"}
                problem = f"output {output.index} is {names[tensor.is_complex()]}, expected is {names[output.complex]}"
                return (failed_form(expected.name, Reason.DTYPE, problem),), []
        real = own_rows(input_set, [as_real(tensor) for tensor in got])
        if input_set.probe in (layouts.NAME, arguments.NAME):
            # How answers lie to inputs that lie elsewhere, or along another axis, is the kernel's choice.
            real = [tensor.contiguous() for tensor in real]
        checks = compare(expected, real, results.tolerance)
        # The op waits for all ranks, and this one alone would look again.
        wider = second_look.widened(input_set, checks) if again and not self._group else None
        if wider is not None:
            checks = compare(wider, real, results.tolerance)
            answers.judged_by[expected.name] = wider
        return checks, real

    @serves(AskOutputs)
    def output_metas(self, request: AskOutputs, buffers: list[Buffer]) -> OutputMetas:
        """Layouts of what torch returns for a call; the buffer holds its tensors."""
        _importable(request.import_root, request.call.op)
        tensors = unpack(request.tensors, buffers[0], request.device)
        outputs = answer(request.call, lay_out(tensors), request.context, request.device)
        return OutputMetas(tuple(dense_meta(output, index) for index, output in enumerate(outputs)))

    def _preparation(self, case_request: CaseRequest) -> Preparation:
        case, options = case_request.case, case_request.options
        key = (case.pack_path, case.trace_id, case.device, case_request.seed, options)
        if key not in self._prepared:
            _importable(case_request.import_root, case_request.reference or case.op)
            preparation = self._prepared[key] = self._prepare(case, case_request.seed, options)
            self._held += preparation.nbytes
            # The case that comes next is prepared before this one is judged, unless on a GPU, whose memory is dear.
            keep = 2 if case.device == "cpu" else 1
            while len(self._prepared) > keep and self._held > CACHE_BYTES:
                _, oldest = self._prepared.popitem(last=False)
                self._held -= oldest.nbytes
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
        calls = (other.call for other in opened.traces.values() if other is not trace)
        others = [call for call in calls if call.op == trace.call.op]
        if options.ranks.count > 1 and self._group is None:
            raise ConfigError(
                f"{case.op} is called by {counted(options.ranks.count, 'rank')}, and this command starts one process",
                remedy="gate it with pytest --cgins; leave it out here",
            )
        if self._group is not None:
            return rank_inputs.prepare(trace, opened.reader, case.device, seed, options, self._group)
        return prepare(trace, opened.reader, case.device, seed, options, others)


def _distance(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """|first − second| over the greatest magnitude of the first, flat; infinite where only one is finite."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return torch.full((max(first.numel(), second.numel()),), torch.inf)
    wide = first.reshape(-1).to(torch.float64)
    finite = wide[wide.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return distances(wide, second.reshape(-1)) / (scale or 1.0)


@dataclass(frozen=True, slots=True)
class _OpenPack:
    """A pack that was validated, and the state of the manifest that was."""

    stamp: tuple[int, int]
    reader: PackReader
    traces: dict[str, Trace]


def _own_calls(case_request: CaseRequest, prepared: Preparation) -> dict[str, int]:
    """What torch's own op runs, if a probe wants to know."""
    return prepared.op_calls(case_request.case.device) if op_callback.NAME in case_request.probes else {}


def _importable(import_root: str, op: str) -> None:
    """Let the op be imported: the user named it in cgins.yaml, beside which its module lies."""
    import_from(import_root)
    trust(op)


def _with_row(check: Check, input_set: InputSet, semantics: Semantics) -> Check:
    """A failed check with what the inputs are like where it failed most."""
    if check.passed or check.worst is None:
        return check
    shape = next(one.shape for one in input_set.expected.outputs if one.index == check.worst.output)
    tensors = input_set.tensors()
    row = inputs.row_at(semantics, input_set.call, tensors, shape, check.worst.index)
    words, arrow, remedy = check.message.partition("\n→")
    return replace(check, message=f"{words} {row}{arrow}{remedy}") if row else check


def _key(case_request: CaseRequest) -> tuple[Case, Tolerance, int]:
    """What digests of right answers belong to."""
    return case_request.case, case_request.tolerance, case_request.seed


def _probe_results(case_request: CaseRequest) -> ProbeResults:
    """None yet, of a kernel that may do what its entry in cgins.yaml says."""
    return ProbeResults(
        case_request.probes,
        case_request.tolerance,
        exceptions=case_request.exceptions,
        repeatability=case_request.repeatability,
        claims=case_request.claims,
    )


def _floor_ns_per_call(prepared: Preparation, device: str, *, cold: bool, launch_ns: float) -> float:
    """See `verify.probes.physical_floor`; 0 where it cannot be known whether outputs are memory of their own."""
    first, gold = prepared.sets[0], prepared.trace.gold
    if gold is None:
        return 0.0
    shared = {number for number, _ in gold.aliases}
    numbered = zip(first.outputs, gold_order(gold), strict=False)
    outputs = [meta for meta, number in numbered if number not in shared]
    least = least_work.least(prepared.call, first.layout.metas, outputs)
    if prepared.context.autocast:
        least = replace(least, dtype="bfloat16")
    changed = any(first.layout.metas[index].numel for index in first.mutated)
    # An argument that is only partly read, such as a table, makes a copy larger than what a call moves.
    touched = sum(span.numel() for span in first.layout.spans) + sum(meta.nbytes for meta in first.outputs)
    limits = timed_device(device).peaks()
    if limits is None:
        return 0.0
    return physical_floor.floor_ns_per_call(
        least,
        limits,
        cold=cold and least.nbytes >= 0.95 * touched,
        launch_ns=launch_ns if changed or least.nbytes else 0.0,
    )
