"""Torch extensions: a function on `torch::Tensor`, exactly as torch's `load_inline` takes it, built without torch.

Each source is a translation unit, as for torch's `CppExtension` and `load`. Sources for `load_inline`, which include no
header of torch's, are joined as it joins them: the C++ sources in one, with the binding; the CUDA sources in another.
Lean headers are tried first (see `extension_headers`), then the whole ones.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.builders import cuda, cutlass, extension_headers, extension_pch, nvcc_phases
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders.torch_install import TorchPackage, torch_package
from pytest_cgins.building.compilers import architectures, running, toolchain, toolkit
from pytest_cgins.building.compilers.process import Outcome, run_stages, write_files
from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.building.contracts.source import extension_texts, portable_flags, read
from pytest_cgins.building.loading.extension_exports import Exports
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import SourceError

logger = logging.getLogger(__name__)
# torch's builds have no optimisation flag of their own for C++: without one a CPU timing means nothing.
FLAGS = ("-O3",)
# The flags that load_inline gives nvcc: without the first four, (float)half would compile here and not there.
CUDA_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "--compiler-options", "-fPIC", "-Xptxas=-v",
)  # fmt: skip
JOB_NBYTES = 3 << 30
LEAN_JOB_NBYTES = 1 << 30
CPP, CUDA = "main", "cuda"
FORMAT = "torch-extension 4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The translation units, without their first includes."""

    cpp: tuple[str, ...]
    """C++ sources, the declaration of a CUDA entry, and the binding."""
    cuda: tuple[str, ...]
    """CUDA sources."""
    module: str
    """`TORCH_EXTENSION_NAME`: of a module or of operators; the module that the tool adds has `_entry` behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """What goes before the sources, and where it is found."""

    cpp: tuple[str, ...]
    """Headers of the C++ unit."""
    cuda: tuple[str, ...]
    """Headers of the CUDA unit."""
    folders: tuple[Path, ...] = ()
    """Searched before torch's own."""
    job_nbytes: int = JOB_NBYTES
    """Memory that one compiler takes."""


REAL = Headers(cpp=("torch/extension.h",), cuda=("torch/types.h", "cuda.h", "cuda_runtime.h"))


def plan(source: KernelSource) -> plans.Plan:
    """How to build a torch extension.

    Raises:
        SourceError: the entry's declaration cannot be read from a CUDA source, or an architecture has no such name.
        InfrastructureError: torch or a compiler is missing.
    """
    torch = torch_package()
    compiler = toolchain.cxx()
    archs = (source.archs or architectures.present_archs()) if source.device == "cuda" else ()
    vendor = cutlass.headers_for(source)
    nvcc = toolchain.nvcc() if source.device == "cuda" else ()
    identity = (
        FORMAT, torch.identity, toolchain.version(compiler), *FLAGS, *toolchain.own_statics(compiler), *archs, *portable_flags(source.flags),
        *((toolchain.version(nvcc), vendor.version) if nvcc else ()),
        *plans.environment_identity(
            "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CC"
        ),
    )  # fmt: skip
    made = units(source, identity)
    tools = Tools(source=source, torch=torch, compiler=compiler, nvcc=nvcc, archs=archs, vendor=vendor.flags)
    return plans.Plan(
        compiler="the compiler" if not nvcc else "nvcc",
        identity=identity,
        roots=(*plans.header_roots(source), *vendor.roots),
        run=_Builder(source=source, units=made, tools=tools),
        memory_nbytes=JOB_NBYTES * (len(made.cuda) + len(made.cpp)),
    )


def units(source: KernelSource, identity: Sequence[str]) -> Units:
    """The translation units of a source.

    Args:
        source: the sources.
        identity: what tells one build of them from another: it decides the module's name.

    Raises:
        SourceError: see `declaration`.
    """
    texts = {file: read(Path(file)) for file in source.files}
    exports = Exports.of(source.files[0], extension_texts(source.files, source.flags))
    name = "cgins_" + hashlib.sha256("\0".join((*identity, *texts.values())).encode()).hexdigest()[:16]
    marked = {file: f'#line 1 "{file}"\n{text}' for file, text in texts.items()}
    cpp = {file: text for file, text in marked.items() if not file.endswith(".cu")}
    if exports.wants_binding(source.entry):
        calls = re.compile(rf"\b{re.escape(source.entry)}\s*\(")
        declaring = next((file for file in cpp if calls.search(code_of(texts[file]))), "")
        cpp[declaring] = "\n".join(
            [
                cpp.get(declaring, ""),
                declaration(texts, source.entry),
                f"PYBIND11_MODULE({name}_entry, m) {{",
                f'm.def("{source.entry}", torch::wrap_pybind_function({source.entry}), "{source.entry}");',
                "}",
            ]
        )
    parts = [*cpp.values()], [text for file, text in marked.items() if file.endswith(".cu")]
    if any(map(_is_inline, texts.values())):
        parts = ["\n".join(parts[0])], ["\n".join(parts[1])]
    return Units(cpp=tuple(filter(None, parts[0])), cuda=tuple(filter(None, parts[1])), module=name)


