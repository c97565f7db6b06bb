"""Devices as they are timed: each kind is a file of its name, whose `DEVICE` is its class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from pytest_cgins.core.device import Device, device_of
from pytest_cgins.core.session_report import Environment
from pytest_cgins.timing.nvml import Gpu
from pytest_cgins.timing.peaks import Peaks
from pytest_cgins.timing.timer import Arms, Timer


class TimedDevice(Device):
    """A device with its timers."""

    @abstractmethod
    def environment(self, host: Environment) -> Environment:
        """What a measurement on it is made with, given what is so on every device."""

    @abstractmethod
    def lock_key(self) -> str:
        """What two processes that use the same hardware agree on, whatever each is shown of it."""

    @abstractmethod
    def last_level_cache_nbytes(self) -> int:
        """Size of its largest cache; 0 if unknown."""

    @abstractmethod
    def peaks(self) -> Peaks | None:
        """What it can do at most; None if that is not told."""

    @abstractmethod
    def matmul_dtypes(self) -> tuple[str, ...]:
        """The dtypes of `measured_peaks.MATMUL_DTYPES` that it multiplies in hardware: emulated types are no peak."""

    @abstractmethod
    def make_timer(
        self,
        arms: Arms,
        *,
        copies: int,
        limit_s: float,
        longer: float = 1.0,
        fenced: bool = False,
        require_replays: Callable[[], object] = lambda: None,
    ) -> tuple[Timer, tuple[str, ...]]:
        """A timer, and notes: a fallback that was taken.

        Args:
            arms: what to call; an arm gets the index of the copy of its tensors to use, and launches on the current
                stream of the device, which is the current one.
            copies: how many of its tensors each arm has.
            limit_s: bounds one batch of every arm together.
            longer: makes batches so many times as long as usual.
            fenced: whether to time loops between two waits, because they are compared with such loops.
            require_replays: raises CaptureError where a graph is known not to do what calls do.
        """

    def clocks(self) -> Gpu | None:
        """Reads its clocks and what lowers them; None where nobody tells."""
        return None

    def launch_ns(self) -> float:
        """What a launch of nothing takes; 0 where calls are not launched."""
        return 0.0

    def host_ns_per_call(self, arm: Callable[[int], object], copies: int) -> float | None:
        """What the host takes to launch a call; None where it is the host that runs it."""
        del arm, copies
        return None


def timed_device(name: str) -> TimedDevice:
    """The device of a name, as `device_of` finds it, if it can be timed."""
    device = device_of(name)
    assert isinstance(device, TimedDevice)
    return device
