from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.core.dtypes import GENERATED, ITEMSIZE
from pytest_cgins.core.errors import PackError
from pytest_cgins.core.trace import Blob, Recipe, Storage
from pytest_cgins.packs import gpu_stream
from pytest_cgins.packs import recipe as recipes
from pytest_cgins.packs.recipe import (
    _cast,
    fit,
    generate,
    positions,
    seal,
    seed_of,
    standard_normal,
    uniform_integers,
    words,
)
from pytest_cgins.packs.statistics import summarize


class Nothing:
    """A source without blobs."""

    def read(self, blob: Blob) -> bytes:
        raise AssertionError(f"nothing should be read, but {blob} was")


NOTHING = Nothing()


def made(tensor: torch.Tensor, *, parameter: bool = False, dtype: str = "float32") -> torch.Tensor:
    """A tensor of 100 000 elements generated from another's statistics."""
    nbytes = 100_000 * ITEMSIZE[dtype]
    recipe = fit(summarize(tensor), dtype, seed=3, parameter=parameter)
    storage, content = seal(Storage(nbytes=nbytes, dtype=dtype, recipe=recipe), NOTHING)
    assert (generate(storage, NOTHING) == content).all()
    return torch.from_numpy(content).view(getattr(torch, dtype))


def test_the_stream_is_the_same_everywhere() -> None:
    """Bytes of the streams are pinned: a change would invalidate every committed pack."""
    normal, integers = standard_normal(7, 1000), uniform_integers(7, 1000, -5, 90)
    chosen = positions(7, 1024, 123_457)
    digests = [hashlib.sha256(array.tobytes()).hexdigest()[:16] for array in (normal, integers, chosen)]
    assert digests == ["81b3df47dd74fd66", "2d2cd5d04ae76a9a", "4356774f081de408"]


@given(
    st.integers(0, 2**64 - 1),
    st.sampled_from(["float32", "float16", "bfloat16"]),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
)
@settings(max_examples=30)
def test_torch_makes_the_same_stream(seed: int, dtype: str, mean: float, std: float) -> None:
    """What a GPU makes is byte for byte what the host makes, on either side of the chunks."""
    low, high = mean - 2 * std, mean + 3 * std
    count = 5000
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        patched.setattr(gpu_stream, "_CHUNK", 2048)
        by_torch = gpu_stream.elements(seed, count, mean, std, low, high, dtype, "cpu")
    recipe = Recipe(distribution="normal", seed=seed, mean=mean, std=std, low=low, high=high, sha256="")
    by_host = recipes._elements(recipe, dtype, count, None)
    assert by_torch is not None
    assert by_torch.tobytes() == by_host.tobytes()


