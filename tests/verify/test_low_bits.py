"""Numbers of few bits: what is drawn is legal and goes to the edges; products have a reference of what the inputs hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pytest_cgins
from pytest_cgins.config import declared
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Context
from pytest_cgins.verify import inputs, low_bits
from pytest_cgins.verify.quantization import Packed, grids
from pytest_cgins.verify.reference import Answers, KeepWide, answers
from pytest_cgins.verify.semantics import semantics_for
from tests.verify.helpers import normal
from tests.verify.probes.test_large_indices import prepared
from tests.verify.test_coupled import call_of

E4M3, E8M0 = torch.float8_e4m3fn, low_bits.E8M0
needs_e8m0 = pytest.mark.skipif(E8M0 is None, reason="this torch has no float8_e8m0fnu")


def integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def drawn(
    arguments: dict[str, Tensor], said: dict[str, Any] | None = None, *, edge: bool = False
) -> dict[str, Tensor]:
    """Arguments of an op, drawn anew."""
    call, tensors = call_of("ops.dequantize", **arguments)
    draw = inputs.edge if edge else inputs.fresh
    return dict(zip(arguments, draw(call, tensors, "7", declared(said or {})), strict=True))


def packed() -> dict[str, Tensor]:
    """Weights of four bits with scales and zero points of their groups."""
    scale = 0.004 + 0.02 * torch.rand(32, 4, generator=torch.Generator().manual_seed(1))
    return {"packed": integers(0, 255, 32, 64), "scale": scale, "zero": integers(5, 10, 32, 4)}


def test_codes_are_drawn_over_all_of_their_range_and_zero_points_within_theirs() -> None:
    """Each of 256 bytes; zero points that were never recorded may be out of range."""
    recorded, fresh = packed(), drawn(packed())
    assert not torch.equal(fresh["packed"], recorded["packed"])
    assert len(fresh["packed"].unique()) == 256
    assert fresh["zero"].unique().tolist() == [5, 6, 7, 8, 9, 10]
    assert not torch.equal(fresh["zero"], recorded["zero"])


def test_scales_keep_sign_and_magnitude_within_an_octave() -> None:
    recorded, scale = packed()["scale"], drawn(packed())["scale"]
    assert not torch.equal(scale, recorded)
    assert float(scale.min()) >= float(recorded.min()) / 2
    assert float(scale.max()) <= float(recorded.max()) * 2
    assert float(scale.min()) < float(recorded.min()) < float(recorded.max()) < float(scale.max())


def test_some_rows_are_at_the_edges_of_their_codes() -> None:
    """All bits, none, and one half of each byte: where nibbles are exchanged, or a sign is lost."""
    edge = drawn(packed(), edge=True)
    rows = [int(row[0]) for row in edge["packed"] if len(row.unique()) == 1]
    assert rows[:4] == [0x00, 0xFF, 0x0F, 0xF0]
    assert {0x0F, 0xF0, 0x88, 0x80} <= set(rows)
    assert len(rows) == 16
    assert {int(row[0]) for row in edge["zero"] if len(row.unique()) == 1} == {5, 8, 10}


def test_the_greatest_sums_of_a_product_are_among_its_edges() -> None:
    """Rows of one factor meet columns of the other."""
    a, b = (integers(-128, 127, *shape, dtype=torch.int8) for shape in ((24, 96), (96, 32)))
    edge = drawn({"a": a, "b": b}, edge=True)
    sums = edge["a"].long() @ edge["b"].long()
    assert int(sums.max()) == 96 * 128 * 128
    assert int(sums.min()) == -96 * 128 * 127


def test_words_of_eight_numbers_are_codes_and_large_indices_are_not() -> None:
    """Both signs, far from zero: no index is like that."""
    words = integers(-(2**31), 2**31 - 1, 16, 32, dtype=torch.int32)
    rows = integers(0, 2**30, 16, 32, dtype=torch.int32)
    fresh = drawn({"qweight": words, "rows": rows, "scales": packed()["scale"]})
    assert not torch.equal(fresh["qweight"], words)
    assert torch.equal(fresh["rows"], rows)


@pytest.mark.parametrize(
    "recorded",
    [
        integers(0, 90, 32, 8),
        integers(0, 255, 32),
        torch.zeros(4, 8, dtype=torch.uint8),
        integers(0, 1, 4, 4, dtype=torch.bool),
        255 * integers(0, 1, 32, 8),
    ],
    ids=["narrow", "vector", "constant", "mask", "mask of bytes"],
)
def test_integers_that_may_be_indices_stay_as_they_are(recorded: Tensor) -> None:
    assert torch.equal(drawn({"x": normal(32, 8), "codes": recorded})["codes"], recorded)


def test_declared_codes_are_drawn_within_their_domain() -> None:
    """Also where they do not look like codes; a role that keeps them keeps them."""
    arguments = {"x": normal(32, 64), "levels": torch.zeros(32, 64, dtype=torch.uint8)}
    said = {"roles": {"levels": "codes"}, "domain": {"levels": [0, 15]}}
    assert drawn(arguments, said)["levels"].unique().tolist() == list(range(16))
    assert len(drawn(arguments, {"roles": {"levels": "codes"}})["levels"].unique()) == 256
    kept = drawn(packed(), {"roles": {"packed": "table", "scale": "keep"}})
    assert torch.equal(kept["packed"], packed()["packed"])
    assert torch.equal(kept["scale"], packed()["scale"])


@needs_e8m0
@pytest.mark.parametrize("as_bytes", [False, True])
def test_exponents_leave_what_was_recorded_by_two_and_are_never_nan(as_bytes: bool) -> None:
    codes = integers(118, 131, 64, 4)
    scale = codes if as_bytes else codes.view(E8M0)
    arguments = {"q": normal(64, 128).to(E4M3), "scale": scale}
    fresh = drawn(arguments)["scale"].view(torch.uint8)
    assert (int(fresh.min()), int(fresh.max())) == (116, 133)
    assert drawn(arguments, edge=True)["scale"].view(torch.uint8).unique().tolist() == [0, 1]
    two = drawn({**arguments, "scale_b": scale}, edge=True)
    assert two["scale_b"].view(torch.uint8).unique().tolist() == [62, 63, 64]


# ---- products -----------------------------------------------------------------------------------


def torchs(op: str, **arguments: Any) -> Answers:
    """Torch's answers to a call in which tensors come by keyword."""
    call, tensors = call_of(op, **arguments)
    return answers(call, lay_out(tensors), Context(default_dtype="float32"), "cpu")


