"""Exported launchers as operators of torch: what arrives in C, what comes back, and what torch itself asks of an operator."""

from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.building.loading.callable import load
from pytest_cgins.building.torch_library import package
from pytest_cgins.building.torch_library.support import parts
from pytest_cgins.config import load as load_config
from pytest_cgins.core.trace import Argument, OpCall
from pytest_cgins.packs.values import encode

pytestmark = pytest.mark.exam

NUMBERS = itertools.count()
"""Of packages: torch keeps their operators as long as the process lives."""
OPS = """\
import torch

def kinds(x, n, m, list, maybe, f, g, b, flags, marks, s, t, d, e, z, none, many, holes, generator=None):
    return torch.zeros(25, dtype=torch.float64)

def several(x, n, factor):
    return x.sum(), [x * factor for _ in range(n)], x + 1

def update(total, parts, factor=1, *, generator=None):
    for part in parts:
        total += part * factor
    return total, total.double()
"""
KINDS = """\
// cgins: kinds(Tensor x, int n, int? m, int[] list, int[]? maybe, float? f, float[] g, bool b, bool[] flags, bool[]? marks, str s, str? t, ScalarType d, ScalarType? e, Scalar? z, Scalar? none, Tensor[] many, Tensor?[] holes, Generator? generator=None) -> Tensor
#include <cstring>
extern "C" int kinds(const DLTensor* x, int64_t n, const int64_t* m, const int64_t* list, int64_t list_len,
                     const int64_t* maybe, int64_t maybe_len, const double* f, const double* g, int64_t g_len,
                     bool b, const bool* flags, int64_t flags_len, const bool* marks, int64_t marks_len, const char* s, int64_t s_len, const char* t,
                     int64_t t_len, const DLDataType* d, const DLDataType* e, const cgins_scalar* z,
                     const cgins_scalar* none, const DLTensor* const* many, int64_t many_len,
                     const DLTensor* const* holes, int64_t holes_len, uint64_t generator, DLTensor* out,
                     cgins_stream stream) {
  double values[] = {
      double(n), m ? double(*m) : -1, double(list_len), double(list[list_len - 1]), maybe ? double(maybe_len) : -1,
      f ? *f : -1, double(g_len), g[0], double(b), double(flags_len), double(flags[1]), double(s_len),
      double(std::strlen(s)), t ? double(t_len) : -1, double(cgins::dtype_of(*d)),
      e ? double(cgins::dtype_of(*e)) : -1, z->real + z->imaginary * 100 + z->kind * 1000 + double(z->integer),
      none ? 1.0 : -1, double(many_len), double(many[1]->shape[0]), double(holes_len), holes[0] ? 1.0 : 0.0,
      double(generator), double(marks_len + marks[0]), double(x->strides[0])};
  for (int64_t i = 0; i < cgins::numel(out); ++i) cgins::data<double>(out)[i] = values[i];
  return stream ? cgins_fail("a CPU kernel has no stream") : 0;
}
"""
SEVERAL = """\
// cgins: several(Tensor x, int n, float factor) -> (Tensor total, Tensor[] scaled, Tensor next)
extern "C" int64_t several_workspace(const DLTensor* x, int64_t, double, DLTensor*, DLTensor* const*, int64_t,
                                     DLTensor*) {
  return cgins::numel(x) * int64_t{sizeof(double)};
}
extern "C" int several(const DLTensor* x, int64_t n, double factor, DLTensor* total, DLTensor* const* scaled,
                       int64_t scaled_len, DLTensor* next, void* workspace, int64_t workspace_nbytes, cgins_stream) {
  CGINS_CHECK(cgins::dtype_of(x) == cgins::Dtype::float32, "float32 only, not %s", cgins::name_of(cgins::dtype_of(x)));
  CGINS_CHECK(scaled_len == n && workspace_nbytes == cgins::numel(x) * 8, "lists and scratch");
  double* wide = static_cast<double*>(workspace);
  double sum = 0;
  for (int64_t i = 0; i < cgins::numel(x); ++i) {
    wide[i] = cgins::data<float>(x)[cgins::offset_of(x, i)];
    sum += wide[i];
    for (int64_t k = 0; k < n; ++k)
      cgins::data<float>(scaled[k])[cgins::offset_of(scaled[k], i)] = float(wide[i] * factor);
    cgins::data<float>(next)[cgins::offset_of(next, i)] = float(wide[i] + 1);
  }
  cgins::data<float>(total)[0] = float(sum);
  return 0;
}
"""
UPDATE = """\
// cgins: update(Tensor(a!) total, Tensor[] parts, Scalar factor=1, *, Generator? generator=None) -> (Tensor(a!), Tensor wide)
extern "C" int update(DLTensor* total, const DLTensor* const* parts, int64_t parts_len, const cgins_scalar* factor,
                      uint64_t, DLTensor* wide, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(total); ++i) {
    float& sum = cgins::data<float>(total)[cgins::offset_of(total, i)];
    for (int64_t k = 0; k < parts_len; ++k)
      sum += cgins::data<float>(parts[k])[cgins::offset_of(parts[k], i)] * float(factor->real);
    cgins::data<double>(wide)[cgins::offset_of(wide, i)] = sum;
  }
  return 0;
}
"""
SILENT = """\
// cgins: matmul(Tensor input, Tensor other) -> Tensor
extern "C" int matmul(const DLTensor*, const DLTensor*, DLTensor*, cgins_stream) { return 7; }
"""

