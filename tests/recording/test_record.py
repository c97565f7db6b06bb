from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import pytest_cgins
from pytest_cgins.core.errors import PackError, RecordError, ReplayError, TraceError
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.replay import load_gold, load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.record import record

TIERS = ["recipe", "full"]


def gold_of(pack_folder: Path, index: int = 0):
    reader = open_pack(pack_folder)
    trace = reader.pack.traces[index]
    return trace, load_inputs(trace, reader, "cpu"), load_gold(trace, reader)


def ops_of(pack: TracePack) -> list[str]:
    return [trace.call.op for trace in pack.traces]


# ---- what is one trace --------------------------------------------------------------------------


def test_equal_calls_are_one_trace_with_a_count(recorded) -> None:
    """Values do not matter, forms do."""
    pack = recorded(lambda: [F.gelu(torch.randn(n, 4)) for n in (2, 3, 2, 2)])
    assert sorted((trace.count, trace.tensors[0].shape) for trace in pack.traces) == [
        (1, (3, 4)),
        (3, (2, 4)),
    ]
    assert {trace.replay for trace in pack.traces} == {"bitwise"}


def test_a_call_by_position_and_by_name_is_one_trace(recorded) -> None:
    """Arguments are bound before signatures are compared."""
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    pack = recorded(lambda: (F.linear(x, w, None), F.linear(x, bias=None, weight=w), F.linear(x, w)))
    assert [trace.count for trace in pack.traces] == [3]


@pytest.mark.parametrize(
    "calls",
    [
        lambda x: (F.softmax(x, 0), F.softmax(x, 1)),
        lambda x: (F.gelu(x), F.gelu(x.t().contiguous().t())),
        lambda x: (F.gelu(x), F.gelu(x.half())),
        lambda x: (x + 1, x + 1.0),
        lambda x: (torch.add(x, x), torch.add(x, x.clone())),
    ],
    ids=["scalar", "strides", "dtype", "type of a number", "alias"],
)
def test_different_calls_are_different_traces(recorded, calls) -> None:
    """Scalars, strides, dtypes, number types and aliasing are part of the signature."""
    pack = recorded(lambda: calls(torch.randn(4, 6)))
    assert len(pack.traces) == 2
    assert len({trace.signature for trace in pack.traces}) == 2


def test_strides_of_size_one_dimensions_are_no_difference(recorded) -> None:
    """torch sets them freely; a trace is not split by them."""
    x = torch.randn(1, 4)
    pack = recorded(lambda: (F.gelu(x), F.gelu(x.as_strided((1, 4), (99, 1)))))
    assert [trace.count for trace in pack.traces] == [2]


def test_context_is_part_of_the_signature(recorded) -> None:
    """The same call with and without autocast, and in inference mode, is three traces."""
    x, w = torch.randn(2, 3), torch.randn(4, 3)

    def body() -> None:
        F.linear(x, w)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            F.linear(x, w)
        with torch.inference_mode():
            F.linear(x, w)

    pack = recorded(body)
    gold = {trace.gold.tensors[0].meta.dtype for trace in pack.traces}
    assert len(pack.traces) == 3
    assert gold == {"float32", "bfloat16"}
    assert {trace.replay for trace in pack.traces} == {"bitwise"}


def test_signatures_read_dtype_shape_digest_and_do_not_depend_on_the_tier(tmp_path) -> None:
    """History is keyed by them: `f32-2x8-` and four hex digits, the same in every tier."""
    found = []
    for tier in ("shapes", *TIERS):
        with record(tmp_path / tier, tier=tier) as recording:
            F.gelu(torch.randn(2, 8))
        found.append(recording.pack.traces[0].signature)
    assert len(set(found)) == 1
    assert found[0].startswith("f32-2x8-")
    assert len(found[0]) == len("f32-2x8-") + 4


# ---- gold by value ------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_an_in_place_successor_does_not_overwrite_gold(recorded, tmp_path, tier) -> None:
    """batch_norm followed by ReLU in place keeps negative gold values."""
    model = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(inplace=True)).eval()
    recorded(lambda: model(torch.randn(2, 3, 4, 4)), ops=["torch.nn.functional.batch_norm"], tier=tier)
    _, _, (gold,) = gold_of(tmp_path / "pack")
    assert (gold.values < 0).any()


