"""Recorded gold as tensors, and whether torch itself still gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.device import torch_device
from pytest_cgins.core.model import Gold, Origin, Trace
from pytest_cgins.core.text import counted
from pytest_cgins.packs.gold import GoldValues, load_gold
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.packs.values import tensor_indices
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements


def load(trace: Trace, source: BlobSource, device: str) -> list[GoldElements | None]:
    """Gold of each output, returned tensors first, then the mutated inputs; [] in tier `shapes`."""
    values = load_gold(trace, source)
    return [] if trace.gold is None else [_elements(values[number], device) for number in order(trace.gold)]


def order(gold: Gold) -> list[int]:
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
        values=values.to(torch_device(device)),
        positions=positions.to(torch_device(device)) if recorded.blob is None else None,
        statistics=recorded.statistics,
        shape=shape,
    )


def arranged(
    elements: Sequence[GoldElements | None], arrange: Callable[[Sequence[Tensor]], list[Tensor]]
) -> list[GoldElements | None]:
    """Gold in the form in which answers are compared; none where only some of its elements are kept."""
    whole = [element for element in elements if element is not None and element.positions is None]
    if not whole or len(whole) < len(elements):
        return [None] * len(elements)
    tensors = arrange([one.values.reshape(one.shape) for one in whole])
    return [replace(one, values=tensor.reshape(-1)) for one, tensor in zip(whole, tensors, strict=True)]


def drift(
    outputs: Sequence[ExpectedOutput],
    tolerance: Tolerance,
    origin: Origin,
    device: str,
    at_origin: Callable[[], Sequence[ExpectedOutput]],
) -> str:
    """How torch on this device fails to reproduce the gold; "" if it does.

    Torch must pass rule 1 as a kernel must, and the gold must pass rule 2: a gold that is far from the
    reference would widen what rule 1 allows. Torch in half precision may be less exact on the device of
    the recording than here, though: `at_origin` gives its answers there, by which such a gold is measured.
    """
    for output in outputs:
        what = _drifted(output, tolerance)
        if not what and (far := _far(output, tolerance)):
            same_device = origin.device == device.partition(":")[0]
            what = far if same_device or _far(at_origin()[output.index], tolerance) else ""
        if what:
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
        return f"{fault.what} Record the pack again" if fault else ""
    answer = _sampled(output.answer.reshape(-1), gold.positions)
    if scale is None:
        different = int((answer != gold.values).sum())
        return (
            f"{different} of {counted(answer.numel(), 'element differs', 'elements differ')}. Record the pack again"
            if different
            else ""
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
    if gold is None or scale is None or tolerance.kind == "explicit":
        return ""
    assessed = rules.assess(gold.values, _against_sampled_reference(scale, gold))
    if assessed.passed:
        return ""
    return (
        f"the gold is {assessed.share:.3g} times as far from the fp64 reference as torch's answers may be. "
        "Record the pack again"
    )


def _against_sampled_reference(scale: rules.Scale, gold: GoldElements) -> rules.Bound:
    unit = _sampled(scale.unit, gold.positions)
    return rules.Bound(
        expected=_sampled(scale.reference, gold.positions),
        unit=unit,
        peak_limit=scale.peak_limit,
        rms_limit=scale.rms_limit_of(unit.numel()),
        exact_patterns=False,
    )


def _sampled(values: Tensor, chosen: Tensor | None) -> Tensor:
    return values if chosen is None else values[chosen]
