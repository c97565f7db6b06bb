"""The dispatch level: ATen ops below autograd and autocast, without views, factories and queries."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.replay import load_gold, load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.dispatch import computes
from pytest_cgins.recording.record import record

TIERS = ["recipe", "full"]
aten = torch.ops.aten


def words(pack: TracePack) -> set[str]:
    return {trace.call.op.removeprefix("torch.ops.aten.") for trace in pack.traces}


@pytest.mark.parametrize("tier", TIERS)
def test_a_training_step_is_recorded_with_its_backward(recorded, tier) -> None:
    """Everything that computes is there under its ATen name, and replays bitwise."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.GELU()
    )
    pack = recorded(lambda: model(torch.randn(2, 3, 8, 8)).sum().backward(), level="dispatch", tier=tier)
    forward = {
        "convolution.default",
        "native_batch_norm.default",
        "relu.default",
        "addmm.default",
        "gelu.default",
    }
    backward = {
        "convolution_backward.default",
        "native_batch_norm_backward.default",
        "threshold_backward.default",
    }
    assert forward | backward | {"gelu_backward.default", "mm.default"} <= words(pack)
    assert not words(pack) & {
        "view.default",
        "t.default",
        "randn.default",
        "empty.memory_format",
        "detach.default",
    }
    assert {trace.replay for trace in pack.traces} == {"bitwise"}


def test_arguments_are_bound_to_the_schema(recorded) -> None:
    """The names are the ATen schema's, defaults included."""
    pack = recorded(lambda: F.gelu(torch.randn(3), approximate="tanh"), level="dispatch")
    assert [(a.name, a.passed) for a in pack.traces[0].call.arguments] == [
        ("self", "positional"),
        ("approximate", "keyword"),
    ]


def test_autograd_and_autocast_have_done_their_part(recorded, tmp_path) -> None:
    """An op gets what the casts gave, and the context says nothing of them."""
    linear = nn.Linear(4, 4)

    def body() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            linear(torch.randn(2, 4))

    pack = recorded(body, level="dispatch", tier="full")
    (trace,) = pack.traces
    assert trace.call.op == "torch.ops.aten.addmm.default"
    assert {meta.dtype for meta in trace.tensors} == {"bfloat16"}
    assert trace.context.autocast == ()
    assert not trace.context.grad_enabled
    reader = open_pack(tmp_path / "pack")
    inputs, (gold,) = load_inputs(trace, reader, "cpu"), load_gold(trace, reader)
    assert torch.equal(gold.values.view(2, 4), torch.addmm(*inputs))


@pytest.mark.parametrize("tier", TIERS)
def test_inference_mode_shows_composites_and_replays(recorded, tier) -> None:
    """Without autograd an op such as linear reaches the mode whole."""
    linear = nn.Linear(4, 4)
    with torch.inference_mode():
        pack = recorded(lambda: linear(torch.randn(2, 4)), level="dispatch", tier=tier)
    assert words(pack) == {"linear.default"}
    assert pack.traces[0].replay == "bitwise"


@pytest.mark.parametrize("tier", TIERS)
def test_an_op_in_place_is_recorded_from_before_to_after(recorded, tmp_path, tier) -> None:
    """Its input is as it was; gold is what it was changed to."""
    recorded(lambda: torch.randn(5, 7).mul_(2), level="dispatch", tier=tier)
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    assert trace.call.op == "torch.ops.aten.mul_.Tensor"
    assert trace.gold.mutated == ((0, 1),)
    inputs = load_inputs(trace, reader, "cpu")
    assert torch.equal(load_gold(trace, reader)[1].values.view(5, 7), inputs[0] * 2)


def test_channels_last_and_compiled_models_replay_bitwise(recorded) -> None:
    """Strides are those that the backend saw; the model runs eagerly."""
    model = torch.compile(nn.Conv2d(8, 8, 3), backend="eager").to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    (trace,) = recorded(lambda: model(x), level="dispatch", tier="full").traces
    assert trace.tensors[0].stride == x.stride()
    assert trace.replay == "bitwise"


def test_a_packet_stands_for_its_overloads(recorded) -> None:
    """`torch.ops.aten.add` is met by any of them, an overload by itself only."""
    x = torch.randn(3)
    assert words(recorded(lambda: (x + x, x * 2), ops=["torch.ops.aten.add"], level="dispatch")) == {
        "add.Tensor"
    }
    with pytest.raises(RecordError, match=r"no call of torch\.ops\.aten\.add\.Scalar was seen") as caught:
        recorded(lambda: x + x, ops=["torch.ops.aten.add.Scalar"], level="dispatch")
    assert "did you mean torch.ops.aten.add.Tensor" in str(caught.value)


def test_ops_of_other_libraries_are_recorded(recorded) -> None:
    """A custom op computes, whatever it is called."""
    with torch.library._scoped_library("cgins_test", "FRAGMENT") as library:
        library.define("twice(Tensor x, *, float by=2.0) -> Tensor")
        library.impl("twice", lambda x, *, by=2.0: x * by, "CPU")
        pack = recorded(lambda: torch.ops.cgins_test.twice(torch.randn(3), by=3.0), level="dispatch")
    assert [trace.call.op for trace in pack.traces] == ["torch.ops.cgins_test.twice.default"]


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (aten.mm.default, True),
        (aten._softmax.default, True),
        (aten.native_layer_norm_backward.default, True),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, True),
        (aten.add_.Tensor, True),
        (aten.add.out, False),
        (aten.empty.memory_format, False),
        (aten.empty_like.default, False),
        (aten.view.default, False),
        (aten.expand.default, False),
        (aten.clone.default, False),
        (aten._to_copy.default, False),
        (aten.native_dropout.default, False),
        (aten._local_scalar_dense.default, False),
        (torch.ops.prims.mul.default, False),
        (torch.ops.profiler._record_function_enter_new.default, False),
    ],
)
def test_what_computes(op: object, wanted: bool) -> None:
    """No views, factories, copies, uninitialised outputs, queries, or bookkeeping."""
    assert computes(op) is wanted


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ops": ["torch.nn.functional.gelu"]}, "is not seen at level dispatch"),
        ({"ops": ["torch.ops.aten.empty_like.default"]}, "is uninitialised memory, so there is no gold"),
        ({"ops": ["torch.ops.aten.gelo"]}, "no op is called torch.ops.aten.gelo"),
        ({"backward": True}, "a backward is seen as the ATen ops that it runs"),
    ],
)
def test_wrong_options_fail_before_the_model_runs(tmp_path, options, says) -> None:
    """What the level cannot see is refused at the start, with what to do."""
    with (
        pytest.raises((RecordError, TraceError), match=says) as caught,
        record(tmp_path / "pack", level="dispatch", **options),
    ):
        pytest.fail("the body ran")
    assert caught.value.remedy


def test_an_unknown_level_is_refused(tmp_path) -> None:
    """There are two."""
    with pytest.raises(RecordError, match="level 'aten' does not exist\n→ use function or dispatch"):
        record(tmp_path / "pack", level="aten")