@pytest.mark.parametrize("tier", TIERS)
def test_an_in_place_op_is_recorded_from_before_to_after(recorded, tmp_path, tier) -> None:
    """relu_: inputs have negative values, gold has none; mutation and alias are noted."""
    recorded(lambda: torch.relu_(torch.randn(5, 7)), tier=tier)
    trace, (x,), gold = gold_of(tmp_path / "pack")
    assert trace.call.op == "torch.nn.functional.relu_"
    assert (x < 0).any()
    assert trace.gold.mutated == ((0, 1),)
    assert trace.gold.aliases == ((0, 0),)
    for output in gold:
        assert torch.equal(output.values, torch.relu(x).reshape(-1))


@pytest.mark.parametrize("tier", TIERS)
def test_running_statistics_are_mutated_inputs(recorded, tmp_path, tier) -> None:
    """Training batch_norm changes running_mean and running_var, and nothing else."""
    model = nn.BatchNorm2d(3).train()
    recorded(lambda: model(torch.randn(2, 3, 4, 4)), ops=["torch.nn.functional.batch_norm"], tier=tier)
    trace, _, _ = gold_of(tmp_path / "pack")
    changed = [index for index, _ in trace.gold.mutated]
    names = {a.value.value: a.name for a in trace.call.arguments if a.value.kind == "tensor"}
    assert sorted(names[index] for index in changed) == ["running_mean", "running_var"]
    assert trace.context.training is True


@pytest.mark.parametrize("tier", TIERS)
def test_channels_last_is_replayed_as_such(recorded, tmp_path, tier) -> None:
    """Inputs come back in channels_last strides, and the convolution is bitwise the same."""
    x = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    conv = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
    pack = recorded(lambda: conv(x), tier=tier)
    _, inputs, _ = gold_of(tmp_path / "pack")
    assert inputs[0].is_contiguous(memory_format=torch.channels_last)
    assert pack.traces[0].replay == "bitwise"


@pytest.mark.parametrize("tier", TIERS)
def test_aliased_arguments_alias_at_replay(recorded, tmp_path, tier) -> None:
    """x.add_(x.t()) reads what it writes; both arguments lie on one storage again."""
    x = torch.randn(4, 4)
    pack = recorded(lambda: torch.add(x, x[1]), tier=tier)
    _, inputs, _ = gold_of(tmp_path / "pack")
    assert len(pack.traces[0].storages) == 1
    inputs[1].fill_(9)
    assert (inputs[0][1] == 9).all()


def test_outputs_are_compared_as_a_tree(recorded, tmp_path) -> None:
    """Two outputs with names are a tuple with two tensors."""
    recorded(lambda: torch.topk(torch.randn(3, 10), 2), tier="full")
    trace, (x,), (values, indices) = gold_of(tmp_path / "pack")
    assert [item.kind for item in trace.gold.outputs.items] == ["tensor", "tensor"]
    assert torch.equal(values.values.view(3, 2), x.topk(2).values)
    assert torch.equal(indices.values.view(3, 2), x.topk(2).indices)


def test_conjugate_inputs_are_recorded_by_value(recorded, tmp_path) -> None:
    """safetensors is silently wrong for conj views; a pack is not."""
    z = torch.randn(3, 3, dtype=torch.complex64)
    recorded(lambda: torch.matmul(z.conj(), z), tier="full")
    _, inputs, (gold,) = gold_of(tmp_path / "pack")
    assert torch.equal(inputs[0], z.conj().resolve_conj())
    assert torch.allclose(gold.values.view(3, 3), z.conj() @ z)


def test_views_of_a_size_zero_and_scalars_are_recorded(recorded) -> None:
    """Empty and zero-dimensional tensors go round."""
    pack = recorded(lambda: (F.gelu(torch.empty(0, 3)), torch.exp(torch.tensor(1.5))))
    assert sorted(trace.tensors[0].shape for trace in pack.traces) == [(), (0, 3)]


