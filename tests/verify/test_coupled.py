"""Arguments that belong together: what is drawn is legal, and the edges are there."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import pytest_cgins
from pytest_cgins.config import declared
from pytest_cgins.core.errors import ConfigError, RecordError
from pytest_cgins.core.trace import Argument, OpCall, Value
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify import coupled, inputs
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import prepare
from pytest_cgins.verify.semantics import semantics_for


def call_of(op: str, **arguments: Tensor | int | bool | None) -> tuple[OpCall, list[Tensor]]:
    """A call by keyword, and its tensors."""
    tensors: list[Tensor] = []
    values = []
    for name, given in arguments.items():
        if isinstance(given, Tensor):
            value = Value(kind="tensor", value=len(tensors))
            tensors.append(given)
        elif given is None or isinstance(given, bool):
            value = Value(kind="none") if given is None else Value(kind="bool", value=given)
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


WITHIN = {"cu_q": {"offsets": "q[0]", "most": "max_q", "within": "cu_k"}, "cu_k": {"offsets": "k[0]"}}


def test_queries_are_no_longer_than_their_keys() -> None:
    """At the edges: none to many keys, one to many keys, as many as keys; also within what stays as recorded."""
    lengths = torch.tensor([3, 1, 4, 2, 5, 3]), torch.tensor([7, 4, 4, 9, 10, 6])
    cu_q, cu_k = (torch.nn.functional.pad(each.cumsum(0), (1, 0)) for each in lengths)
    call, tensors = call_of("m.f", q=torch.zeros(18, 2), k=torch.zeros(40, 2), cu_q=cu_q, cu_k=cu_k, max_q=6)
    queries, keys = (
        torch.stack([row.diff() for row in drawn(call, tensors, WITHIN, index)]) for index in (2, 3)
    )
    assert bool((queries <= keys).all())
    assert int(queries.max()) <= 6
    assert bool((queries[:10] > 0).all())
    assert len(set(map(tuple, keys[:10].tolist()))) == len(set(map(tuple, queries[:10].tolist()))) == 10
    queries, keys = queries[10:], keys[10:]
    assert bool(((queries == 0) & (keys > 3)).any())
    assert bool(((queries == 1) & (keys > 3)).any())
    assert bool(((queries == keys) & (keys > 1)).any())
    for row in drawn(call, tensors, {"cu_q": WITHIN["cu_q"]}, 2):
        assert bool((row.diff() <= lengths[1]).all())


def test_queries_that_fill_their_pages_stay_as_recorded() -> None:
    """Pages are as many as were recorded: where no other lengths fit in them, usual inputs keep these, and edges are refused."""
    cu = torch.arange(0, 17, 4)
    call, tensors = call_of(
        "m.f",
        q=torch.zeros(64, 2),
        cache=torch.zeros(20, 4, 2),
        indices=torch.arange(16),
        cu_q=4 * cu,
        cu_k=cu,
    )
    said = declared(
        {
            "coupled": {
                "cu_q": {"offsets": "q[0]", "within": "cu_k*cache[1]"},
                "cu_k": {"offsets": "indices[0]"},
            }
        }
    )
    assert torch.equal(inputs.fresh(call, tensors, "0", said)[3], 4 * cu)
    with pytest.raises(ValueError, match=r"cu_k as offsets: 4 segments of at least .* do not add up to 16"):
        inputs.coupled_edge(call, tensors, "0", said, 0)


PADDED = torch.tensor([[4, 1, 7, -1], [2, -1, -1, -1], [0, 3, 5, 6]])


def test_what_is_no_page_stays_and_is_never_reached() -> None:
    """Lengths end within the pages of their own row."""
    lengths, cache = torch.tensor([9, 2, 14]), torch.zeros(12, 4, 2)
    call, tensors = call_of("m.f", cache=cache, table=PADDED, lens=lengths)
    said = {"table": {"pages": "cache[0]"}, "lens": {"lengths": "table[1]*cache[1]"}}
    tables = drawn(call, tensors, said, 1)
    for table in tables:
        assert torch.equal(table < 0, PADDED < 0)
        assert len(set(table[table >= 0].tolist())) == 8
        assert int(table.max()) < 12
    assert len({tuple(table.flatten().tolist()) for table in tables}) == 12
    reached = torch.stack(drawn(call, tensors, said, 2))
    assert bool((reached <= torch.tensor([12, 4, 16])).all())
    assert {0, 1, 4, 12, 16} <= set(reached.flatten().tolist())


@pytest.mark.parametrize("last", [20, 24])
def test_padding_behind_the_last_sequence_stays_padding(last: int) -> None:
    """Offsets and lengths end where the recorded ones do; those of other sizes, and of a pack without numbers, at the end."""
    step = last // 4
    call, tensors = call_of(
        "m.f", x=torch.zeros(24, 3), cu=torch.arange(0, last + 1, step), lens=torch.full((4,), step)
    )
    said = {"cu": {"offsets": "x[0]"}, "lens": {"lengths": "x[0]", "sum": True}}
    assert {int(row[-1]) for row in drawn(call, tensors, said, 1)} == {last}
    assert {int(row.sum()) for row in drawn(call, tensors, said, 2)} == {last}
    others = inputs.fresh(
        call, [tensors[0], *map(torch.zeros_like, tensors[1:])], "0", declared({"coupled": said}), legal=False
    )
    assert (int(others[1][-1]), int(others[2].sum())) == (24, 24)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"cu": {"offsets": "x[0]", "most": 5}}, "cu of m.f holds offsets, and of the recorded ones a length is 6, longer than can be"),
        ({"cu": {"offsets": "y[0]"}}, r"the last ends at 24, beyond y\[0\], which is 20"),
        ({"cu": {"offsets": "x[0]", "multiple": 4}}, "a length is no multiple of 4"),
        ({"cu": {"offsets": "x[0]", "least": 7}}, "a length is 6, shorter than can be"),
        ({"ids": {"offsets": "x[0]"}}, "the first is 3, and not 0"),
        ({"ids": {"pages": 4}}, "one is 4, and 4 is 4"),
        ({"ids": {"unique": 9}}, "one comes twice"),
        ({"ids": {"sorted": 9}}, "they fall"),
        ({"cu": {"offsets": "x[0]", "within": "lens"}}, "length 6 exceeds 5 of lens"),
        ({"cu": {"offsets": "x[0]", "within": "ids"}}, "there are 4, and 3 of ids"),
        ({"cu": {"offsets": "x[0]", "within": "lens"}, "lens": {"lengths": 9, "within": "cu"}}, "is within itself"),
    ],
)  # fmt: skip
def test_what_was_recorded_is_what_is_declared(said: dict[str, object], problem: str) -> None:
    """Else nothing is drawn that a GPU would end at: the error says which number it is not."""
    call, tensors = call_of(
        "m.f",
        x=torch.zeros(24, 3), y=torch.zeros(20), cu=torch.arange(0, 25, 6), ids=torch.tensor([3, 4, 3]),
        lens=torch.tensor([9, 9, 5, 9]),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=problem):
        inputs.fresh(call, tensors, "0", declared({"coupled": said}))


def test_what_is_known_and_was_recorded_otherwise_stays_as_recorded() -> None:
    """What torch takes there only it knows."""
    call, tensors = call_of("torch.bucketize", input=torch.randn(8), boundaries=torch.tensor([2.0, 1.0, 3.0]))
    assert torch.equal(inputs.fresh(call, tensors, "0")[1].sign(), torch.ones(3))
    assert coupled.draw(semantics_for(call), call, tensors, tensors, "0", 0) == ""


def test_nothing_illegal_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw that were wrong would be refused before it reaches a device."""
    call, tensors = call_of("m.f", cache=torch.zeros(32, 2), slots=torch.arange(5))
    said = declared({"coupled": {"slots": {"unique": "cache[0]"}}})
    wrong = {
        **coupled._DRAWS,
        "unique": lambda bound, _lots, _edge: ({bound.index: bound.rows + 30}, "wrong"),
    }
    monkeypatch.setattr(coupled, "_DRAWS", wrong)
    with pytest.raises(ValueError, match=r"slots as unique: one is 34, and cache\[0\] is 32"):
        inputs.coupled_edge(call, tensors, "0", said, 0)


