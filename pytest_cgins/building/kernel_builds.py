"""The kernels of one cgins.yaml: each found once, built once, and its build time told once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_cgins.building.build_command import Commands
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.compilers.running import Fence
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.progress import Progress
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import CginsError, ConfigError, InfrastructureError
from pytest_cgins.core.text import nearest

logger = logging.getLogger(__name__)
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")
Name = tuple[str, str, str]
"""Kernel, implementation, device type."""


class KernelBuilds:
    """Sources and builds, by name.

    Args:
        config: the loaded file.
        builds: those of the run, closed by their owner; None for builds of its own.
        cache: folder of kernels that it builds itself, by default the user's.
        on_wait: as of `BuildQueue.result`.
        fence: put around compilers of builds of its own; see `compilers.Fence`.
    """

    def __init__(
        self,
        config: Config,
        *,
        builds: BuildQueue | None = None,
        cache: Path | None = None,
        on_wait: Callable[[Progress | None], object] | None = None,
        fence: Fence | None = None,
    ) -> None:
        self._config = config
        self._cache = cache or default_cache()
        self._on_wait = on_wait
        self.builds = builds or BuildQueue(cache=self._cache, fence=fence)
        """The builds of the run."""
        self._closes = builds is None
        self._sources: dict[Name, KernelSource | CginsError] = {}
        self._withheld: list[KernelSource] = []
        self._told: set[str] = set()
        self._commands = Commands(config.root, self._cache, fenced=self.builds.fence is not None)

    def close(self) -> None:
        """End builds of its own."""
        if self._closes:
            self.builds.close()

    def build_ahead(self, names: Iterable[Name]) -> None:
        """Begin to build, and wait for nothing; errors are those of `kernel`.

        Kernels of a GPU wait for `found_devices` where no driver of one is loaded.

        Args:
            names: in the order in which they will be needed.
        """
        found = [self._source(name) for name in dict.fromkeys(names)]
        sources = [source for source in found if isinstance(source, KernelSource)]
        if not has_driver():
            self._withheld += [source for source in sources if device_of(source.device).is_cuda]
            sources = [source for source in sources if not device_of(source.device).is_cuda]
        self.builds.add(sources)

    def found_devices(self, devices: Iterable[str]) -> None:
        """Say which device types there are: a kernel without a device is not built, since its cases are skipped."""
        if "cuda" in devices:
            self.builds.add(self._withheld)
        else:
            self.builds.forget("cuda")
        self._withheld = []

    def kernel(self, kernel: str, implementation: str, device: str) -> CompiledKernel:
        """A built kernel.

        Raises:
            BuildError, SourceError: it cannot be built.
            ConfigError: there is no such implementation.
            InfrastructureError: a tool is missing, or the cache cannot be used.
        """
        source = self._source((kernel, implementation, device))
        if isinstance(source, CginsError):
            raise source
        try:
            return unaltered(self.builds, source, on_wait=self._on_wait)
        except OSError as error:
            raise InfrastructureError(
                f"the build cache {self._cache} cannot be used: {error}",
                remedy="make it writable, or set CGINS_CACHE_DIR to a folder that is",
            ) from error

    def untold_seconds(self, kernel: CompiledKernel) -> float:
        """How long its build took, for the first case that tells of it: whoever asked for it before tells of none; then 0."""
        is_told = kernel.key in self._told
        self._told.add(kernel.key)
        return 0.0 if is_told else kernel.build_seconds

    def source(self, name: Name) -> KernelSource | None:
        """The source of an implementation; None where it cannot be read, which `kernel` tells."""
        found = self._source(name)
        return found if isinstance(found, KernelSource) else None

    def can_build(self, name: Name) -> bool:
        """Whether a kernel can be built, once that is known; `kernel` tells why it cannot, and its build time."""
        source = self.source(name)
        if source is None:
            return False
        try:
            self.builds.result(source)
        except (CginsError, OSError):
            return False
        return True

    def is_cached(self, name: Name) -> bool:
        """Whether `kernel` gives at once what the cache has."""
        source = self.source(name)
        return source is not None and self.builds.is_cached(source)

    def _source(self, name: Name) -> KernelSource | CginsError:
        if name not in self._sources:
            try:
                entry, implementation = self._entry(name)
                self._commands.run(implementation.build, f"{entry.name}/{implementation.name}")
                self._sources[name] = find(self._config, entry, implementation)
            except CginsError as error:
                self._sources[name] = error
        return self._sources[name]

    def _entry(self, name: Name) -> tuple[KernelEntry, Implementation]:
        if name in self._config.implementations:
            return self._config.implementations[name]
        kernel, implementation, device = name
        raise ConfigError(
            f"{self._config.file} has no implementation {implementation!r} of kernel {kernel!r} for {device}",
            remedy=nearest(kernel, [entry.name for entry in self._config.kernels]),
        )


def has_driver() -> bool:
    """Whether the driver of a GPU is loaded."""
    return any(Path(driver).exists() for driver in DRIVERS)


def unaltered(
    builds: BuildQueue, source: KernelSource, *, on_wait: Callable[[Progress | None], object] | None = None
) -> CompiledKernel:
    """The build, whose file is what the compiler wrote: code of another kernel may have got at it since.

    Raises:
        CginsError, OSError: as `BuildQueue.result`.
    """
    compiled = builds.result(source, on_wait=on_wait)
    if compiled.library and file_digest(compiled.library) != compiled.sha256:
        logger.warning("%s was altered after it was built: it is built again", compiled.library)
        builds.again(source)
        compiled = builds.result(source, on_wait=on_wait)
    return compiled
