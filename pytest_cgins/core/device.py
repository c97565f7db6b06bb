"""What the gate asks of a device, and which kinds of devices there are.

A kind is a class of its own in the file of its name in `timing/devices/`; `DeviceName` registers it.
"""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

from pytest_cgins.core.errors import InfrastructureError

DeviceName = Literal["cpu", "cuda"]
"""Kinds of devices, the host first."""
DEVICES: tuple[DeviceName, ...] = get_args(DeviceName)


@dataclass(frozen=True)
class Device(ABC):
    """One device. Where it says nothing else, work is done once a call returns.

    Nothing imports torch before a question about the machine is asked.
    """

    index: int = 0
    """Among those of its kind."""

    name: ClassVar[DeviceName]
    is_accelerator: ClassVar[bool] = False
    """Whether it has memory and streams of its own: its work may go on after a call has returned, and may end its context."""
    is_cuda: ClassVar[bool] = False
    """CUDA's driver and tools reach it: sanitizers, profilers, graphs, probes of its memory and caches."""
    suffixes: ClassVar[tuple[str, ...]]
    """File suffixes of a launcher's main source."""
    languages: ClassVar[tuple[str, ...]]
    """Languages in which regeneration writes kernels for it."""
    backend: ClassVar[str]
    """torch's dispatch key."""

    @property
    def case_name(self) -> str:
        """The name in cases and messages: `cpu`, `cuda:0`."""
        return f"{self.name}:{self.index}" if self.is_accelerator else self.name

    @property
    def torch_name(self) -> str:
        """Torch's device on which its tensors lie."""
        return self.case_name

    @abstractmethod
    def count(self) -> int:
        """How many of its kind torch can use."""

    @abstractmethod
    def model(self) -> str:
        """Name of the CPU or GPU."""

    @abstractmethod
    def forked_random(self) -> AbstractContextManager[object]:
        """Around what draws numbers: torch's generators are afterwards as they were."""

    @abstractmethod
    def free_nbytes(self) -> int:
        """Bytes of its memory that tensors may take now."""

    def others_nbytes(self) -> int:
        """Bytes of its memory that other processes hold, as far as it says so; 0 on a host."""
        return 0

    @abstractmethod
    def make_current(self) -> None:
        """Make it torch's current device of its kind."""

    def current(self) -> AbstractContextManager[object]:
        """Make it so for a while: streams, events and graphs belong to the current one."""
        return nullcontext()

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all launched work; an error of that work is raised here, as RuntimeError."""

    @abstractmethod
    def wait_for_stream(self) -> None:
        """Wait for the current stream, as whoever uses the result next would."""

    def own_stream(self) -> AbstractContextManager[object]:
        """A current stream that no other stream waits for, not even the default one.

        Work that a kernel leaves on another stream is then not ordered before what reads its outputs.
        """
        return nullcontext()

    def is_capturing(self) -> bool:
        """Whether the current stream's work is put into a graph."""
        return False

    def capture_stream(self) -> AbstractContextManager[object]:
        """Make current the stream that graphs are captured on: autograd runs a backward on that of its forward."""
        return nullcontext()

    @abstractmethod
    def empty_cache(self, above_nbytes: int = 0) -> None:
        """Give memory back that torch's allocator holds unused, if it is so much."""

    @abstractmethod
    def random_states(self) -> list[bytes]:
        """States of torch's generators that an op on it may draw from."""

    def mark(self) -> Any:
        """A point of time in the current stream, for `seconds_between`."""
        return time.perf_counter()

    def seconds_between(self, first: Any, last: Any) -> float:
        """Seconds from one mark to another; waits until the later one is reached."""
        return float(last - first)


_UNUSED_NBYTES = 1 << 30


def give_back_unused() -> None:
    """Leave to other processes what torch's allocators hold unused, from 1 GiB on."""
    for kind in DEVICES:
        device_of(kind).empty_cache(_UNUSED_NBYTES)


@lru_cache
def device_of(name: str) -> Device:
    """The device of a name of torch's, `cpu`, `cuda` or `cuda:1`; the host for a kind that has no file here."""
    kind, _, index = name.partition(":")
    module = importlib.import_module(f"pytest_cgins.timing.devices.{kind if kind in DEVICES else 'cpu'}")
    device: Device = module.DEVICE(int(index or 0))
    return device


def usable_device(wanted: Collection[str]) -> DeviceName:
    """The first accelerator of these kinds that this host has, else the CPU."""
    kinds = (kind for kind in DEVICES if kind in wanted and device_of(kind).is_accelerator)
    return next((kind for kind in kinds if device_of(kind).count()), "cpu")


def require_device(kind: DeviceName) -> DeviceName:
    """A kind of device that somebody asks for.

    Raises:
        InfrastructureError: torch sees none here.
    """
    if device_of(kind).count():
        return kind
    raise InfrastructureError(
        f"--device {kind}: torch sees no {kind.upper()} device here",
        remedy="run it on a machine with one, or on cpu",
    )


def device_of_language(language: str) -> Device:
    """The first kind whose kernels regeneration writes in a language."""
    return next(device for device in map(device_of, DEVICES) if language in device.languages)


def torch_device(name: str) -> str:
    """Torch's device for tensors of a device of this name; torch's other devices are their own."""
    return device_of(name).torch_name if name.partition(":")[0] in DEVICES else name
