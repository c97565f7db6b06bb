"""The whole examination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pytest_cgins import __version__
from pytest_cgins.doctor import compilers, gpu, nvrtc, profiling, python, sandbox, services, storage
from pytest_cgins.doctor.findings import DOCTOR_VERSION, DoctorReport, Finding

Check = Callable[[], "Finding | Iterable[Finding | None] | None"]


def examine(*, probe: bool = False, proc: Path = Path("/proc")) -> DoctorReport:
    """Look for everything. Takes a few seconds, and never raises for what it finds.

    With `probe` a tiny kernel is built and run under ncu.
    """
    # All of these wait for other processes, so threads are enough to overlap them.
    with ThreadPoolExecutor(max_workers=8) as pool:
        torch = pool.submit(python.ask_torch).result
        driver = pool.submit(gpu.ask_driver, proc=proc).result
        toolkit = pool.submit(compilers.toolkit).result
        cxx = pool.submit(compilers.cxx).result
        library = pool.submit(nvrtc.library).result
        triton = pool.submit(python.triton).result
        isolation = pool.submit(sandbox.isolation, proc=proc).result
        checks: tuple[tuple[str, str, Check], ...] = (
            (python.REQUIRED, "Python", python.interpreter),
            (python.REQUIRED, "torch", lambda: python.torch(*torch())),
            (python.REQUIRED, "C++ compiler", cxx),
            (compilers.CUDA, "driver", lambda: gpu.driver(driver())),
            (compilers.CUDA, "GPU", lambda: gpu.gpus(driver(), torch()[0])),
            (compilers.CUDA, "nvcc", lambda: compilers.nvcc(toolkit())),
            (compilers.CUDA, "host compiler", lambda: compilers.host_compiler(toolkit())),
            (compilers.CUDA, "NVRTC", library),
            (compilers.CUDA, "CUDA headers", lambda: nvrtc.headers(library())),
            (compilers.CUDA, "CUTLASS headers", compilers.cutlass),
            (
                profiling.PROFILING,
                "profilers",
                lambda: profiling.all_of(toolkit(), driver_release=driver().release, probe=probe, proc=proc),
            ),
            (python.PACKAGES, "Triton", triton),
            (python.PACKAGES, "packages", python.packages),
            (python.PYTEST, "plugins", python.pytest_plugins),
            (storage.STORAGE, "build cache", storage.build_cache),
            (storage.STORAGE, "shared memory", storage.shared_memory),
            (sandbox.SANDBOX, "isolation", isolation),
            (services.REGENERATION, "variables", services.variables),
            (services.REGENERATION, "git", services.git),
        )
        findings = [finding for check in checks for finding in _checked(*check)]
    return report(findings, probed=probe)


def _checked(group: str, name: str, check: Check) -> Iterator[Finding | None]:
    """What a check finds; if it fails itself, that this is not known: the others must still be told."""
    try:
        found: Any = check()
    except Exception as error:  # noqa: BLE001
        yield Finding(
            group=group,
            name=name,
            state="unknown",
            detail=f"the doctor failed here: {type(error).__name__}: {error}",
            disables="this part of the examination",
            remedy="install pytest-cgins with all its requirements, or report this line",
        )
        return
    yield from (found,) if isinstance(found, Finding) or found is None else found


def report(findings: Iterable[Finding | None], *, probed: bool) -> DoctorReport:
    """Put findings together; None stands for one that does not apply here."""
    return DoctorReport(
        version=DOCTOR_VERSION,
        cgins=__version__,
        platform=python.this_platform(),
        probed=probed,
        findings=tuple(finding for finding in findings if finding is not None),
    )
