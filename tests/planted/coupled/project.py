"""A folder with recorded calls of ops whose arguments belong together, and the kernels that are gated on them."""

from __future__ import annotations

import inspect
import shutil
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn import functional

import pytest_cgins

KERNELS = Path(__file__).parent / "kernels"
sys.path.append(str(KERNELS))
WHY = {"op_callback": {"off": "it is plain torch"}}
SPREADS = {"special_values": {"off": "it sums over all tokens, so NaN in one of them reaches others"}}
SLOW = {"sizes": {"off": "it is a loop in Python, and thousands of rows take seconds"}}
LOOPS = {"paged_attention_online"}
SUMS_ALL = {
    "expert_means_sorts", "expert_sums_as_product", "varlen_mean_as_product", "varlen_mean_of_running_sums",
}  # fmt: skip
WRONG_OF_SOME = {"grouped_any_equal_columns", "grouped_any_equal_shared"}
"""Bugs in products whose groups lie along one axis; the op has calls with each."""


@dataclass(frozen=True, kw_only=True)
class Op:
    """An op, what is said of it, and the calls of it that are recorded."""

    op: str
    """Its qualified name."""
    coupled: dict[str, Any] = field(default_factory=dict)
    """What its kernels' entries say of it; nothing for torch's own."""


OPS = {
    "varlen_mean": Op(op="coupled_ops.varlen_mean", coupled={"cu_seqlens": {"offsets": "x[0]"}}),
    "varlen_attention": Op(
        op="coupled_ops.varlen_attention",
        coupled={"cu_seqlens": {"offsets": "q[0]", "most": "max_seqlen"}},
    ),
    "paged_attention": Op(
        op="coupled_ops.paged_attention",
        coupled={"table": {"pages": "keys[0]"}, "lengths": {"lengths": "table[1]*keys[1]"}},
    ),
    "mixture": Op(
        op="coupled_ops.mixture", coupled={"experts": {"routing": "weight[0]", "weights": "gates"}}
    ),
    "expert_means": Op(op="coupled_ops.expert_means", coupled={"experts": {"routing": "bias[0]"}}),
    "expert_sums": Op(op="coupled_ops.expert_sums", coupled={"experts": {"routing": "bias[0]"}}),
    "last_token": Op(op="coupled_ops.last_token", coupled={"lengths": {"lengths": "x[1]"}}),
    "write_slots": Op(op="coupled_ops.write_slots", coupled={"slots": {"unique": "cache[0]"}}),
    "levels": Op(op="coupled_ops.levels", coupled={"edges": "sorted"}),
    "segment_reduce": Op(op="torch.ops.aten.segment_reduce.default"),
    "embedding_bag": Op(op="torch.nn.functional.embedding_bag"),
    "grouped": Op(op="torch.ops.aten._grouped_mm.default"),
    "cached": Op(
        op="cache_ops.cached_attention",
        coupled={
            "cu_q": {"offsets": "q[0]", "most": "max_q", "within": "cu_k"},
            "cu_k": {"offsets": "k[0]", "most": "max_k"},
        },
    ),
    "prefill": Op(
        op="cache_ops.paged_prefill",
        coupled={
            "cu_q": {"offsets": "q[0]", "within": "seq_lens"},
            "table": {"pages": "keys[0]"},
            "seq_lens": {"lengths": "table[1]*keys[1]"},
        },
    ),
    "packed_softmax": Op(op="cache_ops.packed_softmax", coupled={"cu_seqlens": {"offsets": "x[0]"}}),
    "fib_decode": Op(op="fib_decode_ops.run"),
    "fib_prefill": Op(op="fib_prefill_causal_ops.run"),
    "fib_routed": Op(op="fib_routed_ops.run"),
    "grouped_any": Op(op="torch._grouped_mm"),
    "to_jagged": Op(op="torch.ops.aten._padded_dense_to_jagged_forward.default"),
}
"""By the word that the names of its kernels begin with."""


