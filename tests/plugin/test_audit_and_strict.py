"""`cgins traces audit` and `pytest --cgins --cgins-strict` say the same of the same traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.app import cli
from tests.forked_python import ForkedPython

if TYPE_CHECKING:
    import pytest
    from conftest import Run

OPS = """
import pytest_cgins
import torch

@pytest_cgins.mark
def double(x):
    return x * 2

@pytest_cgins.mark
def constant(x):
    return x * 0 + 1

@pytest_cgins.mark
def vanishing(x):
    return x * 0

@pytest_cgins.mark
def spread(x):
    return x.mean(1, keepdim=True).expand_as(x).contiguous()

@pytest_cgins.mark
def unused(x, bias):
    return x * 2

@pytest_cgins.mark
def whole(a, b):
    return a + b

@pytest_cgins.mark
def tripled(x):
    return x * 3

@pytest_cgins.mark
def hollow(x):
    return x * 2

def double_kernel(x): return torch.add(x, x)
def constant_kernel(x): return torch.sub(x, x) + 1
def vanishing_kernel(x): return torch.sub(x, x)
def spread_kernel(x): return (sum(x.unbind(1)) / x.shape[1]).unsqueeze(1).repeat(1, x.shape[1])
def unused_kernel(x, bias): return torch.add(x, x)
def whole_kernel(a, b): return torch.sub(a, -b)
def tripled_kernel(x): return torch.add(x, torch.add(x, x))
def hollow_kernel(x): return torch.add(x, x)
"""
RECORD = """
import ops
import torch
import pytest_cgins

torch.manual_seed(0)
names = ["double", "constant", "vanishing", "spread", "unused", "whole", "tripled", "hollow"]
with pytest_cgins.record("pack", ops=[f"ops.{name}" for name in names]):
    x = torch.randn(4, 6)
    ops.double(x), ops.constant(x), ops.vanishing(x), ops.spread(x), ops.unused(x, torch.randn(6))
    ops.whole(torch.arange(5), torch.tensor([3, 1, 4, 1, 5])), ops.tripled(x), ops.hollow(torch.randn(0, 3))
"""
LOOSE = {"tripled": "{rtol: 1.0, atol: 1000.0}"}
"""A tolerance of the user's own."""


def statuses(project: Path, run: Callable[..., Run]) -> dict[str, str]:
    """By op, what the gate says."""
    options = ["--cgins", "--cgins-strict", "--cgins-no-timing", "--cgins-seed=0", "--cgins-json=report.json"]
    run(project, *options)
    document = json.loads((project / "report.json").read_text())
    return {
        one["case"]["op"].removeprefix("ops."): one["verdict"]["status"] for one in document["evaluations"]
    }


@pytest.mark.exam
def test_a_trace_is_weak_in_both_or_in_neither(
    tmp_path: Path, run: Callable[..., Run], forked_torch: ForkedPython, capsys: pytest.CaptureFixture[str]
) -> None:
    """Constants, answers without elements, unused arguments, integers, equal slices, a user's own tolerance."""
    (tmp_path / "ops.py").write_text(OPS)
    assert forked_torch.run(["-c", RECORD], cwd=tmp_path).returncode == 0
    names = [
        line.split("(")[0][4:]
        for line in OPS.splitlines()
        if line.startswith("def ") and "_kernel" not in line
    ]
    kernels = "".join(
        f"  {name}: {{op: ops.{name}, device: cpu, target: 'ops:{name}_kernel', sources: [ops.py]"
        f"{f', tolerance: {LOOSE[name]}' if name in LOOSE else ''}}}\n"
        for name in names
    )
    (tmp_path / "cgins.yaml").write_text(f"version: 1\ntraces: [pack]\nkernels:\n{kernels}")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    gate = statuses(tmp_path, run)
    assert (
        cli.main(["traces", "audit", "--strict", "--json", "--trust", "ops.double", str(tmp_path / "pack")])
        == 1
    )
    (audits,) = json.loads(capsys.readouterr().out).values()
    audited = {one["op"].removeprefix("ops."): one["weak"] for one in audits}
    assert {name: status == "WEAK" for name, status in gate.items()} == audited
    assert sum(audited.values()) >= 2
    assert set(gate.values()) == {"PASSED", "SKIPPED", "WEAK"}
    exploitable = {one["op"].removeprefix("ops.") for one in audits if one["exploitable"]}
    assert exploitable == {"spread", "unused", "whole"}
