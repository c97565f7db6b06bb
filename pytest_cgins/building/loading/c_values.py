"""Values of the launcher contract in C, by ctypes: DLPack's tensors, scalars, and what a schema type is."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.layout import dtype_name

LIST_TYPES: dict[str, Any] = {"int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool}


class DLDevice(ctypes.Structure):
    """DLPack's device."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    """DLPack's element type."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """DLPack's tensor, without ownership."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Scalar(ctypes.Structure):
    """`cgins_scalar`."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("imaginary", ctypes.c_double),
    )


def convert(kind: str, value: Any) -> Any:
    """A Python value as a ctypes value of a schema type."""
    if isinstance(value, torch.Tensor):
        if value.dim() != 0:
            raise TypeError("a tensor with dimensions is not a number")
        value = value.item()
    if kind == "int":
        return ctypes.c_int64(_integer(value))
    if kind == "float":
        return ctypes.c_double(value)
    if kind == "bool":
        if not isinstance(value, bool):
            raise TypeError("not a bool")
        return ctypes.c_bool(value)
    if kind == "ScalarType":
        return dl_data_type(value)
    return _scalar(value)


def _integer(value: Any) -> int:
    number = value.__index__()
    if not -(2**63) <= number < 2**63:
        raise OverflowError("does not fit into 64 bits")
    return int(number)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, bool):
        return Scalar(0, int(value), float(value), 0.0)
    if isinstance(value, int):
        return Scalar(1, _integer(value), float(value), 0.0)
    if isinstance(value, complex):
        return Scalar(3, 0, value.real, value.imag)
    return Scalar(2, 0, float(value), 0.0)


def dl_data_type(dtype: torch.dtype) -> DLDataType:
    """DLPack's name of an element type.

    Raises:
        TypeError: the contract has no such element type.
    """
    known = DTYPES.get(dtype_name(dtype))
    if known is None or known.dlpack is None:
        raise TypeError(f"element type {dtype}")
    return DLDataType(known.dlpack, 8 * known.nbytes, 1)


@functools.cache
def numbers_of(count: int) -> type[ctypes.Array[ctypes.c_int64]]:
    """The type of an array of so many."""
    return ctypes.c_int64 * count


def dl_form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Fields of a DLTensor between its address and its offset."""
    ndim = tensor.dim()
    numbers = numbers_of(max(1, ndim))
    device = DLDevice(2, tensor.device.index or 0) if tensor.is_cuda else DLDevice(1, 0)
    return device, ndim, dl_data_type(tensor.dtype), numbers(*tensor.shape), numbers(*tensor.stride())


class Place:
    """The form of a tensor among C arguments, without its memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._shape, self._stride, self._dtype = tuple(tensor.shape), tensor.stride(), tensor.dtype
        self._fixed = dl_form(tensor)

    def structure(self, tensor: torch.Tensor) -> DLTensor:
        """The C structure of a tensor of this form."""
        return DLTensor(tensor.data_ptr() or None, *self._fixed, 0)

    def allocated(self, device: torch.device) -> torch.Tensor:
        """A new tensor of this form."""
        return torch.empty_strided(self._shape, self._stride, dtype=self._dtype, device=device)
