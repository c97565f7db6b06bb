"""Kernels for `torch.nn.functional.relu`, and sets of its inputs, as the services that run kernels are sent them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.building.build import build
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value

RELU = "torch.nn.functional.relu"
HERE = Path(__file__).parent
_numbers = itertools.count()


def python_kernel(folder: Path, module: str, entry: str = "relu") -> CompiledKernel:
    """A function of a module in a folder."""
    source = KernelSource(
        kernel="relu", implementation="python", op=RELU, device="cpu", contract="python", entry=entry, schema="",
        files=(str(folder / f"{module}.py"),), module=module, import_root=str(folder),
    )  # fmt: skip
    return CompiledKernel(source=source, library="", key=f"{module}.{entry}", build_seconds=0.0, cached=True)


def zoo_kernel(function: str) -> dict[str, Any]:
    """A kernel of `zoo.py`, as JSON of a CompiledKernel."""
    document: dict[str, Any] = documents.dump_python(python_kernel(HERE, "zoo", function))
    return document


def text_kernel(folder: Path, text: str) -> dict[str, Any]:
    """The function `relu(input)` of a module's text, likewise."""
    module = f"relu_of_text_{next(_numbers)}"
    (folder / f"{module}.py").write_text(text)
    document: dict[str, Any] = documents.dump_python(python_kernel(folder, module))
    return document


def launcher(folder: Path, body: str, before: str = "") -> dict[str, Any]:
    """A C++ launcher of a body that knows the numbers as `x` and `y`, likewise."""
    source = folder / "relu.cpp"
    source.write_text(
        f"// cgins: relu(Tensor input) -> Tensor\n#include <cgins.h>\n{before}\n"
        'extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {\n'
        "const float* x = cgins::data<float>(input);\nfloat* y = cgins::data<float>(out);\n"
        f"{body}\nreturn 0;\n}}\n"
    )
    kernel = KernelSource(
        kernel="relu", implementation="cpp", op=RELU, device="cpu", contract="launcher", entry="relu",
        schema="relu(Tensor input) -> Tensor", files=(str(source),),
    )  # fmt: skip
    document: dict[str, Any] = documents.dump_python(build(kernel, cache=folder / "cache"))
    return document


def relu_set(
    tensor: torch.Tensor,
    name: str = "recorded",
    *,
    context: Context | None = None,
    mutated: tuple[int, ...] = (),
) -> tuple[dict[str, Any], Buffer]:
    """One set of inputs, and its buffer."""
    call = OpCall(
        op=RELU,
        arguments=(
            Argument(name="input", value=Value(kind="tensor", value=0), passed="positional"),
            Argument(name="inplace", value=Value(kind="bool", value=False), passed="default"),
        ),
    )
    header, buffer = pack([tensor])
    output = TensorMeta(
        dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stride=tuple(tensor.stride()),
        offset=0, storage=0,
    )  # fmt: skip
    one = {
        "name": name, "call": documents.dump_python(call), "tensors": header,
        "outputs": [documents.dump_python(output)], "context": documents.dump_python(context or Context()),
        "mutated": list(mutated),
    }  # fmt: skip
    return one, buffer
