"""Which arguments belong together: known of torch's ops and of flashinfer's names, and proposed from what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import pytest_cgins
from pytest_cgins.config import declared
from pytest_cgins.config.coupled import arguments_of, yaml_of
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify import coupled, couplings, inputs
from pytest_cgins.verify.input_sets import InputSetBuilder
from pytest_cgins.verify.proven_couplings import proven
from pytest_cgins.verify.semantics import semantics_for
from tests.verify.test_coupled import call_of

CU, LENS = torch.arange(0, 25, 4, dtype=torch.int32), torch.full((6,), 7, dtype=torch.int32)


def known_of(op: str, **arguments: Tensor | int | bool | None) -> dict[str, str]:
    """What is known of a call, as it is written in cgins.yaml, by argument; each is drawn, and names what is there."""
    call, tensors = call_of(op, **arguments)
    semantics = semantics_for(call)
    known = couplings.couplings_of(semantics, call, tensors)
    assert {name for each in known for name in arguments_of(each)} <= {each.name for each in call.arguments}
    for number in (None, *range(coupled.edge_count(semantics, call, tensors))):
        told = coupled.draw(semantics, call, [each.clone() for each in tensors], tensors, "0", number)
        assert all(each.argument in told for each in known)
    return {
        each.argument: yaml_of(each).partition(f"{each.argument}: ")[2].removesuffix("}}") for each in known
    }


@pytest.mark.parametrize(
    ("first", "second", "last", "size", "multiple"),
    [
        ((24, 16), (4, 16, 8), 24, "self[0]", 1),
        ((4, 8, 16), (16, 64), 64, "mat2[1]", 8),
        ((8, 64), (64, 16), 64, "self[1]", 8),
        ((8, 24), (24, 16), 24, "self[1]", 2),
    ],
)
@pytest.mark.parametrize("op", ["torch.ops.aten._grouped_mm.default", "torch._grouped_mm"])
def test_groups_lie_along_rows_columns_or_what_is_shared(
    op: str, first: tuple[int, ...], second: tuple[int, ...], last: int, size: str, multiple: int
) -> None:
    """Where they lie side by side in memory they begin at 16 bytes, at which torch on a GPU ends; or as was recorded."""
    offs = torch.arange(last // 4, last + 1, last // 4, dtype=torch.int32)
    arguments = {"self": torch.zeros(first).bfloat16(), "mat2": torch.zeros(second).bfloat16(), "offs": offs}
    rest = f", multiple: {multiple}" if multiple > 1 else ""
    assert known_of(op, **arguments) == {"offs": f'{{offsets: "{size}", first: false{rest}}}'}
    call, tensors = call_of(op, **arguments)
    for number in range(3):
        ends = inputs.coupled_edge(call, tensors, "0", declared({}), number)[1][2]
        assert int(ends[-1]) == last
        assert math.gcd(*ends.tolist()) % multiple == 0


PACKED, PAGES = torch.zeros(24, 2, 8), torch.zeros(20, 4, 2, 8)
TABLE = torch.arange(12, dtype=torch.int32).reshape(6, 2)
LONGER = torch.arange(0, 49, 8, dtype=torch.int32)


def test_packed_attention_of_torch_is_known() -> None:
    """Queries within keys if it is causal, keys that are used within those that are there, and pages."""
    q, k = {"query": PACKED}, {"key": torch.zeros(48, 2, 8)}
    offsets = {"cum_seq_q": CU, "cum_seq_k": LONGER, "max_q": 8, "max_k": 16}
    flash = "torch.ops.aten._flash_attention_forward.default"
    assert known_of(flash, **q, **k, **offsets, is_causal=True) == {
        "cum_seq_q": '{offsets: "query[0]", most: "max_q", within: "cum_seq_k"}',
        "cum_seq_k": '{offsets: "key[0]", most: "max_k"}',
    }
    assert known_of(flash, **q, **k, **offsets, is_causal=False) == {
        "cum_seq_q": '{offsets: "query[0]", most: "max_q"}',
        "cum_seq_k": '{offsets: "key[0]", least: 1, most: "max_k"}',
    }
    batched = {name: tensor[None] for name, tensor in (*q.items(), *k.items())}
    offsets = {"cu_seqlens_q": CU, "cu_seqlens_k": LONGER, "max_seqlen_q": 8, "max_seqlen_k": None}
    assert known_of(
        "torch.ops.aten._efficient_attention_forward.default", **batched, **offsets, custom_mask_type=2
    ) == {
        "cu_seqlens_q": '{offsets: "query[1]", most: "max_seqlen_q", within: "cu_seqlens_k"}',
        "cu_seqlens_k": '{offsets: "key[1]"}',
    }
    offsets = {"cu_seq_q": CU, "cu_seq_k": None, "max_q": 8, "max_k": 8}
    varlen = "torch.ops.torch_attn._varlen_attn.default"
    paged = {"seqused_k": LENS, "block_table": TABLE}
    assert known_of(varlen, **q, key=PAGES, value=PAGES, **offsets, is_causal=True, **paged) == {
        "cu_seq_q": '{offsets: "query[0]", most: "max_q", within: "seqused_k"}',
        "seqused_k": '{lengths: "block_table[1]*key[1]"}',
        "block_table": '{pages: "key[0]"}',
    }
    offsets = {"cu_seq_q": CU, "cu_seq_k": LONGER, "max_q": 8, "max_k": 16}
    assert known_of(varlen, **q, **k, **offsets, is_causal=True, seqused_k=LENS) == {
        "cu_seq_q": '{offsets: "query[0]", most: "max_q", within: "seqused_k"}',
        "cu_seq_k": '{offsets: "key[0]", most: "max_k"}',
        "seqused_k": '{lengths: "key[0]", within: "cu_seq_k"}',
    }


def test_names_mean_in_flashinfer_what_they_mean_there() -> None:
    """In its own functions, and in references that come with its trace sets; in another function of such names nothing."""
    pages = {"kv_indptr": CU, "kv_indices": torch.arange(24), "kv_last_page_len": torch.full((6,), 2)}
    caches = {"k_cache": torch.zeros(30, 4, 2, 8), "v_cache": torch.zeros(30, 4, 2, 8)}
    in_pages = {
        "kv_indptr": '{offsets: "kv_indices[0]"}',
        "kv_last_page_len": '{lengths: "k_cache[1]", least: 1}',
        "kv_indices": '{pages: "k_cache[0]"}',
    }
    decode = {"q": torch.zeros(6, 2, 8), **caches, **pages}
    assert known_of("references.fib_gqa_paged_decode_h2.run", **decode) == in_pages
    assert known_of("models.fib.run", **decode) == known_of("fibre.run", **decode) == {}
    prefill = {"q": PACKED, **caches, "qo_indptr": CU, **pages}
    assert known_of("references.fid_gqa_paged_prefill_causal.run", **prefill) == {
        "qo_indptr": '{offsets: "q[0]", within: "kv_indptr*k_cache[1]"}',
        **in_pages,
    }
    ragged = {"q": PACKED, "k": torch.zeros(48, 2, 8), "qo_indptr": CU, "kv_indptr": LONGER}
    assert known_of("references.fib_ragged_prefill.run", **ragged, causal=True) == {
        "qo_indptr": '{offsets: "q[0]", within: "kv_indptr"}',
        "kv_indptr": '{offsets: "k[0]"}',
    }
    table = {"block_tables": TABLE, "seq_lens": LENS}
    assert known_of(
        "flashinfer.decode.run", query=PACKED[:6], kv_cache=torch.zeros(20, 2, 4, 8), **table
    ) == {"block_tables": '{pages: "kv_cache[0]"}'}
    assert known_of("flashinfer.decode.run", query=PACKED[:6], k_cache=PAGES, **table) == {
        "block_tables": '{pages: "k_cache[0]"}',
        "seq_lens": '{lengths: "block_tables[1]*k_cache[1]"}',
    }
    chosen = {"topk_ids": torch.arange(8).reshape(4, 2), "topk_weights": torch.full((4, 2), 0.5)}
    weights = {"w1": torch.zeros(8, 6, 8), "w2": torch.zeros(8, 8, 3)}
    assert known_of("flashinfer.fused_moe.run", x=torch.zeros(4, 8), **weights, **chosen) == {
        "topk_ids": '{routing: "w1[0]", weights: topk_weights}'
    }


def proposed(**arguments: Tensor | int) -> list[str]:
    """What the audit proposes of a call."""
    call, tensors = call_of("m.f", **arguments)
    return [yaml_of(one) for one in couplings.inferred(semantics_for(call), call, tensors)]


def test_queries_within_keys_are_proposed() -> None:
    """If none was recorded that is longer, and some are shorter; and pages, where some are none."""
    shared = {"q": torch.zeros(18, 2), "k": torch.zeros(39, 2), "cu_q": torch.tensor([0, 3, 8, 18])}
    assert proposed(**shared, cu_k=torch.tensor([0, 3, 20, 39])) == [
        'semantics: {coupled: {cu_q: {offsets: "q[0]", within: "cu_k"}}}',
        'semantics: {coupled: {cu_k: {offsets: "k[0]"}}}',
    ]
    assert proposed(**shared, cu_k=torch.tensor([0, 2, 20, 39])) == [
        'semantics: {coupled: {cu_q: {offsets: "q[0]"}}}',
        'semantics: {coupled: {cu_k: {offsets: "k[0]"}}}',
    ]
    table = torch.tensor([[4, 1, 7, -1], [2, -1, -1, -1], [0, 3, 5, 6]])
    assert proposed(
        **shared, keys=torch.zeros(16, 4, 2), table=table, seq_lens=torch.tensor([9, 10, 14])
    ) == [
        'semantics: {coupled: {cu_q: {offsets: "q[0]", within: "seq_lens"}}}',
        'semantics: {coupled: {table: {pages: "keys[0]"}}}',
        'semantics: {coupled: {seq_lens: {lengths: "table[1]*keys[1]"}}}',
    ]


@pytest.mark.filterwarnings("error")
def test_nothing_is_proposed_of_complex_numbers() -> None:
    """They have no order; torch warns of a cast that drops half of each."""
    assert proposed(x=torch.zeros(24, 3), frequencies=torch.arange(24) + 1j) == []


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


USERS = """
import torch, pytest_cgins

