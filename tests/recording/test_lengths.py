"""Sizes that change from call to call."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pytest_cgins.core.errors import PackError, RecordError
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, TracePack, Value
from pytest_cgins.packs.store import blobs_of, open_pack
from pytest_cgins.recording.lengths import LEAST_SIZES, families, form_of, nearest, representatives, thin
from pytest_cgins.recording.record import record

SIZES = st.sets(st.integers(1, 300), min_size=1, max_size=40)


def form(
    *shapes: tuple[int, ...], ints: tuple[int, ...] = (), op: str = "m.f", parameters: tuple[int, ...] = ()
):
    """The form of a call with dense tensors and ints."""
    metas, arguments = [], []
    for index, shape in enumerate(shapes):
        stride = torch.empty(shape, device="meta").stride()
        metas.append(TensorMeta(dtype="float32", shape=shape, stride=stride, offset=0, storage=index))
        arguments.append(Value(kind="tensor", value=index))
    arguments += [Value(kind="int", value=number) for number in ints]
    named = (Argument(name=f"a{n}", value=v, passed="positional") for n, v in enumerate(arguments))
    return form_of(OpCall(op=op, arguments=tuple(named)), metas, Context(), parameters)


# ---- which calls are one family -----------------------------------------------------------------


def test_calls_that_one_size_tells_apart_are_a_family() -> None:
    """The length stands in three places, strides follow it, and an int argument has its value."""
    forms = [form((2, 4, length, 16), (2, 1, 1, length), ints=(7, length)) for length in (9, 5, 6, 7, 30)]
    (family,) = families(forms)
    assert family.sizes == (5, 6, 7, 9, 30)
    assert [forms[0].places[place] for place in family.places] == [None, (0, 2), (1, 3)]


def test_a_size_that_equals_another_for_once_is_in_the_family() -> None:
    """At length 16 the head's dimension is as large, and at 2 the batch."""
    (family,) = families([form((2, 4, length, 16)) for length in (2, 15, 16, 17, 18)])
    assert family.sizes == (2, 15, 16, 17, 18)


def test_a_size_of_one_is_in_the_family() -> None:
    """Strides of dimensions of size 1 say nothing, and the first step of a generation is of length 1."""
    (family,) = families([form((3, length, 4), (1, length)) for length in (1, 2, 5, 6)])
    assert family.sizes == (1, 2, 5, 6)


@pytest.mark.parametrize(
    "forms",
    [
        [form((length, 8), (8,)) for length in (3, 4, 5)],
        [form((length, 8 * length)) for length in (2, 3, 4, 5, 6)],
        [form((4, 4), ints=(number,)) for number in range(10, 20)],
        [form((3, 8), op=f"m.f{number}") for number in range(9)],
        [form((width, width), (4, width), parameters=(0,)) for width in (16, 32, 64, 128, 256)],
    ],
    ids=["three sizes", "two sizes that differ", "ints alone", "ops", "widths of layers"],
)
def test_other_calls_are_not(forms) -> None:
    """Fewer than four sizes, more than one symbol, plain numbers, and shapes of parameters are no length."""
    assert not families(forms)


def test_strides_that_do_not_follow_are_another_family() -> None:
    """Views of a preallocated cache keep their strides; concatenated ones have new ones each time."""

    def view(length: int):
        tensor = torch.empty(2, 64, 4)[:, :length]
        meta = TensorMeta(
            dtype="float32", shape=tuple(tensor.shape), stride=tensor.stride(), offset=0, storage=0
        )
        call = OpCall(
            op="m.f",
            arguments=(Argument(name="a0", value=Value(kind="tensor", value=0), passed="positional"),),
        )
        return form_of(call, [meta], Context(), ())

    lengths = (3, 5, 6, 7)
    found = families([view(length) for length in lengths] + [form((2, length, 4)) for length in lengths])
    assert sorted(family.members for family in found) == [(0, 1, 2, 3), (4, 5, 6, 7)]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 30)), unique=True, max_size=60), st.integers(1, 30)
)
def test_families_are_disjoint_and_large_enough(pairs: list[tuple[int, int]], other: int) -> None:
    """Whatever two sizes do, a call is in one family at most, and its members differ in one size."""
    forms = [form((batch, length, other)) for batch, length in pairs]
    found = families(forms)
    members = Counter(index for family in found for index in family.members)
    assert all(count == 1 for count in members.values())
    for family in found:
        assert len(set(family.sizes)) >= LEAST_SIZES
        assert list(family.sizes) == sorted(family.sizes)
        for index, size in zip(family.members, family.sizes, strict=True):
            assert {forms[index].sizes[place] for place in family.places} == {size}
            rest = tuple(s for place, s in enumerate(forms[index].sizes) if place not in family.places)
            assert rest == family.rest


