"""Modules as ops: their state is arguments, a replay makes them anew, a pack cannot make others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_cgins.core.errors import RecordError, ReplayError, TraceError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Argument, OpCall, Trace, Value
from pytest_cgins.packs import modules, ops
from pytest_cgins.packs.call import invoke
from pytest_cgins.packs.replay import load_gold, load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.packs.values import encode
from pytest_cgins.recording.record import record
from pytest_cgins.verify.prepare import prepare
from pytest_cgins.verify.reference import answers
from pytest_cgins.verify.semantics import semantics_for

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


@pytest.mark.parametrize("tier", TIERS)
def test_tied_and_aliased_parameters_stay_so(project, recorded, tmp_path, tier) -> None:
    """One tensor under two names is one tensor again, and a view lies on what it views."""
    source = project(
        HEAD
        + """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out_of = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.out_of.weight = self.into.weight
        self.register_buffer("table", torch.randn(3, 4))
        self.register_buffer("row", self.table[1])
    def forward(self, x):
        self.row.add_(1)
        return self.out_of(self.into(x)) + self.table.sum(0)
"""
    )
    model = source.Tied()
    pack = recorded(lambda: model(torch.randn(2, 4)), ops=[f"{source.__name__}.Tied"], tier=tier)
    (trace,) = pack.traces
    state = state_of(trace)
    assert state["self.into.weight"] == state["self.out_of.weight"]
    tables = [trace.tensors[int(state[f"self.{name}"].value)] for name in ("table", "row")]
    assert tables[0].storage == tables[1].storage
    assert trace.replay == "bitwise"
    _, tensors, _ = loaded(tmp_path / "pack")
    built = modules.rebuild(trace.call, tensors)
    assert built.into.weight is built.out_of.weight
    built.row.fill_(7)
    assert (built.table[1] == 7).all()


@pytest.mark.parametrize("tier", TIERS)
def test_buffers_that_the_call_changes_are_mutated_inputs(recorded, tier) -> None:
    """Batch norm in training changes its running statistics and its count."""
    model = nn.BatchNorm1d(4).train()
    pack = recorded(lambda: model(torch.randn(5, 4)), ops=["torch.nn.BatchNorm1d"], tier=tier)
    (trace,) = pack.traces
    names = {v.value: name for name, v in state_of(trace).items() if v.kind == "tensor"}
    assert sorted(names[index] for index, _ in trace.gold.mutated) == [
        "self.num_batches_tracked",
        "self.running_mean",
        "self.running_var",
    ]
    assert trace.replay == "bitwise"


@pytest.mark.parametrize("tier", TIERS)
def test_dropout_inside_a_module_replays_from_its_seed(recorded, tier) -> None:
    """An op that draws random numbers anywhere inside has a seed."""
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).train()
    pack = recorded(lambda: model(torch.randn(2, 3, 8)), ops=["torch.nn.TransformerEncoderLayer"], tier=tier)
    (trace,) = pack.traces
    assert trace.context.rng_seed is not None
    assert trace.replay == "bitwise"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_attention_takes_the_path_that_it_took(recorded, tier, grad, frozen) -> None:
    """MultiheadAttention chooses by requires_grad of its parameters: a replay has it again."""
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(not frozen)
    x = torch.randn(2, 3, 8)
    with torch.set_grad_enabled(grad):
        pack = recorded(
            lambda: model(x, x, x, need_weights=False), ops=["torch.nn.MultiheadAttention"], tier=tier
        )
    assert [trace.replay for trace in pack.traces] == ["bitwise"]


@pytest.mark.parametrize("tier", TIERS)
def test_recurrent_modules_replay(recorded, tier) -> None:
    """An LSTM keeps its weights in a list as well, and weak references that no trace needs."""
    model = nn.LSTM(4, 5, num_layers=2, batch_first=True).eval()
    with torch.no_grad():
        pack = recorded(lambda: model(torch.randn(2, 3, 4)), ops=["torch.nn.LSTM"], tier=tier)
    (trace,) = pack.traces
    assert trace.replay == "bitwise"
    assert len(trace.gold.tensors) == 3


CONTEXTS = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_context_and_strides_of_a_module_are_replayed(recorded, context, tier) -> None:
    """Autocast, inference mode and channels_last hold for a module as for a function."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    with CONTEXTS[context]():
        pack = recorded(lambda: model(x), ops=["torch.nn.Sequential"], tier=tier)
    (trace,) = pack.traces
    weight = trace.tensors[int(state_of(trace)["self.0.weight"].value)]
    assert weight.stride == model[0].weight.stride()
    assert bool(trace.context.autocast) == (context == "autocast")
    assert trace.replay == "bitwise"