Export = Callable[[str, str], Path]
Exported = Callable[[str, str], Any]


@pytest.fixture
def export(project: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Export]:
    """Function that exports a launcher for one of OPS, or for an op of torch, as a package that is not built yet."""
    project.write("op_suite.py", OPS)
    monkeypatch.syspath_prepend(str(project.root))
    monkeypatch.setenv("CPU_FLAGS", "-O0")

    def make(op: str, text: str) -> Path:
        name = text.partition("cgins: ")[2].partition("(")[0]
        project.write("kernel.cpp", text)
        config = load_config(
            project.write("cgins.yaml", f"version: 1\nkernels:\n  {name}: {{op: {op}, source: kernel.cpp}}\n")
        )
        folder: Path = project.root / f"exported_{next(NUMBERS)}"
        package.write(config, config.kernels, folder=folder, namespace=folder.name)
        return folder

    yield make
    for name in [name for name in sys.modules if name.startswith(("op_suite", "exported_"))]:
        del sys.modules[name]


@pytest.fixture
def exported(export: Export, monkeypatch: pytest.MonkeyPatch) -> Exported:
    """Function that builds such a package as its users do, imports it, and gives its operator."""

    def make(op: str, text: str) -> Any:
        folder = export(op, text)
        done = built(folder)
        assert done.returncode == 0, done.stderr
        monkeypatch.syspath_prepend(str(folder / "src"))
        (name,) = importlib.import_module(folder.name).__all__
        return getattr(getattr(torch.ops, folder.name), name).default

    return make


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """What came of the package's own build."""
    return subprocess.run(
        [sys.executable, "-I", "build_kernels.py"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_kind_of_argument(exported: Exported, project: Any, metas_of: Any) -> None:
    """Each schema type arrives in C as the contract says, None as null and text as UTF-8, also of an operator."""
    operator = exported("op_suite.kinds", KINDS)
    source = project.source("{op: op_suite.kinds, source: kernel.cpp}")
    tensors = [torch.ones(2, 3).T, torch.ones(1), torch.ones(9)]
    x, one, nine = tensors
    values = {
        "x": x, "n": 5, "m": None, "list": torch.Size([2, 3]), "maybe": None, "f": 1, "g": [0.25], "b": True,
        "flags": [False, True], "marks": [True], "s": "é!", "t": None, "d": torch.bfloat16, "e": None, "z": complex(1, 2),
        "none": None, "many": [one, nine], "holes": [None, one], "generator": torch.Generator().manual_seed(77),
    }  # fmt: skip
    kept: list[torch.Tensor] = []
    call = OpCall(
        op="op_suite.kinds",
        arguments=tuple(
            Argument(name=name, value=encode(value, kept), passed="keyword") for name, value in values.items()
        ),
    )
    outputs = metas_of([torch.zeros(25, dtype=torch.float64)])
    (want,) = load(build(source)).bind(call, kept, outputs, "cpu").run()
    passed = [
        part
        for name, value in values.items()
        for part in (parts(value) if name in ("z", "none") else [77] if name == "generator" else [value])
    ]
    # The last is the stride of a transposed tensor.
    expected = [5, -1, 2, 3, -1, 1, 1, 0.25, 1, 2, 1, 3, 3, -1, 11, -1, 3201, -1, 2, 9, 2, 0, 77, 2, 1]
    assert operator(*passed).tolist() == expected
    # A trace keeps a generator's state, and makes another one of it.
    assert want[:22].tolist() + want[23:].tolist() == expected[:22] + expected[23:]


def test_several_outputs_and_scratch_memory(exported: Exported) -> None:
    """Outputs, lists among them, have the shapes that the op says; what torch asks of operators holds."""
    operator = exported("op_suite.several", SEVERAL)
    x = torch.randn(3, 4).T.requires_grad_()
    total, scaled, following = operator(x, 2, 0.5)
    torch.testing.assert_close(total, x.sum())
    assert len(scaled) == 2
    torch.testing.assert_close(scaled[1], x * 0.5)
    assert torch.equal(following, x + 1)
    assert following.stride() == x.stride()
    (total + scaled[0].sum() + (following * 2).sum()).backward()
    assert torch.equal(x.grad, torch.full((4, 3), 1 + 0.5 + 2.0))
    torch.library.opcheck(operator, (x, 2, 0.5))


def test_second_derivatives(exported: Exported) -> None:
    """A gradient has a gradient: torch's own backward gives it."""
    text = """\
// cgins: square(Tensor input) -> Tensor
extern "C" int square(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const double x = cgins::data<double>(input)[cgins::offset_of(input, i)];
    cgins::data<double>(out)[cgins::offset_of(out, i)] = x * x;
  }
  return 0;
}
"""
    operator = exported("torch.square", text)
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(operator, (x,))
    with torch.autocast("cpu", torch.bfloat16):
        assert operator(x).dtype == torch.float64


def test_mutated_arguments(exported: Exported) -> None:
    """An argument is written to in place, and what torch asks of such an operator holds."""
    operator = exported("op_suite.update", UPDATE)
    total = torch.ones(4, 2)[:, 0]
    wide = operator(total, [torch.full((4,), 2.0), torch.ones(4)], *parts(3), 0)
    assert total.tolist() == wide.tolist() == [10.0] * 4
    assert wide.dtype == torch.float64
    torch.library.opcheck(operator, (total, [torch.ones(4)], *parts(1), 0))
    # A backward that needs what was overwritten is refused, not wrong.
    leaf = torch.ones(4, requires_grad=True)
    saved = leaf * 2
    square = (saved * saved).sum()
    with torch.no_grad():
        operator(saved, [torch.ones(4)], *parts(1), 0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()
    with pytest.raises(
        RuntimeError, match="::update: total is written to, and several of its elements are one"
    ):
        operator(torch.ones(1).expand(4), [torch.ones(4)], *parts(1), 0)
    with pytest.raises(RuntimeError, match=r"::update: factor is None$"):
        operator(torch.ones(4), [torch.ones(4)], *parts(None), 0)


def test_messages(exported: Exported) -> None:
    """The kernel's message, that of the op, and ours about devices come back as RuntimeError."""
    operator = exported("op_suite.several", SEVERAL)
    name = operator.name()
    with pytest.raises(RuntimeError, match=f"^{name}: float32 only, not float64$"):
        operator(torch.ones(2, dtype=torch.float64), 1, 0.5)
    with pytest.raises(RuntimeError, match="a kernel takes no tensors of this element type"):
        operator(torch.ones(2).to(torch.float8_e4m3fnuz), 1, 0.5)
    operator = exported("torch.matmul", SILENT)
    with pytest.raises(RuntimeError, match=r"::matmul: .*(2x3 and 2x3|\[2, 3\] X \[2, 3\])"):
        operator(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="the kernel returned 7, without a message"):
        operator(torch.ones(2, 3), torch.ones(3, 2))


def test_random_ops_have_no_backward_by_recomputation(exported: Exported) -> None:
    """An op that draws numbers is not run a second time for its gradient: it would draw others."""
    text = """\
// cgins: dropped(Tensor input, float p=0.5, bool training=True) -> Tensor
extern "C" int dropped(const DLTensor* input, double, bool, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = 2 * cgins::data<float>(input)[i];
  return 0;
}
"""
    operator = exported("torch.nn.functional.dropout", text)
    y = operator(torch.ones(3, requires_grad=True), 0.5, True)
    with pytest.raises(RuntimeError, match="draws random numbers"):
        y.sum().backward()


def test_compile_errors_are_those_of_the_source(export: Export) -> None:
    """A mistake in the kernel is reported with its file."""
    done = built(export("op_suite.several", SEVERAL.replace("double sum = 0;", "double sum = zero;")))
    assert done.returncode != 0
    assert re.search(r"kernel\.cpp:\d+", done.stderr)
