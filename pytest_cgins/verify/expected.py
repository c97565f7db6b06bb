"""What is expected of one output tensor: its form, torch's answer, the reference, and the gold; whether torch still gives that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import countable, movable, readable
from pytest_cgins.core.device import torch_device
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Gold, Origin, Statistics, Trace, tensor_indices
from pytest_cgins.core.verdict import WorstElement
from pytest_cgins.packs.gold import GoldValues, load_gold
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.locate import position
from pytest_cgins.verify.quantization import Grid
from pytest_cgins.verify.random_outputs import Draws
from pytest_cgins.verify.ties import Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldElements:
    """Recorded elements of one output, and the statistics of all of it."""

    values: Tensor
    """Flat, in the output's dtype."""
    positions: Tensor | None
    """Their row-major numbers, int64; None if they are all elements in order."""
    statistics: Statistics
    """Statistics of the whole output, as recorded."""
    shape: tuple[int, ...]
    """Sizes of the whole output."""

    @property
    def whole(self) -> Tensor:
        """All elements in the output's shape; in the places of those that were not kept are others that were."""
        numel = math.prod(self.shape)
        if self.positions is None:
            return self.values.reshape(self.shape)
        filled = self.values.repeat(-(-numel // max(1, self.values.numel())))[:numel]
        return filled.index_copy(0, self.positions, self.values).reshape(self.shape)

    def statistics_differ(self, answer: Tensor, scale: rules.Scale, bound: rules.Bound) -> str:
        """The statistic of the whole answer that cannot be that of the gold; "" if they can.

        Only where the gold is sampled; all its elements say more. The mean may differ by
        rms(z)·rms(T) ≥ mean(|y − gold|), by Cauchy and Schwarz, with rms(z) at its limit.
        """
        if self.positions is None:
            return ""
        recorded, answer = self.statistics, readable(answer)
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
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """Dense strides of the gold (of torch's answer, without gold), in elements."""
    own_stride: tuple[int, ...]
    """Strides of torch's answer, which may be a view into something larger."""
    answer: Tensor
    """t: torch's own answer, in the output's dtype, row-major."""
    scale: rules.Scale | None
    """Reference and unit of error; None for integers and booleans, which must equal `answer`."""
    doubtful: tuple[Tensor, ...] = ()
    """Integers that are right as well, if some are others in fp64, or a rounding of the inputs away: ties that underflow made, and
    steps."""
    gold: GoldElements | None
    """None for inputs that were not recorded, and in tier `shapes`."""
    draws: Draws | None = None
    """Torch's draws, where the output is random: then no element of it is compared."""
    indices: Indices | None = None
    """What the output points into, where it holds positions: then any of equal values is right."""
    grid: Grid | None = None
    """What the output was before it was rounded to eight bits, where it was: then it is judged in steps."""
    complex: bool = False
    """Whether it is complex; `answer` and all else then hold pairs of real numbers."""
    resized: bool = False
    """Whether it has other sizes than the recorded one: torch chooses an order of dimensions by size, and none is wrong."""
    gold_alone: bool = False
    """Whether nothing but the gold tells what is right: rule 2 does not apply, nor does any to elements that it lacks."""

    def element(self, flat: int, expected: str, got: str, *, tolerance: float) -> WorstElement:
        """What is told of one element, by its row-major number."""
        index = position(flat, self.shape)
        return WorstElement(output=self.index, index=index, expected=expected, got=got, tolerance=tolerance)

    @property
    def must_equal(self) -> bool:
        """Whether nothing but the very numbers of `answer` is right."""
        return self.scale is None and self.indices is None and self.draws is None and self.grid is None

    def looser(self, times: float, rms_times: float = 1.0) -> ExpectedOutput:
        """A copy with so many times the limits of single elements and of all together."""
        return replace(
            self,
            scale=None if self.scale is None else self.scale.looser(times, rms_times),
            grid=None if self.grid is None else self.grid.looser(times, rms_times),
        )

    @property
    def recorded(self) -> Tensor:
        """The whole output as it was recorded; torch's answer where no gold is kept."""
        whole = self.answer.reshape(-1)
        if self.gold is None:
            return whole
        positions = self.gold.positions
        if positions is None:
            return self.gold.values
        return movable(whole).index_copy(0, positions, movable(self.gold.values)).view(whole.dtype)


def gold_elements(trace: Trace, source: BlobSource, device: str) -> list[GoldElements | None]:
    """Gold of each output, returned tensors first, then the mutated inputs; [] in tier `shapes`."""
    values, gold = load_gold(trace, source), trace.gold
    return [] if gold is None else [_elements(values[number], device) for number in gold_order(gold)]


def gold_order(gold: Gold) -> list[int]:
    """Numbers of the gold tensors as outputs are compared: returned ones, then the mutated inputs."""
    return [*sorted(set(tensor_indices(gold.outputs))), *(number for _, number in gold.mutated)]


def _elements(gold: GoldValues, device: str) -> GoldElements:
    recorded, values, positions = gold.recorded, gold.values, gold.positions
    shape = recorded.meta.shape
    if values.is_complex():
        values = torch.view_as_real(values).reshape(-1)
        positions = torch.stack((2 * positions, 2 * positions + 1), -1).reshape(-1)
        shape = (*shape, 2)
    return GoldElements(
        values=countable(values).to(torch_device(device)),
        positions=positions.to(torch_device(device)) if recorded.blob is None else None,
        statistics=recorded.statistics,
        shape=shape,
    )


def arranged_gold(
    elements: Sequence[GoldElements | None], arrange: Callable[[Sequence[Tensor]], list[Tensor]]
) -> list[GoldElements | None]:
    """Gold in the form in which answers are compared; none where only some of its elements are kept."""
    whole = [element for element in elements if element is not None and element.positions is None]
    if not whole or len(whole) < len(elements):
        return [None] * len(elements)
    tensors = arrange([one.values.reshape(one.shape) for one in whole])
    return [replace(one, values=tensor.reshape(-1)) for one, tensor in zip(whole, tensors, strict=True)]


def gold_drift(
    outputs: Sequence[ExpectedOutput],
    tolerance: Tolerance,
    origin: Origin,
    device: str,
    at_origin: Callable[[], Sequence[ExpectedOutput]],
    *,
    reference: str = "",
) -> str:
    """How torch on this device fails to reproduce the gold; "" if it does.

    Torch must pass rule 1 as a kernel must, and the gold must pass rule 2: a gold that is far from the
    reference would widen what rule 1 allows. Torch in half precision may be less exact on the device of
    the recording than here, though: `at_origin` gives its answers there, by which such a gold is measured.
    With a reference that stands for an operator, that function is what is held against the gold.
    """
    for output in outputs:
        what = _drifted(output, tolerance)
        if not what and (far := _far(output, tolerance)):
            same_device = origin.device == device.partition(":")[0]
            what = far if same_device or _far(at_origin()[output.index], tolerance) else ""
        if what:
            if reference:
                return (
                    f"reference {reference} on {device} does not give what was recorded of output {output.index}: {what}. Either "
                    "it is not what the operator computes, or the operator was wrong when it was recorded"
                )
            return (
                f"torch {torch.__version__} on {device} does not reproduce the gold of output {output.index}, "
                f"recorded with torch {origin.torch} on {origin.device} ({origin.device_name}): {what}"
            )
    return ""


def _drifted(output: ExpectedOutput, tolerance: Tolerance) -> str:
    gold, scale = output.gold, output.scale
    if gold is None:
        return ""
    if gold.shape != output.shape or gold.values.dtype != output.answer.dtype:
        return (
            f"it returns {output.answer.dtype} of shape {output.shape}, the gold is {gold.values.dtype} of shape "
            f"{gold.shape}. Record the pack again"
        )
    if output.indices is not None:
        fault = output.indices.fault(output.answer, output.recorded)
        return f"{fault.message} Record the pack again" if fault else ""
    if output.grid is not None:
        steps_off = output.grid.fault(gold.values, gold.positions, output.shape)
        return f"of what was recorded, {steps_off.message} Record the pack again" if steps_off else ""
    answer = _sampled(output.answer.reshape(-1), gold.positions)
    if scale is None:
        different, differ = int((answer != gold.values).sum()), ("element differs", "elements differ")
        return (
            f"{different} of {counted(answer.numel(), *differ)}. Record the pack again" if different else ""
        )
    if tolerance.kind == "explicit":
        assessed = rules.assess(answer, rules.allclose(gold.values, tolerance))
        if assessed.passed:
            return ""
        derived = not _drifted(output, Tolerance())
        return (
            f"its own answer differs by {assessed.share:.3g} times what rtol {tolerance.rtol:g} and atol "
            f"{tolerance.atol:g} allow. "
            + ("The derived tolerance allows it: leave them out" if derived else "Record the pack again")
        )
    bound = rules.against_gold(gold.values, scale, gold.positions, exact_patterns=True)
    assessed = rules.assess(answer, bound)
    if not assessed.passed:
        return (
            f"its own answer differs by {assessed.share:.3g} times what rule 1 allows. Record the pack again"
        )
    return gold.statistics_differ(output.answer.reshape(-1), scale, bound)


def _far(output: ExpectedOutput, tolerance: Tolerance) -> str:
    """How much farther from the reference the gold is than torch's answers may be; "" if it is not."""
    gold, scale = output.gold, output.scale
    if gold is None or scale is None or output.grid is not None or tolerance.kind == "explicit":
        return ""
    bound = replace(
        rules.against_reference(scale),
        expected=_sampled(scale.reference, gold.positions),
        unit=_sampled(scale.unit, gold.positions),
        rms_limit=scale.rms_limit_of(gold.values.numel()),
    )
    assessed = rules.assess(gold.values, bound)
    if assessed.passed:
        return ""
    return (
        f"the gold is {assessed.share:.3g} times as far from the fp64 reference as torch's answers may be. "
        "Record the pack again"
    )


def _sampled(values: Tensor, chosen: Tensor | None) -> Tensor:
    return values if chosen is None else values[chosen]
