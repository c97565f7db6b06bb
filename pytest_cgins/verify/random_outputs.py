"""Outputs that are drawn: what a kernel's may be, by torch's own draws on the same inputs.

No element is compared with torch's: a kernel has its own stream of numbers. Its draw must lie where torch's lie, and
be one of them by its numbers: level, magnitude, spread, and how neighbours go together, each compared with what torch's
draws are to each other. Nothing is asked of outputs that are too small, or too rarely different, to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Context

DRAWS = 32
"""Number of torch's draws, each with another seed."""
_LIMIT = 8.0
"""Standard deviations, of as many draws: reached by chance once in a thousand million."""
_NEVER_ALIKE = 64
"""Elements in which two draws differ."""
_CLIP = 3.0
"""A single element counts so many standard deviations at most: rare values must not decide."""
_SAMPLED = 1 << 14
"""Elements that numbers are taken of, half of them the first ones and half the last."""
_ROUNDINGS = 8.0
"""Number of the dtype's roundings by which one of two values may be missed."""
_STATISTICS = ("level", "magnitude", "spread", "dependence of neighbours", "dependence of rows")

Domain = tuple[float, float]
"""Least and greatest legal value; infinite where there is no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What torch drew for one output."""

    values: Tensor
    """fp64, (draws, sampled elements), on the case's device."""
    width: int
    """Size of the last dimension: elements of one row."""
    domain: Domain
    """Least and greatest legal value, as declared or known of the op."""
    known: Tensor
    """Statistics of each draw, measured by the others: (draws, statistics)."""

    @property
    def vary(self) -> bool:
        """Whether two draws are never the same by chance."""
        return int((self.values[0] != self.values[1]).sum()) >= _NEVER_ALIKE

    def fault(self, answer: Tensor) -> str:
        """Why a kernel's output, of the right shape and dtype, cannot be one of these draws, a sentence; "" if it can."""
        flat = answer.reshape(-1)
        return self._range(flat) or self._support(_sampled(flat), answer.dtype) or self._statistics(flat)

    def _range(self, flat: Tensor) -> str:
        low, high = self.domain
        wide = flat.to(torch.float64)
        if not bool(self.values.isnan().any()) and bool(wide.isnan().any()):
            return f"{int(wide.isnan().sum())} of {counted(flat.numel(), 'element is', 'elements are')} NaN, and none of torch's"
        outside = (wide < low) | (wide > high)
        if bool(outside.any()):
            first = float(wide[outside][0])
            return f"{int(outside.sum())} of {counted(flat.numel(), 'element lies', 'elements lie')} outside of [{low:g}, {high:g}], e.g. {first:g}"
        return ""

    def _support(self, values: Tensor, dtype: torch.dtype) -> str:
        """Whether each element is one of the two values that it can have, if there are but two, as of a dropout."""
        least, greatest = self.values.amin(0), self.values.amax(0)
        if not bool(((self.values == least) | (self.values == greatest)).all()):
            return ""
        eps = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        off = torch.minimum(
            (values - least).abs() - _ROUNDINGS * eps * least.abs(),
            (values - greatest).abs() - _ROUNDINGS * eps * greatest.abs(),
        )
        wrong = (off > 0) & (least != greatest)
        if not bool(wrong.any()):
            return ""
        at = int(wrong.to(torch.uint8).argmax())
        return (
            f"{int(wrong.sum())} of {counted(int((least != greatest).sum()), 'element is', 'elements are')} neither of the two values that "
            f"torch draws, e.g. {float(values[at]):g} instead of {float(least[at]):g} or {float(greatest[at]):g}"
        )

    def _statistics(self, flat: Tensor) -> str:
        """Whether its numbers differ from those of torch's draws by more than these from each other."""
        if not flat.numel():
            return ""
        # By as many draws as each of torch's is measured by.
        got = _numbers(_sampled(flat)[None], self.values, self.width)[0]
        for name, one, others in zip(_STATISTICS, got.tolist(), self.known.unbind(1), strict=True):
            if len(set(others.tolist())) < len(others) // 2:
                continue  # draws that are mostly alike do not tell what is rare
            mean, deviation = float(others.mean()), float(others.std())
            if abs(one - mean) > _LIMIT * deviation:
                return (
                    f"its {name} is {abs(one - mean) / deviation:.3g} standard deviations from that of "
                    f"{counted(len(others), 'draw')} of torch"
                )
        return ""


def draw(run: Callable[[Context], Tensor], context: Context, domain: Domain) -> Draws:
    """Torch's draws of one output, which `run` gives with the seed of a context."""
    draws = [run(replace(context, rng_seed=seed)) for seed in range(1, DRAWS + 1)]
    values = torch.stack([_sampled(one.reshape(-1)) for one in draws])
    width = draws[0].shape[-1] if draws[0].ndim else 1
    return Draws(values=values, width=width, domain=domain, known=_numbers(values, values, width))


def described(numbers: list[int]) -> str:
    """What a report says of random outputs."""
    outputs, verb = ("output", "is") if len(numbers) == 1 else ("outputs", "are")
    which = f"{outputs} {', '.join(map(str, numbers))}"
    return (
        f"{which} {verb} random: shape, dtype, range and the statistics of {DRAWS} draws of torch are checked, "
        "and no element is compared"
    )


def _sampled(flat: Tensor) -> Tensor:
    half = _SAMPLED // 2
    chosen = flat if flat.numel() <= _SAMPLED else torch.cat((flat[:half], flat[-half:]))
    return chosen.to(torch.float64)


def _numbers(measured: Tensor, draws: Tensor, width: int) -> Tensor:
    """The statistics of each of some draws, measured by the draws but one: the one itself, or the first.

    Args:
        measured: fp64, (any number, elements): `draws`, or another draw that is measured as one of them is.
        draws: fp64, (draws, elements).
        width: elements of one row.
    """
    left_out = draws if measured is draws else draws[:1]
    level = _scaled(measured, draws, left_out)
    magnitude = _scaled(measured.abs(), draws.abs(), left_out.abs())
    return torch.stack(
        (
            level.mean(1),
            magnitude.mean(1),
            level.square().mean(1),
            _together(magnitude, 1) + _together(level, 1),
            _together(magnitude, width) + _together(level, width),
        ),
        dim=1,
    )


def _scaled(measured: Tensor, draws: Tensor, left_out: Tensor) -> Tensor:
    """How many standard deviations each element is from the mean of the draws without `left_out`."""
    count = len(draws) - 1
    first = draws[0]  # where draws are alike their differences from it are nothing, and exactly so
    one, rest = left_out - first, draws - first
    mean = (rest.sum(0) - one) / count
    square = (rest.square().sum(0) - one.square()) / count
    deviation = (square - mean.square()).clamp_min(0.0).sqrt()
    off = measured - first - mean
    return torch.where(off == 0, 0.0, off / deviation).nan_to_num(0.0).clamp(-_CLIP, _CLIP)


def _together(scaled: Tensor, step: int) -> Tensor:
    """How much elements go with those `step` further on; 0 where there are none."""
    if scaled.shape[1] <= step:
        return scaled.new_zeros(len(scaled))
    return (scaled[:, :-step] * scaled[:, step:]).mean(1)