def _is_inline(text: str) -> bool:
    """Whether a source counts on the headers that `load_inline` puts before it: it names torch and includes none."""
    includes = re.search(
        r"^[ \t]*#[ \t]*include[ \t]*(?:\"|<(?:torch|ATen|c10|pybind11)/)", text, re.MULTILINE
    )
    return includes is None and re.search(r"\b(?:torch|at|c10)::", code_of(text)) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Compilers and flags for one source."""

    source: KernelSource
    torch: TorchPackage
    compiler: tuple[str, ...]
    nvcc: tuple[str, ...]
    """() for a source of device cpu."""
    archs: tuple[str, ...]
    vendor: tuple[str, ...]
    """Flags for CUTLASS."""

    def common(self, headers: Headers) -> list[str]:
        """Flags of both compilers."""
        folders = sorted({str(Path(file).parent) for file in self.source.files})
        system = [*headers.folders, *self.torch.includes]
        if self.nvcc:
            system.append(_toolkit(self.nvcc) / "include")
        system.append(plans.INCLUDE / "kernel_builder")
        return [
            "-DTORCH_API_INCLUDE_EXTENSION_H", *self.torch.defines,
            *(f"-I{folder}" for folder in folders),
            *(word for folder in system for word in ("-isystem", str(folder))),
        ]  # fmt: skip

    def cpp(self, headers: Headers) -> list[str]:
        """The command that compiles C++, but for the file names."""
        flags = [*self.common(headers), "-fPIC", f"-std={self.torch.standard}", *FLAGS]
        return [*self.compiler, *flags, *toolchain.own_statics(self.compiler), *self.source.flags]

    def precompile_flags(self) -> list[str]:
        """Flags that compile a header that C++ of this and of other sources begins with.

        Definitions differ from source to source. g++ itself refuses a header that one of them would change.
        """
        own = [flag for flag in self.source.flags if not flag.startswith(("-D", "-I"))]
        system = [word for folder in self.torch.includes for word in ("-isystem", str(folder))]
        flags = ["-DTORCH_API_INCLUDE_EXTENSION_H", *self.torch.defines, *system, "-fPIC"]
        return [*flags, f"-std={self.torch.standard}", *FLAGS, *toolchain.own_statics(self.compiler), *own]

    def cuda(self, headers: Headers) -> list[str]:
        """The command that compiles CUDA, but for the file names."""
        named = any(flag.startswith("-std=") for flag in self.source.flags)
        host = os.environ.get("CC")
        chosen = ("-ccbin", host) if host else ()
        return [
            *self.nvcc, *chosen, *self.common(headers), *self.vendor, *CUDA_FLAGS,
            *cuda.own_statics((*chosen, *self.source.flags)), *cuda.code_generation(self.archs), *FLAGS, *self.source.flags,
            *(() if named else (f"-std={self.torch.standard}",)),
        ]  # fmt: skip

    def link(self, objects: Sequence[str]) -> list[str]:
        """The command that links."""
        runtime = [f"-L{_library_folder(self.nvcc)}", "-lcudart"] if self.nvcc else []
        libraries = self.torch.link_flags(cuda=bool(self.nvcc))
        return [*self.compiler, "-shared", *objects, *libraries, *runtime, "-o", plans.LIBRARY]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    source: KernelSource
    units: Units
    tools: Tools

    def __call__(self, folder: Path, name: str, deadline: float) -> Outcome:
        """See `plan.Run`."""
        headers = self._lean(folder, name, deadline)
        if headers is not None:
            outcome = self._compile(headers, folder, name, deadline)
            if outcome.status in (0, None):
                return outcome
            logger.info("%s: not with lean headers, so with all of torch's: %s", name, outcome.log[:2000])
            _empty(folder)
        return self._compile(REAL, folder, name, deadline)

    def _lean(self, folder: Path, name: str, deadline: float) -> Headers | None:
        """Lean headers, written to the folder; None if the source must not be compiled with them."""
        texts = extension_texts(self.source.files, self.source.flags)
        obstacle = extension_headers.obstacle(texts)
        if obstacle:
            logger.info("%s: no lean headers, since %s", name, obstacle)
            return None
        include = self.tools.torch.root / "include"
        try:
            base = extension_headers.base_files(include)
            write_files(folder / "lean", extension_headers.source_files(include, texts))
        except (OSError, UnicodeDecodeError) as error:
            logger.info("%s: no lean headers: %s", name, error)
            return None
        path = None
        compiler = toolchain.version(self.tools.compiler)
        # Builds of a cache that cannot be written to are elsewhere. clang has another way of precompiling.
        if folder.parent.name == "work" and "clang" not in compiler:
            fenced = "fenced" if running.current().fence is not None else ""
            parts = (FORMAT, self.tools.torch.identity, compiler, fenced)
            path = extension_pch.folder_for(
                folder.parents[1] / "torch", self.tools.compiler, self.tools.precompile_flags(), extension_headers.PYTHON,
                files=base, identity="\0".join(parts), deadline=deadline,
            )  # fmt: skip
        if path is None:
            path = folder / "base"
            write_files(path, base)
        python = re.search(r"\bPYBIND11_MODULE\b|\bpy::|\bpybind11::", code_of("\n".join(self.units.cuda)))
        first = extension_headers.PYTHON if python else extension_headers.BASE
        return Headers(
            cpp=(extension_headers.PYTHON, extension_headers.OPS),
            cuda=(first, extension_headers.OPS, "cuda.h", "cuda_runtime.h"),
            folders=(folder / "lean", path),
            job_nbytes=LEAN_JOB_NBYTES,
        )

    def _compile(self, headers: Headers, folder: Path, name: str, deadline: float) -> Outcome:
        tools, units, define = self.tools, self.units, f"-DTORCH_EXTENSION_NAME={self.units.module}"
        front: list[Sequence[str]] = []
        back: list[Sequence[str]] = []
        objects: list[str] = []
        environment: Mapping[str, str] = {}
        for stem, text in _numbered(CPP, units.cpp):
            _write_unit(folder / f"{stem}.cpp", headers.cpp, text)
            objects.append(f"{stem}.o")
            own = [define, "-MMD", "-MF", f"{stem}.d", "-c", f"{stem}.cpp", "-o", objects[-1]]
            front.append([*tools.cpp(headers), *own])
        for stem, text in _numbered(CUDA, units.cuda):
            _write_unit(folder / f"{stem}.cu", headers.cuda, text)
            objects.append(f"{stem}.o")
            command = [*tools.cuda(headers), define, "-c", f"{stem}.cu", "-o", objects[-1]]
            phases = nvcc_phases.phases(command, folder, f"{stem}.d", temporary=folder / f"of_{stem}")
            front += phases.front
            back += phases.back
            environment = phases.environment
        stages: list[list[Sequence[str]]] = [front, back, [tools.link(objects)]]
        return run_stages(_bounded(stages, headers.job_nbytes), folder, name, deadline, environment)


def _numbered(stem: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Units with names for their files."""
    return [(f"{stem}{index or ''}", text) for index, text in enumerate(texts)]