@pytest.mark.parametrize("rows", [False, True], ids=["one scale each", "a scale a row"])
def test_the_reference_of_scaled_products_is_what_the_inputs_hold(rows: bool) -> None:
    """Torch itself multiplies no float8 that was made wide: the reference is the dequantised product in fp64."""
    a, b = (60 * normal(24, 64)).to(E4M3), (60 * normal(32, 64, seed=1)).to(E4M3).t()
    scale_a = normal(24, 1, seed=2).abs() if rows else torch.tensor(0.011)
    scale_b = normal(1, 32, seed=3).abs() if rows else torch.tensor(0.0035)
    known = torchs("torch._scaled_mm", input=a, mat2=b, scale_a=scale_a, scale_b=scale_b)
    right = (a.double() * scale_a.double()) @ (b.double() * scale_b.double())
    assert known.note == ""
    assert known.answer[0].dtype == E4M3
    assert torch.allclose(known.reference[0], right, rtol=1e-14, atol=1e-12)
    assert known.perturbed is not None


def wide(func: Any, *arguments: Any, **named: Any) -> Tensor:
    with KeepWide(torch.float64):
        return func(*arguments, **named)


def test_scales_of_blocks_are_spread_over_them() -> None:
    a, b = normal(64, 96).double(), normal(96, 64, seed=1).double()
    scale_a, scale_b = normal(64, 3, seed=2).abs(), normal(3, 2, seed=3).abs()
    right = (a * scale_a.repeat_interleave(32, 1)) @ (
        b * scale_b.repeat_interleave(32, 0).repeat_interleave(32, 1)
    )
    assert torch.allclose(wide(torch._scaled_mm, a, b, scale_a, scale_b), right)


def test_scales_that_only_the_device_s_library_can_find_are_refused_in_words() -> None:
    a = normal(64, 96).double()
    with pytest.raises(NotImplementedError, match="scales of size 192 lie as the device's library has them"):
        wide(torch._scaled_mm, a, a.t(), normal(192), torch.tensor(1.0))