# ---- randomness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_dropout_in_training_replays_bitwise_under_its_seed(recorded, tier) -> None:
    """The seed is recorded, and the model's own random numbers stay as they were."""
    x = torch.randn(50)
    torch.manual_seed(3)
    expected = (F.dropout(x), torch.rand(3))
    torch.manual_seed(3)
    seen = []
    pack = recorded(
        lambda: seen.append((F.dropout(x), torch.rand(3))), ops=["torch.nn.functional.dropout"], tier=tier
    )
    assert torch.equal(seen[0][0], expected[0])
    assert torch.equal(seen[0][1], expected[1])
    assert pack.traces[0].context.rng_seed is not None
    assert pack.traces[0].replay == "bitwise"
    assert 0 < pack.traces[0].gold.tensors[0].statistics.zero < 50


def test_dropout_in_eval_has_no_seed(recorded) -> None:
    """What draws nothing needs no seed."""
    pack = recorded(lambda: F.dropout(torch.randn(9), training=False), ops=["torch.nn.functional.dropout"])
    assert pack.traces[0].context.rng_seed is None


@pytest.mark.parametrize("tier", TIERS)
def test_a_generator_argument_is_replayed_from_the_seed(recorded, tier) -> None:
    """An op with its own torch.Generator replays bitwise."""
    generator = torch.Generator().manual_seed(1)
    pack = recorded(
        lambda: torch.zeros(40).bernoulli_(0.5, generator=generator),
        ops=["torch.Tensor.bernoulli_"],
        tier=tier,
    )
    assert pack.traces[0].replay == "bitwise"
    assert pack.traces[0].context.rng_seed is not None


def test_an_op_on_hidden_state_fails_its_self_check(project, recorded, tmp_path) -> None:
    """A marked function that counts its calls does not reproduce its gold, and no pack is written."""
    module = project(
        "import pytest_cgins\ncalls = 0\n@pytest_cgins.mark\ndef counting(x):\n"
        "    global calls\n    calls += 1\n    return x + calls\n"
    )
    with pytest.raises(ReplayError, match="does not give its own gold: output 0, element 0") as caught:
        recorded(lambda: module.counting(torch.ones(3)))
    assert f"{module.__name__}.counting f32-3-" in str(caught.value)
    assert not (tmp_path / "pack").exists()


def test_an_op_whose_last_bits_vary_is_recorded_and_said(project, recorded) -> None:
    """As attention that splits its keys among blocks: torch does not call it nondeterministic, and the model has no other."""
    module = project(
        "import pytest_cgins\ncalls = 0\n@pytest_cgins.mark\ndef summed(x):\n"
        "    global calls\n    calls += 1\n    return x * (1 + calls * 2.0**-23)\n"
    )
    with pytest.warns(
        UserWarning, match=r"summed f32-64-.* gives other last bits each time, and torch does not say"
    ):
        pack = recorded(lambda: module.summed(torch.ones(64)))
    assert [trace.replay for trace in pack.traces] == ["derived"]


# ---- units --------------------------------------------------------------------------------------


def test_a_marked_function_is_one_unit(project, recorded) -> None:
    """Nothing inside a marked function is recorded; what is outside is."""
    module = project(
        "import pytest_cgins, torch\n@pytest_cgins.mark\ndef norm(x, *, eps=1e-6):\n"
        "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)\n"
    )
    pack = recorded(lambda: F.gelu(module.norm(torch.randn(2, 8), eps=1e-5)))
    assert ops_of(pack) == [f"{module.__name__}.norm", "torch.nn.functional.gelu"]
    assert [a.passed for a in pack.traces[0].call.arguments] == ["positional", "keyword"]


def test_a_marked_function_that_is_not_asked_for_is_opened(project, recorded) -> None:
    """With ops=[rsqrt] the call inside the marked function is recorded."""
    module = project("import pytest_cgins, torch\n@pytest_cgins.mark\ndef f(x):\n    return torch.rsqrt(x)\n")
    assert ops_of(recorded(lambda: module.f(torch.rand(3)), ops=["torch.rsqrt"])) == ["torch.rsqrt"]


def test_an_unmarked_function_is_recorded_by_its_qualified_name(project, recorded) -> None:
    """Every module that imported it by name calls the recorded one; afterwards all is as before."""
    source = project("import torch\ndef scale(x, by):\n    return torch.exp(x) * by\n")
    user = project(f"from {source.__name__} import scale\ndef model(x):\n    return scale(x, 2.0)\n")
    original = source.scale
    pack = recorded(lambda: user.model(torch.randn(3)), ops=[f"{source.__name__}.scale"])
    assert ops_of(pack) == [f"{source.__name__}.scale"]
    assert [a.name for a in pack.traces[0].call.arguments] == ["x", "by"]
    assert source.scale is original
    assert user.scale is original


