"""Foreign reference code as importable modules of the project: `references/<name>.py`.

An op must be importable by name wherever it is gated, so the code is copied into the project. Importing it
runs it: every caller has been told to with `--allow-code`.
"""

from __future__ import annotations

import ast
import importlib
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from pytest_cgins.core import syntax
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import nearest

_MARK = "# Imported with `cgins import`"
_PACKAGE = '"""Reference code of other benchmarks, copied here by `cgins import`; importing it runs it."""\n'


def require_permission(kind: str, allowed: bool) -> None:
    """Refuse to go on without `--allow-code`.

    Raises:
        RecordError: without it; the message says what would run.
    """
    if not allowed:
        raise RecordError(
            f"a {kind} source is Python code, and to import it is to run it with your rights",
            remedy="read the code; then pass --allow-code, in a container if you do not trust it",
        )


class References:
    """The package of reference modules, which is imported from its folder's parent.

    Raises:
        RecordError: if the folder's name cannot be imported.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.package = self.folder.name
        self._written: dict[str, str] = {}
        if not self.package.isidentifier() or keyword.iskeyword(self.package):
            raise RecordError(
                f"{folder} cannot be a package: {self.package!r} is not an identifier",
                remedy="name it like references/ with --references",
            )

    def write(self, name: str, code: str, origin: str) -> ModuleType:
        """Write a module, and import it; its first line tells the origin.

        Raises:
            RecordError: if a file of another origin is there, this import has written other code there, or the code
                is no Python.
        """
        path = self.folder / f"{name}.py"
        _parsed(code, origin)
        if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
            raise RecordError(
                f"{path} already exists, and `cgins import` did not write it",
                remedy="move it away, or choose another folder with --references",
            )
        if self._written.setdefault(name, code) != code:
            raise RecordError(
                f"{origin} would take the place of other code that this import copied to {path}",
                remedy="their names differ too little: import one of them into a pack and --references of its own",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        package = self.folder / "__init__.py"
        if not package.exists():
            package.write_text(_PACKAGE, encoding="utf-8")
        path.write_text(f"{_MARK} from {origin}: change that, and import it again.\n{code}", encoding="utf-8")
        return self.load(name)

    def load(self, name: str) -> ModuleType:
        """Import a module of the package, anew if it has been imported before."""
        root = str(self.folder.parent)
        if sys.path[:1] != [root]:
            sys.path.insert(0, root)
        loaded = sys.modules.get(self.package)
        if loaded is not None and Path(str(loaded.__file__)).parent != self.folder:
            for module in [key for key in sys.modules if key.split(".")[0] == self.package]:
                del sys.modules[module]
        sys.modules.pop(f"{self.package}.{name}", None)
        importlib.invalidate_caches()
        # A cached bytecode file is told from a stale one by whole seconds.
        wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except SystemExit as error:
            raise RecordError(
                f"its code ends the process, with status {error.code}",
                remedy="put what a script does under if __name__ == '__main__'",
            ) from error
        finally:
            sys.dont_write_bytecode = wrote

    def op(self, name: str, function: str) -> str:
        """Qualified name of a function or class in a module of the package."""
        return f"{self.package}.{name}.{function}"


def require(module: ModuleType, *names: str) -> None:
    """Check that a module has the callables that its format wants.

    Raises:
        RecordError: if one is missing.
    """
    if missing := [name for name in names if not callable(getattr(module, name, None))]:
        raise RecordError(
            f"it defines no {', '.join(missing)}",
            remedy=nearest(missing[0], vars(module)) or "check the file and the KIND",
        )


def imported_code(text: str) -> str:
    """The code of a reference module without the line that `cgins import` put above it."""
    return text.partition("\n")[2] if text.startswith(_MARK) else text


def module_name(*parts: str) -> str:
    """A module's name made of texts: lower case, words parted by underscores."""
    name = re.sub(r"[^a-z0-9]+", "_", "_".join(parts).lower()).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"m_{name}"


def override(code: str, values: Mapping[str, object], origin: str) -> str:
    """The code with other values for constants of its top level.

    Raises:
        RecordError: if it has no such constant.
    """
    lines = code.splitlines(keepends=True)
    known = constants(code, origin)
    found = {name: node for name, node in known.items() if name in values}
    if missing := [name for name in values if name not in found]:
        raise RecordError(
            f"{origin} has no top-level constant {', '.join(missing)}",
            remedy=nearest(missing[0], known) or "--set takes names that the file assigns",
        )
    for name, node in sorted(found.items(), key=lambda item: -item[1].lineno):
        assert node.end_lineno is not None
        lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {values[name]!r}\n"]
    return "".join(lines)


def constants(code: str, origin: str = "the file") -> dict[str, ast.Assign]:
    """The last top-level `NAME = …` of each name.

    Raises:
        RecordError: if the code is no Python.
    """
    return {
        node.targets[0].id: node
        for node in _parsed(code, origin).body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }


def _parsed(code: str, origin: str) -> ast.Module:
    try:
        return syntax.module(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        raise RecordError(f"{origin} is not Python: {error}", remedy="check the file and the KIND") from error
