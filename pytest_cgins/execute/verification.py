"""The service that runs kernels on given inputs. It knows neither gold nor torch's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.errors import LaunchError, ProtocolError
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.execute.kernels import (
    KernelCache,
    import_from,
    is_lost,
    stream_of_its_own,
    use_device,
    wait_for_device,
    wait_for_stream,
)
from pytest_cgins.execute.tensors import pack, same_bytes, unpack
from pytest_cgins.execute.worker import describe
from pytest_cgins.kernels.callable import BoundCall, LoadedKernel
from pytest_cgins.model import Context, OpCall, TensorMeta
from pytest_cgins.trace.context import restore
from pytest_cgins.trace.ops import trust


class VerificationService:
    """Runs a kernel on sets of inputs and hands its outputs back, bit by bit as they lie."""

    def __init__(self, settings: dict[str, Any]) -> None:
        del settings
        self.fatal = False
        self._kernels = KernelCache()

    def run(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Run a kernel once on each set.

        Args:
            params: `kernel` (CompiledKernel), `device` (`cpu`, `cuda:0`), and `sets`, each with `name`,
                `call` (OpCall), `tensors` (as of `tensors.pack`), `outputs` (TensorMetas that a launcher's
                outputs are allocated by), `context` (Context) and, if any, `mutated` (indices of the tensors
                that the op itself changes).
            buffers: one a set.

        Returns:
            `{"sets": […]}` and one buffer a set. A set has `name`; `tensors`, the outputs and after them
            the mutated inputs; `devices`, one a tensor; `inputs_changed`, indices of tensors that the kernel
            changed though the op does not; `overrun`, what was written outside of outputs, or ""; and `error`, None or `phase`, `kind`, `message`, `remedy`,
            `trace`. The phase is `load`, `bind` (arguments are matched; no code of the kernel runs but a
            launcher's `_workspace`) or `run`: what a kernel raises as it runs cannot pass for a refusal
            of ours. With an error there are no tensors. Whatever the kernel raises stays in its set, and the
            sets after it are run, unless the GPU was lost.
        """
        sets, device = params["sets"], params["device"]
        if len(sets) != len(buffers):
            raise ProtocolError(f"{len(sets)} sets came with {len(buffers)} buffers")
        try:
            use_device(device)
            import_from(params.get("import_root", ""))
            trust(params["kernel"]["source"]["op"])
            kernel = self._kernels.load(params["kernel"])
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything at import
            answers = [_failed(one["name"], "load", describe(error)) for one in sets]
        else:
            # All are bound before the first runs: a kernel that runs cannot change how the others are bound.
            bound = [_bind(kernel, one, buffer, device) for one, buffer in zip(sets, buffers, strict=True)]
            answers = [
                self._run_set(one, ready, buffer, device)
                for one, ready, buffer in zip(sets, bound, buffers, strict=True)
            ]
            # What else was overwritten nobody knows: the next kernel gets another process.
            self.fatal = self.fatal or any(answer["overrun"] for answer, _ in answers)
        return {"sets": [answer for answer, _ in answers]}, [buffer for _, buffer in answers]

    def _run_set(
        self, one: dict[str, Any], bound: _Bound | Exception, buffer: Buffer, device: str
    ) -> tuple[dict[str, Any], Buffer]:
        if isinstance(bound, Exception):
            return _failed(one["name"], "bind", describe(bound))
        if self.fatal:
            return _failed(one["name"], "run", _NOT_RUN)
        try:
            inputs = bound.inputs
            mutated = one.get("mutated", [])
            with stream_of_its_own(device):
                outputs = _run_kernel(bound, device)
                tensors = [*map(_plain, outputs), *(inputs[index] for index in mutated)]
                header, packed = pack(tensors)
            wait_for_device(device)
            overrun = bound.call.overrun()
            changed = _changed(inputs, unpack(one["tensors"], buffer, device), mutated)
        except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
            self.fatal = is_lost(device)
            return _failed(one["name"], "run", describe(error))
        answer = {
            "name": one["name"],
            "tensors": header,
            "devices": [str(tensor.device) for tensor in tensors],
            "inputs_changed": changed,
            "overrun": overrun,
            "error": None,
        }
        return answer, packed


_NOT_RUN = {
    "kind": "NotRun",
    "message": "not run: an earlier set of inputs had broken the process",
    "remedy": "see that set's error first",
    "trace": "",
}


@dataclass(frozen=True, slots=True)
class _Bound:
    """A kernel with the arguments of one set."""

    inputs: list[torch.Tensor]
    call: BoundCall
    context: Context


def _bind(kernel: LoadedKernel, one: dict[str, Any], buffer: Buffer, device: str) -> _Bound | Exception:
    try:
        inputs = unpack(one["tensors"], buffer, device)
        call = documents.load_python(OpCall, one["call"])
        metas = [documents.load_python(TensorMeta, meta) for meta in one["outputs"]]
        context = documents.load_python(Context, one["context"])
        with restore(context, device.partition(":")[0]):
            return _Bound(inputs, kernel.bind(call, inputs, metas, device), context)
    except Exception as error:  # noqa: BLE001 - becomes the set's error
        return error


def _run_kernel(bound: _Bound, device: str) -> list[torch.Tensor]:
    with restore(bound.context, device.partition(":")[0]):
        outputs = bound.call.run()
    wait_for_stream(device)
    return outputs


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its subclass, whose code must not speak for its content."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.layout != torch.strided:
            raise LaunchError(
                f"the kernel returned a tensor with layout {tensor.layout}", remedy="return dense tensors"
            )
        return tensor.as_subclass(torch.Tensor)


def _changed(inputs: list[torch.Tensor], originals: list[torch.Tensor], mutated: list[int]) -> list[int]:
    """Indices of inputs that differ from what was sent; those that lie on a mutated one's span excepted."""
    allowed = {inputs[index].untyped_storage().data_ptr() for index in mutated}
    return [
        index
        for index, (tensor, original) in enumerate(zip(inputs, originals, strict=True))
        if tensor.untyped_storage().data_ptr() not in allowed and not same_bytes(tensor, original)
    ]


def _failed(name: str, phase: str, error: dict[str, Any]) -> tuple[dict[str, Any], Buffer]:
    header, packed = pack([])
    answer = {
        "name": name,
        "tensors": header,
        "devices": [],
        "inputs_changed": [],
        "overrun": "",
        "error": {**error, "phase": phase},
    }
    return answer, packed
