"""Summary of a tensor's values."""

from __future__ import annotations

import math
import sys

import torch

from pytest_cgins.core.trace import Statistics
from pytest_cgins.packs.context import neutral

_CHUNK = 2**22


def summarize(tensor: torch.Tensor) -> Statistics:
    """Counts, moments and extremes of a tensor of any shape and dtype.

    Complex values count as their real and imaginary parts. Moments are fp64; chunks of 4 Mi elements are
    merged by Chan's update, so that a large tensor is never held twice in fp64.
    """
    with neutral():
        values = tensor.detach().resolve_conj().resolve_neg()
        values = (torch.view_as_real(values) if values.is_complex() else values).reshape(-1)
        numel = values.numel()
        finite = nan = positive = zero = 0
        mean = squares = 0.0
        low, high = math.inf, -math.inf
        for start in range(0, numel, _CHUNK):
            chunk = values[start : start + _CHUNK].to(torch.float64)
            zero += chunk.numel() - int(torch.count_nonzero(chunk))
            least, greatest = (float(extreme) for extreme in torch.aminmax(chunk))
            if not (math.isfinite(least) and math.isfinite(greatest)):
                nan += int(chunk.isnan().sum())
                positive += int(torch.isposinf(chunk).sum())
                chunk = chunk[chunk.isfinite()]
                if not chunk.numel():
                    continue
                least, greatest = (float(extreme) for extreme in torch.aminmax(chunk))
            low, high = min(low, least), max(high, greatest)
            variance, center = (float(moment) for moment in torch.var_mean(chunk, correction=0))
            count = chunk.numel()
            delta, total = center - mean, finite + count
            squares += variance * count + delta * delta * finite * count / total
            mean += delta * count / total
            finite = total
    return Statistics(
        numel=numel,
        finite=finite,
        nan=nan,
        positive_infinite=positive,
        zero=zero,
        mean=_bounded(mean),
        std=_bounded(math.sqrt(squares / finite)) if finite else 0.0,
        minimum=low if finite else 0.0,
        maximum=high if finite else 0.0,
    )


def _bounded(moment: float) -> float:
    """JSON has no infinity: moments of values near the end of fp64 stop at its largest number."""
    limit = sys.float_info.max
    return limit if math.isnan(moment) else max(-limit, min(limit, moment))
