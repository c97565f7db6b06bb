"""CUDA launchers: nvcc without any torch header, for explicitly named architectures."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cgins.building.builders import cutlass, nvcc_phases, specialize
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.compilers import architectures, toolchain
from pytest_cgins.building.compilers.process import Outcome, run_stages, write_files
from pytest_cgins.building.contracts.source import portable_flags
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import SourceError

# ptxas says what each function takes: `resources` reads it in the log.
FLAGS = ("-O3", "-lineinfo", "-std=c++17", "-cudart=static", "-Xcompiler=-fPIC", "-Xptxas=-v")

# Relocatable device code, and what may bring it in: libraries, objects, files of further options.
DEVICE_LINK = re.compile(
    r"rdc|relocatable|lto|link|^--?(?:dc|dw|device-|l|L|optf|options-file)|^@|\.(?:a|o)$"
)


def plan(source: KernelSource) -> plans.Plan:
    """How to build a CUDA launcher.

    Raises:
        SourceError: its schema line is missing or wrong, or an architecture has no such name.
        InfrastructureError: there is no nvcc, or no CUTLASS for a source that includes it.
    """
    compiler = toolchain.nvcc()
    archs = source.archs or architectures.present_archs()
    _refuse_device_link(source)
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
    files, declarations = plans.launcher_files(source)
    command = [*compiler, *flags]

    def run(folder: Path, name: str, deadline: float) -> Outcome:
        architectures.require_known(archs, compiler)
        write_files(folder, files)
        stages, objects = plans.compile_stages(source, command, folder, depfiles=False)
        stages.append([_link(source, [*compiler], flags, objects)])
        apart: list[Sequence[Sequence[str]]] = []
        environment: dict[str, str] = {}
        for number, stage in enumerate(stages):
            if stage[0][: len(command)] == command:
                apart += _apart(stage, folder, f"{number}-", environment)
            else:
                apart.append(stage)
        outcome = run_stages(apart, folder, name, deadline, environment)
        return replace(outcome, command="\n".join(shlex.join(typed) for stage in stages for typed in stage))

    return plans.Plan(
        compiler="nvcc",
        archs=tuple(archs),
        identity=(
            toolchain.version(compiler), toolchain.version(toolchain.cxx()), *FLAGS, *statics, *archs,
            *portable_flags(source.flags), declarations, headers.version, *specialize.identity(source),
            *plans.environment_identity(
                "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "LIBRARY_PATH"
            ),
        ),
        roots=(*plans.header_roots(source), *headers.roots),
        prototyped=True,
        run=run,
    )  # fmt: skip


def own_statics(flags: Sequence[str]) -> tuple[str, ...]:
    """What tells nvcc's host compiler to keep statics to the library; see `toolchain.own_statics`.

    Args:
        flags: of nvcc, in which another host compiler may be named than g++.
    """
    words = [*_flags_of_environment(), *flags]
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


def _apart(
    stage: list[list[str]], folder: Path, name: str, environment: dict[str, str]
) -> list[list[Sequence[str]]]:
    """Stages that compile what one stage of nvcc does; what they need of the environment is added."""
    front: list[Sequence[str]] = []
    back: list[Sequence[str]] = []
    for index, command in enumerate(stage):
        depfile = f"{name}{index}.d"
        phases = nvcc_phases.phases(
            command, folder, depfile, temporary=folder / f"phases{name}{index}", depend="-MD"
        )
        front += phases.front
        back += phases.back
        environment |= phases.environment
    return [commands for commands in (front, back) if commands]


def _library_folder(compiler: tuple[str, ...]) -> list[str]:
    """Where a toolkit from the package registry has its libraries: its own settings say `lib64`."""
    folder = Path(compiler[0]).parents[1] / "lib"
    return [f"-L{folder}"] if (folder / "libcudart_static.a").is_file() else []


def device_link(flags: Sequence[str]) -> list[str]:
    """What to tell nvcc at the link: where no device code refers to another file's, that its link is left out.

    It takes a tenth of a small kernel's build.
    """
    used = any(DEVICE_LINK.search(flag) for flag in (*flags, *_flags_of_environment()))
    return [] if used else ["-nodlink"]


def _flags_of_environment() -> list[str]:
    """Flags that nvcc reads from its variables."""
    return [
        flag for name in ("PREPEND", "APPEND") for flag in os.environ.get(f"NVCC_{name}_FLAGS", "").split()
    ]


def _refuse_device_link(source: KernelSource) -> None:
    """Device code that is linked has one name in all builds: they could not be kept apart.

    Raises:
        SourceError: a flag asks for that, beside `specialize`.
    """
    words = [*" ".join(source.flags).split(), *_flags_of_environment()]
    found = [word for word in words if word.startswith(nvcc_phases.OTHERWISE)]
    if source.specialized is not None and found:
        raise SourceError(
            f"{source.files[0]}: specialize cannot go with {found[0]}: device code that is linked has one name in all builds",
            remedy=f"leave out {found[0]}, or specialize",
        )


def _link(source: KernelSource, compiler: list[str], flags: list[str], objects: list[str]) -> list[str]:
    return [
        *compiler, "-shared", *flags, *device_link(source.flags), *objects,
        "-Xlinker=-Bsymbolic", f"-Xlinker=--require-defined={source.entry}", "-o", plans.LIBRARY,
    ]  # fmt: skip
