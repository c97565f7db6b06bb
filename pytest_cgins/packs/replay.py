"""Running a trace again, and comparing with what it recorded."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from pytest_cgins.core.device import usable_device
from pytest_cgins.core.errors import ReplayError, TraceError
from pytest_cgins.core.layout import metas_of, rebuild
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Storage, TensorMeta, Trace
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.context import neutral, restore
from pytest_cgins.packs.gold import GoldValues, load_gold, to_bytes
from pytest_cgins.packs.recipe import BlobSource, generate
from pytest_cgins.packs.statistics import summarize

_ULPS = 64


def load_inputs(trace: Trace, source: BlobSource, device: torch.device | str) -> list[torch.Tensor]:
    """The argument tensors, laid out and aliased as recorded, on fresh memory of `device`.

    Raises:
        PackError: if a blob is damaged, or a recipe made other bytes than on the recording host.
        ReplayError: for a trace of tier `shapes`, which has no values.
    """
    with neutral():
        spans = []
        for storage in trace.storages:
            if storage.nbytes and storage.recipe is None and storage.blob is None:
                raise ReplayError(
                    f"{trace.call.op} {trace.signature} was recorded with tier shapes: it has no values",
                    remedy="record again with tier='recipe' or 'full'",
                )
            made = generate(storage, source) if storage.recipe is not None else None
            spans.append(load_blob(storage, source) if made is None else torch.from_numpy(made))
        return rebuild(trace.tensors, spans, device)


def load_blob(storage: Storage, source: BlobSource) -> torch.Tensor:
    """The span of a storage whose bytes were kept, or of an empty one: uint8, (nbytes,), on the CPU."""
    if storage.blob is None or not storage.nbytes:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return torch.frombuffer(bytearray(source.read(storage.blob)), dtype=torch.uint8)


def run(trace: Trace, tensors: Sequence[torch.Tensor]) -> object:
    """Run the op on argument tensors in the recorded context.

    Autograd follows the arguments that it followed when the call was recorded: some ops choose their
    kernel by it.
    """
    device = tensors[0].device.type if tensors else trace.origin.device
    with restore(trace.context, device):
        own = tensors if is_derived(trace.call.op) else _followed(trace.tensors, tensors)
        return invoke(trace.call, own)


def _followed(metas: Sequence[TensorMeta], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors on the same memory, those with `requires_grad` as results of an op: leaves are not changed in place.

    Without gradients leaves may be: matmul looks at `requires_grad` even then.
    """
    if not any(meta.requires_grad for meta in metas):
        return list(tensors)
    source = torch.zeros((), requires_grad=True)
    followed = list(tensors)
    for index, (meta, tensor) in enumerate(zip(metas, tensors, strict=True)):
        if meta.requires_grad and not torch.is_grad_enabled():
            followed[index] = tensor.detach().requires_grad_()
        elif meta.requires_grad:
            place = (tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
            followed[index] = _Result.apply(source, tensor.new_empty(0).set_(*place))  # type: ignore[no-untyped-call]
    return followed


class _Result(torch.autograd.Function):
    """Makes a tensor the result of an op on another one."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, None]:  # noqa: ARG004
        return None, None


def recording_device(trace: Trace) -> str:
    """Where the trace was recorded, if this host has it, else the CPU."""
    return usable_device([trace.origin.device])


def check(trace: Trace, source: BlobSource, device: str | None = None) -> Literal["bitwise", "derived"]:
    """Replay a trace and compare with its gold.

    `bitwise`: form, recorded elements and the statistics of all elements are the same. `derived`: every
    recorded element is within 64 ulps at the scale of its tensor (|y − gold| ≤ 64·eps·max(|gold|, rms)),
    as another device or torch version may give.

    Raises:
        ReplayError: if it is neither; naming op, signature and the worst element.
    """
    inputs = load_inputs(trace, source, device or recording_device(trace))
    try:
        _, outputs = flatten(run(trace, inputs))
    except TraceError as error:
        raise ReplayError(
            f"{trace.call.op} {trace.signature} cannot be replayed: {error.what}", remedy=error.remedy
        ) from error
    except Exception as error:
        raise ReplayError(
            f"{trace.call.op} {trace.signature} cannot be replayed: {type(error).__name__}: {error}",
            remedy="run in the environment that recorded it, or record it again",
        ) from error
    mutated = trace.gold.mutated if trace.gold is not None else ()
    results = [*outputs, *(inputs[index] for index, _ in mutated)]
    gold = load_gold(trace, source)
    if len(results) != len(gold):
        raise _differs(trace, f"{counted(len(results), 'tensor')} came out, {len(gold)} are recorded")
    with neutral():
        metas = metas_of(results)
        same = [
            _compare(trace, number, tensor, meta, recorded)
            for number, (tensor, meta, recorded) in enumerate(zip(results, metas, gold, strict=True))
        ]
    return "bitwise" if all(same) else "derived"


def is_nondeterministic(trace: Trace, source: BlobSource) -> bool:
    """Whether torch says of this call that it may give another result each time."""
    watched = replace(trace, context=replace(trace.context, deterministic=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(watched, load_inputs(trace, source, recording_device(trace)))
    return any("determinis" in str(warning.message) for warning in caught)


def _compare(trace: Trace, number: int, tensor: torch.Tensor, meta: TensorMeta, gold: GoldValues) -> bool:
    """Whether one tensor is bitwise its gold.

    Raises:
        ReplayError: if it is not even within the tolerance.
    """
    recorded = gold.recorded.meta
    if (meta.dtype, meta.shape) != (recorded.dtype, recorded.shape):
        raise _differs(
            trace,
            f"output {number} is {meta.dtype} {list(meta.shape)}, recorded is "
            f"{recorded.dtype} {list(recorded.shape)}",
        )
    values = tensor.detach().reshape(-1)[gold.positions.to(tensor.device)].cpu()
    if to_bytes(values) == to_bytes(gold.values) and summarize(tensor) == gold.recorded.statistics:
        return True
    index = _worst_beyond(values, gold)
    if index is not None:
        position = int(gold.positions[index])
        raise _differs(
            trace,
            f"output {number}, element {position}: got {values[index].item()}, "
            f"recorded is {gold.values[index].item()}",
        )
    return False


def _worst_beyond(values: torch.Tensor, gold: GoldValues) -> int | None:
    """Index of the element farthest outside the tolerance, or None if all are within."""
    if not (values.is_floating_point() or values.is_complex()):
        wrong = (values != gold.values).nonzero()
        return int(wrong[0]) if len(wrong) else None
    wide = torch.complex128 if values.is_complex() else torch.float64
    got, wanted = values.to(wide), gold.values.to(wide)
    statistics = gold.recorded.statistics
    scale = torch.clamp(wanted.abs(), min=(statistics.mean**2 + statistics.std**2) ** 0.5)
    excess = (got - wanted).abs() / (_ULPS * torch.finfo(values.dtype).eps * scale)
    agree = (got == wanted) | (got.isnan() & wanted.isnan())
    excess = torch.where(agree, 0.0, torch.nan_to_num(excess, nan=torch.inf, posinf=torch.inf))
    worst = int(excess.argmax()) if len(excess) else 0
    return worst if len(excess) and excess[worst] > 1 else None


def _differs(trace: Trace, what: str) -> ReplayError:
    return ReplayError(
        f"{trace.call.op} {trace.signature} does not give its own gold: {what}",
        remedy=f"it was recorded with torch {trace.origin.torch} on {trace.origin.device_name}; "
        "replay there, or record it again; leave an op that draws on hidden state out through ops=[…]",
    )
