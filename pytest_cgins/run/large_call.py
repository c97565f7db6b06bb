"""A kernel on a large call, whose rows are those of a small one again and again, or lie far apart.

On a GPU all of it is allocated. On a CPU addresses are reserved, and the few pages that the small call's rows fill are mapped
as often as there are copies of them, or where rows lie apart, to each its own; whoever reaches elsewhere faults. Copies of
outputs near 2^31 and 2^32 elements and bytes, the first and the last have pages of their own, since a row that is never written
would be hidden by another copy; what other copies hold is not looked at.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.building.loading import launcher
from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.loading.returned import plain
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.dtypes import ITEMSIZE, extent
from pytest_cgins.core.tensors import unpack
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import TensorMeta
from pytest_cgins.packs.context import restore
from pytest_cgins.verify.messages import LargeTrial, PackedInputs
from pytest_cgins.verify.probes.large_indices import GRID_ROWS, LIMITS, PAGE_ELEMENTS
from pytest_cgins.verify.size_groups import stride_like

SECONDS, SECONDS_OF_GPU = 2.0, 5.0
"""A call that would take longer is not made."""
TOGETHER_BYTES = {False: 4 << 20, True: 64 << 20}
"""Of copies that are compared at once, and of those by whose time that of the call is estimated, on a CPU and on a GPU."""
MAPPED_BYTES = 64 << 20
"""On a CPU larger tensors are mapped."""
OWN_BYTES = 256 << 20
"""Inputs of a kernel for the CPU that allocates by itself, and may copy them."""
MAPS = 30_000
"""Of a tensor; Linux allows a process 65,530."""
_GUARD_BYTES = 1 << 34
"""Reserved before and behind: what 2^31 elements of 8 bytes reach."""
_FIXED, _POPULATE, _NORESERVE = 0x10, 0x8000, 0x4000
_mmap = ctypes.CDLL(None, use_errno=True).mmap  # Python's own chooses the address
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)


class LargeCallError(Exception):
    """The call is not made; the text says why."""


class LargeCall:
    """A kernel's answer to a large call, of which each row of the small one has the copy that is farthest from it.

    Behind the outputs come, in one tensor, the size of the call and the numbers of these rows.
    """

    def __init__(self, kernel: LoadedKernel, packed: PackedInputs, content: Buffer, device: str) -> None:
        assert packed.large is not None
        self.device = device
        self.unlike: list[str] = []
        self.answer: Sequence[Tensor] = ()
        self._kernel, self._packed, self._content = kernel, packed, content
        self._trial: LargeTrial = packed.large
        self._device = device_of(device)

    def overrun(self) -> str:
        """Nothing is around the outputs."""
        return ""

    def inputs_changed(self) -> list[int]:
        """They are not looked at again."""
        return []

    def first(self) -> None:
        """Make the small call, then the large one, and compare them.

        Raises:
            LargeCallError: it would take too long, or cannot be laid out here.
        """
        launcher.put_nothing_around()  # guards and poison of outputs that are as large would take longer than the kernel
        trial, packed = self._trial, self._packed
        tensors = unpack(packed.tensors, self._content, self.device)
        own = [output.clone() for output in self._run(tensors, packed.outputs)[0]]
        self._device.empty_cache()  # what the call before had
        for size in trial.sizes[:-1]:
            with suppress(torch.cuda.OutOfMemoryError):
                self.answer = self._large(tensors, own, size)
                break
            self._device.empty_cache()
        else:
            self.answer = self._large(tensors, own, trial.sizes[-1])
        self._device.empty_cache()  # others need it

    def _large(self, tensors: Sequence[Tensor], own: Sequence[Tensor], size: int) -> list[Tensor]:
        """The answer to a call of a size."""
        trial = self._trial
        if trial.apart:
            large = [
                _apart(tensor, _step_of(tensor, size, trial.rows))
                if index in trial.batched and tensor.ndim > 1
                else tensor
                for index, tensor in enumerate(tensors)
            ]
            return _farthest(own, self._run(large, self._packed.outputs)[0], trial, [range(1)], size)
        self._require_time_and_memory(tensors, own, size)
        count, together = size // trial.rows, self._together(own)
        crossed = {limit // unit // trial.rows for limit in LIMITS for unit in trial.units.values()}
        crossed |= {GRID_ROWS // trial.rows, count - 1}
        beside = {0, *(copy + step for copy in crossed for step in (-1, 0, 1))}
        near = sorted(copy for copy in beside if 0 <= copy < count)
        large, metas = self._enlarged(tensors, size)
        pages = self._mapped(metas, count, near)
        given, _ = self._run(large, metas, pages)
        every = (range(begin, min(count, begin + together)) for begin in range(0, count, together))
        runs = (range(copy, copy + 1) for copy in near) if pages else every
        return _farthest(own, given, trial, runs, size)

    def _together(self, tensors: Sequence[Tensor]) -> int:
        """How many copies of tensors are looked at, or timed, together."""
        most = TOGETHER_BYTES[self._device.is_accelerator]
        return max(1, most // max(1, *(tensor.nbytes for tensor in tensors)))

    def _run(
        self,
        tensors: Sequence[Tensor],
        metas: Sequence[TensorMeta],
        pages: Sequence[Tensor] = (),
        *,
        times: int = 1,
    ) -> tuple[list[Tensor], float]:
        """The kernel's outputs, which lie on `pages` where these fit, and the least seconds of some calls."""
        with ExitStack() as around:
            around.enter_context(restore(self._packed.context, self.device))
            around.enter_context(launcher.reusing(pages))
            bound = self._kernel.bind(self._packed.call, list(tensors), metas, self._device.torch_name)
            poisoned = {memory.data_ptr() for memory in pages}
            for memory in bound.memory:
                if memory.data_ptr() not in poisoned:
                    launcher.poison(memory)
            seconds = []
            for _ in range(times):
                self._device.synchronize()
                begin = time.perf_counter()
                outputs = [*map(plain, bound.run())]
                self._device.synchronize()
                seconds.append(time.perf_counter() - begin)
        return outputs, min(seconds)

    def _require_time_and_memory(
        self, tensors: Sequence[Tensor], outputs: Sequence[Tensor], size: int
    ) -> None:
        """Raise LargeCallError for a call that takes too long, by that of a call of some copies, or memory of nobody knows how much."""
        trial = self._trial
        copied = sum(tensors[index].nbytes for index in trial.batched) * size // trial.rows
        own = not isinstance(self._kernel, launcher.Launcher) and not self._device.is_accelerator
        if own and copied > OWN_BYTES:
            raise LargeCallError(f"a copy of its inputs would take {copied / 2**30:.3g} GiB")
        # Of a sixteenth at most: many large calls have hardly more copies than are timed together, twice.
        copies = self._together([*(tensors[index] for index in trial.batched), *outputs])
        some = trial.rows * max(1, min(copies, size // trial.rows // 16))
        _, seconds = self._run(*self._enlarged(tensors, some), times=2)
        limit_s = SECONDS_OF_GPU if self._device.is_accelerator else SECONDS
        if seconds * size / some > limit_s:
            raise LargeCallError(f"it would take more than {limit_s:g} s")

    def _enlarged(self, tensors: Sequence[Tensor], size: int) -> tuple[list[Tensor], list[TensorMeta]]:
        """The arguments with so many rows, and the layouts of the outputs."""
        trial = self._trial
        batched = {index: _repeated(tensors[index], size) for index in trial.batched}
        repeated = [batched.get(index, tensor) for index, tensor in enumerate(tensors)]
        return repeated, [self._of_rows(meta, size) for meta in self._packed.outputs]

    def _of_rows(self, meta: TensorMeta, size: int) -> TensorMeta:
        """An output's layout with so many rows; the same where it has none."""
        axis = self._trial.axis
        if len(meta.shape) < max(1, -axis) or meta.shape[axis] != self._trial.rows:
            return meta
        shape = list(meta.shape)
        shape[axis] = size
        return replace(meta, shape=tuple(shape), stride=stride_like(meta, shape))

    def _mapped(self, metas: Sequence[TensorMeta], copies: int, near: Sequence[int]) -> list[Tensor]:
        """Memory of outputs that are too large to allocate on a CPU; none where they are not.

        Raises:
            LargeCallError: their rows do not come one after the other.
        """
        pages = []
        for meta in metas:
            nbytes = extent(meta.shape, meta.stride) * ITEMSIZE[meta.dtype]
            if self._device.is_accelerator or nbytes <= MAPPED_BYTES:
                continue
            if meta.stride[0] * meta.shape[0] * ITEMSIZE[meta.dtype] != nbytes or self._trial.axis != 0:
                raise LargeCallError("the outputs' rows do not come one after the other")
            pages.append(_pages(meta, nbytes // copies, copies, near))
        return pages


def _farthest(
    own: Sequence[Tensor], given: Sequence[Tensor], trial: LargeTrial, runs: Iterable[range], size: int
) -> list[Tensor]:
    """The large answers as small ones, and where their rows were; copies are compared in runs."""
    rows, axis, numbers = trial.rows, trial.axis, torch.arange(trial.rows, device=own[0].device)
    worst, places, runs = numbers.to(torch.float64) * 0, numbers, [*runs]
    chosen = []
    for small, large in zip(own, given, strict=True):
        shape = [*small.shape]
        has_rows = bool(shape) and shape[axis] == rows
        if has_rows and not trial.apart:
            shape[axis] = size
        has_form = [*large.shape] == shape and large.dtype == small.dtype
        if not (has_rows and has_form):
            chosen.append(large if has_form else large.reshape(-1)[:1])  # which has not the form either
            continue
        kept = small.clone()
        right = small.movedim(axis, 0).reshape(rows, -1)
        for run in runs:
            part = large.narrow(axis, run.start * rows, len(run) * rows).movedim(axis, 0)
            copies = part.reshape(len(run), rows, -1)
            if torch.equal(_octets(copies), _octets(right.expand_as(copies))):
                continue
            gaps = _gaps(right, copies)
            most = gaps.amax(0)
            first = (gaps >= most / 2).to(torch.uint8).argmax(0)
            # The first copy that is wrong, unless another one is much farther off.
            farther = most > 2 * worst
            kept.movedim(axis, 0)[farther] = part[first * rows + numbers][farther]
            worst = torch.where(farther, most, worst)
            places = torch.where(farther, (run.start + first) * rows + numbers, places)
        chosen.append(kept)
    return [*chosen, torch.cat([torch.full_like(places[:1], size), places])]


def _octets(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _gaps(right: Tensor, copies: Tensor) -> Tensor:
    """How far each copy of a row is from what is right, at its farthest element."""
    pair = [torch.view_as_real(one).flatten(-2) if one.is_complex() else one for one in (right, copies)]
    first, second = (one.to(torch.float64) for one in pair)
    alike = (first == second) | (first.isnan() & second.isnan())
    return (first - second).abs().nan_to_num(nan=torch.inf).masked_fill(alike, 0.0).amax(-1)


def _repeated(tensor: Tensor, size: int) -> Tensor:
    """A tensor with its rows again and again."""
    rows, step = len(tensor), tensor.stride(0)
    shape = (size, *tensor.shape[1:])
    if step == 0:
        return tensor[:1].expand(shape)
    period = torch.zeros(rows * step, dtype=tensor.dtype, device=tensor.device)
    period.as_strided(tensor.shape, tensor.stride()).copy_(tensor)
    nbytes = period.nbytes * (size // rows)
    if tensor.is_cuda or nbytes <= MAPPED_BYTES:
        memory = period.repeat(size // rows)
    else:
        fd, pages = _file(period.nbytes, tensor.dtype)
        pages.copy_(period)
        memory = _range(nbytes, tensor.dtype, [(fd, 0)] * (size // rows), period.nbytes)
    return memory.as_strided(shape, tensor.stride())


def _step_of(tensor: Tensor, step: int, rows: int) -> int:
    """Elements between its rows, so that its last one lies as far as that of an argument with the call's rows."""
    if len(tensor) == rows:
        return step
    row = extent(tensor.shape[1:], tensor.stride()[1:])
    pages = max(row // PAGE_ELEMENTS + 2, -(-step * (rows - 1) // (len(tensor) - 1) // PAGE_ELEMENTS))
    return pages * PAGE_ELEMENTS


def _apart(tensor: Tensor, step: int) -> Tensor:
    """A tensor whose rows begin so many elements apart."""
    rows, row = len(tensor), extent(tensor.shape[1:], tensor.stride()[1:])
    nbytes = rows * step * tensor.element_size()
    if tensor.is_cuda or nbytes <= MAPPED_BYTES:
        memory = torch.empty(rows * step, dtype=tensor.dtype, device=tensor.device)
    else:
        # Vectors may reach over a row.
        held = (row * tensor.element_size() // mmap.PAGESIZE + 2) * mmap.PAGESIZE
        (fd, _), stride = _file(rows * held, tensor.dtype), step * tensor.element_size()
        memory = _range(nbytes, tensor.dtype, [(fd, number * held) for number in range(rows)], stride, held)
    spread = memory.as_strided(tensor.shape, (step, *tensor.stride()[1:]))
    return spread.copy_(tensor)


def _pages(meta: TensorMeta, period: int, copies: int, near: Sequence[int]) -> Tensor:
    """Poisoned memory of an output: the copies `near` have pages of their own, all others share some."""
    dtype = getattr(torch, meta.dtype)
    numbers = {copy: number + 1 for number, copy in enumerate(near)}
    fd, own = _file(period * (1 + len(near)), dtype)
    launcher.poison(own)
    pages = [(fd, numbers.get(copy, 0) * period) for copy in range(copies)]
    return _range(period * copies, dtype, pages, period)


def _range(
    nbytes: int, dtype: torch.dtype, pages: Sequence[tuple[int, int]], stride: int, held: int = 0
) -> Tensor:
    """Reserved addresses at which pages of files lie, one after the other or so many bytes apart.

    Raises:
        LargeCallError: there would be more mappings than the system allows, or parts of pages.
    """
    if stride % mmap.PAGESIZE or len(pages) > MAPS:
        raise LargeCallError(
            f"copies of its rows cannot be mapped: they are more than {MAPS:,}, or end within pages"
        )
    begin = _map(-1, 0, nbytes + 2 * _GUARD_BYTES, 0) + _GUARD_BYTES
    for number, (fd, offset) in enumerate(pages):
        _map(fd, offset, held or stride, begin + number * stride)
    _map(pages[0][0], 0, mmap.PAGESIZE, begin + nbytes)  # and over the end
    return _view(begin, nbytes, dtype)


def _file(nbytes: int, dtype: torch.dtype) -> tuple[int, Tensor]:
    """A file without a name, and its pages."""
    fd = os.memfd_create("cgins-rows")
    os.ftruncate(fd, nbytes)
    return fd, _view(_map(fd, 0, nbytes, 0), nbytes, dtype)


def _map(fd: int, offset: int, nbytes: int, address: int) -> int:
    """Map a file's pages, or reserve addresses where there is none; anywhere if no address is given."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE if fd >= 0 else 0
    flags = mmap.MAP_SHARED | _POPULATE if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    mapped = _mmap(address or None, nbytes, protection, flags | (_FIXED if address else 0), fd, offset)
    if mapped in (None, ctypes.c_void_p(-1).value):
        why = os.strerror(ctypes.get_errno())
        raise LargeCallError(f"{counted(nbytes, 'byte', grouped=True)} cannot be mapped: {why}")
    return int(mapped)


def _view(address: int, nbytes: int, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=dtype)
