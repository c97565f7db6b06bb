"""What prompts say of the machine: asked once a run, of the devices themselves."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_cgins.config import Config
from pytest_cgins.core.device import device_of
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.prompts import hardware
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.pool import WorkerPool


class Machine:
    """Devices, by type.

    Args:
        config: the project's file.
        reference: a pool whose trusted worker describes devices and measures their peaks.
        environment: added to that of workers.
    """

    def __init__(self, config: Config, reference: WorkerPool, environment: Mapping[str, str]) -> None:
        self._config = config
        self._reference = reference
        self._environment = environment
        self._known: dict[str, Hardware] = {}

    def hardware(self, device: str) -> Hardware:
        """Of `cpu` or `cuda`; what cannot be found out is 0 or "" in it."""
        if device not in self._known:
            self._known[device] = self._asked(device)
        return self._known[device]

    def _asked(self, device: str) -> Hardware:
        evaluator = Evaluator(
            self._config, seed=0, timing=False, environment=self._environment, reference=self._reference
        )
        try:
            found = evaluator.described().get(device)
            peaks = evaluator.peaks(device_of(device).case_name)
        except EndedError:
            return hardware.read(device)
        finally:
            evaluator.close()
        return hardware.read(
            device,
            peak_bytes_per_s=peaks.copy_bytes_per_s if peaks else 0.0,
            peak_flops_per_s=peaks.matmul_flops_per_s if peaks else {},
            driver=found.driver if found else "",
            cores=found.host_cores if found else 0,
        )
