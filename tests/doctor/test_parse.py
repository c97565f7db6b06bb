"""Reading tools' output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.doctor import parse

GCC = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n"
NVCC = (
    "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
    "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\nCuda compilation tools, release 13.0, V13.0.88\n"
    "Build cuda_13.0.r13.0/compiler.36424714_0\n"
)
HOST_CONFIG = """
#if defined(__GNUC__)
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif
#endif
"""


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        (GCC, "gcc", (12, 2, 0)),
        ("g++ (GCC) 8.5.0 20210514 (Red Hat 8.5.0-4)\n", "gcc", (8, 5, 0)),
        (
            "c++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\nCopyright (C) Free Software Foundation\n",
            "gcc",
            (11, 4, 0),
        ),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n", "clang", (14, 0, 6)),
        ("Apple clang version 15.0.0 (clang-1500.3.9.4)\n", "clang", (15, 0, 0)),
        ("icpx: Intel(R) oneAPI DPC++/C++ Compiler 2024.0.0 (2024.0.0.20231017)\n", "", (2024, 0, 0)),
        ("no version here", "", ()),
        ("", "", ()),
    ],
)
def test_compiler(text: str, family: str, version: parse.Version) -> None:
    """The family, and the compiler's own version rather than the distribution's."""
    assert parse.compiler(text) == (family, version)


def test_nvcc() -> None:
    """The full version where there is one."""
    assert parse.nvcc(NVCC) == (13, 0, 88)
    assert parse.nvcc("Cuda compilation tools, release 11.8") == (11, 8)
    assert parse.nvcc("segmentation fault") == ()


def test_newest_gcc() -> None:
    """The limit in host_config.h; None where there is none."""
    assert parse.newest_gcc(HOST_CONFIG) == 15
    assert parse.newest_gcc("#if defined(__GNUC__)") is None


def test_toolkit() -> None:
    """The toolkit's folder, though nvcc itself may be a wrapper elsewhere."""
    dryrun = "#$ _SPACE_= \n#$ _CUDART_=cudart\n#$ TOP=/usr/local/cuda-13.0/bin/..\n#$ gcc -E\n"
    assert parse.toolkit(dryrun) == "/usr/local/cuda-13.0/bin/.."
    assert parse.toolkit("nvcc fatal : something") == ""


@pytest.mark.parametrize(
    ("number", "version"), [(12080, (12, 8)), (13000, (13, 0)), (11040, (11, 4)), (0, ())]
)
def test_cuda_version(number: int, version: parse.Version) -> None:
    """CUDA's number: thousands and tens."""
    assert parse.cuda_version(number) == version


@pytest.mark.parametrize(
    ("params", "restricted"),
    [
        ("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n", True),
        ("RmProfilingAdminOnly: 0\n", False),
        ("NVreg_RestrictProfilingToAdminUsers: 1\n", True),
        ("RmProfilingAdminOnly: maybe\n", None),
        ("", None),
    ],
)
def test_profiling_is_restricted(params: str, restricted: bool | None) -> None:
    """Under either name; what is neither 0 nor 1 says nothing."""
    assert parse.profiling_is_restricted(params) is restricted


def test_capabilities() -> None:
    """The bits of the effective set."""
    found = parse.capabilities("Name:\tcat\nCapPrm:\t000001ffffffffff\nCapEff:\t0000004000200000\n")
    assert found is not None
    assert parse.has_capability(found, parse.CAP_SYS_ADMIN)
    assert parse.has_capability(found, parse.CAP_PERFMON)
    assert not parse.has_capability(found, 0)
    assert parse.capabilities("CapEff:\tall of them\n") is None
    assert parse.capabilities("") is None


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (8 << 20, "8.0 MiB"), (150_754_820_096, "140.4 GiB")],
)
def test_size(nbytes: int, text: str) -> None:
    """Units of 1024."""
    assert parse.size(nbytes) == text


@given(st.tuples(*[st.integers(0, 999)] * 3))
def test_version_of_any_program(numbers: tuple[int, int, int]) -> None:
    """A dotted number is found whatever stands around it, and written back as it was."""
    written = ".".join(map(str, numbers))
    for text in (
        written,
        f"tool {written}",
        f"tool v{written}\nCopyright 2005",
        f"Version {written} (build 3)",
    ):
        assert parse.version(text) == numbers
    assert parse.written(numbers) == written


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode(errors="replace")))
def test_garbage_is_read_without_an_exception(text: str) -> None:
    """Whatever a tool prints, every parser answers with its type."""
    assert isinstance(parse.version(text), tuple)
    assert isinstance(parse.compiler(text), tuple)
    assert isinstance(parse.nvcc(text), tuple)
    assert isinstance(parse.toolkit(text), str)
    newest = parse.newest_gcc(f"#if __GNUC__ > {text}")
    assert newest is None or newest >= 0
    assert parse.profiling_is_restricted(text) in (True, False, None)
    held = parse.capabilities(f"CapEff: {text}")
    assert held is None or 0 <= held < 2**64
