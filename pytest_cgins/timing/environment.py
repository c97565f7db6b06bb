"""What a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import platform

from pytest_cgins.core.environment_key import TIMING_PROTOCOL
from pytest_cgins.core.session_report import Environment
from pytest_cgins.timing.devices import cpu, timed_device


def describe(device: str) -> Environment:
    """Describe the machine and versions behind a device; imports torch, not triton."""
    import torch

    timed = timed_device(device)
    host = Environment(
        device=timed.name,
        device_name=timed.model(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        triton=_triton(),
        host_cores=len(cpu.cores()),
        clock_policy=cpu.clock_policy(),
        protocol=TIMING_PROTOCOL,
    )
    return timed.environment(host)


def _triton() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""
