"""C++ launchers for the CPU: a shared library of one source, or of an object a source."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders import specialize
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.contracts.source import link_flags, portable_flags
from pytest_cgins.core.case import KernelSource

# No -ffast-math: it changes results, and a kernel that wants it says so in its flags.
FLAGS = ("-O3", "-std=c++17", "-fopenmp", "-fPIC", "-Wall")


def plan(source: KernelSource) -> plans.Plan:
    """How to build a C++ launcher.

    Raises:
        SourceError: its schema line is missing or wrong.
        InfrastructureError: there is no C++ compiler.
    """
    compiler = toolchain.cxx()
    machine = (*toolchain.native_flags(compiler), *toolchain.own_statics(compiler))
    files, declarations = plans.launcher_files(source)
    command = [*compiler, *FLAGS, *machine, *source.flags]
    return plans.Plan(
        compiler=Path(compiler[-1]).name,
        identity=(
            toolchain.version(compiler), *machine, *FLAGS, *portable_flags(source.flags), declarations,
            *specialize.identity(source),
            *plans.environment_identity("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        ),
        roots=plans.header_roots(source),
        prototyped=True,
        run=plans.commands(lambda folder: _stages(source, compiler, command, folder), files=files),
    )  # fmt: skip


def _stages(
    source: KernelSource, compiler: tuple[str, ...], command: list[str], folder: Path
) -> list[list[list[str]]]:
    stages, objects = plans.compile_stages(source, command, folder)
    end = [
        *link_flags(source.flags), "-Wl,-Bsymbolic", f"-Wl,--require-defined={source.entry}", "-o", plans.LIBRARY,
    ]  # fmt: skip
    if len(objects) == 1:  # one command compiles and links: starting the compiler twice takes longer
        compile_it = stages[0][0][: -len(["-c", "file", "-o", "object"])]
        return [[[*compile_it, "-shared", source.files[0], *end]]]
    return [*stages, [[*compiler, "-shared", "-fopenmp", *objects, *end]]]
