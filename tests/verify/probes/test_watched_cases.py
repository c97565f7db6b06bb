"""What is observed of a kernel, from the case to the verdict: seen in one worker, judged in another."""

from __future__ import annotations

import pytest
import torch

import pytest_cgins
from pytest_cgins.config import load
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator

MODEL = """
import pytest_cgins
import torch

@pytest_cgins.mark
def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
"""
KERNELS = """
import gc
import models
import numpy
import torch

def _right(x, weight):
    n = x.numpy().astype(numpy.float64)
    scale = 1 / numpy.sqrt((n * n).mean(-1, keepdims=True) + 1e-6)
    return torch.from_numpy((n * scale * weight.numpy()).astype(numpy.float32))

def right(x, weight):
    out = torch.empty_like(x)
    out.copy_(_right(x, weight))
    return out

def calls_reference(x, weight):
    return models.rms_norm(x, weight)

def falls_back(x, weight):
    return _right(x, weight) if x.shape[0] == 1 else models.rms_norm.__wrapped__(x, weight)

def leaves_a_row(x, weight):
    out = torch.empty_like(x)
    out[:-1] = _right(x, weight)[:-1]
    return out

def tampers(x, weight):
    torch.equal = lambda a, b: True
    return _right(x, weight)

def snoops(x, weight):
    gc.get_objects()
    return _right(x, weight)
"""
REASONS = {
    "calls_reference": Reason.OP_CALLBACK,
    "falls_back": Reason.OP_CALLBACK,
    "leaves_a_row": Reason.UNWRITTEN,
    "tampers": Reason.TAMPERING,
    "right": Reason.OK,  # in a new process
    "snoops": Reason.SNOOPING,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluation]:
    """What becomes of each, in this order, in one session."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "models.py").write_text(MODEL)
    (folder / "norms.py").write_text(KERNELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        import models  # type: ignore[import-not-found]

        with pytest_cgins.record(folder / "traces/tiny", ops=["models.rms_norm"]):
            models.rms_norm(torch.randn(6, 40), torch.randn(40))
    implementations = ", ".join(f"{{name: {name}, device: cpu, target: 'norms:{name}'}}" for name in REASONS)
    (folder / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        f"  rms_norm: {{op: models.rms_norm, implementations: [{implementations}]}}\n"
    )
    evaluator = Evaluator(load(folder / "cgins.yaml"), seed=3, timing=False, probes="fast")
    try:
        return {case.implementation: evaluator.evaluate(case) for case in evaluator.cases()}
    finally:
        evaluator.close()


@pytest.mark.exam
@pytest.mark.parametrize(("name", "reason"), REASONS.items())
def test_each_is_called_what_it_is(found: dict[str, Evaluation], name: str, reason: Reason) -> None:
    """A kernel that calls the user's marked function, tampers or snoops is suspect by its name; one that leaves a row is wrong."""
    verdict = found[name].verdict
    honest = {Reason.OK: Status.PASSED, Reason.UNWRITTEN: Status.INCORRECT}
    status = honest.get(reason, Status.SUSPECT)
    assert (verdict.status, verdict.reason) == (status, reason), verdict.message


@pytest.mark.exam
def test_the_message_names_what_torch_ran(found: dict[str, Evaluation]) -> None:
    """The op's own operators, without the allocations around them."""
    message = found["calls_reference"].verdict.message
    assert "it runs aten::pow, aten::mean" in message
    assert "aten::empty" not in message
