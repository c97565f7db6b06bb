"""Launchers through ctypes: DLTensor structs from torch tensors, matched to the schema line by name."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.arguments import (
    call_values,
    require_defaults,
    require_passed,
    state_values,
)
from pytest_cgins.building.contracts.schema import Schema, SchemaArgument, SchemaOutput, schema_name
from pytest_cgins.building.loading.c_values import LIST_TYPES, DLTensor, Place, convert, dl_form
from pytest_cgins.building.loading.returned import Plan
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.dtypes import extent
from pytest_cgins.core.errors import ContractError, LaunchError, SourceError
from pytest_cgins.core.options import BARE_VARIABLE
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall, TensorMeta

_cat = torch.cat  # taken before any kernel is loaded
POISON_BYTE = 0xA5
# Scratch is read as any type: all ones is NaN in every floating-point type, and -1 as an integer.
SCRATCH_BYTE = 0xFF
# Before and behind every output; a multiple of the alignment that allocators give. 0: no poison either.
GUARD_NBYTES = 0 if os.environ.get(BARE_VARIABLE) else 512


class Launcher:
    """A launcher's library in this process."""

    def __init__(self, compiled: CompiledKernel) -> None:
        source = compiled.source
        self.name = source.name
        self.schema = schemas.parse(source.schema, source.files[0])
        try:
            self._library = ctypes.CDLL(compiled.library)
            self.function: Any = self._library[self.schema.entry]
            """The C function; a watch may put its own before it."""
        except (OSError, AttributeError) as error:
            raise LaunchError(
                f"{self.name}: {compiled.library} cannot be loaded: {error}",
                remedy=older_remedy(error) or "link what it needs with flags: [-l…], or fix the library path",
            ) from error
        self.function.restype = ctypes.c_int
        self._workspace = getattr(self._library, f"{self.schema.entry}_workspace", None)
        if self._workspace is not None:
            self._workspace.restype = ctypes.c_int64
        self._last_error = self._library["cgins_last_error"]
        self._last_error.restype = ctypes.c_char_p
        if hasattr(self._library, "omp_set_num_threads"):
            # Where torch brought an OpenMP runtime of its own, the kernel's does not know torch's thread count.
            self._library.omp_set_num_threads(torch.get_num_threads())

    def bind(
        self, call: OpCall, tensors: Sequence[torch.Tensor], outputs: Sequence[TensorMeta], device: str
    ) -> BoundLaunch:
        """See `callable.LoadedKernel.bind`."""
        values = declared_values(call, tensors, self.schema, self.name)
        packer = Packer(self.name)
        for argument in self.schema.arguments:
            packer.add(argument, values.get(argument.name, argument.default))
        results: list[torch.Tensor] = []
        for output, allocated in allocate_outputs(self.schema, values, outputs, device, packer):
            if not output.aliased:  # else it is the mutated argument itself
                packer.add_tensors(allocated) if output.list else packer.add_tensor(allocated[0])
            results += allocated
        if self._workspace is not None:
            packer.add_workspace(self._workspace_nbytes(packer), device)
        return BoundLaunch(self, packer, results, torch.device(device))

    def _workspace_nbytes(self, packer: Packer) -> int:
        assert self._workspace is not None
        nbytes = int(self._workspace(*packer.arguments))
        if nbytes < 0:
            raise LaunchError(
                f"{self.name}: {self.schema.entry}_workspace returned {nbytes}",
                remedy="it returns the bytes of scratch memory that the launcher needs, 0 or more",
            )
        return nbytes

    def launch_on(self, device: torch.device, arguments: Sequence[Any]) -> None:
        """`launch` on a device's current stream."""
        if device.type != "cuda":
            self.launch(arguments, ctypes.c_void_p(None))
            return
        with on_device(device):
            # Asked for at every run: under graph capture the current stream is another one.
            self.launch(arguments, ctypes.c_void_p(raw_stream(device.index)))

    def launch(self, arguments: Sequence[Any], stream: ctypes.c_void_p) -> None:
        """Call the C function; a number other than 0 becomes a LaunchError."""
        status = self.function(*arguments, stream)
        if status:
            message = (self._last_error() or b"").decode(errors="replace")
            raise LaunchError(
                f"{self.name}: {self.schema.entry} returned {status}"
                + (f": {message}" if message else ", without a message"),
                remedy="" if message else 'say why: return cgins_fail("…")',
            )


