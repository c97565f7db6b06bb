"""The service of the trusted reference worker: prepares cases, and judges kernels' answers to them.

It alone sees gold, torch's answers and the references; the worker that runs kernels gets inputs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.config import ProbeException, Repeatability, Tolerance
from pytest_cgins.errors import ProtocolError, TraceError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.tensors import pack, unpack
from pytest_cgins.kernels.imports import import_from
from pytest_cgins.model import Case, Check, Context, Correctness, OpCall, Reason, Trace
from pytest_cgins.probes.registry import ALWAYS
from pytest_cgins.timing.environment import describe
from pytest_cgins.trace.layout import lay_out, rebuild
from pytest_cgins.trace.ops import trust
from pytest_cgins.trace.store import MANIFEST, PackReader, open_pack
from pytest_cgins.verify import form
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.prepare import Preparation, dense_meta, prepare
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.suspicion import Permissions, Second, Suspicions

CACHE_BYTES = 1 << 30
"""Memory for preparations that further implementations of the same trace may need; at least one is kept."""


class JudgeService:
    """Methods take JSON and buffers, and return JSON and buffers; see each for its keys."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._cache_bytes = int(settings.get("cache_bytes", CACHE_BYTES))
        self._prepared: OrderedDict[tuple[str, str, str, int], Preparation] = OrderedDict()
        self._held = 0  # bytes of all that is prepared
        self._packs: dict[str, _OpenPack] = {}

    def describe(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Which devices there are: `{"environments": {"cpu": …, "cuda": …}, "devices": ["cpu", "cuda:0"]}`."""
        del params, buffers
        devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        environments = {
            device.partition(":")[0]: documents.dump_python(describe(device)) for device in devices[:2]
        }
        return {"environments": environments, "devices": devices}, []

    def prepare(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Make the inputs of a case.

        Args:
            params: `case`, `tolerance` (`kind`, `rtol`, `atol`), `seed`, `import_root`.
            buffers: none.

        Returns:
            `{"drift": null or text, "sets": [{"name", "call", "tensors", "outputs", "context", "mutated"}, …]}`
            and one buffer a set. There are no sets if there is drift.
        """
        del buffers
        case, tolerance, prepared = self._preparation(params)
        drift = prepared.drift(tolerance, case.device)
        if drift:
            return {"drift": drift, "sets": []}, []
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
                }
            )
        return {"drift": None, "sets": sets}, contents

    def judge(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Compare a kernel's answers.

        Args:
            params: those of `prepare`; `sets`, `deviations` and `observed` as the verification worker gave them,
                the last two if there were probes; `probes`, names of those that are switched on; `exceptions`
                (ProbeExceptions) and `repeatability` of the kernel.
            buffers: one a set and a deviation.

        Returns:
            `{"correctness": Correctness}`. A set without an answer is a failed check.
        """
        case, tolerance, prepared = self._preparation(params)
        answers = _Answers(params, buffers, case.device)
        suspicions = Suspicions(params.get("probes", ALWAYS), _permissions(params), tolerance)
        checks: list[Check] = []
        for made in prepared.sets:
            checked = self._check(made.expected, answers, tolerance, suspicions, probe=made.probe)
            if made.probe:
                suspicions.take_probing(made.probe, checked)
            else:
                checks += checked
        suspicions.take_checks(checks)
        suspicions.take_facts(params.get("observed", {}))
        expected = {made.expected.name: made.expected for made in prepared.sets}
        for second in answers.seconds(expected):
            suspicions.take_second(second)
        correctness = Correctness(
            checks=tuple(checks),
            power=prepared.power(tolerance),
            notes=prepared.notes,
            probes=suspicions.probes(),
        )
        return {"correctness": documents.dump_python(correctness)}, []

    def _check(
        self,
        expected: ExpectedSet,
        answers: _Answers,
        tolerance: Tolerance,
        suspicions: Suspicions,
        *,
        probe: str,
    ) -> tuple[Check, ...]:
        """The checks of one set of inputs; none for a probe's set that the kernel refuses."""
        entry = answers.entries.get(expected.name)
        if entry is None:
            return (form.failed(expected.name, Reason.OUTPUT_COUNT, "the kernel gave no answer"),)
        if probe and entry["error"] and entry["error"]["phase"] == "died":
            suspicions.trip(probe, f"on inputs of {expected.name}: {entry['error']['message']}")
            return ()
        if probe and entry["error"]:
            suspicions.not_run.setdefault(
                probe, f"the kernel refuses {expected.name}: {entry['error']['message']}"
            )
            return ()
        suspicions.take_conduct(entry, expected.name, list(expected.arguments))
        elsewhere = _elsewhere(entry, answers.device)
        if elsewhere is not None:
            return (elsewhere,)
        got = answers.tensors(expected.name)
        misnamed = _complexity(expected, got)
        if misnamed is not None:
            return (misnamed,)
        return compare(expected, [as_real(tensor) for tensor in got], tolerance)

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
        key = (case.pack_path, case.trace_id, case.device, seed)
        if key not in self._prepared:
            _importable(params.get("import_root", ""), case.op)
            made = self._prepared[key] = self._prepare(case, seed)
            self._held += made.nbytes
            self._evict()
        self._prepared.move_to_end(key)
        return case, tolerance, self._prepared[key]

    def _prepare(self, case: Case, seed: int) -> Preparation:
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
        return prepare(opened.traces[case.trace_id], opened.reader, case.device, seed)

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


def _importable(import_root: str, op: str) -> None:
    """Let the op be imported: the user named it in cgins.yaml, beside which its module lies."""
    import_from(import_root)
    trust(op)


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


def _permissions(params: dict[str, Any]) -> Permissions:
    return Permissions(
        exceptions=tuple(ProbeException(**one) for one in params.get("exceptions", ())),
        repeatability=Repeatability(**params.get("repeatability", {})),
    )


class _Answers:
    """What the verification worker gave: an answer a set, and those that deviate from it."""

    def __init__(self, params: dict[str, Any], buffers: list[Buffer], device: str) -> None:
        self.device = device
        sets, deviations = params["sets"], params.get("deviations", [])
        if len(sets) + len(deviations) != len(buffers):
            raise ProtocolError(
                f"{len(sets)} answers and {len(deviations)} deviations came with {len(buffers)} buffers"
            )
        self.entries: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in sets}
        self._buffers = {entry["name"]: buffer for entry, buffer in zip(sets, buffers, strict=False)}
        self._deviations = list(zip(deviations, buffers[len(sets) :], strict=True))

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The first answer to a set."""
        return unpack(self.entries[name]["tensors"], self._buffers[name], self.device)

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
            )
