"""Device kernels in this process: launch lines evaluated for a call, arguments packed as the kernel takes them."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.building.builders import device_image
from pytest_cgins.building.builders.device_image import Function, Image
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.building.contracts.schema import SchemaArgument
from pytest_cgins.building.contracts.source import read
from pytest_cgins.building.loading import cuda_driver as driver
from pytest_cgins.building.loading import launcher
from pytest_cgins.building.loading.c_values import convert
from pytest_cgins.building.loading.launch_binding import Binding, Settings
from pytest_cgins.building.loading.launcher import Packer, on_device
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall, TensorMeta

PORTABLE_CLUSTER = 8


class DeviceKernel:
    """A device kernel's machine code in this process."""

    def __init__(self, compiled: CompiledKernel) -> None:
        source = compiled.source
        self.name = source.name
        self.schema = schemas.parse(source.schema, source.files[0])
        self._file = source.files[0]
        self._plan = launch_line.read(source.launch, self.schema, self._file)
        self._images = device_image.unpack(Path(compiled.library))
        self._constants = _constants(source)
        self._loaded: dict[int, _Loaded] = {}

    def bind(
        self, call: OpCall, tensors: Sequence[torch.Tensor], outputs: Sequence[TensorMeta], device: str
    ) -> BoundDeviceCall:
        """See `callable.LoadedKernel.bind`."""
        where = torch.device(device)
        with on_device(where):
            if where.index not in self._loaded:
                capability = torch.cuda.get_device_capability(where)
                image = device_image.choose(self._images, capability, self.name)
                self._loaded[where.index] = _Loaded(image, self.name, where.index)
            loaded = self._loaded[where.index]
            sm_count = driver.device_attribute(driver.SM_COUNT, where.index)
            settings, packer, results = self.settings(
                call, tensors, outputs, device, functions=loaded.functions, sm_count=sm_count
            )
            steps = [step for setting in settings for step in loaded.steps(setting)]
        return BoundDeviceCall(steps, packer, results, where, [*tensors])

    def settings(
        self,
        call: OpCall,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[TensorMeta],
        device: str,
        *,
        functions: Mapping[str, Function],
        sm_count: int,
    ) -> tuple[list[Settings], Packer, list[torch.Tensor]]:
        """Everything of `bind` that needs no GPU.

        Returns:
            The launches, none if all that would be written is empty; what owns their memory; the outputs.

        Raises:
            SourceError, ContractError, LaunchError: see `callable.LoadedKernel.bind`.
        """
        values = launcher.declared_values(call, tensors, self.schema, self.name)
        packer = Packer(self.name)
        names: dict[str, Any] = {**self._constants, "sm_count": sm_count}
        for argument in self.schema.arguments:
            value = values.get(argument.name, argument.default)
            with launcher.declared_as(argument, value, self.name):
                names[argument.name] = _converted(argument, value)
        written = [names[argument.name] for argument in self.schema.arguments if argument.mutated]
        results: list[torch.Tensor] = []
        for output, allocated in launcher.allocate_outputs(self.schema, values, outputs, device, packer):
            if not output.aliased:
                names[output.name] = allocated if output.list else allocated[0]
            results += allocated
        binding = Binding(self.name, self._file, self._plan, functions, names)
        if not any(_elements(one) for one in [*results, *written]):
            return [], packer, results
        if self._plan.workspace_nbytes is not None:
            nbytes = binding.workspace_nbytes()
            packer.add_workspace(nbytes, device)
            assert packer.scratch is not None
            guard = launcher.GUARD_NBYTES
            binding.set_workspace(packer.scratch[guard : guard + nbytes])
        return binding.settings(), packer, results