def test_other_dtypes_are_left_to_the_host() -> None:
    assert gpu_stream.elements(1, 10, 0.0, 1.0, -1.0, 1.0, "float64", "cpu") is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gpu_makes_the_same_stream(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Also what is not a recipe's: the fresh inputs of a gate come from `standard_normal`."""
    count, recipe = (
        2**20 + 77,
        Recipe(distribution="normal", seed=9, mean=0.3, std=1.7, low=-3.0, high=3.0, sha256=""),
    )
    torch.cuda.init()
    calls = []
    plain = gpu_stream.elements
    monkeypatch.setattr(gpu_stream, "elements", lambda *args: calls.append(args) or plain(*args))
    by_gpu = (recipes._elements(recipe, dtype, count, None).tobytes(), standard_normal(3, count).tobytes())
    assert len(calls) == 2
    monkeypatch.setattr(recipes, "_gpu_stream", lambda _: None)
    assert by_gpu == (
        recipes._elements(recipe, dtype, count, None).tobytes(),
        standard_normal(3, count).tobytes(),
    )


def test_many_threads_make_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part a thread has, element i is made of the words 2i and 2i + 1."""
    monkeypatch.setattr(recipes, "_PART", 4096)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(5))
    alone = standard_normal(7, 30_001)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(1))
    assert (alone == standard_normal(7, 30_001)).all()
    assert (alone[:1000] == standard_normal(7, 1000)).all()


def test_words_are_those_of_splitmix64() -> None:
    """The first outputs for seed 1234567 are the published ones."""
    assert words(1234567, 3).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_normal_numbers_are_uncorrelated() -> None:
    """Neither neighbours nor streams of neighbouring seeds, nor the numbers around a chunk's end."""
    numbers, others = standard_normal(1, 200_000), standard_normal(2, 200_000)
    for a, b in ((numbers[:-1], numbers[1:]), (numbers, others)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.01
    assert (standard_normal(1, 50_000) == numbers[:50_000]).all()


def test_normal_numbers_have_the_right_moments() -> None:
    """Mean 0, variance 1, within ±4.9, kurtosis of a sum of eight uniform numbers (3 − 0.15)."""
    numbers = standard_normal(1, 400_000).astype(np.float64)
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 1) < 0.01
    assert abs(numbers).max() <= 4.9
    assert abs((numbers**4).mean() - 2.85) < 0.05


@given(st.integers(0, 2**64 - 1), st.integers(0, 5000), st.integers(1, 2**40))
@settings(max_examples=60, deadline=None)
def test_positions_are_distinct_sorted_and_hold_both_ends(seed: int, count: int, numel: int) -> None:
    """Samples are strictly ascending within [0, numel), first and last element included."""
    chosen = positions(seed, max(2, count), numel)
    assert len(chosen) == min(max(2, count), numel)
    assert chosen[0] == 0
    assert chosen[-1] == numel - 1
    assert (np.diff(chosen) > 0).all()


@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_integers_stay_in_their_range(seed: int, low: int, width: int) -> None:
    """Both bounds are inclusive, up to the whole range of int64."""
    high = min(low + width, 2**63 - 1)
    drawn = uniform_integers(seed, 50, low, high)
    assert drawn.min() >= low
    assert drawn.max() <= high


@pytest.mark.parametrize("dtype", sorted(GENERATED - {"bool"}))
def test_every_dtype_is_generated_within_the_recorded_range(dtype: str) -> None:
    """Generated values lie between the recorded extremes, in the dtype's own rounding."""
    source = torch.randint(3, 90, (1000,)).to(getattr(torch, dtype))
    values = made(source, dtype=dtype)
    real = (torch.view_as_real(values) if values.is_complex() else values).to(torch.float64)
    assert real.min() >= (0 if values.is_complex() else 3)
    assert real.max() <= (96 if dtype == "float8_e5m2" else 89)  # to which it rounds 89
    assert real.std() > 1


def test_bfloat16_rounds_as_torch_does() -> None:
    """The integer rounding to bfloat16 equals torch's conversion of the same float32 values."""
    source = torch.randn(5000)
    assert torch.equal(made(source, dtype="bfloat16"), made(source).to(torch.bfloat16))


def test_activations_keep_mean_spread_and_zeros() -> None:
    """A ReLU's output is matched in mean, standard deviation and share of zeros."""
    source = torch.relu(torch.randn(50_000) * 2 + 0.5)
    values = made(source)
    assert abs(values.mean() - source.mean()) < 0.05
    assert abs(values.std() - source.std()) < 0.05
    assert abs((values == 0).float().mean() - (source == 0).float().mean()) < 0.02


def test_constant_parameters_are_spread_and_constant_inputs_are_not() -> None:
    """Bias 0 and gamma 1 would hide a kernel that ignores them."""
    bias, gamma = made(torch.zeros(64), parameter=True), made(torch.ones(64), parameter=True)
    assert bias.std() > 0.3
    assert gamma.min() >= 0.5
    assert gamma.std() > 0.1
    assert made(torch.ones(64)).unique().tolist() == [1.0]


def test_the_extremes_of_int64_stay_in_range() -> None:
    """fp64 statistics round 2⁶³−1 up; the recipe does not follow."""
    source = torch.tensor([torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max])
    recipe = fit(summarize(source), "int64", 1)
    assert int(recipe.high) < 2**63
    assert int(recipe.low) == -(2**63)


def test_masks_keep_their_density() -> None:
    """A bool storage is drawn with the recorded share of True."""
    assert abs(made(torch.rand(10_000) < 0.3, dtype="bool").float().mean() - 0.3) < 0.02


def test_other_bytes_than_recorded_are_an_error() -> None:
    """A host whose stream differs must not use it."""
    recipe = fit(summarize(torch.randn(9)), "float32", 1)
    storage, _ = seal(Storage(nbytes=36, dtype="float32", recipe=recipe), NOTHING)
    recipe = replace(storage.recipe, seed=2)
    with pytest.raises(PackError, match="made bytes with sha256") as caught:
        generate(Storage(nbytes=36, dtype="float32", recipe=recipe), NOTHING)
    assert "record the pack again" in str(caught.value)


def test_seeds_depend_on_every_part() -> None:
    """The same parts give the same 63-bit seed, others another."""
    assert seed_of("op", "x", (2, 3)) == seed_of("op", "x", (2, 3))
    assert len({seed_of("op", "x", (2, 3)), seed_of("op", "x", (3, 2)), seed_of("opx", (2, 3))}) == 3
    assert 0 <= seed_of("op") < 2**63


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_rounds_as_torch_does(dtype: str) -> None:
    """Numbers of the grid, middles of two, their neighbours, subnormals, and what is too large, which saturates."""
    eight = getattr(torch, dtype)
    grid = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(eight).double()
    grid = grid[grid.isfinite()].sort().values
    exact = torch.cat([grid, (grid[1:] + grid[:-1]) / 2]).float()
    finite = torch.finfo(eight).max
    x = torch.cat(
        [exact, *(torch.nextafter(exact, exact + step) for step in (1, -1)), torch.tensor([1.2 * finite])]
    )
    got = torch.from_numpy(_cast(x.numpy(), dtype))
    assert torch.equal(got, x.clamp(-finite, finite).to(eight).view(torch.uint8))


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="this torch has no float8_e8m0fnu")
def test_exponents_are_drawn_as_such() -> None:
    """Between the least and the greatest recorded one, all of them alike; none is NaN."""
    codes = torch.tensor([118, 120, 131], dtype=torch.uint8).repeat(500).view(torch.float8_e8m0fnu)
    values = made(codes, dtype="float8_e8m0fnu").view(torch.uint8)
    assert values.unique().tolist() == list(range(118, 132))
    assert values.float().std() > 3
