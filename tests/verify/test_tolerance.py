"""The derived rule: its scale, its limits, and the cases in which statistics of torch's own error say nothing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.config import Tolerance
from pytest_cgins.verify import tolerance as rules

HALVES = [torch.float16, torch.bfloat16]
ALL = [torch.float32, *HALVES]


def scale_of(reference: torch.Tensor, dtype: torch.dtype) -> rules.Scale:
    """The scale where torch rounds the reference correctly."""
    return rules.derive(reference, reference.to(dtype), reference.to(torch.float32))


def passes(answer: torch.Tensor, scale: rules.Scale) -> bool:
    return rules.assess(answer.reshape(-1), rules.against_reference(scale)).passed


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(st.floats(1e-30, 1e30), st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=200, deadline=None)
def test_half_an_ulp_is_half_the_distance_of_neighbours(value: float, dtype: torch.dtype) -> None:
    """For a number of the type, ½ulp in the table is half the distance to the next one of greater magnitude."""
    number = torch.tensor([value]).to(dtype)
    above = torch.nextafter(number, torch.full_like(number, torch.inf))
    exact = number.to(torch.float64)
    zeros = torch.zeros(1)
    scale = rules.derive(exact, number, exact)
    assert zeros.numel() == scale.unit.numel()
    assert float(scale.unit) == float(above.to(torch.float64) - exact) / 2


def test_unit_of_zero_is_half_the_least_subnormal() -> None:
    """Where the reference is exactly zero the unit is positive, and as small as the type allows."""
    assert float(scale_of(torch.zeros(1, dtype=torch.float64), torch.float16).unit) == 2.0**-25


def test_unit_grows_with_magnitude_and_covers_the_error_of_smaller_numbers() -> None:
    """The error seen at small magnitude is allowed at every larger one (monotone envelope)."""
    reference = torch.tensor([2.0**-10, 1.0, 2.0**10], dtype=torch.float64)
    error = torch.tensor([1e-3, 0.0, 0.0], dtype=torch.float64)
    unit = rules.derive(reference, reference.to(torch.float32), reference + error).unit
    assert bool((unit >= 1e-3).all())
    assert unit.tolist() == sorted(unit.tolist())


def test_unit_is_at_least_twice_the_rms_error() -> None:
    """2·rms(t32 − r) is a floor of the unit for all magnitudes."""
    reference = normal(1000)
    error = 1e-4 * normal(1000, seed=1)
    unit = rules.derive(reference, reference.to(torch.float32), reference + error).unit
    assert float(unit.min()) >= 2 * rules.rms(error)


@pytest.mark.parametrize("dtype", ALL)
def test_torch_passes_its_own_rule(dtype: torch.dtype) -> None:
    """The answer that made the scale passes it with room to spare."""
    x, w = normal(40, 70).to(dtype), normal(30, 70, seed=1).to(dtype)
    reference = x.double() @ w.double().T
    answer = x @ w.T
    scale = rules.derive(reference, answer, x.float() @ w.float().T)
    assessed = rules.assess(answer.reshape(-1), rules.against_reference(scale))
    assert assessed.passed
    assert assessed.share < 1.0


@pytest.mark.parametrize("dtype", ALL)
def test_one_element_off_by_its_own_size_fails(dtype: torch.dtype) -> None:
    """A single element that is twice what it should be is found among thousands."""
    reference = normal(5000).to(dtype).double()
    scale = scale_of(reference, dtype)
    answer = reference.to(dtype)
    answer[1234] *= 2
    assert not passes(answer, scale)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_bias_of_one_ulp_everywhere_fails_in_half_precision(dtype: torch.dtype) -> None:
    """The rms rule sees what no single element shows: all of them moved by one ulp."""
    reference = normal(5000).abs() + 1e-3
    scale = scale_of(reference, dtype)
    exact = reference.to(dtype)
    moved = torch.nextafter(exact.float(), exact.float() + 1).to(dtype) * (1 + torch.finfo(dtype).eps)
    assessed = rules.assess(moved, rules.against_reference(scale))
    assert assessed.peak_share <= 1.0 < assessed.rms_share


@pytest.mark.parametrize("dtype", ALL)
def test_exact_ops_still_allow_correct_rounding(dtype: torch.dtype) -> None:
    """Where torch is exact on nearly all elements (relu), a kernel that rounds correctly passes."""
    reference = normal(4000).to(dtype).double().clamp_min(0)
    reference[:8] += torch.finfo(dtype).eps / 3
    scale = scale_of(reference.to(dtype).double(), dtype)
    assert scale.rms > 0
    assert passes(reference.to(dtype), scale)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_few_elements_make_the_rms_no_stricter_than_the_peak(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """With a handful of elements torch's rms error may be 0 by luck; the elementwise limit then decides."""
    reference = torch.full(shape, 1.0, dtype=torch.float64)
    scale = scale_of(reference, dtype)
    assert float(scale.unit.max()) > 0
    for part, expected in ((0.99, True), (1.01, False)):
        answer = reference.clone().reshape(-1)
        answer[0] += part * scale.constants.peak * float(scale.unit.max())
        assert passes(answer, scale) is expected


