"""Kernels for relu that are written as text, and the services that run them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.model import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.verification import VerificationService
from tests.run.conftest import make_relu_set

RELU = "torch.nn.functional.relu"
_numbers = itertools.count()


@pytest.fixture
def relu_kernel(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Makes a Python kernel of a module's text, with a function `relu(input)`, as JSON of a CompiledKernel."""

    def make(text: str) -> dict[str, Any]:
        module = f"relu_of_text_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(text)
        source = KernelSource(
            kernel="relu",
            implementation="text",
            op=RELU,
            device="cpu",
            contract="python",
            entry="relu",
            schema="",
            files=(str(tmp_path / f"{module}.py"),),
            module=module,
            import_root=str(tmp_path),
        )
        compiled = CompiledKernel(source=source, library="", key=module, build_seconds=0.0, cached=True)
        document: dict[str, Any] = documents.dump_python(compiled)
        return document

    return make


@pytest.fixture
def relu_inputs() -> Callable[..., tuple[dict[str, Any], Buffer]]:
    """Makes one set of inputs for relu, and its buffer."""

    return make_relu_set


@pytest.fixture
def watched(
    relu_kernel: Callable[[str], dict[str, Any]],
    relu_inputs: Callable[..., tuple[dict[str, Any], Buffer]],
    tmp_path: Path,
) -> Callable[..., dict[str, Any]]:
    """Runs a Python kernel of a module's text on two rows with one probe on, and gives the service's result."""

    def run(text: str, *probes: str, tensor: torch.Tensor | None = None) -> dict[str, Any]:
        one, buffer = relu_inputs(torch.tensor([[-1.0, 2.0], [3.0, -4.0]]) if tensor is None else tensor)
        one["op_calls"] = {"relu": 4}
        service = VerificationService({})
        params = {
            "kernel": relu_kernel(text),
            "device": "cpu",
            "import_root": str(tmp_path),
            "probes": list(probes),
            "sets": [one],
        }
        result, buffers = service.run(params, [buffer])
        result["fatal"] = service.fatal
        result["answer"] = unpack(result["sets"][0]["tensors"], buffers[0], "cpu")
        return result

    return run