def test_ops_inside_torch_composites_are_seen(recorded) -> None:
    """multi_head_attention_forward is opened, so that its linear and softmax are recorded."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 3, 8)
    pack = recorded(lambda: attention(x, x, x), ops=["torch.nn.functional.linear"])
    assert set(ops_of(pack)) == {"torch.nn.functional.linear"}
    assert sum(trace.count for trace in pack.traces) >= 2


def test_a_composite_that_is_asked_for_is_one_unit(recorded) -> None:
    """By its own name the whole attention is a single trace."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 3, 8)
    name = "torch.nn.functional.multi_head_attention_forward"
    assert ops_of(recorded(lambda: attention(x, x, x), ops=[name])) == [name]


def test_a_compiled_model_is_recorded_op_by_op(recorded) -> None:
    """Under record a torch.compile'd module runs eagerly, and its ops are seen."""
    model = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()), backend="eager")
    model(torch.randn(2, 4))
    pack = recorded(lambda: model(torch.randn(2, 4)))
    assert ops_of(pack) == ["torch.nn.functional.gelu", "torch.nn.functional.linear"]


def test_default_ops_leave_out_getters_views_and_factories(recorded) -> None:
    """Only what computes is recorded when no ops are named."""

    def body() -> None:
        x = torch.zeros(2, 6).view(3, 4)
        assert x.shape == (3, 4)
        x = x.transpose(0, 1)[1:].contiguous()
        (x + 1).sum()

    assert ops_of(recorded(body)) == ["torch.Tensor.add", "torch.Tensor.sum"]


def test_the_training_flag_is_that_of_the_innermost_module(recorded) -> None:
    """A module in eval inside one in training records False; outside any module it is None."""
    model = nn.Sequential(nn.GELU()).train()
    model[0].eval()
    pack = recorded(lambda: (model(torch.randn(2)), F.silu(torch.randn(2))))
    assert {t.call.op.rpartition(".")[2]: t.context.training for t in pack.traces} == {
        "gelu": False,
        "silu": None,
    }


# ---- tiers --------------------------------------------------------------------------------------


def test_the_full_tier_keeps_the_values_of_the_run(recorded, tmp_path) -> None:
    """Inputs and gold are the bytes that the model saw."""
    x = torch.randn(3, 5, dtype=torch.bfloat16)
    recorded(lambda: F.silu(x), tier="full")
    _, inputs, (gold,) = gold_of(tmp_path / "pack")
    assert torch.equal(inputs[0], x)
    assert torch.equal(gold.values.view(3, 5), F.silu(x))


def test_the_recipe_tier_keeps_a_sample_of_gold(recorded, tmp_path) -> None:
    """1024 elements with both ends, of gold for the generated inputs, in the tensor's own dtype."""
    recorded(lambda: F.silu(torch.randn(40, 100).half()))
    trace, (x,), (gold,) = gold_of(tmp_path / "pack")
    assert len(gold.values) == 1024
    assert gold.positions[[0, -1]].tolist() == [0, 3999]
    assert gold.values.dtype == torch.float16
    assert torch.equal(gold.values, F.silu(x).reshape(-1)[gold.positions])
    assert trace.gold.tensors[0].statistics.numel == 4000


def test_the_recipe_tier_keeps_masks_and_indices(recorded, tmp_path) -> None:
    """Embedding indices and additive -inf masks are the real ones; scores are generated around them."""
    table, indices = torch.randn(50, 4), torch.randint(50, (7,))
    mask = torch.full((5, 5), -torch.inf).triu(1)

    def body() -> None:
        F.embedding(indices, table)
        F.softmax(mask, -1)

    recorded(body)
    reader = open_pack(tmp_path / "pack")
    by_op = {t.call.op.rpartition(".")[2]: load_inputs(t, reader, "cpu") for t in reader.pack.traces}
    assert torch.equal(by_op["embedding"][0], indices)
    assert torch.equal(by_op["softmax"][0], mask)


