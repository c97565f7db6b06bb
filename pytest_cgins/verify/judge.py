"""The service of the trusted reference worker: prepares cases, and judges kernels' answers to them.

It alone sees gold, torch's answers and the references; the worker that runs kernels gets inputs.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.config import ProbeException, Repeatability, Tolerance
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError, TraceError
from pytest_cgins.core.keep_running import PARENT, keep_running
from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.model import Case, Check, Context, Correctness, OpCall, Reason, Trace
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.text import counted
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import MANIFEST, PackReader, open_pack
from pytest_cgins.timing import peak_measurement
from pytest_cgins.timing.environment import describe, device_key
from pytest_cgins.verify import arguments, diagnosis, form, inputs, layouts, probing, sizes, timed
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.maker import InputSet, dense_meta
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.prepare_options import PrepareOptions, prepare_options_of
from pytest_cgins.verify.probes import after_timing, on_stream, op_callback
from pytest_cgins.verify.probes.registry import ALWAYS, TIMED
from pytest_cgins.verify.reference import answer, memory_taken
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.suspicion import Permissions, Second, Suspicions

CACHE_BYTES = 1 << 30
"""Memory for preparations that further implementations of the same trace may need; at least one is kept."""


class JudgeService:
    """Methods take JSON and buffers, and return JSON and buffers; see each for its keys."""

    def __init__(self, settings: dict[str, Any]) -> None:
        if settings.get(PARENT):
            keep_running(int(settings[PARENT]))
        self._cache_bytes = int(settings.get("cache_bytes", CACHE_BYTES))
        self._prepared: OrderedDict[tuple[str, str, str, int, PrepareOptions], Preparation] = OrderedDict()
        self._held = 0  # bytes of all that is prepared
        self._packs: dict[str, _OpenPack] = {}
        self._right: tuple[str, dict[str, str]] = ("", {})

    def describe(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Which devices there are: `{"environments": {"cpu": …}, "devices": ["cpu"], "locks": {"cpu": "cpu"}}`.

        `locks` has each device's name for `timing.lock`.
        """
        del params, buffers
        devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        environments = {
            device.partition(":")[0]: documents.dump_python(describe(device)) for device in devices[:2]
        }
        locks = {device: device_key(device) for device in devices}
        return {"environments": environments, "devices": devices, "locks": locks}, []

    def peaks(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Measure what a device reaches, for rooflines; whoever asks holds the device's lock.

        Args:
            params: `device`.
            buffers: none.

        Returns:
            `{"peaks": MeasuredPeaks}`; null where even a copy fails, for want of memory.
        """
        del buffers
        try:
            measured = peak_measurement.measure(params["device"])
        except RuntimeError:
            return {"peaks": None}, []
        return {"peaks": documents.dump_python(measured)}, []

    def prepare(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Make the inputs of a case.

        Args:
            params: `case`, `tolerance` (`kind`, `rtol`, `atol`), `seed`, `import_root`; if wanted `probes`, names of
                those that are switched on, `claims`, `semantics`, `allow_tf32` and `interpreted` of the kernel.
            buffers: none.

        Returns:
            `{"drift": null or text, "sets": [{"name", "call", "tensors", "outputs", "context", "mutated", "op_calls"}, …]}`
            and one buffer a set. There are no sets if there is drift.
        """
        del buffers
        case, tolerance, prepared = self._preparation(params)
        drift = prepared.drift(tolerance, case.device)
        if drift:
            return {"drift": drift, "sets": []}, []
        own_calls = _own_calls(params, prepared, case)
        sets, contents = [], []
        for made in prepared.sets:
            header, content = pack(rebuild(made.layout.metas, made.layout.spans, "cpu"))
            contents.append(content)
            sets.append(
                {
                    "name": made.expected.name,
                    "call": documents.dump_python(made.call),
                    "tensors": header,
                    "outputs": [documents.dump_python(meta) for meta in made.outputs],
                    "context": documents.dump_python(made.context),
                    "mutated": list(made.mutated),
                    "probe": made.probe,
                    "op_calls": own_calls,
                }
            )
        return {"drift": None, "sets": sets}, contents

    def judge(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Compare a kernel's answers.

        Args:
            params: those of `prepare`; `sets`, `deviations` and `observed` as the verification worker gave them,
                the last two if there were probes; `probes`, names of those that are switched on; `exceptions`
                (ProbeExceptions) and `repeatability` of the kernel; if wanted `untimed`, why it will not be timed.
            buffers: one a set and a deviation.

        Returns:
            `{"correctness": Correctness}`. A set without an answer is a failed check.
        """
        case, tolerance, prepared = self._preparation(params)
        answers = _Answers(params, buffers, case.device)
        suspicions = Suspicions(params.get("probes", ALWAYS), _permissions(params), tolerance)
        suspicions.own_calls = _own_calls(params, prepared, case)
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
        self._right = (_case_of(params), right)
        checks = diagnosis.explain(core, prepared.maker, prepared.semantics, tolerance)
        if all(one.passed for one in core):
            _take_probes(probes, prepared, suspicions, tolerance)
        else:
            why = "the kernel is wrong on the inputs that decide: it cannot be told what only this would show"
            suspicions.not_run |= {one.made.probe: why for one in probes if one.checks}
        suspicions.not_run |= prepared.not_run
        suspicions.not_run |= dict.fromkeys(TIMED, params.get("untimed", "the kernel was not timed"))
        suspicions.take_checks(checks)
        suspicions.take_facts(params.get("observed", {}))
        expected = {made.expected.name: made.expected for made in prepared.sets}
        for second in answers.seconds(expected):
            suspicions.take_second(second)
        correctness = Correctness(
            checks=tuple(checks),
            power=prepared.power(tolerance),
            notes=(*prepared.notes, *on_stream.notes(params.get("observed", {}).get(on_stream.NAME))),
            probes=suspicions.probes(),
        )
        return {"correctness": documents.dump_python(correctness)}, []

    def first_failure(
        self, params: dict[str, Any], buffers: list[Buffer]
    ) -> tuple[dict[str, Any], list[Buffer]]:
        """Compare a kernel's further answers to the sets that decide.

        Args:
            params: those of `prepare`, as they were: what was prepared is not made again; `sets` as the verification
                worker gave them.
            buffers: one a set.

        Returns:
            `{"check": Check}`, the first that failed; null if none did.
        """
        case, tolerance, prepared = self._preparation(params)
        answers = _Answers(params, buffers, case.device)
        unwanted = Suspicions((), _permissions(params), tolerance)
        checks = (one for made in prepared.core for one in self._check(made, answers, tolerance, unwanted)[0])
        failed = next((one for one in checks if not one.passed), None)
        return {"check": None if failed is None else documents.dump_python(failed)}, []

    def judge_timed(
        self, params: dict[str, Any], buffers: list[Buffer]
    ) -> tuple[dict[str, Any], list[Buffer]]:
        """Judge what was seen of a kernel while it was timed.

        Args:
            params: those of `judge`, without `sets` and `deviations`; `measurement`, `answers` and `observed` as the
                timing worker gave them, the answers under the names of their sets.
            buffers: one an answer.

        Returns:
            `{"probes": [Probe, …], "floor_ns_per_call": nanoseconds}`: results of the probes of timing; 0 where no
            floor is known.
        """
        _, tolerance, prepared = self._preparation(params)
        suspicions = Suspicions(params["probes"], _permissions(params), tolerance)
        of, digests = self._right
        right = digests if of == _case_of(params) else {}
        probes, floor = timed.judge(params, buffers, prepared, suspicions, right)
        return {"probes": [documents.dump_python(one) for one in probes], "floor_ns_per_call": floor}, []

    def _check(
        self, made: InputSet, answers: _Answers, tolerance: Tolerance, suspicions: Suspicions
    ) -> tuple[tuple[Check, ...], list[torch.Tensor]]:
        """The checks of one set of inputs, and the answer as far as it could be compared.

        There are none for a probe's set on which the kernel failed.
        """
        expected = made.expected
        entry = answers.entries.get(expected.name)
        if entry is None:
            return (form.failed(expected.name, Reason.OUTPUT_COUNT, "the kernel gave no answer"),), []
        if made.probe and entry["error"]:
            probing.take_error(made, entry["error"], suspicions)
            return (), []
        suspicions.take_conduct(entry, expected.name, list(expected.arguments))
        elsewhere = _elsewhere(entry, answers.device)
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

    def output_metas(
        self, params: dict[str, Any], buffers: list[Buffer]
    ) -> tuple[dict[str, Any], list[Buffer]]:
        """Layouts of what torch returns for a call.

        Args:
            params: `call`, `tensors`, and optionally `context`, `device`, `import_root`.
            buffers: the tensors.

        Returns:
            `{"outputs": [TensorMeta, …]}`
        """
        call = documents.load_python(OpCall, params["call"])
        _importable(params.get("import_root", ""), call.op)
        context = documents.load_python(Context, params["context"]) if "context" in params else Context()
        device = params.get("device", "cpu")
        tensors = unpack(params["tensors"], buffers[0], device)
        outputs = answer(call, lay_out(tensors), context, device)
        metas = [dense_meta(output, index) for index, output in enumerate(outputs)]
        return {"outputs": [documents.dump_python(meta) for meta in metas]}, []

    def _preparation(self, params: dict[str, Any]) -> tuple[Case, Tolerance, Preparation]:
        case = documents.load_python(Case, params["case"])
        tolerance, seed = Tolerance(**params["tolerance"]), int(params["seed"])
        options = prepare_options_of(params, params.get("probes", ALWAYS))
        key = (case.pack_path, case.trace_id, case.device, seed, options)
        if key not in self._prepared:
            _importable(params.get("import_root", ""), case.op)
            made = self._prepared[key] = self._prepare(case, seed, options)
            self._held += made.nbytes
            self._evict()
        self._prepared.move_to_end(key)
        return case, tolerance, self._prepared[key]

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

    def _evict(self) -> None:
        """Forget what was used longest ago until the rest fits; the newest always stays."""
        while len(self._prepared) > 1 and self._held > self._cache_bytes:
            _, oldest = self._prepared.popitem(last=False)
            self._held -= oldest.nbytes


@dataclass(frozen=True, slots=True)
class _OpenPack:
    """A pack that was validated, and the state of the manifest that was."""

    stamp: tuple[int, int]
    reader: PackReader
    traces: dict[str, Trace]


def _own_calls(params: dict[str, Any], prepared: Preparation, case: Case) -> dict[str, int]:
    """What torch's own op runs, if a probe wants to know."""
    return prepared.op_calls(case.device) if op_callback.NAME in params.get("probes", ()) else {}


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
    for one in probes:
        found = None
        if not one.passed and one.made.probe in (sizes.NAME, arguments.NAME):
            found = diagnosis.explain_probe(one, prepared.maker, prepared.semantics, tolerance)
        half = prepared.base.expected
        probing.take_checks(one, suspicions, found, half=half, tolerance=tolerance)


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
            return form.failed(expected.name, Reason.DTYPE, what)
    return None


def _elsewhere(entry: dict[str, Any], device: str) -> Check | None:
    """Whether an output is on another device than the case's."""
    for index, place in enumerate(entry.get("devices", [])):
        if place != device:
            what = f"output {index} is on {place}, expected is {device}"
            return form.failed(entry["name"], Reason.DEVICE, what)
    return None


def _case_of(params: dict[str, Any]) -> str:
    """What digests of right answers belong to."""
    return json.dumps([params[key] for key in ("case", "tolerance", "seed")], sort_keys=True)


def _permissions(params: dict[str, Any]) -> Permissions:
    return Permissions(
        exceptions=tuple(ProbeException(**one) for one in params.get("exceptions", ())),
        repeatability=Repeatability(**params.get("repeatability", {})),
        claims=tuple(params.get("claims", ())),
    )


class _Answers:
    """What the verification worker gave: an answer a set, and those that deviate from it."""

    def __init__(self, params: dict[str, Any], buffers: list[Buffer], device: str) -> None:
        self.device = device
        sets, deviations = params["sets"], params.get("deviations", [])
        if len(sets) + len(deviations) != len(buffers):
            raise ProtocolError(
                f"{counted(len(sets), 'answer')} and {counted(len(deviations), 'deviation')} came with {counted(len(buffers), 'buffer')}"
            )
        self.entries: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in sets}
        self._buffers = {entry["name"]: buffer for entry, buffer in zip(sets, buffers, strict=False)}
        self._deviations = list(zip(deviations, buffers[len(sets) :], strict=True))

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The first answer to a set."""
        return unpack(self.entries[name]["tensors"], self._buffers[name], self.device)

    def digest(self, name: str) -> str:
        """Of the first answer to a set."""
        return timed.digest(self.entries[name]["tensors"], self._buffers[name])

    def seconds(self, expected: dict[str, ExpectedSet]) -> Iterator[Second]:
        """The deviations."""
        for entry, buffer in self._deviations:
            name = entry["name"]
            error = entry.get("error") or {}
            yield Second(
                probe=entry["probe"],
                expected=expected[name],
                first=self.tensors(name) if name in self.entries else (),
                given=unpack(entry["tensors"], buffer, self.device),
                error=str(error.get("message", "")),
                reused=bool(entry.get("reused")),
            )
