"""What kernels a repository has, read from its text: nothing of it is imported or run.

A kernel is a function of Triton or CuTe DSL, or a C++ function that an extension exports. It is called through host
functions; which of these reach which kernels follows from the names that their bodies refer to, across files.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.cxx import without_comments
from pytest_cgins.building.contracts.schema import MARK
from pytest_cgins.core import syntax
from pytest_cgins.core.errors import SourceError

CXX = frozenset({".cu", ".cpp", ".cc", ".cxx"})
PASSED_BY = frozenset(
    [
        "test",
        "tests",
        "testing",
        "benchmark",
        "benchmarks",
        "bench",
        "examples",
        "example",
        "docs",
        "doc",
        "build",
        "dist",
        "third_party",
        "site-packages",
        "node_modules",
        "references",
    ]
)
"""Folders whose kernels nobody ships; those whose names begin with a dot are passed by, too."""
SOURCE_ROOTS = ("python", "src")
"""Folders that packages are imported from, besides the repository's own."""
_PRUNED = frozenset({"build", "dist", "node_modules", "site-packages", "__pycache__"})
_MOST_BYTES = 2**20
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)\s*,")

Language = Literal["triton", "cute", "cpp", "cuda"]
Role = Literal["kernel", "function", "autograd", "value"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a host function."""

    name: str
    """As its author calls it."""
    default: str | None = None
    """Source of its default; None if it is required."""
    by_name: bool = False
    """Whether it can only be passed by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Something at the top level of a module."""

    name: str
    """Its name there."""
    module: str
    """Dotted name of the module, from the folder that it is imported from."""
    file: Path
    """Relative to the repository."""
    line: int
    """Where it begins, 1-based."""
    role: Role
    """`autograd` is a `torch.autograd.Function`, called by `apply`; `value` another class, or what an assignment makes."""
    language: Language = "triton"
    """Of a kernel."""
    tuned: bool = False
    """Whether an autotuner or heuristics choose a kernel's configuration."""
    parameters: tuple[Parameter, ...] = ()
    """Those of `forward`, without its context, for `autograd`."""
    uses: frozenset[str] = frozenset()
    """Qualified names that its body refers to; those of `forward`, for `autograd`."""
    backward_uses: frozenset[str] = frozenset()
    """The same of `backward`."""
    several: bool = False
    """Whether it returns a tuple."""

    @property
    def qualified(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"

    @property
    def target(self) -> str:
        """As `target` of an implementation has it."""
        return f"{self.module}:{self.name}{'.apply' if self.role == 'autograd' else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction:
    """A function of a C++ or CUDA source that can be called."""

    name: str
    """The schema line's, or the exported one."""
    files: tuple[Path, ...]
    """Relative to the repository: the one that exports it, and those that define it."""
    line: int
    """Where it is named, 1-based."""
    contract: Literal["launcher", "torch-extension"]
    """How it is called."""
    parameters: tuple[Parameter, ...] = ()
    """Of its schema line or C++ function."""
    missing: str = ""
    """A header that it includes and that does not lie beside it."""


@dataclass(slots=True)
class Scan:
    """What was read."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    """Of Python, by qualified name."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Where a name comes from that a module imports, qualified both."""
    compiled: list[CompiledFunction] = field(default_factory=list)
    """Of C++ and CUDA."""
    roots: dict[str, Path] = field(default_factory=dict)
    """Folder, relative to the repository, that a top-level package or module is imported from."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What could not be read or cannot be entered, and why."""
    tests: list[Path] = field(default_factory=list)
    """The repository's own tests, relative to it."""


def scan(repository: Path) -> Scan:
    """Read every source of a repository."""
    result = Scan()
    sources: dict[Path, str] = {}
    for path in _files(repository):
        file = path.relative_to(repository)
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= _MOST_BYTES else ""
        except (OSError, UnicodeDecodeError):
            continue
        if path.name.startswith("test_") and path.suffix == ".py":
            result.tests.append(file)
        elif not PASSED_BY.isdisjoint(file.parts[:-1]):
            continue
        elif path.suffix in CXX:
            sources[file] = text if MARK.search(text) else without_comments(text)
        elif path.suffix == ".py":
            _read_python(result, repository, file, text)
    for file in sorted(sources, key=lambda file: "PYBIND11_MODULE" not in sources[file]):
        _read_cxx(result, repository, sources, file)
    return result


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PRUNED)
        yield from (Path(parent, name) for name in sorted(names) if Path(name).suffix in {".py", *CXX})


# ---- Python


def _read_python(result: Scan, repository: Path, file: Path, text: str) -> None:
    if not re.search(r"\b(triton|cute|autograd|custom_op|load_inline)\b|^(from|import) ", text, re.MULTILINE):
        return
    try:
        tree = syntax.module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        result.left_out.append((str(file), f"it is not Python of this version: {error}"))
        return
    root, module = _module_of(repository, file)
    result.roots.setdefault(module.partition(".")[0], root)
    reader = _Module(module, file, is_package=file.name == "__init__.py", tree=tree)
    result.aliases |= {f"{module}.{name}": origin for name, origin in reader.imported.items()}
    for definition in reader.definitions():
        result.definitions[definition.qualified] = definition
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] == "load_inline":
            result.left_out.append(
                (
                    f"{file}:{node.lineno}",
                    "load_inline has its source in a string: move it to a .cu or .cpp file",
                )
            )


