"""What compilers say of a build: registers, spills, opcodes, warnings."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.building import resources, sass
from pytest_cgins.building.cache.store import RECORD
from pytest_cgins.building.compilers import architectures
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.model import CompiledKernel
from pytest_cgins.regenerate.profiling.model import CompiledFunction

MOST_WARNINGS = 20
MOST_CHARACTERS = 240
FUNCTION = re.compile(r"^\s*Function (\S+):\s*$")
USED = re.compile(r"\b([A-Z]+):(\d{1,18})(?!\d)")


def archs_of(compiled: CompiledKernel) -> tuple[str, ...]:
    """Architectures whose machine code is in a build; PTX has none."""
    wanted = compiled.source.archs or architectures.present_archs()
    return tuple(arch for arch in wanted if arch.startswith("sm_"))


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
                stack_nbytes_per_thread=one.stack_nbytes_per_thread,
                static_shared_nbytes_per_block=one.static_shared_nbytes_per_block,
                instructions=one.instructions or (),
            )
            for one in told.functions
        ]
    return tuple(found), tuple(dict.fromkeys(missing))


def of_cubins(cubins: Sequence[Path]) -> tuple[tuple[CompiledFunction, ...], tuple[str, ...]]:
    """What machine code says of itself that a kernel has compiled; its spills are in no log of ours."""
    tool = sass.disassembler()
    if tool is None:
        return (), (f"machine code: {sass.TOOL} is not installed → {sass.REMEDY}",)
    found: list[CompiledFunction] = []
    missing: list[str] = []
    for cubin in cubins:
        try:
            text, usage = sass.listing(tool, cubin), usages(sass.usage(tool, cubin))
        except InfrastructureError as error:
            missing.append(f"machine code of {cubin.name}: {error.what}")
            continue
        for arch in sass.archs(text):
            mixes = sass.count(text, arch)
            names = resources.demangled(list(mixes))
            found += [
                CompiledFunction(
                    function=names[name],
                    arch=arch,
                    registers_per_thread=usage.get(name, {}).get("REG", 0),
                    spill_nbytes_per_thread=None,
                    stack_nbytes_per_thread=usage.get(name, {}).get("STACK", 0),
                    static_shared_nbytes_per_block=usage.get(name, {}).get("SHARED", 0),
                    instructions=mix,
                )
                for name, those in mixes.items()
                for mix in those
            ]
    return tuple(found), tuple(missing)


def usages(text: str) -> dict[str, dict[str, int]]:
    """`REG`, `STACK`, `SHARED` and the like of each function, by mangled name, in cuobjdump's words."""
    found: dict[str, dict[str, int]] = {}
    name = ""
    for line in text.splitlines():
        if function := FUNCTION.match(line):
            name = function[1]
        elif name and "REG:" in line:
            found[name] = {word: int(value) for word, value in USED.findall(line)}
            name = ""
    return found


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
