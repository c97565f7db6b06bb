"""A kernel that is compiled anew in calls like earlier ones is a finding, and one that is compiled once a size is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pytest_cgins.recording.record import record

if TYPE_CHECKING:
    from conftest import Run

CONFIG = """
version: 1
traces: [traces/net]
kernels:
  anew: &kernel
    op: torch.neg
    target: compiled:anew
    device: cpu
    probes: {op_callback: {off: "what is compiled here is torch's own code"}}
  once: {<<: *kernel, target: "compiled:once"}
"""
COMPILED = """
import torch

def compiled():
    names = {"torch": torch}
    exec("def negate(x): return torch.mul(x, -1)", names)
    return torch.compile(names["negate"], backend="eager")

negate = compiled()

def once(input):
    return negate(input)

def anew(input):
    return compiled()(input)
"""


def test_a_kernel_that_is_compiled_in_each_call(tmp_path: Path, run: Callable[..., Run]) -> None:
    """RESOURCES, since it is right and takes a compiler's time; other sizes may be compiled for."""
    with record(tmp_path / "traces" / "net", ops=["torch.neg"]):
        torch.neg(torch.randn(6, 10))
    config = CONFIG.replace("&kernel", "").replace(
        "<<: *kernel, ", 'op: torch.neg, device: cpu, probes: {op_callback: {off: "torch\'s own code"}}, '
    )
    for name, text in (("cgins.yaml", config), ("compiled.py", COMPILED), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(text)
    done = run(
        tmp_path, "--cgins", "--cgins-no-timing", "--cgins-probes=fast", "--cgins-json=report.json", "-q"
    )
    verdicts = {name.split("/")[0]: evaluation["verdict"] for name, evaluation in done.evaluations().items()}
    assert (verdicts["anew"]["status"], verdicts["anew"]["reason"]) == ("RESOURCES", "recompiles"), done.out
    assert "4 compilations of a graph of torch.compile after the first call" in verdicts["anew"]["message"]
    assert verdicts["once"]["status"] == "PASSED", done.out
