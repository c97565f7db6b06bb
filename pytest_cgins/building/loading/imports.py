"""Where a worker finds the modules of a user's project.

They are found by their text: bytecode and compiled extensions that lie beside it may have been put there by anyone
who can write to the folder, a kernel among others, and are in no digest. And a file of the project must not come in
the place of a module that the worker itself imports: ours, torch's, Python's.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

RESERVED = sys.stdlib_module_names | {
    "annotated_types", "filelock", "fsspec", "functorch", "jinja2", "markupsafe", "mpmath", "networkx", "numpy",
    "packaging", "platformdirs", "pydantic", "pydantic_core", "pytest_cgins", "rich", "safetensors", "setuptools",
    "sympy", "torch", "torchgen", "triton", "typing_extensions", "typing_inspection", "xxhash", "yaml",
}  # fmt: skip
"""Names of modules that no file at the top of a project stands for: what torch and pytest-cgins import."""
INSTALLED = ("site-packages", "dist-packages")


def import_from(folder: str) -> None:
    """Let modules of a project be imported, before installed ones of the same name; "" for none.

    Args:
        folder: that of `cgins.yaml`. An environment that lies in it (`.venv`) is no part of the project, and keeps
            its bytecode.
    """
    if not folder or folder in _known:
        return
    _known.add(folder)
    sys.path_hooks.insert(0, _hook(Path(folder)))
    for place in [place for place in sys.path_importer_cache if is_in(Path(place), Path(folder))]:
        del sys.path_importer_cache[place]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.path[:] = [*FIRST, *(place for place in sys.path if place not in FIRST)]
    importlib.invalidate_caches()


_known: set[str] = set()
FIRST: list[str] = []
"""Folders of another environment, which come before those of projects."""


def find(name: str, folders: Iterable[str], root: Path) -> ModuleSpec | None:
    """Where a worker would find a module or package, without importing anything.

    Args:
        name: one name, without dots.
        folders: searched in this order.
        root: of the project.
    """
    return first_of(
        name,
        (
            finder(folder, root).find_spec(name)
            if is_in(Path(folder), root)
            else PathFinder.find_spec(name, [folder])
            for folder in folders
        ),
    )


def first_of(name: str, specs: Iterable[ModuleSpec | None]) -> ModuleSpec | None:
    """The first module or package among the finds of several folders; else all folders without __init__.py as one."""
    portions: list[str] = []
    for spec in specs:
        if spec is not None and spec.origin is not None:
            return spec
        portions += spec.submodule_search_locations or () if spec is not None else ()
    if not portions:
        return None
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = portions
    return spec


class TextLoader(SourceFileLoader):
    """Compiles a module from its text each time, and writes no bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        """See `importlib.abc.InspectLoader`."""
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class ProjectFinder(FileFinder):
    """Finds modules in one folder of a project; at its top none whose name is reserved."""

    refused: frozenset[str] = frozenset()

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        name = fullname.rpartition(".")[2]
        return None if name in self.refused else super().find_spec(fullname, target)


def finder(folder: str, root: Path, *, loader: type[TextLoader] = TextLoader) -> ProjectFinder:
    """What finds the modules in one folder of a project.

    Args:
        folder: the folder.
        root: of the project.
        loader: of those that are text.
    """
    # Text first: Python itself would take an extension that lies beside it.
    made = ProjectFinder(folder, (loader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES))
    if Path(folder) == root:
        made.refused = RESERVED
    return made


def _hook(root: Path) -> Callable[[str], ProjectFinder]:
    def finder_of(folder: str) -> ProjectFinder:
        if not (is_in(Path(folder), root) and Path(folder).is_dir()):
            raise ImportError(f"{folder} is not a folder of {root}", path=folder)
        return finder(folder, root)

    return finder_of


def is_in(folder: Path, root: Path) -> bool:
    """Whether a folder belongs to a project, and not to an environment that lies in it."""
    if not folder.is_relative_to(root) or not set(INSTALLED).isdisjoint(folder.relative_to(root).parts):
        return False
    environments = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    return not any(
        folder.is_relative_to(place) for place in environments if place != root and place.is_relative_to(root)
    )
