"""What a whole model does with kernels in it, as a document."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.regenerate.profiling.evidence_documents import Ratio

MODEL_BENCH_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedKernel(Document):
    """One kernel in one run of the model."""

    kernel: str
    """`NAME/IMPLEMENTATION`, as in cgins.yaml."""
    op: str
    """What it replaces."""
    calls: int
    """Calls of the op that the kernel answered."""
    left: dict[str, int]
    """Calls that torch answered, by the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Document):
    """How far the model's outputs with kernels lie from those without."""

    relative_rms: float
    """Root mean square of the difference over that of torch's outputs; 0 where both are the same."""
    worst: float
    """Greatest difference of one element."""
    elements: int
    """That were compared."""
    finite: bool
    """Whether each element is finite that is so without kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBench(Document):
    """`model_bench.json`."""

    version: int
    """Of this document: 1."""
    model: str
    """`MODULE:FUNCTION` that made it."""
    device: str
    """`cpu` or `cuda:0`."""
    device_name: str
    """What it ran on."""
    torch: str
    """Version."""
    kernels: tuple[SwappedKernel, ...]
    """Those that were put in, whether the model calls their ops or not."""
    difference: Difference | None
    """None where the outputs are not tensors."""
    measurement: Measurement
    """Times of one run: `kernel` is the model with kernels, `torch` the model without. Its one comparison says what is
    proven."""
    ratio: Ratio
    """The model's time without kernels over its time with them: above 1 the kernels make it faster."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""
