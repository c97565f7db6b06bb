"""The function of a built torch extension that its entry names. Runs in worker processes only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import torch

from pytest_cgins.building.contracts.source import extension_texts
from pytest_cgins.building.loading.extension_exports import Exports
from pytest_cgins.building.loading.launcher import older_remedy
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import LaunchError, SourceError
from pytest_cgins.core.text import nearest

Function = Callable[..., object]
_INIT = re.compile(rb"(?<=\0)PyInit_(\w+)\0")
_operators: dict[str, tuple[str, ...]] = {}
"""Operators that libraries have registered in this process: it is done once, as a library is loaded."""


def load(compiled: CompiledKernel) -> Function:
    """Load an extension, and find what its entry names: an export, an operator, or the C++ function of one of these.

    Raises:
        SourceError: nothing that it exports has the name.
        LaunchError: the library cannot be loaded, or another one has registered its operators.
    """
    source, library = compiled.source, compiled.library
    exports = Exports.of(source.files[0], extension_texts(source.files, source.flags))
    _refuse_second(library, exports.namespaces, source.entry)
    before = set(torch._C._dispatch_get_all_op_names())
    modules = modules_of(compiled)
    new = set(torch._C._dispatch_get_all_op_names()) - before
    operators = _operators.setdefault(library, tuple(sorted({name.partition(".")[0] for name in new})))
    found = {path: function for module in modules for path, function in _functions(module)}
    found |= {name: _operator(name) for name in operators}
    return _named(source.entry, found, exports)


def modules_of(compiled: CompiledKernel) -> list[ModuleType]:
    """The Python modules of an extension's library; [] for one that only registers operators, which it does now.

    Raises:
        LaunchError: the library cannot be loaded.
    """
    library = compiled.library
    names = dict.fromkeys(name.decode() for name in _INIT.findall(Path(library).read_bytes()))
    try:
        if not names:
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        # pybind11 gives out a module again by its full name.
        return [_module(f"_cgins_{compiled.key[:16]}.{name}", library) for name in names]
    except (ImportError, OSError, RuntimeError) as error:
        remedy = older_remedy(error) or "build it again: `cgins build`, after clearing the build cache"
        if "undefined symbol" in str(error):
            remedy = "define it in the listed sources, or name its library in flags"
        raise LaunchError(f"{library}: {error}", remedy=remedy) from error


def _refuse_second(library: str, namespaces: frozenset[str], entry: str) -> None:
    """A second registration of an operator would end the process, not raise."""
    others = (name for other, operators in _operators.items() if other != library for name in operators)
    taken = next((name for name in others if name.partition("::")[0] in namespaces), "")
    if "::" in entry and library not in _operators and torch._C._jit_get_schemas_for_operator(entry):
        taken = taken or entry
    if taken:
        raise LaunchError(
            f"{library}: {taken} is registered in this process already, by another library",
            remedy="give each implementation a namespace of its own, or let entry name a function",
        )


def _module(name: str, library: str) -> ModuleType:
    loader = ExtensionFileLoader(name, library)
    spec = spec_from_loader(name, loader, origin=library)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _functions(namespace: ModuleType | type, path: str = "") -> Iterator[tuple[str, Function]]:
    """What a module, its submodules and its classes export, by dotted path."""
    for name in vars(namespace):
        value = getattr(namespace, name)
        if isinstance(value, ModuleType | type) and not name.startswith("_"):
            yield from _functions(value, f"{path}{name}.")
        elif callable(value) and not name.startswith("_"):
            yield f"{path}{name}", value


def _operator(name: str) -> Function:
    namespace, _, operator = name.partition("::")
    function: Function = getattr(getattr(torch.ops, namespace), operator)
    return function


def _named(entry: str, found: Mapping[str, Function], exports: Exports) -> Function:
    if entry in found:
        return found[entry]
    last = _last(entry)
    paths = [path for path in found if _last(path) == last]
    if not paths:
        bound = exports.names_of(last)
        # A function may be exported by two names; the sources' first one counts.
        paths = sorted(
            (path for path in found if _last(path) in bound), key=lambda path: bound.index(_last(path))
        )[:1]
    if not paths and len(found) == 1 and exports.is_function(last):
        paths = list(found)
    if len(paths) == 1:
        return found[paths[0]]
    if not found:
        raise SourceError(
            f"{exports.file}: the extension exports nothing",
            remedy="export the function, or take PYBIND11_MODULE and TORCH_LIBRARY out: it is then exported for you",
        )
    raise SourceError(
        f'{exports.file}: "{entry}" is {"several" if paths else "none"} of what the extension exports: {", ".join(found)}',
        remedy=f"write entry: {paths[0]}"
        if paths
        else nearest(last, found) or f"write entry: {next(iter(found))}",
    )


def _last(path: str) -> str:
    return re.split(r"::|\.", path)[-1]
