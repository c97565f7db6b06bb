"""CUDA launchers: nvcc without any torch header, for explicitly named architectures."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins.kernels import architectures, cutlass, nvcc_phases, toolchain
from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels.process import Outcome, run_stages
from pytest_cgins.kernels.source import portable_flags
from pytest_cgins.model import KernelSource

# ptxas says what each function takes: `resources` reads it in the log.
FLAGS = ("-O3", "-lineinfo", "-std=c++17", "-cudart=static", "-Xcompiler=-fPIC", "-Xptxas=-v")

# Relocatable device code, and what may bring it in: libraries, objects, files of further options.
DEVICE_LINK = re.compile(
    r"rdc|relocatable|lto|link|^--?(?:dc|dw|device-|l|L|optf|options-file)|^@|\.(?:a|o)$"
)


def plan(source: KernelSource, *, linked: bool = True) -> plans.Plan:
    """How to build a CUDA launcher.

    Args:
        source: the launcher.
        linked: whether to make the library, or an object `0.o` a source.

    Raises:
        SourceError: its schema line is missing or wrong, or an architecture has no such name.
        InfrastructureError: there is no nvcc, or no CUTLASS for a source that includes it.
    """
    compiler = toolchain.nvcc()
    archs = source.archs or toolchain.present_archs()
    headers = cutlass.headers_for(source)
    statics = own_statics(source.flags)
    flags = [
        *FLAGS,
        *statics,
        *code_generation(archs),
        *source.flags,
        *headers.flags,
        *_library_folder(compiler),
    ]
    prototype, declarations = plans.launcher_prototype(source)
    return plans.Plan(
        compiler="nvcc",
        archs=tuple(archs),
        identity=(
            toolchain.version(compiler), toolchain.version(toolchain.cxx()), *FLAGS, *statics, *archs,
            *portable_flags(source.flags), declarations, headers.version,
            *plans.environment_identity(
                "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "LIBRARY_PATH"
            ),
        ),
        roots=(*plans.header_roots(source), *headers.roots),
        prototyped=True,
        run=_Run(source, archs, compiler, tuple(flags), prototype, linked),
    )  # fmt: skip


def own_statics(flags: Sequence[str]) -> tuple[str, ...]:
    """What tells nvcc's host compiler to keep statics to the library; see `toolchain.own_statics`.

    Args:
        flags: of nvcc, in which another host compiler may be named than g++.
    """
    variables = (os.environ.get(f"NVCC_{name}_FLAGS", "").split() for name in ("PREPEND", "APPEND"))
    words = [word for part in (*variables, flags) for word in part]
    host = os.environ.get("NVCC_CCBIN") or "g++"
    for word, following in zip(words, [*words[1:], ""], strict=False):
        named = re.fullmatch(r"--?(?:ccbin|compiler-bindir)(?:=(.*))?", word, re.DOTALL)
        if named:
            host = named[1] or following
    return tuple(f"-Xcompiler={flag}" for flag in toolchain.own_statics((host,)))


def code_generation(archs: tuple[str, ...]) -> list[str]:
    """`-gencode` flags: machine code for `sm_90a`, PTX for `compute_80`.

    Raises:
        SourceError: a name is neither.
    """
    for arch in archs:
        architectures.number(arch)
    return [f"-gencode=arch=compute_{arch.partition('_')[2]},code={arch}" for arch in archs]


@dataclass(frozen=True, slots=True)
class _Run:
    """Compiles a launcher's sources, the host's and the device's code side by side, and links them."""

    source: KernelSource
    archs: tuple[str, ...]
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    prototype: str
    linked: bool

    def __call__(self, folder: Path, name: str, deadline: float) -> Outcome:
        """See `plan.Run`."""
        architectures.require_known(self.archs, self.compiler)
        (folder / plans.PROTOTYPE).write_text(self.prototype, encoding="utf-8")
        compile_each, link = _commands(self.source, [*self.compiler], [*self.flags], folder)
        front: list[Sequence[str]] = []
        back: list[Sequence[str]] = []
        environment: dict[str, str] = {}
        for index, command in enumerate(compile_each):
            parts = nvcc_phases.phases(
                command, folder, f"{index}.d", temporary=folder / f"phases{index}", depend="-MD"
            )
            if parts is None:
                front.append([*command, "-MD", "-MF", f"{index}.d"])
                continue
            for file, text in parts.files.items():
                Path(file).write_text(text, encoding="utf-8")
            front += [["sh", "-c", chain] for chain in parts.front]
            back.append(["sh", "-c", parts.back])
            environment |= parts.environment
        stages = [stage for stage in (front, back, [link] if self.linked else []) if stage]
        outcome = run_stages(stages, folder, name, deadline, environment)
        typed = [*compile_each, link] if self.linked else compile_each
        return replace(outcome, command="\n".join(shlex.join(command) for command in typed))


def _library_folder(compiler: tuple[str, ...]) -> list[str]:
    """Where a toolkit from the package registry has its libraries: its own settings say `lib64`."""
    folder = Path(compiler[0]).parents[1] / "lib"
    return [f"-L{folder}"] if (folder / "libcudart_static.a").is_file() else []


def device_link(flags: Sequence[str]) -> list[str]:
    """What to tell nvcc at the link: where no device code refers to another file's, that its link is left out.

    It takes a tenth of a small kernel's build.
    """
    appended = f"{os.environ.get('NVCC_PREPEND_FLAGS', '')} {os.environ.get('NVCC_APPEND_FLAGS', '')}".split()
    return [] if any(DEVICE_LINK.search(flag) for flag in (*flags, *appended)) else ["-nodlink"]


def _commands(
    source: KernelSource, compiler: list[str], flags: list[str], folder: Path
) -> tuple[list[list[str]], list[str]]:
    """What compiles each source, without a depfile, and what links them."""
    objects = [f"{index}.o" for index in range(len(source.files))]
    compile_each = [
        [
            *compiler, *flags, f"-I{plans.INCLUDE}", "-include", str(folder / plans.PROTOTYPE),
            "-c", file, "-o", each,
        ]
        for file, each in zip(source.files, objects, strict=True)
    ]  # fmt: skip
    link = [
        *compiler, "-shared", *flags, *device_link(source.flags), *objects,
        "-Xlinker=-Bsymbolic", f"-Xlinker=--require-defined={source.entry}", "-o", plans.LIBRARY,
    ]  # fmt: skip
    return compile_each, link
