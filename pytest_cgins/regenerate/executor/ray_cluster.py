"""A Ray cluster as executor: an actor a slot, which has a whole GPU of the type that the target was gated on, or some cores.

A fraction of a GPU would be no slot: a kernel is timed alone on its device. The driver keeps count of nothing but its queue:
actors that the cluster has no room for wait, which is what makes an autoscaler add nodes. No key and no environment
travels, only documents and the project's files, once a node.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_cgins import __version__
from pytest_cgins.core import documents
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError, InfrastructureError
from pytest_cgins.regenerate.candidate_pool import CORES
from pytest_cgins.regenerate.executor.base import Executor, TargetFiles
from pytest_cgins.regenerate.executor.dispatch import Dispatcher, Slot, SlotLost, Work
from pytest_cgins.regenerate.executor.gates import DispatchedGate, Gate
from pytest_cgins.regenerate.executor.messages import EvaluationResult, NodeReport
from pytest_cgins.regenerate.executor.node import Reports
from pytest_cgins.regenerate.executor.ray_node import NodeActor
from pytest_cgins.regenerate.prompts.hardware import Hardware

if TYPE_CHECKING:
    from pathlib import Path


logger = logging.getLogger(__name__)

MOST_SLOTS = 64
NODE_WAIT_S = 600.0
"""How long a node is waited for: an autoscaler takes minutes."""
REFUSED_WAIT_S = 60.0
"""The same, once a node has refused."""
_POLL_S = 0.5
_CLOSE_S = 5.0
_TYPE = "accelerator_type:"
"""Begins the names of resources by which Ray tells types of GPUs."""


@dataclass(eq=False, repr=False)
class RayExecutor(Executor):
    """Nodes of a cluster.

    Raises:
        ConfigError: there is no such cluster.
    """

    address: str
    """Of the cluster; "" for the one that this machine belongs to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ray = _connected(self.address)
        self._gates: list[DispatchedGate] = []
        self._slots: dict[DeviceName, RaySlots] = {}
        self._dispatchers: dict[DeviceName, Dispatcher] = {}

    def gate(self, files: TargetFiles) -> Gate:
        """See `Executor`."""
        device, settings = files.target.device, self.settings
        if device not in self._dispatchers:
            slots = RaySlots(self._ray, device, fenced=settings.sandbox is not None, cache=settings.cache)
            self._slots[device] = slots
            self._dispatchers[device] = Dispatcher(slots.open, MOST_SLOTS)
        gate = self.dispatched(files, self._dispatchers[device])
        self._gates.append(gate)
        return gate

    def hardware(self, device: DeviceName) -> Hardware:
        """See `Executor`."""
        return next(gate for gate in self._gates if gate.target.device == device).hardware()

    def stop(self) -> None:
        """See `Executor`."""
        for dispatcher in self._dispatchers.values():
            dispatcher.close()
        for slots in self._slots.values():
            slots.close()

    def close(self) -> None:
        """See `Executor`."""
        self.stop()
        self._ray.shutdown()


def _connected(address: str) -> Any:
    import ray

    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's own are many, and none of them says what the option was
        where = f"at {address}" if address else "that this machine belongs to"
        told = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--cgins-executor=ray: no cluster {where}: {told}",
            remedy="ray start --head makes one of this machine; ray=ADDRESS names another's head, as HOST:6379",
        ) from error
    return ray


