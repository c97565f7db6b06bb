"""The numbers behind C and c of the derived rule: how far right and wrong kernels are, in torch's own units."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from pytest_cgins.building.build import build
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import WorkerError
from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import open_pack
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.tolerance import against_reference, assess, peak, rms
from tests.planted.project import source

CANDIDATES = {
    "float32": ((16, 32, 64, 128), (8, 16, 32, 64)),
    "float16": ((16, 32, 64, 128), (1.3, 2, 4, 8)),
    "bfloat16": ((8, 16, 32), (1.1, 1.3, 1.5, 2.0)),
}


@dataclass(frozen=True)
class Sample:
    """One output of a kernel on one set of inputs of one trace."""

    kernel: str
    dtype: str
    trace: str
    inputs: str
    elements: int
    peak: float
    """max z / max(1, max z_t); infinite where the form was wrong."""
    rms: float
    """rms z / rms z_t."""
    single: float
    """max(1, max z_t) / √n / rms z_t: what one element at max z = max(1, max z_t) makes of `rms`."""


def samples(evaluator: Evaluator, seed: int, device: str, cache: Path) -> list[Sample]:
    """Run every case of the evaluator's configuration once more, and keep z instead of a verdict."""
    pool, prepared = WorkerPool(), dict[str, Preparation]()
    taken: list[Sample] = []
    sys.path.insert(0, str(evaluator.config.root))
    try:
        for case in evaluator.cases():
            if case.trace_id not in prepared:
                reader = open_pack(case.pack_path)
                trace = next(trace for trace in reader.pack.traces if trace.id == case.trace_id)
                trust(case.op)
                prepared[case.trace_id] = prepare(trace, reader, case.device, seed)
            compiled = build(source(evaluator.config, case.kernel, case.implementation, device), cache=cache)
            taken += _of_case(pool, case, prepared[case.trace_id], compiled)
    finally:
        sys.path.remove(str(evaluator.config.root))
        pool.close()
    return taken


def _of_case(
    pool: WorkerPool, case: Case, prepared: Preparation, compiled: CompiledKernel
) -> Iterator[Sample]:
    sets, buffers = [], []
    for made in prepared.sets:
        header, buffer = pack(rebuild(made.layout.metas, made.layout.spans, "cpu"))
        buffers.append(buffer)
        sets.append(
            {
                "name": made.expected.name,
                "call": documents.dump_python(prepared.call),
                "tensors": header,
                "outputs": [documents.dump_python(meta) for meta in made.outputs],
                "context": documents.dump_python(prepared.context),
            }
        )
    request = {"kernel": documents.dump_python(compiled), "device": case.device, "sets": sets}
    try:
        reply = pool.call("verification", "run", request, buffers, timeout_s=60.0)
    except WorkerError:
        return
    for made, answer, buffer in zip(prepared.sets, reply.result["sets"], reply.buffers, strict=True):
        if answer["error"]:
            continue
        for output, got in zip(
            made.expected.outputs, unpack(answer["tensors"], buffer, case.device), strict=True
        ):
            if output.scale is not None and got.shape == output.shape:
                yield _of_output(case, made.expected.name, output, got.reshape(-1))


def _of_output(case: Case, inputs: str, output: ExpectedOutput, values: torch.Tensor) -> Sample:
    scale = output.scale
    assert scale is not None
    assessed = assess(values, against_reference(scale))
    regular = bool(values.isfinite().all()) or not bool(output.answer.isfinite().all())
    return Sample(
        kernel=case.kernel,
        dtype=case.dtype,
        trace=case.signature,
        inputs=inputs,
        elements=values.numel(),
        peak=peak(assessed.z) if regular else float("inf"),
        rms=rms(assessed.z) / scale.rms,
        single=1 / values.numel() ** 0.5 / scale.rms,
    )


def table(taken: list[Sample], bugs: set[str]) -> str:
    """For each dtype and choice of C and c: legitimate samples refused, and bugs that no sample shows."""
    lines = ["| dtype | C | c | legitimate refused | bugs missed |", "|---|---|---|---|---|"]
    for dtype in dict.fromkeys(sample.dtype for sample in taken):
        mine = [sample for sample in taken if sample.dtype == dtype]
        right = [sample for sample in mine if sample.kernel not in bugs]
        peaks, roots = CANDIDATES[dtype]
        for most in peaks:
            for root in roots:
                refused = sum(not _passes(sample, most, root) for sample in right)
                shown = {s.kernel for s in mine if s.kernel in bugs and not _passes(s, most, root)}
                missed = sorted({s.kernel for s in mine if s.kernel in bugs} - shown)
                lines.append(
                    f"| {dtype} | {most} | {root} | {refused} of {len(right)} | {len(missed)} {' '.join(missed)} |"
                )
        worst = sorted(right, key=lambda sample: sample.rms, reverse=True)[:3]
        lines += [
            f"| {dtype} | rms {s.rms:.3g} | peak {s.peak:.3g} | {s.kernel} | {s.inputs} |" for s in worst
        ]
    return "\n".join(lines)


def _passes(sample: Sample, most: float, root: float) -> bool:
    return sample.peak <= most and sample.rms <= max(root, most * sample.single)
