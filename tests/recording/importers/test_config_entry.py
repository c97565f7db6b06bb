from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_cgins
from pytest_cgins.config import load
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.importers import config_entry
from pytest_cgins.recording.importers.collect import Report

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
    """Every op that can be named as a target is a kernel: a function of torch, or the overload itself."""
    run = cgins("import", "backendbench", write("o.txt", TEXT), "--functional", "--config", "sub/cgins.yaml")
    assert "sub/cgins.yaml written" in run.out
    config = load(tmp_path / "sub/cgins.yaml")
    assert config.traces == (tmp_path / "pack",)
    assert {kernel.name: kernel.implementations[0].target for kernel in config.kernels} == {
        "gelu": "torch.nn.functional:gelu",
        "tanh": "torch:tanh",
        "_softmax": "torch:ops.aten._softmax.default",
    }
    # The reference is the op: without an exception it would be suspected of calling it.
    assert {one.probe for kernel in config.kernels for one in kernel.exceptions} == {"op_callback"}


def test_a_backward_is_a_comment_to_fill_in(tmp_path: Path) -> None:
    """No target can name a backward: its kernel stands as a comment, with a source to write."""
    with pytest_cgins.record(tmp_path / "pack", ops=["torch.nn.functional.gelu"], backward=True):
        torch.nn.functional.gelu(torch.ones(3, 4, requires_grad=True)).sum().backward()
    report = Report(pack=open_pack(tmp_path / "pack").pack)
    config_entry.write(tmp_path / "cgins.yaml", report, tmp_path / "pack")
    text = (tmp_path / "cgins.yaml").read_text()
    assert "  # gelu_backward:\n  #   op: torch.nn.functional.gelu@backward(input)\n" in text
    assert "  #     - {name: kernel, device: cpu, source: kernels/gelu_backward.cpp}\n" in text
    assert [kernel.name for kernel in load(tmp_path / "cgins.yaml").kernels] == ["gelu"]


def test_a_config_that_is_there_stays(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """An existing file is left alone, and what to add to it is printed."""
    write("cgins.yaml", "version: 1\n")
    run = cgins("import", "backendbench", write("o.txt", TEXT), "--config", "cgins.yaml", "--functional")
    assert (tmp_path / "cgins.yaml").read_text() == "version: 1\n"
    assert "cgins.yaml already exists; add to its traces: pack" in run.out
    assert "      - {name: reference, device: cpu, target: torch:tanh}" in run.out


@pytest.mark.parametrize("folder", ["a: b", "x #y", "2025", "my packs", "é"])
def test_folders_that_yaml_would_read_otherwise(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path, folder: str
) -> None:
    """A pack's folder is the one in cgins.yaml, whatever it is called."""
    options = ("--functional", "--config", "cgins.yaml", "--out", folder, "--name", "pack")
    cgins("import", "backendbench", write("o.txt", TEXT), *options)
    assert load(tmp_path / "cgins.yaml").traces == (tmp_path / folder,)


def test_ops_that_have_no_target_alone(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """Without an op that can be its own kernel the file still loads, and says what is missing."""
    relu = {
        "function_name": "torch.nn.functional.relu@backward(input)",
        "args": [torch.ones(3), -torch.ones(3)],
    }
    (tmp_path / "d").mkdir()
    torch.save({**relu, "output": (torch.zeros(3),)}, tmp_path / "d/entry_0.pt")
    run = cgins("import", "pt", "d", "--config", "cgins.yaml")
    assert "put kernels of yours in" in run.out, run.out
    assert load(tmp_path / "cgins.yaml").kernels == ()
