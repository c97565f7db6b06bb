"""Workers that serve the toys, and requests to the services that run kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.model import Argument, CompiledKernel, Context, KernelSource, OpCall, TensorMeta, Value
from pytest_cgins.core.tensors import pack
from pytest_cgins.run.pool import WorkerPool

RELU = "torch.nn.functional.relu"
HERE = Path(__file__).parent
TOYS = {
    "toy": "toys:Toy",
    "broken": "toys:BrokenAtStart",
    "leaves": "toys:LeavesAtStart",
    "loud": "toys:LoudAtStart",
    "absent": "toys:Absent",
}


@pytest.fixture
def pool(toy_path: dict[str, str]) -> Iterator[WorkerPool]:
    with WorkerPool({"colour": "red"}, services=TOYS, env=toy_path) as pool:
        yield pool


@pytest.fixture(scope="session")
def toy_path() -> dict[str, str]:
    return {"PYTHONPATH": str(HERE), "CGINS_TOY": "blue"}


@pytest.fixture
def python_kernel() -> Callable[[str], dict[str, Any]]:
    """Makes a kernel of `zoo.py`."""
    return make_python_kernel


@pytest.fixture
def relu_set() -> Callable[..., tuple[dict[str, Any], Buffer]]:
    """Makes one set of inputs for relu, and its buffer."""
    return make_relu_set


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    """Workers with the real services; importing torch takes them more than a second."""
    with WorkerPool() as pool:
        pool.warm(["verification", "timing"])
        yield pool


def make_python_kernel(function: str) -> dict[str, Any]:
    """A kernel of `zoo.py` as JSON of a CompiledKernel."""
    source = KernelSource(
        kernel="relu",
        implementation="zoo",
        op=RELU,
        device="cpu",
        contract="python",
        entry=function,
        schema="",
        files=(str(HERE / "zoo.py"),),
        module="zoo",
        import_root=str(HERE),
    )
    compiled = CompiledKernel(
        source=source, library="", key=f"zoo.{function}", build_seconds=0.0, cached=True
    )
    document: dict[str, Any] = documents.dump_python(compiled)
    return document


def make_relu_set(
    tensor: torch.Tensor,
    name: str = "recorded",
    *,
    context: Context | None = None,
    mutated: tuple[int, ...] = (),
) -> tuple[dict[str, Any], Buffer]:
    """One set of inputs for relu, and its buffer."""
    call = OpCall(
        op=RELU,
        arguments=(
            Argument(name="input", value=Value(kind="tensor", value=0), passed="positional"),
            Argument(name="inplace", value=Value(kind="bool", value=False), passed="default"),
        ),
    )
    header, buffer = pack([tensor])
    output = TensorMeta(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        offset=0,
        storage=0,
    )
    one = {
        "name": name,
        "call": documents.dump_python(call),
        "tensors": header,
        "outputs": [documents.dump_python(output)],
        "context": documents.dump_python(context or Context()),
        "mutated": list(mutated),
    }
    return one, buffer
