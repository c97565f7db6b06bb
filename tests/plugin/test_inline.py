"""Modules that build their extension as they are imported: by a compiler's limits, not by a kernel's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pytest_cgins.recording.record import record

if TYPE_CHECKING:
    from conftest import Run

CONFIG = """
version: 1
traces: [traces/net]
kernels:
  negated:
    op: torch.neg
    target: inline:negated
    device: cpu
    probes: {op_callback: {off: "its arithmetic is torch's own"}}
"""
INLINE = """
from torch.utils.cpp_extension import load_inline

SOURCE = "at::Tensor negated(at::Tensor x) { return x.mul(-1); }"
module = load_inline(name="negated_inline", cpp_sources=SOURCE, functions=["negated"])

def negated(input):
    return module.negated(input)
"""


@pytest.mark.slow
def test_an_extension_is_built_before_a_worker_imports_it(tmp_path: Path, run: Callable[..., Run]) -> None:
    """The compiler takes longer than a kernel may; the kernel passes, and the next run builds nothing."""
    with record(tmp_path / "traces" / "net", ops=["torch.neg"]):
        torch.neg(torch.randn(6, 10))
    for name, text in (("cgins.yaml", CONFIG), ("inline.py", INLINE), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(text)
    seconds = []
    for _ in range(2):
        options = (
            "--cgins-no-timing",
            "--cgins-probes=off",
            "--cgins-timeout=20",
            "--cgins-json=report.json",
            "-q",
        )
        done = run(tmp_path, "--cgins", *options, env={"CGINS_CACHE_DIR": str(tmp_path / "cache")})
        (evaluation,) = done.evaluations().values()
        assert evaluation["verdict"]["status"] == "PASSED", done.out
        seconds.append(evaluation["build_seconds"])
    assert seconds[0] > 0
    assert seconds[1] == 0