def test_groups_of_scaled_products_are_rows_columns_or_what_is_summed_over() -> None:
    """No CPU has torch's own: on a GPU rows were compared with it."""
    ends, groups = torch.tensor([16, 24, 64]), [slice(0, 16), slice(16, 24), slice(24, 64)]
    rows, weights, of_rows, of_columns = (
        one.double() for one in (normal(64, 8), normal(3, 8, 5), normal(64), normal(3, 5))
    )
    whole = rows * of_rows[:, None]
    right = torch.cat([whole[one] @ (weights[n] * of_columns[n]) for n, one in enumerate(groups)])
    assert torch.allclose(grouped(rows, weights, of_rows, of_columns, ends), right)
    # Columns: the same the other way round.
    turned = grouped(weights.mT, rows.t(), of_columns, of_rows, ends)
    assert torch.allclose(turned, right.t())
    columns = normal(5, 64).double()
    summed = torch.stack([columns[:, one] @ rows[one] for one in groups])
    factors = normal(3, 5).double(), normal(3, 8).double()
    right = summed * factors[0][:, :, None] * factors[1][:, None]
    assert torch.allclose(grouped(columns, rows, *(one.reshape(-1) for one in factors), ends), right)


def grouped(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offs: Tensor) -> Tensor:
    """A scaled product in groups, in fp64."""
    product = torch.ops.aten._scaled_grouped_mm.default
    return low_bits.in_wide(product, (a, b, scale_a, scale_b, offs), {}, torch.float64)


def test_weights_of_eight_bits_have_their_product_in_fp64() -> None:
    x, w, scales = (
        normal(8, 64).double(),
        integers(-128, 127, 32, 64, dtype=torch.int8),
        normal(32, seed=1).double(),
    )
    assert torch.allclose(wide(torch._weight_int8pack_mm, x, w, scales), (x @ w.double().t()) * scales)


# ---- quantised outputs --------------------------------------------------------------------------


