"""What is expected of one output tensor: its form, torch's answer, the reference, and the gold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.core.model import Statistics
from pytest_cgins.core.text import counted
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.indices import Indices
from pytest_cgins.verify.random_outputs import Draws


def as_real(tensor: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers along a new last axis; others as they are."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldElements:
    """Recorded elements of one output, and the statistics of all of it."""

    values: Tensor
    """Flat, in the output's dtype."""
    positions: Tensor | None
    """Their row-major numbers, int64; None if they are all elements in order."""
    statistics: Statistics
    """Of the whole output, as it was recorded."""
    shape: tuple[int, ...]
    """Sizes of the whole output."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self.values.nbytes + (0 if self.positions is None else self.positions.nbytes)

    def statistics_differ(self, answer: Tensor, scale: rules.Scale, bound: rules.Bound) -> str:
        """In what the whole answer's statistics cannot be those of the gold; "" if they can.

        Only where the gold is sampled; all its elements say more. The mean may differ by
        rms(z)·rms(T) ≥ mean(|y − gold|), by Cauchy and Schwarz, with rms(z) at its limit.
        """
        if self.positions is None:
            return ""
        recorded = self.statistics
        regular = rules.all_finite(answer)
        counts = [
            ("NaN", 0 if regular else int(torch.isnan(answer).sum()), recorded.nan),
            ("+inf", 0 if regular else int((answer == torch.inf).sum()), recorded.positive_infinite),
            ("finite", answer.numel() if regular else int(torch.isfinite(answer).sum()), recorded.finite),
        ]
        for what, got, expected in counts:
            if got != expected:
                differs = f"{counted(got, 'element is', 'elements are')} {what}, and {expected} were when the gold was recorded."
                return differs if bound.exact_patterns else ""
        finite = recorded.finite
        if bound.rms_limit == float("inf") or not finite:
            return ""
        wide = answer.to(torch.float64)
        if not regular:
            wide = wide.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        mean = float(wide.sum()) / finite
        allowed = bound.rms_limit * rules.rms(scale.unit) * answer.numel() / finite
        # Summing n numbers in fp64, here and when the statistics were taken, errs by itself.
        allowed += 1e-14 * rules.rms(wide) * answer.numel() / finite
        if abs(mean - recorded.mean) > allowed:
            return f"the mean of all elements is {mean!r}, of the gold {recorded.mean!r}; allowed is ±{allowed:.3g}."
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedOutput:
    """One output tensor on one set of inputs."""

    index: int
    """Number of the output."""
    shape: tuple[int, ...]
    """Sizes."""
    stride: tuple[int, ...]
    """Dense strides of the gold (of torch's answer, without gold), in elements."""
    own_stride: tuple[int, ...]
    """Strides of torch's answer, which may be a view into something larger."""
    answer: Tensor
    """t: torch's own answer, in the output's dtype, row-major."""
    scale: rules.Scale | None
    """Reference and unit of error; None for integers and booleans, which must equal `answer`."""
    gold: GoldElements | None
    """None for inputs that were not recorded, and in tier `shapes`."""
    draws: Draws | None = None
    """Torch's draws, where the output is random: then no element of it is compared."""
    indices: Indices | None = None
    """What the output points into, where it holds positions: then any of equal values is right."""
    complex: bool = False
    """Whether it is complex; `answer` and all else then hold pairs of real numbers."""

    @property
    def recorded(self) -> Tensor:
        """The whole output as it was recorded; torch's answer where no gold is kept."""
        whole = self.answer.reshape(-1)
        if self.gold is None:
            return whole
        positions = self.gold.positions
        return self.gold.values if positions is None else whole.index_copy(0, positions, self.gold.values)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        parts = (self.answer, self.scale, self.gold, self.draws, self.indices)
        return sum(part.nbytes for part in parts if part is not None)
