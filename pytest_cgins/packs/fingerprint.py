"""When two calls are the same trace: fast keys for the hot path, readable signatures for the pack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from typing import Any

import torch

from pytest_cgins.core import documents
from pytest_cgins.core.dtypes import SHORT
from pytest_cgins.core.layout import check_recordable
from pytest_cgins.core.trace import Context, OpCall, TensorMeta
from pytest_cgins.packs import adapters, modules

_PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_PLAIN_VALUES = frozenset({type(None), bool, int, str, torch.dtype, torch.device})
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def fingerprint(arguments: tuple[object, ...]) -> Hashable:
    """The key alone of `form_of`."""
    return form_of(arguments)[0]


def form_of(arguments: tuple[object, ...]) -> tuple[Hashable, list[torch.Tensor]]:
    """A key of the arguments' structure, tensor forms, aliasing and plain values, and the tensors, of which none is read.

    Calls with equal keys have the same signature, and tensors in the same order; the reverse does not hold, since a
    call may pass the same argument by position or by name.

    Raises:
        RecordError: for a tensor without strided storage of its own.
    """
    tensors: list[torch.Tensor] = []
    key = _key(arguments, tensors)
    if len(tensors) < 2:
        return key, tensors
    pointers = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    if len(set(pointers)) == len(pointers):
        return key, tensors
    offsets = [tensor.storage_offset() for tensor in tensors]
    first = [pointers.index(pointer) for pointer in pointers]
    shared = tuple([(other, offset - offsets[other]) for other, offset in zip(first, offsets, strict=True)])
    return (key, shared), tensors


def _key(obj: Any, tensors: list[torch.Tensor]) -> Hashable:
    # Nearly all arguments are of these types, and this runs in every call.
    kind: type = type(obj)
    if kind in _PLAIN_TENSORS:
        return _form_key(obj, tensors)
    # 1, 1.0 and True are equal, and different arguments.
    if kind in _PLAIN_VALUES:
        return kind, obj
    # 0.0 and -0.0 are equal, and different arguments; NaN is not equal to itself.
    if kind is float:
        return kind, obj.hex()
    if kind is tuple or kind is list:
        return kind, tuple([_key(item, tensors) for item in obj])
    if kind is dict:
        return dict, tuple([(name, _key(item, tensors)) for name, item in obj.items()]) if obj else ()
    return _rare_key(obj, tensors)


def _form_key(tensor: torch.Tensor, tensors: list[torch.Tensor]) -> Hashable:
    if tensor.layout is not torch.strided or tensor.is_nested or _is_wrapped(tensor):
        check_recordable(tensor)
    tensors.append(tensor)
    shape, stride = tensor.shape, tensor.stride()
    if 1 in shape:
        # Those of size 1 address nothing, and torch sets them freely.
        stride = tuple([0 if size == 1 else step for size, step in zip(shape, stride)])  # noqa: B905
    return (
        tensor.dtype,
        shape,
        stride,
        tensor.device,
        tensor.requires_grad and torch.is_grad_enabled(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _rare_key(obj: object, tensors: list[torch.Tensor]) -> Hashable:
    adapted = adapters.to_plain(obj)
    if adapted is not None:
        return adapted[0], _key(adapted[1], tensors)
    if isinstance(obj, torch.Tensor):
        check_recordable(obj)
        return _form_key(obj, tensors)
    if isinstance(obj, (tuple, list)):
        return type(obj), tuple([_key(item, tensors) for item in obj])
    if isinstance(obj, dict):
        return dict, tuple([(name, _key(item, tensors)) for name, item in obj.items()])
    if isinstance(obj, torch.nn.Module):
        return tuple([(path, _key(part, tensors)) for path, part in modules.fingerprint(obj)])
    if isinstance(obj, slice):
        return slice, obj.start, obj.stop, obj.step
    try:
        hash(obj)
    except (TypeError, ValueError, AttributeError, RuntimeError):  # a frozen dataclass that holds a list
        return type(obj), id(obj)
    return type(obj), obj


def canonical(call: OpCall, metas: tuple[TensorMeta, ...], context: Context) -> str:
    """Text that two calls share exactly when they are one trace: how arguments were passed is no part."""
    return json.dumps(
        {
            "op": call.op,
            "arguments": [(one.name, documents.dump_python(one.value)) for one in call.arguments],
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


def _form(meta: TensorMeta, metas: tuple[TensorMeta, ...], *, grad: bool) -> object:
    stride = [0 if size == 1 else step for size, step in zip(meta.shape, meta.stride, strict=True)]
    # An offset says something only against another tensor on the same storage.
    shared = [other.offset for other in metas if other.storage == meta.storage]
    offset = meta.offset - shared[0] if len(shared) > 1 else 0
    return meta.dtype, meta.shape, stride, meta.storage, offset, meta.requires_grad and grad
