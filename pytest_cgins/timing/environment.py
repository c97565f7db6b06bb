"""What a measurement was made with."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

from pytest_cgins.core.environment_key import TIMING_PROTOCOL
from pytest_cgins.core.model import Environment
from pytest_cgins.timing.nvml import Gpu

_CPU_INFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
_TURBO = {"intel_pstate/no_turbo": {"0": "on", "1": "off"}, "cpufreq/boost": {"1": "on", "0": "off"}}


def describe(device: str) -> Environment:
    """Describe the machine and versions behind `cpu` or a `cuda:<index>`; imports torch, not triton."""
    import torch

    described = Environment(
        device="cpu",
        device_name=cpu_model(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        triton=_triton(),
        host_cores=len(_cores()),
        clock_policy=cpu_clock_policy(),
        protocol=TIMING_PROTOCOL,
    )
    return _on_gpu(described, device) if device.startswith("cuda") else described


def _on_gpu(host: Environment, device: str) -> Environment:
    import torch

    properties = torch.cuda.get_device_properties(device)
    gpu = Gpu.find(torch.device(device).index or 0)
    return replace(
        host,
        device="cuda",
        device_name=properties.name,
        device_uuid=gpu.uuid if gpu else f"GPU-{properties.uuid}",
        sm_count=properties.multi_processor_count,
        memory_nbytes=properties.total_memory,
        driver=(gpu.driver() if gpu else None) or _driver(),
        mig=gpu.mig() if gpu else None,
        ecc=gpu.ecc() if gpu else None,
        clock_policy=(gpu.clock_policy() if gpu else None) or "",
        cudnn=_cudnn(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        cublas=_cublas(host.cuda),
    )


def cpu_model() -> str:
    """Name of the CPU, as the kernel or the platform gives it; "unknown CPU" if neither does."""
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown CPU"


def cpu_clock_policy() -> str:
    """Governors of the cores that the process may use, and whether they may clock higher than their base.

    Returns:
        `governor performance, turbo off`; "" in a virtual machine, which is not told.
    """
    files = (_CPUS / f"cpu{core}" / "cpufreq" / "scaling_governor" for core in _cores())
    governors = sorted({text for file in files if (text := _line(file))})
    turbos = (words.get(_line(_CPUS / name)) for name, words in _TURBO.items())
    turbo = next((word for word in turbos if word), "")
    parts = [f"governor {'/'.join(governors)}" if governors else "", f"turbo {turbo}" if turbo else ""]
    return ", ".join(part for part in parts if part)


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


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 0))


def _cudnn(version: int | None) -> str:
    """Text of a number: 91002 is cuDNN 9.10.2, and 8907 is 8.9.7 by the count before its ninth version."""
    if version is None:
        return ""
    major = 10000 if version >= 90000 else 1000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _cublas(cuda: str) -> str:
    """Version of the cuBLAS that torch has loaded; "" if it has loaded none by CUDA's major version."""
    try:
        ask = ctypes.CDLL(f"libcublas.so.{cuda.partition('.')[0]}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        numbers = [ctypes.c_int() for _ in range(3)]
        told = [ask.cublasGetProperty(kind, ctypes.byref(number)) for kind, number in enumerate(numbers)]
    except (OSError, AttributeError):
        return ""
    return "" if any(told) else ".".join(str(number.value) for number in numbers)


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
