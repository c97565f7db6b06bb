"""The sequential test: its e-values, its bound under all sorts of noise, when it ends, and what it says it can see.

`tests/benchmarks/sequential_simulation.py` draws the same in numbers that are too great for here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_cgins.timing.sequential import (
    LAMBDAS,
    MOST_NEEDED,
    Outcome,
    Rule,
    SequentialTest,
    chance_of_clearing,
    chance_of_proof,
    log_e,
    median_interval,
    power,
    robust_sigma,
)

DEFAULT = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=200, most_blocks=64)
counts = st.integers(0, 300)
# On either side of both bounds of DEFAULT and of that for "faster".
sides = st.sampled_from([-0.05, -0.01, 0.0, 0.025, 0.08])
# Runs of one side: a test on blocks drawn one by one would hardly ever prove anything.
log_ratios = st.lists(st.tuples(sides, st.integers(1, 20)), max_size=8).map(
    lambda runs: [value for value, times in runs for _ in range(times)][:64]
)
Noise = Callable[[np.random.Generator, int], Any]


def rule(**changes: Any) -> Rule:
    values = {name: getattr(DEFAULT, name) for name in Rule.__slots__}
    return Rule(**{**values, **changes})


def ended(test: SequentialTest, values: Iterable[float]) -> int:
    """Feed it until it is done; how many blocks it took."""
    taken = 0
    for value in values:
        if test.done:
            break
        test.add(value)
        taken += 1
    return taken


def outcomes(by: Rule, draws: Any) -> tuple[list[Outcome], float]:
    """What tests on rows of log ratios end with, and the mean of their blocks."""
    found: list[Outcome] = []
    blocks = 0
    for row in draws.tolist():
        test = SequentialTest(by)
        blocks += ended(test, row)
        found.append(test.outcome)
    return found, blocks / len(found)


def drawn(log_ratio: float, sigma: float, runs: int, blocks: int = 64, seed: int = 6) -> Any:
    return np.random.default_rng(seed).normal(log_ratio, sigma, (runs, blocks))


# ---- e-values


@given(signs=st.lists(st.booleans(), max_size=60))
def test_an_e_value_is_the_mean_over_stakes_of_the_product_of_bets(signs: list[bool]) -> None:
    """As the formula has it, bet by bet."""
    products = [math.prod(1 + (stake if sign else -stake) for sign in signs) for stake in LAMBDAS]
    naive = sum(products) / len(products)
    assert math.isclose(math.exp(log_e(sum(signs), len(signs) - sum(signs))), naive, rel_tol=1e-9)


@given(n=st.integers(0, 400), share=st.floats(0, 0.5))
@settings(deadline=None)
def test_the_expectation_under_the_null_is_at_most_1(n: int, share: float) -> None:
    """At every number of blocks: just 1 where half of them are won, and no more where fewer are."""
    expected = math.fsum(
        math.exp(
            log_e(k, n - k) + math.log(math.comb(n, k)) + log_power(share, k) + log_power(1 - share, n - k)
        )
        for k in range(n + 1)
    )
    assert expected <= 1 + 1e-9
    if share == 0.5:
        assert math.isclose(expected, 1, rel_tol=1e-9)


def log_power(base: float, exponent: int) -> float:
    return exponent * math.log(base) if base > 0 else 0.0 if exponent == 0 else -math.inf


@given(won=counts, lost=counts)
def test_a_won_block_raises_the_e_value_and_a_lost_one_lowers_it(won: int, lost: int) -> None:
    """So that a row of wins is the nearest way to a proof."""
    assert log_e(won + 1, lost) > log_e(won, lost) > log_e(won, lost + 1)


@given(values=log_ratios, order=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_e_values_hang_on_counts_alone(values: list[float], order: Any) -> None:
    """The same blocks in another order make the same e-values."""
    shuffled = values[:]
    order.shuffle(shuffled)
    endless = rule(alpha=1e-300, beta=1e-300, most_blocks=65)
    one, other = SequentialTest(endless), SequentialTest(endless)
    assert ended(one, values) == ended(other, shuffled) == len(values)
    if values:
        first, second = one.comparison("base"), other.comparison("base")
        assert first.log_e_slower == second.log_e_slower
        assert first.log_e_clean == second.log_e_clean
        assert first.log_e_faster == second.log_e_faster


# ---- the bound


def chance_ever(share: float, blocks: int, target: float) -> float:
    """That the log e-value is `target` or more after any of so many blocks, of which this share is won."""
    chance, undecided = 0.0, {0: 1.0}
    for n in range(1, blocks + 1):
        after: dict[int, float] = {}
        for won, part in undecided.items():
            after[won] = after.get(won, 0.0) + part * (1 - share)
            after[won + 1] = after.get(won + 1, 0.0) + part * share
        proven = {won for won in after if log_e(won, n - won) >= target}
        chance += math.fsum(after[won] for won in proven)
        undecided = {won: part for won, part in after.items() if won not in proven}
    return chance


@pytest.mark.parametrize("tests", [1, 20, 200, 2000])
@pytest.mark.parametrize("blocks", [64, 256])
def test_false_alarms_stay_within_the_bound_exactly(tests: int, blocks: int) -> None:
    """A kernel on the bound itself, looked at after each block: a chance of at most α/N, block by block summed up."""
    by = rule(tests=tests)
    assert 0 < chance_ever(0.5, blocks, by.log_proof) * tests <= by.alpha
    assert 0 < chance_ever(0.5, blocks, by.log_clear) <= by.beta


def normal(source: np.random.Generator, runs: int) -> Any:
    return source.normal(0, 0.04, (runs, 64))


def heavy(source: np.random.Generator, runs: int) -> Any:
    return 0.02 * source.standard_t(2, (runs, 64))


def skewed(source: np.random.Generator, runs: int) -> Any:
    """Median 0, and a mean of 1.2%."""
    return 0.04 * (source.exponential(1, (runs, 64)) - math.log(2))


def spikes(source: np.random.Generator, runs: int) -> Any:
    """One block in five is off by 16%, on either side."""
    far = 0.16 * source.choice([-1, 0, 1], (runs, 64), p=[0.1, 0.8, 0.1])
    return source.normal(0, 0.01, (runs, 64)) + far


@pytest.mark.exam
@pytest.mark.parametrize("noise", [normal, heavy, skewed, spikes])
def test_no_shape_of_noise_breaks_the_bound(noise: Noise) -> None:
    """Blocks whose median is the tolerated slowdown: among 600 tests at α = 5% no more alarms than that, and
    no more are cleared whose median is the bound of that."""
    by = rule(alpha=0.05, beta=0.05, tests=1)
    draws = noise(np.random.default_rng(6), 600)
    most = 30 + 4 * math.sqrt(30 * 0.95)
    found, _ = outcomes(rule(alpha=0.05, beta=1e-300, tests=1), draws + by.slower_bound)
    assert 5 < found.count("slower") <= most
    found, _ = outcomes(rule(alpha=1e-300, beta=0.05, tests=1), draws + by.clean_bound)
    assert 5 < found.count("clean") <= most


def test_the_bound_is_one_of_the_whole_suite() -> None:
    """1,000 suites of 200 kernels on the bound: at most α of them, as far as 1,000 tell, have an alarm at all."""
    enough = [
        next(won for won in range(n + 2) if won > n or log_e(won, n - won) >= DEFAULT.log_proof)
        for n in range(65)
    ]
    signs = np.random.default_rng(6).random((1000, 200, 64), dtype=np.float32) < 0.5
    alarmed = (np.cumsum(signs, axis=2, dtype=np.int16) >= np.array(enough[1:])).any(axis=(1, 2))
    assert alarmed.sum() <= 10 + 4 * math.sqrt(10)


def test_blocks_on_the_bound_prove_nothing() -> None:
    """A tie is lost for every bet: else a few blocks above among many ties would be a proof."""
    exact = rule(tolerate=0.0, catch=0.05)
    test = SequentialTest(exact)
    ended(test, [0.0] * 8)
    comparison = test.comparison("base")
    assert comparison.log_e_slower == comparison.log_e_faster == log_e(0, 8)
    test = SequentialTest(exact)
    ended(test, [exact.clean_bound] * 8)
    assert test.comparison("base").log_e_clean == log_e(0, 8)


# ---- the figures


def test_clean_kernels_take_about_9_blocks_and_slow_ones_are_found() -> None:
    """By the noise of an H200 (σ = 1%): 9 blocks to clear, 18 to find 5%, and more than 99% of these are found."""
    clean, blocks = outcomes(DEFAULT, drawn(0.0, 0.01, 500))
    assert clean.count("clean") == 500
    assert 9 <= blocks < 9.2
    slow, blocks = outcomes(DEFAULT, drawn(math.log(1.05), 0.01, 1000))
    assert slow.count("slower") >= 990
    assert 17 <= blocks < 18
    assert outcomes(DEFAULT, drawn(math.log(1.08), 0.01, 300))[0].count("slower") == 300
    fast, _ = outcomes(DEFAULT, drawn(-math.log(1.05), 0.01, 300))
    assert fast.count("faster") >= 297


@pytest.mark.exam
def test_much_noise_ends_undecided_rather_than_in_a_lie() -> None:
    """With σ = 4% two of five kernels that are slower by 5% are found; of the others a hundredth is cleared at most."""
    found, _ = outcomes(DEFAULT, drawn(math.log(1.05), 0.04, 1000))
    assert 0.35 < found.count("slower") / 1000 < 0.5
    assert found.count("clean") <= 10 + 4 * math.sqrt(10)
    assert found.count("inconclusive") > 500
    assert "slower" not in outcomes(DEFAULT, drawn(0.0, 0.04, 300))[0]


@pytest.mark.parametrize(("bias", "sigma"), [(0.01, 0.01), (0.02, 0.002)])
def test_a_kernel_slower_by_what_must_be_caught_is_not_cleared_by_a_biased_process(
    bias: float, sigma: float
) -> None:
    """Neither with noise, for the bound of clearing lies halfway to the tolerated, nor without, where more bias is seen
    through, since nothing is cleared that may still be proven slower."""
    found, _ = outcomes(DEFAULT, drawn(math.log(1.05) - bias, sigma, 500))
    assert found.count("clean") <= 5 + 4 * math.sqrt(5)


def test_between_both_bounds_a_quiet_kernel_is_called_slower() -> None:
    """3% is more than the tolerated 2%, and each block says so: that "clean" has its proof first does not end it."""
    test = SequentialTest(DEFAULT)
    assert ended(test, [math.log(1.03)] * 64) == 17
    assert test.outcome == "slower"
    assert test.comparison("base").log_e_clean > DEFAULT.log_clear
    ahead = SequentialTest(DEFAULT)
    ended(ahead, [math.log(1.03)] * 9)
    assert (ahead.outcome, ahead.done, ahead.fewest_left) == ("clean", False, 1)


# ---- ends


@given(values=log_ratios, more=log_ratios)
# Cleared, and perhaps faster: a single block that speaks against "faster" ends it.
@example(values=[-0.05] * 9 + [0.0] * 3, more=[0.0] * 9)
@settings(max_examples=300, deadline=None)
def test_fewest_left_is_never_too_many(values: list[float], more: list[float]) -> None:
    """However the blocks fall, a test is not done before so many more."""
    test = SequentialTest(DEFAULT)
    ended(test, values)
    promised = test.fewest_left
    assert (promised == 0) == test.done
    for index, value in enumerate(more):
        if test.done:
            assert index >= promised
            break
        test.add(value)


def test_fewest_left_is_what_a_row_of_wins_takes() -> None:
    """9 blocks clear at β = 1%, or as many as are allowed; each block that is won takes one off."""
    test = SequentialTest(DEFAULT)
    for left in range(9, 0, -1):
        assert test.fewest_left == left
        test.add(0.0)
    assert test.fewest_left == 0
    assert SequentialTest(rule(most_blocks=5)).fewest_left == 5
    cleared = SequentialTest(DEFAULT)
    ended(cleared, [-0.05] * 9)
    assert (cleared.outcome, cleared.done) == ("clean", False)


@pytest.mark.exam
@given(values=log_ratios)
@settings(deadline=None)
def test_an_outcome_is_what_the_e_values_prove(values: list[float]) -> None:
    """Each by its own threshold, never two at once, and the end comes with a proof or with the last block."""
    test = SequentialTest(DEFAULT)
    taken = ended(test, values)
    if not taken:
        assert (test.outcome, test.done) == ("inconclusive", False)
        return
    comparison = test.comparison("base")
    assert comparison.log_ratios == tuple(values[:taken])
    slower = comparison.log_e_slower >= math.log(200 / 0.01)
    faster = comparison.log_e_faster >= math.log(200 / 0.01)
    clean = comparison.log_e_clean >= math.log(1 / 0.01)
    assert not (slower and faster)
    assert comparison.outcome == test.outcome
    assert (comparison.outcome == "slower") == slower
    assert (comparison.outcome == "faster") == faster
    assert (comparison.outcome == "clean") == (clean and not slower and not faster)
    assert test.done == (
        slower
        or faster
        or taken == 64
        or (clean and max(comparison.log_e_slower, comparison.log_e_faster) < 0)
    )
    if taken < len(values):
        with pytest.raises(ValueError, match=f"the test ended after {taken} blocks: {test.outcome}"):
            test.add(0.0)


def test_a_kernel_that_is_clean_and_may_be_faster_goes_on() -> None:
    """It is told as faster in the end, where clean would have been proven 8 blocks before."""
    test = SequentialTest(DEFAULT)
    assert ended(test, [-0.05] * 64) == 17
    assert test.outcome == "faster"


@pytest.mark.exam
@given(values=log_ratios, shift=st.floats(-0.1, 0.1))
@settings(deadline=None)
def test_a_shift_moves_what_is_tested_and_not_what_is_told(values: list[float], shift: float) -> None:
    """A floor of so much of torch's speed is the same test on shifted blocks; the ratio stays the measured one."""
    shifted, plain = SequentialTest(DEFAULT, shift=shift), SequentialTest(DEFAULT)
    taken = ended(shifted, values)
    assert ended(plain, [value + shift for value in values]) == taken
    assert shifted.outcome == plain.outcome
    if taken:
        comparison = shifted.comparison("torch")
        assert (comparison.against, comparison.shift) == ("torch", shift)
        assert comparison.log_ratios == tuple(values[:taken])
        assert comparison.ratio_low <= comparison.ratio <= comparison.ratio_high
        assert math.isclose(comparison.ratio, math.exp(float(np.median(values[:taken]))), rel_tol=1e-12)