def attend(q, k, v):
    return ((q @ k.T).softmax(-1) @ v) if len(k) else torch.zeros_like(q)

@pytest_cgins.mark
def sums(x, counts):
    return torch.stack([part.sum(0) for part in x.split(counts.tolist())])

@pytest_cgins.mark
def across(q, k, v, starts, k_starts):
    ends = zip(starts[:-1], starts[1:], k_starts[:-1], k_starts[1:])
    return torch.cat([attend(q[a:b], k[c:d], v[c:d]) for a, b, c, d in ends])

@pytest_cgins.mark
def causal(q, k, v, starts, k_starts):
    scores = [(q[a:b] @ k[c:d].T).tril(0) for a, b, c, d in zip(starts[:-1], starts[1:], k_starts[:-1], k_starts[1:])]
    return torch.cat([s @ v[c:d] for s, c, d in zip(scores, k_starts[:-1], k_starts[1:])])

@pytest_cgins.mark
def padded(x, starts, width: int):
    parts = [torch.nn.functional.pad(x[a:b][:width], (0, 0, 0, max(0, width - int(b - a)))) for a, b in zip(starts[:-1], starts[1:])]
    return torch.stack(parts)

@pytest_cgins.mark
def last(x, lengths):
    return x[torch.arange(len(x)), lengths.long() - 1]

