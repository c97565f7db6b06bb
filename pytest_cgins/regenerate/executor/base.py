"""What all executors are: they give each target a gate."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_cgins.config import Config
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.candidate_gate import TrialSettings
from pytest_cgins.regenerate.executor.archive import TargetOnNode, packed
from pytest_cgins.regenerate.executor.dispatch import Dispatcher
from pytest_cgins.regenerate.executor.gates import DispatchedGate, Gate
from pytest_cgins.regenerate.project_copy import ProjectCopy


@dataclass(eq=False, repr=False)
class Executor(ABC):
    """Gives gates of targets. One a run; the run alone asks it, in one thread."""

    config: Config
    """The project's file."""
    settings: TrialSettings
    """Of the run."""
    tell: Callable[[str], object]
    """Takes a line for the journal."""

    def __post_init__(self) -> None:
        self._stack = ExitStack()

    def gate(self, target: Target, copy: ProjectCopy, before: dict[str, Status], reports: Path) -> Gate:
        """What tries the candidates of a target, by default on nodes.

        Args:
            target: what is regenerated.
            copy: has the candidates, or is what nodes make theirs of.
            before: as of `CandidateGate`.
            reports: the target's folder in the journal, which takes reports of ncu.
        """
        settings = self.settings
        spec = TargetOnNode(
            target=target, top=str(copy.project), config=copy.relative(self.config.file),
            traces=tuple(map(str, self.config.traces)), packs=self._packs,
            repository=self.stored(packed({".git": copy.top / ".git"})), base_commit=copy.base_commit,
            before=before, seed=settings.seed, timing=settings.timing, compile=settings.compile,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
        return DispatchedGate(spec, self.dispatcher(target.device), reports=reports, tell=self.tell)

    @abstractmethod
    def dispatcher(self, device: DeviceName) -> Dispatcher:
        """Hands requests to nodes that have such a device."""

    def stop(self) -> None:
        """End all that is under way, at once."""
        self._stack.close()

    @abstractmethod
    def close(self) -> None:
        """When all who use it have ended."""

    def stored(self, archive: bytes) -> Any:
        """What stands for an archive in a `TargetOnNode`."""
        return archive

    @cached_property
    def _packs(self) -> Any:
        packs = enumerate(self.config.traces)
        return self.stored(packed({f"{n}/{pack.name}": Path(os.path.realpath(pack)) for n, pack in packs}))
