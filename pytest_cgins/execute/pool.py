"""The workers of a session, one a role: started when first needed, replaced when they die."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.process import Reply, WorkerProcess

logger = logging.getLogger(__name__)
SERVICES: Mapping[str, str] = {
    "verification": "pytest_cgins.execute.verification:VerificationService",
    "timing": "pytest_cgins.execute.timing:TimingService",
    "reference": "pytest_cgins.verify.judge:JudgeService",
}
"""Service of each role. What runs a kernel never shares a process with what knows the answers."""


class WorkerPool:
    """Workers by role.

    A role may carry a variant after a slash, `verification/interpret`: the same service in a process of its
    own. A worker that died costs the request that it was serving, and the next call starts a new one.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        services: Mapping[str, str] = SERVICES,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` go to every service's constructor, `env` is added to every worker's environment."""
        self._settings = dict(settings or {})
        self._services = services
        self._env = env
        self._workers: dict[str, WorkerProcess] = {}

    def call(
        self,
        role: str,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Reply:
        """Call a method of the role's service; errors are those of `WorkerProcess.call`."""
        return self._worker(role).call(method, params, buffers, timeout_s=timeout_s)

    def warm(self, roles: Iterable[str]) -> None:
        """Start the processes now, so that they import in parallel, and wait for none of them."""
        for role in roles:
            self._worker(role)

    def discard(self, role: str) -> None:
        """End the role's worker, if there is one: its next call gets a process without a past."""
        worker = self._workers.pop(role, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End all workers; the pool can be used again afterwards."""
        for role in list(self._workers):
            self.discard(role)
        atexit.unregister(self.close)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _worker(self, role: str) -> WorkerProcess:
        worker = self._workers.get(role)
        if worker is None or not worker.alive:
            if worker is not None:
                logger.debug("%s: process %d is gone and is replaced", role, worker.pid)
            self.discard(role)
            atexit.register(self.close)
            worker = self._workers[role] = WorkerProcess.start(
                self._services[role.partition("/")[0]], name=role, env=self._env, settings=self._settings
            )
        return worker
