"""C++ launchers for the CPU: one object a source, linked into one shared library."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels import toolchain
from pytest_cgins.kernels.source import portable_flags
from pytest_cgins.model import KernelSource

# No -ffast-math: it changes results, and a kernel that wants it says so in its flags.
FLAGS = ("-O3", "-std=c++17", "-fopenmp", "-fPIC", "-Wall")


def plan(source: KernelSource) -> plans.Plan:
    """How to build a C++ launcher.

    Raises:
        SourceError: its schema line is missing or wrong.
        InfrastructureError: there is no C++ compiler.
    """
    compiler = toolchain.cxx()
    machine = toolchain.native_flags(compiler)
    prototype, declarations = plans.launcher_prototype(source)
    return plans.Plan(
        compiler=Path(compiler[-1]).name,
        identity=(
            toolchain.version(compiler), *machine, *FLAGS, *portable_flags(source.flags), declarations,
            *plans.environment_identity("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        ),
        roots=plans.header_roots(source),
        prototype=prototype,
        commands=lambda folder: _commands(source, [*compiler], [*FLAGS, *machine, *source.flags], folder),
    )  # fmt: skip


def _commands(source: KernelSource, compiler: list[str], flags: list[str], folder: Path) -> list[list[str]]:
    objects, compile_each = plans.compile_each(source, compiler, flags, folder)
    libraries = [flag for flag in source.flags if flag.startswith(("-l", "-L", "-Wl,"))]
    link = [
        *compiler, "-shared", "-fopenmp", *objects, *libraries,
        "-Wl,-Bsymbolic", f"-Wl,--require-defined={source.entry}", "-o", plans.LIBRARY,
    ]  # fmt: skip
    return [*compile_each, link]
