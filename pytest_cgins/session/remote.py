"""The fixture `cgins_kernel`: a kernel as a callable on the test's own tensors, run in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_cgins import documents
from pytest_cgins.errors import CginsError, ConfigError, LaunchError
from pytest_cgins.evaluate import Evaluator
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.kernels.build import build, default_cache
from pytest_cgins.model import Argument, CompiledKernel, OpCall
from pytest_cgins.session.parametrize import nearest_config, selection
from pytest_cgins.session.run import GateSession
from pytest_cgins.text import nearest

if TYPE_CHECKING:
    from torch import Tensor


class RemoteKernel:
    """Calls one kernel of `cgins.yaml` as if it were the op that it replaces.

    The kernel runs in a verification worker: a crash fails the test, not the run. Inputs are copied there,
    results are copied back; an input that the op mutates is not changed in the caller.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        kernel: str,
        implementation: str | None,
        timeout_s: float,
    ) -> None:
        self._evaluator = evaluator
        self._pool = evaluator.pool
        self._timeout_s = timeout_s
        self._implementation = implementation
        entries = {entry.name: entry for entry in evaluator.config.kernels}
        if kernel not in entries:
            raise ConfigError(
                f"{evaluator.config.file} has no kernel {kernel!r}",
                remedy=nearest(kernel, entries) or f"it has {', '.join(entries)}",
            )
        self._entry = entries[kernel]

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
        from pytest_cgins.execute import tensors as transport
        from pytest_cgins.trace import context, ops, signature, values

        leaves: list[Tensor] = []
        ops.trust(self._entry.op)
        function = ops.resolve(self._entry.op)
        arguments = tuple(
            Argument(name=name, value=values.encode(value, leaves), passed=passed)
            for name, value, passed in signature.bind(function, args, kwargs)
        )
        device = str(leaves[0].device) if leaves else self._entry.implementations[0].device
        call = documents.dump_python(OpCall(op=self._entry.op, arguments=arguments))
        described, inputs = transport.pack(leaves)
        around = documents.dump_python(context.capture())
        with inputs:
            return self._run(device, {"call": call, "tensors": described, "context": around}, inputs)

    def _run(self, device: str, request: dict[str, Any], inputs: Buffer) -> Tensor | tuple[Tensor, ...]:
        from pytest_cgins.execute import tensors as transport

        root = {"import_root": str(self._evaluator.config.root), "device": device}
        reply = self._call("reference", "output_metas", {**request, **root}, inputs)
        one_set = {"name": "call", **request, "outputs": reply["outputs"]}
        kernel = documents.dump_python(self._compiled(device.partition(":")[0]))
        answer = self._pool.call(
            "verification",
            "run",
            {"kernel": kernel, "sets": [one_set], **root},
            [inputs],
            timeout_s=self._timeout_s,
        )
        (result,) = answer.result["sets"]
        if result["error"]:
            raise LaunchError(
                f"kernel {self._entry.name!r} failed: {result['error']['message']}",
                remedy=result["error"]["remedy"],
            )
        with answer.buffers[0] as buffer:
            outputs = tuple(transport.unpack(result["tensors"], buffer, device))[: len(reply["outputs"])]
        return outputs[0] if len(outputs) == 1 else outputs

    def _call(self, role: str, method: str, params: dict[str, Any], inputs: Buffer) -> Any:
        return self._pool.call(role, method, params, [inputs], timeout_s=self._timeout_s).result

    def _compiled(self, device: str) -> CompiledKernel:
        known = [one.name for one in self._entry.implementations if one.device == device]
        chosen = [name for name in known if self._implementation in (None, name)]
        if not chosen:
            asked = f" {self._implementation!r}" if self._implementation else ""
            raise ConfigError(
                f"kernel {self._entry.name!r} has no implementation{asked} for {device}",
                remedy=f"for {device} it has {', '.join(known) or 'none'}",
            )
        return build(self._evaluator.source(self._entry.name, chosen[0], device), cache=default_cache())


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
        return RemoteKernel(
            gate.evaluator(nearest_config(request.node.path, request.config.rootpath)),
            kernel=wanted["kernel"],
            implementation=wanted.get("implementation"),
            timeout_s=request.config.getoption("--cgins-timeout"),
        )
    except CginsError as error:
        pytest.fail(str(error), pytrace=False)
