"""CUDA launchers: nvcc without any torch header, for explicitly named architectures."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_cgins.errors import SourceError
from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels import toolchain
from pytest_cgins.kernels.source import portable_flags
from pytest_cgins.model import KernelSource

FLAGS = ("-O3", "-lineinfo", "-std=c++17", "-cudart=static", "-Xcompiler=-fPIC")


def plan(source: KernelSource) -> plans.Plan:
    """How to build a CUDA launcher.

    Raises:
        SourceError: its schema line is missing or wrong, or an architecture has no such name.
        InfrastructureError: there is no nvcc.
    """
    compiler = toolchain.nvcc()
    archs = source.archs or toolchain.present_archs()
    flags = [*FLAGS, *code_generation(archs), *source.flags]
    prototype, declarations = plans.launcher_prototype(source)
    return plans.Plan(
        compiler="nvcc",
        identity=(
            toolchain.version(compiler), toolchain.version(toolchain.cxx()), *FLAGS, *archs,
            *portable_flags(source.flags), declarations,
            *plans.environment_identity(
                "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "LIBRARY_PATH"
            ),
        ),
        roots=plans.header_roots(source),
        prototype=prototype,
        commands=lambda folder: _commands(source, [*compiler], flags, folder),
    )  # fmt: skip


def code_generation(archs: tuple[str, ...]) -> list[str]:
    """`-gencode` flags: machine code for `sm_90a`, PTX for `compute_80`.

    Raises:
        SourceError: a name is neither.
    """
    flags = []
    for arch in archs:
        named = re.fullmatch(r"(sm|compute)_(\d{2,3}[af]?)", arch)
        if named is None:
            raise SourceError(
                f'"{arch}" is not a CUDA architecture', remedy="write sm_90a, or compute_80 for PTX"
            )
        flags.append(f"-gencode=arch=compute_{named[2]},code={arch}")
    return flags


def _commands(source: KernelSource, compiler: list[str], flags: list[str], folder: Path) -> list[list[str]]:
    objects, compile_each = plans.compile_each(source, compiler, flags, folder)
    link = [
        *compiler, "-shared", *flags, *objects,
        "-Xlinker=-Bsymbolic", f"-Xlinker=--require-defined={source.entry}", "-o", plans.LIBRARY,
    ]  # fmt: skip
    return [*compile_each, link]
