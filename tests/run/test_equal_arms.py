"""Torch's own op as a Python target takes as long as torch's arm, whatever it returns and however it is called."""

from __future__ import annotations

import statistics
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins import record
from pytest_cgins.core import documents
from pytest_cgins.core.tensors import pack
from pytest_cgins.packs.ops import mark_as
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.run.timing_service import TimingService
from tests.run.relu import python_kernel

FROM, TO = 0.8, 1.25
"""Far from the 0.42 to 0.75 that outputs taken apart within the time made of it."""
BLOCKS = 60
X = torch.linspace(-1, 1, 64).reshape(8, 8)
Pair = namedtuple("Pair", "first second")


def as_list(x: torch.Tensor) -> list[torch.Tensor]:
    return [x + 1, x * 2]


def as_dict(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"sum": x + 1, "product": x * 2}


def as_pair(x: torch.Tensor) -> Any:
    return Pair(x + 1, x * 2)


MARKED = {name: mark_as(f"{__name__}.{name}", globals()[name]) for name in ("as_list", "as_dict", "as_pair")}
globals().update(MARKED)
CALLS: dict[str, Callable[[], object]] = {
    "one tensor": lambda: torch.relu(X),
    "by keyword": lambda: torch.nn.functional.softmax(X, dim=-1, dtype=torch.float32),
    "tuple": lambda: torch.nn.functional.max_pool2d(X[None, None], 2, return_indices=True),
    "named tuple": lambda: torch.topk(X, 3),
    "named tuple, by keyword": lambda: torch.sort(X, dim=0),
    "list": lambda: MARKED["as_list"](X),
    "dict": lambda: MARKED["as_dict"](X),
    "named tuple of one's own": lambda: MARKED["as_pair"](X),
    "in place": lambda: X.clone().relu_(),
}
OPS = {
    "tuple": ["torch.nn.functional.max_pool2d_with_indices"],
    "named tuple": ["torch.topk"],
    "in place": ["torch.Tensor.relu_"],
}


@pytest.mark.parametrize("case", CALLS)
def test_torch_against_itself_reads_one(case: str, tmp_path: Path) -> None:
    """The median over blocks of both arms' times, of pairs that lie side by side."""
    with record(tmp_path / "pack", ops=OPS.get(case)):
        CALLS[case]()
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    tensors = load_inputs(trace, reader, "cpu")
    op = trace.call.op
    assert trace.gold is not None
    metas = [one.meta for one in trace.gold.tensors[: len(trace.gold.tensors) - len(trace.gold.mutated)]]
    module, _, entry = (
        op.rpartition(".") if op.startswith(__name__) else ("torch", "", op.removeprefix("torch."))
    )
    kernel = python_kernel(tmp_path, module, entry)
    kernel = replace(kernel, source=replace(kernel.source, op=op, files=(__file__,)))
    header, buffer = pack(tensors)
    one = {
        "name": "0", "call": documents.dump_python(trace.call), "tensors": header,
        "outputs": [documents.dump_python(meta) for meta in metas],
        "context": documents.dump_python(trace.context), "mutated": [0] if case == "in place" else [],
    }  # fmt: skip
    service = TimingService()
    service.open(
        {"kernel": documents.dump_python(kernel), "device": "cpu", "import_root": str(tmp_path), "limit_s": 0.05, "sets": [one]},
        [buffer],
    )  # fmt: skip
    blocks = service.blocks({"orders": ["KTTK", "TKKT"] * (BLOCKS // 2)}, [])[0]["blocks"]
    ratios = []
    for block in blocks:
        times = dict.fromkeys("KT", 0.0)
        for letter, ns in zip(block["order"], block["ns_per_call"], strict=True):
            times[letter] += ns
        ratios.append(times["T"] / times["K"])
    answers, _ = service.finish({}, [])
    assert FROM < statistics.median(ratios) < TO
    assert answers["observed"] is not None
