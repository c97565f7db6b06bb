"""Tensors on their way between processes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.bitwise import same
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.tensors import Kept, pack, unpack

ROWS = torch.arange(24, dtype=torch.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "tensor",
    [
        ROWS,
        ROWS.t(),
        ROWS[1:, ::2],
        ROWS[:, :1].expand(4, 3),
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.tensor([float("nan"), float("inf"), -0.0]),
        torch.tensor([True, False]),
        torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.tensor([2**62], dtype=torch.int64),
    ],
    ids=lambda tensor: f"{str(tensor.dtype)[6:]}-{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_a_tensor_arrives_as_it_lay(tensor: torch.Tensor) -> None:
    """Dtype, shape, strides and bits survive the journey."""
    (arrived,) = unpack(*pack([tensor]), "cpu")
    assert (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
    assert arrived.stride() == tensor.stride()
    assert same(arrived, tensor)


def test_aliasing_survives() -> None:
    """Two views of one storage are two views of one storage again."""
    base, view = unpack(*pack([ROWS, ROWS[1:, ::2]]), "cpu")
    base.zero_()
    assert not view.any()


def test_every_journey_ends_on_fresh_memory() -> None:
    """Changing what was unpacked changes neither the buffer nor another copy."""
    header, buffer = pack([ROWS])
    (first,) = unpack(header, buffer, "cpu")
    first.zero_()
    (second,) = unpack(header, buffer, "cpu")
    assert same(second, ROWS)


def test_no_tensors_are_fine() -> None:
    """An empty list travels, too."""
    assert unpack(*pack([]), "cpu") == []


def meta(**changes: Any) -> dict[str, Any]:
    plain = {"dtype": "float32", "shape": [2, 3], "stride": [3, 1], "offset": 0, "storage": 0}
    return {**plain, "requires_grad": False, **changes}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "not an object"),
        ({"metas": []}, "not an object with metas and spans"),
        ({"metas": [], "spans": [25]}, "add up to the buffer's 24 bytes"),
        ({"metas": [], "spans": [True, 23]}, "add up"),
        ({"metas": [], "spans": [-1, 25]}, "add up"),
        ({"metas": [{}], "spans": [24]}, "metas are wrong"),
        ({"metas": [meta(dtype="storage")], "spans": [24]}, "unknown dtype 'storage'"),
        ({"metas": [meta(offset=1)], "spans": [24]}, "reaches byte 28 of a span of 24"),
        ({"metas": [meta(shape=[3, 3])], "spans": [24]}, "reaches byte 36"),
        ({"metas": [meta(stride=[2**61, 1])], "spans": [24]}, "reaches byte"),
        ({"metas": [meta(stride=[-3, 1])], "spans": [24]}, "metas are wrong"),
        ({"metas": [meta(shape=[0, 2**63])], "spans": [24]}, "has shape"),
        ({"metas": [meta(shape=[0, 2**61, 2**61], stride=[0, 0, 0])], "spans": [24]}, "has shape"),
        ({"metas": [meta(shape=[1] * 65, stride=[0] * 65)], "spans": [24]}, "has shape"),
        ({"metas": [meta(storage=1)], "spans": [24]}, "span 1 of 1"),
    ],
)
def test_numbers_that_lie_are_refused(header: Any, words: str) -> None:
    """A hostile header raises in words before anything is allocated."""
    buffer = Buffer.from_chunks([bytes(24)])
    with pytest.raises(ProtocolError, match=words):
        unpack(header, buffer, "cpu")


numbers = st.integers(-2, 30) | st.integers(2**40, 2**64)


@given(
    change=st.fixed_dictionaries(
        {},
        optional={
            "shape": st.lists(numbers, max_size=3),
            "stride": st.lists(numbers, max_size=3),
            "offset": numbers,
            "storage": numbers,
            "dtype": st.sampled_from(["float32", "float64", "int8", "Tensor", ""]),
        },
    ),
    spans=st.lists(numbers, max_size=3) | st.just([24]),
)
def test_any_header_gives_tensors_inside_the_buffer_or_an_error(
    change: dict[str, Any], spans: list[int]
) -> None:
    """Whatever numbers are sent, no tensor reaches outside of what came with them."""
    buffer = Buffer.from_chunks([bytes(24)])
    header = {"metas": [meta(**copy.deepcopy(change))], "spans": spans}
    try:
        (tensor,) = unpack(header, buffer, "cpu")
    except ProtocolError:
        return
    reach = tensor.storage_offset() + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )
    assert tensor.numel() == 0 or (reach + 1) * tensor.element_size() <= 24


# ---- tensors that are kept to be put together again


@given(
    count=st.integers(1, 4),
    shape=st.lists(st.integers(0, 4), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]),
)
def test_what_is_kept_comes_out_as_it_came_in(count: int, shape: list[int], dtype: torch.dtype) -> None:
    """As often as is wanted, each time as `unpack` would give it."""
    sent = [torch.randn(shape).mul(3).to(dtype) for _ in range(count)]
    kept = Kept(*pack(sent), "cpu")
    for _ in range(2):
        for arrived, tensor in zip(kept.unpack(), sent, strict=True):
            assert (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
            assert same(arrived, tensor)


def test_kept_tensors_have_memory_of_their_own() -> None:
    """Neither the buffer's nor that of what was put together before, which views share as they did."""
    header, buffer = pack([ROWS, ROWS[1:, ::2]])
    kept = Kept(header, buffer, "cpu")
    buffer.close()
    base, view = kept.unpack()
    base.zero_()
    assert not view.any()
    again, _ = kept.unpack()
    assert same(again, ROWS)


@pytest.mark.parametrize(
    "tensor",
    [ROWS, ROWS.t(), ROWS[1:, ::2], torch.tensor(3.0), torch.empty(0, 3), ROWS[:, :1].expand(4, 3)],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_numbers_are_written_where_tensors_lie(tensor: torch.Tensor) -> None:
    """All of the span, that between a view's elements too, and to the same addresses."""
    kept = Kept(*pack([tensor, ROWS]), "cpu")
    made = kept.unpack()
    addresses = [one.data_ptr() for one in made]
    for one in made:
        one.untyped_storage().fill_(1)
    kept.write_to(made)
    assert [one.data_ptr() for one in made] == addresses
    assert same(made[0], tensor)
    assert same(made[1], ROWS)
    for one, fresh in zip(made, kept.unpack(), strict=True):
        assert bytes(one.untyped_storage()) == bytes(fresh.untyped_storage())


def test_numbers_go_to_tensors_of_the_like_only() -> None:
    """Fewer of them are the caller's mistake."""
    kept = Kept(*pack([ROWS, ROWS + 1]), "cpu")
    made = kept.unpack()
    with pytest.raises(ValueError, match="argument"):
        kept.write_to(made[:1])


def test_what_lies_is_not_kept() -> None:
    """The errors are those of `unpack`."""
    buffer = Buffer.from_chunks([bytes(24)])
    with pytest.raises(ProtocolError, match="reaches byte 28 of a span of 24"):
        Kept({"metas": [meta(offset=1)], "spans": [24]}, buffer, "cpu")
