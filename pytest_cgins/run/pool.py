"""The workers of a session, one a role: started when first needed, replaced when they die."""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import WorkerCrashed
from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.forking import OWN, Interpreter
from pytest_cgins.run.launch import Wrap
from pytest_cgins.run.limits import Limits
from pytest_cgins.run.process import START_TIMEOUT_S, Reply, WorkerProcess, service_error
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.worker import describe, make_service, method_of

logger = logging.getLogger(__name__)
SERVICES: Mapping[str, str] = {
    "verification": "pytest_cgins.run.verification_service:VerificationService",
    "timing": "pytest_cgins.run.timing_service:TimingService",
    "ranks": "pytest_cgins.run.rank_service:RankService",
    "timed-ranks": "pytest_cgins.run.rank_service:RankService",
    "reference": "pytest_cgins.verify.judge:JudgeService",
}
"""Service of each role. What runs a kernel never shares a process with what knows the answers."""
TRUSTED = frozenset({"reference"})
"""Roles that run no kernel: they know the answers, so nobody may look into them, and nothing is put around them."""
MEASURING = frozenset({"timing", "timed-ranks"})
"""Roles whose processes are not forked. Times depend on where code and memory lie: forks have that in common, and a
confirmation in another process is to be another draw (see `timing/process_noise.py`)."""

UNGATED = "/ungated"
"""Role suffix of a process that times a kernel without a sequential test, so it may be forked."""
BASE_ONLY = "/base-only"
"""Role suffix of a process that times the base and never loads the kernel. Its limits are wider than what forks have in common,
so it may be forked."""

Isolation = Literal["process", "none"]
"""Where services that run kernels live: in worker processes, or in this process, for debuggers."""


