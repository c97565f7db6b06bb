from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_cgins.packs.signature import bind

x = torch.randn(2, 3, 4)
w = torch.randn(5, 4)


def named(func, *args, **kwargs) -> list[tuple[str, str]]:
    return [(bound.name, bound.passed) for bound in bind(func, args, kwargs)]


def test_builtins_take_their_names_from_torch_schemas() -> None:
    """linear, gelu and conv2d have no Python signature; their parameters are known all the same."""
    assert named(F.linear, x, w) == [("input", "positional"), ("weight", "positional"), ("bias", "default")]
    assert named(F.gelu, x, approximate="tanh") == [("input", "positional"), ("approximate", "keyword")]
    assert bind(F.gelu, (x,), {})[1].value == "none"
    image = torch.randn(1, 3, 4, 4)
    assert [name for name, _ in named(F.conv2d, image, image)][:4] == ["input", "weight", "bias", "stride"]


def test_python_functions_take_theirs_from_inspect() -> None:
    """Keyword splits of a Python function are kept, defaults listed."""
    bound = bind(F.layer_norm, (x, [4]), {"eps": 1e-6})
    assert [(b.name, b.passed) for b in bound] == [
        ("input", "positional"),
        ("normalized_shape", "positional"),
        ("weight", "default"),
        ("bias", "default"),
        ("eps", "keyword"),
    ]


def test_methods_keep_self() -> None:
    """A Tensor method's first parameter is self; functions of the same schema call it input."""
    assert named(torch.Tensor.add, x, 1)[0] == ("self", "positional")
    assert named(torch.add, x, 1)[0] == ("input", "positional")


def test_overloads_are_told_apart_by_types() -> None:
    """mean() and mean(dim) bind to different parameter lists; so do Tensor and Scalar operands."""
    assert "dim" not in dict(named(torch.Tensor.mean, x))
    assert dict(named(torch.Tensor.mean, x, -1))["dim"] == "positional"
    assert [name for name, _ in named(torch.pow, 2, x)] == ["input", "exponent"]


@pytest.mark.parametrize(
    ("func", "args", "options", "parameters"),
    [
        (torch.add, (x, x), {"alpha": 2.0}, ["input", "other", "alpha"]),
        (torch.sub, (x, x), {}, ["input", "other", "alpha"]),
        (torch.softmax, (x, -1), {}, ["input", "dim", "dtype"]),
        (torch.mean, (x, 1), {"keepdim": False}, ["input", "dim", "keepdim", "dtype"]),
        (torch.max, (x, 1), {}, ["input", "dim", "keepdim"]),
    ],
)
def test_a_call_with_out_has_the_names_of_the_one_without(func, args, options, parameters) -> None:
    """`out`, one tensor or several, follows the parameters of the overload that returns new tensors."""
    made = func(*args, **options)
    out = made if isinstance(made, torch.Tensor) else tuple(made)
    without = named(func, *args, **options)
    assert [name for name, _ in without] == parameters
    assert named(func, *args, **options, out=out) == [*without, ("out", "keyword")]
    func(*args, **options, out=out)  # a call that torch takes


def test_a_run_of_ints_is_one_size() -> None:
    """x.permute(0, 2, 1) binds dims as a tuple."""
    assert bind(torch.Tensor.permute, (x, 0, 2, 1), {})[1].value == (0, 2, 1)


def test_star_arguments_are_numbered() -> None:
    """Items of *args are args.0, args.1, and the order of the signature is kept."""

    def function(first, *args, last=3, **more):
        return first

    bound = bind(function, (1, 2, 3), {"other": 4})
    assert [(b.name, b.value, b.passed) for b in bound] == [
        ("first", 1, "positional"),
        ("args.0", 2, "positional"),
        ("args.1", 3, "positional"),
        ("last", 3, "default"),
        ("other", 4, "keyword"),
    ]


def test_dispatched_functions_have_the_defaults_of_what_they_choose_between() -> None:
    """F.max_pool2d binds to one list of names, with Python's defaults, however it is called."""
    image = torch.randn(1, 1, 4, 4)
    defaults = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    bound = bind(F.max_pool2d, (image, 2), {})
    assert {b.name: b.value for b in bound if b.passed == "default"} == defaults
    bound = bind(F.max_pool2d, (image, 2), {"return_indices": True})
    assert {b.name: b.value for b in bound if b.passed == "default"} == {
        name: value for name, value in defaults.items() if name != "return_indices"
    }


@pytest.mark.parametrize("func", [F.max_pool2d, torch.max_pool2d])
def test_functions_behind_a_dispatcher_are_named_too(func) -> None:
    """F.max_pool2d takes *args, **kwargs by its own account; its schema says more."""
    names = [name for name, _ in named(func, torch.randn(1, 1, 4, 4), 2, stride=1)]
    assert names[:3] == ["input", "kernel_size", "stride"]


def test_reflected_operators_are_named() -> None:
    """`1 - x` reaches Tensor.__rsub__, which has a Python signature."""
    assert named(torch.Tensor.__rsub__, x, 1) == [("self", "positional"), ("other", "positional")]


def test_what_nothing_describes_is_numbered() -> None:
    """A builtin without schema keeps its positions."""
    assert [name for name, _ in named(divmod, 7, 2)] in (["x", "y"], ["args.0", "args.1"])
    assert named(print, 1, end="")[0] == ("args.0", "positional")
