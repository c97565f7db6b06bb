"""Kernels built for architectures that need not be there, and compared with the base revision.

What `pytest --cgins --cgins-compile-only` and `cgins build --arch` share. Nothing is run: no device, no torch, no
trace pack is needed. A kernel of the base revision is built by today's compiler, so that a new compiler alone
never fails a kernel; where nothing that a build reads has changed, both are one build.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from pytest_cgins.building import resources
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.compilers import architectures, toolchain
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.progress import Progress
from pytest_cgins.building.revision import merge_base as revisions
from pytest_cgins.building.revision.base_sources import Absent, BaseSources
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import CompiledKernel, KernelResources, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import (
    BuildError,
    CginsError,
    ConfigError,
    InfrastructureError,
    RevisionError,
    SourceError,
)
from pytest_cgins.core.session_report import Compilation
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.run.sandbox.builds import BuildFence, sources_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One implementation and one architecture."""

    kernel: KernelEntry
    implementation: Implementation
    arch: str
    skip: str = ""
    """Why it is not built; "" if it is."""
    skip_reason: Reason = Reason.OK

    @property
    def name(self) -> str:
        """The target's name, as in `Compilation.name`."""
        return _compilation(self, _verdict(Status.SKIPPED, Reason.OK, "")).name


class Compiler:
    """Builds the CUDA kernels of one `cgins.yaml`."""

    def __init__(
        self,
        config: Config,
        *,
        archs: Sequence[str] = (),
        baseline: str = revisions.MERGE_BASE,
        build_queue: BuildQueue | None = None,
        on_wait: Callable[[Progress | None], object] = lambda _: None,
        instructions: bool = True,
    ) -> None:
        """Nothing is built yet.

        By default each kernel is built for its own architectures (`architectures.ahead`), by a queue that `close` ends. `on_wait`
        is told how far the queue is while a build is waited for, and None afterwards.
        """
        self.config = config
        self._archs = tuple(dict.fromkeys(archs))
        self._instructions = instructions
        self._build_queue = build_queue or BuildQueue()
        self._owns_queue = build_queue is None
        self._on_wait = on_wait
        self._started: list[Target] = []
        # Separate, so that `build_queue` counts only the kernels of this revision.
        self._base_queue = BuildQueue(jobs=self._build_queue.jobs, fence=self._build_queue.fence)
        self._base = BaseSources(config, baseline)
        self._show(sources_of(config), config.traces)

    def revision(self) -> revisions.Revision | None:
        """The commit that is compared with; None if there is none, for whatever reason.

        Raises:
            RevisionError: a commit was named, and git does not know it.
        """
        return self._base.revision()

    def targets(self) -> tuple[Target, ...]:
        """What there is to build, in the order of the file; CPU implementations are no part of it.

        Raises:
            ConfigError: an architecture that was asked for is not one, or the compiler does not know it.
        """
        try:
            nvcc: tuple[str, ...] = toolchain.nvcc()
        except InfrastructureError:
            nvcc = ()  # each build will say so
        known = architectures.known_to(nvcc) if nvcc else ()
        for arch in self._archs:
            _check(arch, known)
        return tuple(
            target
            for kernel in self.config.kernels
            for implementation in kernel.implementations
            if device_of(implementation.device).is_cuda
            for target in self._targets(kernel, implementation, known)
        )

    def _targets(
        self, kernel: KernelEntry, implementation: Implementation, known: tuple[str, ...]
    ) -> Iterable[Target]:
        declared = implementation.archs
        found: dict[str, Target] = {}
        for asked in self._archs or architectures.ahead(declared, known):
            arch = architectures.built_as(asked, declared) or ""
            target = Target(kernel=kernel, implementation=implementation, arch=arch or asked)
            if implementation.contract == "python":
                target = replace(
                    target,
                    skip="a Python kernel is compiled when it is called, on a GPU",
                    skip_reason=Reason.CONTRACT,
                )
            elif not arch:
                target = replace(
                    target,
                    skip=f"cgins.yaml names other architectures for it: {', '.join(declared)}",
                    skip_reason=Reason.ARCHITECTURE,
                )
            found.setdefault(target.arch, target)
        return found.values()

    def start(self, targets: Iterable[Target]) -> None:
        """Begin to build in the background, in this order; `compile` tells how each went."""
        self._started = [target for target in targets if not target.skip]
        sources = []
        for target in self._started:
            try:
                sources.append(self._source(target))
            except CginsError:
                continue  # told by `compile`
        self._build_queue.add(sources)

    def compile(self, target: Target) -> Compilation:
        """Build one target, and compare it. Never raises for what a kernel or a tool does."""
        started = time.monotonic()
        if target.skip:
            return _compilation(target, _verdict(Status.SKIPPED, target.skip_reason, target.skip))
        found = self._compile(target)
        return replace(found, seconds=time.monotonic() - started)

    def _compile(self, target: Target) -> Compilation:
        try:
            source = self._source(target)
            try:
                compiled = self._build_queue.result(source, on_wait=self._on_wait)
            finally:
                self._on_wait(None)
            found = resources.of(compiled, target.arch, instructions=self._instructions)
            base, why = self._base_resources(target, compiled, found.functions)
        except RevisionError:
            raise  # of all kernels alike, and no kernel's doing
        except (CginsError, OSError) as error:
            return _compilation(target, _blame(target, error))
        if base is None:
            verdict = Verdict(
                status=Status.NEW,
                reason=Reason.OK,
                message=why,
                numbers=gate.resource_numbers(found.functions),
            )
        else:
            verdict = gate.decide_resources(
                found.functions, base, revision=self._base.label, limits=target.kernel.limits
            )
        return replace(
            _compilation(target, verdict),
            resources=found.functions,
            base=base or (),
            base_revision=self._base.commit if base is not None else "",
            build_seconds=compiled.build_seconds,
            notes=found.notes,
        )

    def _source(self, target: Target) -> KernelSource:
        return replace(find(self.config, target.kernel, target.implementation), archs=(target.arch,))

    # ---- the base revision

    def _base_resources(
        self, target: Target, compiled: CompiledKernel, functions: tuple[KernelResources, ...]
    ) -> tuple[tuple[KernelResources, ...] | None, str]:
        """Resources at the base revision, or None and why there are none."""
        source = self._base_source(target)
        if isinstance(source, Absent):
            return None, source.why
        try:
            base = self._base_queue.result(replace(source, archs=(target.arch,)))
            if base.key == compiled.key:
                return functions, ""
            if not base.cached:
                self._build_more_at_base(target)
            return resources.of(base, target.arch, instructions=self._instructions).functions, ""
        except (CginsError, OSError) as error:
            first = str(error).partition("\n")[0]
            return None, f"cannot be built at {self._base.label}: {first}"

    def _build_more_at_base(self, target: Target) -> None:
        """Begin with those that come next.

        Not all at once and not before: most are the build that this revision has too, and to ask for one twice at
        the same time would only have one wait for the other.
        """
        place = self._started.index(target) + 1 if target in self._started else 0
        for one in self._started[place : place + self._base_queue.jobs] if place else ():
            found = self._base_source(one)
            if not isinstance(found, Absent):
                self._base_queue.add([replace(found, archs=(one.arch,))])

    def _base_source(self, target: Target) -> KernelSource | Absent:
        """The implementation at the base revision, or why there is none."""
        implementation = target.implementation
        found = self._base.source(target.kernel.name, implementation.name, implementation.device)
        if self._build_queue.fence is not None and (top := self._base.top()) is not None:
            self._show((top,))
        return found

    def _show(self, visible: Iterable[Path], hidden: Iterable[Path] = ()) -> None:
        """Let compilers see what they build from, where they are fenced in."""
        if isinstance(self._build_queue.fence, BuildFence):
            self._build_queue.fence.show(visible=visible, hidden=hidden)

    def close(self) -> None:
        """End builds that are under way, and remove the base revision's files."""
        self._base_queue.close()
        if self._owns_queue:
            self._build_queue.close()
        self._base.close()


