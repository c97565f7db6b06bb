"""The processes that cases are verified and timed in: started before they are asked, while nothing is being timed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import CginsError
from pytest_cgins.gate.devices import Devices
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.gate.verification_stage import AFTER_TIMING, UNINSTRUMENTED, role_of
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.kernel_run import KernelRuns
from pytest_cgins.run.pool import BASE_ONLY, UNGATED, WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseProcesses:
    """Knows which roles of workers a case needs."""

    pool: WorkerPool
    runs: KernelRuns
    requests: ReferenceRequests
    reference: ReferenceWorker
    bases: BaseKernels
    devices: Devices
    only_gains: bool
    """See `TimingOptions.only_gains`."""

    def warm(self) -> None:
        """Have all workers import torch at the same time, while something else is awaited."""
        self.reference.warm()
        self.pool.warm(["verification"])

    def start(self, role: str) -> None:
        """Start the imports of processes that verify or time, while nothing is being timed; errors are raised when they are used."""
        with suppress(CginsError, EndedError), self.verification_lock():
            self.pool.warm(self._of_cases(role))

    def wait_until_ready(self, role: str) -> None:
        """Wait until the processes of a role are ready for a case, while nothing is being timed; errors as in `start`."""
        with suppress(CginsError, EndedError), self.verification_lock():
            for name in self._of_cases(role):
                self.pool.start(name)
                if role == "timing":
                    self.runs.make_ready(name, self.requests.cases()[0].device)

    @contextmanager
    def verification_lock(self) -> Iterator[None]:
        """Hold the devices of all cases, with others that verify on them or start processes.

        Raises:
            EndedError: others time all the while, or there is no trusted worker.
        """
        self.devices.describe()
        with ExitStack() as stack:
            for device in sorted({case.device for case in self.requests.cases()}):
                stack.enter_context(self.reference.verification_lock(device))
            yield

    def _of_cases(self, role: str) -> list[str]:
        suffix = "/interpret" if any(map(self.requests.is_interpreted, self.requests.cases())) else ""
        if role != "timing":
            return [role + suffix]
        return self._after_verification(self.requests.cases()[0], f"verification{suffix}", f"timing{suffix}")

    def _after_verification(self, case: Case, verification: str, timing: str) -> list[str]:
        """Whose processes are asked about a right kernel, the one that times it first."""
        is_compared = self.bases.is_touched(*case.key)
        is_tested = is_compared or self.requests.entry(case).timing.floor_vs_torch
        roles = [timing if is_tested else timing + UNGATED]
        if self.only_gains:
            return roles
        if is_compared:
            roles.append(timing + BASE_ONLY)
        if AFTER_TIMING in self.requests.probes(case):
            roles.append(verification + UNINSTRUMENTED)
        return roles

    @contextmanager
    def beside(self, case: Case, compiled: CompiledKernel) -> Iterator[None]:
        """Start what a case needs; meanwhile they take hold of its GPU, which takes each about a second."""
        roles = [role_of("verification", compiled)]
        if self.requests.is_timed(case):
            roles += self._after_verification(case, roles[0], role_of("timing", compiled))
        fresh = [role for role in roles if not self.pool.has_run(role, compiled.key)]
        for role in fresh:
            self.pool.start_for(role, compiled.key)
        if not fresh or self.pool.is_local or not device_of(case.device).is_accelerator:
            yield
            return
        with ThreadPoolExecutor(len(fresh)) as pool:
            for role in fresh:
                pool.submit(self.runs.make_ready, role, case.device)
            yield

    def fresh(self, role: str, device: str) -> None:
        """Have a role served by a process without a past, with its imports and the context of a GPU behind it."""
        self.pool.discard(role)
        self.runs.make_ready(role, device)
