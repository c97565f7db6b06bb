"""What each function of a built kernel takes on a device, as ptxas reports it in the build's log.

The log is in the cache, so the figures are there also when nothing was compiled. Names in plain C++ and the
machine code's opcodes cost a process each, so they are kept beside the build:

    <cache>/<key[:2]>/<key>/resources-sm_90a.json
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins.building import sass
from pytest_cgins.building.cache.store import RECORD
from pytest_cgins.core import atomic, documents
from pytest_cgins.core.case import CompiledKernel, KernelResources
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.measurement import JitCompilations

ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(sm_\w+)'")
PROPERTIES = re.compile(r"Function properties for (\S+)\s*$")
# The source can print into the log, numbers of any length too.
NUMBER = "(?<![0-9])([0-9]{1,18})"
FRAME = re.compile(rf"{NUMBER} bytes stack frame, {NUMBER} bytes spill stores, {NUMBER} bytes spill loads")
USED = re.compile(rf"\bUsed {NUMBER} registers\b(.*)")
SHARED = re.compile(rf"{NUMBER}(?:\+{NUMBER})? bytes smem")
FILE_DIGEST = re.compile(r"(?<=_GLOBAL__N__)[0-9a-f]{8}_")
FILE_SCOPE = re.compile(r"_INTERNAL_[0-9a-f]{8}_\w*?::")
NO_REPORT = "the build's log has no ptxas report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Resources of one build, and what is missing in them."""

    functions: tuple[KernelResources, ...]
    """Ordered by name."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that no tool could disassemble."""