@pytest.mark.parametrize("seed", range(30))
def test_any_lengths_lead_to_legal_ones(seed: int) -> None:
    """Offsets of queries within those of pages that are drawn too, of any sizes that can be recorded."""
    lot = random.Random(seed)
    page, count = lot.choice([1, 1, 2, 3]), lot.randrange(1, 6)
    pages = [lot.randrange(5) for _ in range(count)]
    lengths = [lot.randrange((each - 1) * page + 2) if each else 0 for each in pages]
    cu_k, cu_q = (torch.tensor([0, *itertools.accumulate(each)]) for each in (pages, lengths))
    spare = lot.randrange(3)
    call, tensors = call_of(
        "m.f", q=torch.zeros(sum(lengths) + spare, 2), k=torch.zeros(sum(pages), 2), cu_q=cu_q, cu_k=cu_k
    )
    said = declared(
        {"coupled": {"cu_q": {"offsets": "q[0]", "within": f"cu_k*{page}"}, "cu_k": {"offsets": "k[0]"}}}
    )
    sets = [inputs.fresh(call, tensors, str(key), said) for key in range(4)]
    for number in range(3):
        with contextlib.suppress(ValueError):
            sets.append(inputs.coupled_edge(call, tensors, "0", said, number)[1])
    assert len(sets) == 7 or page > 1
    for _, _, drawn_q, drawn_k in sets:
        assert (int(drawn_q[0]), int(drawn_k[0])) == (0, 0)
        assert (int(drawn_q[-1]), int(drawn_k[-1])) == (sum(lengths), sum(pages))
        own, there = drawn_q.diff(), drawn_k.diff()
        assert int(own.min()) >= 0
        assert int(there.min()) >= 0
        assert bool((own <= torch.where(there > 0, (there - 1) * page + 1, 0)).all()) or (
            page > 1 and torch.equal(drawn_q, cu_q)
        )


