"""What an op does itself is no fault of a kernel: modules as their own kernels, as `cgins import` configures them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked_python import ForkedPython
from tests.plugin.conftest import Run

MODULES = """
import torch

class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))
        self.hidden = torch.randn(3, 8)

    def forward(self, x):
        self.hidden = torch.tanh(x @ self.weight + self.hidden)
        return self.hidden * 2

class Last(torch.nn.Module):
    def forward(self, x):
        return torch.stack([x, x.cos(), x.exp()], 1)[:, -1]

class Wide(torch.nn.Module):
    def forward(self, x):
        return x.cos() + torch.ones(80_000_000)[0]
"""
RECORD = """
import modules
import torch
import pytest_cgins

torch.manual_seed(0)
names = ["Cell", "Last", "Wide"]
made = [getattr(modules, name)() for name in names]
with torch.no_grad(), pytest_cgins.record("pack", ops=[f"modules.{name}" for name in names]):
    made[0](torch.randn(3, 8)), made[1](torch.randn(6, 5)), made[2](torch.randn(20, 30))
"""


@pytest.mark.exam
def test_modules_pass_as_their_own_kernels(
    tmp_path: Path, run: Callable[..., Run], forked_torch: ForkedPython
) -> None:
    """One sets what it reads, one returns a view into something larger, one takes 300 MiB; the first two are timed, too."""
    (tmp_path / "modules.py").write_text(MODULES)
    assert forked_torch.run(["-c", RECORD], cwd=tmp_path).returncode == 0
    kernels = "".join(
        f"  {name}: {{op: modules.{name}, device: cpu, target: 'modules:{name}.forward', sources: [modules.py],\n"
        "    probes: {op_callback: {off: it is the op itself}}}\n"
        for name in ("Cell", "Last", "Wide")
    )
    (tmp_path / "cgins.yaml").write_text(f"version: 1\ntraces: [pack]\nkernels:\n{kernels}")
    for options in (("-k", "not Wide"), ("-k", "Wide", "--cgins-no-timing", "--cgins-probes=fast")):
        found = run(tmp_path, "--cgins", "--cgins-json=report.json", *options)
        messages = {name: one["verdict"]["message"] for name, one in found.evaluations().items()}
        assert set(found.statuses().values()) == {"PASSED"}, messages
