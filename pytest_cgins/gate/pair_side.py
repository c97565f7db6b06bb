"""One side of a comparison in two environments: inputs and answers of its kernels, and fresh processes to time them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.gate.verification_stage import Prepared, role_of
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.verify.messages import KernelAnswers, RunKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """The kernels of one `cgins.yaml` as they are built and run in one environment, without verdicts."""

    compiled: Callable[[Case], CompiledKernel]
    """The built kernel of a case; EndedError if it cannot be built."""
    requests: ReferenceRequests
    """What the trusted worker must know of a case."""
    reference: ReferenceWorker
    """The trusted worker."""
    runs: KernelRuns
    """Asks this environment's workers."""
    pool: WorkerPool
    """Those workers."""
    import_root: str
    """Folder that kernels' modules are imported from."""
    timeout_s: float
    """Limit of a request to one."""

    def inputs(self, case: Case, buffers: ExitStack) -> list[Pair]:
        """Sets of inputs that a case may be timed on, whose buffers `buffers` closes.

        Raises:
            EndedError: it cannot be prepared.
        """
        request = replace(self.requests.for_case(case), probes=())
        with self.reference.verification_lock(case.device):
            reply = buffers.enter_context(closing(self.reference.prepare(request)))
        return kernel_timing.timeable(reply.result.sets, reply.buffers)

    def core(self, case: Case, buffers: ExitStack) -> tuple[Prepared, list[Pair]]:
        """A case as it was prepared for its verification, and its sets of inputs without those of probes; errors as of `inputs`."""
        request = self.requests.for_case(case)
        with self.reference.verification_lock(case.device):
            prepared = Prepared(request, buffers.enter_context(closing(self.reference.prepare(request))))
        return prepared, [pair for pair in prepared.pairs if not pair[0].probe]

    def answers(self, case: Case, pairs: Sequence[Pair]) -> Reply[KernelAnswers]:
        """What a case's kernel answers to some sets of inputs, in a process that runs nothing else; the caller closes it.

        Raises:
            EndedError: it fails.
        """
        compiled = self.compiled(case)
        request = RunKernel(kernel=compiled, device=case.device, import_root=self.import_root)
        with self.reference.verification_lock(case.device):
            return self.runs.run(f"{role_of('verification', compiled)}/compared", request, pairs)[0]

    def fresh_process(self, role: str, device: str) -> None:
        """Have a role served by a process without a past, with its imports and the context of a GPU behind it."""
        self.pool.discard(role)
        self.runs.make_ready(role, device, timeout_s=self.timeout_s)
