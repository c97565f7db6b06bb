"""Tools that look into kernels: ncu and its counters, compute-sanitizer, cuobjdump."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_cgins.core.text import text_of
from pytest_cgins.doctor import parse, tools
from pytest_cgins.doctor.compilers import Toolkit
from pytest_cgins.doctor.findings import Finding, State

PROFILING = "Profiling"
PROBE_LIMIT_S = 180.0
METRIC = "sm__cycles_elapsed.max"
KERNEL = "__global__ void tiny(int* p) { if (p) *p = 1; }\nint main() { tiny<<<1, 1>>>(nullptr); return cudaDeviceSynchronize(); }\n"
INSTALL_NCU = "install Nsight Compute (nsight-compute, part of the CUDA toolkit)"
COUNTERS_REMEDY = (
    "run as an administrator; or have one set options nvidia NVreg_RestrictProfilingToAdminUsers=0 in "
    "/etc/modprobe.d and load the driver again; or start the container with --cap-add=SYS_ADMIN"
)


def folders(toolkit: Toolkit | None) -> list[Path]:
    """Where the toolkit's programs lie when they are not on PATH."""
    named = os.environ.get("CUDA_HOME")
    places = [Path(named) / "bin"] if named else []
    places += [toolkit.folder / "bin"] if toolkit and toolkit.folder else []
    places += [Path("/usr/local/cuda/bin")]
    return [*places, *sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)]


def all_of(toolkit: Toolkit | None, *, driver_release: str, probe: bool, proc: Path) -> tuple[Finding, ...]:
    """ncu, its counters, with `probe` what ncu itself makes of them, and the other programs."""
    first, *others = programs(toolkit)
    found = [first, counters(first.where, driver_release=driver_release, proc=proc)]
    if probe:
        found.append(probe_counters(first.where, toolkit))
    return (*found, *others)


def programs(toolkit: Toolkit | None) -> tuple[Finding, ...]:
    """The three programs, each with its version."""
    races, machine_code = "checks for races and bad addresses on request", "evidence from machine code (SASS)"
    remedy, places = "install it with the CUDA toolkit", folders(toolkit)
    return (
        ncu(toolkit),
        tools.program(PROFILING, "compute-sanitizer", races, remedy, places),
        tools.program(PROFILING, "cuobjdump", machine_code, remedy, places, read=parse.nvcc),
    )


def ncu(toolkit: Toolkit | None) -> Finding:
    """Nsight Compute on the command line."""
    return tools.program(
        PROFILING, "ncu", "performance counters as evidence (roofline)", INSTALL_NCU, folders(toolkit)
    )


def counters(ncu: str, *, driver_release: str, proc: Path = Path("/proc")) -> Finding:
    """Whether performance counters may be read, as far as the driver's settings and our capabilities say."""
    params = text_of(proc / "driver/nvidia/params")
    restricted = parse.profiling_is_restricted(params)
    held = parse.capabilities(text_of(proc / "self/status"))
    state: State
    if not params:
        state, detail = (
            ("unknown", "the driver's settings cannot be read")
            if driver_release
            else ("missing", "no driver")
        )
    elif restricted is None:
        state, detail = "unknown", "the driver's settings do not say whether they are restricted"
    elif not restricted:
        state, detail = "ok", "open to all users"
    elif held is None:
        state, detail = "unknown", "for administrators only; this process's capabilities are not known"
    elif parse.has_capability(held, parse.CAP_SYS_ADMIN):
        state, detail = "ok", "for administrators only; this process has CAP_SYS_ADMIN"
    elif parse.has_capability(held, parse.CAP_PERFMON):
        newer = parse.version(driver_release) >= (565,)
        state = "ok" if newer else "unknown"
        detail = "for administrators only; this process has CAP_PERFMON"
        detail += "" if newer else ", which drivers take from 565 on"
    else:
        state, detail = (
            "unusable",
            "for administrators only; this process has neither CAP_SYS_ADMIN nor CAP_PERFMON",
        )
    if state == "ok" and not ncu:
        detail += "; but there is no ncu"
    return Finding(
        group=PROFILING,
        name="counters",
        state=state,
        detail=detail,
        disables="performance counters as evidence (roofline); the profile without them stays",
        remedy="install the driver" if state == "missing" else COUNTERS_REMEDY,
    )


def probe_counters(ncu: str, toolkit: Toolkit | None) -> Finding:
    """Run ncu on a kernel of one thread."""
    answer = Finding(
        group=PROFILING,
        name="counters (probe)",
        state="unknown",
        disables="performance counters as evidence (roofline); the profile without them stays",
        remedy=COUNTERS_REMEDY,
    )
    if not ncu:
        return replace(answer, detail="there is no ncu to try it with", remedy="install Nsight Compute")
    with tempfile.TemporaryDirectory() as name:
        command, trouble = _tiny_program(toolkit, Path(name))
        if not command:
            return replace(answer, detail=trouble, remedy="fix nvcc first")
        ran = tools.run(
            [ncu, "--metrics", METRIC, "--target-processes", "application-only", *command],
            limit_s=PROBE_LIMIT_S,
            env={"TMPDIR": name},
        )
    state, detail, remedy = judge_probe(ran)
    return replace(answer, state=state, detail=detail, remedy=remedy)


def judge_probe(ran: tools.ProgramResult) -> tuple[State, str, str]:
    """State, detail and remedy, from what ncu printed."""
    errors = [line.strip() for line in ran.output.splitlines() if line.startswith("==ERROR==")]
    if "ERR_NVGPUCTRPERM" in ran.output:
        return "unusable", "ncu was refused: ERR_NVGPUCTRPERM", COUNTERS_REMEDY
    if ran.status == 0 and not errors and re.search(rf"{re.escape(METRIC)}\s+\S+\s+[\d,.]*\d", ran.output):
        return "ok", "ncu measured a tiny kernel", ""
    said = errors[0].removeprefix("==ERROR==").strip() if errors else ran.last_line
    busy = (
        "another profiler may hold the counters (DCGM does)" if "already in use" in ran.output.lower() else ""
    )
    return "unknown", f"ncu measured nothing: {said[:200]}", busy or "run ncu by hand on a program of yours"


def _tiny_program(toolkit: Toolkit | None, folder: Path) -> tuple[list[str], str]:
    """A command that launches one kernel, built in `folder`; [] and the trouble if there is none."""
    if toolkit is None:
        return [], "there is no nvcc to build a kernel with"
    source, program = folder / "tiny.cu", folder / "tiny"
    source.write_text(KERNEL)
    ran = tools.run([toolkit.nvcc, "-arch=native", "-o", str(program), str(source)], limit_s=PROBE_LIMIT_S)
    if ran.status != 0:
        return [], f"nvcc cannot build a tiny kernel: {ran.last_line}"
    return [str(program)], ""
