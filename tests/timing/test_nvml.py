"""NVML's answers about a GPU, from an object that stands in for the library."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing import nvml
from pytest_cgins.timing.nvml import Gpu

NOT_SUPPORTED, INSUFFICIENT_SIZE = 3, 7
MakeGpu = Callable[..., Gpu]


class StandIn:
    """NVML's library: knows one GPU; what it is not given it does not support, what it `lacks` it has no function for."""

    def __init__(self, *, begun: int = 0, lacks: tuple[str, ...] = (), **answers: Any) -> None:
        self.begun = begun
        self.answers = answers
        self.lacks = lacks

    def nvmlInitWithFlags(self, _flags: int) -> int:  # noqa: N802
        return self.begun

    def nvmlDeviceGetHandleByUUID(self, name: ctypes.c_char_p, handle: Any) -> int:  # noqa: N802
        self.handle = handle._obj
        return 0 if name.value in (b"GPU-7", b"MIG-7") else 6

    def nvmlSystemGetDriverVersion(self, text: Any, nbytes: ctypes.c_uint) -> int:  # noqa: N802
        text.value = b"580.65.06"[: nbytes.value]
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, table: Any) -> int:  # noqa: N802
        assert handle is self.handle
        processes = self.answers.get("processes", ())
        if table is None:
            count._obj.value = len(processes)
            return self.answers.get("status", INSUFFICIENT_SIZE)
        for row, (number, nbytes) in zip(table, processes, strict=False):
            row.pid, row.usedGpuMemory = number, nbytes
        count._obj.value = len(processes)
        return 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.lacks:
            raise AttributeError(name)  # asks __getattr__
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks:
            raise AttributeError(name)

        def function(handle: Any, *arguments: Any) -> int:
            assert handle is self.handle
            answer = self.answers.get(name)
            if answer is None:
                return NOT_SUPPORTED
            outputs = [argument._obj for argument in arguments if not isinstance(argument, ctypes.c_uint)]
            values = answer if isinstance(answer, tuple) else (answer,)
            for output, value in zip(outputs, values, strict=True):
                output.value = value
            return 0

        return function


@contextmanager
def installed(library: object, *uuids: str) -> Iterator[None]:
    """A library in place of NVML's, and what a device of CUDA is called."""

    def opened(_name: str) -> object:
        if isinstance(library, OSError):
            raise library
        return library

    with (
        patch.multiple(pynvml, CDLL=opened, nvmlLib=None, _nvmlGetFunctionPointer_cache={}),
        patch.object(nvml, "cuda_uuids", lambda _index: list(uuids)),
    ):
        yield


@pytest.fixture
def gpu() -> Iterator[MakeGpu]:
    with ExitStack() as stack:

        def find(*uuids: str, **answers: Any) -> Gpu:
            stack.enter_context(installed(StandIn(**answers), *(uuids or ["GPU-7"])))
            found = Gpu.find(0)
            assert found is not None
            return found

        yield find


def test_the_clock_is_read(gpu: MakeGpu) -> None:
    """In MHz."""
    assert gpu(nvmlDeviceGetClockInfo=1755).sm_mhz() == 1755


def test_a_name_that_nvml_does_not_know_is_passed_over(gpu: MakeGpu) -> None:
    """A device of CUDA has two names, of which it knows one."""
    assert gpu("GPU-8", "MIG-7").uuid == "MIG-7"


@pytest.mark.parametrize("uuids", [["GPU-8"], []])
def test_a_gpu_that_nvml_does_not_know_is_none(uuids: list[str]) -> None:
    """By none of its names."""
    with installed(StandIn(), *uuids):
        assert Gpu.find(0) is None


def test_what_is_not_supported_is_not_told(gpu: MakeGpu) -> None:
    """As for parts of a GPU."""
    one = gpu("MIG-7")
    assert (one.sm_mhz(), one.throttle_reasons()) == (None, ())
    assert (one.ecc(), one.clock_policy(), one.mig()) == (None, None, True)


