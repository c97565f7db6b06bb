"""The CUDA compiler as a library: what it gives, refuses and needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_cgins.building.nvrtc import cuda_headers, library
from pytest_cgins.core.errors import InfrastructureError, SourceError
from tests.building.processes import python

SCALE = "template <typename T> __global__ void scale(const T* x, T* y, int n) { if (n) *y = *x; }\n"


def test_compiles_to_machine_code_and_ptx() -> None:
    """A source becomes an ELF image and PTX, its kernels' names are known, and ptxas reports registers."""
    result = library.compile(
        SCALE, "/k.cu", "sm_90a", ["--ptxas-options=-v"], expressions=["scale<float>", "scale<long>"]
    )
    assert result.cubin is not None
    assert result.cubin.startswith(b"\x7fELF")
    assert result.ptx is not None
    assert b".target sm_90a" in result.ptx
    assert result.lowered == ("_Z5scaleIfEvPKT_PS0_i", "_Z5scaleIlEvPKT_PS0_i")
    assert "Compiling entry function '_Z5scaleIfEvPKT_PS0_i' for 'sm_90a'" in result.log
    assert "registers" in result.log
    virtual = library.compile(SCALE, "/k.cu", "compute_80", expressions=["scale<float>"])
    assert virtual.cubin is None
    assert virtual.ptx is not None


def test_an_error_has_file_and_line() -> None:
    """A refused source has the compiler's message with the name that the source was given."""
    result = library.compile("\n__global__ void k() { wrong(); }", "/home/me/k.cu", "sm_80")
    assert (result.cubin, result.ptx, result.lowered) == (None, None, ())
    assert '/home/me/k.cu(2): error: identifier "wrong" is undefined' in result.log
    assert not result.timed_out


def test_headers_beside_the_source(tmp_path: Path) -> None:
    """Headers come from the folder of the source's name."""
    (tmp_path / "beside.h").write_text("#define BESIDE 1\n")
    text = '#include "beside.h"\n__global__ void k(int* y) { *y = BESIDE; }\n'
    result = library.compile(text, str(tmp_path / "k.cu"), "sm_80")
    assert result.cubin is not None, result.log


def test_unknown_architectures() -> None:
    """An architecture that this NVRTC does not know is refused with those that it does; so is a wrong name."""
    with pytest.raises(SourceError, match='does not know the architecture "sm_42"') as caught:
        library.compile(SCALE, "/k.cu", "sm_42")
    assert "sm_80" in caught.value.remedy
    with pytest.raises(SourceError, match='"hopper" is not a CUDA architecture'):
        library.check_arch("hopper")
    for arch in ("sm_90", "sm_90a", "compute_80"):
        library.check_arch(arch)


@pytest.mark.exam
def test_deeply_nested_sources_do_not_end_the_process() -> None:
    """Brackets without end, as a model that repeats itself writes them, are compiled or refused, no more."""
    script = (
        "from pytest_cgins.building.nvrtc import library as nvrtc\n"
        "for text in ('(' * 50000 + '1' + ')' * 50000, '(' * 50000, '- ' * 50000 + '1'):\n"
        "    nvrtc.compile('__global__ void k(int* p) { *p = ' + text + '; }', '/k.cu', 'sm_90')\n"
    )
    assert python(script).stderr == ""


@pytest.mark.exam
def test_gives_up_at_the_deadline() -> None:
    """A compilation that takes too long ends soon behind its deadline, and says so."""
    branches = "".join(f"if (i == {number}) i += int(sinf(i) * {number});" for number in range(20_000))
    text = f"__device__ int f(int i) {{ {branches} return i; }} __global__ void k(int* x) {{ *x = f(*x); }}"
    started = time.monotonic()
    result = library.compile(text, "/k.cu", "sm_80", deadline=started + 0.3)
    assert result.timed_out
    assert result.cubin is None
    assert time.monotonic() - started < 30


def test_nothing_heavy_is_imported() -> None:
    """Compiling needs neither torch nor CUDA's Python bindings: importing those takes longer than compiling."""
    script = (
        "import sys\n"
        "from pytest_cgins.building.nvrtc import library as nvrtc\n"
        "assert nvrtc.compile('__global__ void k() {}', '/k.cu', 'sm_80').cubin\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'cuda', 'numpy', 'yaml'}))\n"
    )
    assert python(script).stdout.strip() == ""


def test_without_nvrtc(tmp_path: Path) -> None:
    """Without the library, the error names the package that has it."""
    script = (
        "import importlib.util\n"
        "from pytest_cgins.core.errors import InfrastructureError\n"
        "from pytest_cgins.building.nvrtc import library as nvrtc\n"
        "nvrtc.library_folders = lambda: []\n"
        "try:\n    nvrtc.library()\n"
        "except InfrastructureError as error:\n    print(error.what, '|', error.remedy)\n"
    )
    ran = python(script, environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert ran.stdout.strip() == (
        "no NVRTC: libnvrtc is neither in a package nor in a CUDA toolkit | "
        "pip install 'pytest-cgins[nvrtc]', or install the CUDA toolkit and set CUDA_HOME"
    ), ran.stderr


def test_a_broken_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be loaded is an error with its path."""
    (tmp_path / "lib64").mkdir()
    broken = tmp_path / "lib64/libnvrtc.so.13"
    broken.write_bytes(b"not a library")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    library.library.cache_clear()
    try:
        with pytest.raises(InfrastructureError, match=str(broken)):
            library.library()
    finally:
        library.library.cache_clear()


def test_headers_of_the_same_version() -> None:
    """CUDA's headers are found, of the compiler's own version, and nothing is missing of what kernels may use."""
    found = cuda_headers.find(library.version())
    assert found.version == library.version()
    assert found.missing() == {}
    assert "CCCL" in found.identity
    assert "none" not in found.identity


def test_packages_of_headers() -> None:
    """A missing header leads to the package that brings it."""
    assert cuda_headers.package_of("cub/block/block_reduce.cuh") == "nvidia-cuda-cccl"
    assert cuda_headers.package_of("cute/tensor.hpp") == "nvidia-cutlass"
    assert cuda_headers.package_of("cuda_fp16.h") == "nvidia-cuda-runtime"
    assert cuda_headers.package_of("rows.h") == ""