# ---- how calls are seen -------------------------------------------------------------------------


def test_hooks_run_around_the_op(project, recorded, tmp_path) -> None:
    """A pre-hook with kwargs changes what the op gets, a hook what its caller gets."""
    source = project(GATED)
    model, x = source.Gated().eval(), torch.randn(3, 8)
    model.register_forward_pre_hook(
        lambda _, args, kwargs: ((args[0] + 1,), kwargs | {"by": 5.0}), with_kwargs=True
    )
    model.register_forward_hook(lambda _, args, result: result * 0)
    seen = []
    with torch.no_grad():
        recorded(lambda: seen.append(model(x)), ops=[f"{source.__name__}.Gated"], tier="full")
        expected = model.forward(x + 1, by=5.0)
    trace, inputs, (gold,) = loaded(tmp_path / "pack")
    assert not seen[0].any()
    assert torch.equal(inputs[0], x + 1)
    assert trace.call.arguments[1].value.value == (5.0).hex()
    assert torch.equal(gold.view(3, 8), expected)


@pytest.mark.parametrize("how", ["around", "in place", "inside"])
def test_compiled_modules_are_recorded(project, recorded, how) -> None:
    """`torch.compile(module)`, `module.compile()`, and a module with a compiled child."""
    source = project(GATED)
    model = source.Gated().eval()
    if how == "inside":
        model.gate = torch.compile(model.gate, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    called = torch.compile(model, backend="eager") if how == "around" else model
    called(torch.randn(3, 8))
    pack = recorded(lambda: called(torch.randn(3, 8)), ops=[f"{source.__name__}.Gated"])
    assert [(trace.count, trace.replay) for trace in pack.traces] == [(1, "bitwise")]
    assert state_of(pack.traces[0])["self.gate.__class__"].value == "torch.nn.modules.linear.Linear"


def test_a_marked_class_compiles_without_graph_break(project) -> None:
    """Outside of a recording the mark costs a compiled model nothing."""
    source = project(GATED.replace("class Gated", "@pytest_cgins.mark\nclass Gated"))
    model, x = source.Gated().eval(), torch.randn(3, 8)
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


def test_a_child_class_is_another_op(project, recorded) -> None:
    """A call of super().forward() from a class with other state is part of that class."""
    source = project(
        GATED
        + "class Child(Gated):\n    def forward(self, x):\n        return super().forward(x) * 2\n"
        + "class Heir(Gated):\n    pass\n"
    )
    base = f"{source.__name__}.Gated"
    x = torch.randn(3, 8)
    pack = recorded(lambda: (source.Child()(x), source.Gated()(x)), ops=[base])
    assert [trace.count for trace in pack.traces] == [1]
    pack = recorded(lambda: (source.Heir()(x), source.Gated()(x)), ops=[f"{source.__name__}.Heir", base])
    assert sorted(trace.call.op for trace in pack.traces) == [base, f"{source.__name__}.Heir"]
    assert "forward" not in vars(source.Heir)


def test_a_decorated_forward_keeps_its_parameters(project, recorded) -> None:
    """What functools.wraps hides is looked through."""
    source = project(
        "import functools\n"
        + GATED.replace(
            "    def forward(self, x, *, by=2.0):", "    @logged\n    def forward(self, x, *, by=2.0):"
        ).replace(
            "class Gated",
            "def logged(forward):\n    @functools.wraps(forward)\n    def wrapper(*args, **kwargs):\n"
            "        return forward(*args, **kwargs)\n    return wrapper\nclass Gated",
        )
    )
    pack = recorded(lambda: source.Gated()(x=torch.randn(3, 8)), ops=[f"{source.__name__}.Gated"])
    assert [(a.name, a.passed) for a in pack.traces[0].call.arguments[:2]] == [
        ("x", "keyword"),
        ("by", "default"),
    ]


def test_an_error_in_forward_leaves_the_class_as_it_was(project, tmp_path) -> None:
    """Whatever ends the recording, forward is the user's own again."""
    source = project(GATED)
    forward = source.Gated.forward
    with pytest.raises(RuntimeError), record(tmp_path / "pack", ops=[f"{source.__name__}.Gated"]):
        source.Gated()(torch.randn(3, 5))
    assert source.Gated.forward is forward


# ---- what a trace cannot hold -------------------------------------------------------------------

NEEDS = (
    HEAD
    + """
class Config:
    width = 2.0
class Needs(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x) * USE
"""
)


@pytest.mark.parametrize(
    "use", ["self.config.width", "bool(self.config)", "isinstance(self.config, list)", "self.config"]
)
@pytest.mark.parametrize("tier", TIERS)
def test_an_opaque_attribute_that_forward_uses_is_named(project, recorded, use, tier) -> None:
    """The error says which attribute of what type, and what to do."""
    source = project(
        NEEDS.replace("USE", use).replace("width = 2.0", "width = 2.0\n    __rmul__ = lambda s, x: x")
    )
    error = RecordError if tier == "recipe" else ReplayError
    name = source.__name__
    with pytest.raises(
        error, match=rf"{name}\.Needs reads self\.config, a {name}\.Config, which a trace cannot"
    ):
        recorded(lambda: source.Needs()(torch.randn(2, 4)), ops=[f"{name}.Needs"], tier=tier)


def test_an_opaque_attribute_may_be_compared_with_none(project, recorded) -> None:
    """What was there is not None in a replay either."""
    source = project(NEEDS.replace("USE", "(1.0 if self.config is None else 3.0)"))
    pack = recorded(lambda: source.Needs()(torch.randn(2, 4)), ops=[f"{source.__name__}.Needs"], tier="full")
    assert pack.traces[0].replay == "bitwise"


def test_an_attribute_with_an_adapter_is_recorded(project, recorded) -> None:
    """The remedy of the error works."""
    source = project(
        NEEDS.replace("USE", "self.config.width") + "@pytest_cgins.adapter(Config)\nclass ConfigAdapter:\n"
        "    to_plain, from_plain = staticmethod(vars), staticmethod(lambda plain: Config(**plain))\n"
    )
    pack = recorded(lambda: source.Needs()(torch.randn(2, 4)), ops=[f"{source.__name__}.Needs"], tier="full")
    assert state_of(pack.traces[0])["self.config"].kind == "adapted"
    assert pack.traces[0].replay == "bitwise"


def test_children_that_a_replay_could_not_make_are_refused(project, recorded) -> None:
    """A class made at run time, a class of another package, and a module that contains itself."""
    holder = project(
        HEAD + "class Holder(nn.Module):\n    def forward(self, x):\n        return self.inner(x)\n"
    )
    other = project(GATED)

    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def call(inner: nn.Module) -> None:
        model = holder.Holder()
        model.inner = inner
        recorded(lambda: model(torch.randn(2, 8)), ops=[f"{holder.__name__}.Holder"])

    with pytest.raises(
        RecordError, match=r"the class of self\.inner, .*Local, cannot be imported by this name"
    ):
        call(Local())
    with pytest.raises(
        RecordError, match=rf"neither torch\.nn's nor of the package {holder.__name__} nor marked"
    ):
        call(other.Gated())
    looped = holder.Holder()
    looped.inner = nn.Linear(8, 8)
    looped.inner.parent = looped
    with pytest.raises(RecordError, match=r"self\.inner\.parent is a module that contains itself"):
        recorded(lambda: looped(torch.randn(2, 8)), ops=[f"{holder.__name__}.Holder"])


@pytest.mark.parametrize(
    "kind", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
def test_hooks_inside_the_op_are_refused(project, recorded, kind) -> None:
    """A replay has none, and would give another result."""
    source = project(GATED)
    model = source.Gated()
    child, _ = next((name, child) for name, child in model.named_children() if isinstance(child, nn.Linear))
    getattr(getattr(model, child), kind)(lambda *_: None)
    with pytest.raises(RecordError, match=rf"self\.{child} has hooks, which may change what it does"):
        recorded(lambda: model(torch.randn(2, 8)), ops=[f"{source.__name__}.Gated"])


def test_a_hook_that_comes_later_is_seen(project, recorded) -> None:
    """The call after it is another one, and refused."""
    source = project(GATED)
    model, x = source.Gated(), torch.randn(2, 8)

    def body() -> None:
        model(x)
        model.up.register_forward_hook(lambda *_: None)
        model(x)

    with pytest.raises(RecordError, match=r"self\.up has hooks"):
        recorded(body, ops=[f"{source.__name__}.Gated"])


def test_which_of_two_children_stands_where_tells_modules_apart(recorded) -> None:
    """Of equal children in three places the last is the first here, and the second there."""
    one, other = nn.Linear(8, 8), nn.Linear(8, 8)
    models, x = (nn.Sequential(one, other, one), nn.Sequential(one, other, other)), torch.randn(2, 8)
    pack = recorded(lambda: [model(x) for model in models], ops=["torch.nn.Sequential"])
    assert [trace.count for trace in pack.traces] == [1, 1]


# ---- hostile packs ------------------------------------------------------------------------------


def test_a_class_that_nobody_has_marked_or_named_is_not_made(project) -> None:
    """A pack alone cannot have a module's code run."""
    source = project(GATED)
    with pytest.raises(TraceError, match="neither a torch op nor a marked function"):
        ops.resolve(f"{source.__name__}.Gated")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("self._forward_hooks", {}, "has the state 'self._forward_hooks', which no module has"),
        ("self.nowhere.weight", 1, "has the state 'self.nowhere.weight'"),
        ("self.", 1, "has the state 'self.'"),
        ("self.__parameters__", ("absent",), "has the state 'self.absent'"),
        ("self.__parameters__", ["weight"], "has the state 'self.__parameters__'"),
        ("self.__left_out__", ("weight",), "has the state 'self.__left_out__'"),
        ("self.__buffers__", ([],), "has the state 'self.__buffers__'"),
        ("self.inner.__class__", "subprocess.Popen", "is not an nn.Module"),
        ("self.inner.__class__", 3, "has the state 'self.inner'"),
        ("self.inner.__class__", "torch.fx.GraphModule", "is neither torch.nn's nor of the package torch"),
        ("self.inner.__class__", f"{__name__}.Foreign", "is neither torch.nn's nor of the package torch"),
        ("self.a.b.__class__", "torch.nn.Linear", "has the state 'self.a.b'"),
    ],
)
def test_hostile_state_is_refused(name: str, value: object, says: str) -> None:
    """Nothing but plain attributes of modules of known classes is made."""
    call = OpCall(
        op="torch.nn.Linear",
        arguments=(
            Argument(name="self.weight", value=Value(kind="none"), passed="state"),
            Argument(name=name, value=encode(value, []), passed="state"),
        ),
    )
    with pytest.raises(TraceError, match=re.escape(says)):
        modules.rebuild(call, [])


