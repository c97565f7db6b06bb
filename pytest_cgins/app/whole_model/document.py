"""What whole models do with kernels in them, as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import PlainTimes, SwappedKernel
from pytest_cgins.core.verdict import Check
from pytest_cgins.regenerate.profiling.evidence_documents import Ratio

MODEL_BENCH_VERSION = 2


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
class Base(Document):
    """The kernels that those of a model are compared with."""

    state: Literal["changed", "unchanged", "new", "none", "refused"]
    """`changed`: they are others; `unchanged`: the same; `new`: there were none; `none`: none were asked for; `refused`: one
    cannot be built, or loaded beside the others."""
    label: str = ""
    """`1a2b3c4d5e (merge-base with main)`, or the names of the kernels."""
    commit: str = ""
    """Of the revision, if they are a revision's."""
    note: str = ""
    """Why there are none, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBench(Document):
    """One model."""

    model: str
    """Its name in cgins.yaml, or the `MODULE:FUNCTION` that made it."""
    device: str
    """`cpu` or `cuda:0`."""
    device_name: str
    """What it ran on."""
    torch: str
    """Version."""
    kernels: tuple[SwappedKernel, ...]
    """Those that were put in, whether the model calls their ops or not."""
    checks: tuple[Check, ...]
    """Of its outputs, by the rule that is derived for the whole model; () where it has no reference."""
    difference: Difference | None
    """None where the outputs are not tensors."""
    base: Base
    """What the kernels are compared with."""
    measurement: Measurement | None
    """Times of one run: `kernel` is the model with kernels, `base` that with others, `torch` the model without. None where
    it was not timed."""
    ratios: tuple[Ratio, ...]
    """The other arms' times over the kernels': above 1 the kernels are faster."""
    plain: PlainTimes | None
    """By the plain protocol; None where it was not timed."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBenches(Document):
    """`model_bench.json`."""

    version: int
    """Of this document: 2."""
    models: tuple[ModelBench, ...]
    """In the order in which they ran."""
    speedup_vs_torch: float | None = None
    """Over all of several models: the sum of their times without kernels over the sum with them."""
    speedup_vs_base: float | None = None
    """The same against the kernels that they are compared with; None unless all are compared with some."""
