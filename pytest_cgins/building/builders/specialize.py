"""Builds of one launcher for some sizes, in one library with the build for all sizes.

All sources are compiled once more a build, with its macros. Each build is joined into one object whose symbols are its own,
but for the launcher under another name: a template that looks at a macro is another one in each. A generated function of
the launcher's name looks at the arguments of the call and takes the build whose macros they have, else the general one.
So who loads the library, or counts what is in it, needs to know nothing of this.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.contracts.schema import C_KEYWORDS, Schema, SchemaArgument, parameters
from pytest_cgins.config.specialize import Size, parse
from pytest_cgins.core.case import KernelSource, Specialized
from pytest_cgins.core.errors import InfrastructureError, SourceError
from pytest_cgins.core.text import nearest

DISPATCHER = "cgins_dispatcher.cpp"
SHARED = ("cgins_message", "cgins_fail", "cgins_last_error")
"""What all builds of a library have in common: the message of the last error."""
COPIER = "objcopy"


def require_sizes(specialized: Specialized, schema: Schema, where: str) -> None:
    """Refuse sizes of arguments that the schema line has not, or that have no such size.

    Raises:
        SourceError: with the place of the schema line.
    """
    arguments = {argument.name: argument for argument in schema.arguments}
    for macro, text in zip(specialized.macros, specialized.sizes, strict=True):
        size = parse(text)
        argument = arguments.get(size.argument) if size else None
        if size is None or argument is None:
            raise SourceError(
                f"{where}: macro {macro} of specialize is {text}, and the schema line has no argument of that name",
                remedy=nearest(size.argument if size else text, arguments) or "name one of its arguments",
            )
        if not _has(argument, size):
            raise SourceError(
                f"{where}: macro {macro} of specialize is {text}, and {argument.name} is "
                f"{argument.type}{'?' * argument.optional}{'[]' * argument.list}",
                remedy="shape, ndim and numel() are a tensor's, an index is a list's of int, a plain name is an int or bool",
            )


def _has(argument: SchemaArgument, size: Size) -> bool:
    if size.kind in ("shape", "ndim", "numel"):
        return argument.type == "Tensor" and not argument.list
    if size.kind == "item":
        return argument.type == "int" and argument.list
    return argument.type in ("int", "bool") and not argument.list


def flags(source: KernelSource) -> tuple[tuple[str, ...], ...]:
    """What each build is compiled with besides; the general one comes first, with nothing."""
    if source.specialized is None:
        return ((),)
    builds = [source.specialized.named(build).items() for build in source.specialized.builds]
    return ((), *(tuple(f"-D{name}={value}" for name, value in build) for build in builds))


def identity(source: KernelSource) -> tuple[str, ...]:
    """What of this enters the key."""
    if source.specialized is None:
        return ()
    tool = _copier()
    it = source.specialized
    return ("specialized", *it.macros, *it.sizes, *map(str, it.builds), toolchain.version((tool,)))


def _copier() -> str:
    if shutil.which(COPIER) is None:
        raise InfrastructureError(
            f"{COPIER} is not on PATH: it keeps builds for different sizes apart in one library",
            remedy="install it (apt install binutils, conda install binutils), or leave specialize out",
        )
    return COPIER


def join(source: KernelSource, number: int, objects: list[str]) -> list[list[str]]:
    """Commands, one after the other, that make `<number>.o` of a build's objects.

    Groups of sections are dissolved first: the linker keeps one of those with the same name, whatever is in them.
    """
    joined = f"build{number}.joined"
    names = [source.entry, f"{source.entry}_workspace"]
    renamed = [f"--redefine-sym={name}={_symbol(number, name)}" for name in names]
    kept = [f"--keep-global-symbol={name}" for name in (*SHARED, *(_symbol(number, name) for name in names))]
    compiler = toolchain.cxx()
    return [
        [*compiler, "-r", "-nostdlib", "-Wl,--force-group-allocation", *objects, "-o", joined],
        [_copier(), *renamed, *kept, joined, f"{number}.o"],
    ]


def compile_dispatcher(folder: Path, include: Path) -> list[str]:
    """The command that makes `dispatcher.o`."""
    return [
        *toolchain.cxx(), "-O2", "-std=c++17", "-fPIC", "-Wall", *toolchain.own_statics(toolchain.cxx()),
        f"-I{include}", f"-I{folder}", "-c", DISPATCHER, "-o", "dispatcher.o",
    ]  # fmt: skip


def dispatcher(source: KernelSource, schema: Schema, *, workspace: bool, prototype: str) -> str:
    """The C++ of the function that has the launcher's name.

    Args:
        source: a launcher with `specialized`.
        schema: its schema line.
        workspace: whether it takes scratch memory.
        prototype: name of the header with its declarations.
    """
    assert source.specialized is not None
    listed = parameters(schema, workspace=workspace)
    functions = [("int", schema.entry, listed)]
    if workspace:
        functions.append(("int64_t", f"{schema.entry}_workspace", listed[:-3]))
    lines = [f'#include "{prototype}"', ""]
    for result, name, of_function in functions:
        typed = ", ".join(f"{c_type} {parameter}" for c_type, parameter in of_function)
        passed = ", ".join(parameter for _, parameter in of_function)
        numbers = range(len(source.specialized.builds) + 1)
        lines += [f'extern "C" {result} {_symbol(number, name)}({typed});' for number in numbers]
        lines.append(f'extern "C" {result} {name}({typed}) {{')
        for number, build in enumerate(source.specialized.builds, 1):
            pairs = zip(source.specialized.sizes, build, strict=True)
            met = " && ".join(_condition(text, value, schema) for text, value in pairs)
            lines.append(f"  if ({met}) return {_symbol(number, name)}({passed});")
        lines += [f"  return {_symbol(0, name)}({passed});", "}", ""]
    return "\n".join(lines)


def _symbol(number: int, name: str) -> str:
    return f"cgins_build_{number}_{name}"


def _condition(text: str, value: int, schema: Schema) -> str:
    """Whether a size of this call has a value: no, where there is no such size."""
    size = parse(text)
    assert size is not None
    argument = next(one for one in schema.arguments if one.name == size.argument)
    name = f"{size.argument}_" if size.argument in C_KEYWORDS else size.argument
    at = size.index
    least = at + 1 if at >= 0 else -at
    if size.kind in ("shape", "item"):
        length, items = (f"{name}->ndim", f"{name}->shape") if size.kind == "shape" else (f"{name}_len", name)
        index = f"{at}" if at >= 0 else f"{length} - {-at}"
        return f"({name} && {length} >= {least} && {items}[{index}] == {value})"
    if size.kind == "ndim":
        return f"({name} && {name}->ndim == {value})"
    if size.kind == "numel":
        return f"({name} && cgins::numel({name}) == {value})"
    return f"({name} && *{name} == {value})" if argument.optional else f"({name} == {value})"
