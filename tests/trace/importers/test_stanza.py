from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_cgins.config import load

TEXT = """Operator: aten.gelu.default
cnt: 1, ((T([3, 4], f32),), {'approximate': 'tanh'})
Operator: aten.tanh.default
cnt: 1, ((T([3, 4], f32),), {})
Operator: aten._softmax.default
cnt: 1, ((T([3, 4], f32), -1, False), {})
"""


def test_a_config_is_written_and_loads(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """Every op that can be named as a target is a kernel; the others are there as comments to fill in."""
    run = cgins("import", "backendbench", write("o.txt", TEXT), "--functional", "--config", "sub/cgins.yaml")
    assert "sub/cgins.yaml written" in run.out
    config = load(tmp_path / "sub/cgins.yaml")
    assert config.traces == (tmp_path / "pack",)
    assert {kernel.name: kernel.implementations[0].target for kernel in config.kernels} == {
        "gelu": "torch.nn.functional:gelu",
        "tanh": "torch:tanh",
    }
    assert (
        "  # _softmax:\n  #   op: torch.ops.aten._softmax.default\n"
        in (tmp_path / "sub/cgins.yaml").read_text()
    )


def test_a_config_that_is_there_stays(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """An existing file is left alone, and what to add to it is printed."""
    write("cgins.yaml", "version: 1\n")
    run = cgins("import", "backendbench", write("o.txt", TEXT), "--config", "cgins.yaml", "--functional")
    assert (tmp_path / "cgins.yaml").read_text() == "version: 1\n"
    assert "cgins.yaml is there already; add to its traces: pack" in run.out
    assert "      - {name: reference, device: cpu, target: torch:tanh}" in run.out
