"""How far an answer may be from the reference: the derived rule, and plain allclose.

The derived rule takes its scale from torch and from the op itself. With r the fp64 reference, t32 torch
in fp32 on the same (upcast) inputs with TF32 off, t torch in the case's dtype, and p the fp64 reference on
inputs that were rounded to fp32 once more:

    e = max(|t32 − r|, |p − r|, |t − r| − ½ulp(r))               element by element
    T = ½ulp(r) + max(monotone envelope of e over exponent bins of r, 2·rms(e))
    z = |y − r| / T

and y passes iff  max z ≤ C  and  rms z ≤ c·rms z_t.  T depends on r only through the exponent of r, so it
is a table of 2048 entries.

Rows that do not depend on each other have such a table for each group of them that errs alike (`_groups`):
a kernel has no right to the error of a row of larger numbers.

p stands for what any backward stable kernel may do. Without it the scale is torch's luck: a case of few
rows has few independent errors, and where torch's own happen to be small, plain loops were called wrong.
Where a few elements are beyond it by little, T is no less than torch's errors in these on other inputs
(`reference.other_errors`).

Torch chooses how it computes by size and strides: attention rounds its weights to half precision in one way and not in
another. Inputs of other sizes than the recorded ones are therefore judged with e at least `coarseness` times the error of fp32:
a kernel may be as coarse there as torch is on what was recorded.

Two additions keep the second condition sane where rms z_t says nothing. It is taken to be at least that of
p, and at least that of correct rounding, whose error is uniform in ±½ulp: rms(½ulp / T) / √3. And one
element at the first condition's limit must not break the second by itself, so the limit is at least
C / √n: for a handful of elements the rms is no statistic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import readable
from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.layout import dtype_name

_EXPONENTS = 2048
_GROUPS = 5
_GROUP_STEP = 3
"""Rows whose error is 2³ times less than others' have a unit of their own: five of them reach over 2¹²."""
_LEAST_PER_ROW = 16
_LEAST_PER_GROUP = 64
"""Fewer errors than these are luck."""
_LANES = 1024
_LOOKED_AT = 1 << 18
"""Elements that tell how coarse torch is."""
_FRACTION = 8
"""Of them, the least of so many."""
_SCALAR = 4
"""How many times closer a single number of half precision must be: its last rounding is most of what it may err."""
_GOLD_SINGLE = 4
"""Longer sums of fp32 differ by more of its epsilons; in half precision the last rounding is most of the error."""
_JUMP = 2.0**-10
_JUMP_TF32 = 2.0**-3
_FP64_FROM_FP32 = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """C and c of the derived rule for one output dtype.

    Fitted over `tests/planted` through the whole gate, with 20 bugs and 30 legitimate kernels of five ops
    (orders of summation, split-K, Welford, online softmax, double rounding, plain loops) on short and on few
    long rows, and held unchanged by 41 more bugs and 49 more kernels of 17 further ops,
    three sets of inputs a case, several seeds, CPU and H200. `tests/benchmarks/planted_bugs.py --fit`
    measures the figures again, on any device; its tables are kept in `tests/benchmarks/results/`.
    """

    peak: float
    """C: max z may be this many times max(1, max z_t). Legitimate kernels reach 38 in fp32 (a plain loop over
    1024 numbers whose mean is a thousand times their deviation), 20 in fp16 and 2.1 in bf16; the bug that
    shows least, 6800, 330 and 28."""
    rms: float
    """c: rms z may be this many times rms z_t. Legitimate kernels reach 35 in fp32, where in a case of few
    rows an error that a row shares is not averaged away, 2.4 in fp16, and 1.002 in bf16, where the last
    rounding dominates and is the same for everybody; bugs that leave the form intact 3800, 180 and 2.0."""


TF32 = Constants(peak=16.0, rms=4.0)
"""Where TF32 is allowed: inputs that are cut off err twice as much as rounded ones, bf16 errs eight times as much."""


