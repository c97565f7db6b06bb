"""Where compilers are found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_cgins.building.compilers import toolchain
from pytest_cgins.core.errors import InfrastructureError
from tests.building.processes import executable


@pytest.fixture
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without nvcc in any of the usual places."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    access = os.access
    usual = Path("/usr/local/cuda/bin/nvcc")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != usual and access(place, mode))


def test_nvcc_of_a_package(no_toolkit: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no toolkit, the newest nvcc of the packages of this Python is taken; without, all is named."""
    with pytest.raises(InfrastructureError, match="the package nvidia-cuda-nvcc is not installed") as caught:
        toolchain.nvcc()
    assert "pip install 'pytest-cgins[nvcc]'" in caught.value.remedy
    for version in ("cu12", "cu13", "cu9"):
        executable(tmp_path / "nvidia" / version / "bin" / "nvcc")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    assert toolchain.nvcc() == (str(tmp_path / "nvidia/cu13/bin/nvcc"),)


def test_home_behind_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toolkit's folder is found behind a script of one line, and a link to its folder is a name of it too."""
    real = executable(tmp_path / "cuda-13.0" / "bin" / "nvcc")
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    executable(tmp_path / "home" / "bin" / "nvcc", f'#!/bin/sh\nexec {tmp_path}/cuda/bin/nvcc "$@"\n')
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    homes = toolchain.homes()
    assert (homes["cuda"], homes["cuda-real"]) == (tmp_path / "cuda", real.parents[1])
    executable(tmp_path / "home" / "bin" / "nvcc", '#!/bin/sh\nX=1 exec /other "$@"\n')
    assert toolchain.homes()["cuda"] == tmp_path / "home"
