"""The executors: this machine, on one GPU or on several, and a Ray cluster."""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from pytest_cgins.building.build_queue import default_jobs
from pytest_cgins.config import Config
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError, InfrastructureError
from pytest_cgins.gate.evaluate import worker_environment
from pytest_cgins.regenerate.candidate_gate import CandidateGate, TrialSettings
from pytest_cgins.regenerate.candidate_pool import CORES, MOST, CandidatePool
from pytest_cgins.regenerate.executor.base import Executor, TargetFiles
from pytest_cgins.regenerate.executor.dispatch import Dispatcher, Slot, Work
from pytest_cgins.regenerate.executor.gates import Gate
from pytest_cgins.regenerate.executor.messages import EvaluationResult
from pytest_cgins.regenerate.executor.node import Node, Reports
from pytest_cgins.regenerate.prompts.hardware import Hardware, described
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
        self._stack = ExitStack()

    def gate(self, files: TargetFiles) -> Gate:
        """See `Executor`."""
        if files.target.device == "cuda" and len(self._gpus) > 1:
            return self.dispatched(files, self._on_gpus)
        return CandidateGate(
            files.target, files.copy, self.settings, reference=self.reference, pool=self._pool,
            trusted_root=self.config.root, before=files.before, reports=files.reports,
        )  # fmt: skip

    def hardware(self, device: DeviceName) -> Hardware:
        """See `Executor`."""
        return described(self.config, self.reference, self.settings.environment, device)

    def stop(self) -> None:
        """See `Executor`."""
        self._pool.stop()
        self._stack.close()

    def close(self) -> None:
        """See `Executor`."""
        self._stack.close()
        self._pool.close()

    @cached_property
    def _gpus(self) -> tuple[str, ...]:
        if visible_gpus.VARIABLE in self.settings.environment:
            return ()
        return visible_gpus.usable(os.environ.get(visible_gpus.VARIABLE), visible_gpus.list_gpus())

    @cached_property
    def _on_gpus(self) -> Dispatcher:
        """Slots of all GPUs, in turn: on each, some candidates are built and checked while one is timed."""
        settings = self.settings
        environments = [{**settings.environment, visible_gpus.VARIABLE: gpu} for gpu in self._gpus]
        references = [
            self._stack.enter_context(WorkerPool(env={**worker_environment(), **environment}))
            for environment in environments
        ]
        slots = max(1, min(MOST, default_jobs() // (CORES * len(self._gpus))))
        free = deque(list(zip(self._gpus, environments, references, strict=True)) * slots)

        lost: set[str] = set()
        nodes: list[Node] = []

        def opened(_: Callable[[], bool]) -> Slot | None:
            try:
                gpu, environment, reference = free.popleft()
            except IndexError:
                raise InfrastructureError(
                    f"no GPU is left of {', '.join(self._gpus)}",
                    remedy="dmesg names their Xid; reset them, and go on with cgins runs resume",
                ) from None
            node = Node(
                f"GPU {gpu}", sandbox=settings.sandbox, environment=environment, cache=settings.cache,
                reference=reference, builds=self._pool.builds,
            )  # fmt: skip
            nodes.append(node)
            return LocalSlot(gpu, node, lost)

        def close() -> None:
            for node in nodes:
                node.close()

        dispatcher = Dispatcher(opened, len(free))
        self._stack.callback(close)
        self._stack.callback(dispatcher.close)
        return dispatcher


@dataclass(frozen=True, slots=True)
class LocalSlot:
    """A part of one of several GPUs. What is lost has no second slot."""

    gpu: str
    """As an entry for CUDA_VISIBLE_DEVICES."""
    node: Node
    """On that GPU."""
    lost: set[str]
    """GPUs whose slots are of no more use; shared by all."""

    @property
    def is_lost(self) -> bool:
        """See `Slot`."""
        return self.gpu in self.lost

    def answer(self, work: Work) -> tuple[EvaluationResult, Reports]:
        """See `Slot`."""
        if not self.node.knows(work.spec):
            self.node.take(work.spec, work.archives)
        return self.node.answer(work.spec, work.request)

    def lose(self) -> None:
        """See `Slot`."""
        self.lost.add(self.gpu)

    def close(self) -> None:
        """See `Slot`. The node is closed once its thread has ended."""
        self.node.stop()


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
    choice: str,
    config: Config,
    settings: TrialSettings,
    tell: Callable[[str], object],
    reference: WorkerPool,
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
