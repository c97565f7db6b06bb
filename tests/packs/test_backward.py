"""The backward of an op as an op, recorded and replayed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pytest_cgins.core.errors import PackError, RecordError, TraceError
from pytest_cgins.core.trace import Trace, TracePack
from pytest_cgins.packs import backward
from pytest_cgins.packs.backward import resolve
from pytest_cgins.packs.gold import load_gold
from pytest_cgins.packs.ops import qualified_name
from pytest_cgins.packs.replay import load_inputs, run
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.record import record

LINEAR = "torch.nn.functional.linear@backward(input,weight,bias)"


def named(pack: TracePack, part: str) -> list[Trace]:
    return [trace for trace in pack.traces if part in trace.call.op]


def gold_of(folder: Path, part: str, nth: int = 0) -> list[torch.Tensor]:
    """Recorded results of the nth trace of an op, in shape; the pack is of tier full."""
    reader = open_pack(folder)
    trace = named(reader.pack, part)[nth]
    return [values.values.reshape(values.recorded.meta.shape) for values in load_gold(trace, reader)]


def argument(folder: Path, part: str, name: str) -> torch.Tensor:
    """A recorded argument."""
    reader = open_pack(folder)
    trace = named(reader.pack, part)[0]
    value = next(a.value.value for a in trace.call.arguments if a.name == name)
    return load_inputs(trace, reader, "cpu")[value]


# ---- the derived op -----------------------------------------------------------------------------


def test_it_gives_autograds_gradients_bit_for_bit() -> None:
    """`OP@backward(a,b)` takes grad_output and the op's arguments, and returns a tuple in the order of the names."""
    x, w, b = (torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,)))
    y = F.linear(x, w, b)
    g = torch.randn_like(y)
    wanted = torch.autograd.grad(y, (x, w, b), g)
    op = resolve(LINEAR)
    with torch.no_grad():
        found = op(g, x, w, bias=b)
    assert qualified_name(op) == LINEAR
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_binding_gives_the_gradient_and_then_the_ops_own_parameters() -> None:
    """Defaults are listed; gradients may be passed by keyword."""
    op = resolve("torch.nn.functional.gelu@backward(input)")
    x = torch.ones(2)
    expected = [("grad_output", "positional"), ("input", "positional"), ("approximate", "default")]
    assert [(name, passed) for name, _, passed in bind(op, (x, x), {})] == expected
    assert [one.name for one in bind(op, (x,), {"grad_output": x})] == [name for name, _ in expected]
    with pytest.raises(TypeError, match="needs grad_output"):
        bind(op, (), {})


def test_several_outputs_take_several_gradients() -> None:
    """max over a dimension has values and indices; only the values have a gradient."""
    op = resolve("torch.max@backward(input)")
    x = torch.tensor([[1.0, 3.0], [5.0, 4.0]])
    (found,) = op(x, 1, **{"grad_outputs.0": torch.tensor([10.0, 20.0]), "grad_outputs.1": None})
    assert found.tolist() == [[0, 10], [20, 0]]
    with pytest.raises(TraceError, match="returns 2 tensors, and 1 gradient is passed"):
        op(torch.ones(2), x, 1)


@pytest.mark.parametrize("name", ["torch.nn.functional.relu", "torch.relu_", "torch.Tensor.relu_"])
def test_an_op_in_place_leaves_its_arguments_as_they_are(name: str) -> None:
    """The leaf is cloned, and what was passed is not changed."""
    x = torch.tensor([-1.0, 2.0])
    parameter = "self" if "Tensor" in name else "input"
    options = {"inplace": True} if "functional" in name else {}
    (found,) = resolve(f"{name}@backward({parameter})")(torch.ones(2), x, **options)
    assert found.tolist() == [0, 1]
    assert x.tolist() == [-1, 2]


def test_a_function_that_writes_in_place_unannounced_is_run_on_clones(project) -> None:
    """Autograd's refusal of leaves is met by a second attempt."""
    module = project(
        "import pytest_cgins\n@pytest_cgins.mark\ndef double(x):\n    x.mul_(2)\n    return x * x\n"
    )
    (found,) = resolve(f"{module.__name__}.double@backward(x)")(torch.ones(2), torch.tensor([1.0, 3.0]))
    assert found.tolist() == [8, 24]


