"""Which calls are taken for the same by the key of the hot path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.fingerprint import fingerprint

flat = torch.arange(12.0)
x = torch.arange(12.0).reshape(3, 4)
lone = torch.arange(4.0).reshape(1, 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (x, x.double()),
        (x, flat),
        (x, x.reshape(4, 3).T),
        (x, x.clone().requires_grad_()),
        (x, x.to(torch.complex64)),
        (x.to(torch.complex64), x.to(torch.complex64).conj()),
        (x, torch._neg_view(x)),
        (x, None),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ((1, 2), [1, 2]),
        ((1, (2, 3)), (1, 2, 3)),
        (((1, 2), 3), (1, (2, 3))),
        ({"dim": 1}, {"axis": 1}),
        ({}, ()),
        (slice(1, 2), slice(1, 3)),
        (torch.Size([1]), (1,)),
        (torch.float32, torch.float64),
        ((flat[:4], flat[4:8]), (flat[:4], flat[5:9])),
        ((flat[:4], flat[4:8]), (flat[:4], x[0])),
        ((x, x), (x, x.clone())),
    ],
)
def test_what_makes_another_signature_has_another_key(one: object, other: object) -> None:
    """Form, gradient, views, aliasing, structure, type and value of what is plain."""
    assert fingerprint((one,)) != fingerprint((other,))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (x, x + 1),
        (x, torch.nn.Parameter(x, requires_grad=False)),
        (lone, lone.as_strided((1, 4), (77, 1))),
        (flat[:4], flat[4:8]),
        ((flat[:4], flat[4:8]), (flat[2:6], flat[6:10])),
        ((x, [None, "mean", 0.5]), (x.clone(), [None, "mean", 0.5])),
        ({"dim": -1}, {"dim": -1}),
        (float("nan"), float("nan")),
    ],
)
def test_what_says_nothing_is_no_part_of_the_key(one: object, other: object) -> None:
    """Values of tensors, strides of size 1, where a storage lies, and whether a tensor is a parameter."""
    assert fingerprint((one,)) == fingerprint((other,))
    assert hash(fingerprint((one,))) == hash(fingerprint((other,)))


def test_gradients_count_where_autograd_is_on() -> None:
    """Under no_grad a tensor that requires grad is like any other."""
    with torch.no_grad():
        assert fingerprint((x.clone().requires_grad_(),)) == fingerprint((x,))


@given(st.permutations(range(4)), st.integers(1, 3))
def test_aliases_are_told_by_who_shares_with_whom(order: list[int], shared: int) -> None:
    """Keys of four tensors of one form are equal exactly when the same places share a storage."""
    tensors = [torch.zeros(2) for _ in range(4)]
    for index in range(1, shared + 1):
        tensors[index] = tensors[0]
    groups = [tensors[place] for place in order]
    pattern = [next(i for i, t in enumerate(groups) if t is tensor) for tensor in groups]
    straight = [next(i for i, t in enumerate(tensors) if t is tensor) for tensor in tensors]
    assert (fingerprint(tuple(groups)) == fingerprint(tuple(tensors))) == (pattern == straight)


@dataclass(frozen=True)
class Unhashable:
    """Looks hashable: it has `__hash__`, which raises."""

    items: list[int]


def test_an_object_that_cannot_be_hashed_is_told_by_identity() -> None:
    """Alone, in containers, and as an attribute of a module."""
    one, other = Unhashable([1]), Unhashable([1])
    model = torch.nn.Identity()
    model.config = one
    for make in (lambda obj: (obj,), lambda obj: ([obj],), lambda obj: ({"config": obj},)):
        assert hash(fingerprint(make(one))) == hash(fingerprint(make(one)))
        assert fingerprint(make(one)) != fingerprint(make(other))
    before = fingerprint((model,))
    hash(before)
    model.config = other
    assert fingerprint((model,)) != before


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (x.to_sparse, "layout torch.sparse_coo"),
        (
            lambda: torch.nested.nested_tensor([flat, flat[:2]], layout=torch.jagged),
            "a nested tensor has no storage",
        ),
    ],
)
def test_a_tensor_without_storage_of_its_own_is_refused(make: Callable[[], torch.Tensor], what: str) -> None:
    """At the top and inside containers."""
    for arguments in ((make(),), ([make()],), ({"input": make()},)):
        with pytest.raises(RecordError, match=what):
            fingerprint(arguments)
