"""Functions that a project has marked, and the service that runs kernels, on a kernel that is written as text."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.verification_service import VerificationService
from tests.run.relu import relu_set, text_kernel


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Makes an importable module of the given source."""
    name = f"marked_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def module(source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield module
    sys.modules.pop(name, None)


@pytest.fixture
def relu_kernel(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Makes a Python kernel of a module's text, with a function `relu(input)`, as JSON of a CompiledKernel."""
    return lambda text: text_kernel(tmp_path, text)


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a Python kernel of a module's text on two rows with one probe on, and gives the service's result."""

    def run(text: str, *probes: str) -> dict[str, Any]:
        one, buffer = relu_set(torch.tensor([[-1.0, 2.0], [3.0, -4.0]]))
        one["op_calls"] = {"relu": 4}
        service = VerificationService()
        params = {
            "kernel": text_kernel(tmp_path, text), "device": "cpu", "import_root": str(tmp_path),
            "probes": list(probes), "sets": [one],
        }  # fmt: skip
        result, buffers = service.run(params, [buffer])
        result["fatal"] = service.fatal
        result["answer"] = unpack(result["sets"][0]["tensors"], buffers[0], "cpu")
        return result

    return run
