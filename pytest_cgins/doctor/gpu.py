"""The driver and the GPUs, as the driver and as torch see them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.core.text import text_of
from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.compilers import CUDA
from pytest_cgins.doctor.findings import Finding, State

OLDEST_DRIVER = (12, 0)
NO_GPU = "cases with device: cuda, which are skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What is known of the NVIDIA driver."""

    release: str
    """The driver's own version, e.g. `570.86.15`; "" if not known."""
    cuda: parse.Version
    """Newest CUDA version that it supports; () if not known."""
    gpus: tuple[tuple[str, str], ...]
    """Name and capability of each GPU that the driver knows."""
    trouble: str
    """What its library said instead."""

    @property
    def there(self) -> bool:
        """Whether anything shows that a driver is installed."""
        return bool(self.release or self.cuda or self.gpus)


def ask_driver(*, proc: Path = Path("/proc")) -> Driver:
    """Ask NVIDIA's management library, and the driver's file in /proc."""
    loaded = parse.parameters(text_of(proc / "driver/nvidia/version"))
    answer, ran = tools.probe("gpus", limit_s=tools.LIMIT_S)
    told: dict[str, Any] = {"trouble": ran.last_line} if answer is None else answer
    return Driver(
        release=told.get("release") or parse.dotted(loaded.get("NVRM version", "")),
        cuda=parse.cuda_version(told.get("cuda", 0)),
        gpus=tuple((name, f"{major}.{minor}") for name, (major, minor) in told.get("gpus", ())),
        trouble=told.get("trouble", ""),
    )


def driver(found: Driver) -> Finding:
    """Whether the driver is there and new enough."""
    state: State = "missing"
    if found.there:
        state = "unknown" if not found.cuda else "too-old" if found.cuda < OLDEST_DRIVER else "ok"
    elif found.trouble:
        state = "unusable"
    supports = f"supports CUDA {parse.written(found.cuda)}" if found.cuda else ""
    return Finding(
        group=CUDA,
        name="driver",
        state=state,
        version=found.release,
        detail=supports or found.trouble,
        disables=NO_GPU,
        remedy=f"install an NVIDIA driver for CUDA {parse.written(OLDEST_DRIVER)} or later; in a container, "
        "start it with --gpus all",
    )


def gpus(found: Driver, torch: Any) -> tuple[Finding, ...]:
    """One finding a GPU that torch can use, or one that says why there is none."""
    devices = torch.get("devices", []) if isinstance(torch, dict) else []
    if devices:
        usable = [_usable(index, *device) for index, device in enumerate(devices)]
        trouble = torch.get("trouble", "")
        return (*usable, *([_unusable(len(devices), trouble)] if trouble else []))
    missing = Finding(
        group=CUDA,
        name="GPU",
        state="missing",
        disables=NO_GPU,
        remedy="run on a machine with an NVIDIA GPU; kernels for the CPU are gated without one",
    )
    if not found.gpus:
        return (missing,)
    name, capability = found.gpus[0]
    seen = f"{len(found.gpus)} x {name}" if len(found.gpus) > 1 else name
    detail, remedy = _why_not(found, torch)
    return (
        Finding(
            group=CUDA,
            name="GPU",
            state="unusable" if torch is not None else "unknown",
            version=_sm(capability),
            detail=f"{seen} is there, but {detail}",
            disables=missing.disables,
            remedy=remedy,
        ),
    )


def _why_not(found: Driver, torch: Any) -> tuple[str, str]:
    """Why torch cannot use a GPU that the driver lists, and what to do."""
    if torch is None:
        return "torch could not be asked", "fix torch first"
    built = torch.get("cuda")
    if not built:
        return "torch is built without CUDA", "install torch's build for your CUDA version"
    needed = parse.version(str(built))
    if found.cuda and needed[:1] > found.cuda[:1]:
        return (
            f"torch is built for CUDA {built} and the driver supports CUDA {parse.written(found.cuda)}",
            "upgrade the driver, or install torch's build for an older CUDA version",
        )
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides it", "unset CUDA_VISIBLE_DEVICES"
    said = torch.get("trouble") or "it gives no reason"
    return f"torch cannot use it: {said}", "run nvidia-smi, and python -c 'import torch; torch.cuda.init()'"


def _usable(index: int, name: str, major: int, minor: int, nbytes: int) -> Finding:
    return Finding(
        group=CUDA,
        name=f"GPU {index}",
        state="ok",
        version=_sm(f"{major}.{minor}"),
        detail=f"{name}, {parse.size(nbytes)}",
        disables=NO_GPU,
    )


def _unusable(index: int, trouble: str) -> Finding:
    """The first GPU that torch fails on; those after it are not tried."""
    return Finding(
        group=CUDA,
        name=f"GPU {index}",
        state="unusable",
        detail=f"torch cannot use it: {trouble}",
        disables="cases on this GPU and on those after it",
        remedy="hide it with CUDA_VISIBLE_DEVICES, or install a torch that is built for it",
    )


def _sm(capability: str) -> str:
    return f"sm_{capability.replace('.', '')}"
