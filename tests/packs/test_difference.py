"""`cgins traces diff`: in what two packs differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.app import cli
from pytest_cgins.core import documents
from pytest_cgins.core.trace import GoldTensor, TensorMeta
from pytest_cgins.packs.difference import PackDifference, compare, gold_difference
from pytest_cgins.packs.gold import GoldValues
from pytest_cgins.packs.statistics import summarize
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.recording.record import record

functional = torch.nn.functional
X = torch.linspace(-2, 3, 12).reshape(3, 4)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., PackReader]:
    def run(name: str, *bodies: Callable[[], object], tier: str = "full") -> PackReader:
        with record(tmp_path / name, tier=tier):
            for body in bodies:
                body()
        return open_pack(tmp_path / name)

    return run


def gelu() -> object:
    return functional.gelu(X)


def values(tensor: torch.Tensor, positions: list[int] | None = None) -> GoldValues:
    flat = tensor.reshape(-1)
    chosen = torch.arange(flat.numel()) if positions is None else torch.tensor(positions)
    meta = TensorMeta(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=0,
        storage=0,
    )
    return GoldValues(GoldTensor(meta=meta, statistics=summarize(tensor)), chosen, flat[chosen])


def test_equal_packs_have_no_difference(made, tmp_path: Path, capsys) -> None:
    """Status 0, whatever they are called."""
    found = compare(made("a", gelu), made("b", gelu))
    assert found.is_empty
    assert found.same == 1
    assert cli.main(["traces", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out == "1 trace is the same, 0 changed, 0 added, 0 removed\n"


def test_added_and_removed_traces_are_named(made) -> None:
    """By op and signature, with their calls."""
    silu = lambda: functional.silu(X)  # noqa: E731
    found = compare(made("a", gelu, silu, silu), made("b", gelu, lambda: functional.gelu(X[:2])))
    assert [(name.op, name.calls) for name in found.removed] == [("torch.nn.functional.silu", 2)]
    assert [name.signature[:7] for name in found.added] == ["f32-2x4"]
    assert (found.same, found.changed) == (1, ())


def test_other_values_are_other_inputs_and_other_gold(made) -> None:
    """With how far the gold is apart."""
    found = compare(made("a", gelu), made("b", lambda: functional.gelu(X + 1)))
    (changed,) = found.changed
    assert changed.parts == ("inputs", "gold")
    distance = (functional.gelu(X + 1) - functional.gelu(X)).abs().max()
    assert changed.gold[0].max_abs == pytest.approx(float(distance))
    assert changed.gold[0].different == changed.gold[0].compared == 12
    assert changed.gold[0].max_ulps > 2**20


def test_the_way_an_argument_is_passed_is_part_of_the_call(made) -> None:
    """The signature is the same, the call is not."""
    found = compare(made("a", gelu), made("b", lambda: functional.gelu(input=X)))
    assert [changed.parts for changed in found.changed] == [("call",)]


def test_a_changed_function_changes_gold_alone(project, made) -> None:
    """By one ulp here."""
    module = project("import pytest_cgins\nby = 2.0\n@pytest_cgins.mark\ndef scale(x):\n    return x * by\n")
    before = made("a", lambda: module.scale(torch.ones(4)))
    module.by = float(np.nextafter(np.float32(2), np.float32(3)))
    found = compare(before, made("b", lambda: module.scale(torch.ones(4))))
    (changed,) = found.changed
    assert changed.parts == ("gold",)
    assert (changed.gold[0].max_ulps, changed.gold[0].max_abs) == (1, 2.0**-22)


def test_calls_are_compared(made, tmp_path: Path, capsys) -> None:
    """Twice as often is a difference, and said."""
    made("a", gelu), made("b", gelu, gelu)
    assert cli.main(["traces", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "1 → 2" in capsys.readouterr().out


def test_tiers_are_compared_over_what_both_have_kept(made) -> None:
    """A sample against all elements; here the seeded inputs of the one are not those of the other."""
    x = torch.randn(3000)
    full = made("a", lambda: functional.gelu(x))
    sampled = made("b", lambda: functional.gelu(x), tier="recipe")
    (changed,) = compare(full, sampled).changed
    assert changed.parts == ("inputs", "gold")
    assert changed.gold[0].compared == 1024


def test_packs_without_values_are_compared_without(made) -> None:
    """Tier shapes has no gold to measure."""
    found = compare(made("a", gelu, tier="shapes"), made("b", gelu))
    assert [(changed.parts, changed.gold) for changed in found.changed] == [(("inputs", "gold"), ())]


def test_the_command_prints_tables_and_json(made, tmp_path: Path, capsys) -> None:
    """A line a trace that differs; the document holds the same."""
    doubled = X * 2
    made("a", gelu, lambda: functional.silu(X)), made("b", lambda: functional.gelu(doubled))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert cli.main(["traces", "diff", *paths]) == 1
    out = capsys.readouterr().out
    assert [line[0] for line in out.splitlines()] == [" ", "-", "~", "0"]
    assert "output 0: 12 of 12 elements, by up to " in out
    assert cli.main(["traces", "diff", "--json", *paths]) == 1
    found = documents.load(PackDifference, capsys.readouterr().out)
    assert found == compare(*map(open_pack, paths))


def test_a_missing_pack_is_an_error(tmp_path: Path) -> None:
    """Status 2: nothing was compared."""
    assert cli.main(["traces", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn]
)
def test_neighbours_are_one_ulp_apart_across_zero(dtype: torch.dtype) -> None:
    """From the least negative number over both zeros to the least positive one."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    lowest = torch.iinfo(integer).min
    line = torch.tensor([lowest + 1, lowest, 0, 1], dtype=integer).view(dtype)
    for one, other in pairwise(line):
        assert gold_difference(0, values(one.reshape(1)), values(other.reshape(1))).max_ulps == 1


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_ulps_are_symmetric_and_zero_only_for_the_same(one: float, other: float) -> None:
    """A distance; far apart numbers of fp64 do not overflow."""
    for dtype in (torch.float32, torch.float64):
        x, y = values(torch.tensor([one], dtype=dtype)), values(torch.tensor([other], dtype=dtype))
        forth, back = gold_difference(0, x, y), gold_difference(0, y, x)
        assert forth == back
        assert forth.max_ulps >= 0
        same = one == other and math.copysign(1, one) == math.copysign(1, other)
        assert (forth.max_ulps == 0) == same == (forth.different == 0)
        assert forth.max_abs == pytest.approx(abs(one - other), rel=1e-6)


