"""What the devices of a session reach: as it is stored, or measured once by the trusted worker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Environment
from pytest_cgins.timing import measured_peaks
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.timing.roofline import passes


class DevicePeaks:
    """Answers by device."""

    def __init__(
        self,
        environment: Callable[[str], Environment],
        measure: Callable[[str], MeasuredPeaks | None],
        alone_on: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._environment = environment
        self._measure = measure
        self._alone_on = alone_on
        self._known: dict[str, MeasuredPeaks | None] = {}
        self._passed: set[str] = set()

    def for_device(self, device: str) -> MeasuredPeaks | None:
        """The peaks of `cpu` or `cuda:0`; None if they are neither stored nor to be measured."""
        if device not in self._known:
            found = measured_peaks.stored(self._environment(device))
            self._known[device] = found if found is not None else self.measure(device)
        return self._known[device]

    def roofline(
        self, device: str, measurement: Measurement, draw: Callable[[MeasuredPeaks], Measurement]
    ) -> Measurement:
        """A measurement with its roofline, which `draw` makes from peaks.

        Peaks that it passes are measured again, once a run, and the larger are kept: a busy device's come out too low.
        """
        peaks = self.for_device(device)
        if peaks is None:
            return measurement
        drawn = draw(peaks)
        if device in self._passed or drawn.roofline is None or not passes(drawn.roofline, drawn.cache):
            return drawn
        self._passed.add(device)
        with suppress(InfrastructureError):
            measured = self.measure(device)
            if measured is not None:
                peaks = peaks.at_least(measured)
                measured_peaks.store(peaks)
                self._known[device] = peaks
        return draw(peaks)

    def measure(self, device: str) -> MeasuredPeaks | None:
        """Measured anew and stored; None if that cannot be."""
        with self._alone_on(device):
            peaks = self._measure(device)
        if peaks is not None:
            measured_peaks.store(peaks)
            self._known[device] = peaks
        return peaks
