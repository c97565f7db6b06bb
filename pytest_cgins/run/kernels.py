"""What the services that run kernels share: loading them, and knowing when a process is spent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.packs.ops import trust
from pytest_cgins.verify.messages import KernelRequest
from pytest_cgins.verify.probes.autotuner import Autotuners


class KernelCache:
    """Kernels that this process has loaded, by build key: a library cannot be unloaded."""

    def __init__(self) -> None:
        self._loaded: dict[str, LoadedKernel] = {}

    def has(self, compiled: CompiledKernel) -> bool:
        """Whether a kernel is loaded, so that nothing of it runs when it is asked for."""
        return compiled.key in self._loaded

    def load(
        self, compiled: CompiledKernel, *, around: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> LoadedKernel:
        """Load a kernel, once; its own code is loaded in `around`.

        Raises:
            LaunchError: its library is not what was built.
            KernelError: if it cannot be loaded. A Python module may raise anything at import.
        """
        if compiled.key not in self._loaded:
            if compiled.sha256 and file_digest(compiled.library) != compiled.sha256:
                raise LaunchError(
                    f"{compiled.library} was altered after it was built, and is not loaded",
                    remedy="find out who writes to the build cache: another kernel of the run, or another program",
                )
            with around():
                self._loaded[compiled.key] = load(compiled)
            if compiled.source.interpret:
                Autotuners().choose_first()
        return self._loaded[compiled.key]


def make_ready(name: str) -> None:
    """What services do when they are asked to be `ready`: the context of a GPU is made."""
    device = device_of(name)
    device.make_current()
    device.synchronize()


def begin(request: KernelRequest) -> None:
    """What services do before they load a kernel: its op and modules are found, and torch makes tensors on its device."""
    device_of(request.device).make_current()
    import_from(request.import_root)
    for op in {request.kernel.source.op, *(inputs.call.op for inputs in request.sets)}:
        trust(op)  # the sets' is the reference, where there is one


def is_lost(device: str) -> bool:
    """Whether an error stuck to the device's context: the process can then never use it again."""
    try:
        device_of(device).synchronize()
    except RuntimeError:
        return True
    return False
