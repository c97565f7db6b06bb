"""A Ray cluster of three nodes on this machine, whose nodes can be killed. Nothing of it is left when it is closed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

STORE_NBYTES = 80 << 20
"""Of a node's object store: the least that Ray takes."""
_SETTINGS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
    "enable_worker_prestart": False,
}
"""A node that is gone is known as such after seconds, not half a minute; no processes start before they are needed."""


class RayNodes:
    """A head without cores and two or more nodes with two cores each: one slot a node."""

    def __init__(self, nodes: int = 2, **environment: str) -> None:
        # Sockets lie in it, whose paths may have no more than about a hundred characters.
        self._folder = Path(tempfile.mkdtemp(prefix="cgins-ray-", dir="/tmp"))
        (self._folder / "ray").mkdir()
        self._environment = {
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(self._folder), "TMPDIR": str(self._folder), **environment
        }  # fmt: skip
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self.add(0, {"_system_config": _SETTINGS})
        for _ in range(nodes):
            self.add()

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(self, *_: object) -> None:
        # Some start others until they are gone themselves.
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        for node in self._cluster.list_all_nodes():
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def executor(self) -> str:
        """The `--cgins-executor` that names it."""
        return f"ray={self._cluster.address}"

    def add(self, num_cpus: int = 2, settings: Mapping[str, Any] | None = None, **environment: str) -> None:
        """One more node."""
        before = dict(os.environ)
        os.environ.update(self._environment, **environment)
        try:
            self._cluster.add_node(
                num_cpus=num_cpus,
                object_store_memory=STORE_NBYTES,
                include_dashboard=False,
                **(settings or {}),
            )
        finally:
            os.environ.clear()
            os.environ.update(before)

    def processes(self) -> dict[int, str]:
        """Living processes of the cluster, with their command lines; they all have its folder in their environment or words."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (place / "cmdline").read_bytes()
                if str(self._folder).encode() in line + (place / "environ").read_bytes():
                    found[int(place.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found

    def answering(self) -> list[int]:
        """Actors that are evaluating something; what they start has their name until it runs a program of its own."""
        named = [pid for pid, line in self.processes().items() if line.startswith("ray::NodeActor.answer")]
        found = []
        for pid in named:
            with suppress(OSError):
                if _parent(pid) not in named:
                    found.append(pid)
        return found

    def kill_node_of(self, actor: int) -> None:
        """Kill -9 the raylet of an actor, and all that it started."""
        raylet = _parent(actor)
        for pid in [raylet, *_below(raylet)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _below(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    children: Mapping[int, list[int]] = {}
    for line in listed.stdout.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)  # type: ignore[attr-defined]
    found, todo = [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found
