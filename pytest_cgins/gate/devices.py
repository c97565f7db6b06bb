"""The devices of this machine as the trusted worker sees them, and what is measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.core.case import Case
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.reference_worker import ReferenceWorker
from pytest_cgins.gate.timing_stage import TimingStage
from pytest_cgins.recording.profile import PackProfile
from pytest_cgins.run.device_peaks import DevicePeaks
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.timing.measured_peaks import MeasuredPeaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Answers by `cpu` and `cuda`; the trusted worker is started for the first one."""

    reference: ReferenceWorker
    pool: WorkerPool
    builds: KernelBuilds
    stage: TimingStage
    reached: DevicePeaks
    asked: str
    """The device that a run was asked for, or `auto`."""
    import_root: str
    """Folder that the trusted worker imports ops from."""

    def described(self, *, warms: bool = True) -> Mapping[str, Environment]:
        """What each device is; `warms` starts the other workers meanwhile, which are needed where something is verified."""
        if warms and not self.reference.known:
            self.reference.warm()
            self.pool.warm(["verification"])
        return self.describe()

    def describe(self) -> Mapping[str, Environment]:
        """The same, for which no other worker is started."""
        if not self.reference.known:
            self.builds.found_devices(self.reference.describe())
        return self.reference.known

    def require(self, case: Case) -> None:
        """Raise EndedError where a case's device is not on this machine."""
        device = case.device.split(":")[0]
        if device in self.described():
            return
        if self.asked == "auto":
            raise EndedError(Status.SKIPPED, Reason.DEVICE_ABSENT, f"no {device} device on this machine")
        # Asked for by name: a skip would make a pipeline green that gated nothing.
        raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_ABSENT, self.reference.absence(device))

    def peaks(self, device: str) -> MeasuredPeaks | None:
        """What a device reaches, as it is stored or measured now; None if it is not there, or busy all the while."""
        if device.partition(":")[0] not in self.described():
            return None
        try:
            return self.reached.for_device(device)
        except InfrastructureError:
            return None

    def profile(self, pack: Path, device: DeviceName) -> PackProfile | None:
        """What torch runs for the traces of a pack, and how long; None if that could not be found out."""
        if device not in self.described():
            return None
        try:
            with self.stage.alone_on(device_of(device).case_name):
                return self.reference.profile(str(pack), device, self.import_root)
        except (EndedError, InfrastructureError):
            return None