# ---- which sizes are kept -----------------------------------------------------------------------


@given(SIZES)
def test_representatives_are_the_ends_an_odd_one_and_an_aligned_one(sizes: set[int]) -> None:
    """At most four, all of them there; odd and multiple of 8 where they lie between the ends."""
    chosen = representatives(sizes)
    assert len(set(chosen)) == len(chosen) <= 4
    assert set(chosen) <= sizes
    assert {min(sizes), max(sizes)} <= set(chosen)
    between = sizes - {min(sizes), max(sizes)}
    for is_one in (lambda size: size % 2 == 1, lambda size: size % 8 == 0):
        assert any(map(is_one, between)) <= any(is_one(size) for size in chosen if size in between)


@given(SIZES, st.integers(4, 12))
def test_thinning_spares_the_ends_and_what_is_odd_or_aligned(sizes: set[int], most: int) -> None:
    """What is left has at most so many sizes, and representatives of the same kinds."""
    left = thin(sizes, most)
    assert len(left) == min(most, len(sizes))
    assert {min(sizes), max(sizes)} <= set(left) <= sizes
    between = set(left) - {min(sizes), max(sizes)}
    if any(size % 2 for size in sizes - {min(sizes), max(sizes)}):
        assert any(size % 2 for size in between)
    if any(size % 8 == 0 for size in sizes - {min(sizes), max(sizes)}):
        assert any(size % 8 == 0 for size in between)


def test_thinning_step_by_step_stays_spread() -> None:
    """A thousand steps of a generation, eight kept at any time: no gap is half of all."""
    kept: tuple[int, ...] = ()
    for length in range(1, 1001):
        kept = thin((*kept, length), 8)
    assert (kept[0], kept[-1]) == (1, 1000)
    assert max(after - before for before, after in pairwise(kept)) < 500


@given(st.integers(0, 300), SIZES)
def test_the_nearest_size_stands_for_one_that_is_not_kept(size: int, kept: set[int]) -> None:
    """Itself if it is kept; of two that are as near the smaller."""
    found = nearest(size, kept)
    assert all((abs(found - size), found) <= (abs(other - size), other) for other in kept)


# ---- recording ----------------------------------------------------------------------------------


def generation(model: str) -> nn.Module:
    """A tiny language model with random weights."""
    import transformers

    if model == "llama":
        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=None,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config).eval()
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=None
    )
    return transformers.GPT2LMHeadModel(config).eval()


def generate(model: nn.Module) -> None:
    prompt = torch.tensor([[3, 1, 4, 1, 5]])
    model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, do_sample=False, pad_token_id=0
    )


@pytest.mark.exam
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_generation_has_few_traces_that_stand_for_all_its_lengths(tmp_path: Path, model: str) -> None:
    """24 tokens after 5: attention met 23 lengths, keeps 28, 6, an odd one and an aligned one, and no call is lost."""
    language_model = generation(model)
    packs: dict[str, TracePack] = {}
    for lengths in ("few", "all"):
        with record(tmp_path / lengths, lengths=lengths) as recording:
            generate(language_model)
        packs[lengths] = recording.pack
    few, everything = packs["few"], packs["all"]
    assert sum(trace.count for trace in few.traces) == sum(trace.count for trace in everything.traces)
    attention = [t for t in few.traces if "attention" in t.call.op and t.lengths]
    assert sorted(trace.lengths[0].size for trace in attention) == [6, 16, 17, 28] or sorted(
        trace.lengths[0].size for trace in attention
    ) == [6, 16, 19, 28]
    for trace in attention:
        (length,) = trace.lengths
        assert length.sizes == tuple(range(6, 29))
        assert length.calls == 2 * 23
        assert {trace.tensors[tensor].shape[dim] for tensor, dim in length.axes} == {length.size}
    assert sum(trace.count for trace in attention) == 2 * 23
    assert {trace.id for trace in few.traces} < {trace.id for trace in everything.traces}
    assert not any(trace.lengths for trace in everything.traces)


