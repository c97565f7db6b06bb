"""`cgins export`: packages that are built, imported, compiled and trained with where pytest-cgins is not."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app import cli
from pytest_cgins.app.commands.import_export import kind_first
from pytest_cgins.building.builders import binding
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.torch_library import module, package
from pytest_cgins.building.torch_library.reference import ReferenceCall
from pytest_cgins.config import load
from pytest_cgins.core.errors import ConfigError, ContractError, SourceError

ROOT = Path(__file__).parents[2]
ALONE = 'import sys\nsys.modules["pytest_cgins"] = None  # importing it fails\nimport torch\n'
OPS = """\
import math
import torch
import pytest_cgins

FACTOR = 2.0
UNUSED = pytest_cgins.mark

def _scaled(x, by):
    return x * by * FACTOR

@pytest_cgins.mark
def blend(x, parts, weight=1, *, exponent=1.0):
    \"\"\"Something of one's own.\"\"\"
    return _scaled(x, weight) + sum(parts) + math.floor(exponent)

@pytest_cgins.mark
def accumulate(total, x):
    total += x
    return total
"""
BLEND = """\
// cgins: blend(Tensor x, Tensor[] parts, Scalar weight=1, float exponent=1.0) -> Tensor
#include "../shared/places.h"
extern "C" int blend(const DLTensor* x, const DLTensor* const* parts, int64_t parts_len, const cgins_scalar* weight,
                     double exponent, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(x); ++i) {
    float sum = at(x, i) * float(weight->real) * 2 + float(int64_t(exponent));
    for (int64_t k = 0; k < parts_len; ++k) sum += at(parts[k], i);
    cgins::data<float>(out)[cgins::offset_of(out, i)] = sum;
  }
  return 0;
}
"""
PLACES = """\
#pragma once
inline float at(const DLTensor* x, int64_t i) { return cgins::data<float>(x)[cgins::offset_of(x, i)]; }
"""
ACCUMULATE = """\
// cgins: accumulate(Tensor(a!) total, Tensor x) -> Tensor(a!)
#include <places.h>
extern "C" int accumulate(DLTensor* total, const DLTensor* x, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(x); ++i) cgins::data<float>(total)[cgins::offset_of(total, i)] += at(x, i);
  return 0;
}
"""
CONFIG = """\
version: 1
kernels:
  blend: {op: own_ops.blend, source: kernels/blend.cpp}
  accumulate-into: {op: own_ops.accumulate, source: kernels/accumulate.cpp, flags: [-Ishared]}
"""
OWN = """
import mine

def f(x, total):
    y = mine.blend(x, [x, total.clone()], 3, exponent=2.5)  # which the backward reads again
    return mine.accumulate_into(total, y.detach()) + y

x, total = torch.randn(3, 4, requires_grad=True), torch.ones(3, 4)
y = f(x, total)
torch.testing.assert_close(y, 2 * (7 * x + 3) + 1)
assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 7.0))
for dynamic in (False, True):
    again = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    total = torch.ones(3, 4)
    assert torch.equal(again(x, total), y)
    torch.testing.assert_close(total, y - (7 * x + 3))
again(torch.randn(5, 2), torch.ones(5, 2))
torch.library.opcheck(torch.ops.mine.blend.default, (x, [x, x.T.contiguous().T], 1, 3, 3.0, 0.0, 1.0))
torch.library.opcheck(torch.ops.mine.accumulate_into.default, (torch.ones(2), torch.ones(2)))
try:
    mine.accumulate_into(torch.ones(2), torch.ones(2, requires_grad=True))
except RuntimeError as error:
    assert "mine::accumulate_into has no backward: it writes to its arguments" in str(error)
else:
    raise AssertionError
assert torch.equal(mine.blend(torch.ones(2), []), torch.full((2,), 3.0))
"""
TRAIN = """
import demo
from torch import nn
from torch.nn import functional

class Net(nn.Module):
    # Nothing in it that inductor would compile C++ for: that is no test of the package, and takes ten seconds.
    def __init__(self, layer_norm):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(16, 32, bias=False), nn.Linear(32, 1, bias=False)
        self.weight, self.bias = (nn.Parameter(torch.full((32,), x)) for x in (1.0, 0.0))
        self.layer_norm = layer_norm

    def forward(self, x):
        return self.down(self.layer_norm(self.up(x), [32], self.weight, self.bias))

def losses(net, backend=None):
    run = torch.compile(net, fullgraph=True, backend=backend) if backend else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1)
    x = torch.randn(64, 16)
    y = x.sum(1, keepdim=True).sin()
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = functional.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

want = losses(Net(functional.layer_norm))
assert want[-1] < 0.5 * want[0]
for backend in (None, "inductor"):
    found = losses(Net(demo.layer_norm), backend)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(want), rtol=1e-4, atol=1e-5)

