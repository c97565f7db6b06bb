"""What a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import platform

from pytest_cgins.core.environment_key import TIMING_PROTOCOL
from pytest_cgins.core.model import Environment
from pytest_cgins.timing.devices import cpu, timed_device
from pytest_cgins.timing.devices.cpu import Cpu


def describe(device: str) -> Environment:
    """Describe the machine and versions behind a device; imports torch, not triton."""
    import torch

    host = Environment(
        device="cpu",
        device_name=Cpu().model(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        triton=_triton(),
        host_cores=len(cpu.cores()),
        clock_policy=cpu.clock_policy(),
        protocol=TIMING_PROTOCOL,
    )
    return timed_device(device).environment(host)


def _triton() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""
