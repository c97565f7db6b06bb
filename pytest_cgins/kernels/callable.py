"""Built kernels as something to call. Runs in worker processes only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Protocol

import torch

from pytest_cgins.errors import LaunchError
from pytest_cgins.kernels.functions import ExtensionKernel, PythonKernel, import_target
from pytest_cgins.kernels.launcher import Launcher
from pytest_cgins.model import CompiledKernel, OpCall, TensorMeta


class BoundCall(Protocol):
    """A kernel with the arguments of one call."""

    def run(self) -> list[torch.Tensor]:
        """Run once on the current stream.

        Returns:
            The output tensors in the op's order; a launcher writes to the same ones every time.

        Raises:
            LaunchError: the kernel returned an error code, or raised.
        """
        ...

    def poison(self) -> None:
        """Overwrite the outputs that were allocated for the kernel, so that unwritten elements show."""
        ...

    def overrun(self) -> str:
        """What was written just outside the allocated outputs or scratch memory; "" if nothing was."""
        ...


class LoadedKernel(Protocol):
    """A kernel in this process."""

    def bind(
        self, call: OpCall, tensors: Sequence[torch.Tensor], outputs: Sequence[TensorMeta], device: str
    ) -> BoundCall:
        """Match a call of the op to the kernel, and prepare everything but the launch itself.

        Args:
            call: the op's call; arguments are matched by name.
            tensors: its tensors, by index, on `device`. They must outlive the bound call.
            outputs: what torch returns for the call: a launcher's outputs get these shapes and strides.
            device: `cpu` or `cuda:0`.

        Raises:
            SourceError: the kernel's arguments are not the op's.
            ContractError: the call uses what the kernel does not declare.
            LaunchError: the kernel cannot say how much scratch memory it needs.
        """
        ...


def load(compiled: CompiledKernel) -> LoadedKernel:
    """Load a kernel into this process.

    Raises:
        SourceError: its module or function is missing.
        LaunchError: its library or module cannot be loaded.
    """
    source = compiled.source
    if source.contract == "launcher":
        return Launcher(compiled)
    if source.contract == "python":
        return PythonKernel(import_target(source), f"{source.module}:{source.entry}")
    return ExtensionKernel(_extension_function(compiled), source.entry)


def _extension_function(compiled: CompiledKernel) -> object:
    library = Path(compiled.library)
    name = json.loads(library.with_name("build.json").read_bytes())["module"]
    loader = ExtensionFileLoader(name, str(library))
    spec = spec_from_loader(name, loader, origin=str(library))
    try:
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        function: object = getattr(module, compiled.source.entry)
    except (ImportError, AttributeError) as error:
        raise LaunchError(
            f"{library}: {error}", remedy="build it again: `cgins build`, after clearing the build cache"
        ) from error
    return function