def test_bytes_of_sizes_that_are_dropped_do_not_stay(tmp_path: Path) -> None:
    """Tier full over 60 lengths: at no time are there many blobs, and in the end only those of the pack."""
    most = 0
    with record(tmp_path / "pack", tier="full") as recording:
        for length in range(1, 61):
            F.gelu(torch.randn(2, length, 4))
            scratch = next(tmp_path.glob(".pack.*.tmp"))
            most = max(most, len(list((scratch / "blobs").iterdir())))
    sizes = sorted(trace.lengths[0].size for trace in recording.pack.traces)
    assert len(sizes) == 4
    assert (sizes[0], sizes[-1]) == (1, 60)
    assert most < 2 * 40
    files = {file.name.partition(".")[0] for file in (tmp_path / "pack" / "blobs").iterdir()}
    assert files == {blob.sha256 for blob in blobs_of(recording.pack)}


def test_a_blob_that_another_trace_has_as_well_stays(tmp_path: Path) -> None:
    """The mask of a dropped length is that of a call that is kept."""
    masks = [torch.arange(length) for length in range(1, 60)]
    with record(tmp_path / "pack", tier="full") as recording:
        for mask in masks:
            F.embedding(mask, torch.ones(64, 2))
        for mask in masks[20:23]:
            torch.exp(mask)
    open_pack(tmp_path / "pack").verify()
    assert sum(trace.call.op == "torch.exp" for trace in recording.pack.traces) == 3


def test_calls_of_dropped_sizes_count_for_the_nearest_that_is_kept(tmp_path: Path) -> None:
    """Later calls with a size whose content was given up are counted too."""
    with record(tmp_path / "pack") as recording:
        for _ in range(2):
            for length in (*range(1, 41), 20):
                F.gelu(torch.randn(3, length))
    counts = {trace.lengths[0].size: trace.count for trace in recording.pack.traces}
    assert sum(counts.values()) == 82
    assert {trace.lengths[0].calls for trace in recording.pack.traces} == {82}
    sizes = sorted(counts)
    expected = Counter(nearest(length, sizes) for length in (*range(1, 41), 20) for _ in range(2))
    assert counts == expected


@pytest.mark.parametrize(("limit", "sizes"), [(1, [40]), (2, [1, 40]), (3, 3), (9, 4)])
def test_the_limit_counts_traces_after_the_lengths(tmp_path: Path, limit: int, sizes) -> None:
    """max_per_op does not stop at the first lengths: the largest is kept first, then the smallest."""
    with record(tmp_path / "pack", max_per_op=limit) as recording:
        for length in range(1, 41):
            F.gelu(torch.randn(3, length))
    kept = sorted(trace.lengths[0].size for trace in recording.pack.traces)
    assert kept == sizes or len(kept) == sizes
    assert sum(trace.count for trace in recording.pack.traces) == 40
    assert recording.dropped == 0


def test_backwards_have_lengths_too(tmp_path: Path) -> None:
    """The gradient's size changes with the input's."""
    with record(tmp_path / "pack", backward=True) as recording:
        for length in range(3, 12):
            F.gelu(torch.randn(2, length, requires_grad=True)).square().sum().backward()
    derived = [trace for trace in recording.pack.traces if "gelu@" in trace.call.op]
    assert len(derived) == 4
    assert derived[0].lengths[0].axes == ((0, 1), (1, 1))


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """The number of sizes and the way to keep all."""
    with record(tmp_path / "pack") as recording:
        for length in range(5, 12):
            F.gelu(torch.randn(length))
    assert recording.left_out() == [
        "sizes that change from call to call, up to 7 of them (5 … 11), are kept at four at most; --lengths all keeps all"
    ]


def test_a_wrong_option_is_refused(tmp_path: Path) -> None:
    """lengths is few or all."""
    with pytest.raises(RecordError, match=r"lengths 'some' do not exist\n→ use few or all"):
        record(tmp_path / "pack", lengths="some")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"axes":[[0,1]]', '"axes":[[0,2]]', "tensor 0 has no size 11 at 2"),
        ('"axes":[[0,1]]', '"axes":[[0,0]]', "tensor 0 has no size 11 at 0"),
        ('"calls":4,"axes"', '"calls":0,"axes"', "0 is not positive"),
        ('"sizes":[4,5,6,11]', '"sizes":[4,6,5,11]', "are not ascending"),
    ],
)
def test_lengths_in_a_manifest_are_checked(tmp_path: Path, old: str, new: str, says: str) -> None:
    """They must be what the tensors have."""
    with record(tmp_path / "pack", max_per_op=1):
        for length in (4, 5, 6, 11):
            F.gelu(torch.randn(3, length))
    manifest = tmp_path / "pack" / "manifest.json"
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))
    with pytest.raises(PackError, match=says):
        open_pack(tmp_path / "pack")