def constants(dtype: torch.dtype) -> Constants:
    """C and c for outputs of `dtype`."""
    peak, rms = DTYPES[dtype_name(dtype)].limits
    return Constants(peak=peak, rms=rms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The derived rule's unit of error for one output tensor; flat, in row-major order."""

    reference: Tensor
    """r, float64."""
    unit: Tensor
    """T, float64, positive."""
    rms: float
    """rms z_t, at least that of correct rounding."""
    constants: Constants
    """C and c."""
    coarseness: float = 1.0
    """rms of torch's error beyond ½ulp over that of fp32, for outputs of half precision; 1 where torch is not coarser."""

    def looser(self, times: float, rms_times: float = 1.0) -> Scale:
        """A copy with so many times the limit of single elements, and of all together."""
        constants = self.constants
        return replace(
            self, constants=replace(constants, peak=constants.peak * times, rms=constants.rms * rms_times)
        )

    def at_least(self, errors: Tensor) -> Scale:
        """A copy whose unit is no less than these errors, flat, float64, but where the op jumped."""
        return replace(self, unit=torch.maximum(self.unit, _unless_it_jumped(errors.clone(), self.reference)))

    @property
    def peak_limit(self) -> float:
        """What max z may be."""
        return self.constants.peak

    @property
    def rms_limit(self) -> float:
        """What rms z may be."""
        return self.rms_limit_of(self.unit.numel())

    def rms_limit_of(self, count: int) -> float:
        """What rms z may be over `count` sampled elements."""
        return max(self.constants.rms * self.rms, self.peak_limit / math.sqrt(max(1, count)))


def rms(values: Tensor) -> float:
    """Root mean square of a float64 tensor; 0 if it is empty."""
    return float(torch.linalg.vector_norm(values)) / math.sqrt(values.numel()) if values.numel() else 0.0


def _rms_there(values: Tensor) -> Tensor:
    """`rms` as a number of its device, which is not waited for."""
    # Of a plain number a GPU would take the reciprocal, which may round otherwise.
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm / values.new_full((), math.sqrt(max(1, values.numel())))


def _rms_of(*values: Tensor, beside: Sequence[Tensor] = ()) -> list[float]:
    """The `rms` of each, and further numbers as they are: the device is waited for once."""
    numbers: list[float] = torch.stack([*map(torch.linalg.vector_norm, values), *beside]).tolist()
    roots = [math.sqrt(max(1, one.numel())) for one in values] + [1.0] * len(beside)
    return [number / root for number, root in zip(numbers, roots, strict=True)]


def peak(values: Tensor) -> float:
    """Greatest element; 0 if there is none."""
    return float(values.max()) if values.numel() else 0.0


def derive(
    reference: Tensor,
    answer: Tensor,
    answer32: Tensor,
    perturbed: Tensor | None = None,
    rounded: Tensor | None = None,
    *,
    rows: Tensor | None = None,
    steps: float = 1.0,
    coarseness: float | None = None,
) -> Scale:
    """Scale of one output.

    Args:
        reference: r, float64, any shape.
        answer: t, torch's answer in the case's dtype and context: its dtype is the output's.
        answer32: t32, float32 (or wider).
        perturbed: p, float64: the reference on inputs that were rounded to fp32 once more.
        rounded: like p, on inputs rounded to TF32, where that is allowed.
        rows: number of the row that each element is made of, int64, flat, where no row depends on another.
        steps: roundings to fp32 by which the inputs of p were moved.
        coarseness: `Scale.coarseness` on the recorded inputs, where these are others; None to have it measured.

    All tensors but `rows` have the same shape. Elements that are not finite in any of them are left out.
    """
    dtype = answer.dtype
    r = reference.reshape(-1)
    error32 = finite_distance(answer32.reshape(-1), r)
    conditioning = None if perturbed is None else _conditioning(perturbed.reshape(-1), r)
    if dtype == torch.float64:
        # fp64 has no better reference than itself: errors are fp32's, scaled by the machine epsilons.
        error32 = error32 * _FP64_FROM_FP32
        conditioning = None if conditioning is None else conditioning * _FP64_FROM_FP32
        error = error32
    else:
        error = finite_distance(answer.reshape(-1), r)
    if rounded is not None and dtype == torch.float32:
        allowed = _conditioning(rounded.reshape(-1), r, jump=_JUMP_TF32)
        conditioning = allowed if conditioning is None else torch.maximum(conditioning, allowed)
    single = error32
    if conditioning is not None:
        error32, single = torch.maximum(error32, conditioning), torch.maximum(single, conditioning / steps)

    bins = exponent_bins(r)
    halves = _half_ulp_table(dtype, r.device)
    beyond = error - halves[bins]
    own = _coarseness(r, beyond, single, dtype) if coarseness is None else 1.0
    if answer.element_size() <= 2 and coarseness is not None and coarseness > 1:
        error32 = error32 * coarseness
        conditioning = None if conditioning is None else conditioning * coarseness
    error32 = torch.maximum(error32, beyond)
    groups = _groups(error32, rows)
    places = bins if groups is None else bins + _EXPONENTS * groups
    envelope = torch.zeros(_EXPONENTS * _GROUPS, dtype=torch.float64, device=r.device)
    envelope.scatter_reduce_(0, places, error32, "amax")
    envelope = envelope.reshape(_GROUPS, _EXPONENTS).cummax(1).values
    table = (halves + envelope.maximum(_floors(error32, groups))).reshape(-1)
    unit = table[places]
    # Of correct rounding: from how often each bin occurs, so that no further pass over r is needed.
    occupancy = torch.bincount(places, minlength=len(table)).to(torch.float64)
    squares = ((halves.repeat(_GROUPS) / table) ** 2 * occupancy).sum()
    measured = (error,) if conditioning is None else (error, conditioning)
    *errors, rounding = _rms_of(*(one / unit for one in measured), beside=[squares])
    limits = constants(dtype)
    if answer.numel() <= 1 and answer.element_size() <= 2:
        limits = replace(limits, peak=limits.peak / _SCALAR)
    return Scale(
        reference=r,
        unit=unit,
        rms=max(*errors, math.sqrt(rounding / 3.0 / max(1, r.numel()))),
        constants=limits if rounded is None or dtype != torch.float32 else TF32,
        coarseness=own,
    )


def of_gold(gold: Tensor, *, tf32: bool = False) -> Scale:
    """Scale of an output of which one right answer is known and nothing else, neither its error nor that of the op.

    The unit is the machine epsilon, four times in fp32 and fp64, at the size of each element or of all together.

    Args:
        gold: the answer, any floating dtype.
        tf32: whether products of inputs rounded to TF32 are right.
    """
    r = gold.reshape(-1).to(torch.float64)
    finite = r.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    info = torch.finfo(gold.dtype)
    epsilon = info.eps * (_GOLD_SINGLE if gold.element_size() > 2 else 1)
    epsilon = max(epsilon, _JUMP) if tf32 and gold.dtype == torch.float32 else epsilon
    unit = (finite.abs().clamp_min(rms(finite)) * epsilon).clamp_min(max(info.tiny * info.eps, 2.0**-1073))
    return Scale(reference=r, unit=unit, rms=1.0, constants=constants(gold.dtype))


def _coarseness(r: Tensor, beyond: Tensor, error32: Tensor, dtype: torch.dtype) -> float:
    """See `Scale.coarseness`; at most what one rounding to `dtype` inside of an op may do to fp32.

    Taken where |r| is least, as the last rounding hides the others elsewhere.
    """
    if dtype.itemsize > 2 or r.numel() < _FRACTION:
        return 1.0
    taken = slice(None, None, max(1, r.numel() // _LOOKED_AT))
    size = r[taken].abs()
    small = (size <= size.kthvalue(len(size) // _FRACTION).values).nonzero().reshape(-1)
    single, further = error32[taken][small], beyond[taken][small].clamp_min(0.0)
    least, greatest = _rms_of(single, further)
    most = torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
    return min(max(1.0, greatest / least), most) if least else 1.0


def _groups(error: Tensor, rows: Tensor | None) -> Tensor | None:
    """Group of each element, by how much its row errs, 0 the most; None if all are of one.

    What kernels may err in one row says nothing of another: a row of small numbers beside a row of large ones, or a
    well-conditioned one beside an ill-conditioned one, would otherwise be allowed the other's error.
    """
    if rows is None or not error.numel():
        return None
    count = int(rows.max()) + 1
    if count < 2 or error.numel() < _LEAST_PER_ROW * count:
        return None
    sizes = torch.bincount(rows, minlength=count).clamp_min(1)
    squares = torch.zeros(count, dtype=torch.float64, device=error.device).index_add_(0, rows, error**2)
    exponents = (squares / sizes).clamp_min(1e-300).log2() / 2
    group = ((exponents.max() - exponents) / _GROUP_STEP).clamp_(0, _GROUPS - 1).to(torch.int64)
    held = torch.bincount(group, weights=sizes.to(torch.float64), minlength=_GROUPS).tolist()
    into = [*range(_GROUPS)]
    for number in range(_GROUPS - 1, 0, -1):  # a small one joins the next that errs more
        if held[number] < _LEAST_PER_GROUP:
            held[number - 1] += held[number]
            into = [number - 1 if one == number else one for one in into]
    return torch.tensor(into, device=error.device)[group][rows]


def _floors(error: Tensor, groups: Tensor | None) -> Tensor:
    """2·rms(e) of each group, (groups, 1), or of all, (); at most that of all, and at least that by 2¹², for rows on which torch is exact."""
    whole = 2.0 * _rms_there(error)
    if groups is None:
        return whole
    squares = reduced(error**2, groups, _GROUPS, "sum")
    own = 2.0 * (squares / torch.bincount(groups, minlength=_GROUPS).clamp_min(1)).sqrt()
    return own[:, None].clamp(whole * 2.0 ** -(_GROUP_STEP * (_GROUPS - 1)), whole)


def reduced(values: Tensor, numbers: Tensor, count: int, how: str) -> Tensor:
    """The sum ("sum") or the greatest ("amax") of the values of each of a few groups, which are numbered from 0; at least 0."""
    # A GPU's atomic operations on one address wait for each other.
    lanes = _LANES if values.is_cuda else 1
    places = (
        numbers * lanes + torch.arange(len(numbers), device=numbers.device) % lanes if lanes > 1 else numbers
    )
    found = values.new_zeros(count * lanes).scatter_reduce_(0, places, values, how).reshape(count, lanes)
    return found.sum(1) if how == "sum" else found.amax(1)


def _conditioning(perturbed: Tensor, r: Tensor, *, jump: float = _JUMP) -> Tensor:
    """|p − r|, 0 where p jumped: an op with steps is not ill-conditioned for stepping."""
    return _unless_it_jumped(finite_distance(perturbed, r), r, jump)


def _unless_it_jumped(distance: Tensor, r: Tensor, jump: float = _JUMP) -> Tensor:
    size = torch.nan_to_num(r, nan=0.0, posinf=0.0, neginf=0.0).abs_()
    return distance.masked_fill_(distance > jump * size.clamp_min_(_rms_there(size)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What an answer is compared with; flat tensors of equal length, float64.

    An element passes iff |y − expected| ≤ peak_limit·unit + slack; all together pass iff moreover
    rms(|y − expected| / unit) ≤ rms_limit.
    """

    expected: Tensor
    """The gold, or the reference."""
    unit: Tensor
    """T, or allclose's atol + rtol·|gold|."""
    peak_limit: float
    """Greatest distance in units."""
    rms_limit: float
    """Greatest rms of the distance in units; infinite for allclose."""
    slack: Tensor | None = None
    """Further allowed distance, element by element: the gold's own distance from the reference."""
    exact_patterns: bool = True
    """Whether NaN and infinities must be where `expected` has them. False where that was looked at
    before, with more knowledge; elements that are not finite then pass."""

    def allowed(self) -> Tensor:
        """Greatest distance of each element."""
        limit = self.unit * self.peak_limit
        return limit if self.slack is None else limit + self.slack

    def allowed_at(self, index: int) -> float:
        """Greatest distance of one element."""
        slack = 0.0 if self.slack is None else float(self.slack[index])
        return float(self.unit[index]) * self.peak_limit + slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """An answer against a bound."""

    z: Tensor
    """Distance in units, element by element."""
    relative: Tensor
    """Distance over allowed distance, times `relative_limit`; infinite where a pattern is broken."""
    relative_limit: float
    """What `relative` may be."""
    peak_share: float
    """Greatest distance over allowed distance: above 1 fails."""
    rms_share: float
    """rms z over its limit: above 1 fails."""

    @property
    def share(self) -> float:
        """The greater share."""
        return max(self.peak_share, self.rms_share)

    @property
    def passed(self) -> bool:
        """Whether both conditions hold."""
        return self.share <= 1.0


def against_reference(scale: Scale) -> Bound:
    """Rule 2."""
    return Bound(
        expected=scale.reference,
        unit=scale.unit,
        peak_limit=scale.peak_limit,
        rms_limit=scale.rms_limit,
        exact_patterns=False,
    )


def against_gold(
    gold: Tensor, scale: Scale, positions: Tensor | None, *, exact_patterns: bool = False
) -> Bound:
    """Rule 1, derived: the answer may be as far from r as rule 2 allows, and gold is where it is.

    Args:
        gold: recorded elements, flat, any floating dtype.
        scale: that of the whole output at the recorded inputs.
        positions: which elements of the output `gold` has, None for all.
        exact_patterns: whether NaN and infinities must be where the gold has them. The form of an answer
            says so with more knowledge: where torch overflowed and the reference did not, both are right.

    An answer and a gold from different devices may err by different amounts, so z_t and z_g both count.
    """
    g = gold.to(torch.float64)
    r, unit = scale.reference, scale.unit
    if positions is not None:
        r, unit = r[positions], unit[positions]
    slack = finite_distance(g, r)
    z_gold = slack / unit
    peak_limit = scale.constants.peak * max(1.0, peak(z_gold))
    rms_gold = rms(z_gold)
    rms_limit = max(scale.constants.rms * max(scale.rms, rms_gold), peak_limit / math.sqrt(max(1, g.numel())))
    return Bound(
        expected=g,
        unit=unit,
        peak_limit=peak_limit,
        rms_limit=rms_limit + rms_gold,
        slack=slack,
        exact_patterns=exact_patterns,
    )


def allclose(gold: Tensor, tolerance: Tolerance) -> Bound:
    """Rule 1 with an explicit tolerance: |y − gold| ≤ atol + rtol·|gold|, element by element."""
    g = gold.to(torch.float64)
    # An infinite gold makes an infinite tolerance, but there only the same infinity passes.
    unit = tolerance.atol + tolerance.rtol * g.abs().nan_to_num(nan=0.0, posinf=0.0)
    # A tolerance of 0 admits distance 0 and no other: 0 / 1e-300 = 0, and the least float32 is 1e-45.
    unit = unit.clamp_min(1e-300)
    return Bound(expected=g, unit=unit, peak_limit=1.0, rms_limit=math.inf)


def assess(answer: Tensor, bound: Bound) -> Assessment:
    """Measure an answer (flat, as long as the bound, any floating dtype) against a bound."""
    y = answer.to(torch.float64)
    difference = y - bound.expected
    broken: Tensor | None = None
    if not all_finite(difference):
        irregular = ~torch.isfinite(difference)
        if bound.exact_patterns:
            e = bound.expected
            broken = irregular & ~((y == e) | (torch.isnan(y) & torch.isnan(e)))
        difference = difference.masked_fill(irregular, 0.0)
    distance = difference.abs_()
    z = distance / bound.unit
    # Without slack the allowed distance is the unit times a number: one division does for both conditions.
    relative, limit = (z, bound.peak_limit) if bound.slack is None else (distance / bound.allowed(), 1.0)
    if broken is not None:
        relative = relative.masked_fill(broken, math.inf)
    rms_share = rms(z) / bound.rms_limit if math.isfinite(bound.rms_limit) else 0.0
    return Assessment(
        z=z, relative=relative, relative_limit=limit, peak_share=peak(relative) / limit, rms_share=rms_share
    )


def all_finite(values: Tensor) -> bool:
    """Whether no element is NaN or infinite; in one pass, by the extremes, which are NaN if any element is."""
    if not values.numel():
        return True
    return all(map(math.isfinite, torch.stack(readable(values).aminmax()).tolist()))


def half_ulp(r: Tensor, dtype: torch.dtype) -> Tensor:
    """½ulp in `dtype` of each float64 number."""
    return _half_ulp_table(dtype, r.device)[exponent_bins(r)]


def exponent_bins(r: Tensor) -> Tensor:
    """The biased exponents of float64 numbers: zero and subnormals share bin 0."""
    return (r.view(torch.int64) >> 52).bitwise_and_(_EXPONENTS - 1)


def finite_distance(values: Tensor, reference: Tensor) -> Tensor:
    """|values − reference| in float64, 0 where either is not finite."""
    # A look whether it has to be done would take as long, and the device would be waited for.
    return torch.nan_to_num_((values.to(torch.float64) - reference).abs_(), nan=0.0, posinf=0.0)


@cache
def _half_ulp_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """½ulp in `dtype` of a float64 number with each biased exponent."""
    info = torch.finfo(dtype)
    exponents = torch.arange(_EXPONENTS, dtype=torch.float64, device=device) - 1023.0
    # Infinity and NaN (the last bin) are never measured; their entry is kept finite.
    exponents[-1] = 1023.0
    # fp64's own least subnormal has no half: the least positive float64 stands for it.
    spacing = torch.exp2(exponents) * info.eps
    least = max(info.tiny * info.eps, 2.0**-1073)
    return 0.5 * spacing.clamp_min(least)
