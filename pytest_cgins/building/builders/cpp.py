"""C++ launchers for the CPU: a shared library of one source, or of an object a source."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.builders import specialize
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.contracts.source import portable_flags
from pytest_cgins.core.model import KernelSource

# No -ffast-math: it changes results, and a kernel that wants it says so in its flags.
FLAGS = ("-O3", "-std=c++17", "-fopenmp", "-fPIC", "-Wall")


def plan(source: KernelSource, *, linked: bool = True) -> plans.Plan:
    """How to build a C++ launcher.

    Args:
        source: the launcher.
        linked: whether to make the library, or an object `0.o` a source.

    Raises:
        SourceError: its schema line is missing or wrong.
        InfrastructureError: there is no C++ compiler.
    """
    compiler = toolchain.cxx()
    machine = (*toolchain.native_flags(compiler), *toolchain.own_statics(compiler))
    prototype, declarations = plans.launcher_prototype(source)
    return plans.Plan(
        compiler=Path(compiler[-1]).name,
        identity=(
            toolchain.version(compiler), *machine, *FLAGS, *portable_flags(source.flags), declarations,
            *specialize.identity(source),
            *plans.environment_identity("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
        ),
        roots=plans.header_roots(source),
        prototyped=True,
        run=plans.commands(
            lambda folder: _stages(source, [*compiler], [*FLAGS, *machine, *source.flags], folder, linked),
            files={plans.PROTOTYPE: prototype, **plans.dispatcher(source)},
        ),
    )  # fmt: skip


def _stages(
    source: KernelSource, compiler: list[str], flags: list[str], folder: Path, linked: bool
) -> list[list[list[str]]]:
    if source.specialized is not None:
        stages, objects = _builds(source, compiler, flags, folder)
        return [*stages, [_link(source, compiler, objects)]] if linked else stages
    objects, compile_each = plans.compile_each(source, compiler, flags, folder)
    if not linked:
        return [compile_each]
    if len(objects) == 1:  # one command compiles and links: starting the compiler twice takes longer
        command = compile_each[0][: -len(["-c", "file", "-o", "object"])]
        return [[[*command, "-shared", source.files[0], *_end(source)]]]
    return [compile_each, [_link(source, compiler, objects)]]


def _builds(
    source: KernelSource, compiler: list[str], flags: list[str], folder: Path
) -> tuple[list[list[list[str]]], list[str]]:
    """Stages that make an object a build, one build after the other, and these objects."""
    stages: list[list[list[str]]] = []
    made = []
    for number, macros in enumerate(specialize.flags(source)):
        parts, commands = plans.compile_each(source, compiler, [*flags, *macros], folder, build=number)
        stages += [commands, *([command] for command in specialize.join(source, number, parts))]
        made.append(f"{number}.o")
    return [*stages, [specialize.compile_dispatcher(folder, plans.INCLUDE)]], [*made, "dispatcher.o"]


def _link(source: KernelSource, compiler: list[str], objects: list[str]) -> list[str]:
    return [*compiler, "-shared", "-fopenmp", *objects, *_end(source)]


def _end(source: KernelSource) -> list[str]:
    libraries = [flag for flag in source.flags if flag.startswith(("-l", "-L", "-Wl,"))]
    return [*libraries, "-Wl,-Bsymbolic", f"-Wl,--require-defined={source.entry}", "-o", plans.LIBRARY]
