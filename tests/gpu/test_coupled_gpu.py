"""On a GPU: what is drawn for torch's own ops on offsets is legal there, where an illegal number would end the process."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from pytest_cgins.config import declared  # noqa: E402
from pytest_cgins.verify import coupled, inputs  # noqa: E402
from pytest_cgins.verify.semantics import semantics_for  # noqa: E402
from tests.verify.test_coupled import call_of  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def _sets(op: str, **arguments: object) -> list[list[torch.Tensor]]:
    """Usual inputs and those at each edge, on the GPU."""
    call, tensors = call_of(op, **arguments)
    count = coupled.edge_count(semantics_for(call), call, tensors)
    assert count == 3
    usual = [inputs.fresh(call, tensors, str(key)) for key in range(5)]
    edges = [inputs.coupled_edge(call, tensors, "0", declared({}), number)[1] for number in range(count)]
    return [[tensor.cuda() for tensor in each] for each in usual + edges]


@pytest.mark.parametrize("causal", [True, False])
def test_packed_attention_takes_what_is_drawn(causal: bool) -> None:
    """Also sequences without queries, and such without keys; each answers as torch does for it alone."""
    q, k, v = (torch.randn(size, 2, 64).half() for size in (18, 36, 36))
    cu_q, cu_k = (torch.arange(0, 6 * step + 1, step, dtype=torch.int32) for step in (3, 6))
    op = torch.ops.aten._flash_attention_forward.default
    sets = _sets(
        "torch.ops.aten._flash_attention_forward.default",
        query=q, key=k, value=v, cum_seq_q=cu_q, cum_seq_k=cu_k, max_q=8, max_k=16, is_causal=causal,
    )  # fmt: skip
    for q, k, v, cu_q, cu_k in sets:
        out = op(q, k, v, cu_q, cu_k, 8, 16, 0.0, causal, False)[0]
        rows = zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True)
        for (start, end), (first, last) in rows:
            if start == end:
                continue
            parts = [tensor.double().movedim(1, 0) for tensor in (q[start:end], k[first:last], v[first:last])]
            shift = last - first - (end - start)
            seen = torch.ones(end - start, last - first, dtype=torch.bool, device="cuda").tril(shift)
            right = functional.scaled_dot_product_attention(*parts, attn_mask=seen if causal else None)
            torch.testing.assert_close(out[start:end].double(), right.movedim(0, 1), rtol=2e-2, atol=2e-2)
    torch.cuda.synchronize()


@pytest.mark.parametrize("shapes", [((32, 16), (4, 16, 8)), ((4, 8, 16), (16, 64)), ((8, 64), (64, 16))])
def test_groups_begin_where_torch_takes_them(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Rows anywhere; columns and what is summed over at multiples of 16 bytes, at which torch's kernel asserts."""
    a, b = (torch.randn(shape).bfloat16() for shape in shapes)
    last = {3: b.shape[-1], 2: a.shape[0] if b.ndim == 3 else a.shape[1]}[a.ndim]
    offs = torch.arange(last // 4, last + 1, last // 4, dtype=torch.int32)
    sets = _sets("torch._grouped_mm", self=a, mat2=b, offs=offs)
    for a, b, offs in sets:
        # The second matrix as models have it: what is summed over lies side by side.
        b = b.mT.contiguous().mT if a.ndim == 2 else b  # noqa: PLW2901
        torch._grouped_mm(a, b, offs=offs)
        torch.cuda.synchronize()
