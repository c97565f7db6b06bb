"""Device-code errors of a CUDA source with host code, by NVRTC, in milliseconds and before nvcc is started.

A refusal is meant to be sure: whatever the missing host headers, or the host code that is left out, could explain
is `unknown`. Kernel templates, which only host code instantiates, are tried with float, and only what no other type
could mend is an error then. So `accepted` does not mean that nvcc accepts.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.device_code import DeviceCode, device_code
from pytest_cgins.building.builders.includes import INCLUDE_LINE, NAMED, without_comments
from pytest_cgins.building.contracts.source import read
from pytest_cgins.building.nvrtc import apart, cuda_headers, library
from pytest_cgins.core.errors import SourceError

LIMIT_S = 10.0
STAND_INS = plans.INCLUDE / "nvrtc"
ERROR = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$", re.MULTILINE
)
UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
TORCH = ("torch/", "ATen/", "c10/", "pybind11/", "THC/", "caffe2/")
STANDARD = frozenset(
    [
        "assert.h",
        "ctype.h",
        "errno.h",
        "float.h",
        "inttypes.h",
        "limits.h",
        "locale.h",
        "math.h",
        "omp.h",
        "setjmp.h",
        "signal.h",
        "stdarg.h",
        "stdbool.h",
        "stddef.h",
        "stdint.h",
        "stdio.h",
        "stdlib.h",
        "string.h",
        "time.h",
        "algorithm",
        "any",
        "array",
        "atomic",
        "bitset",
        "cassert",
        "cctype",
        "cerrno",
        "cfloat",
        "chrono",
        "cinttypes",
        "climits",
        "cmath",
        "complex",
        "condition_variable",
        "cstdarg",
        "cstddef",
        "cstdint",
        "cstdio",
        "cstdlib",
        "cstring",
        "ctime",
        "deque",
        "exception",
        "filesystem",
        "forward_list",
        "fstream",
        "functional",
        "future",
        "initializer_list",
        "iomanip",
        "ios",
        "iosfwd",
        "iostream",
        "istream",
        "iterator",
        "limits",
        "list",
        "map",
        "memory",
        "mutex",
        "new",
        "numeric",
        "optional",
        "ostream",
        "queue",
        "random",
        "ratio",
        "regex",
        "set",
        "sstream",
        "stack",
        "stdexcept",
        "streambuf",
        "string",
        "string_view",
        "system_error",
        "thread",
        "tuple",
        "type_traits",
        "typeinfo",
        "unordered_map",
        "unordered_set",
        "utility",
        "variant",
        "vector",
    ]
)
# What a header that is not read may explain, or that differs between NVRTC's int64_t and nvcc's.
DOUBTFUL = re.compile(
    r"\blong\b|namespace|incomplete|not a (?:type|template|class)|\"::\"|could not open|cannot open|not supported"
    r"|JIT mode|host function|__host__|ambiguous|catastrophic|macro|qualified name|std::|at::|c10::|torch::"
)
# Names that C's headers may define for device code: macros, typedefs, and a few words.
FROM_HEADERS = re.compile(
    r"_.*|[A-Z0-9_]+|\w+_t|cu\w*|std|u?char|u(?:int|short|long)|std(?:in|out|err)|errno|assert|is(?:nan|inf|finite|normal)"
    r"|signbit|offsetof|complex|at|c10|torch|py|thrust|cub|cg|cooperative_groups|nvcuda|wmma|cutlass|cute|half\w*"
    r"|nv_\w+|dim3|u?int\d+|float\d+|double\d+|bfloat\d+|cgins\w*|DL\w+|min|max"
)
SURE_IN_TEMPLATES = re.compile(r'expected an? |identifier "\w+" is undefined')
PRELUDE = (
    "#include <float.h>\n#include <limits.h>\n#include <stddef.h>\n"
    "struct DLTensor; struct DLDataType; struct cgins_scalar; typedef struct CUstream_st* cgins_stream;\n"
    "#define CGINS_HOST_DEVICE __host__ __device__\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One error of the device code."""

    file: str
    """Absolute path."""
    line: int
    """1-based."""
    message: str
    """The compiler's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefiltered:
    """What the device code of a source is worth."""

    verdict: Literal["refused", "accepted", "unknown"]
    """`refused`: nvcc would refuse it, too. `accepted`: nothing was found. `unknown`: it could not be told."""
    findings: tuple[Finding, ...]
    """The errors, for `refused`."""
    seconds: float
    """Wall time."""
    why: str = ""
    """Why it is unknown."""


def check(
    text: str, file: Path, arch: str, *, flags: Sequence[str] = (), limit_s: float = LIMIT_S
) -> Prefiltered:
    """Look for errors in the device code of a launcher or torch extension.

    Args:
        text: the source, which need not be on disk.
        file: absolute path that it has or would have; quoted includes are looked up in its folder.
        arch: an architecture to compile for, e.g. `sm_90a`.
        flags: nvcc's flags of the build; `-D`, `-U`, `-I` and `-std` matter.
        limit_s: after so many seconds it is unknown.

    Raises:
        InfrastructureError: there is no NVRTC.
        SourceError: the architecture is not known.
    """
    started = time.monotonic()
    hidden = _hidden_definitions(flags)
    if hidden:
        return Prefiltered(
            verdict="unknown", findings=(), seconds=0.0, why=f"{hidden} may define what is missing"
        )
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    try:
        sources = _Sources(text, file, folders)
    except (SourceError, RecursionError) as error:
        return Prefiltered(verdict="unknown", findings=(), seconds=time.monotonic() - started, why=str(error))
    options = [
        "--std=c++17", "-default-device", *(["--fdevice-syntax-only"] if library.version() >= (13, 0) else []),
        "--pre-include=cgins.h", *(flag for flag in flags if re.match(r"-[DU]\w|--?std=", flag)),
        f"-I{STAND_INS}", f"-I{plans.INCLUDE}", *(f"-I{folder}" for folder in sources.cuda),
    ]  # fmt: skip
    compilation = _Compilation(
        text=f'{PRELUDE}#line 1 "{file}"\n{sources.main.text}', file=str(file), arch=arch, options=tuple(options),
        headers=tuple(sources.in_memory.items()), deadline=started + limit_s,
    )  # fmt: skip
    errors, log, why = compilation.run(())
    if errors and not why:
        why = sources.doubt(errors[0], log)
    elif not errors and not why and sources.main.templates:
        # Templates are parsed only where they are instantiated. With types that the host code would not take,
        # other errors than these may come of that.
        errors, log, why = compilation.run(sources.main.templates)
        if errors and not SURE_IN_TEMPLATES.match(errors[0].message):
            why = f"{errors[0].file}:{errors[0].line}: an instantiation with float: {errors[0].message}"
        elif errors:
            why = sources.doubt(errors[0], log)
        errors = errors[:1]
    sure = () if why else tuple(error for error in errors if not sources.doubt(error, log))
    verdict: Literal["refused", "accepted", "unknown"] = (
        "unknown" if why else "refused" if sure else "accepted"
    )
    return Prefiltered(verdict=verdict, findings=sure, seconds=time.monotonic() - started, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compilation:
    """What NVRTC is asked."""

    text: str
    """The source as it gets it."""
    file: str
    """Its name."""
    arch: str
    """An architecture."""
    options: tuple[str, ...]
    """NVRTC's."""
    headers: tuple[tuple[str, str], ...]
    """Headers in memory."""
    deadline: float
    """Time of `time.monotonic()` at which it is unknown."""

    def run(self, templates: Sequence[str]) -> tuple[list[Finding], str, str]:
        """Errors, the whole log, and why it cannot be told, "" if it can."""
        with tempfile.TemporaryDirectory(prefix="cgins-") as folder:
            result = apart.compile(
                self.text, self.file, self.arch, self.options, expressions=templates, headers=self.headers,
                deadline=self.deadline, folder=Path(folder), name=self.file,
            )  # fmt: skip
        errors = [
            Finding(file=found["file"], line=int(found["line"]), message=found["text"])
            for found in ERROR.finditer(result.log)
        ]
        failed = result.ptx is None and result.cubin is None and "error" in result.log.lower()
        if result.timed_out or result.status or (failed and not errors):
            return [], result.log, "the compiler gave up"
        return (errors if failed else []), result.log, ""