def grid(op: Any, arguments: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The grid of the first output of an op, or of the first argument that it changes."""
    from pytest_cgins.verify import reference

    call, tensors = call_of("ops.op", **arguments)
    monkeypatch.setattr(reference, "invoke", lambda _call, given: op(*given))
    layout, context = lay_out(tensors), Context(default_dtype="float32")
    known = answers(call, layout, context, "cpu")
    return grids(call, layout, context, "cpu", known, lambda _answer: None).get(0)


@pytest.mark.parametrize("dtype", [E4M3, torch.int8])
def test_a_buffer_that_an_op_fills_is_known_to_be_quantised(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers before the last rounding are those that would have been written."""

    def fill(x: Tensor, out: Tensor) -> None:
        out[:, 1:].copy_(
            (torch.round(x / 0.02) if dtype == torch.int8 else x / 0.02).clamp(-127, 127)[:, 1:].to(dtype)
        )

    x = normal(16, 40)
    seen = grid(fill, {"x": x, "out": torch.zeros(16, 40).to(dtype)}, monkeypatch)
    right = (x.double() / 0.02).clamp(-127, 127)
    right[:, 0] = 0
    assert torch.allclose(seen.exact, right.reshape(-1), rtol=1e-6)


def test_arguments_of_float8_are_read_as_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """One grid to another: memory of eight bits is not taken for that of 32."""
    q = (60 * normal(16, 40)).to(E4M3)
    seen = grid(lambda q: (q.float() * 0.37).to(E4M3), {"q": q}, monkeypatch)
    assert torch.allclose(seen.exact, (q.double() * 0.37).reshape(-1), rtol=1e-6)


def test_a_product_in_float8_may_add_up_in_another_order_than_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As libraries of GPUs do: it is known to be quantised as long as the derived tolerance explains the difference."""
    a, b = (60 * normal(64, 96)).to(E4M3), (60 * normal(64, 96, seed=1)).to(E4M3)
    scale = torch.tensor(0.01)

    def product(a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        return torch._scaled_mm(a, b.t(), scale, scale, out_dtype=E4M3)

    exact = (a.double() * 0.01) @ (b.double() * 0.01).t()
    for error, known in ((2.0**-17, True), (2.0**-5, False)):

        def unrounded(*_: object, error: float = error) -> Tensor:
            return (exact * (1 + error * normal(64, 64, seed=2))).float()

        monkeypatch.setattr(low_bits, "unrounded", unrounded)
        seen = grid(product, {"a": a, "b": b, "scale": scale.reshape(1)}, monkeypatch)
        assert (seen is not None) is known


@needs_e8m0
@pytest.mark.parametrize("by_cast", [False, True])
def test_exponents_are_judged_by_their_codes(by_cast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much is a step: no share of the number."""

    def exponents(x: Tensor) -> Tensor:
        most = x.abs().amax(-1)
        if by_cast:
            return (most / 448).to(E8M0)
        return (torch.floor(torch.log2(most)) - 8 + 127).clamp(0, 254).to(torch.uint8).view(E8M0)

    x = normal(64, 40)
    seen = grid(exponents, {"x": x}, monkeypatch)
    own = exponents(x).view(torch.uint8).to(torch.int16)
    assert seen.fault(own, None, (64,)) is None
    assert (
        "off by a step" in seen.fault(own + 1, None, (64,)).message
        or "cannot be" in seen.fault(own + 1, None, (64,)).message
    )


@pytest.mark.parametrize("signed", [False, True])
def test_numbers_packed_in_bytes_are_judged_one_by_one(signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step off passes in the middle of two codes and nowhere else; samples of bytes are looked at as such."""

    def pack(x: Tensor) -> Tensor:
        codes = torch.round(x / 0.25)
        if signed:
            codes = codes.clamp(-8, 7).to(torch.int8)
            return ((codes[:, ::2] & 15) | (codes[:, 1::2] << 4)).view(torch.uint8)
        codes = (codes + 8).clamp(0, 15).to(torch.uint8)
        return codes[:, ::2] + codes[:, 1::2] * 16

    x = normal(16, 40)
    x[3, 5] = 0.125 * (1 + 2**-23)  # half a step, and a little more
    seen, own = grid(pack, {"x": x}, monkeypatch), pack(x)
    assert seen.packed == Packed(2, signed)
    assert seen.exact.numel() == 640
    assert seen.fault(own.reshape(-1), None, (16, 20)) is None
    near, far = own.clone(), own.clone()
    near[3, 2] -= 16
    far[4, 7] ^= 1
    assert seen.fault(near.reshape(-1), None, (16, 20)) is None
    fault = seen.fault(far.reshape(-1), None, (16, 20))
    assert "1 of 640 elements cannot be what the exact value rounds to. Worst is [4, 7, 0]" in fault.message
    assert fault.wrong.nonzero().tolist() == [[87]]
    sampled = torch.tensor([2, 87, 200])
    assert seen.fault(far.reshape(-1)[sampled], sampled, (16, 20)).wrong.tolist() == [False, True, False]
    assert seen.limits(sampled).compared == 6


def test_nothing_of_other_ops_is_taken_for_codes() -> None:
    """Labels, bytes of pictures in a vector and scales of norms are what they were."""
    call, tensors = call_of(
        "torch.nn.functional.layer_norm", input=normal(8, 32), weight=normal(32), bias=normal(32)
    )
    semantics = semantics_for(call)
    assert not any(low_bits.code_range(semantics, index, tensor) for index, tensor in enumerate(tensors))
    assert not any(low_bits.is_scale(semantics, index, tensor) for index, tensor in enumerate(tensors))


@pytest_cgins.mark
def exponents(x: torch.Tensor) -> torch.Tensor:
    return (torch.frexp(x.abs().amax(-1))[1] + 127).clamp(0, 254).to(torch.uint8)


def test_codes_are_no_positions(tmp_path: Path) -> None:
    """Rows of zeros, equal and huge numbers have one right code, where they have no one right index."""
    made = prepared(tmp_path, lambda: exponents(normal(6, 40)), f"{__name__}.exponents")
    assert "edge" in [one.expected.name for one in made.sets]


def test_bytes_of_integer_products_are_numbers_of_any_size(tmp_path: Path) -> None:
    """Sums that saturate in 16 bits are met, whatever range was recorded."""
    left, right = (torch.randint(-50, 50, shape, dtype=torch.int8) for shape in ((20, 32), (32, 24)))
    made = prepared(tmp_path, lambda: torch._int_mm(left, right), "torch._int_mm")
    (fresh,) = (one for one in made.sets if one.expected.name == "fresh")
    assert all(int(tensor.min()) < -120 and int(tensor.max()) > 120 for tensor in fresh.tensors())