def of_rows(*sizes: float, width: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of these sizes, flat, and the number of each element's."""
    reference = normal(len(sizes), width) * torch.tensor(sizes, dtype=torch.float64)[:, None]
    return reference.reshape(-1), torch.arange(len(sizes)).repeat_interleave(width)


def test_small_rows_are_not_allowed_the_error_of_large_ones() -> None:
    """bf16 operands in a row a thousand times smaller pass where all rows are one, and fail where they are known."""
    reference, rows = of_rows(1000.0, 1.0)
    errors = reference + normal(len(reference), seed=1) * reference.abs() * 1e-5
    wrong = reference.clone()
    wrong[rows == 1] *= 1 + 2.0**-9
    single = errors.to(torch.float32)
    assert passes(wrong, rules.derive(reference, single, single))
    own = rules.derive(reference, single, single, rows=rows)
    assert not passes(wrong, own)
    assert passes(single, own)


@pytest.mark.parametrize("width", [1, 8, 200])
def test_rows_of_one_size_have_one_unit(width: int) -> None:
    """Rows that err alike, or are too short to say, have the unit that they had together."""
    reference, rows = of_rows(*[1.0] * 40, width=width)
    single = reference.to(torch.float32)
    together, apart = (rules.derive(reference, single, single, rows=one).unit for one in (None, rows))
    torch.testing.assert_close(apart, together, rtol=0.3, atol=0.0)


@given(st.lists(st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 50.0]), min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_no_group_is_allowed_more_than_all_together(sizes: list[float]) -> None:
    """Whatever the rows are, their unit is never wider than without them, and torch's own answer passes."""
    reference, rows = of_rows(*sizes, width=70)
    for dtype in ALL:
        answer, single = reference.to(dtype), reference.to(torch.float32)
        together, apart = (rules.derive(reference, answer, single, rows=one) for one in (None, rows))
        assert bool((apart.unit <= together.unit * (1 + 1e-12)).all())
        assert passes(answer, apart)


def test_rows_on_which_torch_is_exact_may_err_a_little() -> None:
    """A unit of nothing would refuse a kernel that flushes the least numbers to zero."""
    reference, rows = of_rows(1.0, 1e-39)
    single = reference.to(torch.float32)
    scale = rules.derive(reference, (single * (1 + 2.0**-20)), single, rows=rows)
    assert passes(torch.where(rows == 1, 0.0, single), scale)


@pytest.mark.parametrize(("dtype", "times"), [(torch.bfloat16, 4), (torch.float16, 16), (torch.float32, 64)])
def test_a_single_number_of_half_precision_is_close(dtype: torch.dtype, times: float) -> None:
    """Its last rounding is most of what it may err; two numbers have the limits of many."""
    for numbers, limit in (([1.5], times), ([1.5, 1.5], rules.constants(dtype).peak)):
        assert scale_of(torch.tensor(numbers, dtype=torch.float64), dtype).peak_limit == limit


@pytest.mark.parametrize(
    ("shape", "value", "expected"), [((100,), 0.1, True), ((100,), 0.1001, False), ((0,), 0.0, True)]
)
def test_one_number_or_none_has_a_scale(shape: tuple[int, ...], value: float, expected: bool) -> None:
    """One exponent bin is enough, and of no element there is no division by zero."""
    scale = scale_of(torch.full(shape, 0.1, dtype=torch.float64), torch.float32)
    assert passes(torch.full(shape, value), scale) is expected


def test_elements_that_are_not_finite_leave_the_scale_alone() -> None:
    """Infinities and NaN in the reference or in torch's answer do not widen the unit."""
    reference = normal(100)
    plain = scale_of(reference, torch.float32)
    reference[3], reference[4] = torch.inf, torch.nan
    irregular = scale_of(reference, torch.float32)
    assert math.isfinite(irregular.rms)
    torch.testing.assert_close(irregular.unit[5:], plain.unit[5:], rtol=0.02, atol=0.0)


def test_double_precision_is_measured_in_its_own_ulps() -> None:
    """For fp64 outputs the fp32 error is scaled down: an error of fp32's size fails."""
    x, w = normal(20, 50), normal(10, 50, seed=1)
    reference = x @ w.T
    scale = rules.derive(reference, reference, (x.float() @ w.float().T).double())
    assert passes((x.flip(1) @ w.flip(1).T), scale)
    assert not passes((x.float() @ w.float().T).double(), scale)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, (64.0, 64.0)),
        (torch.float64, (64.0, 64.0)),
        (torch.float16, (64.0, 4.0)),
        (torch.bfloat16, (16.0, 1.5)),
    ],
)
def test_constants_by_width(dtype: torch.dtype, expected: tuple[float, float]) -> None:
    """Wide types have the constants of fp32, narrow ones those of half precision."""
    found = rules.constants(dtype)
    assert (found.peak, found.rms) == expected


