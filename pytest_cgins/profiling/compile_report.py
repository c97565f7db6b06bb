"""What compilers say of a build: registers, spills, opcodes, warnings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.errors import InfrastructureError
from pytest_cgins.kernels import resources, sass, toolchain
from pytest_cgins.kernels.cache import RECORD
from pytest_cgins.model import CompiledKernel
from pytest_cgins.profiling.model import CompiledFunction

MOST_WARNINGS = 20
MOST_CHARACTERS = 240


def archs_of(compiled: CompiledKernel) -> tuple[str, ...]:
    """Architectures whose machine code is in a build; PTX has none."""
    wanted = compiled.source.archs or toolchain.present_archs()
    return tuple(arch for arch in wanted if arch.startswith("sm_"))


def archs_near(arch: str) -> tuple[str, ...]:
    """How the code of one GPU may be named: Triton builds for sm_90a where others build for sm_90."""
    plain = arch.rstrip("af")
    return plain, f"{plain}a", f"{plain}f"


def functions(compiled: CompiledKernel) -> tuple[tuple[CompiledFunction, ...], tuple[str, ...]]:
    """The compiler's report of a built CUDA kernel, and what is missing in it."""
    found: list[CompiledFunction] = []
    missing: list[str] = []
    for arch in archs_of(compiled):
        try:
            told = resources.of(compiled, arch)
        except InfrastructureError as error:
            missing.append(f"registers and spills: {error.what} → {error.remedy}")
            continue
        missing += told.notes
        found += [
            CompiledFunction(
                function=one.function,
                arch=one.arch,
                registers_per_thread=one.registers_per_thread,
                spill_nbytes_per_thread=one.spill_store_nbytes + one.spill_load_nbytes,
                static_shared_nbytes_per_block=one.static_shared_nbytes_per_block,
                instructions=one.instructions or (),
            )
            for one in told.functions
        ]
    return tuple(found), tuple(dict.fromkeys(missing))


def of_cubins(cubins: Sequence[Path], arch: str) -> tuple[tuple[CompiledFunction, ...], tuple[str, ...]]:
    """Opcodes of machine code that a kernel has compiled by itself; its registers are in no log."""
    tool = sass.disassembler()
    if tool is None:
        return (), (f"machine code: {sass.TOOL} is not installed → {sass.REMEDY}",)
    found: list[CompiledFunction] = []
    missing: list[str] = []
    for cubin in cubins:
        try:
            text = sass.listing(tool, cubin)
        except InfrastructureError as error:
            missing.append(f"machine code of {cubin.name}: {error.what}")
            continue
        found += [
            CompiledFunction(
                function=name,
                arch=near,
                registers_per_thread=0,
                spill_nbytes_per_thread=0,
                static_shared_nbytes_per_block=0,
                instructions=mix,
            )
            for near in archs_near(arch)
            for name, those in sass.count(text, near).items()
            for mix in those
        ]
    return tuple(found), tuple(missing)


def build_lines(compiled: CompiledKernel) -> tuple[str, ...]:
    """How it was built, and the lines of the build's log that warn; () for what no compiler of ours has built."""
    if not compiled.library:
        return ()
    try:
        record = json.loads((Path(compiled.library).parent / RECORD).read_bytes())
        log, command, seconds = str(record["log"]), str(record["command"]), float(record["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    words = " ".join(command.partition("\n")[0].split())
    warned = [line.strip()[:300] for line in log.splitlines() if "warning:" in line or "warning #" in line]
    unique = list(dict.fromkeys(warned))[:MOST_WARNINGS]
    return (f"built in {seconds:.2f} s: {words[:MOST_CHARACTERS]}", *(unique or ["no warnings"]))