class WorkerPool:
    """Workers by role.

    A role may carry a variant after a slash, `verification/interpret`: the same service in a process of its
    own. A worker that died costs the request that it was serving, and the next call starts a new one.
    Threads may share a pool: requests to one worker wait for each other.
    """

    def __init__(
        self,
        *,
        services: Mapping[str, str] = SERVICES,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        wrap: Wrap | None = None,
        sandbox: Sandbox | None = None,
        isolation: Isolation = "process",
        interpreter: Interpreter = OWN,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """A pool without workers as yet.

        `wrap` and `sandbox` are put around workers that run kernels, by `interpreter`. With isolation `none` these are called in
        this process; trusted roles keep their own.
        """
        self._services = services
        self._env = env
        self._limits = limits
        self._wrap = wrap
        self._sandbox = sandbox
        self._isolation = isolation
        self._interpreter = interpreter
        self._start_timeout_s = start_timeout_s
        # Most of what a judge imports is torch, which is there; two processes that import it take 1.4 s of CPU more.
        alone = wrap is not None or sandbox is not None
        self._shares_imports = not alone and isolation == "process" and "verification" in services
        self._workers: dict[str, WorkerProcess | LocalWorker] = {}
        self._kernels: dict[str, str] = {}
        self._starts = threading.RLock()
        self._turns: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._is_ended = False

    def call(
        self,
        role: str,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        kernel: str = "",
        extends: bool = True,
    ) -> Reply[Any]:
        """Call a method of the role's service; errors are those of `WorkerProcess.call`, buffers stay the caller's.

        A worker that has run another kernel is ended first, for it may have been left with that one's doing: patched functions,
        damaged memory, changed modes. `extends` says whether who compiles has the limit some times over.
        """
        with self._turn(role):
            if kernel and self._kernels.get(role, kernel) != kernel:
                self.discard(role)
            worker = self._worker(role)
            if kernel:
                self._kernels[role] = kernel
            return worker.call(method, params, buffers, timeout_s=timeout_s, extends=extends)

    @property
    def is_wrapped(self) -> bool:
        """Whether workers that run kernels are in a sandbox, or another program is around them."""
        return self._wrap is not None or self._sandbox is not None

    @property
    def is_local(self) -> bool:
        """Whether kernels run in this process."""
        return self._isolation == "none"

    def has_run(self, role: str, kernel: str) -> bool:
        """Whether a call of this kernel goes to a process that has run it before."""
        worker = self._workers.get(role)
        return self._kernels.get(role) == kernel and worker is not None and worker.alive

    def start_for(self, role: str, kernel: str) -> None:
        """Start one role as `warm` does; a process that has run another kernel is ended first."""
        with self._turn(role):
            if self._kernels.get(role, kernel) != kernel:
                self.discard(role)
            self.warm([role])

    def stopped(self, role: str) -> AbstractContextManager[None]:
        """Keep the processes of a role's worker from running meanwhile."""
        worker = self._workers.get(role)
        return worker.stopped() if isinstance(worker, WorkerProcess) else nullcontext()

    def warm(self, roles: Iterable[str]) -> None:
        """Start the processes now, so that they import in parallel, and wait for none of them."""
        for role in roles:
            self._worker(role)

    def start(self, role: str) -> None:
        """Start one role as `warm` does and wait for its imports; errors are those of `call`."""
        with self._turn(role):
            worker = self._worker(role)
            if isinstance(worker, WorkerProcess):
                worker.wait_until_started()

    def end(self) -> None:
        """Kill all workers, also while other threads wait for their answers: these calls fail, and all that follow."""
        with self._starts:
            self._is_ended = True
            for worker in self._workers.values():
                if isinstance(worker, WorkerProcess):
                    worker.kill()

    def kill(self, role: str) -> None:
        """Kill a role's worker while another thread waits for its answer, which fails."""
        worker = self._workers.get(role)
        if isinstance(worker, WorkerProcess):
            worker.kill()

    def discard(self, role: str) -> None:
        """End the role's worker, if there is one: its next call gets a process without a past."""
        self._kernels.pop(role, None)
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _turn(self, role: str) -> threading.RLock:
        with self._starts:
            return self._turns[role]

    def _worker(self, role: str) -> WorkerProcess | LocalWorker:
        with self._starts:
            if self._is_ended:
                raise WorkerCrashed(
                    f"the {role} worker was ended with its run",
                    remedy="run again",
                    fault=Reason.WORKER_LOST.value,
                )
            worker = self._workers.get(role)
            if worker is None or not worker.alive:
                if worker is not None:
                    logger.debug("%s: process %d cannot be used any more and is replaced", role, worker.pid)
                self.discard(role)
                atexit.register(self.close)
                worker = self._workers[role] = self._start(role)
            return worker

    def _start(self, role: str) -> WorkerProcess | LocalWorker:
        service_name = role.partition("/")[0]
        trusted = service_name in TRUSTED
        if self._isolation == "none" and not trusted:
            return LocalWorker(self._services[service_name], name=role)
        return WorkerProcess.start(
            self._services[service_name],
            name=role,
            env=self._env,
            limits=self._limits,
            wrap=None if trusted else self._wrap,
            sandbox=None if trusted else self._sandbox,
            shielded=trusted,
            fork=service_name not in MEASURING or role.endswith((BASE_ONLY, UNGATED)),
            imports=self._services["verification"].partition(":")[0]
            if service_name != "verification" and self._shares_imports
            else "",
            interpreter=OWN if trusted else self._interpreter,
            start_timeout_s=self._start_timeout_s,
        )


class LocalWorker:
    """A service in pytest's own process, for debuggers: what `WorkerProcess` does, without any isolation.

    A crash ends the run, a hang hangs it, and no limit holds. What the service prints goes where pytest's own output goes.
    It is made, and torch imported, at the first call.
    """

    alive = True
    """The service always lives: it ends only with pytest."""

    def __init__(self, service: str, *, name: str) -> None:
        self.name = name
        self._made_of = service
        self._service: Any = None

    @property
    def pid(self) -> int:
        """The process id of pytest itself."""
        return os.getpid()

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        extends: bool,
    ) -> Reply[Any]:
        """Call a method of the service. `timeout_s` is not kept to: nobody could end the call.

        Raises:
            ServiceError: the service raised.
            KeyboardInterrupt: the user wants to stop.
        """
        del timeout_s, extends
        try:
            if self._service is None:
                self._service = make_service(self._made_of)
            result, answered = method_of(self._service, method)(_plain(params), list(buffers))
            return Reply(_plain(result), tuple(answered))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise service_error(self.name, describe(error)) from error
        finally:
            if getattr(self._service, "fatal", False):
                self._service = None

    def close(self) -> None:
        """Forget the service; the next call makes a new one."""
        self._service = None


def _plain(value: Any) -> Any:
    """What would arrive on the other side of a pipe: plain JSON values, and no object of ours."""
    return json.loads(json.dumps(value, allow_nan=False))