def test_conditioning_stands_in_for_torchs_luck() -> None:
    """Where torch is exact by luck, an error as large as a rounding of the inputs makes still passes."""
    reference = normal(1, 1000)
    moved = reference * (1 + 2.0**-20)
    lucky = rules.derive(reference, reference.float(), reference.float().double())
    fair = rules.derive(reference, reference.float(), reference.float().double(), moved)
    answer = reference * (1 + 2.0**-16)
    assert not passes(answer, lucky)
    assert passes(answer, fair)
    assert not passes(reference * (1 + 2.0**-12), fair)


def test_a_step_is_not_ill_conditioned() -> None:
    """Elements that jump when the inputs are rounded once more do not widen the tolerance."""
    reference = torch.ones(100, dtype=torch.float64)
    jumped = reference.clone()
    jumped[7] = 2.0
    calm = rules.derive(reference, reference.float(), reference.float())
    assert torch.equal(rules.derive(reference, reference.float(), reference.float(), jumped).unit, calm.unit)


def test_conditioning_is_scaled_for_fp64() -> None:
    """An fp64 kernel is held to fp64's rounding: the perturbation of fp32's size counts in proportion."""
    reference = normal(1, 1000)
    scale = rules.derive(reference, reference, reference, reference * (1 + 2.0**-20))
    assert passes(reference * (1 + 2.0**-48), scale)
    assert not passes(reference * (1 + 2.0**-24), scale)


def test_gold_bound_allows_for_the_distance_of_the_gold() -> None:
    """An answer may be as far from the gold as it may be from the reference, plus the gold's own error."""
    reference = normal(2000)
    scale = scale_of(reference, torch.float16)
    gold = reference.to(torch.float16)
    bound = rules.against_gold(gold, scale, None)
    assert rules.assess(reference, bound).passed
    assert bound.slack is not None
    wrong = gold.double()
    wrong[7] += 1.01 * bound.allowed_at(7)
    assert not rules.assess(wrong, bound).passed


def test_gold_bound_looks_at_sampled_positions_only() -> None:
    """The unit at a sampled position is that of this element."""
    reference = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    scale = scale_of(reference, torch.float16)
    bound = rules.against_gold(reference[[2]].to(torch.float16), scale, torch.tensor([2]))
    assert torch.equal(bound.unit, scale.unit[[2]])


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        ([1.0, 2.0, torch.inf, torch.nan], True),
        ([1.0009, 2.0019, torch.inf, torch.nan], True),
        ([1.0, 2.1, torch.inf, torch.nan], False),
        ([1.0, 2.0, -torch.inf, torch.nan], False),
        ([1.0, 2.0, 1e30, torch.nan], False),
        ([1.0, 2.0, torch.inf, 0.0], False),
        ([torch.nan, 2.0, torch.inf, torch.nan], False),
    ],
)
def test_allclose_is_plain(answer: list[float], passed: bool) -> None:
    """|y − gold| ≤ atol + rtol·|gold|, infinities equal, NaN only where gold has NaN."""
    gold = torch.tensor([1.0, 2.0, torch.inf, torch.nan])
    bound = rules.allclose(gold, Tolerance(kind="explicit", rtol=1e-3, atol=0.0))
    assert rules.assess(torch.tensor(answer), bound).passed is passed


def test_allclose_of_zero_tolerance_takes_equal_numbers() -> None:
    """rtol = atol = 0 means equal, and is not a division by zero."""
    bound = rules.allclose(torch.tensor([0.0, 1.0]), Tolerance(kind="explicit"))
    assert rules.assess(torch.tensor([0.0, 1.0]), bound).share == 0.0
    assert not rules.assess(torch.tensor([1e-30, 1.0]), bound).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gold_alone_admits_other_orders_of_sums_and_no_mistakes(dtype: torch.dtype) -> None:
    """One answer is all that is known: split sums and plain loops pass, a factor of 1.02 and a dropped term do not."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator).to(dtype) for shape in ((16, 1024), (1024, 24)))
    gold = (x @ w).reshape(-1)
    bound = rules.against_gold(gold, rules.of_gold(gold), None, exact_patterns=True)

    def passes(answer: torch.Tensor) -> bool:
        return rules.assess(answer.to(dtype).reshape(-1), bound).passed

    parts = [a.float() @ b.float() for a, b in zip(x.split(32, 1), w.split(32), strict=True)]
    loop = torch.zeros(16, 24)
    for part in parts:
        loop += part
    assert passes(loop)
    assert passes(torch.stack(parts[::-1]).sum(0))
    assert passes(x.double() @ w.double())
    assert not passes(1.02 * gold.double())
    assert not passes(x[:, 1:].double() @ w[1:].double())
    assert not passes(gold.roll(1))
    assert not passes(torch.zeros(384))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("how", ["sum", "amax"])
def test_groups_are_reduced_each_by_itself(device: str, how: str) -> None:
    """However many lanes a GPU takes for it; a group without elements has 0."""
    values, numbers = normal(5000).abs().double(), torch.arange(5000) % 3
    expected = [float(getattr(values[numbers == one], how)()) for one in range(3)] + [0.0]
    found = rules.reduced(values.to(device), numbers.to(device), 4, how)
    assert found.tolist() == pytest.approx(expected)
