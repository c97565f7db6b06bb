"""The whole examination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_cgins import __version__
from pytest_cgins.doctor import compilers, gpu, profiling, python, sandbox, services, storage
from pytest_cgins.doctor.findings import DOCTOR_VERSION, DoctorReport, Finding


def examine(*, probe: bool = False, proc: Path = Path("/proc")) -> DoctorReport:
    """Look for everything. Takes a few seconds, and never raises for what it finds.

    Args:
        probe: also build a tiny kernel and run it under ncu.
        proc: where the system's own files are.
    """
    # All of these wait for other processes, so threads are enough to overlap them.
    with ThreadPoolExecutor(max_workers=8) as pool:
        torch = pool.submit(python.ask_torch)
        driver = pool.submit(gpu.ask_driver, proc=proc)
        toolkit = pool.submit(compilers.toolkit)
        cxx = pool.submit(compilers.cxx)
        triton = pool.submit(python.triton)
        isolation = pool.submit(sandbox.isolation, proc=proc)
        findings = [
            python.interpreter(),
            python.torch(*torch.result()),
            cxx.result(),
            gpu.driver(driver.result()),
            *gpu.gpus(driver.result(), torch.result()[0]),
            compilers.nvcc(toolkit.result()),
            compilers.host_compiler(toolkit.result()),
            compilers.cutlass(),
            *_profiling(toolkit.result(), driver.result(), probe=probe, proc=proc),
            *triton.result(),
            *python.packages(),
            *python.pytest_plugins(),
            storage.build_cache(),
            *storage.memory(),
            *isolation.result(),
            *services.variables(),
            services.git(),
        ]
    return report(findings, probed=probe)


def _profiling(
    toolkit: compilers.Toolkit | None, driver: gpu.Driver, *, probe: bool, proc: Path
) -> Sequence[Finding]:
    programs = profiling.programs(toolkit)
    ncu = programs[0].where
    counters = [profiling.counters(ncu, driver_release=driver.release, proc=proc)]
    if probe:
        counters.append(profiling.probe_counters(ncu, toolkit))
    return [programs[0], *counters, *programs[1:]]


def report(findings: Iterable[Finding | None], *, probed: bool) -> DoctorReport:
    """Put findings together; None stands for one that does not apply here."""
    return DoctorReport(
        version=DOCTOR_VERSION,
        cgins=__version__,
        platform=python.this_platform(),
        probed=probed,
        findings=tuple(finding for finding in findings if finding is not None),
    )