@pytest.mark.parametrize("kept", [True, False])
def test_the_recipe_tier_keeps_long_indices_whose_order_says_something(recorded, tmp_path, kept) -> None:
    """A permutation stays one: repeated places in a scatter would make the result a race."""
    places = torch.randperm(10_000) if kept else torch.randint(0, 100, (10_000,))
    table = torch.randn(10_000, 1)
    recorded(lambda: F.embedding(places, table))
    reader = open_pack(tmp_path / "pack")
    assert torch.equal(load_inputs(reader.pack.traces[0], reader, "cpu")[0], places) == kept


def test_the_recipe_tier_keeps_the_angles_of_rotary_positions(recorded, project, tmp_path) -> None:
    """Halves of cos and sin that repeat each other still do, for kernels that read one of them."""
    module = project(
        "import pytest_cgins\n@pytest_cgins.mark\ndef turn(x, cos, sin):\n    return x * cos + sin\n"
    )
    angle = torch.randn(5, 8).repeat(1, 2)
    recorded(lambda: module.turn(torch.randn(2, 5, 16), angle.cos(), angle.sin()))
    _, (_, cos, sin), _ = gold_of(tmp_path / "pack")
    assert torch.equal(cos, angle.cos())
    assert torch.equal(sin, angle.sin())