class Foreign(nn.Module):
    """Of another package than torch."""


def test_state_of_an_op_that_is_no_module_is_refused() -> None:
    """A function has no state."""
    argument = Argument(name="self.weight", value=Value(kind="none"), passed="state")
    with pytest.raises(TraceError, match="is not a module class"):
        invoke(OpCall(op="torch.nn.functional.gelu", arguments=(argument,)), [])


# ---- as any other op ----------------------------------------------------------------------------


def test_the_reference_of_a_module_is_computed_in_fp64(project, recorded, tmp_path) -> None:
    """State tensors are widened as arguments are, and the class's own code computes on them."""
    source = project(GATED)
    recorded(lambda: source.Gated().eval()(torch.randn(3, 8)), ops=[f"{source.__name__}.Gated"])
    trace, tensors, _ = loaded(tmp_path / "pack")
    made = answers(trace.call, lay_out(tensors), trace.context, "cpu")
    assert made.reference[0].dtype == torch.float64
    assert not made.note
    torch.testing.assert_close(made.reference[0].float(), made.answer[0].detach())
    assert not torch.equal(made.reference[0].float().double(), made.reference[0])


def test_weights_of_modules_are_drawn_as_weights(project, recorded) -> None:
    """Fresh inputs scale the rows of what forward takes; a matrix of the module is a weight, a variance positive."""
    source = project(
        HEAD + "class Odd(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.table = nn.Parameter(torch.randn(4, 4))\n        self.norm = nn.BatchNorm1d(4)\n"
        "    def forward(self, x):\n        return self.norm(x @ self.table)\n"
    )
    (trace,) = recorded(lambda: source.Odd()(torch.randn(3, 4)), ops=[f"{source.__name__}.Odd"]).traces
    semantics = semantics_for(trace.call)
    roles = {name: semantics.role(index, trace.tensors[index]) for index, name in semantics.names.items()}
    assert roles["x"] == "data"
    assert roles["self.table"] == "weight"
    assert roles["self.norm.running_var"] == "positive"


