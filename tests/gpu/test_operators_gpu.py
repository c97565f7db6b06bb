"""Operators in CUDA graphs: a replay on other numbers does what a call does, or it is found."""

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from pytest_cgins import config, record
from pytest_cgins.core.case import OPERATOR_CHECKS
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.cases import operator_checks
from pytest_cgins.gate.evaluate import Evaluator
from tests.gate.test_operators import REFERENCE, TRITON
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
    # In a process of its own: after a capture that failed, torch's generator is of no use.
    program = (
        "from tests.run.test_operator_checks import find; "
        f"found = find({name!r}, 'graph', 'cuda', {count}); print(found.reason.value, found.message)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == ON_GPU[name].finds.get("graph", "ok"), done.stdout


@pytest.mark.parametrize("check", ["schema", "fake", "aot", "compile"])
def test_the_other_checks_on_a_gpu(check: str) -> None:
    """Fake tensors are of the device, and inductor's graph of a CUDA operator gives the same."""
    torch.library.register_fake("cgins_planted::right_on_gpu", torch.empty_like, allow_override=True)
    finding = find("right_on_gpu", check, "cuda")  # type: ignore[arg-type]
    assert finding.reason.value == "ok", finding.message


def test_an_operator_of_triton_is_gated_timed_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its call in a model to a graph's replay, in workers; gradients are not followed, so those are not looked at."""
    pytest.importorskip("triton")
    (tmp_path / "triton_lib.py").write_text(TRITON)
    (tmp_path / "reference.py").write_text(REFERENCE)
    file = tmp_path / "cgins.yaml"
    file.write_text(
        "version: 1\ntraces: [traces]\nkernels:\n  plus: {op: torch.ops.cgins_gated_triton.plus, device: cuda, "
        "load: [triton_lib], reference: 'reference:plus'}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("triton_lib")
    with record(tmp_path / "traces"), torch.no_grad():
        torch.ops.cgins_gated_triton.plus(torch.randn(90, 70, device="cuda"))
    with closing(Evaluator(config.load(file), seed=1, device="cuda")) as evaluator:
        (case,) = evaluator.cases()
        gated = evaluator.evaluate(case)
        assert gated.verdict.status is Status.PASSED, gated.verdict.message
        assert gated.measurement is not None
        for check in operator_checks(evaluator.config, case):
            verdict = evaluator.evaluate(check).verdict
            assert verdict.status is Status.PASSED, (check.check, verdict.message)
    assert [check.check for check in operator_checks(evaluator.config, case)] == [
        check for check in OPERATOR_CHECKS if check != "autograd"
    ]