@pytest.mark.parametrize("fill", ["-inf", "lowest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_recipe_tier_keeps_the_mask_of_large_scores(recorded, tmp_path, dtype, fill) -> None:
    """Scores beyond 64 KiB are generated, and masked where the recorded ones were, at a bit an element."""
    scores = torch.randn(4, 128, 128).to(dtype)
    mask = torch.ones(128, 128, dtype=torch.bool).triu(1)
    value = -torch.inf if fill == "-inf" else torch.finfo(dtype).min
    recorded(lambda: F.softmax(scores.masked_fill(mask, value), -1))
    trace, (again,), (gold,) = gold_of(tmp_path / "pack")
    assert trace.storages[0].recipe.masked.nbytes == 4 * 128 * 128 // 8
    assert torch.equal(again == value, mask.expand(4, -1, -1))
    assert again[again != value].abs().max() < 10
    assert not gold.values.isnan().any()


def test_the_recipe_tier_keeps_an_additive_mask_of_zeros(recorded, tmp_path) -> None:
    """As most causal masks are: what is not masked is one number, and the recipe a constant."""
    mask = torch.full((600, 600), -torch.inf).triu(1)
    recorded(lambda: F.softmax(mask, -1))
    trace, (again,), _ = gold_of(tmp_path / "pack")
    assert trace.storages[0].recipe.distribution == "constant"
    assert torch.equal(again, mask)


@pytest.mark.parametrize("kept", [255, 300])
def test_the_recipe_tier_keeps_bool_masks_of_any_size(recorded, tmp_path, kept) -> None:
    """A causal mask stays one: beyond 64 KiB it costs a bit an element."""
    query, mask = torch.randn(1, 1, kept, 4), torch.ones(kept, kept, dtype=torch.bool).tril()
    recorded(lambda: F.scaled_dot_product_attention(query, query, query, attn_mask=mask))
    trace, inputs, _ = gold_of(tmp_path / "pack")
    assert torch.equal(inputs[-1], mask)
    storage = trace.storages[-1]
    packed = storage.recipe and storage.recipe.masked.nbytes
    assert (storage.blob is None, packed) == ((False, None) if kept == 255 else (True, 300 * 300 // 8))


def test_the_recipe_tier_keeps_the_storage_under_a_strided_bool_mask(recorded, tmp_path) -> None:
    """Bits are those of the storage's bytes, of which a transposed slice reaches a part; their number is odd."""
    whole = torch.rand(301, 305) < 0.5
    mask = whole.t()[3:, :299]
    recorded(lambda: torch.where(mask, 1.0, torch.zeros(mask.shape)), ops=["torch.where"])
    trace, inputs, _ = gold_of(tmp_path / "pack")
    assert trace.storages[0].recipe.masked is not None
    assert (torch.equal(inputs[0], mask), inputs[0].stride()) == (True, mask.stride())


def test_constant_parameters_are_randomized_in_recipes(recorded, tmp_path) -> None:
    """A fresh LayerNorm has weight 1 and bias 0; its trace has not."""
    recorded(lambda: nn.LayerNorm(64)(torch.randn(2, 64)))
    _, (_, weight, bias), _ = gold_of(tmp_path / "pack")
    assert weight.std() > 0.1
    assert bias.std() > 0.1


def test_the_shapes_tier_writes_no_blob(recorded, tmp_path) -> None:
    """Forms only: no gold, unchecked, a manifest and nothing else."""
    pack = recorded(lambda: F.gelu(torch.randn(3)), tier="shapes")
    assert pack.traces[0].gold is None
    assert pack.traces[0].replay == "unchecked"
    assert not list((tmp_path / "pack" / "blobs").iterdir())
    with pytest.raises(ReplayError, match="tier shapes"):
        load_inputs(pack.traces[0], open_pack(tmp_path / "pack"), "cpu")


def test_at_most_so_many_signatures_of_an_op_are_kept(recorded, tmp_path) -> None:
    """max_per_op keeps the first signatures and counts the calls that were left out."""
    with record(tmp_path / "pack", max_per_op=2) as recording:
        for size in (1, 2, 3, 3, 1):
            F.gelu(torch.randn(size))
    assert sorted(trace.tensors[0].shape for trace in recording.pack.traces) == [(1,), (2,)]
    assert recording.dropped == 2


# ---- errors and interruptions -------------------------------------------------------------------


def test_an_opaque_argument_is_an_error_that_names_op_and_remedy(project, recorded, tmp_path) -> None:
    """A marked function that takes a module cannot be recorded, and the message says what to do."""
    module = project("import pytest_cgins\n@pytest_cgins.mark\ndef apply(layer, x):\n    return layer(x)\n")
    with pytest.raises(RecordError, match=r"torch\.nn\.modules\.linear\.Linear is opaque") as caught:
        recorded(lambda: module.apply(nn.Linear(2, 2), torch.ones(2)))
    assert str(caught.value).startswith(f"{module.__name__}.apply cannot be recorded")
    assert "@pytest_cgins.mark a function that takes and returns the tensors" in str(caught.value)
    assert not (tmp_path / "pack").exists()


def test_a_tensor_of_a_functional_transform_is_an_error(recorded) -> None:
    """Inside vmap tensors have no storage."""
    with pytest.raises(RecordError, match=r"torch\.func transform"):
        recorded(lambda: torch.vmap(torch.exp)(torch.ones(2, 2)))


@pytest.mark.parametrize("tier", TIERS)
def test_a_result_without_tensor_is_an_error(project, recorded, tier) -> None:
    """An op of the list that returns a number gives nothing to compare."""
    module = project("import pytest_cgins\n@pytest_cgins.mark\ndef total(x):\n    return x.sum().item()\n")
    with pytest.raises(
        RecordError, match=r"total cannot be recorded: the op returned float without a tensor"
    ):
        recorded(lambda: module.total(torch.ones(2)), ops=[f"{module.__name__}.total"], tier=tier)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError, SystemExit])
def test_whatever_ends_the_body_leaves_what_was_there(tmp_path, failure) -> None:
    """Ctrl-C and errors pass through; no half pack, no temporary folder, the old pack intact."""
    target = tmp_path / "pack"
    with record(target):
        F.gelu(torch.ones(2))
    before = open_pack(target).pack

    def body() -> None:
        with record(target):
            F.silu(torch.ones(2))
            raise failure

    with pytest.raises(failure):
        body()
    assert open_pack(target).pack == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["pack"]


def test_ctrl_c_while_gold_is_taken_leaves_nothing(tmp_path, project) -> None:
    """An interruption after the body, in the recorder's own work, is as clean."""
    module = project(
        "import pytest_cgins\nstop = False\n@pytest_cgins.mark\ndef f(x):\n"
        "    if stop:\n        raise KeyboardInterrupt\n    return x + 1\n"
    )

    def body() -> None:
        with record(tmp_path / "packs" / "x"):
            module.f(torch.ones(2))
            module.stop = True

    with pytest.raises(KeyboardInterrupt):
        body()
    assert list((tmp_path / "packs").iterdir()) == []


def test_a_pack_is_replaced_and_other_folders_are_not(tmp_path) -> None:
    """Recording into a folder that holds something else fails before the model runs."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(PackError, match=r"is not a trace pack: it has thesis\.txt"),
        record(tmp_path / "mine"),
    ):
        pytest.fail("the body ran")
    for op in (F.gelu, F.silu):
        with record(tmp_path / "pack") as recording:
            op(torch.ones(2))
    assert open_pack(tmp_path / "pack").pack == recording.pack
    assert ops_of(recording.pack) == ["torch.nn.functional.silu"]


def test_nothing_recorded_is_an_error_with_a_suggestion(recorded) -> None:
    """A model that calls another form of the op is answered with that form."""
    with pytest.raises(RecordError, match=r"no call of torch\.relu was seen") as caught:
        recorded(lambda: torch.randn(3).relu(), ops=["torch.relu"])
    assert "did you mean torch.Tensor.relu?" in str(caught.value)


def test_an_op_that_was_not_called_is_warned_about(recorded) -> None:
    """Other ops of the list are recorded all the same."""
    with pytest.warns(UserWarning, match=r"no call of torch\.nn\.functional\.silu was seen"):
        pack = recorded(
            lambda: F.gelu(torch.randn(3)), ops=["torch.nn.functional.gelu", "torch.nn.functional.silu"]
        )
    assert len(pack.traces) == 1


def test_wrong_options_fail_before_the_model_runs(tmp_path) -> None:
    """A misspelt op or tier is reported at the start."""
    with pytest.raises(TraceError, match=r"did you mean torch\.nn\.functional\.gelu"):
        record(tmp_path / "x", ops=["torch.nn.functional.gelo"]).__enter__()
    with pytest.raises(RecordError, match="tier 'huge' does not exist"):
        record(tmp_path / "x", tier="huge")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["we[ird],x", "-x", ".x"])
def test_a_bad_name_fails_before_the_model_runs(tmp_path, folder) -> None:
    """The folder's name is refused as the pack's; another name= makes it good."""
    with pytest.raises(RecordError, match="the pack cannot be named") as caught:
        record(tmp_path / folder)
    assert "use letters, digits, _ . -; pass name= / --name" in caught.value.remedy
    with record(tmp_path / folder, name="good") as recording:
        F.gelu(torch.ones(2))
    assert recording.pack.name == "good"
    with pytest.raises(RecordError, match="'a/b'"):
        record(tmp_path / "pack", name="a/b")


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_that_keeps_nothing_fails_before_the_model_runs(tmp_path, limit) -> None:
    """max_per_op is 1 or more."""
    with pytest.raises(RecordError, match=rf"max_per_op is {limit}: .*\n→ use 1 or more"):
        record(tmp_path / "pack", max_per_op=limit)


def test_an_unwritable_folder_fails_before_the_model_runs(tmp_path) -> None:
    """The error has the path, the system's reason and a remedy."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RecordError, match=r"file/pack cannot be written: .*\n→ record into a folder that"),
        record(tmp_path / "file" / "pack"),
    ):
        pytest.fail("the body ran")


def test_modules_in_other_threads_are_warned_about(recorded) -> None:
    """No mode sees what they call, and their flags are not those of the calls that are recorded."""
    model, x = torch.nn.Linear(4, 4).eval(), torch.randn(2, 4)
    other = torch.nn.Bilinear(4, 4, 4)

    def body() -> None:
        def elsewhere(*_: object) -> None:
            thread = threading.Thread(target=lambda: other(x, x))
            thread.start()
            thread.join()

        model.register_forward_pre_hook(elsewhere)
        model(x)

    with pytest.warns(UserWarning, match="modules ran in other threads, where nothing is recorded: Bilinear"):
        pack = recorded(body)
    assert [(trace.call.op, trace.context.training) for trace in pack.traces] == [
        ("torch.nn.functional.linear", False)
    ]


def test_nothing_stays_behind_after_a_recording(recorded) -> None:
    """Modes, hooks and stances are gone, also after an error."""
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    recorded(lambda: nn.GELU()(torch.randn(2)))
    with contextlib.suppress(ZeroDivisionError):
        recorded(lambda: 1 / 0)
    assert not hooks
    assert torch.overrides._get_current_function_mode_stack() == []


def test_the_public_names_are_lazy() -> None:
    """`pytest_cgins.record` and `mark` are the functions; other names are refused."""
    assert pytest_cgins.record is record
    assert pytest_cgins.__all__ == sorted(pytest_cgins.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'recrod'"):
        _ = pytest_cgins.recrod
