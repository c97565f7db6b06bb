"""Lean headers: what they keep of torch's, and what they are not used for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pytest_cgins.building.builders import extension_headers
from pytest_cgins.building.builders.torch_install import torch_package
from pytest_cgins.building.compilers.process import write_files
from pytest_cgins.building.compilers.toolchain import cxx
from pytest_cgins.building.contracts.cxx import own_headers

# What of torch/types.h the lean headers leave out: the interpreter's types, autograd's graph, and the factories.
LEFT_OUT = (
    "ATen/ATen.h", "ATen/Functions.h", "ATen/NativeFunctions.h", "ATen/accelerator/", "ATen/core/boxing/",
    "ATen/core/dispatch/", "ATen/core/op_registration/", "ATen/detail/", "ATen/ops/", "torch/",
)  # fmt: skip


def _read_by(folders: list[Path], text: str, folder: Path) -> set[str]:
    """Names of the headers that a text reads, relative to torch's folder where they lie in it."""
    torch = torch_package()
    (folder / "read.cpp").write_text(text)
    flags = [word for path in (*folders, *torch.includes) for word in ("-isystem", str(path))]
    printed = subprocess.run(
        [*cxx(), f"-std={torch.standard}", *flags, "-M", str(folder / "read.cpp")],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    own = f"{torch.root / 'include'}/"
    return {word.removeprefix(own) for word in printed.split() if word.endswith(".h") or "/c++/" in word}


@pytest.mark.exam
def test_lean_headers_have_whatever_could_change_a_meaning(tmp_path: Path) -> None:
    """No header of number types or of C's library is left out: their overloads decide silently."""
    include = torch_package().root / "include"
    write_files(tmp_path / "lean", extension_headers.base_files(include))
    lean = _read_by([tmp_path / "lean"], f"#include <{extension_headers.BASE}>\n", tmp_path)
    whole = _read_by([], "#include <torch/types.h>\n", tmp_path)
    missing = {name for name in whole - lean if not name.startswith(LEFT_OUT)}
    headeronly = {name for name in whole - lean if name.startswith("torch/headeronly/")}
    assert not any(
        name.endswith(("/stdlib.h", "/math.h", "/cmath", "/cstdlib", "/complex")) for name in missing
    )
    assert not any("float" in name.lower() or "half" in name.lower() or "complex" in name for name in missing)
    assert {name for name in headeronly if "/core/" not in name} == set()
    assert len(lean) < len(whole) / 3
    for name in ("extension", "all", "torch"):
        stand_in = _read_by([tmp_path / "lean"], f"#include <torch/{name}.h>\n", tmp_path)
        assert extension_headers.VERSION in stand_in, "#if TORCH_VERSION_MAJOR would be false"
    assert extension_headers.VERSION not in whole | lean
    python = _read_by([tmp_path / "lean"], f"#include <{extension_headers.PYTHON}>\n", tmp_path)
    assert extension_headers.VERSION in python


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("torch::nn::Linear layer(2, 3);", "it uses torch::nn"),
        ("class F : public torch::autograd::Function<F> {};", "it uses torch::autograd"),
        ("using namespace torch;\n", "it has using namespace torch"),
        ("#ifndef C10_CUDA_CHECK\n#endif\n", "it asks whether C10_CUDA_CHECK is defined"),
        ("#if defined(AT_DISPATCH_CASE)\n#endif\n", "it asks whether AT_DISPATCH_CASE is defined"),
        ("// torch::nn\n#if TORCH_VERSION_MAJOR > 1\n#endif\nusing namespace torch::indexing;", ""),
        ("#ifdef __CUDA_ARCH__\n#endif\n", ""),
        (
            "#if defined(MINE) || \\\n    defined(C10_MOBILE)\n#endif\n",
            "it asks whether C10_MOBILE is defined",
        ),
    ],
)
def test_obstacle(text: str, reason: str) -> None:
    """Sources whose meaning could differ with fewer headers are told apart, comments left out."""
    assert extension_headers.obstacle(["int x;", text]) == reason


def test_source_files() -> None:
    """The headers of a source have the ops that it names, and every overload of torch's own factories."""
    include = torch_package().root / "include"
    files = extension_headers.source_files(include, ["auto y = softmax(x, 1); torch::arange(2); int tensor;"])
    assert {"ATen/ops/softmax.h", "ATen/ops/arange.h"} <= files.keys()
    assert "ATen/ops/relu.h" not in files
    assert "DeviceGuard" not in files["ATen/ops/softmax.h"]
    ops = files[extension_headers.OPS]
    whole = (include / "torch/csrc/autograd/generated/variable_factories.h").read_text()
    assert ops.count("inline at::Tensor arange(") == whole.count("inline at::Tensor arange(") > 1
    assert len(extension_headers.FACTORY.findall(whole)) == len(
        re.findall(r"^inline at::Tensor ", whole, re.MULTILINE)
    )
    assert "autograd::make_variable(" not in ops
    assert "TensorDataContainer" not in ops
    assert (
        "TensorDataContainer"
        in extension_headers.source_files(include, ["torch::tensor({1})"])[extension_headers.OPS]
    )
    parallel = extension_headers.source_files(include, ["at::parallel_for(0, n, 1, f);"])[
        extension_headers.OPS
    ]
    assert "#include <ATen/Parallel.h>" in parallel


def test_own_headers(tmp_path: Path) -> None:
    """Headers beside the sources are read with those that they include, once each."""
    (tmp_path / "a.h").write_text('#include "b.h"\n#include <vector>\n')
    (tmp_path / "b.h").write_text('#pragma once\n#include "a.h"\nint b;\n')
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.h").write_text("int c;\n")
    (tmp_path / "k.cpp").write_text('#include "a.h"\n  #  include <c.h>\n')
    texts = own_headers([str(tmp_path / "k.cpp")], [tmp_path / "more"])
    assert len(texts) == 3
    assert any("int b;" in text for text in texts)
    assert "int c;\n" in texts