class BoundMemory:
    """What bound calls share whose outputs are allocated before the call; see `callable.BoundCall`."""

    def __init__(self, packer: Packer, results: list[torch.Tensor], device: torch.device) -> None:
        self._packer = packer  # owns what the arguments point to
        self._results = results
        self._device = device
        self.poison()

    def run(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.run`."""
        raise NotImplementedError

    @property
    def bare(self) -> Callable[[], object]:
        """See `callable.BoundCall.bare`: the outputs are there before the call."""
        return self.run

    def poison(self) -> None:
        """See `callable.BoundCall.poison`."""
        self._packer.poison()

    def overrun(self) -> str:
        """See `callable.BoundCall.overrun`."""
        return self._packer.overrun()

    @property
    def memory(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.memory`."""
        return self._packer.memory

    def plan(self, tensors: Sequence[torch.Tensor]) -> Plan | None:  # noqa: ARG002 - for those that have one
        """See `callable.BoundCall.plan`: none here."""
        return None


class BoundLaunch(BoundMemory):
    """A launcher with prepared C arguments: a run is one C call."""

    def __init__(
        self, launcher: Launcher, packer: Packer, results: list[torch.Tensor], device: torch.device
    ) -> None:
        super().__init__(packer, results, device)
        self._launcher = launcher
        self._arguments = tuple(packer.arguments)

    def run(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.run`."""
        self._launcher.launch_on(self._device, self._arguments)
        return self._results

    def plan(self, tensors: Sequence[torch.Tensor]) -> Plan | None:
        """See `callable.BoundCall.plan`: the same arguments with other addresses."""
        packer, launcher, device = self._packer, self._launcher, self._device
        places = {id(tensor): index for index, tensor in enumerate(tensors)}
        own = [tensor for tensor in self._results if id(tensor) not in places]
        outputs = [Place(tensor) for tensor in own]
        numbers = {**places, **{id(tensor): len(tensors) + number for number, tensor in enumerate(own)}}
        if GUARD_NBYTES or packer.is_varying or any(id(one) not in numbers for _, one in packer.given):
            return None
        arguments = list(self._arguments)
        slots = [(position, numbers[id(one)], Place(one)) for position, one in packer.given]
        results = [numbers[id(one)] for one in self._results]
        scratch = None if packer.scratch is None else (len(arguments) - 2, packer.scratch.numel())

        def run(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            memory = [*given, *(place.allocated(device) for place in outputs)]
            now = arguments.copy()
            structures = []  # live as long as the call
            for position, number, place in slots:
                structures.append(place.structure(memory[number]))
                now[position] = ctypes.byref(structures[-1])
            if scratch is not None:
                position, nbytes = scratch
                workspace = torch.empty(nbytes, dtype=torch.uint8, device=device)
                now[position] = ctypes.c_void_p(workspace.data_ptr() or None)
            launcher.launch_on(device, now)
            return [memory[number] for number in results]

        return run


def declared_values(
    call: OpCall, tensors: Sequence[torch.Tensor], schema: Schema, where: str
) -> dict[str, Any]:
    """Values of a call and of its module's state by name; what the schema lacks has the op's default.

    Raises:
        SourceError, ContractError: see `callable.LoadedKernel.bind`.
    """
    given = {schema_name(name): value for name, value in call_values(call, tensors).items()}
    values = state_values(call, tensors) | given
    require_passed(call, (a.name for a in schema.arguments if not a.has_default), values, where)
    require_defaults(call, schemas.match(schema, list(values), where), where, tensors)
    return values


@contextmanager
def declared_as(argument: SchemaArgument, value: Any, where: str) -> Iterator[None]:
    """Around the conversion of a value.

    Raises:
        ContractError: it is not of the argument's type.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ContractError(
            f"{where}: argument {argument.name!r} is declared as {spelled(argument)}, the call passes "
            f"{type(value).__name__} {str(value)[:60]!r}",
            remedy="widen the type in the schema line, or gate the kernel on other traces",
        ) from error


def older_remedy(error: Exception) -> str:
    """What to do if the loader refuses a kernel since a library here is older than the compiler's; "" if not."""
    older = re.search(r"([\w+.-]+): version [`']([\w.]+)' not found", str(error))
    if older is None:
        return ""
    return (
        f"the {older[1]} of this process is older than the compiler's; often torch brought it. Leave out what needs "
        f"{older[2]} (`nm -D` lists it; OpenMP's `teams` is GOMP_5.1), or name an older compiler by CXX"
    )


def put_nothing_around() -> None:
    """From now on this process allocates without guards and poison, as a program does that only calls the kernel."""
    global GUARD_NBYTES  # noqa: PLW0603 - of the whole process
    GUARD_NBYTES = 0
    _guard.cache_clear()


class Packer:
    """C arguments of a call in order, and the memory that they point to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[Any] = []
        self.allocated: list[torch.Tensor] = []
        """Flat memory of each output, guards included."""
        self.scratch: torch.Tensor | None = None
        """Flat memory of the workspace, guards included."""
        self.given: list[tuple[int, torch.Tensor]] = []
        """Tensors that stand by themselves, by their place among the arguments."""
        self.is_varying = False
        """Whether an argument says more of a call than its form does: the seed of a generator, or a list of tensors."""
        self._kept: list[object] = []

    @property
    def memory(self) -> list[torch.Tensor]:
        """All that was allocated."""
        return [*self.allocated, *([] if self.scratch is None else [self.scratch])]

    def add(self, argument: SchemaArgument, value: Any) -> None:
        """Append one argument of the schema.

        Raises:
            ContractError: the value is not of the argument's type.
        """
        with declared_as(argument, value, self.name):
            if value is None and not argument.optional and argument.type != "Generator":
                raise TypeError("None")
            if argument.type == "Tensor":
                if argument.list:
                    self.add_tensors(value, optional=argument.item_optional)
                else:
                    self.add_tensor(value)
            elif argument.type == "Generator":
                seed = torch.initial_seed() if value is None else value.initial_seed()
                self.is_varying = True
                self.arguments.append(ctypes.c_uint64(seed))
            elif argument.type == "str":
                text = None if value is None else value.encode()
                self.arguments += [ctypes.c_char_p(text), ctypes.c_int64(len(text or b""))]
            elif argument.list:
                self._add_list(argument, value)
            elif argument.optional or argument.type in ("Scalar", "ScalarType"):
                self.arguments.append(self._pointer(None if value is None else convert(argument.type, value)))
            else:
                self.arguments.append(convert(argument.type, value))

    def _add_list(self, argument: SchemaArgument, value: Any) -> None:
        if value is None:
            self.arguments += [ctypes.c_void_p(None), ctypes.c_int64(0)]
            return
        items = list(value) if isinstance(value, list | tuple) else [value]
        converted = [convert(argument.type, item) for item in items]
        array = (LIST_TYPES[argument.type] * max(1, len(items)))(*converted)
        self.arguments += [self._pointer(array), ctypes.c_int64(len(items))]

    def add_tensor(self, tensor: torch.Tensor | None) -> None:
        """Append a pointer to a DLTensor, or null."""
        if tensor is not None:
            self.given.append((len(self.arguments), tensor))
        self.arguments.append(self._pointer(None if tensor is None else self._dl_tensor(tensor)))

    def add_tensors(self, tensors: Sequence[torch.Tensor | None], *, optional: bool = False) -> None:
        """Append an array of pointers to DLTensors, and its length."""
        self.is_varying = True
        if any(tensor is None for tensor in tensors) and not optional:
            raise TypeError("None in a list of tensors")
        pointers = [
            ctypes.pointer(self._dl_tensor(tensor)) if tensor is not None else ctypes.POINTER(DLTensor)()
            for tensor in tensors
        ]
        array = (ctypes.POINTER(DLTensor) * max(1, len(pointers)))(*pointers)
        self.arguments += [self._pointer(array), ctypes.c_int64(len(pointers))]

    def add_workspace(self, nbytes: int, device: str) -> None:
        """Append scratch memory and its size."""
        memory = _memory(nbytes + 2 * GUARD_NBYTES, torch.uint8, device)
        self.scratch = memory
        inner = memory[GUARD_NBYTES : GUARD_NBYTES + nbytes]
        self.arguments += [ctypes.c_void_p(inner.data_ptr() or None), ctypes.c_int64(nbytes)]

    def allocate(self, meta: TensorMeta, device: str) -> torch.Tensor:
        """A tensor of the given shape and strides, on memory of its own."""
        dtype = getattr(torch, meta.dtype)
        guard = GUARD_NBYTES // dtype.itemsize
        memory = _memory(guard + extent(meta.shape, meta.stride) + guard, dtype, device)
        self.allocated.append(memory)
        return memory.as_strided(meta.shape, meta.stride, guard)

    def poison(self) -> None:
        """Overwrite all that was allocated, so that what is not written shows."""
        if not GUARD_NBYTES:
            return
        for memory in self.allocated:
            poison(memory)
        if self.scratch is not None:
            self.scratch.fill_(SCRATCH_BYTE)

    def overrun(self) -> str:
        """What was written outside an output or the scratch memory; "" if nothing was."""
        places = {f"output {index}": memory for index, memory in enumerate(self.allocated)}
        if self.scratch is not None:
            places["the workspace"] = self.scratch
        if not (GUARD_NBYTES and places):
            return ""
        octets = [memory.view(torch.uint8) for memory in places.values()]
        edges = [edge for octet in octets for edge in (octet[:GUARD_NBYTES], octet[-GUARD_NBYTES:])]
        found = iter(_cat(edges).cpu().view(-1, GUARD_NBYTES))  # one transfer: each waits for the device
        for name, memory in places.items():
            expected = _guard(torch.uint8 if memory is self.scratch else memory.dtype, memory is self.scratch)
            for where in ("before", "behind"):
                changed = int((next(found) != expected).sum())
                if changed:
                    return f"{changed} or more bytes {where} {name} were overwritten"
        return ""

    def _pointer(self, structure: Any) -> Any:
        if structure is None:
            return ctypes.c_void_p(None)
        self._kept.append(structure)
        return ctypes.byref(structure)

    def _dl_tensor(self, tensor: torch.Tensor) -> DLTensor:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{type(tensor).__name__} is not a tensor")
        if tensor.layout is not torch.strided:
            raise TypeError(f"layout {tensor.layout}")
        structure = DLTensor(tensor.data_ptr() or None, *dl_form(tensor), 0)
        self._kept += [tensor, structure]
        return structure


@contextmanager
def reusing(memory: Sequence[torch.Tensor]) -> Iterator[None]:
    """Have calls that are bound in the body get this memory for their outputs, as far as it fits.

    Where a tensor lies decides how far its numbers have to go: two kernels of a microsecond that differ in nothing
    else differed by up to 8% on an H200.
    """
    _reused.extend(memory)
    try:
        yield
    finally:
        _reused.clear()


_reused: list[torch.Tensor] = []


def _memory(numel: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    for index, one in enumerate(_reused):
        if (one.numel(), one.dtype) == (numel, dtype):
            return _reused.pop(index)
    return torch.empty(numel, dtype=dtype, device=device)


def allocate_outputs(
    schema: Schema, values: dict[str, Any], outputs: Sequence[TensorMeta], device: str, packer: Packer
) -> list[tuple[SchemaOutput, list[torch.Tensor]]]:
    """The tensors of each declared output: new ones, or the mutated argument that it is.

    Raises:
        SourceError: the schema line declares other outputs than the op returns.
    """
    declared = schema.outputs
    singles = sum(not output.list for output in declared)
    lists = len(declared) - singles
    if lists > 1 or (lists == 0 and singles != len(outputs)) or len(outputs) < singles:
        raise SourceError(
            f"{packer.name}: the schema line declares {counted(len(declared), 'output')}, the op returns {len(outputs)}",
            remedy="declare the op's outputs: -> Tensor, -> (Tensor a, Tensor b), or one Tensor[]",
        )
    remaining = outputs
    found = []
    for output in declared:
        count = len(outputs) - singles if output.list else 1
        metas, remaining = remaining[:count], remaining[count:]
        if output.aliased:
            tensors = values[output.aliased] if output.list else [values[output.aliased]]
        else:
            tensors = [packer.allocate(meta, device) for meta in metas]
        found.append((output, tensors))
    return found


def poison(memory: torch.Tensor) -> None:
    """Overwrite a tensor with NaN, the least signed integer, or bytes 0xA5: values that answers rarely have."""
    if memory.is_complex():
        memory.fill_(complex("nan+nanj"))
    elif memory.is_floating_point():
        memory.fill_(float("nan"))
    elif memory.dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        memory.fill_(torch.iinfo(memory.dtype).min)
    else:
        memory.view(torch.uint8).fill_(POISON_BYTE)


def raw_stream(index: int | None) -> int:
    """The current stream of a GPU, without an object for it: that takes longer than many a launch."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is None or index is None:
        return int(torch.cuda.current_stream().cuda_stream)
    return int(raw(index))


@functools.cache
def _guard(dtype: torch.dtype, scratch: bool) -> torch.Tensor:
    """What a guard holds, as bytes."""
    memory = torch.empty(GUARD_NBYTES // dtype.itemsize, dtype=dtype)
    memory.fill_(SCRATCH_BYTE) if scratch else poison(memory)
    return memory.view(torch.uint8)


def spelled(argument: SchemaArgument) -> str:
    """The argument's type as a schema line writes it."""
    item = f"{argument.type}{'?' if argument.item_optional else ''}"
    return f"{item}{'[]' if argument.list else ''}{'?' if argument.optional else ''}"


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Makes a GPU the current one for a while, if it is not."""
    if torch.cuda.current_device() == device.index:
        return nullcontext()
    return torch.cuda.device(device)
