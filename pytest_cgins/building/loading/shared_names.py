"""What two builds of a kernel cannot both have in one process: names that they register for all of it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.building.contracts.source import read
from pytest_cgins.building.loading.imports import finder
from pytest_cgins.core import syntax
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.errors import SourceError

LIBRARY_SYMBOL = b"_ZN5torch7LibraryC1E"
"""The constructor of `torch::Library`, which TORCH_LIBRARY, TORCH_LIBRARY_FRAGMENT and TORCH_LIBRARY_IMPL call."""
PYBIND_TYPE = re.compile(r"\b(?:class_|enum_)\s*<")
REGISTERING = ("custom_op", "triton_op", "Library")
"""Functions of `torch.library` that define an operator, and its class that does."""


def obstacle_of_module(source: KernelSource) -> str:
    """Why a Python target's modules cannot be imported in two revisions; "" if they can.

    Args:
        source: with the namespace in whose folders its modules are; one of another contract has none.
    """
    if source.contract != "python":
        return ""
    if source.load:
        return f"it loads {', '.join(map(os.path.basename, source.load))}, and torch has one operator of a name in a process"
    folders = source.namespace.folders if source.namespace is not None else (source.import_root,)
    for file in _closure(source.module, folders):
        try:
            tree = syntax.module(read(file))
        except (SourceError, SyntaxError, ValueError):
            continue  # whoever imports it is told
        for node in ast.walk(tree):
            if _registers(node):
                place = f"{file.name}:{getattr(node, 'lineno', 0)}"
                return (
                    f"{place} registers an operator with torch, which has one of that name in a process: move the "
                    "registration to a module that the kernel does not import"
                )
    return ""


def obstacle_of_library(compiled: CompiledKernel) -> str:
    """Why a torch extension's library cannot be loaded beside another build of it; "" if it can.

    Raises:
        SourceError: a source cannot be read.
        OSError: the library cannot.
    """
    if compiled.source.contract != "torch-extension":
        return ""
    if LIBRARY_SYMBOL in Path(compiled.library).read_bytes():
        return (
            "it registers operators with torch (TORCH_LIBRARY), which has one of each name in a process: let entry "
            "name a function on torch::Tensor, and register operators in a source that is not listed for it"
        )
    code = "\n".join(code_of(read(Path(file))) for file in compiled.source.files)
    if PYBIND_TYPE.search(code) and "module_local" not in code:
        return (
            "it registers C++ types with pybind11, which has one of each name in a process: add "
            "pybind11::module_local() to each class_ and enum_"
        )
    return ""


def _registers(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.search(r"\bTORCH_LIBRARY\w*\s*\(", node.value) is not None  # for torch's load_inline
    if isinstance(node, ast.Attribute):
        return node.attr in REGISTERING and ast.unparse(node.value).split(".")[-1] == "library"
    if isinstance(node, ast.ImportFrom):
        return node.module == "torch.library" and any(alias.name in REGISTERING for alias in node.names)
    return False


def _closure(module: str, folders: Sequence[str]) -> Iterator[Path]:
    """Files of a module and of all that it imports from some folders, also from within functions."""
    todo, seen = [module], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if "." in name:
            todo.append(name.rpartition(".")[0])
        file = _file(name, folders)
        if file is None:
            continue
        yield file
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        try:
            tree = syntax.module(read(file))
        except (SourceError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            todo += _imported(node, package)


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Names that a statement imports: what stands behind `import` may be a module or a name in one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        above = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
        base = ".".join(part for part in (above, node.module or "") if part)
        yield base
        yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _file(name: str, folders: Sequence[str]) -> Path | None:
    """The Python file of a module in some folders; None where there is none."""
    places = list(folders)
    origin = None
    for part in name.split("."):
        specs = [finder(place, Path(place)).find_spec(part) for place in places if Path(place).is_dir()]
        found = next((spec for spec in specs if spec is not None and spec.loader is not None), None)
        if found is not None:
            places, origin = list(found.submodule_search_locations or ()), found.origin
        else:
            places = [place for spec in specs if spec for place in spec.submodule_search_locations or ()]
            origin = None
    return Path(origin) if origin is not None and origin.endswith(".py") else None