def _module_of(repository: Path, file: Path) -> tuple[Path, str]:
    """The folder that a file is imported from, and its module's name from there."""
    folder = file.parent
    while (repository / folder / "__init__.py").is_file() and folder != Path():
        folder = folder.parent
    if folder == file.parent and folder.parts[:1] not in [(root,) for root in SOURCE_ROOTS]:
        folder = Path()  # a folder without __init__.py is a package as well
    parts = file.with_suffix("").relative_to(folder).parts
    return folder, ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


class _Module:
    """One module's tree."""

    def __init__(self, module: str, file: Path, *, is_package: bool, tree: ast.Module) -> None:
        self._module = module
        self._file = file
        self._package = module if is_package else module.rpartition(".")[0]
        self._tree = tree

    @cached_property
    def imported(self) -> dict[str, str]:
        """Names that the module imports, wherever in it, and what they stand for."""
        names: dict[str, str] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom):
                above = self._package.split(".")[: len(self._package.split(".")) - node.level + 1]
                origin = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
                names |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {
                    alias.asname or alias.name.partition(".")[0]: alias.name
                    if alias.asname
                    else alias.name.partition(".")[0]
                    for alias in node.names
                }
        return names

    @cached_property
    def _names(self) -> dict[str, str]:
        own = {name: f"{self._module}.{name}" for node in self._tree.body for name in _bound(node)}
        return self.imported | own

    def definitions(self) -> Iterator[Definition]:
        """Functions, classes and assignments, those under an `if` or `try` as well."""
        nodes = list(self._tree.body)
        while nodes:
            node = nodes.pop(0)
            if isinstance(node, ast.FunctionDef):
                yield self._function(node)
            elif isinstance(node, ast.ClassDef):
                yield from self._class(node)
            elif isinstance(node, ast.Assign):
                for name in _bound(node):
                    yield self._define(name, node, "value", uses=self._uses(node.value))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]

    def _function(self, node: ast.FunctionDef) -> Definition:
        decorators = [self._resolved(decorator) for decorator in node.decorator_list]
        if language := _language(decorators):
            tuned = any(name.rpartition(".")[2] in ("autotune", "heuristics") for name in decorators)
            return self._define(node.name, node, "kernel", language=language, tuned=tuned)
        return self._define(
            node.name, node, "function",
            parameters=_parameters(node), uses=self._uses(node), several=_returns_several(node),
        )  # fmt: skip

    def _class(self, node: ast.ClassDef) -> Iterator[Definition]:
        methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
        decorators = [self._resolved(one) for method in methods.values() for one in method.decorator_list]
        if language := _language(decorators):
            yield self._define(node.name, node, "kernel", language=language)
        elif "forward" in methods and any(self._resolved(base).endswith("Function") for base in node.bases):
            forward, backward = methods["forward"], methods.get("backward")
            yield self._define(
                node.name, node, "autograd",
                parameters=_parameters(forward)[1:], uses=self._uses(forward), several=_returns_several(forward),
                backward_uses=self._uses(backward) if backward is not None else frozenset(),
            )  # fmt: skip
        else:
            yield self._define(node.name, node, "value", uses=self._uses(node))

    def _define(self, name: str, node: ast.stmt, role: Role, **fields: object) -> Definition:
        common = {"name": name, "module": self._module, "file": self._file, "line": node.lineno, "role": role}
        return Definition(**common, **fields)  # type: ignore[arg-type]

    def _uses(self, node: ast.AST) -> frozenset[str]:
        found = (
            self._resolved(child) for child in ast.walk(node) if isinstance(child, ast.Name | ast.Attribute)
        )
        return frozenset(name.removesuffix(".apply") for name in found if "." in name)

    def _resolved(self, node: ast.expr) -> str:
        """The qualified name that an expression refers to, a call's being that of what is called; "" for none."""
        first, _, rest = _dotted(node.func if isinstance(node, ast.Call) else node).partition(".")
        known = self._names.get(first, first)
        return f"{known}.{rest}" if rest else known


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return (
        [name for child in children for name in _bound(child)] if isinstance(node, ast.If | ast.Try) else []
    )


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _language(decorators: list[str]) -> Language | None:
    for name in decorators:
        if name in ("triton.jit", "triton.runtime.jit.jit", "triton.runtime.jit"):
            return "triton"
        if re.fullmatch(r"(cutlass\.)?cute\.(jit|kernel)", name):
            return "cute"
    return None


