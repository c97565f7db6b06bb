"""Where and with what something is recorded or measured."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

from pytest_cgins.core.model import Origin


def origin_of(device: torch.device | str) -> Origin:
    """Device and torch of this process."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return Origin(device=device.type, device_name=name, torch=torch.__version__)


@cache
def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