class _Sources:
    """A source and the user's headers, their host code blanked; and what is known of the other headers."""

    def __init__(self, text: str, file: Path, folders: Sequence[Path]) -> None:
        self.main = device_code(text)
        self.in_memory: dict[str, str] = {}
        self.cuda: tuple[Path, ...] = ()
        self._files: dict[str, tuple[str, DeviceCode]] = {str(file): (text, self.main)}
        self._foreign = False
        self._dropped = False
        self._add(text, file, folders)

    def _add(self, text: str, file: Path, folders: Sequence[Path]) -> None:
        for name, quoted in _included(text):
            places = [file.parent, *folders] if quoted else folders
            path = next((place / name for place in places if (place / name).is_file()), None)
            if path is not None:
                self._add_header(name, path, folders)
            elif not (STAND_INS / name).is_file() and not (plans.INCLUDE / name).is_file():
                self._add_foreign(name)
            elif "#include <cu" in _text(name):
                self.cuda = cuda_headers.find(library.version()).folders

    def _add_header(self, name: str, path: Path, folders: Sequence[Path]) -> None:
        text = read(path)
        if str(path) in self._files:
            self.in_memory.setdefault(name, self.in_memory_of(path))
            return
        self._files[str(path)] = (text, device_code(text))
        if name in self.in_memory:
            raise SourceError(f"two headers are called {name}", remedy="")
        self.in_memory[name] = self.in_memory_of(path)
        self._add(text, path, folders)

    def in_memory_of(self, path: Path) -> str:
        """A header as the compiler gets it."""
        return f'#line 1 "{path}"\n{self._files[str(path)][1].text}'

    def _add_foreign(self, name: str) -> None:
        """A header of CUDA's for devices is taken as it is; in place of others there is nothing."""
        found = cuda_headers.find(library.version())
        host_only = name.startswith(
            ("thrust/", "cuda_runtime", "cublas", "cudnn", "curand.h", "cufft", "cusparse")
        )
        if not host_only and found.find(name) is not None:
            self.cuda = found.folders
            return
        self.in_memory[name] = ""
        self._dropped = True
        self._foreign |= not (name in STANDARD or name.startswith(TORCH) or host_only)

    def doubt(self, error: Finding, log: str) -> str:
        """Why an error need not be one for nvcc; "" if it surely is."""
        text, code = self._files.get(error.file, ("", None))
        if code is None:
            return f"an error in {error.file}, which is not the user's"
        if error.line not in code.lines:
            return f"{error.file}:{error.line}: an error outside of device functions: {error.message}"
        if code.launches:
            return "a device function launches a kernel"
        block = log[log.index(error.message) :].partition("\n\n")[0]
        if DOUBTFUL.search(block):
            return f"{error.file}:{error.line}: {error.message}"
        undefined = UNDEFINED.search(error.message)
        line = text.splitlines()[error.line - 1]
        called = undefined and code.templates and re.search(rf"\b{undefined[1]}\s*(?:<[^;]*>\s*)?\(", line)
        if undefined and (called or self._may_be_defined(undefined[1])):
            return f"{undefined[1]!r} may be defined where NVRTC does not look"
        if self._dropped and not undefined and self._unknown_macros(line):
            return f"{error.file}:{error.line}: a macro of a header that was not read may stand there"
        return ""

    def _may_be_defined(self, name: str) -> bool:
        if any(name in code.removed for _, code in self._files.values()):
            return True
        if self._foreign:
            return True
        return FROM_HEADERS.fullmatch(name) is not None

    def _unknown_macros(self, line: str) -> bool:
        defined = {
            name
            for text, _ in self._files.values()
            for name in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE)
        }
        return self._foreign or bool(set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", line)) - defined)


def _hidden_definitions(flags: Sequence[str]) -> str:
    """A flag of nvcc, also of its variables, that may define names in a way which is not followed; "" for none."""
    variables = " ".join(
        os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    ).split()
    words = (
        "-include",
        "--pre-include",
        "--define",
        "--options-file",
        "-optf",
        "-Xcompiler",
        "--compiler-options",
    )
    for flag in (*flags, *variables):
        if flag in ("-D", "-U", "-I") or flag.startswith(words):
            return flag
    return next((flag for flag in variables if flag.startswith(("-D", "-U", "-I", "-isystem"))), "")


def _included(text: str) -> Iterator[tuple[str, bool]]:
    """Names in the include lines, and whether they are in quotes.

    Raises:
        SourceError: a macro names one.
    """
    plain = without_comments(text)
    for line in INCLUDE_LINE.finditer(plain):
        named = NAMED.match(line[1].strip())
        if named is None:
            raise SourceError(f"an include by macro: {line[1].strip()}", remedy="")
        yield named[2], named[1] == '"'


def _text(name: str) -> str:
    place = STAND_INS / name
    return place.read_text(encoding="utf-8") if place.is_file() else ""
