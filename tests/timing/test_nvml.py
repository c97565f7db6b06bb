"""NVML's answers about a GPU, from an object that stands in for the library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.timing import nvml
from pytest_cgins.timing.nvml import Gpu

NOT_SUPPORTED = 3


class StandIn:
    """Knows one GPU; what it is not given it does not support, and what it `lacks` it has no function for."""

    def __init__(self, *, lacks: tuple[str, ...] = (), **answers: int | tuple[int, ...]) -> None:
        self.answers = answers
        self.lacks = lacks

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:  # noqa: N802
        if name not in (b"GPU-7", b"MIG-7"):
            return 6
        handle._obj.value = 7
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, nbytes: ctypes.c_uint) -> int:  # noqa: N802
        text.value = b"580.65.06"[: nbytes.value]
        return 0

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks or not name.startswith("nvml"):
            raise AttributeError(name)

        def function(handle: ctypes.c_void_p, *arguments: Any) -> int:
            assert handle.value == 7
            outputs = [one._obj for one in arguments if not isinstance(one, ctypes.c_uint)]
            answer = self.answers.get(name)
            if answer is None:
                return NOT_SUPPORTED
            for output, value in zip(
                outputs, answer if isinstance(answer, tuple) else (answer,), strict=True
            ):
                output.value = value
            return 0

        return function


def gpu(name: str = "GPU-7", **answers: Any) -> Gpu:
    found = Gpu.of([name], library=StandIn(**answers))
    assert found is not None
    return found


def test_the_clock_is_read() -> None:
    """In MHz."""
    assert gpu(nvmlDeviceGetClockInfo=1755).sm_mhz() == 1755


def test_a_name_that_nvml_does_not_know_is_passed_over() -> None:
    """A device of CUDA has two names, of which it knows one."""
    library = StandIn()
    found = Gpu.of(["GPU-8", "MIG-7"], library=library)
    assert found is not None
    assert found.uuid == "MIG-7"
    assert Gpu.of(["GPU-8"], library=library) is None
    assert Gpu.of([], library=library) is None


def test_what_is_not_supported_is_not_told() -> None:
    """As for parts of a GPU."""
    one = gpu("MIG-7")
    assert (one.sm_mhz(), one.throttle_reasons()) == (None, ())
    assert (one.ecc(), one.clock_policy()) == (None, None)


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
def test_reasons_are_named(mask: int, reasons: tuple[str, ...]) -> None:
    """An idle GPU, chosen clocks and a display are no reason; a bit of a newer driver keeps its number."""
    assert gpu(nvmlDeviceGetCurrentClocksEventReasons=mask).throttle_reasons() == reasons


@given(st.integers(0, 2**64 - 1))
def test_each_bit_is_one_reason(mask: int) -> None:
    """No bit that throttles is lost, and none is told twice."""
    reasons = gpu(nvmlDeviceGetCurrentClocksEventReasons=mask).throttle_reasons()
    assert len(set(reasons)) == len(reasons) == (mask & ~nvml.IGNORED_REASONS).bit_count()


def test_an_older_driver_s_function_is_asked() -> None:
    """The reasons had another name once."""
    one = gpu(
        lacks=("nvmlDeviceGetCurrentClocksEventReasons",), nvmlDeviceGetCurrentClocksThrottleReasons=0x20
    )
    assert one.throttle_reasons() == ("sw-thermal",)


def test_switches_are_read() -> None:
    """What is set now counts, not what will be after a reset."""
    one = gpu(nvmlDeviceGetMigMode=(0, 1), nvmlDeviceGetEccMode=(1, 0))
    assert (one.mig(), one.ecc()) == (False, True)
    assert gpu("MIG-7", nvmlDeviceGetMigMode=(0, 0)).mig() is True


@pytest.mark.parametrize(("chosen", "policy"), [(1980, "default"), (1410, "applications-1410-mhz")])
def test_the_clock_policy_is_told(chosen: int, policy: str) -> None:
    """By the applications clocks, against those that the GPU comes with."""
    one = gpu(nvmlDeviceGetApplicationsClock=chosen, nvmlDeviceGetDefaultApplicationsClock=1980)
    assert one.clock_policy() == policy


def test_the_driver_has_a_version() -> None:
    """As text; none where the function is not there."""
    assert gpu().driver() == "580.65.06"

    class Bare(StandIn):
        nvmlSystemGetDriverVersion = None  # type: ignore[assignment]  # noqa: N815

    found = Gpu.of(["GPU-7"], library=Bare())
    assert found is not None
    assert found.driver() is None


class _Unwell:
    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 9


@pytest.mark.parametrize("broken", [OSError("no such file"), object(), _Unwell()])
def test_without_the_library_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    """Not installed, something else by its name, or without its driver."""

    def opened(_name: str) -> object:
        if isinstance(broken, OSError):
            raise broken
        return broken

    monkeypatch.setattr(nvml.ctypes, "CDLL", opened)
    assert Gpu.of(["GPU-7"]) is None


def test_without_the_driver_a_device_has_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is that an error."""

    def absent(_name: str) -> ctypes.CDLL:
        raise OSError("no such file")

    nvml.cuda_driver.library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert nvml.cuda_uuids(0) == []
