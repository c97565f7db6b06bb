"""A library's operators, built by its own command, gated and looked at by `--cgins-opcheck`, as a user runs it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.forked_python import ForkedPython
from tests.plugin.conftest import Run

SOURCE = """\
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

static at::Tensor twice(const at::Tensor& x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous tensors only");
  at::Tensor y = at::detail::empty_cpu(x.sizes(), x.scalar_type());
  for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data_ptr<float>()[i] = 2 * x.const_data_ptr<float>()[i];
  return y;
}

TORCH_LIBRARY(cgins_whole, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(cgins_whole, CPU, m) { m.impl("twice", &twice); }
"""
CHECKS = ("schema", "autograd", "fake", "aot", "compile")
FILES = {
    "twice.cpp": SOURCE,
    "fakes.py": (
        "import torch\n\n@torch.library.register_fake('cgins_whole::twice')\ndef _(x):\n    return torch.empty_like(x)\n\n"
        "torch.library.register_autograd('cgins_whole::twice', lambda _, gradient: 2 * gradient)\n"
    ),
    "no_fakes.py": "",
    "reference.py": "def twice(x):\n    return x * 2\n",
    "build.sh": (
        f"set -e\nmkdir -p build\ntest build/libtwice.so -nt twice.cpp && exit\nT={torch.__path__[0]}\n"
        "${CXX:-g++} -std=c++20 -O0 -fPIC -shared -I$T/include twice.cpp -o build/libtwice.so -L$T/lib -lc10 -ltorch_cpu\n"
    ),
    "cgins.yaml": """\
version: 1
traces: [traces]
kernels:
  twice:
    op: torch.ops.cgins_whole.twice
    reference: reference:twice
    implementations:
      - {name: right, device: cpu, load: [build/libtwice.so, fakes], build: sh build.sh}
      - {name: untraced, device: cpu, load: [build/libtwice.so], build: sh build.sh}
      - {name: unbuilt, device: cpu, load: [build/libtwice.so], build: make -f no.mk}
""",
    "record_twice.py": (
        "import torch\nimport pytest_cgins\n"
        "torch.ops.load_library('build/libtwice.so')\n"
        "with pytest_cgins.record('traces'):\n"
        "    torch.ops.cgins_whole.twice(torch.randn(6, 40, requires_grad=True))\n"
    ),
}  # fmt: skip
IN_PYTHON = {
    "twice_ops.py": (
        "import torch\n\nlibrary = torch.library.Library('cgins_whole', 'DEF')\n"
        "library.define('twice(Tensor x) -> Tensor')\nlibrary.impl('twice', lambda x: 2 * x, 'CPU')\n"
    ),
    "reference.py": FILES["reference.py"],
    "cgins.yaml": """\
version: 1
traces: [traces]
kernels:
  twice:
    op: torch.ops.cgins_whole.twice
    reference: reference:twice
    implementations: [{name: right, device: cpu, load: [twice_ops]}, {name: untraced, device: cpu, load: [twice_ops]}]
""",
    "record_twice.py": FILES["record_twice.py"].replace(
        "torch.ops.load_library('build/libtwice.so')", "import twice_ops"
    ),
}


@pytest.fixture(scope="module")
def checked(
    run: Callable[..., Run], forked_python: ForkedPython, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """All of it once: the library is built, a call recorded, and all items run."""
    folder = tmp_path_factory.mktemp("operators")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    recorded = forked_python.run(["-m", "record_twice"], cwd=folder)
    assert recorded.returncode == 0, recorded.stderr
    return run(folder, "--cgins", "--cgins-opcheck", "--cgins-no-timing", "-rA", "--cgins-json=report.json")


@pytest.mark.exam
def test_each_check_is_an_item_with_its_own_reason(checked: Run) -> None:
    """What is registered right passes all; what lacks a fake implementation fails where that is needed, and only there."""
    found = {
        f"{one['case']['implementation']} {one['case']['check']}": one["verdict"]
        for one in checked.document()["evaluations"]
    }
    right = {name: verdict["status"] for name, verdict in found.items() if name.startswith("right ")}
    assert right == {f"right {check}": "PASSED" for check in ("", *CHECKS)}, checked.out
    reasons = {name: verdict["reason"] for name, verdict in found.items() if name.startswith("untraced ")}
    assert reasons == {
        "untraced ": "ok", "untraced schema": "ok", "untraced autograd": "no-autograd", "untraced fake": "no-fake", "untraced aot": "aot-dispatch",
        "untraced compile": "graph-break",
    }  # fmt: skip
    assert checked.code == 1


@pytest.mark.exam
def test_a_build_that_fails_is_told_with_its_log(checked: Run) -> None:
    """It is a `BUILD_ERROR` of that implementation alone, and told at length once."""
    unbuilt = [one for one in checked.document()["evaluations"] if one["case"]["implementation"] == "unbuilt"]
    assert {one["verdict"]["status"] for one in unbuilt} == {"BUILD_ERROR"}
    assert "its build `make -f no.mk` ended with status 2" in checked.out
    assert "no.mk: No such file or directory" in unbuilt[0]["output"]


def test_items_are_chosen_by_their_names(
    tmp_path: Path, run: Callable[..., Run], forked_python: ForkedPython
) -> None:
    """`-k` finds a check, and the line that repeats a failure has the option; this library is in Python."""
    for name, text in IN_PYTHON.items():
        (tmp_path / name).write_text(text)
    assert forked_python.run(["-m", "record_twice"], cwd=tmp_path).returncode == 0
    done = run(tmp_path, "--cgins", "--cgins-opcheck", "--cgins-no-timing", "-k", "untraced and opcheck-fake")
    node = next(line for line in done.lines if line.startswith("again"))
    assert (done.code, "opcheck-fake" in node) == (1, True), done.out
    assert "--cgins-opcheck cgins.yaml::twice/cpu-untraced/traces/" in node
    options = ("--cgins", "--cgins-opcheck", "--collect-only", "-q", "-k", "right and opcheck-fake")
    (name,) = run(tmp_path, *options).nodes()
    assert name.startswith("twice/cpu-right/traces/f32-6x40-")
    assert name.endswith("/opcheck-fake")
    assert all("opcheck" not in one for one in run(tmp_path, "--cgins", "--collect-only", "-q").nodes())
