"""Compilers and headers: C++, CUDA, whether the two fit, CUTLASS."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins.building.builders import cutlass as installed_cutlass
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.text import text_of
from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.findings import Finding, State

CUDA = "CUDA"
OLDEST_GCC = (11,)
OLDEST_CLANG = (14,)
OLDEST_NVCC = (12, 1)

# What every launcher is compiled with, so that a missing libgomp or libstdc++ shows here and not at a kernel.
TRIAL = '#include <cmath>\n#include <cstdint>\n#include <vector>\nextern "C" int f() { return std::vector<int>(1)[0]; }\n'
TRIAL_FLAGS = ("-std=c++17", "-fopenmp", "-fPIC", "-shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A CUDA toolkit's compiler."""

    nvcc: str
    version: parse.Version
    """Its version; () if it does not say."""
    folder: Path | None
    """Where the toolkit lies; None if it cannot be found out."""
    trouble: str
    """Why its version is not known."""


def cxx() -> Finding:
    """The compiler of C++ launchers: is it there, new enough, and does it compile and link?"""
    found = Finding(
        group="Required",
        name="C++ compiler",
        state="missing",
        disables="all kernels that are compiled",
        remedy=f"install g++ {OLDEST_GCC[0]} or later (apt install g++, conda install gxx), or set CXX",
        required=True,
    )
    try:
        command = toolchain.cxx()
    except InfrastructureError as error:
        return replace(found, detail=error.what)
    where = shutil.which(command[0]) or command[0]
    ran = tools.run([*command, "--version"])
    if ran.status != 0:
        return replace(found, state="unusable", where=where, detail=ran.last_line)
    family, version = parse.compiler(ran.output)
    oldest = OLDEST_CLANG if family == "clang" else OLDEST_GCC if family else ()
    detail = family or "of a family that is not known here"
    state: State = "too-old" if version and version < oldest else "ok"
    if state == "ok":
        trouble = _trial(command)
        state, detail = ("unusable", trouble) if trouble else (state, detail)
    return replace(found, state=state, version=parse.written(version), where=where, detail=detail)


def _trial(command: tuple[str, ...]) -> str:
    """Compile and link a few lines; the trouble, "" if there is none."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "trial.cpp"
        source.write_text(TRIAL)
        ran = tools.run([*command, *TRIAL_FLAGS, str(source), "-o", str(Path(name) / "trial.so")], limit_s=60)
    if ran.status == 0:
        return ""
    errors = [line for line in ran.output.splitlines() if "error" in line.lower()]
    return f"it cannot compile a launcher: {errors[0][:200] if errors else ran.last_line}"


def toolkit() -> Toolkit | None:
    """The CUDA compiler that kernels are built with; None if there is none."""
    try:
        command = toolchain.nvcc()
    except InfrastructureError:
        return None
    ran = tools.run([*command, "--version"])
    version = parse.nvcc(ran.output) if ran.status == 0 else ()
    place = parse.toolkit(tools.run([*command, "--dryrun", "-x", "cu", "-c", os.devnull]).output)
    folder = Path(os.path.normpath(place)) if place else Path(os.path.realpath(command[0])).parents[1]
    return Toolkit(
        nvcc=command[0],
        version=version,
        folder=folder if (folder / "include").is_dir() else None,
        trouble="" if version else ran.last_line,
    )


def nvcc(found: Toolkit | None) -> Finding:
    """Whether the CUDA compiler is there and new enough."""
    state: State = "missing"
    if found is not None:
        state = "unknown" if not found.version else "too-old" if found.version < OLDEST_NVCC else "ok"
    return Finding(
        group=CUDA,
        name="nvcc",
        state=state,
        version=parse.written(found.version) if found else "",
        where=found.nvcc if found else "",
        detail=found.trouble if found else "",
        disables="kernels that are written in CUDA C++, but not device kernels (contract: device)",
        remedy=f"install the CUDA toolkit, {parse.written(OLDEST_NVCC)} or later, and set CUDA_HOME to it, or "
        "pip install 'pytest-cgins[nvcc]'",
    )


def host_compiler(found: Toolkit | None) -> Finding | None:
    """Whether nvcc takes the host compiler that it will call; None without nvcc."""
    if found is None:
        return None
    chosen = shlex.split(os.environ.get("NVCC_CCBIN", ""))[:1]
    where = (
        shutil.which(chosen[0]) or chosen[0] if chosen else shutil.which("gcc") or shutil.which("g++") or ""
    )
    answer = Finding(
        group=CUDA,
        name="host compiler",
        state="missing",
        where=where,
        disables="kernels that are written in CUDA C++",
        remedy="install a gcc that nvcc takes and set NVCC_CCBIN to it",
    )
    if not where:
        return replace(answer, detail="nvcc calls gcc, which is not on PATH")
    ran = tools.run([where, "--version"])
    family, version = parse.compiler(ran.output) if ran.status == 0 else ("", ())
    answer = replace(answer, version=parse.written(version))
    if not version or family != "gcc":
        return replace(answer, state="unknown", detail="not a gcc" if version else ran.last_line)
    newest = parse.newest_gcc(text_of(found.folder / "include/crt/host_config.h")) if found.folder else None
    if newest is None:
        return replace(
            answer, state="unknown", detail="the toolkit's host_config.h does not say which gcc it takes"
        )
    if version[0] > newest:
        detail = f"nvcc {parse.written(found.version)} takes gcc up to {newest}, this is {version[0]}"
        remedy = f"install g++-{newest} and set NVCC_CCBIN=g++-{newest}, or a newer CUDA toolkit"
        return replace(answer, state="unusable", detail=detail, remedy=remedy)
    return replace(answer, state="ok", detail=f"nvcc {parse.written(found.version)} takes gcc up to {newest}")


def cutlass() -> Finding:
    """CUTLASS's headers, where builds find them."""
    found = Finding(
        group=CUDA,
        name="CUTLASS headers",
        state="missing",
        disables="kernels that include CuTe or CUTLASS",
        remedy=installed_cutlass.INSTALL,
    )
    try:
        headers = installed_cutlass.installed()
    except InfrastructureError as error:
        # Builds do not look any further, either.
        return replace(found, state="unusable", detail=error.what, remedy=error.remedy)
    if headers is None:
        return found
    version = parse.version(headers.version)
    state: State = "ok" if version else "unknown"
    return replace(found, state=state, version=parse.written(version), where=str(headers.folders[0]))
