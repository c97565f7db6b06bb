"""Operators that libraries register: recorded as models call them and below, with what their schemas say is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.ops import written_arguments

NAMESPACE = "cgins_recorded"


@pytest.fixture(scope="module")
def operators() -> Iterator[Any]:
    """Operators that return, that write, and that do so if they are given `out=`."""
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define("into(Tensor(a!) out, Tensor x, float by=2.0) -> ()")
    library.define("scale(Tensor x, float by=2.0) -> Tensor")
    library.define("scale.out(Tensor x, float by=2.0, *, Tensor(a!) out) -> Tensor(a!)")
    library.define("changes(Tensor x) -> Tensor")
    library.define("count(Tensor x) -> int")
    library.impl("count", lambda x: x.numel(), "CPU")
    library.impl("into", _into, "CPU")
    library.impl("scale", lambda x, by=2.0: x * by, "CPU")
    library.impl("scale.out", lambda x, by=2.0, *, out: torch.mul(x, by, out=out), "CPU")
    library.impl("changes", lambda x: x.add_(1).clone(), "CPU")
    yield getattr(torch.ops, NAMESPACE)
    library._destroy()


def _into(out: Tensor, x: Tensor, by: float = 2.0) -> None:
    if x.sum() != 0:  # else it writes nothing
        out.copy_(x * by)


def model(operators: Any) -> Callable[[], Tensor]:
    """Calls an operator by its name, by its overload, and by `out=`."""

    def run() -> Tensor:
        x, out = torch.randn(4, 8), torch.zeros(4, 8)
        operators.into(out, x)
        y = operators.scale(out, 3.0) + operators.scale.default(x)
        operators.scale(x, out=torch.empty(4, 8))
        with torch.autograd.profiler.record_function("block"):
            operators.changes(torch.ones(operators.count(torch.ones(3))))
        result: Tensor = operators.scale.out(y, 0.5, out=torch.zeros(4, 8))
        return result

    return run


def written(pack: TracePack) -> set[tuple[str, tuple[str, ...]]]:
    """Ops, and the names of the arguments that their gold has."""
    return {
        (trace.call.op.removeprefix(f"torch.ops.{NAMESPACE}."), tuple(names[source] for source, _ in trace.gold.mutated))
        for trace in pack.traces
        if trace.gold is not None and NAMESPACE in trace.call.op
        for names in [[argument.name for argument in trace.call.arguments if argument.value.kind == "tensor"]]
    }  # fmt: skip


@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_at_the_level_of_functions(recorded: Any, operators: Any, tier: str) -> None:
    """Without a list of ops they are recorded too, but for queries; a call of the default overload is one of the operator."""
    pack = recorded(model(operators), tier=tier)
    assert written(pack) == {
        ("into", ("out",)), ("scale", ()), ("scale", ("out",)), ("scale.out", ("out",)), ("changes", ("x",)),
    }  # fmt: skip
    assert sum(trace.count for trace in pack.traces if trace.call.op.endswith(".scale")) == 3


def test_at_the_level_of_the_dispatcher(recorded: Any, operators: Any) -> None:
    """Overloads by their names; one that returns nothing computes as well, and so does one of others with `out=`."""
    pack = recorded(model(operators), level="dispatch")
    assert written(pack) == {
        ("into.default", ("out",)), ("scale.default", ()), ("scale.out", ("out",)), ("changes.default", ("x",)),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["scale", "scale.default", "scale.out"])
def test_by_the_name_that_was_asked_for(recorded: Any, operators: Any, name: str) -> None:
    """Whichever way the model calls it."""
    op = f"torch.ops.{NAMESPACE}.{name}"
    pack = recorded(model(operators), ops=[op])
    assert {trace.call.op for trace in pack.traces} == {op}
    assert sum(trace.count for trace in pack.traces) == {"scale": 4, "scale.default": 2, "scale.out": 2}[name]


def test_what_a_schema_says_is_written(recorded: Any, operators: Any) -> None:
    """Also where a call leaves the numbers as they are."""
    pack = recorded(
        lambda: operators.into(torch.zeros(3), torch.zeros(3)), ops=[f"torch.ops.{NAMESPACE}.into"]
    )
    assert written(pack) == {("into", ("out",))}
    assert written_arguments(f"torch.ops.{NAMESPACE}.scale", ["x", "by"]) == frozenset()
    assert written_arguments("torch.nn.functional.relu", ["out"]) == frozenset()


def test_the_backward_of_an_operator(recorded: Any, operators: Any) -> None:
    """Autograd's call of its formula is an op of its own, and replays."""
    torch.library.register_autograd(f"{NAMESPACE}::scale", lambda _, gradient: (gradient * 2, None))
    pack = recorded(
        lambda: operators.scale(torch.randn(3, requires_grad=True)).sum().backward(), backward=True
    )
    assert f"torch.ops.{NAMESPACE}.scale@backward(x)" in {trace.call.op for trace in pack.traces}
    assert all(trace.replay == "bitwise" for trace in pack.traces)


@pytest.mark.parametrize(
    ("asked", "level", "kept"),
    [
        ("twice", "function", {"twice", "twice@backward(x)"}),
        ("twice.default", "function", {"twice.default", "twice.default@backward(x)"}),
        ("twice@backward(x)", "function", {"twice@backward(x)"}),
        ("twice", "dispatch", {"twice.default", "twice.out"}),
        ("twice.out", "dispatch", {"twice.out"}),
    ],
)
def test_an_operator_that_the_run_itself_registers(
    recorded: Any, asked: str, level: str, kept: set[str]
) -> None:
    """It is met by its name; a name that was asked for and never met is told of at the end."""
    namespace = re.sub(r"\W", "_", f"late_{level}_{asked}")  # torch keeps operators that once were there
    with torch.library._scoped_library(namespace, "DEF") as library:

        def run() -> None:
            library.define("twice(Tensor x) -> Tensor")
            library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
            library.impl("twice", lambda x: x * 2, "CPU")
            library.impl("twice.out", lambda x, *, out: torch.mul(x, 2, out=out), "CPU")
            torch.library.register_autograd(
                f"{namespace}::twice", lambda _, gradient: gradient * 2, lib=library
            )
            operator = getattr(torch.ops, namespace).twice
            operator(torch.randn(3, requires_grad=True)).sum().backward()
            operator(torch.randn(3), out=torch.empty(3))

        never = "no call of torch.ops.never.zip was seen; nothing that ran registers it"
        with pytest.warns(UserWarning, match=never):
            pack = recorded(
                run,
                ops=[f"torch.ops.{namespace}.{asked}", "torch.ops.never.zip"],
                level=level,
                backward=level == "function",
            )
    assert {trace.call.op.removeprefix(f"torch.ops.{namespace}.") for trace in pack.traces} == kept
