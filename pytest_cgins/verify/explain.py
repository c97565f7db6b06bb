"""What the tolerance allows in one case and why: in units of the output's last place, beside plain allclose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import gold_bound
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.prepare import Preparation
from pytest_cgins.verify.quantization import GridLimits
from pytest_cgins.verify.reference import Answers, answers

ASSERT_CLOSE = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
"""rtol and atol that `torch.testing.assert_close` documents; torch has none for other dtypes but equality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance(Document):
    """How far an output's elements may be off on one set of inputs.

    Distances are medians over its finite normal numbers, in ulp: steps between neighbours of the output's dtype
    at the expected number.
    """

    inputs: str
    output: int
    rule: str
    """What answers are compared with: `gold`, or `reference` in fp64."""
    dtype: str
    exact: str = ""
    """Why every element must equal the expected one; "" if it may be off."""
    allowed_ulp: float = 0.0
    """What one element may be off."""
    rms_ulp: float | None = 0.0
    """What all elements together may, as a root mean square; None where nothing is asked of it."""
    allclose_ulp: float | None = None
    """What `torch.testing.assert_close` would allow one element by default; None where it asks for equality."""
    torch_ulp: float = 0.0
    """What torch itself is off from the reference."""
    single_ulp: float = 0.0
    """What torch is off in fp32: the op's own rounding errors."""
    conditioning_ulp: float = 0.0
    """How far the right answer moves if inputs are rounded to fp32 once more (TF32 where that is allowed)."""
    factor: float | None = None
    """How many times the unit of error one element may be off; None for rtol and atol of cgins.yaml."""
    grid: GridLimits | None = None
    """Of real numbers that were rounded to a grid: what is allowed in its steps. An ulp is a step then."""

    @property
    def why(self) -> str:
        """Where the allowance comes from, in words."""
        if self.exact:
            return self.exact
        if self.grid is not None:
            return f"rounded {self.grid}"
        if self.factor is None:
            return "rtol and atol of cgins.yaml"
        terms = {
            "the last rounding": 0.5,
            "torch's errors in fp32": self.single_ulp,
            "the op's conditioning": self.conditioning_ulp,
        }
        most = max(terms, key=lambda term: terms[term])
        return f"{self.factor:.3g} times the unit of error, mostly {most} ({terms[most]:.2g} ulp)"


def explain(preparation: Preparation, device: str, tolerance: Tolerance) -> Iterator[Allowance]:
    """What is allowed on each set of inputs that decides, output by output.

    Raises:
        Exception: whatever the op raises as it runs once more.
    """
    for input_set in preparation.core:
        own = answers(
            input_set.call,
            input_set.layout,
            input_set.context,
            device,
            mutated=input_set.mutated,
            tf32=preparation.builder.tf32,
        )
        for output in input_set.expected.outputs:
            if output.gold is not None:
                yield _of_output("gold", input_set, output, own, tolerance)
            if not output.gold_alone:
                yield _of_output("reference", input_set, output, own, tolerance)


def _of_output(
    rule: str, input_set: InputSet, output: ExpectedOutput, own: Answers, tolerance: Tolerance
) -> Allowance:
    dtype, scale = output.answer.dtype, output.scale
    allowance = Allowance(
        inputs=input_set.expected.name, output=output.index, rule=rule, dtype=dtype_name(dtype)
    )
    if output.grid is not None and (rule == "reference" or tolerance.kind != "explicit"):
        grid = output.grid.limits(output.gold.positions if rule == "gold" and output.gold else None)
        return replace(allowance, grid=grid, allowed_ulp=float(grid.steps), rms_ulp=None)
    if scale is None or output.draws is not None or output.indices is not None:
        return replace(allowance, exact=_exact(output))
    gold = output.gold if rule == "gold" else None
    positions = None if gold is None else gold.positions
    bound = rules.against_reference(scale) if gold is None else gold_bound(output, gold, scale, tolerance)
    ulp = 2 * rules.half_ulp(bound.expected, dtype)
    size = bound.expected.abs()
    regular = torch.isfinite(size) & (size >= torch.finfo(dtype).tiny)
    is_explicit = gold is not None and tolerance.kind == "explicit"

    def median(distance: Tensor) -> float:
        values = (distance / ulp)[regular]
        return float(values.median()) if values.numel() else 0.0

    def off(tensors: Sequence[Tensor] | None) -> float:
        if tensors is None:
            return 0.0
        distance = rules.finite_distance(as_real(tensors[output.index]).reshape(-1), scale.reference)
        return median(distance if positions is None else distance[positions])

    rtol, atol = ASSERT_CLOSE.get(dtype, (0.0, 0.0))
    return replace(
        allowance,
        allowed_ulp=median(bound.allowed()),
        rms_ulp=None if is_explicit else median(bound.unit) * bound.rms_limit,
        allclose_ulp=median(atol + rtol * size) if dtype in ASSERT_CLOSE else None,
        torch_ulp=off(own.answer),
        single_ulp=off(own.answer32),
        conditioning_ulp=off(own.rounded or own.perturbed),
        factor=None if is_explicit else bound.peak_limit,
    )


def _exact(output: ExpectedOutput) -> str:
    if output.draws is not None:
        return "it is random: its distribution is judged, no element"
    if output.indices is not None:
        return "it holds positions: any of equal values is right"
    return "integers and booleans must be equal"
