"""Machine code of a built kernel, disassembled and counted by opcode."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

from pytest_cgins.building.compilers import toolkit
from pytest_cgins.core.errors import InfrastructureError

TOOL = "cuobjdump"
LIMIT_S = 120.0
REMEDY = "pip install 'pytest-cgins[sass]', or install the CUDA toolkit's cuobjdump and nvdisasm"
SECTION = re.compile(r"^\s*arch = (sm_\w+)\s*$")
CODE_FOR = re.compile(r"^\s*code for (sm_\w+)\s*$", re.MULTILINE)
FUNCTION = re.compile(r"^\s*Function : (\S+)\s*$")
INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*)(?![A-Z0-9_])[^;]*);"
)
MODIFIED = re.compile(r"(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Za-z0-9_.]*)")

Mix = tuple[tuple[str, int], ...]
"""Opcodes without modifiers, and how often each is in the code; most frequent first."""


def disassembler() -> Path | None:
    """The cuobjdump of `$CUDA_HOME`, on PATH, in /usr/local/cuda, or of its Python package; None without."""
    return toolkit.program(TOOL)


def listing(tool: Path, library: Path) -> str:
    """What cuobjdump prints of a shared library's or cubin's machine code, for all architectures in it.

    Raises:
        InfrastructureError: the tool failed.
    """
    return _printed(tool, "-sass", library)


def usage(tool: Path, library: Path) -> str:
    """What it prints of the registers and memory of each function; errors are those of `listing`."""
    return _printed(tool, "-res-usage", library)


def _printed(tool: Path, option: str, library: Path) -> str:
    # It starts nvdisasm, which lies beside it, by name.
    path = os.pathsep.join([str(tool.parent), os.environ.get("PATH", "")])
    try:
        done = subprocess.run(
            [str(tool), option, str(library)], capture_output=True, text=True, errors="replace",
            timeout=LIMIT_S, check=False, env={**os.environ, "PATH": path, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"{tool}: {error}", remedy=REMEDY) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise InfrastructureError(f"{tool} ended with {done.returncode}: {said}", remedy=REMEDY)
    return done.stdout


def count(text: str, arch: str) -> dict[str, tuple[Mix, ...]]:
    """How often each opcode is in cuobjdump's listing of an architecture's code, by mangled name of the function.

    Static functions of several files may have one name: they are in the listing's order.
    """
    return {
        name: tuple(mix(Counter(modified(line).partition(".")[0] for line in lines)) for lines in found)
        for name, found in instructions(text, arch).items()
    }


def instructions(text: str, arch: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Instructions with predicates, modifiers and operands, by function; of several with one name, in the text's order.

    NOP is left out: the assembler fills up with it after the last instruction.

    Args:
        text: as `listing` gives it.
        arch: architecture whose code is wanted.
    """
    found: dict[str, list[list[str]]] = {}
    lines: list[str] | None = None
    wanted = True
    for line in text.splitlines():
        if section := SECTION.match(line):
            wanted, lines = section[1] == arch, None
        elif function := FUNCTION.match(line):
            lines = [] if wanted else None
            if lines is not None:
                found.setdefault(function[1], []).append(lines)
        elif lines is not None and (instruction := INSTRUCTION.match(line)) and instruction[2] != "NOP":
            lines.append(instruction[1].rstrip())
    return {name: tuple(map(tuple, those)) for name, those in found.items()}


def archs(text: str) -> tuple[str, ...]:
    """Architectures whose code is in a listing; of a cubin just one."""
    return tuple(dict.fromkeys(CODE_FOR.findall(text)))


def modified(line: str) -> str:
    """The opcode of an instruction with its modifiers: `LDG.E.128.CONSTANT`; "" if it is none."""
    matched = MODIFIED.match(line)
    return matched[1] if matched else ""


def mix(found: dict[str, int]) -> Mix:
    """Most frequent first, then by name."""
    return tuple(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))
