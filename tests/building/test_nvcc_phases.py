"""nvcc's commands taken apart: what runs side by side, and when nvcc does it itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import resources
from pytest_cgins.building.builders import nvcc_phases
from pytest_cgins.building.compilers import toolchain

KERNEL = (
    "__device__ static int seen;\n__global__ void k(float* x) { x[0] = seen; }\nint main_() { return 0; }\n"
)


def _command(*flags: str) -> list[str]:
    return [*toolchain.nvcc(), *flags, "-c", "cuda.cu", "-o", "cuda.o"]


@pytest.mark.exam
@pytest.mark.parametrize("archs", [("90",), ("80", "90a")])
def test_phases_make_the_object(tmp_path: Path, archs: tuple[str, ...]) -> None:
    """The phases leave the object file that nvcc leaves: the same symbols, the headers in the depfile."""
    (tmp_path / "cuda.cu").write_text(f'#include "own.h"\n{KERNEL}')
    (tmp_path / "own.h").write_text("")
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    parts = nvcc_phases.phases(_command(*flags), tmp_path, "cuda.d")
    assert len(parts.front) == 1 + len(archs)
    for command in (*reversed(parts.front), *parts.back):  # in any order
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **parts.environment}, check=True)
    assert "own.h" in (tmp_path / "cuda.d").read_text()
    symbols = subprocess.run(
        ["nm", "cuda.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "T _Z1kPf" in symbols
    assert len(list(tmp_path.glob("*.cubin"))) == len(archs)


@pytest.mark.parametrize("flags", [("-rdc=true",), ("--no-such-flag",), ("-dlto", "-arch=sm_90")])
def test_other_compilations_are_left_to_nvcc(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Compilations with other phases are not taken apart."""
    (tmp_path / "cuda.cu").write_text(KERNEL)
    command = _command(*flags)
    parts = nvcc_phases.phases(command, tmp_path, "cuda.d")
    assert parts == nvcc_phases.Phases(front=[[*command, "-MMD", "-MF", "cuda.d"]])


def test_unknown_commands() -> None:
    """What is not nvcc's output, or has a tool that is not known, gives nothing."""
    assert nvcc_phases.parse("", Path("/tmp"), "d") is None
    assert nvcc_phases.parse("#$ A=b\n#$ newtool x\n", Path("/tmp"), "d") is None


@pytest.mark.exam
def test_sources_of_one_name(project: Any) -> None:
    """Two sources of one name in two folders are compiled at the same time, and each has what is its own."""
    project.write(
        "kernel.cu",
        "// cgins: scale(Tensor input, float other) -> Tensor\n"
        "#include <cgins.h>\n"
        "int of_the_other(float* x, cgins_stream stream);\n"
        'extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream) {\n'
        "  return of_the_other(cgins::data<float>(out), stream);\n"
        "}\n",
    )
    project.write(
        "deeper/kernel.cu",
        "#include <cgins.h>\n"
        f"{KERNEL}"
        "int of_the_other(float* x, cgins_stream stream) { k<<<1, 1, 0, stream>>>(x); return 0; }\n",
    )
    compiled = project.build(
        "{op: torch.mul, device: cuda, sources: [kernel.cu, deeper/kernel.cu], archs: [sm_80]}"
    )
    assert [one.function for one in resources.of(compiled, "sm_80").functions] == ["k(float*)"]


def test_flags_of_the_environment_are_linked_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc shows `NVCC_APPEND_FLAGS` in quotes among its settings, and refuses them when it links with what it showed."""
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DONE=1")
    (tmp_path / "cuda.cu").write_text(KERNEL)
    parts = nvcc_phases.phases(_command(), tmp_path, "cuda.d")
    assert parts.back
    assert "NVCC_APPEND_FLAGS" not in parts.environment
