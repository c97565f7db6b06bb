"""C++ and CUDA compilers, and whether they fit each other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.building.builders import cutlass as cutlass_headers
from pytest_cgins.doctor import compilers
from pytest_cgins.doctor.findings import Finding

if TYPE_CHECKING:
    from conftest import FakeTool

FSF = "Copyright (C) Free Software Foundation, Inc.\n"
WRITES = "open(sys.argv[sys.argv.index('-o') + 1], 'w') if '-o' in sys.argv else None"


def gcc(version: str) -> str:
    return f"g++ (Some 1.2.3) {version}\n{FSF}"


def test_no_compiler(tool: FakeTool) -> None:
    """Without any, the remedy names a package; it is required."""
    found = compilers.cxx()
    assert (found.state, found.required) == ("missing", True)
    assert "g++ or clang++ is not on PATH" in found.detail
    assert "apt install g++" in found.remedy


@pytest.mark.parametrize(
    ("text", "state", "version"),
    [
        (gcc("12.2.0"), "ok", "12.2.0"),
        (gcc("11.1.0"), "ok", "11.1.0"),
        (gcc("9.4.0"), "too-old", "9.4.0"),
        ("clang version 13.0.1\n", "too-old", "13.0.1"),
        ("clang version 18.1.3\n", "ok", "18.1.3"),
        ("nothing that has a number\n", "ok", ""),
    ],
)
def test_versions(tool: FakeTool, text: str, state: str, version: str) -> None:
    """gcc from 11 and clang from 14 on will do; of another compiler the trial alone decides."""
    where = tool("g++", text)
    found = compilers.cxx()
    assert (found.state, found.version, found.where) == (state, version, where)


def test_compiler_that_cannot_compile(tool: FakeTool) -> None:
    """A compiler without its library shows at the trial, with its first error."""
    script = (
        f"if '--version' in sys.argv: sys.stdout.write({gcc('13.1.0')!r}); sys.exit(0)\n"
        "print('trial.cpp:1:10: fatal error: cmath: No such file or directory'); sys.exit(1)"
    )
    tool("g++", script=script)
    found = compilers.cxx()
    assert found.state == "unusable"
    assert found.detail.endswith("fatal error: cmath: No such file or directory")


def test_compiler_that_does_not_start(tool: FakeTool) -> None:
    """One that fails at --version cannot be used."""
    tool("g++", "cannot execute binary", status=126)
    assert compilers.cxx().state == "unusable"


def toolkit(
    tool: FakeTool, tmp_path: Path, *, release: str = "13.0", newest: int | None = 15
) -> compilers.Toolkit:
    include = tmp_path / "cuda" / "include" / "crt"
    include.mkdir(parents=True)
    if newest is not None:
        (include / "host_config.h").write_text(f"#if __GNUC__ > {newest}\n#error\n#endif\n")
    banner = (
        f"nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {release}, V{release}.88\n"
    )
    top = f"#$ TOP={tmp_path}/cuda/bin/..\n"
    tool("nvcc", script=f"sys.stdout.write({top!r} if '--dryrun' in sys.argv else {banner!r})")
    found = compilers.toolkit()
    assert found is not None
    return found


def test_toolkit_behind_a_wrapper(tool: FakeTool, tmp_path: Path) -> None:
    """The toolkit's folder is where nvcc says, not where a wrapper of it lies."""
    found = toolkit(tool, tmp_path)
    assert (found.version, found.folder) == ((13, 0, 88), tmp_path / "cuda")


@pytest.mark.parametrize(("release", "state"), [("12.1", "ok"), ("12.0", "too-old"), ("13.0", "ok")])
def test_nvcc(tool: FakeTool, tmp_path: Path, release: str, state: str) -> None:
    """12.1 or later."""
    found = compilers.nvcc(toolkit(tool, tmp_path, release=release))
    assert (found.state, found.version) == (state, f"{release}.88")


def test_nvcc_that_prints_garbage(tool: FakeTool, tmp_path: Path) -> None:
    """A version that cannot be read is unknown, not too old."""
    tool("nvcc", "\x00\x01 no version")
    assert compilers.nvcc(compilers.toolkit()).state == "unknown"
    assert compilers.nvcc(None).state == "missing"


def host(tool: FakeTool, tmp_path: Path, version: str, newest: int | None) -> Finding:
    tool("gcc", gcc(version))
    found = compilers.host_compiler(toolkit(tool, tmp_path, newest=newest))
    assert found is not None
    return found


def test_host_compiler_that_fits(tool: FakeTool, tmp_path: Path) -> None:
    """Up to the limit in host_config.h."""
    found = host(tool, tmp_path, "15.2.0", 15)
    assert (found.state, found.detail) == ("ok", "nvcc 13.0.88 takes gcc up to 15")


def test_host_compiler_that_is_too_new(tool: FakeTool, tmp_path: Path) -> None:
    """The mismatch is told with both versions, and with the package that would fit."""
    found = host(tool, tmp_path, "16.1.0", 15)
    assert (found.state, found.version) == ("unusable", "16.1.0")
    assert found.detail == "nvcc 13.0.88 takes gcc up to 15, this is 16"
    assert "NVCC_CCBIN=g++-15" in found.remedy


def test_host_compiler_of_a_toolkit_that_does_not_say(tool: FakeTool, tmp_path: Path) -> None:
    """Without host_config.h it is unknown."""
    assert host(tool, tmp_path, "12.2.0", None).state == "unknown"


def test_host_compiler_that_was_chosen(
    tool: FakeTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVCC_CCBIN decides; one that is missing is told."""
    tool("gcc", gcc("16.0.0"))
    monkeypatch.setenv("NVCC_CCBIN", tool("g++-14", gcc("14.0.0")))
    found = compilers.host_compiler(toolkit(tool, tmp_path))
    assert found is not None
    assert (found.state, found.version) == ("ok", "14.0.0")


def test_no_host_compiler(tool: FakeTool, tmp_path: Path) -> None:
    """nvcc alone is not enough; without nvcc there is nothing to say."""
    found = compilers.host_compiler(toolkit(tool, tmp_path))
    assert found is not None
    assert (found.state, found.detail) == ("missing", "nvcc calls gcc, which is not on PATH")
    assert compilers.host_compiler(None) is None


def test_cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that CUTLASS_PATH names is found with its version; a wrong path is named, as builds do."""
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "cutlass"))
    found = compilers.cutlass()
    assert found.state == "unusable"
    assert found.detail == (
        f"$CUTLASS_PATH is '{tmp_path}/cutlass': there is no include/cutlass/version.h in it"
    )
    assert found.remedy.startswith("set it to a checkout, or unset it: pip install 'pytest-cgins[cutlass]'")
    header = tmp_path / "cutlass/include/cutlass/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 2\n#define CUTLASS_PATCH 0\n")
    found = compilers.cutlass()
    assert (found.state, found.version, found.where) == ("ok", "4.2.0", str(tmp_path / "cutlass/include"))


def test_no_cutlass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a variable or the package it is missing, with the command that installs it."""
    monkeypatch.setattr(cutlass_headers, "PathFinder", SimpleNamespace(find_spec=lambda _: None))
    found = compilers.cutlass()
    assert (found.state, found.where) == ("missing", "")
    assert "pip install 'pytest-cgins[cutlass]'" in found.remedy