# ---- the rule


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"catch": 0.02}, "catch is 0.02: it must be finite and above tolerate, 0.02, which is at least 0"),
        ({"tolerate": -0.01}, "above tolerate, -0.01, which is at least 0"),
        ({"tolerate": math.nan}, "above tolerate, nan"),
        ({"catch": math.inf}, "catch is inf: it must be finite"),
        ({"alpha": 0.0}, "alpha is 0.0: a chance between 0 and 1 is needed"),
        ({"beta": 1.0}, "beta is 1.0: a chance between 0 and 1 is needed"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"tests": 0}, "tests is 0: at least 1 is needed"),
        ({"most_blocks": 0}, "most_blocks is 0: at least 1 is needed"),
    ],
)
def test_an_impossible_rule_is_refused(changes: dict[str, Any], words: str) -> None:
    """With the value and what it must be."""
    with pytest.raises(ValueError, match=re.escape(words)):
        rule(**changes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    """As a block and as a shift: it would be counted as lost, whatever it stood for."""
    with pytest.raises(
        ValueError, match=f"a block's log ratio is {value}: its times must be finite and above 0"
    ):
        SequentialTest(DEFAULT).add(value)
    with pytest.raises(ValueError, match=f"a shift of log ratios is {value}: a finite number is needed"):
        SequentialTest(DEFAULT, shift=value)


def test_a_test_without_blocks_has_no_comparison() -> None:
    """There is no ratio to tell."""
    with pytest.raises(ValueError, match="at least one value"):
        SequentialTest(DEFAULT).comparison("base")


def test_a_spread_between_processes_moves_both_bounds() -> None:
    """By 2.5 times its upper bound, on top of what is tolerated; δ₁ keeps its distance."""
    moved = DEFAULT.beside_spread(0.01)
    assert (moved.tolerate, moved.catch) == (pytest.approx(0.045), pytest.approx(0.075))
    assert DEFAULT.beside_spread(0.0) == DEFAULT


@given(tolerate=st.floats(0, 0.5), gap=st.floats(0.001, 0.5))
def test_clean_lies_halfway(tolerate: float, gap: float) -> None:
    """Its bound is as far, in logarithms, from what is tolerated as from what must be caught."""
    one = rule(tolerate=tolerate, catch=tolerate + gap)
    assert one.clean_bound - one.slower_bound == pytest.approx(math.log1p(one.catch) - one.clean_bound)


# ---- numbers made from blocks


def interval_rank(n: int) -> int:
    """Of the interval's lower end among n values; its upper end has the same from above."""
    low, middle, high = median_interval([float(value) for value in range(n)][::-1])
    assert (low, middle) == (n - 1 - high, (n - 1) / 2)
    return int(low)


@pytest.mark.parametrize("most", [8, 64, 300])
def test_an_interval_holds_the_median_whenever_one_stops(most: int) -> None:
    """Who stops as soon as it does not, sees that in at most 5% of runs: exactly, value by value. An
    interval for a fixed number of values is left by the median in 18% of runs of 64."""
    missed, undecided = 0.0, {0: 1.0}  # by how many values lie below the median
    for n in range(1, most + 1):
        after: dict[int, float] = {}
        for below, part in undecided.items():
            after[below] = after.get(below, 0.0) + part / 2
            after[below + 1] = after.get(below + 1, 0.0) + part / 2
        rank = interval_rank(n)
        out = {below for below in after if n >= 8 and min(below, n - below) <= rank}
        missed += math.fsum(after[below] for below in out)
        undecided = {below: part for below, part in after.items() if below not in out}
    assert 0 < missed <= 0.05


@pytest.mark.exam
@pytest.mark.parametrize(("shape", "stop"), [("normal", "low"), ("ties", "high"), ("skewed", "low")])
def test_no_noise_and_no_rule_of_stopping_breaks_an_interval(shape: str, stop: str) -> None:
    """Stopped where the median looks least, or greatest: few values of a clock that ticks coarsely, or one long tail."""
    source, missed = np.random.default_rng(6), 0
    for _ in range(300):
        values = source.normal(0, 1, 64)
        if shape == "ties":
            values = np.round(values)
        if shape == "skewed":
            values = source.exponential(1, 64) - math.log(2)
        medians = [float(np.median(values[:n])) for n in range(8, 65)]
        worst = min(medians) if stop == "low" else max(medians)
        low, _, high = median_interval(values[: 8 + medians.index(worst)].tolist())
        missed += not low <= 0 <= high
    assert missed <= 15  # 5%


def test_an_interval_of_thousands_of_values_is_narrow() -> None:
    """Calibrations have so many; it is twice as wide as that of a number that is fixed, about 2√n."""
    assert 4000 - 2 * interval_rank(4000) == pytest.approx(2 * 1.96 * math.sqrt(4000), rel=0.06)
    assert [interval_rank(n) for n in (1, 2, 8, 9, 17, 64)] == [0, 0, 0, 0, 2, 19]


def test_the_spread_is_that_of_the_bulk() -> None:
    """σ of normal noise, and one block that is off by 16% does not move it."""
    values = np.random.default_rng(6).normal(0, 0.01, 4001).tolist()
    assert robust_sigma(values) == pytest.approx(0.01, rel=0.05)
    assert robust_sigma([0.01, 0.0, -0.01, 0.005, -0.005, 0.16]) < 0.015


# ---- what a test can see


@given(share=st.floats(0, 1), blocks=st.integers(1, 60), side=st.sampled_from(["proof", "clearing"]))
@settings(deadline=None)
def test_chances_are_those_of_the_binomial(share: float, blocks: int, side: str) -> None:
    """Exact in fractions: that as many blocks are won as are enough."""
    by = rule(most_blocks=blocks)
    sigma = 0.01
    margin = sigma * float(np.clip(share * 8 - 4, -4, 4))
    won = Fraction(0.5 * math.erfc(-margin / sigma / math.sqrt(2)))
    if side == "proof":
        target, told = by.log_proof, chance_of_proof(by.slower_bound + margin, sigma, by, blocks)
    else:
        target, told = by.log_clear, chance_of_clearing(by.clean_bound - margin, sigma, by, blocks)
    exact = sum(
        math.comb(blocks, k) * won**k * (1 - won) ** (blocks - k)
        for k in range(blocks + 1)
        if log_e(k, blocks - k) >= target
    )
    assert math.isclose(told, float(exact), rel_tol=1e-6, abs_tol=1e-12)


def test_without_noise_everything_is_certain() -> None:
    """σ = 0: above the bound it is proven, on it or below never."""
    assert chance_of_proof(0.03, 0.0, DEFAULT, 17) == 1
    assert chance_of_proof(0.03, 0.0, DEFAULT, 16) == 0
    assert chance_of_proof(DEFAULT.slower_bound, 0.0, DEFAULT, 64) == 0
    assert power(0.0, DEFAULT).blocks_needed == 17
    assert power(0.0, DEFAULT).detectable == pytest.approx(0.02, abs=2e-4)


@pytest.mark.exam
@pytest.mark.parametrize(("sigma", "least_share"), [(0.001, 0.75), (0.01, 0.89), (0.02, 0.89), (0.04, 0.89)])
def test_what_is_detectable_is_found_in_9_of_10_runs(sigma: float, least_share: float) -> None:
    """With little noise in somewhat fewer, since "clean" may come first; of 3/4 of that slowdown, in far fewer."""
    least = power(sigma, DEFAULT).detectable
    assert least is not None
    found, _ = outcomes(DEFAULT, drawn(math.log1p(least), sigma, 1200))
    assert least_share < found.count("slower") / 1200 < 0.95
    found, _ = outcomes(DEFAULT, drawn(math.log1p(0.75 * least), sigma, 400))
    assert found.count("slower") / 400 < 0.7


@pytest.mark.exam
@pytest.mark.parametrize("sigma", [0.01, 0.03])
def test_the_blocks_needed_decide_in_9_of_10_runs(sigma: float) -> None:
    """Both a kernel that is as fast as before and one that is slower by `catch`; two thirds of them do not."""
    needed = power(sigma, DEFAULT).blocks_needed
    assert needed is not None
    enough, few = rule(most_blocks=needed), rule(most_blocks=2 * needed // 3)
    slow = drawn(math.log(1.05), sigma, 800, needed)
    assert outcomes(enough, slow)[0].count("slower") / 800 > 0.87
    assert outcomes(enough, drawn(0.0, sigma, 800, needed))[0].count("clean") / 800 > 0.87
    assert outcomes(few, slow)[0].count("slower") / 800 < 0.87


@given(sigma=st.floats(0, 2))
@settings(max_examples=50, deadline=None)
def test_more_noise_is_never_less_to_overcome(sigma: float) -> None:
    """As many blocks or more, no end beyond `MOST_NEEDED`, and nothing below the bounds is ever called detectable."""
    one, other = power(sigma, DEFAULT), power(sigma * 1.5, DEFAULT)
    assert other.blocks_needed is None or (one.blocks_needed or 0) <= other.blocks_needed <= MOST_NEEDED
    for told in (one, other):
        assert told.detectable is None or 0.02 * (1 - 1e-9) <= told.detectable <= 1


def test_hopeless_noise_is_told_as_such() -> None:
    """σ = 200%: no doubled time would be seen, and no number of blocks is named."""
    told = power(2.0, DEFAULT)
    assert (told.sigma, told.detectable, told.blocks_needed) == (2.0, None, None)
