"""What all executors are: they give each target a gate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.config import Config
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.candidate_gate import TrialSettings
from pytest_cgins.regenerate.executor import archive
from pytest_cgins.regenerate.executor.archive import Archives
from pytest_cgins.regenerate.executor.dispatch import Dispatcher
from pytest_cgins.regenerate.executor.gates import DispatchedGate, Gate
from pytest_cgins.regenerate.executor.messages import TargetOnNode
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.prompts.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """A target, and where its files are."""

    target: Target
    """What is regenerated."""
    copy: ProjectCopy
    """Has the candidates, or is what nodes make theirs of."""
    overlay: dict[str, str]
    """What the run adds to the project, by path."""
    before: dict[str, Status]
    """As of `CandidateGate`."""
    reports: Path
    """The target's folder in the journal, which takes reports of ncu."""


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
        self._projects: dict[Path, bytes] = {}

    @abstractmethod
    def gate(self, files: TargetFiles) -> Gate:
        """What tries the candidates of a target."""

    @abstractmethod
    def hardware(self, device: DeviceName) -> Hardware:
        """What candidates run on."""

    @abstractmethod
    def stop(self) -> None:
        """End all that is under way, at once."""

    @abstractmethod
    def close(self) -> None:
        """When all who use it have ended."""

    def dispatched(self, files: TargetFiles, dispatcher: Dispatcher) -> DispatchedGate:
        """A gate whose candidates are tried on nodes."""
        copy, settings, traces = files.copy, self.settings, self.config.traces
        spec = TargetOnNode(
            target=files.target, top=str(copy.project), config=copy.relative(self.config.file),
            traces=tuple(map(str, traces)), files=copy.files, overlay=files.overlay, before=files.before,
            base_commit=copy.base_commit, seed=settings.seed, timing=settings.timing, compile=settings.compile,
            timeout_s=settings.timeout_s,
        )  # fmt: skip
        if copy.project not in self._projects:
            self._projects[copy.project] = archive.of_project(copy, traces)
        archives = Archives(self._projects[copy.project], archive.of_copy(copy))
        return DispatchedGate(spec, archives, dispatcher, reports=files.reports, tell=self.tell)