def test_running_statistics_are_not_updated_by_a_backward() -> None:
    """The forward inside runs on copies."""
    mean, var = torch.zeros(3), torch.ones(3)
    op = resolve("torch.nn.functional.batch_norm@backward(input)")
    op(torch.randn(4, 3), torch.randn(4, 3), mean, var, training=True)
    assert mean.tolist() == [0, 0, 0]
    assert var.tolist() == [1, 1, 1]


def test_one_tensor_in_two_arguments_has_two_partial_derivatives() -> None:
    """x·x gives g·x twice, not 2·g·x."""
    x = torch.tensor([3.0])
    first, second = resolve("torch.mul@backward(input,other)")(torch.ones(1), x, x)
    assert (first.item(), second.item()) == (3, 3)


def test_results_are_told_apart_and_absent_ones_are_zero(project) -> None:
    """An addition's gradients are one object in autograd; an argument that is not used has gradient 0."""
    found = resolve("torch.add@backward(input,other)")(torch.ones(2), torch.ones(2), torch.ones(2))
    assert found[0] is not found[1]
    module = project("import pytest_cgins\n@pytest_cgins.mark\ndef first(x, y):\n    return x + 0 * 1\n")
    _, absent = resolve(f"{module.__name__}.first@backward(x,y)")(torch.ones(2), torch.ones(2), torch.ones(3))
    assert absent.tolist() == [0, 0, 0]


def test_a_list_argument_gives_a_gradient_a_tensor() -> None:
    """cat's gradients are the parts."""
    found = resolve("torch.cat@backward(tensors)")(torch.arange(5.0), [torch.ones(2), torch.ones(3)])
    assert [part.tolist() for part in found] == [[0, 1], [2, 3, 4]]


def test_the_prepared_backward_runs_the_forward_once(project) -> None:
    """What is timed is autograd alone, as often as wanted."""
    module = project(
        "import pytest_cgins\ncalls = 0\n@pytest_cgins.mark\ndef square(x):\n"
        "    global calls\n    calls += 1\n    return x * x\n"
    )
    op = resolve(f"{module.__name__}.square@backward(x)")
    assert isinstance(op, backward.Backward)
    x, g = torch.tensor([3.0]), torch.ones(1)
    from pytest_cgins.core.trace import Argument, OpCall, Value

    arguments = tuple(
        Argument(name=name, value=Value(kind="tensor", value=index), passed="keyword")
        for index, name in enumerate(("grad_output", "x"))
    )
    once = backward.prepared(OpCall(op=op.name, arguments=arguments), [g, x])
    assert [once()[0].item() for _ in range(3)] == [6, 6, 6]
    assert module.calls == 1


@pytest.mark.parametrize(
    "name",
    ["torch.relu@backward", "torch.relu@backward()", "torch.relu@backward(a, b)", "torch.relu@forward(a)",
     "torch.relu@backward(a)@backward(b)", "torch.relu@backward(a,)"],
)  # fmt: skip
def test_names_that_are_not_a_backwards_are_refused(name: str) -> None:
    """The message shows how to write one."""
    with pytest.raises(TraceError, match=r"is not the name of a backward\n.*linear@backward\(input,weight\)"):
        resolve(name)


def test_an_argument_that_the_op_lacks_is_named() -> None:
    """The op's own are listed."""
    with pytest.raises(TraceError, match=r"has no argument wheight in this call\n.*bias, input, weight"):
        resolve("torch.nn.functional.linear@backward(wheight)")(
            torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1)
        )


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,8}", fullmatch=True)


@given(st.from_regex(r"[a-z]+(\.[a-z]+){1,3}", fullmatch=True), st.lists(NAMES, min_size=1, max_size=4))
def test_names_round_trip(op: str, names: list[str]) -> None:
    """What name_of writes, parse reads."""
    assert backward.parse(backward.name_of(op, names)) == (op, tuple(names))


def test_a_pack_cannot_hide_another_op_in_a_backward(tmp_path: Path) -> None:
    """The op inside must be one of torch's, marked, or trusted; and names in packs are checked."""
    with pytest.raises(TraceError, match=r"os\.system is neither a torch op nor a marked function"):
        resolve("os.system@backward(command)")
    with record(tmp_path / "pack", backward=True):
        F.gelu(torch.ones(2, requires_grad=True)).sum().backward()
    manifest = tmp_path / "pack" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("gelu@backward(input)", "gelu@backward(input);x"))
    with pytest.raises(PackError, match="is not a qualified name"):
        open_pack(tmp_path / "pack")