def of(compiled: CompiledKernel, arch: str, *, instructions: bool = True) -> Found:
    """Resources of a built CUDA kernel on one of its architectures.

    Args:
        compiled: what `build` gave.
        arch: one of the architectures that it was built for.
        instructions: whether opcodes are wanted; where no disassembler is, a note says so.

    Raises:
        InfrastructureError: the build's record is gone or damaged.
    """
    library = Path(compiled.library)
    kept = library.parent / f"resources-{arch}.json"
    known = _read(kept)
    if known is not None and (known.complete or not instructions):
        return Found(functions=known.functions)
    try:
        log = str(json.loads((library.parent / RECORD).read_bytes())["log"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(
            f"{library.parent / RECORD}: {error}", remedy="the cache was changed meanwhile; run again"
        ) from error
    mangled = parse(log, arch)
    notes: tuple[str, ...] = () if mangled else (NO_REPORT,)
    mixes: Mapping[str, tuple[sass.Mix, ...]] | None = None
    if mangled and instructions:
        mixes, trouble = _mixes(library, arch)
        notes += trouble
    names = demangled([one.function for one in mangled])
    functions = tuple(
        replace(one, function=names[one.function], instructions=instructions)
        for one, instructions in zip(mangled, _instructions(mangled, mixes), strict=True)
    )
    functions = tuple(sorted(functions, key=lambda one: one.function))
    if mangled:
        _write(kept, _Kept(functions=functions, complete=mixes is not None))
    return Found(functions=functions, notes=notes)


def parse(log: str, arch: str) -> tuple[KernelResources, ...]:
    """What ptxas reports (`-Xptxas=-v`) on one architecture, in its order and with mangled names.

    A device function that was not inlined has a stack frame and spills of its own; its registers are its
    callers', and read 0 here. Static functions of two files may have one name.
    """
    return tuple(block for block in _blocks(log, arch) if block.arch == arch)


def of_build(compiled: CompiledKernel) -> JitCompilations | None:
    """How long a library's build took when it was made, and what ptxas reports of any function on any architecture."""
    if not compiled.library:
        return None
    try:
        record = json.loads((Path(compiled.library).parent / RECORD).read_bytes())
        seconds, functions = float(record["seconds"]), list(_blocks(str(record["log"]), ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return JitCompilations(
        seconds=seconds,
        registers_per_thread=max((one.registers_per_thread for one in functions), default=None),
        spill_nbytes=max((one.spill_store_nbytes + one.spill_load_nbytes for one in functions), default=None),
    )


def _blocks(log: str, arch: str) -> Iterator[KernelResources]:
    """One a function that the report has figures of; `arch` is for those before any architecture is named."""
    begun: KernelResources | None = None
    figures: dict[str, int] = {}
    for line in log.splitlines():
        entry, properties = ENTRY.search(line), PROPERTIES.search(line)
        if entry or (properties and (begun is None or begun.function != properties[1])):
            if begun is not None and figures:
                yield replace(begun, **figures)  # type: ignore[arg-type]
            name = entry[1] if entry else properties[1] if properties else ""
            arch = entry[2] if entry else arch
            begun, figures = _nothing(name, arch), {}
        elif frame := FRAME.search(line):
            names = ("stack_nbytes_per_thread", "spill_store_nbytes", "spill_load_nbytes")
            figures |= zip(names, map(int, frame.groups()), strict=True)
        elif used := USED.search(line):
            shared = SHARED.search(used[2])
            figures["registers_per_thread"] = int(used[1])
            figures["static_shared_nbytes_per_block"] = (
                sum(int(part or 0) for part in shared.groups()) if shared else 0
            )
    if begun is not None and figures:
        yield replace(begun, **figures)  # type: ignore[arg-type]


def _nothing(function: str, arch: str) -> KernelResources:
    return KernelResources(
        function=function, arch=arch, registers_per_thread=0, spill_store_nbytes=0, spill_load_nbytes=0,
        stack_nbytes_per_thread=0, static_shared_nbytes_per_block=0,
    )  # fmt: skip


def _instructions(
    functions: Sequence[KernelResources], mixes: Mapping[str, tuple[sass.Mix, ...]] | None
) -> Iterator[sass.Mix | None]:
    """Opcodes of each function; of those with one name in the order of the files, which both tools keep."""
    met: Counter[str] = Counter()
    for function in functions:
        found = (mixes or {}).get(function.function, ())
        yield (
            None
            if mixes is None
            else found[met[function.function]]
            if met[function.function] < len(found)
            else ()
        )
        met[function.function] += 1


def demangled(names: Sequence[str]) -> dict[str, str]:
    """Names as they are in the source, by mangled name; without a tool for it, only a file's digest is taken out."""
    tool = next(filter(None, map(shutil.which, ("c++filt", "llvm-cxxfilt", "cu++filt"))), None)
    plain = [FILE_DIGEST.sub("", name) for name in names]
    if tool is not None and plain:
        try:
            done = subprocess.run(
                [tool], input="".join(f"{name}\n" for name in names), capture_output=True, text=True,
                timeout=60, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return dict(zip(names, plain, strict=True))
        lines = done.stdout.splitlines()
        if done.returncode == 0 and len(lines) == len(plain):
            plain = [FILE_SCOPE.sub("", line) for line in lines]
    return dict(zip(names, plain, strict=True))


def _mixes(library: Path, arch: str) -> tuple[dict[str, tuple[sass.Mix, ...]] | None, tuple[str, ...]]:
    """Opcodes by mangled name, or None and why not."""
    tool = sass.disassembler()
    if tool is None:
        return None, (f"no opcodes: {sass.TOOL} is not installed ({sass.REMEDY})",)
    try:
        return sass.count(sass.listing(tool, library), arch), ()
    except InfrastructureError as error:
        return None, (f"no opcodes: {error.what}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept(Document):
    """What lies beside a build."""

    functions: tuple[KernelResources, ...]
    """Ordered by name."""
    complete: bool
    """Whether the code was disassembled."""


def _read(file: Path) -> _Kept | None:
    try:
        return documents.load(_Kept, file.read_bytes())
    except (OSError, ValueError):
        return None


def _write(file: Path, kept: _Kept) -> None:
    # A cache that cannot be written to only costs time.
    with suppress(OSError):
        if file.parent.is_dir():  # the build was not pruned meanwhile
            atomic.write_text(file, documents.dump(kept))
