"""Python and the packages: torch, Triton, CuTe, pytest and its plugins, ourselves."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

from pytest_cgins import __version__
from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.findings import Finding, State

REQUIRED = "Required"
PACKAGES = "Python packages"
PYTEST = "pytest"

OLDEST_TORCH = (2, 6)
TORCH_LIMIT_S = 120.0
"""An import of torch from a cold network file system takes minutes."""


def interpreter() -> Finding:
    """The Python that runs this, and therefore the workers."""
    return Finding(
        group=REQUIRED,
        name="Python",
        state="ok",
        version=parse.written(sys.version_info[:3]),
        where=sys.executable,
        disables="everything",
        required=True,
    )


def ask_torch() -> tuple[Any, tools.ProgramResult]:
    """Import torch in a process of its own: what `probes/torch_devices.py` prints, or None."""
    return tools.probe("torch_devices", limit_s=TORCH_LIMIT_S)


def torch(answer: Any, ran: tools.ProgramResult) -> Finding:
    """Whether torch is there, new enough and importable; `answer` and `ran` are of `ask_torch`."""
    installed = installed_version("torch")
    state: State = "unknown"
    version, where, detail = installed, "", ran.trouble
    if answer:
        version, where = str(answer.get("version")), str(answer.get("path"))
        detail = f"built for CUDA {answer['cuda']}" if answer.get("cuda") else "built without CUDA"
        state = "too-old" if (0,) < parse.version(version)[:2] < OLDEST_TORCH else "ok"
    elif ran.status is not None:
        state, detail = ("unusable" if installed else "missing"), f"import torch: {ran.last_line}"
    return Finding(
        group=REQUIRED,
        name="torch",
        state=state,
        version=version,
        where=where,
        detail=detail,
        disables="everything: it records, and its answers are the reference",
        remedy=f"pip install 'torch>={parse.written(OLDEST_TORCH)}', the build for your CUDA version",
        required=True,
    )


def installed_version(package: str) -> str:
    """Version of an installed package; "" if it is not, or its metadata are damaged."""
    try:
        return str(importlib.metadata.version(package) or "")
    except Exception:  # noqa: BLE001 - broken metadata raise anything
        return ""


def triton() -> tuple[Finding, Finding]:
    """Triton, and its interpreter, which needs no GPU."""
    installed = installed_version("triton")
    interpreted: State = "missing"
    trouble = ""
    if installed:
        answer, ran = tools.probe("triton_interpreter", limit_s=TORCH_LIMIT_S, env={"TRITON_INTERPRET": "1"})
        if answer is not None:
            interpreted = "ok" if answer.get("right") is True else "unusable"
            trouble = "" if interpreted == "ok" else "its answer is wrong"
        else:
            interpreted = "unknown" if ran.status is None else "unusable"
            trouble = ran.last_line
    return (
        Finding(
            group=PACKAGES,
            name="Triton",
            state=package_state(installed, (3, 2)),
            version=installed,
            disables="kernels that are written in Triton",
            remedy="pip install 'triton>=3.2'",
        ),
        Finding(
            group=PACKAGES,
            name="Triton interpreter",
            state=interpreted,
            detail=trouble,
            disables="implementations with interpret: true",
            remedy="install a Triton and a numpy that fit torch"
            if installed
            else "pip install 'triton>=3.2'",
        ),
    )


def package_state(version: str, oldest: parse.Version) -> State:
    """State of a package of which at least `oldest` is needed."""
    if not version:
        return "missing"
    found = parse.version(version)
    if not found:
        return "unknown"
    return "too-old" if found < oldest else "ok"


def package(name: str, *, oldest: parse.Version, disables: str, group: str = PACKAGES) -> Finding:
    """An installed package, by its name on the index."""
    version = installed_version(name)
    return Finding(
        group=group,
        name=name,
        state=package_state(version, oldest),
        version=version,
        disables=disables,
        remedy=f"pip install '{name}>={parse.written(oldest)}'",
    )


def packages() -> tuple[Finding, ...]:
    """What else is used if it is there."""
    return (
        package("nvidia-cutlass-dsl", oldest=(4, 0), disables="kernels that are written in CuTe DSL"),
        package("transformers", oldest=(4, 48), disables="recording the example project's models"),
        package("openai", oldest=(1, 60), disables="regeneration"),
    )


def pytest_plugins() -> tuple[Finding, ...]:
    """pytest, plugins that change what a run can do, and our own registration."""
    return (
        package("pytest", oldest=(8, 0), disables="the gate", group=PYTEST),
        _registered(),
        requirements(),
        package(
            "pytest-benchmark",
            oldest=(5, 0, 1),
            disables="timings in pytest-benchmark's records",
            group=PYTEST,
        ),
        package("pytest-xdist", oldest=(3, 6), disables="several test processes (-n)", group=PYTEST),
    )


def requirements() -> Finding:
    """What pytest-cgins itself needs, as its own metadata say."""
    try:
        from packaging.requirements import Requirement

        listed = [Requirement(one) for one in importlib.metadata.requires("pytest-cgins") or []]
        needed = [one.name for one in listed if one.marker is None or one.marker.evaluate({"extra": ""})]
    except Exception:  # noqa: BLE001 - not installed, or broken metadata
        needed = []
    absent = [name for name in needed if not installed_version(name)]
    state: State = "unknown" if not needed else "missing" if absent else "ok"
    told = {
        "unknown": "pytest-cgins is not installed: what it needs is not known",
        "missing": f"not installed: {', '.join(absent)}",
    }
    return Finding(
        group=PYTEST,
        name="requirements",
        state=state,
        detail=told.get(state, f"all {len(needed)} installed"),
        disables="pytest --cgins",
        remedy="pip install pytest-cgins (or -e . in its checkout) with this very Python",
    )


def _registered() -> Finding:
    """Whether pytest loads our plugin by itself."""
    try:
        entries = importlib.metadata.entry_points(group="pytest11")
        known = any(entry.value == "pytest_cgins.plugin" for entry in entries)
    except Exception:  # noqa: BLE001 - some other package's metadata are broken
        known = None
    state: State = "unknown" if known is None else "ok" if known else "unusable"
    detail = ""
    remedy = "pip install pytest-cgins (or -e . in its checkout) with this very Python"
    if known and os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        state, detail = "unusable", "PYTEST_DISABLE_PLUGIN_AUTOLOAD is set"
        remedy = "unset it, or run pytest -p pytest_cgins.plugin"
    return Finding(
        group=PYTEST,
        name="pytest-cgins",
        state=state,
        version=__version__,
        where=str(Path(__file__).resolve().parents[1]),
        detail=detail or ("" if known else "pytest does not know it as a plugin"),
        disables="pytest --cgins",
        remedy=remedy,
    )


def this_platform() -> str:
    """System, release, machine."""
    return f"{platform.system()} {platform.release()} {platform.machine()}".strip()