def _parameters(node: ast.FunctionDef) -> tuple[Parameter, ...]:
    given = node.args
    places = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(places) - len(given.defaults)) + [ast.unparse(one) for one in given.defaults]
    named = [None if one is None else ast.unparse(one) for one in given.kw_defaults]
    return (
        *(Parameter(arg.arg, default) for arg, default in zip(places, defaults, strict=True)),
        *(
            Parameter(arg.arg, default, by_name=True)
            for arg, default in zip(given.kwonlyargs, named, strict=True)
        ),
    )


def _returns_several(node: ast.FunctionDef) -> bool:
    """Whether each `return` of its own gives a tuple: one that gives a tensor may be the usual one."""
    values, nodes = [], list[ast.AST](node.body)
    while nodes:
        child = nodes.pop()
        if isinstance(child, ast.Return):
            values.append(child.value)
        elif not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(child)
    return bool(values) and all(isinstance(value, ast.Tuple) for value in values)


# ---- C++ and CUDA

_EXPORT = re.compile(r'\b\w+\.def\s*\(\s*"(\w+)"\s*,\s*&?\s*([\w:]+)')
_OPERATOR = re.compile(r'\b\w+\.def\s*\(\s*"(\w+)\s*\(')


def _read_cxx(result: Scan, repository: Path, texts: dict[Path, str], file: Path) -> None:
    text = texts[file]
    if MARK.search(text):
        try:
            line, number = schemas.locate(text, file)
            parsed = schemas.parse(line, f"{file}:{number}")
        except SourceError as error:
            result.left_out.append((str(file), error.what))
            return
        own = tuple(Parameter(one.name) for one in parsed.arguments)
        result.compiled.append(
            CompiledFunction(
                name=parsed.entry, files=(file,), line=number, contract="launcher", parameters=own
            )
        )
        return
    exports = list(_EXPORT.finditer(text)) if "PYBIND11_MODULE" in text else []
    operators = list(_OPERATOR.finditer(text)) if (library := _LIBRARY.search(text)) else []
    for export in [*exports, *operators]:
        function = export[2].rpartition("::")[2] if export in exports else export[1]
        near = sorted(
            texts, key=lambda path: (path != file, -len(os.path.commonpath([path.parent, file.parent])), path)
        )
        defined = [
            (path, parameters) for path in near if (parameters := _cxx_parameters(texts[path], function))
        ][:1]
        result.compiled.append(
            CompiledFunction(
                name=export[1] if library is None or export in exports else f"{library[1]}::{export[1]}",
                files=tuple(dict.fromkeys([file, *(path for path, _ in defined)])),
                line=text.count("\n", 0, export.start()) + 1,
                contract="torch-extension",
                parameters=defined[0][1] if defined else (),
                missing=_missing_header(
                    [repository / path for path in {file, *(path for path, _ in defined)}]
                ),
            )
        )
    if "__global__" in text and not any(file in one.files for one in result.compiled):
        why = (
            "it exports nothing: give it a schema line (cgins schema --op OP prints it) or a PYBIND11_MODULE"
        )
        result.left_out.append((str(file), why))


def _cxx_parameters(text: str, function: str) -> tuple[Parameter, ...]:
    """The parameters of a C++ function where it is defined; () where it is not."""
    found = re.search(rf"\b{re.escape(function)}\s*\(([^(){{}};]*)\)\s*(?:const\s*)?\{{", text)
    listed = re.split(r",(?![^<]*>)", found[1]) if found else []
    parts = [part.partition("=") for part in listed if re.match(r"[^=]*\w", part)]
    return tuple(
        Parameter(re.findall(r"\w+", before)[-1], after.strip() or None) for before, _, after in parts
    )


def _missing_header(files: list[Path]) -> str:
    """The first header in quotes that is not found from where it is included, as a compiler without `-I` sees it."""
    waiting, seen = list(files), set(files)
    while waiting:
        file = waiting.pop()
        for name in map(str, _INCLUDE.findall(file.read_text("utf-8", "replace"))):
            header = file.parent / name
            if header.is_file():
                waiting += [header] if header not in seen else []
                seen.add(header)
            elif name.partition("/")[0] not in ("torch", "ATen", "c10", "pybind11"):
                return name
    return ""