calls = []
kernel = torch.ops.demo.layer_norm_backward.default
from torch.utils._python_dispatch import TorchDispatchMode
class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        calls.append(func)
        return func(*args, **(kwargs or {}))
x, w, b = (torch.randn(*s, requires_grad=True) for s in ((3, 8), (8,), (8,)))
with Seen():
    demo.layer_norm(x, 8, w, b).sum().backward()
assert calls.count(kernel) == 1
calls.clear()
with Seen():  # the kernel gives three gradients or none
    demo.layer_norm(x, [8], w, None).sum().backward()
assert kernel not in calls
torch.library.opcheck(torch.ops.demo.layer_norm.default, (x, [8], w, b, 1e-5))
torch.library.opcheck(kernel, (torch.ones(3, 8), x.detach(), [8], w.detach(), b.detach(), 1e-5))
"""


def run_alone(script: str, site: Path) -> None:
    """Run a script where pytest-cgins cannot be imported, and the package can."""
    code = f"{ALONE}sys.path.insert(0, {str(site)!r})\n{script}"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture
def own(project: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with ops of its own, a header beside its kernels' folder, and one by `-I`."""
    project.write("own_ops.py", OPS)
    project.write("kernels/blend.cpp", BLEND)
    project.write("kernels/accumulate.cpp", ACCUMULATE)
    project.write("shared/places.h", PLACES)
    project.write("cgins.yaml", CONFIG)
    monkeypatch.syspath_prepend(str(project.root))
    yield project.root
    for name in [name for name in sys.modules if name.partition(".")[0] in ("own_ops", "needy_ops", "mine")]:
        del sys.modules[name]


