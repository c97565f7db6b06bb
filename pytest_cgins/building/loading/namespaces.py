"""Two revisions of a project's modules in one process, neither of which sees the other.

The base revision's `kernels.softmax` is imported as `_cgins_base_….kernels.softmax`. Its relative imports stay in that
package by themselves. For absolute ones each module gets builtins of its own, whose `__import__` puts the package
before the names that the base revision has; functions keep the builtins of their module, and so import in the same way
when they are called. What neither revision has, torch above all, is one for both.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_cgins.building.loading.imports import RESERVED, TextLoader, finder, first_of, is_in
from pytest_cgins.core.case import Namespace


def import_module(name: str, namespace: Namespace) -> ModuleType:
    """Import a module as the modules of a namespace see it: one that is not in its folders is the process's own.

    Raises:
        ModuleNotFoundError: there is none, or only the working tree has it.
        Exception: whatever it raises.
    """
    if namespace.name not in _projects:
        _projects[namespace.name] = _Project(namespace)
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
    return _projects[namespace.name].import_module(name)


class _Project:
    """The modules of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.builtins = {**vars(builtins), "__import__": self.import_}
        self._has: dict[str, bool] = {}
        self._importlib = _Importlib("importlib", self)
        package = ModuleType(namespace.name)
        vars(package)["__path__"] = list(namespace.folders)
        package.__spec__ = ModuleSpec(namespace.name, None, is_package=True)
        sys.modules[namespace.name] = package

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """As `importlib.import_module`."""
        inside = not name.startswith(".") and self._is_own(name.partition(".")[0])
        return importlib.import_module(f"{self.namespace.name}.{name}" if inside else name, package)

    def import_(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - as Python calls it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As `builtins.__import__`, which statements call."""
        top = name.partition(".")[0]
        if level or not self._is_own(top):
            found = builtins.__import__(name, globals, locals, fromlist or (), level)
            return self._importlib if found is importlib else found
        found = builtins.__import__(f"{self.namespace.name}.{name}", globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{self.namespace.name}.{top}"]

    def spec(self, fullname: str, folders: Sequence[str]) -> ModuleSpec | None:
        """Where one of its modules or packages is; None if it has none of that name."""
        tops = self.namespace.folders
        finders = (
            finder(folder, Path(folder if folder in tops else tops[0]), loader=_Loader) for folder in folders
        )
        return first_of(fullname, (one.find_spec(fullname) for one in finders))

    def _is_own(self, top: str) -> bool:
        """Whether a name is one of its modules.

        Raises:
            ModuleNotFoundError: it is one of the working tree's.
        """
        if top in RESERVED or top in sys.builtin_module_names:
            return False
        if top not in self._has:
            spec = self.spec(f"{self.namespace.name}.{top}", self.namespace.folders)
            # As for Python, an installed package comes before a folder without __init__.py.
            self._has[top] = spec is not None and (spec.loader is not None or not self._installed(top))
            if not self._has[top] and self._is_of_working_tree(top):
                del self._has[top]
                raise ModuleNotFoundError(
                    f"No module named {top!r} at the base revision; that of the working tree is not taken",
                    name=top,
                )
        return self._has[top]

    def _installed(self, top: str) -> bool:
        elsewhere = [place for place in sys.path if not self._in_working_tree(Path(place))]
        spec = PathFinder.find_spec(top, elsewhere)
        return spec is not None and spec.loader is not None

    def _is_of_working_tree(self, top: str) -> bool:
        spec = getattr(sys.modules.get(top), "__spec__", None)
        if spec is None:
            try:
                spec = importlib.util.find_spec(top)
            except (ImportError, ValueError):
                return False
        if spec is None:
            return False
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        if spec.has_location and spec.origin:
            places.append(Path(spec.origin).parent)
        return any(self._in_working_tree(place) for place in places)

    def _in_working_tree(self, path: Path) -> bool:
        return is_in(Path(os.path.realpath(path)), Path(self.namespace.apart_from))


_projects: dict[str, _Project] = {}


class _Importlib(ModuleType):
    """`importlib` for the modules of a namespace: what they import by a name is theirs as well."""

    def __init__(self, name: str, project: _Project) -> None:
        super().__init__(name)
        self.import_module = project.import_module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class _Finder:
    """Finds what is below a namespace; on `sys.meta_path`."""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG003 - given by Python
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        project = _projects.get(fullname.partition(".")[0])
        return None if project is None or path is None else project.spec(fullname, list(path))


class _Loader(TextLoader):
    def exec_module(self, module: ModuleType) -> None:
        project = _projects[module.__name__.partition(".")[0]]
        module.__dict__["__builtins__"] = project.builtins
        super().exec_module(module)
