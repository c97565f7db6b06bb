"""All that Python code is made of: the modules that it imports, as far as reading them tells."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_cgins.building.loading import imports
from pytest_cgins.core import syntax

OPAQUE = re.compile(
    r"\b(?:CDLL|LoadLibrary|Popen|__file__|__import__|cdll|cpp_extension|ctypes|dlopen|fopen|from_pretrained|fromfile|fstream"
    r"|genfromtxt|ifstream|import_module|importlib|load_extension|load_file|load_inline|load_library|loadtxt|memmap|mmap"
    r"|pkgutil|popen|read_bytes|read_text|runpy|safe_open|subprocess)\b|\bopen\b(?!\s+[a-z])|\bsystem\s*\("
    r"|(?<![\w.])(?:eval|exec)\b|\b(?:np|numpy|torch)\.load\b|\bimport load\b|\bsys\.(?:meta_path|modules|path)\b"
)
"""Words by which code, in Python or C++, gets at code or data that no import statement and no include tells of."""


class ImportReader:
    """Follows the imports of one project, without running any of it; each file is read once.

    Args:
        root: folder of cgins.yaml, where modules are looked up first.
        path: folders in which they are looked up then.
        alone: leave out what lies elsewhere, and what is imported by files that cannot be read.
    """

    def __init__(self, root: Path, path: Iterable[str], *, alone: bool = False) -> None:
        self._root, self._alone = root, alone
        self._folders = [str(root), *path]
        self._imported: dict[Path, frozenset[Path]] = {}

    def closure(self, files: Iterable[Path], names: Iterable[str]) -> set[Path]:
        """Files that code is made of: those of the project, and of other folders that no package manager looks after.

        Args:
            files: where it begins.
            names: dotted names that it looks up as well; their last parts need not be modules.

        Raises:
            OSError, SyntaxError, ValueError: a file cannot be read.
        """
        todo = [file for file in files if not _is_installed(file)]
        for name in names:
            todo += self._of_name(name)
        found: set[Path] = set()
        while todo:
            if (file := todo.pop()) not in found:
                found.add(file)
                if file.suffix == ".py" and file not in self._imported:
                    self._imported[file] = frozenset(self._imports(file))
                todo += self._imported.get(file, ())
        return found

    def _imports(self, file: Path) -> Iterator[Path]:
        for folder in file.parents:  # packages are imported before what is in them
            if not (folder / "__init__.py").is_file():
                break
            yield folder / "__init__.py"
        try:
            tree = syntax.module(file.read_text(encoding="utf-8"), str(file))
        except (OSError, SyntaxError, ValueError):
            if self._alone:
                return
            raise
        for level, module, taken in syntax.imports(tree):
            name = ".".join(filter(None, (module, taken)))
            beside = str(file.parents[min(level, len(file.parents)) - 1])
            yield from self._in(name, [beside]) if level else self._of_name(name)

    def _of_name(self, name: str) -> list[Path]:
        """The file of each part of a dotted name that is a module; none of what is installed."""
        first = name.partition(".")[0]
        if first in imports.RESERVED:
            return []
        found = list(self._in(name, self._folders))
        if self._alone:
            return found
        with suppress(ImportError, ValueError):  # an editable installation has finders of its own
            spec = None if found else importlib.util.find_spec(first)
            if spec is not None and spec.origin is not None and not _is_installed(Path(spec.origin)):
                folder = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
                return list(self._in(name, [str(folder)]))
        return found

    def _in(self, name: str, folders: list[str]) -> Iterator[Path]:
        for part in name.split("."):
            spec = imports.find(part, folders, self._root)
            origin = Path((spec.origin if spec else "") or "")
            if spec is None or _is_installed(origin):
                return
            if origin.is_file():
                yield origin
            folders = list(spec.submodule_search_locations or ())


def _is_installed(file: Path) -> bool:
    return not set(imports.INSTALLED).isdisjoint(file.parts)
