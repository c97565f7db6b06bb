"""A Ray cluster as executor: an actor a slot, which has a whole GPU of the type that the target was gated on, or some cores.

A fraction of a GPU would be no slot: a kernel is timed alone on its device. The driver keeps count of nothing but its queue:
actors that the cluster has no room for wait, which is what makes an autoscaler add nodes. No key and no environment
travels, only requests and answers and, once a node, the project's files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from pytest_cgins import __version__
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError, InfrastructureError
from pytest_cgins.regenerate.candidate_pool import CORES
from pytest_cgins.regenerate.executor.base import Executor
from pytest_cgins.regenerate.executor.dispatch import Answer, Dispatcher, Work
from pytest_cgins.regenerate.executor.ray_node import NodeActor, NodeReport

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
        _connect(self.address)
        self._dispatchers: dict[DeviceName, Dispatcher] = {}

    def dispatcher(self, device: DeviceName) -> Dispatcher:
        """See `Executor`."""
        if device not in self._dispatchers:
            slots = RaySlots(device, fenced=self.settings.sandbox is not None, cache=self.settings.cache)
            self._stack.callback(slots.close)
            self._dispatchers[device] = Dispatcher(slots.open, MOST_SLOTS)
            self._stack.callback(self._dispatchers[device].close)
        return self._dispatchers[device]

    def stored(self, archive: bytes) -> Any:
        """See `Executor`: each node fetches it once, from wherever it is."""
        return ray.put(archive)

    def close(self) -> None:
        """See `Executor`."""
        self.stop()
        ray.shutdown()


def _connect(address: str) -> None:
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray's own are many, and none of them says what the option was
        where = f"at {address}" if address else "that this machine belongs to"
        told = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--cgins-executor=ray: no cluster {where}: {told}",
            remedy="ray start --head makes one of this machine; ray=ADDRESS names another's head, as HOST:6379",
        ) from error


class RaySlots:
    """Opens slots of one device type; all of them are on the same type of GPU, that of the first.

    Args:
        device: what candidates are for.
        fenced: whether they run in a sandbox.
        cache: folder of built kernels on the nodes, by default the user's.
    """

    def __init__(self, device: DeviceName, *, fenced: bool, cache: Path | None) -> None:
        self._is_cuda = device == "cuda"
        self._arguments = (fenced, self._is_cuda, cache)
        self._lock = threading.Lock()
        self._gpu = self._gpu_type = ""
        self._kept: list[Any] = []
        self._troubles: dict[str, NodeReport] = {}

    def open(self, is_wanted: Callable[[], bool]) -> RaySlot | None:
        """A slot, once the cluster has room for one and its node is fit; None if it is not wanted any more.

        Raises:
            InfrastructureError: there is none for long.
        """
        started = time.monotonic()
        while is_wanted():
            # Two calls at once: `close` ends what `answer` is doing.
            options: dict[str, Any] = {"num_cpus": CORES, "max_restarts": 0, "max_concurrency": 2}
            options |= {"num_gpus": 1} if self._is_cuda else {}
            options |= {"accelerator_type": self._gpu_type} if self._gpu_type else {}
            actor = ray.remote(NodeActor).options(**options).remote(*self._arguments)
            report = self._report(actor, is_wanted, started)
            if report is None:
                # Its process or node died at the start. A GPU may be given out before it is free (ray#44821): not at once.
                ray.kill(actor)
                time.sleep(_POLL_S)
            elif self._is_fit(report):
                return RaySlot(actor, report.name, self._kept)
            else:
                self._kept.append(actor)  # so that the next one is another's
        return None

    def close(self) -> None:
        """End those that were kept."""
        for actor in self._kept:
            _end(actor)
        self._kept.clear()

    def _report(self, actor: Any, is_wanted: Callable[[], bool], started: float) -> NodeReport | None:
        """What an actor says, once it is started; None if it died, or is not wanted any more."""
        ready = actor.report.remote()
        try:
            while not ray.wait([ready], timeout=_POLL_S)[0]:
                if not is_wanted():
                    return None
                self._require_hope(actor, started)
            report: NodeReport = ray.get(ready)
        except RayError as error:
            logger.info("an actor died at its start: %s", error)
            self._require_hope(actor, started)
            return None
        return report

    def _require_hope(self, actor: Any, started: float) -> None:
        waited = time.monotonic() - started
        if waited < (REFUSED_WAIT_S if self._troubles else NODE_WAIT_S):
            return
        ray.kill(actor)
        wanted = f"{CORES} cores" + (
            f" and a GPU{f' {self._gpu_type}' * bool(self._gpu_type)}" * self._is_cuda
        )
        told = "; ".join(f"{name}: {report.trouble}" for name, report in self._troubles.items())
        raise InfrastructureError(
            f"no node with {wanted} came free in {waited:.0f} s" + (f"; refused: {told}" if told else ""),
            remedy=next((report.remedy for report in self._troubles.values()), "")
            or "ray status shows what the cluster has and what is asked of it",
        )

    def _is_fit(self, report: NodeReport) -> bool:
        """Whether a node is, and like the first one that was."""
        with self._lock:
            if not report.trouble and report.version != __version__:
                trouble = f"has pytest-cgins {report.version}, and this machine {__version__}"
                report = replace(report, trouble=trouble, remedy="install the same version")
            elif not report.trouble and report.gpu != (self._gpu or report.gpu):
                trouble = f"has {report.gpu}, and candidates are timed on {self._gpu}"
                report = replace(report, trouble=trouble)
            if report.trouble:
                logger.warning("%s is not used: it %s", report.name, report.trouble)
                self._troubles[report.name] = report
            elif self._is_cuda and not self._gpu:
                self._gpu, self._gpu_type = report.gpu, _type_on(report.node)
        return not report.trouble


def _type_on(node: str) -> str:
    """What Ray calls the GPUs of a node; "" if it does not know them."""
    found = [one["Resources"] for one in ray.nodes() if one["NodeID"] == node]
    named = (name for resources in found for name in resources if name.startswith(_TYPE))
    return next(named, "").removeprefix(_TYPE)


def _end(actor: Any) -> None:
    """End an actor and its processes."""
    with suppress(RayError):
        ray.wait([actor.close.remote()], timeout=_CLOSE_S)
    ray.kill(actor)


class RaySlot:
    """An actor. One whose GPU is lost is kept until the run ends, so that nobody is given it again."""

    def __init__(self, actor: Any, name: str, kept: list[Any]) -> None:
        self.name = name
        self.is_lost = False
        self._actor, self._kept, self._is_dead = actor, kept, False

    def answer(self, work: Work[Any]) -> Answer[Any]:
        """See `Slot`."""
        try:
            answer: Answer[Any] = ray.get(self._actor.answer.remote(work))
        except RayTaskError as error:
            raise InfrastructureError(f"{self.name}: {error}", remedy="report this") from error
        except RayError as error:
            self._is_dead = True
            answer = Answer(id=work.id, node=self.name, lost=str(error).strip().partition("\n")[0])
        self.is_lost = bool(answer.lost)
        return answer

    def stop(self) -> None:
        """See `Slot`."""
        self._is_dead = True
        _end(self._actor)

    def close(self) -> None:
        """See `Slot`."""
        if self._is_dead:  # whom nobody asks to end: the wait for an answer would be long
            ray.kill(self._actor)
        elif self.is_lost:
            self._kept.append(self._actor)
        else:
            _end(self._actor)
