"""Tools that only print, and a /proc of our own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.building.compilers import toolchain

FakeTool = Callable[..., str]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """Puts a program on an otherwise empty PATH: it prints a text and ends, or is a script of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "NVCC_CCBIN", "CUTLASS_PATH", "CUTLASS_INCLUDE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain.os, "access", _only_below(tmp_path))

    def make(name: str, text: str = "", *, status: int = 0, script: str = "") -> str:
        path = folder / name
        # sys.executable and no shell: PATH has nothing else.
        body = script or f"sys.stdout.write({text!r}); sys.exit({status})"
        path.write_text(f"#!{sys.executable} -I\nimport os, sys, time\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def _only_below(folder: Path) -> Callable[[object, int], bool]:
    """`os.access` that denies what this machine has installed in fixed places."""
    import os

    real = os.access

    def access(path: object, mode: int) -> bool:
        return str(path).startswith(str(folder)) and real(str(path), mode)

    return access


@pytest.fixture
def proc(tmp_path: Path) -> Callable[..., Path]:
    """Makes a /proc with the given files."""

    def make(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / "proc" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "proc"

    return make