@pytest_cgins.mark
def picked(table, ids):
    return table[ids.long()] * 2

@pytest_cgins.mark
def by_chance(x, ends):
    return x * ends.sum()

@pytest_cgins.mark
def numbered(table, ids):
    return table[ids.long()] + ids[:, None]
"""


def test_what_undeclared_integers_are_is_proven_by_the_answers(
    tmp_path: Path, project: Callable[[str], ModuleType]
) -> None:
    """Offsets, lengths and indices of a user's op, within what it says and what was recorded; not numbers that are alike by chance."""
    ops = project(USERS)
    x, ends, bytes_ = torch.randn(24, 5), torch.arange(0, 25, 4), torch.full((6,), 4, dtype=torch.uint8)
    names = ("sums", "across", "causal", "padded", "last", "picked", "by_chance", "numbered")
    with pytest_cgins.record(tmp_path / "pack", ops=[f"{ops.__name__}.{name}" for name in names]):
        ops.sums(x, bytes_)
        ops.across(x, x + 1, x - 1, ends, ends.clone())
        ops.causal(x, x + 1, x - 1, ends, ends.clone())
        ops.padded(x, ends, 7)
        ops.last(torch.randn(4, 9, 3), torch.tensor([3, 9, 5, 1]))
        ops.picked(x, torch.tensor([7, 3, 11, 3]))
        ops.picked(x, torch.tensor([3, 4, 7, 9, 9]))
        ops.by_chance(x, ends)
        ops.numbered(x, torch.tensor([7, 3, 11, 3]))
    reader, found = open_pack(tmp_path / "pack"), list[tuple[str, str]]()
    for trace in reader.pack.traces:
        builder = InputSetBuilder(trace, trace.call, "cpu")
        known = proven(builder, load_inputs(trace, reader, "cpu"))
        said = ", ".join(yaml_of(one).partition("coupled: {")[2].removesuffix("}}") for one in known)
        found.append((trace.call.op.rpartition(".")[2], said))
    assert sorted(found) == [
        ("across", 'starts: {offsets: "q[0]", least: 1}, k_starts: {offsets: "k[0]", least: 1}'),
        ("by_chance", ""),
        ("causal", 'starts: {offsets: "q[0]", least: 1}, k_starts: {offsets: "q[0]", least: 1}'),
        ("last", 'lengths: {lengths: "x[1]", least: 1}'),
        ("numbered", ""),
        ("padded", 'starts: {offsets: "x[0]", least: 1, most: "width"}'),
        ("picked", ""),
        ("picked", 'ids: {pages: "table[0]"}'),
        ("sums", 'counts: {lengths: "x[0]", sum: true, least: 1}'),
    ]
