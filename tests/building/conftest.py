"""Kernels written to a temporary project, and calls of ops bound as a recording binds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.config import Config, load
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta

SCALE = """\
// cgins: scale(Tensor input, float other) -> Tensor
#include <cgins.h>
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input must be contiguous");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < cgins::numel(input); ++i) {
      cgins::data<T>(out)[i] = T(cgins::data<T>(input)[i] * cgins::accumulator<T>(other));
    }
    return 0;
  });
}
"""


class Project:
    """A folder with a cgins.yaml and kernels."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def config(self, kernel: str) -> Config:
        """The configuration of one kernel, given as the YAML flow mapping of its entry."""
        return load(self.write("cgins.yaml", f"version: 1\nkernels:\n  it: {kernel}\n"))

    def source(self, kernel: str) -> KernelSource:
        config = self.config(kernel)
        entry = config.kernels[0]
        return find(config, entry, entry.implementations[0])

    def build(self, kernel: str, **options: Any) -> CompiledKernel:
        return build(self.source(kernel), **options)

    def launcher(self, text: str, *, op: str = "torch.mul") -> CompiledKernel:
        """A C++ launcher with this source, built."""
        self.write("kernel.cpp", text)
        return self.build(f"{{op: {op}, source: kernel.cpp}}")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder for built kernels, not made yet."""
    return tmp_path / "cache"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def scale_text() -> str:
    """A launcher for `torch.mul` by a number, any floating-point type."""
    return SCALE


@pytest.fixture
def op_call() -> Callable[..., tuple[OpCall, list[Any]]]:
    """Function that binds a call of an op, given by name, to its signature."""
    from pytest_cgins.packs.backward import resolve
    from pytest_cgins.packs.signature import bind
    from pytest_cgins.packs.values import encode

    def make(op: str, *args: object, **kwargs: object) -> tuple[OpCall, list[Any]]:
        tensors: list[Any] = []
        arguments = tuple(
            Argument(name=name, value=encode(value, tensors), passed=passed)
            for name, value, passed in bind(resolve(op), args, kwargs)
        )
        return OpCall(op=op, arguments=arguments), tensors

    return make


@pytest.fixture
def metas_of() -> Callable[[Sequence[Any]], list[TensorMeta]]:
    """Function that describes tensors as outputs of an op, each on a storage of its own."""

    def describe(tensors: Sequence[Any]) -> list[TensorMeta]:
        return [
            TensorMeta(
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                offset=0,
                storage=index,
            )
            for index, tensor in enumerate(tensors)
        ]

    return describe


@pytest.fixture
def bind(project: Project, op_call: Any, metas_of: Any) -> Callable[..., Any]:
    """Function that binds a kernel to a call of an op: a C++ launcher's text, what is built, or a Python function.

    Unless `outputs` are given, the op returns tensors like its first argument.
    """
    from torch import Tensor

    from pytest_cgins.building.contracts.functions import PythonKernel
    from pytest_cgins.building.loading.callable import load

    def make(kernel: Any, op: str, *args: Any, outputs: Sequence[Any] | None = None, **options: Any) -> Any:
        if isinstance(kernel, str):
            kernel = project.launcher(kernel, op=op)
        if isinstance(kernel, CompiledKernel):
            kernel = load(kernel)
        elif not hasattr(kernel, "bind"):
            kernel = PythonKernel(kernel, "k:f")
        like = [one for one in args[:1] if isinstance(one, Tensor)] if outputs is None else outputs
        return kernel.bind(*op_call(op, *args, **options), metas_of(like), "cpu")

    return make