def _check(arch: str, known: tuple[str, ...]) -> None:
    def refuse(what: str) -> NoReturn:
        raise ConfigError(what, remedy=f"name some of {', '.join(known or architectures.COMMON)}")

    try:
        architectures.number(arch)
    except SourceError as error:
        refuse(error.what)
    if arch.startswith("compute_"):
        refuse(f"{arch} is PTX, whose registers are unknown until it is compiled")
    if known and arch not in known:
        refuse(f"this CUDA compiler does not know {arch}")


def _blame(target: Target, error: CginsError | OSError) -> Verdict:
    if isinstance(error, BuildError):
        return _verdict(Status.BUILD_ERROR, Reason.COMPILER, str(error))
    if isinstance(error, InfrastructureError | OSError):
        return _verdict(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, str(error))
    unknown = isinstance(error, SourceError) and any(
        words in error.what
        for words in (f"cannot compile for {target.arch}", f'the architecture "{target.arch}"')
    )
    return _verdict(Status.BUILD_ERROR, Reason.ARCHITECTURE if unknown else Reason.SOURCE, str(error))


def _verdict(status: Status, reason: Reason, message: str) -> Verdict:
    return Verdict(status=status, reason=reason, message=message, numbers={})


def _compilation(target: Target, verdict: Verdict) -> Compilation:
    return Compilation(
        kernel=target.kernel.name,
        implementation=target.implementation.name,
        arch=target.arch,
        verdict=verdict,
        resources=(),
        base=(),
        base_revision="",
        build_seconds=0.0,
        seconds=0.0,
    )