@pytest.mark.parametrize(
    ("mask", "reasons"),
    [
        (0x0, ()),
        (0x1 | 0x2 | 0x100, ()),
        (0x4 | 0x1, ("sw-power-cap",)),
        (0x4 | 0x40, ("sw-power-cap", "hw-thermal")),
        (0x8 | 0x10 | 0x20 | 0x80, ("hw-slowdown", "sync-boost", "sw-thermal", "hw-power-brake")),
        (0x200, ("reason-0x200",)),
    ],
)
def test_reasons_are_named(gpu: MakeGpu, mask: int, reasons: tuple[str, ...]) -> None:
    """An idle GPU, chosen clocks and a display are no reason; a bit of a newer driver keeps its number."""
    assert gpu(nvmlDeviceGetCurrentClocksEventReasons=mask).throttle_reasons() == reasons


@given(st.integers(0, 2**64 - 1))
def test_each_bit_is_one_reason(mask: int) -> None:
    """No bit that throttles is lost, and none is told twice."""
    with installed(StandIn(nvmlDeviceGetCurrentClocksEventReasons=mask), "GPU-7"):
        found = Gpu.find(0)
        assert found is not None
        reasons = found.throttle_reasons()
    assert len(set(reasons)) == len(reasons) == (mask & ~nvml.IGNORED_REASONS).bit_count()


def test_an_older_driver_s_function_is_asked(gpu: MakeGpu) -> None:
    """The reasons had another name once."""
    one = gpu(
        lacks=("nvmlDeviceGetCurrentClocksEventReasons",), nvmlDeviceGetCurrentClocksThrottleReasons=0x20
    )
    assert one.throttle_reasons() == ("sw-thermal",)


def test_switches_are_read(gpu: MakeGpu) -> None:
    """What is set now counts, not what will be after a reset."""
    one = gpu(nvmlDeviceGetMigMode=(0, 1), nvmlDeviceGetEccMode=(1, 0))
    assert (one.mig(), one.ecc()) == (False, True)
    assert gpu("MIG-7", nvmlDeviceGetMigMode=(0, 0)).mig() is True


@pytest.mark.parametrize(("chosen", "policy"), [(1980, "default"), (1410, "applications-1410-mhz")])
def test_the_clock_policy_is_told(gpu: MakeGpu, chosen: int, policy: str) -> None:
    """By the applications clocks, against those that the GPU comes with."""
    one = gpu(nvmlDeviceGetApplicationsClock=chosen, nvmlDeviceGetDefaultApplicationsClock=1980)
    assert one.clock_policy() == policy


def test_the_driver_has_a_version(gpu: MakeGpu) -> None:
    """As text; none where the function is not there."""
    assert gpu().driver() == "580.65.06"
    assert gpu(lacks=("nvmlSystemGetDriverVersion",)).driver() is None


def test_processes_are_listed_with_what_they_hold(gpu: MakeGpu) -> None:
    """A process's parts are added up, and one whose memory is withheld is left out."""
    processes = [(4711, 5 << 32), (9, 300), (4711, 1), (10, 2**64 - 1)]
    assert gpu(processes=processes).held_nbytes() == {4711: (5 << 32) + 1, 9: 300}


@pytest.mark.parametrize(
    "answers", [{"status": NOT_SUPPORTED}, {"lacks": ("nvmlDeviceGetComputeRunningProcesses_v3",)}]
)
def test_a_gpu_whose_processes_are_not_told_has_none(gpu: MakeGpu, answers: dict[str, Any]) -> None:
    """The driver refuses, or is too old."""
    assert gpu(**answers).held_nbytes() == {}


@pytest.mark.parametrize("broken", [OSError("no such file"), object(), StandIn(begun=9)])
def test_without_the_library_there_is_no_gpu(broken: object) -> None:
    """Not installed, something else by its name, or without its driver."""
    with installed(broken, "GPU-7"):
        assert Gpu.find(0) is None


def test_without_the_bindings_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-ml-py is not installed."""
    with installed(StandIn(), "GPU-7"):
        monkeypatch.setitem(sys.modules, "pynvml", None)
        assert Gpu.find(0) is None


def test_without_the_driver_a_device_has_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is that an error."""

    def absent(_name: str) -> ctypes.CDLL:
        raise OSError("no such file")

    nvml.cuda_driver.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert nvml.cuda_uuids(0) == []
