"""What the services that run kernels share: loading them, and knowing when a process is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.core.model import CompiledKernel


class KernelCache:
    """Kernels that this process has loaded, by build key: a library cannot be unloaded."""

    def __init__(self) -> None:
        self._loaded: dict[str, LoadedKernel] = {}

    def has(self, compiled: CompiledKernel) -> bool:
        """Whether a kernel is loaded, so that nothing of it runs when it is asked for."""
        return compiled.key in self._loaded

    def load(
        self,
        compiled: CompiledKernel,
        *,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> LoadedKernel:
        """Load a kernel, once.

        Args:
            compiled: as it was built.
            around: what the kernel's own code is loaded in.

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
        return self._loaded[compiled.key]


def use_device(device: str) -> None:
    """Make a GPU the current device; the CPU always is."""
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))


def make_ready(device: str) -> None:
    """What services do when they are asked to be `ready`: the context of a GPU is made."""
    use_device(device)
    wait_for_device(device)


@contextmanager
def stream_of_its_own(device: str) -> Iterator[None]:
    """A current stream that no other stream waits for, not even the default one.

    Work that a kernel leaves on another stream is then not ordered before what reads its outputs.
    """
    if not device.startswith("cuda"):
        yield
        return
    wait_for_device(device)
    with torch.cuda.stream(torch.cuda.Stream(torch.device(device))):  # type: ignore[no-untyped-call]
        yield


def wait_for_stream(device: str) -> None:
    """Wait for the current stream, as whoever uses the result next would."""
    if device.startswith("cuda"):
        torch.cuda.current_stream(torch.device(device)).synchronize()


def wait_for_device(device: str) -> None:
    """Wait for all launched work; an error of that work is raised here."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(torch.device(device))


def is_lost(device: str) -> bool:
    """Whether an error stuck to the CUDA context: the process can then never use the GPU again."""
    try:
        wait_for_device(device)
    except RuntimeError:
        return True
    return False
