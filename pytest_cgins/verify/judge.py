"""The service of the trusted reference worker: prepares cases, and judges kernels' answers to them.

It alone sees gold, torch's answers and the references; the worker that runs kernels gets inputs.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.config import Tolerance
from pytest_cgins.errors import TraceError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.tensors import pack, unpack
from pytest_cgins.model import Case, Check, Context, Correctness, OpCall, Reason, Trace
from pytest_cgins.timing.environment import describe
from pytest_cgins.trace.layout import lay_out, rebuild
from pytest_cgins.trace.ops import trust
from pytest_cgins.trace.store import MANIFEST, PackReader, open_pack
from pytest_cgins.verify import form
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.prepare import Preparation, dense_meta, prepare
from pytest_cgins.verify.reference import answer

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
                    "call": documents.dump_python(prepared.call),
                    "tensors": header,
                    "outputs": [documents.dump_python(meta) for meta in made.outputs],
                    "context": documents.dump_python(prepared.context),
                    "mutated": list(made.mutated),
                }
            )
        return {"drift": None, "sets": sets}, contents

    def judge(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Compare a kernel's answers.

        Args:
            params: those of `prepare`, and `sets` as the verification worker gave them: `name`, `tensors`,
                and, where it says so, `devices` and `inputs_changed`.
            buffers: one a set.

        Returns:
            `{"correctness": Correctness}`. A set without an answer is a failed check.
        """
        case, tolerance, prepared = self._preparation(params)
        answered = {
            entry["name"]: (entry, buffer) for entry, buffer in zip(params["sets"], buffers, strict=True)
        }
        checks: list[Check] = []
        for made in prepared.sets:
            if made.expected.name not in answered:
                checks.append(
                    form.failed(made.expected.name, Reason.OUTPUT_COUNT, "the kernel gave no answer")
                )
                continue
            entry, buffer = answered[made.expected.name]
            conduct = _conduct(entry, case.device, list(made.expected.arguments))
            if conduct is not None:
                checks.append(conduct)
                continue
            got = unpack(entry["tensors"], buffer, case.device)
            misnamed = _complexity(made.expected, got)
            if misnamed is not None:
                checks.append(misnamed)
                continue
            checks += compare(made.expected, [as_real(tensor) for tensor in got], tolerance)
        correctness = Correctness(checks=tuple(checks), power=prepared.power(tolerance), notes=prepared.notes)
        return {"correctness": documents.dump_python(correctness)}, []

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
    if import_root and import_root not in sys.path:
        sys.path.insert(0, import_root)
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


def _conduct(entry: dict[str, Any], device: str, names: list[str]) -> Check | None:
    """Where the outputs are, and whether inputs were changed, as the verification worker saw it."""
    for index, place in enumerate(entry.get("devices", [])):
        if place != device:
            what = f"output {index} is on {place}, expected is {device}"
            return form.failed(entry["name"], Reason.DEVICE, what)
    if entry.get("overrun"):
        what = f"the kernel wrote outside of its memory: {entry['overrun']}"
        return form.failed(entry["name"], Reason.OUT_OF_BOUNDS, what)
    changed = entry.get("inputs_changed", [])
    if changed:
        what = f"the kernel changed input tensors {changed} (of {', '.join(names)}), which the op leaves as they are"
        return form.failed(entry["name"], Reason.INPUT_CHANGED, what)
    return None
