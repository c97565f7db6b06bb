"""A call's work compared with what its device was measured to reach.

The model is Williams, Waterman and Patterson's ("Roofline", 2009): at best a call takes as long as its bytes at the
copy's bandwidth, or its operations at the rate of a product of matrices, whichever is longer. It tells and gates nothing:
what no right kernel can pass is `verify.probes.physical_floor`, which knows neither what cgins.yaml declares nor these peaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pytest_cgins.config import DeclaredWork
from pytest_cgins.core.case import Case
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.expression import ExpressionError, TensorFacts, amount, parse
from pytest_cgins.core.measurement import Roofline
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Context, OpCall, TensorMeta, Value
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.timing.nominal_work import nominal

LEEWAY = 1.15
"""Kernels that only read or only write pass a copy: on an H200 torch's sum by 2%, and fill by 10%."""


def roofline(
    call: OpCall,
    tensors: Sequence[TensorMeta],
    outputs: Sequence[TensorMeta],
    mutated: Iterable[int],
    declared: DeclaredWork,
    *,
    median_ns_per_call: float,
    dtype: str,
    tf32: bool,
    cache: Literal["cold", "warm"],
    peaks: MeasuredPeaks,
) -> tuple[Roofline | None, tuple[str, ...]]:
    """Where a call stands whose time is the kernel's median, with inputs from memory if the cache is cold.

    What `declared` says of its work comes before the op's signature; `dtype` is that of the factors of products, as of
    `factors_dtype`, and `tf32` whether those of fp32 may be rounded.

    Returns:
        The roofline and notes. It is None, with a note, where what is declared has no value for this call, and without
        one where there is no time or no work.
    """
    try:
        nbytes, flops = _declared(declared, call, tensors, outputs)
    except ExpressionError as error:
        return None, (f"no roofline: {error} (work of the kernel in cgins.yaml)",)
    work = nominal(call, tensors, outputs, mutated)
    nbytes = work.nbytes if nbytes is None else nbytes
    flops = work.flops if flops is None else flops
    if not (nbytes or flops) or not median_ns_per_call > 0:
        return None, ()
    rate = peaks.flops_per_s_of(dtype, tf32=tf32)
    seconds = median_ns_per_call / 1e9
    moving, computing = nbytes / peaks.copy_bytes_per_s, flops / rate if rate else 0.0
    found = Roofline(
        nbytes=nbytes,
        flops=flops,
        source="declared" if declared != DeclaredWork() else "signature",
        peak_bytes_per_s=peaks.copy_bytes_per_s,
        peak_flops_per_s=rate,
        share_of_bandwidth=moving / seconds,
        share_of_compute=computing / seconds,
        bound="compute" if computing > moving else "memory",
    )
    return found, tuple(_doubts(found, cache, declared))


def factors_dtype(case: Case, context: Context) -> str:
    """Type of the factors of products: the case's own, or what autocast makes of fp32."""
    if case.dtype != "float32":
        return case.dtype
    states = context.autocast
    # As in replay, autocast that was recorded on one device alone holds for the case's.
    here = (
        states
        if len(states) == 1
        else [state for state in states if case.device.startswith(state.device_type)]
    )
    return here[0].dtype if here else case.dtype


def _declared(
    declared: DeclaredWork, call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]
) -> tuple[int | None, int | None]:
    """Bytes and operations that are declared, each None where it is not."""
    nbytes, flops = (
        _evaluated(text, call, tensors, outputs) if text else None
        for text in (declared.nbytes, declared.flops)
    )
    return nbytes, flops


def _evaluated(text: str, call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> int:
    """What an expression counts for a call.

    Names are those of the op's arguments, `.` in them written `_` (`self.weight` is `self_weight`), a backward's
    `grad_output`, too; `out` is the only output, `outs` the list of all. An argument comes before either.

    Raises:
        ExpressionError: it has no value from 0 up to 2^63 for this call.
    """
    written = [_facts("out" if len(outputs) == 1 else f"outs[{i}]", meta) for i, meta in enumerate(outputs)]
    values: dict[str, Any] = {"outs": written}
    if len(written) == 1:
        values["out"] = written[0]
    for argument in call.arguments:
        name = argument.name.replace(".", "_")
        values[name] = _value(name, argument.value, tensors)
    return amount(parse(text), values)


def _facts(name: str, meta: TensorMeta) -> TensorFacts:
    return TensorFacts(name, meta.shape, meta.stride, meta.dtype, ITEMSIZE[meta.dtype])


def _value(name: str, value: Value, tensors: Sequence[TensorMeta]) -> Any:
    """A value as expressions know it; what they have no arithmetic for is a text."""
    match value.kind:
        case "tensor":
            index = int(value.value or 0)
            if index >= len(tensors):
                raise ExpressionError(f"{name} is not a tensor of the call")
            return _facts(name, tensors[index])
        case "float":
            return float.fromhex(str(value.value))
        case "tuple" | "list" | "size":
            return [_value(f"{name}[{i}]", item, tensors) for i, item in enumerate(value.items)]
        case "none" | "bool" | "int" | "str" | "dtype":
            return value.value
    return value.kind


def passes(found: Roofline, cache: Literal["cold", "warm"]) -> bool:
    """Whether a share is above 1 by more than measurements differ."""
    return found.share_of_compute > LEEWAY or (found.share_of_bandwidth > LEEWAY and cache == "cold")


def _doubts(found: Roofline, cache: Literal["cold", "warm"], declared: DeclaredWork) -> Iterable[str]:
    """What a share above 1 means: work that is not done, or a peak that was measured on a busy device."""
    nbytes_by, flops_by = (
        "cgins.yaml declares" if text else "its signature has" for text in (declared.nbytes, declared.flops)
    )
    if found.share_of_bandwidth > LEEWAY and cache == "cold":
        yield (
            f"roofline: {found.share_of_bandwidth:.0%} of the bandwidth of a copy, with inputs that no cache holds: the "
            f"call moves less than the {counted(found.nbytes, 'byte', grouped=True)} that {nbytes_by}, or the device was busy when its peaks were "
            "measured; say what it moves with work: {bytes: …}, or measure them again: cgins calibrate --peaks"
        )
    if found.share_of_compute > LEEWAY:
        yield (
            f"roofline: {found.share_of_compute:.0%} of what a product of matrices reaches: the call computes less than "
            f"the {counted(found.flops, 'operation', grouped=True)} that {flops_by}, or the device was busy when its peaks were measured; say what it "
            "computes with work: {flops: …}, or measure them again: cgins calibrate --peaks"
        )
