"""What two builds of a kernel cannot both have in one process: names that they register for all of it."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.building.contracts.import_closure import ImportReader
from pytest_cgins.building.contracts.source import read
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
    reader = ImportReader(Path(folders[0]), folders[1:], alone=True)
    for file in sorted(reader.closure([], [source.module])):
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
