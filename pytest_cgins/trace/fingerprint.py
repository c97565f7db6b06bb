"""When two calls are the same trace: fast keys for the hot path, readable signatures for the pack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable

import torch

from pytest_cgins import documents
from pytest_cgins.model import Argument, Context, OpCall, TensorMeta
from pytest_cgins.trace import adapters, modules
from pytest_cgins.trace.dtypes import SHORT
from pytest_cgins.trace.layout import check_recordable, normalized_stride

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def fingerprint(arguments: tuple[object, ...]) -> Hashable:
    """A key of the arguments' structure, tensor forms, aliasing and plain values; no tensor is read.

    Calls with equal keys have the same signature; the reverse does not hold, since a call may pass the
    same argument by position or by name.

    Raises:
        RecordError: for a tensor without strided storage of its own.
    """
    tensors: list[torch.Tensor] = []
    key = _key(arguments, tensors)
    if len(tensors) < 2:
        return key
    places = [(tensor.untyped_storage().data_ptr(), tensor.storage_offset()) for tensor in tensors]
    first: dict[int, int] = {}
    for index, (pointer, _) in enumerate(places):
        first.setdefault(pointer, index)
    if len(first) == len(places):
        return key
    return key, tuple((first[pointer], offset - places[first[pointer]][1]) for pointer, offset in places)


def _key(obj: object, tensors: list[torch.Tensor]) -> Hashable:
    adapted = adapters.to_plain(obj)
    if adapted is not None:
        return adapted[0], _key(adapted[1], tensors)
    if isinstance(obj, torch.Tensor):
        if (
            type(obj) not in _PLAIN
            or obj.layout != torch.strided
            or obj.is_nested
            or torch._C._functorch.is_functorch_wrapped_tensor(obj)
        ):
            check_recordable(obj)
        tensors.append(obj)
        grad = obj.requires_grad and torch.is_grad_enabled()
        views = obj.is_conj(), obj.is_neg()
        return obj.dtype, tuple(obj.shape), normalized_stride(obj), obj.device, grad, views
    if isinstance(obj, (tuple, list)):
        return type(obj), tuple([_key(item, tensors) for item in obj])
    if isinstance(obj, dict):
        return dict, tuple([(name, _key(item, tensors)) for name, item in obj.items()])
    if isinstance(obj, torch.nn.Module):
        return tuple([(path, _key(part, tensors)) for path, part in modules.fingerprint(obj)])
    if isinstance(obj, slice):
        return slice, obj.start, obj.stop, obj.step
    # 1, 1.0 and True are equal, and different arguments.
    return type(obj), obj if isinstance(obj, Hashable) else id(obj)


def canonical(call: OpCall, metas: tuple[TensorMeta, ...], context: Context) -> str:
    """Text that two calls share exactly when they are one trace: how arguments were passed is no part."""
    return json.dumps(
        {
            "op": call.op,
            "arguments": [_bound(argument) for argument in call.arguments],
            "tensors": [_form(meta, metas, grad=context.grad_enabled) for meta in metas],
            "context": documents.dump_python(context),
        },
        sort_keys=True,
    )


def readable(text: str, metas: tuple[TensorMeta, ...], digits: int = 4) -> str:
    """Signature such as `f32-8x128x768-1b9c`: dtype, shape of the first tensor, digest of `canonical`."""
    dtype = next((meta.dtype for meta in metas if "float" in meta.dtype), metas[0].dtype if metas else "none")
    shape = "x".join(map(str, metas[0].shape)) if metas else ""
    digest = hashlib.sha256(text.encode()).hexdigest()[:digits]
    return f"{SHORT.get(dtype, dtype)}-{shape or 'scalar'}-{digest}"


def _bound(argument: Argument) -> object:
    return argument.name, documents.dump_python(argument.value)


def _form(meta: TensorMeta, metas: tuple[TensorMeta, ...], *, grad: bool) -> object:
    stride = [0 if size == 1 else step for size, step in zip(meta.shape, meta.stride, strict=True)]
    # An offset says something only against another tensor on the same storage.
    shared = [other.offset for other in metas if other.storage == meta.storage]
    offset = meta.offset - shared[0] if len(shared) > 1 else 0
    return meta.dtype, meta.shape, stride, meta.storage, offset, meta.requires_grad and grad
