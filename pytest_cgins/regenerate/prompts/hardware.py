"""What a kernel will run on, as the device itself tells it; what nobody tells is unknown, never guessed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pytest_cgins.building.compilers import toolchain
from pytest_cgins.config import Config
from pytest_cgins.core.device import Device, DeviceName, device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.text import text_of
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.prompts.blocks import one_line
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.pool import WorkerPool

LIBRARY = "libcuda.so.1"
_PROBE = Path(__file__).parent / "device_probe.py"
_LIMIT_S = 30.0
_PROC = Path("/proc")
_SYS = Path("/sys")
# What a compiler for the host can use, narrow to wide.
_VECTOR_FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_bf16", "amx_int8", "asimd", "asimdhp", "bf16", "sve", "sve2",
)  # fmt: skip
_CACHE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device. 0, "" and () are unknown."""

    device: DeviceName
    """Device type."""
    name: str = ""
    """CPU or GPU model."""
    arch: str = ""
    """GPU: `sm_90`."""
    sm_count: int = 0
    """GPU: multiprocessors."""
    warp_width: int = 0
    """GPU: threads of a warp."""
    threads_per_block: int = 0
    """GPU: at most."""
    threads_per_sm: int = 0
    """GPU: at most resident on a multiprocessor."""
    shared_nbytes_per_block: int = 0
    """GPU: that a block has without asking for more."""
    shared_nbytes_per_block_opt_in: int = 0
    """GPU: with `cudaFuncAttributeMaxDynamicSharedMemorySize`."""
    shared_nbytes_per_sm: int = 0
    """GPU: of all blocks on a multiprocessor."""
    registers_per_sm: int = 0
    """GPU: of 32 bits, of a multiprocessor."""
    l2_nbytes: int = 0
    """GPU: the last-level cache."""
    memory_nbytes: int = 0
    """GPU: its memory."""
    clock_mhz: int = 0
    """GPU: greatest clock of the multiprocessors."""
    memory_clock_mhz: int = 0
    """GPU: greatest clock of the memory."""
    memory_bus_bits: int = 0
    """GPU: width of the memory's bus."""
    cuda: str = ""
    """GPU: newest CUDA version that the driver supports."""
    driver: str = ""
    """GPU: version of the driver."""
    cores: int = 0
    """CPU: cores that a kernel may use."""
    vector_flags: tuple[str, ...] = ()
    """CPU: instruction sets for vectors, narrow to wide."""
    caches: tuple[tuple[str, int], ...] = ()
    """CPU: level and bytes: `L1d`, `L2`, `L3`."""
    peak_bytes_per_s: float = 0.0
    """Measured: a copy of memory, bytes read and written."""
    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Measured: a product of matrices, by dtype."""
    versions: tuple[str, ...] = ()
    """Compilers and libraries: `g++ 12.2.0`."""


def read(device: str, *, proc: Path = _PROC, sys_folder: Path = _SYS, library: str = LIBRARY) -> Hardware:
    """Ask a device what it is.

    Args:
        device: `cpu`, `cuda` or `cuda:1`.
        proc: where the kernel tells of CPUs.
        sys_folder: where it tells of their caches.
        library: CUDA's driver.
    """
    kind = device_of(device)
    facts = _cuda(device, library, proc) if kind.is_cuda else _cpu(proc, sys_folder)
    known = {field.name for field in fields(Hardware)} & facts.keys()
    return Hardware(device=kind.name, **{name: facts[name] for name in known})


# ---- CUDA


def _cuda(device: str, library: str, proc: Path) -> dict[str, Any]:
    index = device.partition(":")[2] or "0"
    try:
        ran = subprocess.run(
            [sys.executable, "-I", str(_PROBE), index, library],
            capture_output=True, timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        answers = json.loads(ran.stdout.decode(errors="replace").strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return {}
    numbers = {name: value for name, value in answers.items() if isinstance(value, int) and value > 0}
    facts: dict[str, Any] = dict(numbers)
    facts["name"] = one_line(str(answers.get("name", "")), 80)
    facts["cuda"] = one_line(str(answers.get("cuda", "")), 20)
    if "major" in numbers:
        facts["arch"] = f"sm_{numbers['major']}{answers.get('minor', 0)}"
    facts["clock_mhz"] = numbers.get("clock_khz", 0) // 1000
    facts["memory_clock_mhz"] = numbers.get("memory_clock_khz", 0) // 1000
    version = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)", text_of(proc / "driver/nvidia/version"))
    facts["driver"] = version[1] if version else ""
    return facts


# ---- CPU


def _cpu(proc: Path, sys_folder: Path) -> dict[str, Any]:
    info = text_of(proc / "cpuinfo")
    name = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    present = set(flags[1].split()) if flags else set()
    return {
        "name": one_line(name[1], 80) if name else "",
        "cores": len(os.sched_getaffinity(0)),
        "vector_flags": tuple(flag for flag in _VECTOR_FLAGS if flag in present),
        "caches": _caches(sys_folder / "devices/system/cpu/cpu0/cache"),
    }


def _caches(folder: Path) -> tuple[tuple[str, int], ...]:
    caches = []
    for cache in sorted(folder.glob("index*")):
        level, kind, size = (text_of(cache / name).strip() for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG])", size)
        if level.isdigit() and match and kind in ("Data", "Unified"):
            caches.append(
                (f"L{level}{'d' if kind == 'Data' else ''}", int(match[1]) * _CACHE_UNITS[match[2]])
            )
    return tuple(caches)


def described(config: Config, reference: WorkerPool, environment: Mapping[str, str], device: str) -> Hardware:
    """A device, as a worker describes it and has measured its peaks; what cannot be found out is 0 or "" in it.

    Args:
        config: the project's file.
        reference: a pool whose trusted worker is asked.
        environment: added to that of workers.
        device: `cpu` or `cuda`.
    """
    evaluator = Evaluator(config, seed=0, timing=False, environment=environment, reference=reference)
    with closing(evaluator):
        try:
            found = evaluator.devices.described().get(device)
            peaks = evaluator.devices.peaks(device_of(device).case_name)
        except EndedError:
            return read(device)
    own, kind = read(device), device_of(device)
    if found is not None:
        told = (
            {"driver": found.driver or own.driver}
            if kind.is_cuda
            else {"cores": found.host_cores or own.cores}
        )
        own = replace(own, versions=_versions(found, kind), **told)
    if peaks:
        flops = dict(sorted(peaks.matmul_flops_per_s.items()))
        own = replace(own, peak_bytes_per_s=peaks.copy_bytes_per_s, peak_flops_per_s=flops)
    return own


def _versions(found: Environment, device: Device) -> tuple[str, ...]:
    """What kernels are compiled with and run beside."""
    told = [
        ("torch", found.torch),
        *([("CUDA", found.cuda), ("Triton", found.triton)] if device.is_cuda else []),
    ]
    for compiler in (toolchain.nvcc, toolchain.cxx) if device.is_cuda else (toolchain.cxx,):
        with suppress(InfrastructureError):
            command = compiler()
            number = re.search(r"\d+\.\d+(?:\.\d+)?", toolchain.version(command))
            told.append((Path(command[0]).name, number[0] if number else ""))
    return tuple(f"{name} {version}" for name, version in told if version)
