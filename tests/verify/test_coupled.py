"""Arguments that belong together: what is drawn is legal, and the edges are there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_cgins.config import declared
from pytest_cgins.config.coupled import yaml_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.trace import Argument, OpCall, Value
from pytest_cgins.verify import coupled, couplings, inputs
from pytest_cgins.verify.semantics import semantics_for


def call_of(op: str, **arguments: Tensor | int) -> tuple[OpCall, list[Tensor]]:
    """A call by keyword, and its tensors."""
    tensors: list[Tensor] = []
    values = []
    for name, given in arguments.items():
        if isinstance(given, Tensor):
            value = Value(kind="tensor", value=len(tensors))
            tensors.append(given)
        else:
            value = Value(kind="int", value=given)
        values.append(Argument(name=name, value=value, passed="keyword"))
    return OpCall(op=op, arguments=tuple(values)), tensors


def drawn(call: OpCall, tensors: list[Tensor], said: dict[str, object], argument: int) -> list[Tensor]:
    """The argument in usual draws of ten keys, and then at each of the edges."""
    known = declared({"coupled": said}) if said else declared({})
    usual = [inputs.fresh(call, tensors, str(key), known)[argument] for key in range(10)]
    count = coupled.edge_count(semantics_for(call, known), call, tensors)
    assert count
    return usual + [inputs.coupled_edge(call, tensors, "0", known, n)[1][argument] for n in range(count)]


@pytest.mark.parametrize("most", [5, 9, 24])
def test_offsets_rise_to_the_total_within_the_longest(most: int) -> None:
    """Also where segments have hardly room; some are empty and one is of length 1, and both only at an edge."""
    call, tensors = call_of("m.f", x=torch.zeros(24, 3), cu=torch.arange(0, 25, 4), longest=most)
    rows = drawn(call, tensors, {"cu": {"offsets": "x[0]", "most": "longest"}}, 1)
    for row in rows:
        lengths = row.diff()
        assert (int(row[0]), int(row[-1]), row.dtype) == (0, 24, torch.int64)
        assert int(lengths.min()) >= 0
        assert int(lengths.max()) <= most
    assert all(int(row.diff().min()) > 0 for row in rows[:10])
    assert len({tuple(row.tolist()) for row in rows[:10]}) > 5
    edges = torch.stack(rows[10:]).diff(dim=1)
    if most > 5:
        assert bool((edges == 0).any())
        assert bool((edges == 1).any())
    assert int(edges.max()) == most


def test_a_least_length_is_kept_at_the_edges() -> None:
    """Where empty segments are no legal input, the edge is length 1."""
    call, tensors = call_of("m.f", x=torch.zeros(24, 3), cu=torch.arange(0, 25, 4))
    rows = drawn(call, tensors, {"cu": {"offsets": "x[0]", "least": 1}}, 1)
    assert min(int(row.diff().min()) for row in rows) == 1


def test_lengths_of_pages_end_on_a_page_and_beside_it() -> None:
    """Nothing, one, all, a page and one more."""
    call, tensors = call_of(
        "m.f",
        cache=torch.zeros(32, 8, 2),
        table=torch.arange(20).reshape(5, 4),
        n=torch.tensor([3, 9, 20, 7, 30]),
    )
    said = {"n": {"lengths": "table[1]*cache[1]"}, "table": {"pages": "cache[0]"}}
    lengths = drawn(call, tensors, said, 2)
    assert all(int(row.min()) >= 1 and int(row.max()) <= 32 for row in lengths[:10])
    assert {0, 1, 32, 8, 9, 7} <= set(torch.cat(lengths[10:]).tolist())
    for table in drawn(call, tensors, said, 1):
        assert len(set(table.flatten().tolist())) == 20
        assert 0 <= int(table.min()) <= int(table.max()) < 32


def test_a_routing_has_distinct_experts_gates_that_sum_and_true_counts() -> None:
    """And at the edges some expert has all of the tokens that one can have, and another none."""
    ids = torch.stack([torch.randperm(6)[:2] for _ in range(12)])
    call, tensors = call_of(
        "m.f", ids=ids, gates=torch.full((12, 2), 0.5), loads=torch.bincount(ids.flatten(), minlength=6), n=6
    )
    said = declared({"coupled": {"ids": {"routing": "n", "weights": "gates", "counts": "loads"}}})
    sets = [inputs.fresh(call, tensors, str(key), said) for key in range(5)]
    sets += [inputs.coupled_edge(call, tensors, "0", said, n)[1] for n in range(3)]
    for chosen, gates, loads in sets:
        assert bool((chosen[:, 0] != chosen[:, 1]).all())
        assert torch.allclose(gates.sum(1), torch.ones(12))
        assert torch.equal(loads, torch.bincount(chosen.flatten(), minlength=6))
    loads = torch.stack([one[2] for one in sets[5:]])
    assert int(loads.max()) == 12
    assert int(loads.min()) == 0


def test_what_torchs_own_ops_need_is_known() -> None:
    """Offsets of bags begin with 0 and need not end with the total; an argument with a role stays as recorded."""
    call, tensors = call_of(
        "torch.nn.functional.embedding_bag",
        input=torch.arange(20) % 7, weight=torch.randn(7, 3), offsets=torch.arange(0, 20, 5),
    )  # fmt: skip
    for offsets in drawn(call, tensors, {}, 2):
        assert int(offsets[0]) == 0
        assert bool((offsets.diff() >= 0).all())
        assert torch.nn.functional.embedding_bag(tensors[0], tensors[1], offsets).shape == (4, 3)
    kept = declared({"roles": {"offsets": "keep"}})
    assert torch.equal(inputs.fresh(call, tensors, "0", kept)[2], tensors[2])


def test_offsets_that_were_recorded_alike_stay_alike() -> None:
    """A kernel of self-attention may look at one of them alone."""
    offsets = torch.arange(0, 25, 4)
    call, tensors = call_of(
        "m.f", q=torch.zeros(24, 3), k=torch.zeros(24, 3), cu_q=offsets, cu_k=offsets.clone()
    )
    said = declared({"coupled": {"cu_q": {"offsets": "q[0]"}, "cu_k": {"offsets": "k[0]"}}})
    for tensors_drawn in (
        inputs.fresh(call, tensors, "0", said),
        inputs.coupled_edge(call, tensors, "0", said, 0)[1],
    ):
        assert torch.equal(tensors_drawn[2], tensors_drawn[3])
        assert not torch.equal(tensors_drawn[2], offsets)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"cu": {"offsets": "x[2]"}}, r"cu of m\.f depends on x\[2\], which this call does not have"),
        ({"cu": {"offsets": "x"}}, r"cu of m\.f depends on x, which this call does not have"),
        ({"x": {"unique": "cu[0]"}}, r"x of m\.f holds unique, and it is torch\.float32"),
    ],
)
def test_what_is_not_of_the_call_is_told(said: dict[str, object], message: str) -> None:
    """With the argument and what was said of it."""
    call, tensors = call_of("m.f", x=torch.zeros(24, 3), cu=torch.arange(0, 25, 4))
    with pytest.raises(ConfigError, match=message):
        inputs.fresh(call, tensors, "0", declared({"coupled": said}))


def test_numbers_are_taken_for_what_they_look_like() -> None:
    """Offsets with their limit, a page table with lengths in it; what is declared is not proposed again."""
    call, tensors = call_of("m.f", x=torch.zeros(24, 3), cu=torch.tensor([0, 3, 9, 24]), max_seqlen=16)
    semantics = semantics_for(call)
    assert [yaml_of(one) for one in couplings.inferred(semantics, call, tensors)] == [
        'semantics: {coupled: {cu: {offsets: "x[0]", most: "max_seqlen"}}}'
    ]
    again = semantics_for(call, declared({"roles": {"cu": "index"}}))
    assert couplings.inferred(again, call, tensors) == []
    call, tensors = call_of(
        "m.f",
        cache=torch.zeros(32, 8, 2),
        table=torch.randperm(32)[:20].reshape(5, 4),
        lens=torch.tensor([3, 9, 20, 7, 30]),
    )
    assert [yaml_of(one) for one in couplings.inferred(semantics_for(call), call, tensors)] == [
        'semantics: {coupled: {table: {pages: "cache[0]"}}}',
        'semantics: {coupled: {lens: {lengths: "table[1]*cache[1]"}}}',
    ]