def test_a_counter_that_the_module_keeps_does_not_cost_edge_inputs(recorded, tmp_path) -> None:
    """Batch norm counts its batches; indices that an op returns may point at any of equal values."""
    recorded(lambda: nn.BatchNorm1d(8)(torch.randn(4, 8)), ops=["torch.nn.BatchNorm1d"])
    reader = open_pack(tmp_path / "pack")
    prepared = prepare(reader.pack.traces[0], reader, "cpu", seed=0)
    assert [made.expected.name for made in prepared.sets] == ["recorded", "fresh", "edge"]
    recorded(lambda: torch.topk(torch.randn(4, 8), 2), ops=["torch.topk"])
    reader = open_pack(tmp_path / "pack")
    prepared = prepare(reader.pack.traces[0], reader, "cpu", seed=0)
    assert [made.expected.name for made in prepared.sets] == ["recorded", "fresh", "edge"]


def test_swapped_parameters_are_the_state(recorded, tmp_path) -> None:
    """torch.func.functional_call puts tensors in the place of parameters: these are recorded."""
    model, x = nn.Linear(3, 3, bias=False), torch.randn(2, 3)
    swapped = {"weight": torch.full((3, 3), 2.0)}
    recorded(lambda: torch.func.functional_call(model, swapped, (x,)), ops=["torch.nn.Linear"], tier="full")
    trace, tensors, (gold,) = loaded(tmp_path / "pack")
    assert torch.equal(tensors[int(state_of(trace)["self.weight"].value)], swapped["weight"])
    assert torch.equal(gold.view(2, 3), x @ swapped["weight"].t())


@pytest.mark.parametrize("where", ["argument", "state"])
def test_a_module_inside_a_functional_transform_is_refused(recorded, where) -> None:
    """Neither its input nor its parameters may be wrapped: they have no storage."""
    model, x = nn.Linear(3, 3, bias=False), torch.randn(2, 3)

    def call(weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, {"weight": weight}, (x,)).sum()

    body = {
        "argument": lambda: torch.vmap(model)(x),
        "state": lambda: torch.func.grad(call)(torch.ones(3, 3)),
    }
    with pytest.raises(RecordError, match=r"torch\.nn\.Linear cannot be recorded: .* torch\.func transform"):
        recorded(body[where], ops=["torch.nn.Linear"])
