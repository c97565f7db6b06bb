"""What a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from pytest_cgins.model import Environment

_CPU_INFO = Path("/proc/cpuinfo")


def describe(device: str) -> Environment:
    """Describe the machine and versions behind `cpu` or a `cuda:<index>`; imports torch, not triton."""
    import torch

    on_gpu = device.startswith("cuda")
    return Environment(
        device="cuda" if on_gpu else "cpu",
        device_name=torch.cuda.get_device_name(device) if on_gpu else cpu_model(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        driver=_driver() if on_gpu else "",
        triton=_triton(),
        host_cores=_cores(),
    )


def cpu_model() -> str:
    """Name of the CPU, as the kernel or the platform gives it; "unknown CPU" if neither does."""
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown CPU"


def device_key(device: str) -> str:
    """What two processes that use the same hardware agree on: a GPU's UUID, or `cpu`.

    A GPU's index will not do: it depends on CUDA_VISIBLE_DEVICES.
    """
    if not device.startswith("cuda"):
        return "cpu"
    import torch

    return f"gpu-{torch.cuda.get_device_properties(device).uuid}"


def _driver() -> str:
    """Version of the NVIDIA driver; "" where nvidia-smi is not there."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.split("\n", maxsplit=1)[0].strip()


def _triton() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0