def test_own_ops(own: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops of the user are copied; scalars, lists and mutation work in eager, compiled, and with dynamic shapes."""
    monkeypatch.chdir(own)
    monkeypatch.setenv("CPU_FLAGS", "-O0")
    out = own / "out"
    words = [
        "export",
        "blend",
        "accumulate-into",
        "--as",
        "torch-library",
        "--namespace",
        "mine",
        "--out",
        "out",
    ]
    assert cli.main(words) == 0
    assert "out: blend_cpu, accumulate_into_cpu\nbuild it: pip install" in capsys.readouterr().out
    copied = (out / "src/mine/_op_blend.py").read_text()
    assert "FACTOR = 2.0" in copied
    assert "import math" in copied
    assert "pytest_cgins" not in copied + (out / "src/mine/__init__.py").read_text().split("\n", 1)[1]
    assert (out / "csrc/shared/places.h").is_file()
    subprocess.run([sys.executable, "-I", "build_kernels.py"], cwd=out, check=True)
    run_alone(OWN, out / "src")


@pytest.mark.exam
def test_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model trains through an installed package as it does in eager torch, compiled as one graph as well."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command puts the project's folder there
    monkeypatch.setenv("CPU_FLAGS", "-O0")  # compiled in half the time
    out, site = tmp_path / "out", tmp_path / "site"
    config = str(ROOT / "example_project/cgins.yaml")
    words = ["export", "torch-library", "layer_norm", "--implementation", "cpp", "--namespace", "demo"]
    assert cli.main([*words, "--config", config, "--out", str(out)]) == 0
    assert "demo::layer_norm_backward" in capsys.readouterr().out
    install = "-m pip install -q --no-index --no-build-isolation --no-deps --target"
    subprocess.run([sys.executable, *install.split(), str(site), str(out)], check=True)
    run_alone(TRAIN, site)


def test_a_package_that_is_not_built(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it says what to run; writing it again replaces it."""
    monkeypatch.chdir(own)
    config = load(own / "cgins.yaml", require_traces=False)
    for _ in range(2):
        package.write(config, config.kernels[:1], folder=own / "out", namespace="mine")
    monkeypatch.syspath_prepend(str(own / "out/src"))
    with pytest.raises(ImportError, match="no kernels were built; run `python build_kernels"):
        importlib.import_module("mine")
    described = json.loads((own / "out/libraries.json").read_text())
    assert [library["name"] for library in described["libraries"]] == ["blend_cpu"]


def test_cpu_and_cuda_are_one_operator(tmp_path: Path) -> None:
    """A kernel with launchers for both devices has one definition and two implementations."""
    config = load(ROOT / "example_project/cgins.yaml", require_traces=False)
    gelu = [kernel for kernel in config.kernels if kernel.name == "gelu"]
    written = package.write(config, gelu, folder=tmp_path / "out", namespace="demo")
    assert written.libraries == ("gelu_cpu", "gelu_cuda", "gelu_backward_cpu", "gelu_backward_cuda")
    texts = [(tmp_path / f"out/csrc/gelu_{device}_binding.cpp").read_text() for device in ("cpu", "cuda")]
    assert ["library.def" in text for text in texts] == [True, False]
    assert ["(demo, CPU" in texts[0], "(demo, CUDA" in texts[1]] == [True, True]


@pytest.mark.parametrize(("argument", "seeded"), [("Generator? g=None", True), ("int g", False)])
def test_the_readme_tells_what_is_needed(argument: str, seeded: bool) -> None:
    """Compilers, the variables of the build, and that torch.compile cannot trace a generator."""
    schema = schemas.parse(f"f(Tensor x, {argument}) -> Tensor")
    one = module.Exported(
        operator=binding.operator("demo", "f", schema, "f.cu"),
        call=ReferenceCall(op="torch.f", schema=schema, first="x", named=()),
        devices=("cuda",),
        reference="torch.f",
    )
    text = package._readme("demo", [one], [{"name": "f_cuda", "device": "cuda"}])
    assert "building also g++ (or\nwhat `CXX` names), and nvcc (`CUDA_HOME`) for the kernels on CUDA" in text
    assert "`CUDA_ARCHS=sm_80,sm_90a` says otherwise" in text
    assert "CPU_FLAGS" not in text
    assert ("A generator has to be given\n  as a number there" in text) is seeded


@pytest.mark.parametrize(
    ("kernel", "names", "error", "what"),
    [
        ("gelu", ["triton"], ContractError, "gelu/triton cannot be exported: a Python function has no schema line"),
        ("relu", ["extension"], ContractError, "relu/extension cannot be exported: it is bound to torch's unstable"),
        ("relu", ["fast"], ConfigError, 'kernel "relu" has no implementation fast'),
    ],
)  # fmt: skip
def test_what_cannot_be_exported(
    kernel: str, names: list[str], error: type[Exception], what: str, tmp_path: Path
) -> None:
    """An implementation without a binding is refused with the reason, and nothing is written."""
    config = load(ROOT / "example_project/cgins.yaml", require_traces=False)
    kernels = [entry for entry in config.kernels if entry.name == kernel]
    with pytest.raises(error, match=what):
        package.write(config, kernels, folder=tmp_path / "out", namespace="demo", implementations=names)
    assert not (tmp_path / "out").exists()


def write(own: Path, namespace: str = "mine") -> None:
    config = load(own / "cgins.yaml", require_traces=False)
    package.write(config, config.kernels, folder=own / "out", namespace=namespace)


def test_another_folder_is_left_alone(own: Path) -> None:
    """A folder with other files is not written to."""
    (own / "out").mkdir()
    (own / "out/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a package of cgins export"):
        write(own)


@pytest.mark.parametrize(
    ("namespace", "whose"), [("aten", "torch's"), ("torch", "torch's"), ("json", "Python's")]
)
def test_namespaces_of_others(own: Path, namespace: str, whose: str) -> None:
    """A package named as another would hide it, and its operators would be taken for torch's."""
    with pytest.raises(ConfigError, match=f"the namespace '{namespace}' is {whose} own"):
        write(own, namespace)
    assert not (own / "out").exists()


def test_a_package_that_was_refused_can_be_written_after_the_mend(own: Path) -> None:
    """A flag that names files is refused, since they would be missing; what was written by then is no obstacle."""
    file = own / "cgins.yaml"
    text = file.read_text()
    file.write_text(text.replace("[-Ishared]", "[-isystem, shared]"))
    with pytest.raises(SourceError, match="what the flag -isystem names is not copied into a package"):
        write(own)
    file.write_text(text)
    write(own)
    assert (own / "out/src/mine/__init__.py").is_file()


def test_ops_that_cannot_be_copied(own: Path, project: Any) -> None:
    """An op that needs another package, or a class of modules, is refused by name."""
    project.write(
        "needy_ops.py",
        "import numpy\n\ndef blend(x, parts, weight=1, exponent=1.0):\n    return numpy.add(x, 1)\n",
    )
    config = project.config("{op: needy_ops.blend, source: kernels/blend.cpp}")
    with pytest.raises(SourceError, match=r"needy_ops\.py:1 imports 'numpy'"):
        package.write(config, config.kernels, folder=own / "out1", namespace="mine")
    config = project.config("{op: torch.nn.ReLU, source: kernels/blend.cpp}")
    with pytest.raises(SourceError, match=r"torch\.nn\.ReLU is a class of modules"):
        package.write(config, config.kernels, folder=own / "out2", namespace="mine")


def test_both_forms_of_the_command() -> None:
    """`export KERNEL --as KIND` is `export KIND KERNEL`; other commands are left as they are."""
    assert kind_first(["export", "gelu", "--as", "torch-library"]) == ["export", "torch-library", "gelu"]
    assert kind_first(["export", "--as=torch-library", "a", "b"]) == ["export", "torch-library", "a", "b"]
    assert kind_first(["export", "flashinfer-bench", "p"]) == ["export", "flashinfer-bench", "p"]
    assert kind_first(["build", "--as"]) == ["build", "--as"]
