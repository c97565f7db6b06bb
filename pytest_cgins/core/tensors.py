"""Tensors between processes: numbers as JSON, bytes in a buffer. Strides and aliasing survive."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pytest_cgins.core import documents
from pytest_cgins.core.bitwise import copy_memory
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import torch_device
from pytest_cgins.core.dtypes import ITEMSIZE, extent
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.layout import Layout, lay_out, rebuild
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import TensorMeta

MAXIMUM_DIMENSIONS = 64
MAXIMUM_TENSORS = 2**16
_MAXIMUM_NUMBER = 2**62  # sizes and strides are int64 in torch


def pack(tensors: Sequence[torch.Tensor]) -> tuple[dict[str, Any], Buffer]:
    """Take tensors apart.

    Returns:
        `{"metas": [TensorMeta JSON, …], "spans": [bytes of each storage span, …]}`, and a buffer that holds
        the spans one after the other.

    Raises:
        RecordError: for a tensor without strided storage of its own.
    """
    return pack_layout(lay_out(tensors, copy=False))


def pack_layout(layout: Layout) -> tuple[dict[str, Any], Buffer]:
    """What `pack` gives of tensors that were laid out."""
    spans = [span.cpu() for span in layout.spans]
    header = {
        "metas": [documents.dump_python(meta) for meta in layout.metas],
        "spans": [span.numel() for span in spans],
    }
    return header, Buffer.from_chunks(span.numpy().data for span in spans)


def unpack(header: Any, buffer: Buffer, device: torch.device | str) -> list[torch.Tensor]:
    """Put the tensors together on fresh memory of `device`.

    Raises:
        ProtocolError: if the header is malformed, or reaches outside the buffer. It is checked before
            anything is allocated, since code under test may have written it.
    """
    metas, sizes = _validate(header, buffer.nbytes)
    return rebuild(metas, _split(buffer, sizes), device)


class Kept:
    """Tensors of a buffer, kept on a device to be put together there again and again."""

    def __init__(
        self, header: Any, buffer: Buffer, device: torch.device | str, *, mapped: bool = False
    ) -> None:
        """Errors are those of `unpack`. With `mapped`, a CPU reads the buffer's pages and has no copy of its own."""
        self._metas, sizes = _validate(header, buffer.nbytes)
        self._spans = [span.to(torch_device(str(device)), copy=not mapped) for span in _split(buffer, sizes)]
        self._device = device

    def unpack(self) -> list[torch.Tensor]:
        """All of them, on fresh memory."""
        return rebuild(self._metas, self._spans, self._device)

    def write_to(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give tensors that `unpack` of this, or of the like, has made these bytes."""
        for tensor, meta in zip(tensors, self._metas, strict=True):
            copy_memory(tensor, self._spans[meta.storage])


def _split(buffer: Buffer, sizes: list[int]) -> Sequence[torch.Tensor]:
    try:
        data = torch.frombuffer(buffer.view(), dtype=torch.uint8) if buffer.nbytes else torch.empty(0).byte()
    except (OSError, ValueError, OverflowError) as error:
        raise _malformed(f"their {counted(buffer.nbytes, 'byte')} cannot be mapped: {error}") from error
    return torch.split(data, sizes) if sizes else []


def _validate(header: Any, nbytes: int) -> tuple[list[TensorMeta], list[int]]:
    if not isinstance(header, dict) or header.keys() != {"metas", "spans"}:
        raise _malformed("it is not an object with metas and spans")
    sizes = header["spans"]
    if not isinstance(sizes, list) or not _are_sizes(sizes) or sum(sizes) != nbytes:
        raise _malformed(f"its spans are not sizes that add up to the buffer's {counted(nbytes, 'byte')}")
    try:
        metas = list(documents.load(tuple[TensorMeta, ...], json.dumps(header["metas"])))
    except ValueError as error:
        raise _malformed(f"its metas are wrong: {error}") from error
    if not len(sizes) <= len(metas) <= MAXIMUM_TENSORS:
        raise _malformed(
            f"{counted(len(metas), 'tensor')} on {counted(len(sizes), 'span')}; each span has one, and {MAXIMUM_TENSORS} are the limit"
        )
    for index, meta in enumerate(metas):
        _check_meta(index, meta, sizes)
    return metas, sizes


def _check_meta(index: int, meta: TensorMeta, sizes: list[int]) -> None:
    if meta.dtype not in ITEMSIZE:
        raise _malformed(f"tensor {index} has unknown dtype {meta.dtype!r}")
    if len(meta.shape) > MAXIMUM_DIMENSIONS or not _are_sizes(
        (*meta.shape, *meta.stride, meta.offset, _span(meta.shape))
    ):
        raise _malformed(f"tensor {index} has shape {meta.shape} and strides {meta.stride}")
    if meta.storage >= len(sizes):
        raise _malformed(f"tensor {index} lies on span {meta.storage} of {len(sizes)}")
    reach = (meta.offset + extent(meta.shape, meta.stride)) * ITEMSIZE[meta.dtype]
    if reach > sizes[meta.storage]:
        raise _malformed(f"tensor {index} reaches byte {reach} of a span of {sizes[meta.storage]}")


def _span(shape: tuple[int, ...]) -> int:
    """Product of the sizes with 0 taken as 1: torch multiplies them before it looks for a 0."""
    return math.prod(max(1, size) for size in shape)


def _are_sizes(numbers: Iterable[Any]) -> bool:
    return all(type(number) is int and 0 <= number < _MAXIMUM_NUMBER for number in numbers)


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(f"a worker sent tensors that cannot be put together: {reason}")
