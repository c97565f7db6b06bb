"""The fixture `cgins_kernel`: a kernel as a callable on the test's own tensors, run in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins.app.session import results
from pytest_cgins.app.session.parametrize import check_selection, nearest_config, selection
from pytest_cgins.app.session.run import GateSession
from pytest_cgins.config import select
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import CginsError, ConfigError, InfrastructureError, LaunchError
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.reference_worker import REFERENCE_TIMEOUT_S
from pytest_cgins.gate.verification_stage import role_of
from pytest_cgins.report import escape
from pytest_cgins.verify.messages import AskOutputs, KernelAnswers, OutputMetas, PackedInputs, RunKernel, read

if TYPE_CHECKING:
    from torch import Tensor


class RemoteKernel:
    """Calls one kernel of `cgins.yaml` as if it were the op that it replaces.

    The kernel runs in a verification worker: a crash fails the test, not the run. Inputs are copied there,
    results are copied back; an input that the op mutates is not changed in the caller.
    """

    def __init__(
        self, evaluator: Evaluator, *, kernel: str, implementation: str | None, timeout_s: float
    ) -> None:
        self._evaluator = evaluator
        self._timeout_s = timeout_s
        self._implementation = implementation
        (self._entry,) = select(evaluator.config, [kernel])
        self._chosen = [one for one in self._entry.implementations if implementation in (None, one.name)]

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Run the kernel on the op's own arguments.

        The implementation is the marker's, else the first for the device of the first tensor argument.

        Returns:
            The output tensor, or a tuple where the op has several.

        Raises:
            LaunchError: the kernel raised or returned an error code.
            BuildError, SourceError: it cannot be built.
            WorkerError: it crashed its worker, or did not answer in time.
        """
        # The frames below this one are ours: the failing line of a test is the call of the kernel.
        __tracebackhide__ = True
        try:
            return self._checked_call(args, kwargs)
        except CginsError as error:
            raise error.with_traceback(None) from None

    def absent_device(self) -> str:
        """The device that the chosen implementations need and this machine lacks; "" if they can run."""
        devices = {one.device for one in self._chosen}
        return "" if any(device_of(device).count() for device in devices) else next(iter(devices), "")

    def _checked_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | tuple[Tensor, ...]:
        from pytest_cgins.core import tensors as transport
        from pytest_cgins.packs import backward, context, ops, signature

        op = self._entry.op
        ops.trust(op)
        call, leaves = signature.call_of(op, backward.resolve(op), args, kwargs)
        device = str(leaves[0].device) if leaves else self._chosen[0].device
        kernel = self._compiled(device.partition(":")[0])
        header, inputs = transport.pack(leaves)
        own, root = context.capture(), str(self._evaluator.config.root)
        request = AskOutputs(call=call, tensors=header, context=own, device=device, import_root=root)
        with inputs:
            return self._run(kernel, request, inputs)

    def _run(
        self, compiled: CompiledKernel, request: AskOutputs, inputs: Buffer
    ) -> Tensor | tuple[Tensor, ...]:
        from pytest_cgins.core import tensors as transport

        asked = documents.dump_python(request)
        reply = self._evaluator.pool.call(
            "reference", "output_metas", asked, [inputs], timeout_s=REFERENCE_TIMEOUT_S
        )
        outputs = read(OutputMetas, reply.result).outputs
        packed = PackedInputs(
            name="call", call=request.call, tensors=request.tensors, outputs=outputs, context=request.context
        )
        run = RunKernel(
            kernel=compiled, device=request.device, sets=(packed,), import_root=request.import_root
        )
        role, asked = role_of("verification", compiled), documents.dump_python(run)
        reply = self._evaluator.pool.call(
            role, "run", asked, [inputs], timeout_s=self._timeout_s, kernel=compiled.key
        )
        (answer,) = read(KernelAnswers, reply.result).sets
        if answer.error:
            raise LaunchError(
                f"kernel {self._entry.name!r} failed: {escape.lines(answer.error.message)}",
                remedy=escape.lines(answer.error.remedy),
            )
        with reply.buffers[0] as buffer:
            results = tuple(transport.unpack(answer.tensors, buffer, request.device))[: len(outputs)]
        return results[0] if len(results) == 1 else results

    def _compiled(self, device: str) -> CompiledKernel:
        fitting = [one.name for one in self._chosen if one.device == device]
        if not fitting:
            asked = f" {self._implementation!r}" if self._implementation else ""
            raise ConfigError(
                f"kernel {self._entry.name!r} has no implementation{asked} for {device}, where the tensors are",
                remedy=f"move the tensors to {self._chosen[0].device}",
            )
        return self._evaluator.kernel_builds.kernel(self._entry.name, fitting[0], device)


def remote_kernel(request: pytest.FixtureRequest) -> RemoteKernel:
    """Make the value of `cgins_kernel`."""
    gate = GateSession.of(request.config)
    try:
        wanted = selection(request.node)
        if "kernel" not in wanted:
            raise ConfigError(
                "cgins_kernel does not know which kernel to run",
                remedy='mark the test: @pytest.mark.cgins(kernel="…")',
            )
        evaluator = gate.evaluator(nearest_config(request.node.path, request.config.rootpath))
        check_selection(evaluator.config.kernels, wanted)
        kernel = RemoteKernel(
            evaluator,
            kernel=wanted["kernel"],
            implementation=wanted.get("implementation"),
            timeout_s=request.config.getoption("--cgins-timeout"),
        )
        absent = kernel.absent_device()
        if absent and request.config.getoption("--cgins-device") == absent:
            raise InfrastructureError(
                f"no {absent.upper()} device, and --cgins-device={absent} asks for it",
                remedy="`cgins doctor` says what is missing",
            )
        if absent:
            pytest.skip(f"kernel {wanted['kernel']!r}: no {absent} device on this machine")
        return kernel
    except CginsError as error:
        refused = str(error)
        if isinstance(error, InfrastructureError):
            results.excuse(request.node)
    # Not within the handler: pytest would print the error that is being handled as well.
    pytest.fail(escape.lines(refused), pytrace=False)