def test_infinities_and_nan() -> None:
    """Equal ones are equal; a NaN against a number has no distance."""
    inf, nan = math.inf, math.nan
    same = gold_difference(0, values(torch.tensor([inf, -inf, nan])), values(torch.tensor([inf, -inf, nan])))
    assert (same.different, same.max_ulps, same.max_abs) == (0, 0, 0.0)
    broken = gold_difference(0, values(torch.tensor([1.0, nan])), values(torch.tensor([1.0, 2.0])))
    assert (broken.different, broken.max_ulps, broken.max_abs) == (1, None, None)


def test_integers_and_booleans_have_no_ulps() -> None:
    """Their distance is absolute."""
    found = gold_difference(0, values(torch.tensor([1, 5])), values(torch.tensor([1, 9])))
    assert (found.different, found.max_ulps, found.max_abs) == (1, None, 4.0)
    found = gold_difference(0, values(torch.tensor([True])), values(torch.tensor([False])))
    assert (found.different, found.max_abs) == (1, 1.0)


def test_complex_numbers_are_pairs() -> None:
    """Each part counts."""
    found = gold_difference(0, values(torch.tensor([1 + 1j])), values(torch.tensor([1 + 2j])))
    assert (found.compared, found.different, found.max_abs) == (2, 1, 1.0)


def test_samples_at_other_positions_meet_where_they_can() -> None:
    """Only common positions are compared."""
    x = torch.arange(10.0)
    found = gold_difference(0, values(x, [0, 2, 4]), values(x + 1, [2, 3, 4, 9]))
    assert (found.compared, found.different, found.max_abs) == (2, 2, 1.0)


def test_torch_without_the_newest_float8_compares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.6 has no `float8_e8m0fnu`."""
    monkeypatch.delattr(torch, "float8_e8m0fnu")
    assert gold_difference(0, values(torch.tensor([1.0])), values(torch.tensor([2.0]))).max_ulps == 2**23
