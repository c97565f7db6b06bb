"""Modules as ops: their state is arguments, a replay makes them anew, a pack cannot make others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pytest_cgins.errors import RecordError, ReplayError, TraceError
from pytest_cgins.model import Argument, Trace, Value
from pytest_cgins.trace import modules
from pytest_cgins.trace.call import invoke
from pytest_cgins.trace.record import record
from pytest_cgins.trace.replay import load_gold, load_inputs
from pytest_cgins.trace.store import open_pack

TIERS = ["recipe", "full"]
HEAD = "import torch, pytest_cgins\nfrom torch import nn\nimport torch.nn.functional as F\n"
GATED = (
    HEAD
    + """
class Gated(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.gate, self.up = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.scale = nn.Parameter(torch.randn(width))
        self.register_buffer("shift", torch.randn(width))
        self.eps, self.act, self.axes, self.config = 1e-3, F.silu, (0, -1), object()
    def forward(self, x, *, by=2.0):
        y = self.act(self.gate(x)) * self.up(x)
        return y.transpose(*self.axes).transpose(*self.axes) * self.scale * by + self.shift + self.eps
"""
)


def state_of(trace: Trace) -> dict[str, Value]:
    return {a.name: a.value for a in trace.call.arguments if a.passed == "state"}


def loaded(folder: Path) -> tuple[Trace, list[torch.Tensor], list[torch.Tensor]]:
    reader = open_pack(folder)
    (trace,) = reader.pack.traces
    return trace, load_inputs(trace, reader, "cpu"), [gold.values for gold in load_gold(trace, reader)]


# ---- what is recorded ---------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_a_module_named_by_the_user_is_one_op_with_its_state(project, recorded, tmp_path, tier) -> None:
    """forward's arguments come first, then parameters, buffers and plain attributes; it replays bitwise."""
    source = project(GATED)
    model, x = source.Gated().eval(), torch.randn(3, 8)
    name = f"{source.__name__}.Gated"
    forward = source.Gated.forward
    with torch.no_grad():
        pack = recorded(lambda: model(x, by=3.0), ops=[name], tier=tier)
    (trace,) = pack.traces
    assert source.Gated.forward is forward
    assert (trace.call.op, trace.replay) == (name, "bitwise")
    assert [(a.name, a.passed) for a in trace.call.arguments[:2]] == [("x", "positional"), ("by", "keyword")]
    state = state_of(trace)
    assert {"self.scale", "self.shift", "self.gate.weight", "self.gate.bias", "self.up.weight"} <= set(state)
    assert state["self.eps"] == Value(kind="float", value=(1e-3).hex())
    assert state["self.act"] == Value(kind="op", value="torch.nn.functional.silu")
    assert state["self.up.bias"].kind == "none"
    assert state["self.gate.training"] == Value(kind="bool", value=False)
    assert state["self.gate.__class__"].value == "torch.nn.modules.linear.Linear"
    assert "self.config" not in state
    if tier == "full":
        _, _, (gold,) = loaded(tmp_path / "pack")
        assert torch.equal(gold.view(3, 8), model(x, by=3.0))


def test_a_marked_class_is_recorded_without_being_named(project, recorded) -> None:
    """Nothing inside is an op of its own; what is around the module is."""
    source = project(GATED.replace("class Gated", "@pytest_cgins.mark\nclass Gated"))
    model = nn.Sequential(source.Gated(), nn.GELU())
    pack = recorded(lambda: model(torch.randn(3, 8)))
    assert [trace.call.op for trace in pack.traces] == [
        f"{source.__name__}.Gated",
        "torch.nn.functional.gelu",
    ]
    inside = recorded(lambda: model(torch.randn(3, 8)), ops=["torch.nn.functional.linear"])
    assert sum(trace.count for trace in inside.traces) == 2


def test_a_class_of_torch_is_an_op_by_its_name(recorded) -> None:
    """torch.nn.LayerNorm keeps the name under which it was asked for."""
    pack = recorded(lambda: nn.LayerNorm(6)(torch.randn(2, 6)), ops=["torch.nn.LayerNorm"])
    assert [trace.call.op for trace in pack.traces] == ["torch.nn.LayerNorm"]


def test_modules_that_differ_in_values_only_are_one_trace(project, recorded) -> None:
    """Two layers of a model share a trace; another attribute, or a child in another mode, makes another."""
    source = project(GATED)
    first, second, third, fourth = (source.Gated().eval() for _ in range(4))
    third.eps = 1.0
    fourth.gate.train()
    x = torch.randn(3, 8)
    pack = recorded(
        lambda: [m(x) for m in (first, second, first, third, fourth)], ops=[f"{source.__name__}.Gated"]
    )
    assert sorted(trace.count for trace in pack.traces) == [1, 1, 3]


def test_a_mode_that_changes_between_calls_of_one_module_is_seen(project, recorded) -> None:
    """The state is looked at in every call, not once a module."""
    source = project(GATED)
    model = source.Gated()
    x = torch.randn(3, 8)

    def body() -> None:
        model(x)
        model.up.eval()
        model(x)
        model.double()(x.double())

    assert len(recorded(body, ops=[f"{source.__name__}.Gated"]).traces) == 3
