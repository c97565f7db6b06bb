"""Where an evaluator's kernels are built and run: in another environment, from the base revision's sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.other_environment import OtherEnvironment
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.config import Config
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.forking import OWN, Interpreter


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where kernels are built and run."""

    environment: OtherEnvironment | None = None
    """The environment; None for this process's."""
    at_base: bool = False
    """Whether they are those of the base revision."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Added to those of workers."""
        return self.environment.variables if self.environment is not None else {}

    def import_root(
        self, config: Config, bases: BaseKernels, workers: dict[str, str]
    ) -> tuple[Path, dict[str, str]]:
        """Folder that workers import ops from, and their variables."""
        inherited = workers.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        if self.at_base and (folders := bases.import_folders(inherited)):
            # All of the project is the base revision's there, also what is imported by other ways than the kernel.
            return Path(folders[0]), {**workers, "PYTHONPATH": os.pathsep.join(folders)}
        return config.root, workers

    @property
    def interpreter(self) -> Interpreter:
        """Runs workers."""
        if self.environment is None:
            return OWN
        return Interpreter((*self.environment.command, "-u", "-"), self.environment.path)

    def require_replacing(self, config: Config) -> None:
        """Refuse a library of the environment that takes no other's place: both sides would load one.

        Raises:
            ConfigError: none of the file's kernels loads one of its name.
        """
        if self.environment is None:
            return
        loaded = {Path(name).name for _, made in config.implementations.values() for name in made.load}
        for library in (Path(path).name for path in self.environment.libraries):
            if library not in loaded:
                names = ", ".join(sorted(name for name in loaded if name.endswith(".so")))
                raise ConfigError(
                    f"environment {self.environment.text!r}: {library} replaces no library that {config.file} loads",
                    remedy=f"name a file like one of {names}" * bool(names)
                    or "no kernel has load: [LIBRARY.so]",
                )

    def in_place_of(
        self, compiled: CompiledKernel, case: Case, config: Config, bases: BaseKernels
    ) -> CompiledKernel:
        """The kernel at the base revision, where that is what is evaluated and it is another one.

        Raises:
            EndedError: it is not there, or cannot be built.
        """
        other, (_, implementation) = self.environment, config.implementations[case.key]
        if other is not None and implementation.build and not {*other.libraries} & {*compiled.source.load}:
            made = f"`{implementation.build}` makes one library for all environments"
            remedy = f"name that of {other.text} beside it: a path that ends in .so"
            raise EndedError(Status.SKIPPED, Reason.NO_BASELINE, f"{made}\n→ {remedy}")
        if not self.at_base or (other is not None and not bases.may_differ()):
            return compiled
        base = bases.of(*case.key, compiled)
        if base.state in ("new", "refused", "apart"):
            absent = base.note or "the base revision does not have it"
            raise EndedError(Status.SKIPPED, Reason.NO_BASELINE, absent)
        return base.compiled or compiled


HERE = Elsewhere()
"""The working tree's kernels, in this process's environment."""