# ---- recording ----------------------------------------------------------------------------------


class Block(nn.Module):
    """A decoder's layer: rms norm, rotary attention with fewer key heads, gated MLP."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 24, bias=False), nn.Linear(width, 24, bias=False)
        self.down = nn.Linear(24, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(h).view(batch, length, 2, self.heads // 2, -1).unbind(2)
        k, v = (part.transpose(1, 2).repeat_interleave(2, dim=1) for part in (k, v))
        half = q.shape[-1] // 2
        angle = torch.arange(length)[:, None] / 10.0 ** torch.arange(half)
        turn = torch.cat([-q[..., half:], q[..., :half]], -1)
        q = q * torch.cos(angle).repeat(1, 2) + turn * torch.sin(angle).repeat(1, 2)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


NETS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "conv": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 4)
        ),
        torch.randn(2, 3, 6, 6),
    ),
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        torch.randn(2, 5, 16),
    ),
    "llama": lambda: (Block(), torch.randn(2, 5, 16)),
}


@pytest.mark.parametrize("tier", ["recipe", "full"])
@pytest.mark.parametrize("net", list(NETS))
def test_the_backwards_of_a_net_replay_bitwise(recorded, net: str, tier: str) -> None:
    """Every op with a gradient has a trace of its backward, and each gives its gold again."""
    model, x = NETS[net]()
    pack = recorded(lambda: model(x).square().mean().backward(), backward=True, tier=tier)
    derived = named(pack, "@backward")
    assert {trace.replay for trace in pack.traces} == {"bitwise"}
    with_gradient = {trace.call.op for trace in pack.traces if any(m.requires_grad for m in trace.tensors)}
    assert {backward.parse(trace.call.op)[0] for trace in derived} == {
        op.partition("@")[0] for op in with_gradient
    }
    assert all(trace.context.grad_enabled for trace in derived)
    assert not any(trace.gold.mutated for trace in derived)


def test_the_recorded_gradients_are_those_of_the_model(recorded, tmp_path: Path) -> None:
    """Convolution, batch norm, ReLU in place, linear: gold is what backward() left in the parameters, bit for bit."""
    model, x = NETS["conv"]()
    recorded(lambda: model(x).square().mean().backward(), backward=True, tier="full")
    folder = tmp_path / "pack"
    for part, module in [("conv2d@", model[0]), ("batch_norm@", model[1]), ("linear@", model[4])]:
        *_, weight, bias = gold_of(folder, part)
        assert torch.equal(weight, module.weight.grad)
        assert torch.equal(bias, module.bias.grad)
    # Batch norm's gradient comes through the ReLU in place behind it.
    (relu,) = gold_of(folder, "relu@")
    assert torch.equal(relu, argument(folder, "batch_norm@", "grad_output"))


TANH = "torch.tanh@backward(input)"


def tanh_twice(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.tanh(x))


def test_gradients_are_those_of_the_call_whose_inputs_are_kept(recorded, tmp_path: Path) -> None:
    """Two calls of one form: gradients come to the second first, and the trace is of the first."""
    x = torch.linspace(-1, 1, 4, requires_grad=True)
    pack = recorded(lambda: (tanh_twice(x) * 2).backward(torch.full((4,), 3.0)), ops=[TANH], tier="full")
    y = torch.tanh(x.detach())
    g = torch.autograd.grad(torch.tanh(y.requires_grad_()) * 2, y, torch.full((4,), 3.0))[0]
    assert [trace.count for trace in pack.traces] == [2]
    assert torch.equal(argument(tmp_path / "pack", TANH, "input"), x.detach())
    assert torch.equal(argument(tmp_path / "pack", TANH, "grad_output"), g)
    assert torch.equal(gold_of(tmp_path / "pack", TANH)[0], x.grad)


def test_layers_of_one_shape_have_the_traces_of_a_plain_run(recorded, tmp_path: Path) -> None:
    """Three equal layers, tier full: inputs, grad_output and gold are the first layer's, bit for bit, in a second step too."""
    layers = nn.Sequential(
        *(part for _ in range(3) for part in (nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)))
    )
    x = torch.randn(4, 8, requires_grad=True)
    values = [x]
    for layer in layers:
        values.append(layer(values[-1]))
    gradients = torch.autograd.grad(values[-1].square().sum(), values, retain_graph=True)
    weights = torch.autograd.grad(values[-1].square().sum(), [layers[0].weight, layers[2].weight])

    def body() -> None:
        for _ in range(2):
            layers(x).square().sum().backward()

    pack = recorded(body, backward=True, tier="full")
    folder = tmp_path / "pack"
    for nth, part in enumerate(("linear@", "gelu@", "layer_norm@")):
        assert [trace.count for trace in named(pack, part)] == [6]
        assert torch.equal(argument(folder, part, "input"), values[nth].detach())
        assert torch.equal(argument(folder, part, "grad_output"), gradients[nth + 1])
        gold = gold_of(folder, part)
        assert torch.equal(gold[0], gradients[nth])
        if len(gold) > 1:
            assert torch.equal(gold[1], weights[nth // 2])


@pytest.mark.parametrize("kept_alive", [False, True])
def test_a_call_without_a_gradient_leaves_its_place_to_a_later_one(
    recorded, tmp_path: Path, kept_alive: bool
) -> None:
    """A forward that nobody asked a gradient of, gone or still there: the pair is of a call that had both."""
    first, then = (torch.randn(4, requires_grad=True) for _ in range(2))
    held: list[torch.Tensor] = []

    def body() -> None:
        idle = torch.tanh(first)
        if kept_alive:
            held.append(idle)
        del idle
        for _ in range(2):
            (torch.tanh(then) * 2).sum().backward()

    pack = recorded(body, ops=[TANH], tier="full")
    assert [trace.count for trace in pack.traces] == [2]
    assert torch.equal(argument(tmp_path / "pack", TANH, "input"), then.detach())
    assert torch.equal(gold_of(tmp_path / "pack", TANH)[0] * 2, then.grad)


def test_gradients_that_belong_to_no_kept_inputs_are_left_out_of_tier_full(recorded) -> None:
    """The first call's gradient never comes, and no other call's inputs are kept; tier recipe has statistics of both."""
    x = torch.randn(2, 4, requires_grad=True)

    def body() -> None:
        held.append(torch.tanh(x))
        torch.tanh(x).sum().backward()

    held: list[torch.Tensor] = []
    with pytest.raises(
        RecordError,
        match=r"tanh@backward\(input\) cannot be recorded, in 1 call: gradients float32 \(2, 4\) with strides "
        r"\(0, 0\) came only to calls whose inputs were not kept(.|\n)*run another step under the same recording",
    ):
        recorded(body, ops=[TANH], tier="full")
    with pytest.warns(UserWarning, match="tier recipe does not need"):
        recorded(body, ops=["torch.tanh"], backward=True, tier="full", top_time=1.0)
    assert [trace.count for trace in recorded(body, ops=[TANH]).traces] == [1]


@pytest.mark.parametrize("steps", [1, 2])
def test_a_form_of_gradients_that_the_first_call_has_not_is_taken_in_a_later_step(
    recorded, tmp_path: Path, steps: int
) -> None:
    """The last layer's gradient is expanded: one step has no inputs for it in tier full, the next one has."""
    x, w = torch.randn(2, 4, requires_grad=True), torch.randn(2, 4)

    def body() -> None:
        for _ in range(steps):
            torch.tanh(torch.tanh(x) * w).sum().backward()

    if steps == 1:
        with pytest.warns(UserWarning, match=r"strides \(0, 0\) came only to calls"):
            recorded(body, ops=[TANH], tier="full")
    else:
        recorded(body, ops=[TANH], tier="full")
    reader = open_pack(tmp_path / "pack")
    found = {
        trace.tensors[1].stride: (trace.count, load_inputs(trace, reader, "cpu"))
        for trace in reader.pack.traces
    }
    dense, expanded = found.get((4, 1)), found.get((0, 0))
    assert dense is not None
    assert dense[0] == steps
    assert torch.equal(dense[1][0], x.detach())
    if steps == 1:
        assert expanded is None
    else:
        assert expanded is not None
        assert expanded[0] == 2
        assert torch.equal(expanded[1][0], torch.tanh(x.detach()) * w)
        assert expanded[1][1].tolist() == [[1] * 4] * 2


def test_a_second_pass_over_the_kept_calls_graph_only_counts(recorded, tmp_path: Path) -> None:
    """The first gradient stays, and one of another form is a trace of the same inputs."""
    x = torch.randn(2, 4, requires_grad=True)
    g = torch.randn(2, 4)

    def body() -> None:
        y = torch.tanh(x)
        for gradient in (g, 2 * g, torch.ones(()).expand(2, 4)):
            y.backward(gradient, retain_graph=True)
        torch.tanh(x + 1).sum().backward()

    recorded(body, ops=[TANH], tier="full")
    reader = open_pack(tmp_path / "pack")
    loaded = {
        trace.tensors[1].stride: (trace.count, load_inputs(trace, reader, "cpu"))
        for trace in reader.pack.traces
    }
    assert {stride: count for stride, (count, _) in loaded.items()} == {(4, 1): 2, (0, 0): 2}
    assert all(torch.equal(tensors[0], x.detach()) for _, tensors in loaded.values())
    assert torch.equal(loaded[4, 1][1][1], g)


def test_outputs_of_several_nodes_keep_the_gradients_of_one_call(project, recorded, tmp_path: Path) -> None:
    """Two outputs, two calls: both gradients are the first call's."""
    module = project(
        "import pytest_cgins, torch\n@pytest_cgins.mark\ndef both(x):\n    return torch.sin(x), torch.exp(x)\n"
    )
    x = torch.randn(4, requires_grad=True)

    def body() -> None:
        left, right = module.both(x)
        again = module.both(left)
        (again[0] * 2 + again[1] * 3 + right * 5).sum().backward()

    pack = recorded(body, ops=[f"{module.__name__}.both"], backward=True, tier="full")
    (trace,) = named(pack, "@")
    assert trace.count == 2
    sin = torch.sin(x.detach())
    assert torch.equal(argument(tmp_path / "pack", "@", "x"), x.detach())
    torch.testing.assert_close(
        argument(tmp_path / "pack", "@", "grad_outputs.0"), 2 * torch.cos(sin) + 3 * torch.exp(sin)
    )
    assert argument(tmp_path / "pack", "@", "grad_outputs.1").tolist() == [5] * 4
    assert torch.equal(gold_of(tmp_path / "pack", "@")[0], x.grad)


def test_sizes_that_change_keep_pairs(recorded, tmp_path: Path) -> None:
    """Twenty lengths, of which most are given up while the model runs: those kept are the first call's, and all count."""
    made = {size: torch.randn(size, 2, requires_grad=True) for size in range(3, 23)}

    def body() -> None:
        for x in made.values():
            (tanh_twice(x) * 2).backward(torch.ones_like(x))

    pack = recorded(body, ops=[TANH], tier="full")
    assert (len(pack.traces), sum(trace.count for trace in pack.traces)) == (4, 40)
    for nth, trace in enumerate(pack.traces):
        x = made[trace.tensors[0].shape[0]]
        assert torch.equal(gold_of(tmp_path / "pack", TANH, nth)[0], x.grad)


def test_contents_of_calls_that_are_not_kept_leave_the_disk(tmp_path: Path) -> None:
    """What a recording holds does not grow with the steps, and nothing is in a pack that no trace refers to."""
    x, held = torch.randn(2, 4, requires_grad=True), []
    with record(tmp_path / "pack", ops=[TANH], tier="full") as recording:
        for step in range(4):
            idle = torch.tanh(x + 100 + step)
            held.append(len(list(tmp_path.glob(".pack*/blobs/*"))))
            del idle
        for step in range(20):
            (torch.tanh(tanh_twice(x + step)) * torch.randn(2, 4)).sum().backward()
        held.append(len(list(tmp_path.glob(".pack*/blobs/*"))))
    # The first call's inputs stand in, the last one's are waiting; at the end with a gradient.
    assert held == [1, 2, 2, 2, 3]
    assert len(list((tmp_path / "pack" / "blobs").iterdir())) == 3
    assert [trace.count for trace in recording.pack.traces] == [60]


def test_inputs_are_taken_before_the_forward(recorded, tmp_path: Path) -> None:
    """A ReLU in place overwrites its input before the gradient arrives; the trace has what it was."""
    x = torch.randn(9, requires_grad=True)
    recorded(lambda: (x * 2).relu_().sum().backward(), ops=["torch.Tensor.relu_"], backward=True, tier="full")
    assert torch.equal(argument(tmp_path / "pack", "relu_@", "self"), (x * 2).detach())
    assert torch.equal(gold_of(tmp_path / "pack", "relu_@")[0], (x > 0).float())


def test_an_output_that_is_used_twice_has_one_summed_gradient(recorded, tmp_path: Path) -> None:
    """The hook sees the total, once."""
    x = torch.randn(4, requires_grad=True)

    def body() -> None:
        y = F.gelu(x)
        (y * 2 + y * 3).sum().backward()

    pack = recorded(body, ops=["torch.nn.functional.gelu"], backward=True, tier="full")
    assert [trace.count for trace in named(pack, "@")] == [1]
    assert argument(tmp_path / "pack", "gelu@", "grad_output").tolist() == [5, 5, 5, 5]
    assert torch.equal(gold_of(tmp_path / "pack", "gelu@")[0], x.grad)


def test_a_tied_weight_has_a_gradient_an_op(recorded, tmp_path: Path) -> None:
    """The embedding's and the projection's parts add up to the parameter's gradient."""
    table, tokens = nn.Parameter(torch.randn(6, 4)), torch.tensor([[1, 2, 5]])
    recorded(
        lambda: F.linear(F.embedding(tokens, table), table).square().sum().backward(),
        ops=["torch.nn.functional.linear", "torch.nn.functional.embedding"],
        backward=True,
        tier="full",
    )
    (embedding,) = gold_of(tmp_path / "pack", "embedding@backward(weight)")
    _, projection = gold_of(tmp_path / "pack", "linear@backward(input,weight)")
    torch.testing.assert_close(embedding + projection, table.grad)


def test_one_tensor_in_both_arguments_is_recorded_as_such(recorded, tmp_path: Path) -> None:
    """matmul(x, x): both partial derivatives, one input tensor."""
    x = torch.randn(3, 3, requires_grad=True)
    pack = recorded(
        lambda: torch.matmul(x, x).sum().backward(), ops=["torch.matmul"], backward=True, tier="full"
    )
    (trace,) = named(pack, "@")
    assert trace.call.op == "torch.matmul@backward(input,other)"
    assert len(trace.tensors) == 2
    torch.testing.assert_close(sum(gold_of(tmp_path / "pack", "@")), x.grad)


def test_an_output_without_a_gradient_is_none(recorded, tmp_path: Path) -> None:
    """Indices never get one, and neither does a part that nobody used."""
    x = torch.randn(3, 8, requires_grad=True)

    def body() -> None:
        x.topk(2).values.sum().backward()
        x.chunk(2, dim=1)[1].sum().backward()

    pack = recorded(body, ops=["torch.Tensor.topk", "torch.Tensor.chunk"], backward=True)
    for trace in named(pack, "@"):
        kinds = {a.name: a.value.kind for a in trace.call.arguments if a.name.startswith("grad_outputs.")}
        absent, present = ("1", "0") if "topk" in trace.call.op else ("0", "1")
        assert kinds == {f"grad_outputs.{present}": "tensor", f"grad_outputs.{absent}": "none"}
        assert trace.replay == "bitwise"


def test_a_marked_function_with_outputs_of_several_nodes_is_one_backward(project, recorded) -> None:
    """Gradients are gathered until the pass has ended, also if one never comes."""
    module = project(
        "import pytest_cgins, torch\n@pytest_cgins.mark\ndef both(x):\n    return {'sin': torch.sin(x), 'exp': torch.exp(x)}\n"
    )
    x = torch.randn(4, requires_grad=True)

    def body() -> None:
        for _ in range(2):
            out = module.both(x)
            (out["sin"] * out["exp"]).sum().backward()
        module.both(x)["exp"].sum().backward()

    pack = recorded(body, backward=True, ops=[f"{module.__name__}.both"])
    counts = {
        tuple(a.value.kind for a in trace.call.arguments[:2]): trace.count for trace in named(pack, "@")
    }
    assert counts == {("tensor", "tensor"): 2, ("none", "tensor"): 1}


def test_passes_over_a_retained_graph_count_each(recorded) -> None:
    """retain_graph: the same call's backward ran twice."""
    x = torch.randn(4, requires_grad=True)

    def body() -> None:
        loss = F.gelu(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    pack = recorded(body, ops=["torch.nn.functional.gelu"], backward=True)
    assert [(trace.call.op[-17:], trace.count) for trace in pack.traces] == [
        ("n.functional.gelu", 1),
        ("u@backward(input)", 2),
    ]


def test_forms_of_gradients_are_signatures_of_their_own(recorded) -> None:
    """sum() hands back an expanded gradient, a product a dense one."""
    x = torch.randn(2, 4, requires_grad=True)
    w = torch.randn(2, 4)
    pack = recorded(
        lambda: (F.gelu(x).sum().backward(), (F.gelu(x) * w).sum().backward()),
        ops=["torch.nn.functional.gelu"],
        backward=True,
    )
    strides = {trace.tensors[1].stride for trace in named(pack, "@")}
    assert strides == {(0, 0), (4, 1)}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_no_backward(recorded, mode) -> None:
    """Nothing is hooked where autograd does not follow, and where no backward() comes."""
    x = torch.randn(4, requires_grad=True)

    def body() -> None:
        with mode():
            F.gelu(x)
        F.silu(x)
        F.gelu(torch.randn(4))

    assert not named(recorded(body, backward=True), "@")


def test_an_argument_that_is_handed_through_is_not_hooked(project, recorded) -> None:
    """A marked function that returns its input has no gradient of its own there."""
    module = project("import pytest_cgins\n@pytest_cgins.mark\ndef through(x, y):\n    return x, x * y\n")
    x = torch.randn(3, requires_grad=True)

    def body() -> None:
        left, right = module.through(torch.exp(x), torch.ones(3))
        (left + right).sum().backward()

    pack = recorded(body, ops=[f"{module.__name__}.through"], backward=True)
    (trace,) = named(pack, "@")
    assert [a.value.kind for a in trace.call.arguments[:2]] == ["none", "tensor"]


def test_only_the_backward_is_recorded_if_only_it_is_asked_for(recorded) -> None:
    """ops takes the name of a backward."""
    layer = nn.Linear(3, 2)
    x = torch.randn(4, 3, requires_grad=True)
    pack = recorded(lambda: layer(x).sum().backward(), ops=[LINEAR])
    assert [trace.call.op for trace in pack.traces] == [LINEAR]


def test_a_backward_that_was_not_met_is_an_error_with_the_one_that_was_near(recorded) -> None:
    """Another set of arguments requires grad than was thought."""
    layer = nn.Linear(3, 2)
    with pytest.warns(
        UserWarning, match=r"did you mean torch.nn.functional.linear@backward\(weight,bias\)\?"
    ):
        recorded(
            lambda: layer(torch.randn(4, 3)).sum().backward(),
            ops=["torch.nn.functional.linear", LINEAR],
            backward=True,
        )


def test_a_name_that_the_backward_needs_is_refused(project, recorded) -> None:
    """A marked function with an argument grad_output."""
    module = project(
        "import pytest_cgins\n@pytest_cgins.mark\ndef scale(x, grad_output):\n    return x * grad_output\n"
    )
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RecordError, match=r"its argument grad_output has the name .*\n→ rename the argument"):
        recorded(lambda: module.scale(x, 2.0), ops=[f"{module.__name__}.scale"], backward=True)


def test_dropout_replays_its_mask_in_the_backward(recorded) -> None:
    """The seed is set before the forward inside the backward runs."""
    x = torch.randn(50, requires_grad=True)
    pack = recorded(
        lambda: F.dropout(x).square().sum().backward(), ops=["torch.nn.functional.dropout"], backward=True
    )
    (trace,) = named(pack, "@")
    assert trace.context.rng_seed is not None
    assert trace.replay == "bitwise"
    assert 0 < trace.gold.tensors[0].statistics.zero < 50


@pytest.mark.parametrize("limit", [1, 2])
def test_the_limit_holds_for_backwards(tmp_path: Path, limit: int) -> None:
    """max_per_op counts them by their own name, and the forward's limit does not hide them."""
    with record(
        tmp_path / "pack", backward=True, max_per_op=limit, ops=["torch.nn.functional.gelu"]
    ) as recording:
        for size in (2, 3, 4):
            F.gelu(torch.randn(size, requires_grad=True)).sum().backward()
    assert [len(named(recording.pack, part)) for part in ("gelu@", "gelu")] == [limit, 2 * limit]
    assert recording.dropped == 2 * (3 - limit)


def test_autocast_is_on_in_the_forward_and_off_in_the_backward(recorded) -> None:
    """The weight is float32, the gradient of the output bfloat16, that of the weight float32."""
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)

    def body() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
        y.float().square().sum().backward()

    (trace,) = named(recorded(body, ops=["torch.nn.functional.linear"], backward=True, tier="full"), "@")
    assert trace.tensors[-1].dtype == "bfloat16"
    assert [gold.meta.dtype for gold in trace.gold.tensors] == ["float32", "float32"]
    assert trace.replay == "bitwise"


def test_a_module_op_has_a_backward_by_its_parameters(project, recorded, tmp_path: Path) -> None:
    """The state of a marked module class is among the arguments, and gets its gradients."""
    module = project(
        "import pytest_cgins, torch\nfrom torch import nn\n@pytest_cgins.mark\nclass Gated(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.gate = nn.Linear(4, 4, bias=False)\n"
        "    def forward(self, x):\n        return x * torch.sigmoid(self.gate(x))\n"
    )
    block = module.Gated()
    x = torch.randn(3, 4, requires_grad=True)
    pack = recorded(
        lambda: block(x).sum().backward(), backward=True, tier="full", ops=[f"{module.__name__}.Gated"]
    )
    (trace,) = named(pack, "@")
    assert trace.call.op == f"{module.__name__}.Gated@backward(x,self.gate.weight)"
    for found, wanted in zip(gold_of(tmp_path / "pack", "@"), (x.grad, block.gate.weight.grad), strict=True):
        assert torch.equal(found, wanted)


def test_a_backward_after_the_recording_records_nothing(tmp_path: Path) -> None:
    """Hooks that are left do nothing, and the pack stays as it is."""
    x = torch.randn(3, requires_grad=True)
    with record(tmp_path / "pack", backward=True) as recording:
        y = F.gelu(x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad(F.gelu(x).sum(), x)[0])
    assert [trace.call.op for trace in recording.pack.traces] == ["torch.nn.functional.gelu"]


def test_no_activation_is_kept_alive(tmp_path: Path) -> None:
    """A call whose gradient never comes is freed with its graph, while recording."""

    class Saved:
        """What autograd saves of a call, watched."""

        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor
            held.append(weakref.ref(self))

    held: list[weakref.ref[Saved]] = []
    x = torch.randn(3, requires_grad=True)
    with (
        record(tmp_path / "pack", backward=True),
        torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor),
    ):
        for _ in range(2):
            y = F.gelu(x)
            assert held[-1]() is not None
            output = weakref.ref(y)
            del y
            gc.collect()
            assert (output(), held[-1]()) == (None, None)


