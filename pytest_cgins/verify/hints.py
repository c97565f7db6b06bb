"""Why an answer is wrong, where arithmetic can prove it: an undone mistake gives the right answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from pytest_cgins.verify.tolerance import Bound, assess

# Undoing a mistake on an already rounded output rounds twice.
_RMS_SHARE = 4.0


def hint(answer: Tensor, bound: Bound, arguments: Mapping[str, Tensor]) -> str:
    """A sentence with a blank before it, or "".

    Args:
        answer: the kernel's output.
        bound: that of the whole output against the reference.
        arguments: tensors passed to the op, by parameter name.
    """
    if not answer.numel():
        return ""
    y = answer.to(torch.float64)
    for sentence, undone in _suspects(y, bound, arguments):
        if torch.equal(undone.reshape(-1), y.reshape(-1)):
            continue
        assessed = assess(undone.reshape(-1), bound)
        if assessed.peak_share <= 1.0 and assessed.rms_share <= _RMS_SHARE:
            return f" {sentence}"
    for name, argument in arguments.items():
        if (
            argument.shape == answer.shape
            and argument.dtype == answer.dtype
            and torch.equal(argument, answer)
        ):
            return f" The output is a copy of `{name}`."
    return " Every element is zero." if not bool(y.any()) else ""


def _suspects(y: Tensor, bound: Bound, arguments: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Sentences, each with the answer as it would be without the mistake that the sentence names."""
    expected = bound.expected
    biases = {name: b for name, a in arguments.items() if "bias" in name for b in _along(a, y)}
    weights = {name: w for name, a in arguments.items() if "weight" in name for w in _along(a, y)}
    for name, bias in biases.items():
        yield f"With `{name}` added the answer is right: it is never added.", y + bias
    for name, weight in weights.items():
        for shift in (y.new_zeros(()), *biases.values()):
            sentence = f"With `{name}` multiplied the answer is right: it is never multiplied."
            yield sentence, (y - shift) * weight + shift
    if y.ndim > 1:
        columns = y.shape[-1]
        transposed = y.reshape(columns, -1).T.contiguous()
        yield "It is the right answer transposed.", transposed
        rows = y.reshape(-1, columns)
        for by in (1, -1):
            yield f"It is the right answer with the rows moved by {-by:+d}.", rows.roll(by, 0)
    square = float((expected * expected).nansum())
    factor = float((y.reshape(-1) * expected).nansum()) / square if square > 0 else 0.0
    if factor and torch.isfinite(torch.tensor(factor)) and abs(factor - 1) > 1e-3:
        yield f"Every element is {factor:.6g} times what is expected.", y / factor


def _along(parameter: Tensor, y: Tensor) -> Iterator[Tensor]:
    """A 1-D parameter as it broadcasts along the output's last axis, or along its channels (axis 1)."""
    if parameter.ndim != 1 or not parameter.dtype.is_floating_point or y.ndim == 0:
        return
    wide = parameter.to(torch.float64)
    if len(wide) == y.shape[-1]:
        yield wide
    elif y.ndim > 2 and len(wide) == y.shape[1]:
        yield wide.reshape(-1, *(1,) * (y.ndim - 2))
