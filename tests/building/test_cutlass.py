"""Where the headers of CUTLASS come from, and for which sources."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import resources
from pytest_cgins.building.build import build
from pytest_cgins.building.builders import cutlass
from pytest_cgins.building.contracts.source import find
from pytest_cgins.config import load as load_config
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import InfrastructureError

PROJECT = Path(__file__).parents[2] / "example_project"
LAUNCHER = """\
// cgins: relu_kernel(Tensor input) -> Tensor
{include}
extern "C" int relu_kernel(const DLTensor*, DLTensor*, cgins_stream) {{ return 0; }}
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has set does not count."""
    for variable in ("CUTLASS_INCLUDE_DIR", "CUTLASS_PATH", "CPATH"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def launcher(project: Any) -> Any:
    """Function that writes a CUDA launcher with this include line, and finds it."""

    def write(include: str, *flags: str) -> KernelSource:
        project.write("kernel.cu", LAUNCHER.format(include=include))
        listed = "".join(f", {flag!r}" for flag in flags)[2:]
        source: KernelSource = project.source(
            f"{{op: torch.nn.functional.relu, source: kernel.cu, archs: [sm_90a], flags: [{listed}]}}"
        )
        return source

    return write


def headers_in(folder: Path, version: tuple[int, int, int] = (4, 1, 2)) -> Path:
    """A folder with the least that a folder of CUTLASS's headers has."""
    for name in ("cutlass", "cute"):
        (folder / name).mkdir(parents=True)
    text = "".join(
        f"#define CUTLASS_{part} {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), version, strict=True)
    )
    (folder / "cutlass/version.h").write_text(text)
    (folder / "cute/tensor.hpp").touch()
    return folder


@pytest.mark.parametrize(
    "include",
    [
        "#include <cute/tensor.hpp>",
        "  #  include <cutlass/numeric_types.h>",
        '#include "cutlass/gemm/device/gemm.h"',
        "#ifdef __CUDA_ARCH__\n#include <cute/layout.hpp>\n#endif",
        '#include "mine/first.h"',
    ],
)
def test_sources_that_need_cutlass(
    project: Any, launcher: Any, monkeypatch: pytest.MonkeyPatch, include: str
) -> None:
    """A source is built with CUTLASS if it or one of its own headers includes it, in brackets or quotes."""
    project.write("mine/first.h", '#pragma once\n#include "second.h"\n')
    project.write("mine/second.h", '#include "first.h"\n#include <cute/layout.hpp>\n')
    monkeypatch.setenv("CUTLASS_INCLUDE_DIR", str(headers_in(project.root / "headers")))
    found = cutlass.headers_for(launcher(include))
    assert found == cutlass.Headers(
        folders=(project.root / "headers",), version="CUTLASS 4.1.2", roots=(project.root / "headers",)
    )
    assert found.flags == ("--expt-relaxed-constexpr", f"-isystem={project.root / 'headers'}")


@pytest.mark.parametrize(
    "include",
    [
        "#include <cuda_fp16.h>",
        "// #include <cute/tensor.hpp>",
        "/* such as\n#include <cute/tensor.hpp>\n*/",
        '#include "cute/mine.h"',
        "#include <mine/cute/tensor.hpp>",
    ],
)
def test_sources_that_do_not(project: Any, launcher: Any, include: str) -> None:
    """Other sources have neither folders, nor flags, nor a version in their key."""
    project.write("cute/mine.h", "#pragma once\n")
    found = cutlass.headers_for(launcher(include))
    assert (found, found.flags) == (cutlass.Headers(), ())


def test_the_order_of_places(
    project: Any, launcher: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel's own -I comes first, then $CUTLASS_INCLUDE_DIR, $CUTLASS_PATH and the Python package."""
    include = "#include <cute/tensor.hpp>"
    packaged = cutlass.headers_for(launcher(include))
    assert packaged.folders[0].parts[-3:] == ("cutlass_library", "source", "include")
    assert packaged.roots == ()

    headers_in(tmp_path / "checkout/include", (4, 0, 0))
    (tmp_path / "checkout/tools/util/include").mkdir(parents=True)
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path / "checkout"))
    checkout = cutlass.headers_for(launcher(include))
    assert checkout.folders == (
        tmp_path / "checkout/include", tmp_path / "checkout/tools/util/include",
    )  # fmt: skip

    headers_in(tmp_path / "first", (3, 9, 0))
    monkeypatch.setenv(
        "CUTLASS_INCLUDE_DIR", os.pathsep.join([str(tmp_path / "first"), str(tmp_path / "more")])
    )
    (tmp_path / "more").mkdir()
    several = cutlass.headers_for(launcher(include))
    assert several.folders == (tmp_path / "first", tmp_path / "more")

    headers_in(tmp_path / "own", (3, 8, 1))
    own = cutlass.headers_for(launcher(include, f"-I{tmp_path / 'own'}"))
    assert own.flags == ("--expt-relaxed-constexpr",)
    versions = [found.version for found in (packaged, checkout, several, own)]
    assert versions[1:] == ["CUTLASS 4.0.0", "CUTLASS 3.9.0", "CUTLASS 3.8.1"]
    assert versions[0].split(".")[0] in ("CUTLASS 3", "CUTLASS 4")


@pytest.mark.parametrize(
    ("variable", "missing"),
    [("CUTLASS_INCLUDE_DIR", "cutlass/version.h"), ("CUTLASS_PATH", "include/cutlass/version.h")],
)
def test_a_variable_that_names_no_cutlass(
    launcher: Any, monkeypatch: pytest.MonkeyPatch, variable: str, missing: str
) -> None:
    """A variable that is set wrongly is told; what comes after it in the order does not stand in."""
    monkeypatch.setenv(variable, "/nowhere")
    with pytest.raises(InfrastructureError) as caught:
        cutlass.headers_for(launcher("#include <cute/tensor.hpp>"))
    assert caught.value.what == f"${variable} is '/nowhere': there is no {missing} in it"
    assert "unset it" in caught.value.remedy


def test_no_cutlass_at_all(launcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which file needs it, where it was looked for, and how to install it."""
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(InfrastructureError) as caught:
        cutlass.headers_for(launcher("#include <cute/tensor.hpp>"))
    assert "kernel.cu includes <cute/tensor.hpp>, and there is no CUTLASS: neither" in caught.value.what
    assert "nvidia-cutlass is not installed" in caught.value.what
    assert caught.value.remedy.startswith("pip install 'pytest-cgins[cutlass]'")


@pytest.mark.exam
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
@pytest.mark.skipif(find_spec("cutlass_library") is None, reason="no nvidia-cutlass")
def test_the_product_on_tensor_cores_is_built_and_kept() -> None:
    """The example's CuTe kernel compiles without spills for the tensor cores, and its several hundred headers are no reason to again."""
    config = load_config(PROJECT / "cgins.yaml")
    (entry,) = [entry for entry in config.kernels if entry.name == "linear"]
    (implementation,) = [one for one in entry.implementations if one.name == "cute"]
    source = find(config, entry, implementation)
    assert source.archs == ("sm_90a",)
    first, again = build(source), build(source)
    assert again.cached
    assert again.key == first.key
    functions = resources.of(first, "sm_90a").functions
    products = [one for one in functions if "linear_products" in one.function]
    assert len(products) == 2  # fp16 and bf16
    assert [one.spill_store_nbytes for one in products] == [0, 0]
    opcodes = [dict(one.instructions or ()) for one in products]
    assert all(
        "HGMMA" in mix for mix in opcodes if mix
    )  # the tensor cores; without a disassembler it is unknown
