"""What kernels hand over: objects that answer in their own way are not asked."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading.returned import place, plain, require_plain, tensors_of, twin, unlike_plain
from pytest_cgins.core.errors import LaunchError

Pair = namedtuple("Pair", "one two")


def evil(*_args: object, **_named: object) -> Any:
    raise AssertionError("code of the kernel was run")


class Evil:
    """Runs code whatever is done with it."""

    __class__ = property(evil)  # type: ignore[assignment]
    __float__ = __int__ = __bool__ = __iter__ = __len__ = __hash__ = __eq__ = __getattr__ = __str__ = (
        __repr__
    ) = evil  # type: ignore[assignment]


class EvilMeta(type):
    """Runs code whatever a class is asked."""

    __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = __str__ = __getattr__ = evil  # type: ignore[assignment]


class EvilTensorMeta(type(torch.Tensor)):  # type: ignore[misc]
    """The same for classes of tensors."""

    __hash__ = __eq__ = __instancecheck__ = __subclasscheck__ = __str__ = evil  # type: ignore[assignment]
    __name__ = property(evil)  # type: ignore[assignment]


class Lazy(torch.Tensor):
    """A tensor that answers itself."""

    __torch_function__ = classmethod(evil)


class Text(str):
    """The name of an attribute, as a class of its own."""

    __slots__ = ()
    __str__ = __format__ = __eq__ = startswith = __getitem__ = evil  # type: ignore[assignment]
    __hash__ = str.__hash__


def lazy(base: type) -> Any:
    names = ("__iter__", "__len__", "__getitem__", "items", "values", "keys", "__class__")
    return type(f"Lazy{base.__name__}", (base,), dict.fromkeys(names, property(evil)))


def hung(name: str) -> torch.Tensor:
    tensor = torch.ones(3)
    setattr(tensor, name, evil)
    return tensor


def stored(name: str) -> torch.Tensor:
    tensor = torch.ones(3)
    setattr(tensor.untyped_storage(), name, evil)
    return tensor


def made(change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    tensor = torch.ones(3)
    change(tensor)
    return tensor


A, B = torch.ones(3), torch.zeros(2)
UNLIKE: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "as_subclass": (lambda: hung("as_subclass"), "attributes of its own (as_subclass)"),
    "untyped_storage": (lambda: hung("untyped_storage"), "(untyped_storage)"),
    "another attribute": (lambda: hung("scale"), "(scale)"),
    "name of a class of its own": (lambda: made(lambda x: x.__dict__.update({Text("to"): 1})), "(to)"),
    "dict of a class of its own": (
        lambda: made(lambda x: setattr(x, "__dict__", lazy(dict)({"to": 1}))),
        "(to)",
    ),
    "storage": (lambda: stored("copy_"), "(untyped_storage().copy_)"),
    "class": (lambda: torch.ones(3).as_subclass(Lazy), "Lazy"),
    "class set later": (lambda: made(lambda x: setattr(x, "__class__", Lazy)), "Lazy"),
    "class of classes": (lambda: torch.ones(3).as_subclass(EvilTensorMeta("L", (torch.Tensor,), {})), "L"),
    "negation": (lambda: torch._neg_view(torch.ones(3)), "still to be computed (Negative)"),
    "conjugate": (lambda: torch.ones(3, dtype=torch.complex64).conj(), "(Conjugate)"),
    "zeros without memory": (lambda: torch._efficientzerotensor((3,)), "(ZeroTensor)"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(3)), "(Functionalize)"),
    "copy on write": (lambda: torch._lazy_clone(torch.ones(3)), "(copy on write)"),
    "data replaced": (
        lambda: made(lambda x: setattr(x, "data", torch._neg_view(torch.ones(3)))),
        "(Negative)",
    ),
}


@pytest.mark.parametrize(("make", "told"), UNLIKE.values(), ids=UNLIKE)
def test_what_is_not_plain_is_told_without_its_help(make: Callable[[], torch.Tensor], told: str) -> None:
    """No code of a class, an attribute or a storage runs, and timing refuses it."""
    tensor = make()
    assert told in unlike_plain(tensor)
    assert type(plain(tensor)) is torch.Tensor
    with pytest.raises(LaunchError, match="the kernel returned"):
        require_plain(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3),
        torch.ones(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(6)[::2],
        made(lambda x: setattr(x, "_dynamo_dynamic_indices", {0})),
        torch.ones(3, dtype=torch.complex64).conj().resolve_conj(),
    ],
)
def test_plain_tensors_are_plain(tensor: torch.Tensor) -> None:
    """Also views, parameters, what autograd made, and what torch's compiler has marked."""
    assert unlike_plain(tensor) == ""
    alias = require_plain(tensor)
    assert alias is not tensor
    assert alias.data_ptr() == tensor.data_ptr()
    assert torch.equal(alias, tensor.detach())


RESULTS: dict[str, Callable[[], object]] = {
    "tuple": lambda: (A, B),
    "list": lambda: [A, (B,)],
    "dict": lambda: {"a": A, "b": [B, A]},
    "named tuple": lambda: Pair(A, B),
    "ordered dict": lambda: OrderedDict(a=A, b=B),
    "tuple of its own": lambda: lazy(tuple)((A, B)),
    "list of its own": lambda: lazy(list)([A, B]),
    "dict of its own": lambda: lazy(dict)({"a": A, "b": B}),
    "data": lambda: (A, 1, None, "text", torch.float32, torch.device("cpu"), slice(1), Ellipsis, B),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_containers_are_read_as_they_are(make: Callable[[], object]) -> None:
    """What a container of its own class would say is not asked; tensors come once, in order, and data is left alone."""
    found = tensors_of(make(), "k")
    assert [id(tensor) for tensor in found] == [id(A), id(B)]


OTHERS: dict[str, Callable[[], object]] = {
    "object": Evil,
    "in a tuple": lambda: (A, Evil()),
    "class": lambda: EvilMeta("E", (), {}),
    "object of a class of classes": lambda: type.__call__(EvilMeta("E", (), {})),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_objects_are_refused_without_being_asked(make: Callable[[], object]) -> None:
    """Neither for their class nor for their value."""
    with pytest.raises(LaunchError, match=r"k returned \w+, which is neither a tensor nor plain data"):
        tensors_of(make(), "k")


def test_containers_without_end_are_refused() -> None:
    """A list that holds itself."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(LaunchError, match="nested deeper"):
        tensors_of(endless, "k")


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.resize_(1),
        lambda x: x.set_(torch.ones(2, 2)),
        lambda x: setattr(x, "data", x.clone()),
        lambda x: setattr(x, "__class__", Lazy),
        lambda x: setattr(x, "data", torch._neg_view(x)),
    ],
)
def test_a_tensor_that_lies_otherwise_is_seen(change: Callable[[torch.Tensor], object]) -> None:
    """Whatever is hung on it to say that it does not; its twin stays where it was."""
    own = torch.ones(2, 2)
    given = twin(own)
    before, kept = place(given), place(own)
    assert before == kept
    for name in ("stride", "storage_offset", "untyped_storage", "size", "data_ptr"):
        setattr(given, name, evil)
    assert place(given) == before
    change(given)
    assert place(given) != before
    assert place(own) == kept