class RaySlots:
    """Opens slots of one device type; all of them are on the same type of GPU, that of the first.

    Args:
        ray: the package.
        device: what candidates are for.
        fenced: whether they run in a sandbox.
        cache: folder of built kernels on the nodes, by default the user's.
    """

    def __init__(self, ray: Any, device: DeviceName, *, fenced: bool, cache: Path | None) -> None:
        self._ray = ray
        self._is_cuda = device == "cuda"
        self._arguments = (fenced, self._is_cuda, "" if cache is None else str(cache))
        self._lock = threading.Lock()
        self._gpu = self._gpu_type = ""
        self._kept: list[Any] = []
        self._troubles: dict[str, NodeReport] = {}
        self._archives: dict[int, tuple[bytes, Any]] = {}

    def open(self, is_wanted: Callable[[], bool]) -> Slot | None:
        """A slot, once the cluster has room for one and its node is fit; None if it is not wanted any more.

        Raises:
            InfrastructureError: there is none for long.
        """
        started = time.monotonic()
        while is_wanted():
            actor = self._ray.remote(NodeActor).options(**self._options()).remote(*self._arguments)
            report = self._report(actor, is_wanted, started)
            if report is None:
                # Its process or node died at the start. A GPU may be given out before it is free (ray#44821): not at once.
                self._ray.kill(actor)
                time.sleep(_POLL_S)
            elif not self._refuses(report, actor):
                return RaySlot(self, actor, report.name)
        return None

    def stored(self, archive: bytes) -> Any:
        """Where Ray has an archive: put there once, fetched once by each node."""
        with self._lock:
            if id(archive) not in self._archives:
                self._archives[id(archive)] = archive, self._ray.put(archive)
            return self._archives[id(archive)][1]

    def keep(self, actor: Any) -> None:
        """Have an actor hold what it has until the run ends, so that nobody is given its GPU again."""
        with self._lock:
            self._kept.append(actor)

    def end(self, actor: Any) -> None:
        """End an actor and its processes."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.wait([actor.close.remote()], timeout=_CLOSE_S)
        self._ray.kill(actor)

    def close(self) -> None:
        """End those that were kept."""
        kept, self._kept = self._kept, []
        for actor in kept:
            self.end(actor)

    @property
    def ray(self) -> Any:
        """The package."""
        return self._ray

    def _options(self) -> dict[str, Any]:
        # Two calls at once: `close` ends what `answer` is doing.
        options: dict[str, Any] = {"num_cpus": CORES, "max_restarts": 0, "max_concurrency": 2}
        if self._is_cuda:
            options["num_gpus"] = 1
            if self._gpu_type:
                options["accelerator_type"] = self._gpu_type
        return options

    def _report(self, actor: Any, is_wanted: Callable[[], bool], started: float) -> NodeReport | None:
        """What an actor says, once it is started; None if it died, or is not wanted any more."""
        ready = actor.report.remote()
        try:
            while not self._ray.wait([ready], timeout=_POLL_S)[0]:
                if not is_wanted():
                    return None
                self._require_hope(actor, started)
            return documents.load(NodeReport, self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            logger.info("an actor died at its start: %s", error)
            self._require_hope(actor, started)
            return None

    def _require_hope(self, actor: Any, started: float) -> None:
        waited = time.monotonic() - started
        if waited < (REFUSED_WAIT_S if self._troubles else NODE_WAIT_S):
            return
        self._ray.kill(actor)
        wanted = f"{CORES} cores" + (
            f" and a GPU{f' {self._gpu_type}' * bool(self._gpu_type)}" * self._is_cuda
        )
        told = "; ".join(f"{name}: {report.trouble}" for name, report in self._troubles.items())
        raise InfrastructureError(
            f"no node with {wanted} came free in {waited:.0f} s" + (f"; refused: {told}" if told else ""),
            remedy=next((report.remedy for report in self._troubles.values()), "")
            or "ray status shows what the cluster has and what is asked of it",
        )

    def _refuses(self, report: NodeReport, actor: Any) -> bool:
        """Whether a node is unfit; its actor is kept, so that the next one is another's."""
        with self._lock:
            trouble, remedy = report.trouble, report.remedy
            if not trouble and report.version != __version__:
                trouble = f"has pytest-cgins {report.version}, and this machine {__version__}"
                remedy = "install the same version"
            elif not trouble and report.gpu != (self._gpu or report.gpu):
                trouble = f"has {report.gpu}, and candidates are timed on {self._gpu}"
            if trouble:
                logger.warning("%s is not used: it %s", report.name, trouble)
                self._troubles[report.name] = replace(report, trouble=trouble, remedy=remedy)
                self._kept.append(actor)
            elif self._is_cuda and not self._gpu:
                self._gpu, self._gpu_type = report.gpu, self._type_on(report.node)
        return bool(trouble)

    def _type_on(self, node: str) -> str:
        """What Ray calls the GPUs of a node; "" if it does not know them."""
        found = [one["Resources"] for one in self._ray.nodes() if one["NodeID"] == node]
        named = (name for resources in found for name in resources if name.startswith(_TYPE))
        return next(named, "").removeprefix(_TYPE)


class RaySlot:
    """An actor."""

    def __init__(self, slots: RaySlots, actor: Any, name: str) -> None:
        self._slots = slots
        self._actor = actor
        self.name = name
        self._is_dead = False
        self.is_lost = False

    def answer(self, work: Work) -> tuple[EvaluationResult, Reports]:
        """See `Slot`."""
        ray = self._slots.ray
        try:
            # In a list they stay references: the node takes the files only if it has not seen the target.
            stored = [self._slots.stored(one) for one in (work.archives.project, work.archives.copy)]
            answer = self._actor.answer.remote(
                documents.dump(work.spec), stored, documents.dump(work.request)
            )
            text, reports = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise InfrastructureError(f"{self.name}: {error}", remedy="report this") from error
        except ray.exceptions.RayError as error:
            self._is_dead = True
            raise SlotLost(self.name, str(error).strip().partition("\n")[0]) from error
        return documents.load(EvaluationResult, text), reports

    def lose(self) -> None:
        """See `Slot`: of a living actor the GPU is lost."""
        self.is_lost = True
        if self._is_dead:
            self._slots.ray.kill(self._actor)
        else:
            self._slots.keep(self._actor)

    def close(self) -> None:
        """See `Slot`."""
        self._slots.end(self._actor)
