"""Built kernels as something to call. Runs in worker processes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from pytest_cgins.building.compilers import architectures
from pytest_cgins.building.contracts.functions import ExtensionKernel, PythonKernel, import_target
from pytest_cgins.building.loading import extension_function
from pytest_cgins.building.loading.device_kernel import DeviceKernel
from pytest_cgins.building.loading.launcher import Launcher
from pytest_cgins.building.loading.returned import Plan
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import ContractError
from pytest_cgins.core.trace import OpCall, TensorMeta


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

    @property
    def bare(self) -> Callable[[], object]:
        """What `run` runs, whose result is not taken apart: torch's arm of a timing does not pay for that either."""
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

    def plan(self, tensors: Sequence[torch.Tensor]) -> Plan | None:
        """What runs the kernel for other calls of the same form, and holds none of this one's memory.

        Args:
            tensors: those that it was bound to.

        Returns:
            Given tensors of the same forms in the same order, it gives what `run` gives, in memory of its own, and raises
            what that raises; None where each call has to be bound.
        """
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
        SourceError: its module or function is missing, or an extension exports nothing of that name.
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
    return ExtensionKernel(extension_function.load(compiled), source.entry)


class ElsewhereKernel:
    """A kernel that is written for other GPUs than the current one: no call is within its contract."""

    def __init__(self, compiled: CompiledKernel, capability: tuple[int, int]) -> None:
        self._why = (
            f"{compiled.source.entry} is for {', '.join(compiled.source.archs)}; "
            f"{torch.cuda.get_device_name()} is sm_{capability[0]}{capability[1]}"
        )

    def bind(self, *_: object, **__: object) -> BoundCall:
        """See `LoadedKernel.bind`: always refused."""
        raise ContractError(self._why)
