"""The executors: this machine, on one GPU or on several, and a Ray cluster."""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from pytest_cgins.building.build_queue import default_jobs
from pytest_cgins.config import Config
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError, InfrastructureError
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.candidate_gate import CandidateGate, TrialSettings
from pytest_cgins.regenerate.candidate_pool import CORES, MOST, CandidatePool
from pytest_cgins.regenerate.executor.base import Executor
from pytest_cgins.regenerate.executor.dispatch import Dispatcher
from pytest_cgins.regenerate.executor.gates import Gate
from pytest_cgins.regenerate.executor.node import Node
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.run import visible_gpus
from pytest_cgins.run.pool import WorkerPool

NAMES = ("local", "ray")
"""What `--cgins-executor` begins with."""


@dataclass(eq=False, repr=False)
class LocalExecutor(Executor):
    """On one GPU or none of this machine candidates share a pool; of several GPUs each tries a candidate at a time."""

    reference: WorkerPool
    """As of `CandidateGate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pool = CandidatePool.fenced(self.settings.sandbox, cache=self.settings.cache)

    def gate(self, target: Target, copy: ProjectCopy, before: dict[str, Status], reports: Path) -> Gate:
        """See `Executor`."""
        if target.device == "cuda" and len(self._gpus) > 1:
            return super().gate(target, copy, before, reports)
        return CandidateGate(
            target, copy, self.settings, reference=self.reference, pool=self._pool,
            trusted_root=self.config.root, before=before, reports=reports,
        )  # fmt: skip

    def dispatcher(self, device: DeviceName) -> Dispatcher:
        """See `Executor`."""
        del device  # others have no second one
        return self._on_gpus

    def stop(self) -> None:
        """See `Executor`."""
        self._pool.stop()
        super().stop()

    def close(self) -> None:
        """See `Executor`."""
        super().stop()
        self._pool.close()

    @cached_property
    def _gpus(self) -> tuple[str, ...]:
        if visible_gpus.VARIABLE in self.settings.environment:
            return ()
        return visible_gpus.usable(os.environ.get(visible_gpus.VARIABLE), visible_gpus.list_gpus())

    @cached_property
    def _on_gpus(self) -> Dispatcher:
        """Slots of all GPUs, in turn: on each, some candidates are built and checked while one is timed."""
        settings, lost = self.settings, set[str]()
        nodes: list[Callable[[], Node]] = []
        for gpu in self._gpus:
            environment = {**settings.environment, visible_gpus.VARIABLE: gpu}
            reference = self._stack.enter_context(WorkerPool(env=environment))
            node = partial(
                Node, f"GPU {gpu}", sandbox=settings.sandbox, environment=environment, cache=settings.cache,
                reference=reference, builds=self._pool.builds, lost=lost,
            )  # fmt: skip
            nodes.append(node)
        free = deque(nodes * max(1, min(MOST, default_jobs() // (CORES * len(nodes)))))

        def opened(_: Callable[[], bool]) -> Node:
            try:
                return free.popleft()()
            except IndexError:
                raise InfrastructureError(
                    f"no GPU is left of {', '.join(self._gpus)}",
                    remedy="dmesg names their Xid; reset them, and go on with cgins runs resume",
                ) from None

        dispatcher = Dispatcher(opened, len(free))
        self._stack.callback(dispatcher.close)
        return dispatcher


def check(choice: str) -> None:
    """Nothing, if there is an executor of that name.

    Raises:
        ConfigError: there is none, or its package is missing.
    """
    name, _, address = choice.partition("=")
    if name not in ("", *NAMES) or (address and name != "ray"):
        raise ConfigError(f"--cgins-executor={choice}: no such executor", remedy="local, ray or ray=ADDRESS")
    if name == "ray" and importlib.util.find_spec("ray") is None:
        raise ConfigError(
            f"--cgins-executor={choice}: the package ray is not installed",
            remedy="pip install 'pytest-cgins[ray]'",
        )


def executor_of(
    choice: str, config: Config, settings: TrialSettings, tell: Callable[[str], object], reference: WorkerPool
) -> Executor:
    """The executor that `--cgins-executor` names: `local`, `ray`, or `ray=ADDRESS`; "" is `local`.

    Raises:
        ConfigError: there is no such executor, its package is missing, or its cluster cannot be reached.
    """
    check(choice)
    name, _, address = choice.partition("=")
    if name != "ray":
        return LocalExecutor(config, settings, tell, reference)
    from pytest_cgins.regenerate.executor.ray_cluster import RayExecutor

    return RayExecutor(config, settings, tell, address)
