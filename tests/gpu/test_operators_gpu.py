"""Operators in CUDA graphs: a replay on other numbers does what a call does, or it is found."""

from __future__ import annotations

import pytest
import torch

from tests.planted.operators import ON_GPU
from tests.run.test_operator_checks import find

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("count", [2, 1])
@pytest.mark.parametrize("name", ON_GPU)
def test_graph_replay(name: str, count: int) -> None:
    """What is right passes; a graph that reads what was staged before, and a call that waits for the host, do not."""
    finding = find(name, "graph", "cuda", count)
    assert finding.reason.value == ON_GPU[name].finds.get("graph", "ok"), finding.message


@pytest.mark.parametrize("check", ["schema", "fake", "aot", "compile"])
def test_the_other_checks_on_a_gpu(check: str) -> None:
    """Fake tensors are of the device, and inductor's graph of a CUDA operator gives the same."""
    torch.library.register_fake("cgins_planted::right_on_gpu", torch.empty_like, allow_override=True)
    finding = find("right_on_gpu", check, "cuda")  # type: ignore[arg-type]
    assert finding.reason.value == "ok", finding.message