# ---- requires_grad at replay --------------------------------------------------------------------


def test_a_forward_is_replayed_with_the_gradients_it_was_recorded_with(
    project, recorded, tmp_path: Path
) -> None:
    """An op whose result depends on requires_grad gives its gold; what was not followed still is not."""
    module = project(
        "import pytest_cgins\n@pytest_cgins.mark\ndef choose(x, y):\n"
        "    return x + (1 if x.requires_grad else 2) + (10 if y.requires_grad else 20)\n"
    )
    x = torch.zeros(3, requires_grad=True)
    pack = recorded(lambda: module.choose(x, torch.zeros(3)), tier="full")
    assert pack.traces[0].replay == "bitwise"
    assert gold_of(tmp_path / "pack", "choose")[0].tolist() == [21, 21, 21]


def test_an_op_in_place_on_a_followed_tensor_is_replayed(recorded, tmp_path: Path) -> None:
    """It is no leaf at replay, and the change lands in the replayed input."""
    x = torch.randn(5, requires_grad=True)
    pack = recorded((x + 0).relu_, ops=["torch.Tensor.relu_"], tier="full")
    trace = pack.traces[0]
    assert (trace.replay, trace.gold.mutated) == ("bitwise", ((0, 1),))
    inputs = load_inputs(trace, open_pack(tmp_path / "pack"), "cpu")
    run(trace, inputs)
    assert torch.equal(inputs[0], torch.relu(x))
    assert not inputs[0].requires_grad