SIGNED = """
import torch, pytest_cgins

@pytest_cgins.mark
def mixed(x, ids, gates, edges):
    return (x[ids] * gates[..., None]).sum(1) + torch.searchsorted(edges, x[:4])
"""


def test_what_is_coupled_keeps_its_sign(tmp_path: Path, project: Callable[[str], ModuleType]) -> None:
    """Numbers of one sign are tried with both: not gates that add up, nor numbers in order."""
    module = project(SIGNED)
    op = f"{module.__name__}.mixed"
    ids, gates, edges = torch.arange(8).reshape(4, 2), torch.full((4, 2), 0.5), torch.linspace(0, 1, 7)
    said = declared({"coupled": {"ids": {"routing": "x[0]", "weights": "gates"}, "edges": "sorted"}})
    with pytest_cgins.record(tmp_path / "pack", ops=[op]):
        module.mixed(torch.randn(9, 5), ids, gates, edges)
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    options = PrepareOptions(declared=said)
    fresh = next(
        each for each in prepare(trace, reader, "cpu", 7, options).core if each.expected.name == "fresh"
    )
    _, _, drawn_gates, drawn_edges = fresh.tensors()
    assert torch.allclose(drawn_gates.sum(1), torch.ones(4))
    assert bool((drawn_edges.diff() >= 0).all())


CANCELS = """
import torch, pytest_cgins

@pytest_cgins.mark
def cancels_at_an_edge(x, cu):
    far = 1e10 * (cu.diff().max() == 24)
    return (x[:2] + far) - far
"""


def test_an_edge_that_tells_nothing_is_named(tmp_path: Path, project: Callable[[str], ModuleType]) -> None:
    """An op that cancels all digits at an edge accepts zeros there, however often it is drawn."""
    module = project(CANCELS)
    op = f"{module.__name__}.cancels_at_an_edge"
    with pytest_cgins.record(tmp_path / "pack", ops=[op]):
        module.cancels_at_an_edge(torch.randn(24, 5), torch.arange(0, 25, 4))
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    options = PrepareOptions(declared=declared({"coupled": {"cu": {"offsets": "x[0]"}}}))
    notes = [note for note in prepare(trace, reader, "cpu", 7, options).notes if "prove nothing" in note]
    assert (
        "cu of lengths 0, 0, 0, 24, 0, 0: zeros would pass as the right answer, so these inputs prove nothing"
        in notes
    )


NESTED = """
import torch, pytest_cgins

@pytest_cgins.mark
def shares_of_rows(values, offsets):
    rows = torch.nested.nested_tensor_from_jagged(values, offsets)
    return (rows / torch.sum(rows.abs(), 1, keepdim=True)).values()
"""


def test_parts_of_a_nested_tensor_are_drawn_anew(
    tmp_path: Path, project: Callable[[str], ModuleType]
) -> None:
    """A call with a nested tensor is refused with what to mark and to declare, and that is enough."""
    rows = torch.nested.nested_tensor([torch.randn(4, 3) for _ in range(6)], layout=torch.jagged)
    refusal = r"(?s)nested tensor has no storage.* and\n?.*semantics: {coupled: {offsets: {offsets: \"values\[0\]\"}}}"
    with (
        pytest.raises(RecordError, match=refusal),
        pytest_cgins.record(tmp_path / "no", ops=["torch.nn.functional.relu"]),
    ):
        torch.nn.functional.relu(rows)
    module = project(NESTED)
    op = f"{module.__name__}.shares_of_rows"
    with pytest_cgins.record(tmp_path / "pack", ops=[op]):
        module.shares_of_rows(rows.values(), rows.offsets())
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    options = PrepareOptions(declared=declared({"coupled": {"offsets": {"offsets": "values[0]"}}}))
    sets = prepare(trace, reader, "cpu", 7, options).core
    # As recorded, fresh, with edge rows, and at three edges of the offsets.
    assert len({tuple(each.tensors()[1].tolist()) for each in sets}) == len(sets) == 6
