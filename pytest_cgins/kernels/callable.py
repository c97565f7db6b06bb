"""Built kernels as something to call. Runs in worker processes only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Protocol

import torch

from pytest_cgins.errors import ContractError, LaunchError
from pytest_cgins.kernels import architectures
from pytest_cgins.kernels.device_kernel import DeviceKernel
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

    @property
    def memory(self) -> list[torch.Tensor]:
        """What was allocated for it, outputs and scratch memory; empty where the kernel allocates its own."""
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
    if source.archs and source.device == "cuda" and torch.cuda.is_available():
        capability = torch.cuda.get_device_capability()
        if not any(architectures.runs_on(arch, capability) for arch in source.archs):
            return ElsewhereKernel(compiled, capability)
    if source.contract == "launcher":
        return Launcher(compiled)
    if source.contract == "device":
        return DeviceKernel(compiled)
    if source.contract == "python":
        name = f"{source.module}:{source.entry}"
        return PythonKernel(import_target(source), name, interpreted=source.interpret)
    return ExtensionKernel(_extension_function(compiled), source.entry)


class ElsewhereKernel:
    """A kernel that is written for other GPUs than the current one: no call is within its contract."""

    def __init__(self, compiled: CompiledKernel, capability: tuple[int, int]) -> None:
        self._why = (
            f"{compiled.source.entry} is for {', '.join(compiled.source.archs)}; "
            f"{torch.cuda.get_device_name()} is sm_{capability[0]}{capability[1]}"
        )

    def bind(
        self,
        call: OpCall,  # noqa: ARG002
        tensors: Sequence[torch.Tensor],  # noqa: ARG002
        outputs: Sequence[TensorMeta],  # noqa: ARG002
        device: str,  # noqa: ARG002
    ) -> BoundCall:
        """See `LoadedKernel.bind`: always refused."""
        raise ContractError(self._why)


def _extension_function(compiled: CompiledKernel) -> object:
    library = Path(compiled.library)
    namespace, colons, operator = compiled.source.entry.partition("::")
    if colons:
        return _operator(library, namespace, operator)
    module_name = json.loads(library.with_name("build.json").read_bytes())["module"]
    # pybind11 gives out a module again by its full name; builds that differ in headers alone have one module name.
    name = f"_cgins_{compiled.key[:16]}.{module_name}"
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


def _operator(library: Path, namespace: str, operator: str) -> object:
    """An operator that a library registers with torch as it is loaded."""
    name = f"{namespace}::{operator}"
    # A second registration would end the process, not raise.
    if torch._C._jit_get_schemas_for_operator(name) and str(library) not in torch.ops.loaded_libraries:
        raise LaunchError(
            f"{library}: {name} is registered in this process already, by another library",
            remedy="give each implementation a namespace of its own, or let entry name a function",
        )
    try:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        function: object = getattr(getattr(torch.ops, namespace), operator)
    except (OSError, RuntimeError, AttributeError) as error:
        raise LaunchError(f"{library}: {error}", remedy=f"the sources must register {name}") from error
    return function