class _Loaded:
    """The machine code on one device."""

    def __init__(self, image: Image, name: str, index: int) -> None:
        self.functions = image.functions
        self._name = name
        self._index = index
        driver.ensure_context(index, name)
        self._module = driver.load_module(image.code, f"{name}: loading its machine code for {image.arch}")
        self._kernels: dict[str, ctypes.c_void_p] = {}
        self._allowed_nbytes: dict[str, int] = {}

    def steps(self, settings: Settings) -> list[Callable[[int], None]]:
        """What a launch does, in order; each takes the stream."""
        name = settings.kernel
        if name not in self._kernels:
            self._kernels[name] = driver.function(
                self._module, self.functions[name].name, f"{self._name}: {name}"
            )
        kernel = self._kernels[name]
        self._allow_shared(settings)
        if math.prod(settings.cluster) > PORTABLE_CLUSTER:
            driver.allow(kernel, driver.NON_PORTABLE_CLUSTER, 1, settings.where)
        zeroing = [partial(driver.zero, *memory, where=settings.where) for memory in settings.zero]
        return [*zeroing, driver.PreparedLaunch(kernel, settings).run]

    def _allow_shared(self, settings: Settings) -> None:
        """Let the kernel take its shared memory; what an earlier call was allowed stays."""
        nbytes = settings.shared_nbytes
        if nbytes <= self._allowed_nbytes.get(settings.kernel, 0):
            return
        limit = driver.device_attribute(driver.SHARED_PER_BLOCK_OPT_IN, self._index)
        if nbytes > limit:
            raise LaunchError(
                f"{settings.where}: smem is {counted(nbytes, 'byte')} a block, the device has {limit}",
                remedy="use a smaller tile, or several passes",
            )
        if nbytes > driver.DEFAULT_SHARED_NBYTES:
            driver.allow(self._kernels[settings.kernel], driver.MAX_DYNAMIC_SHARED, nbytes, settings.where)
        self._allowed_nbytes[settings.kernel] = nbytes


class BoundDeviceCall(launcher.BoundMemory):
    """A device kernel with packed arguments: a run is one call of the driver a launch."""

    def __init__(
        self,
        steps: Sequence[Callable[[int], None]],
        packer: Packer,
        results: list[torch.Tensor],
        device: torch.device,
        kept: Sequence[object],
    ) -> None:
        super().__init__(packer, results, device)
        self._steps = tuple(steps)
        self._kept = kept  # tensors that arguments point to

    def run(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.run`."""
        with on_device(self._device):
            # Asked for at every run: under graph capture the current stream is another one.
            stream = launcher.raw_stream(self._device.index)
            for step in self._steps:
                step(stream)
        return self._results


def _constants(source: KernelSource) -> dict[str, int]:
    """Whole numbers that cgins.yaml or the source defines; those of cgins.yaml win."""
    found = launch_line.constants(code_of(read(Path(source.files[0]))))
    for flag in source.flags:
        name, given, value = flag[2:].partition("=")
        if flag.startswith(("-D", "-U")):
            found.pop(name, None)  # what the compiler sees is the flag's, also where it is no plain number
        if flag.startswith("-D") and re.fullmatch(r"0|[1-9]\d*|0x[0-9a-fA-F]+", value or "1"):
            found[name] = int(value, 0) if given else 1
    return found


def _converted(argument: SchemaArgument, value: Any) -> Any:
    """An argument as launch lines see it: tensors, numbers, texts, None, and lists of these."""
    if value is None:
        if argument.type == "Generator":
            return torch.initial_seed()
        if not argument.optional:
            raise TypeError("None")
        return None
    if argument.list:
        items = list(value) if isinstance(value, list | tuple) else [value]
        if argument.type != "Tensor":
            return [convert(argument.type, item).value for item in items]
        if any(item is None for item in items) and not argument.item_optional:
            raise TypeError("None in a list of tensors")
        return [None if item is None else _strided(item) for item in items]
    if argument.type == "Tensor":
        return _strided(value)
    if argument.type == "Generator":
        return value.initial_seed()
    if argument.type == "str":
        return str(value)
    if argument.type == "ScalarType":
        return str(value).removeprefix("torch.")
    if argument.type == "Scalar":
        return value.item() if isinstance(value, torch.Tensor) else value
    return convert(argument.type, value).value


def _strided(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        raise TypeError("not a strided tensor")
    return value


def _elements(value: Any) -> int:
    """Elements of a tensor or of a list of tensors."""
    items = value if isinstance(value, list) else [value]
    return sum(item.numel() for item in items if isinstance(item, torch.Tensor))