def _empty(folder: Path) -> None:
    """Remove what compilers have left: a link among it would lead what is written next to another file."""
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


def _write_unit(file: Path, includes: Sequence[str], text: str) -> None:
    lines = [f"#include <{name}>\n" for name in includes]
    file.write_text("".join(lines) + text + "\n", encoding="utf-8")


def _bounded(stages: Sequence[Sequence[Sequence[str]]], job_nbytes: int) -> list[Sequence[Sequence[str]]]:
    """Stages of as many commands as there is memory for, or as `$MAX_JOBS` says."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = os.environ.get("MAX_JOBS", "")
    jobs = int(wanted) if wanted.isdigit() and int(wanted) else max(1, memory // job_nbytes)
    return [stage[first : first + jobs] for stage in stages for first in range(0, len(stage), jobs)]


def _toolkit(nvcc: tuple[str, ...]) -> Path:
    """Folder of the CUDA toolkit; nvcc may be a script that starts another one."""
    folders = [*toolkit.named(), Path(nvcc[0]).resolve().parents[1], toolkit.USUAL]
    return next((folder for folder in folders if (folder / "include/cuda_runtime.h").is_file()), folders[0])


def _library_folder(nvcc: tuple[str, ...]) -> Path:
    folders = [_toolkit(nvcc) / name for name in ("lib64", "lib")]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def declaration(texts: Mapping[str, str], entry: str) -> str:
    """What the binding needs of CUDA sources: the C++ declaration of its entry; "" if a C++ source has it.

    Args:
        texts: sources by file.
        entry: the function.

    Raises:
        SourceError: no definition of the entry starts a line of a CUDA source, and no C++ source names it.
    """
    name = re.escape(entry)
    if any(not file.endswith(".cu") and re.search(rf"\b{name}\s*\(", code_of(texts[file])) for file in texts):
        return ""
    definition = re.compile(
        rf"^[ \t]*(?P<head>[\w:][\w:<>,&*\s]*?[\s&*>]{name}\s*\([^;{{]*\))\s*\{{", re.MULTILINE
    )
    for text in texts.values():
        if found := definition.search(code_of(text)):
            head = " ".join(found["head"].replace("__host__", "").split())
            if local := re.match(r"static|inline", head):
                raise SourceError(
                    f'"{entry}" is {local[0]}: the binding, which is compiled apart from it, cannot call it',
                    remedy=f"remove {local[0]}",
                )
            return f"{head};"
    first = next(iter(texts))
    if Path(first).suffix != ".cu":
        return ""
    raise SourceError(
        f'{first}: no definition of "{entry}" starts a line',
        remedy=f"write torch::Tensor {entry}(torch::Tensor x, …) {{ at the start of a line, or list a .cpp source "
        "that declares it",
    )