def run_calls() -> None:
    """Sequences of one length, pages and experts in order: what a small example has."""
    ops = import_module("coupled_ops")
    generator = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    offsets = torch.arange(0, 25, 4)
    ops.varlen_mean(normal(24, 5), offsets)
    ops.varlen_attention(normal(24, 2, 8), normal(24, 2, 8), normal(24, 2, 8), offsets, 12)
    table, lengths = torch.arange(12, dtype=torch.int32).reshape(4, 3), torch.tensor([9, 10, 7, 11])
    ops.paged_attention(normal(4, 8), normal(16, 4, 8), normal(16, 4, 8), table, lengths)
    chosen = (torch.arange(32).reshape(16, 2) % 8).contiguous()
    ops.mixture(normal(16, 8), normal(8, 6, 8), chosen, torch.full((16, 2), 0.5))
    ops.expert_means(normal(18, 5), torch.arange(18) // 3, normal(6, 5))
    ops.expert_sums(normal(6, 5), torch.arange(6), normal(6, 5))
    ops.last_token(normal(5, 9, 4), torch.tensor([3, 8, 5, 6, 4]))
    ops.write_slots(normal(20, 4), normal(6, 4), torch.arange(5, 11))
    ops.levels(normal(6, 7), torch.linspace(-2, 2, 9))
    torch.ops.aten.segment_reduce.default(normal(24, 5), "sum", lengths=torch.full((6,), 4))
    bags = torch.randint(13, (24,), generator=generator)
    functional.embedding_bag(bags, normal(13, 5), torch.arange(0, 24, 4))
    halves, weight = normal(24, 16).bfloat16(), normal(4, 16, 8).bfloat16()
    offsets = torch.arange(6, 25, 6, dtype=torch.int32)
    torch.ops.aten._grouped_mm.default(halves, weight, offsets)
    torch.ops.aten._grouped_mm.default(normal(24, 16), normal(4, 16, 8), offsets)  # has no fp64 on a CPU


def run_cache_calls() -> None:
    """The same of ops with caches, of references in the form of trace sets, and of torch's groups and jagged rows."""
    for name in ("cache_ops", "fib_decode_ops", "fib_prefill_causal_ops", "fib_routed_ops"):
        import_module(name).run_calls()
    generator = torch.Generator().manual_seed(12)
    offsets = torch.arange(8, 33, 8, dtype=torch.int32)
    for shapes in (((4, 8, 16), (16, 32)), ((8, 32), (32, 16))):
        first, second = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
        torch._grouped_mm(first, second, offs=offsets)
    dense = torch.randn(4, 7, 3, generator=generator)
    torch.ops.aten._padded_dense_to_jagged_forward.default(dense, [torch.arange(0, 17, 4)], 16)


MODULES = {"planted": ("planted", "cache_planted"), "honest": ("honest", "cache_honest")}
"""Modules of kernels by what these are."""


def kernels_of(kind: str) -> dict[str, str]:
    """Names of planted or of honest kernels, in the order of their modules, the honest ones in C++ last, and what has each."""
    targets = {
        name: f"{module}:{name}"
        for module in MODULES[kind]
        for name, function in inspect.getmembers(import_module(module), inspect.isfunction)
        if function.__module__ == module and name[0] != "_"
    }
    sources = sorted(KERNELS.glob("*.cpp")) if kind == "honest" else []
    return targets | {f"{file.stem}_cpp": file.name for file in sources}


def op_of(kernel: str) -> Op:
    """The op that a kernel replaces."""
    return next(OPS[name] for name in sorted(OPS, key=len, reverse=True) if kernel.startswith(f"{name}_"))


def make(folder: Path, kind: str) -> Path:
    """Write a project with planted or with honest kernels; its cgins.yaml."""
    shutil.copytree(KERNELS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = kernels_of(kind)
    with pytest_cgins.record(folder / "traces", ops=sorted({op_of(name).op for name in kernels})):
        run_calls()
        run_cache_calls()
    file = folder / "cgins.yaml"
    entries = {name: _entry(name, source) for name, source in kernels.items()}
    document = {"version": 1, "traces": ["traces"], "kernels": entries}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def _entry(name: str, source: str) -> dict[str, Any]:
    op, is_python = op_of(name), ":" in source
    return {
        "op": op.op,
        **({"semantics": {"coupled": op.coupled}} if op.coupled else {}),
        "probes": (WHY if is_python else {})
        | (SPREADS if name in SUMS_ALL else {})
        | (SLOW if name in LOOPS else {}),
        "implementations": [{"name": "it", "device": "cpu", "target" if is_python else "source": source}],
    }
