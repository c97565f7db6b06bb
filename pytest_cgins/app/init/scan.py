"""What kernels a repository has, read from its text: nothing of it is imported or run.

A kernel is a function of Triton or CuTe DSL, or a C++ function that an extension exports. It is called through host
functions; which of these reach which kernels follows from the names that their bodies refer to, across files.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.cxx import without_comments
from pytest_cgins.core import syntax
from pytest_cgins.core.errors import SourceError

CXX = frozenset({".cu", ".cpp", ".cc", ".cxx"})
SOURCE_ROOTS = ("python", "src")
"""Folders that packages are imported from, besides the repository's own."""
_PASSED_BY = re.compile(
    r"\..*|__pycache__|node_modules|site-packages|third_party|build|dist|references|"
    r"tests?|testing|bench|benchmarks?|docs?|examples?"
)
"""Folders whose kernels nobody ships."""
_MOST_BYTES = 2**20

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
    operator: str = ""
    """Name of the operator of torch that a function is registered as, `namespace::name`."""
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
    """Relative to the repository: the one that exports it, and those that define it; or the build.toml that names them."""
    language: Language
    """Of the file that defines it."""
    contract: Literal["launcher", "device", "torch-extension"]
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
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What could not be read or cannot be entered, and why."""


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
        if path.suffix in CXX:
            sources[file] = text if schemas.MARK.search(text) else without_comments(text)
        else:
            _read_python(result, repository, file, text)
    seen: set[Path] = set()
    for file in sorted(sources, key=lambda file: not _EXPORTING.search(sources[file])):
        _read_cxx(result, repository, sources, file, seen)
    return result


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _PASSED_BY.fullmatch(name))
        files = (Path(parent, name) for name in sorted(names) if not name.startswith("test_"))
        yield from (file for file in files if file.suffix in {".py", *CXX})


# ---- Python


def _read_python(result: Scan, repository: Path, file: Path, text: str) -> None:
    if "Written by `cgins init`" in text.partition("\n")[0]:
        return
    try:
        tree = syntax.module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        result.left_out.append((str(file), f"it is not Python of this version: {error}"))
        return
    module = _module_of(repository, file)
    reader = _Module(module, file, is_package=file.name == "__init__.py", tree=tree)
    result.aliases |= {f"{module}.{name}": origin for name, origin in reader.imported.items()}
    result.definitions |= {definition.qualified: definition for definition in reader.definitions()}
    if "load_inline(" in text:
        why = "load_inline has its source in a string: move it to a file of its own"
        result.left_out.append((str(file), why))


def _module_of(repository: Path, file: Path) -> str:
    """The name by which a module is imported, from the repository's folder or from one of SOURCE_ROOTS."""
    folder = file.parent
    while folder != Path() and (repository / folder / "__init__.py").is_file():
        folder = folder.parent
    if folder == file.parent:  # a folder without __init__.py is a package as well
        folder = Path(*(part for part in folder.parts[:1] if part in SOURCE_ROOTS))
    parts = file.with_suffix("").relative_to(folder).parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


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
                tops = [(alias, alias.name.partition(".")[0]) for alias in node.names]
                names |= {alias.asname or top: alias.name if alias.asname else top for alias, top in tops}
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
        if language := _language(map(self._resolved, node.decorator_list)):
            return self._define(node.name, node, "kernel", language=language)
        named = [call.args[0] for call in node.decorator_list if isinstance(call, ast.Call) and call.args]
        texts = [str(first.value) for first in named if isinstance(first, ast.Constant)]
        return self._define(
            node.name, node, "function", parameters=_parameters(node), uses=self._uses(node),
            several=_returns_several(node), operator=next((text for text in texts if "::" in text), ""),
        )  # fmt: skip

    def _class(self, node: ast.ClassDef) -> Iterator[Definition]:
        methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
        decorators = [decorator for method in methods.values() for decorator in method.decorator_list]
        if language := _language(map(self._resolved, decorators)):
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

    def _define(self, name: str, node: ast.stmt, role: Role, **fields: Any) -> Definition:
        return Definition(
            name=name, module=self._module, file=self._file, line=node.lineno, role=role, **fields
        )

    def _uses(self, node: ast.AST) -> frozenset[str]:
        nodes = (child for child in ast.walk(node) if isinstance(child, ast.Name | ast.Attribute))
        return frozenset(name.removesuffix(".apply") for name in map(self._resolved, nodes) if "." in name)

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
    children = ast.iter_child_nodes(node) if isinstance(node, ast.If | ast.Try) else ()
    return [name for child in children if isinstance(child, ast.stmt) for name in _bound(child)]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _language(decorators: Iterable[str]) -> Language | None:
    for name in decorators:
        if name in ("triton.jit", "triton.runtime.jit.jit", "triton.runtime.jit"):
            return "triton"
        if re.fullmatch(r"(cutlass\.)?cute\.(jit|kernel)", name):
            return "cute"
    return None


def _parameters(node: ast.FunctionDef) -> tuple[Parameter, ...]:
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    more = (Parameter(f"*{given.vararg.arg}"),) if given.vararg else ()  # what they are, nobody can tell
    named = tuple(
        Parameter(arg.arg, ast.unparse(default) if default else None, by_name=arg in given.kwonlyargs)
        for arg, default in zip([*positional, *given.kwonlyargs], defaults, strict=True)
    )
    return (*named, *more)


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

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT|_EXPAND)?\s*\(\s*(\w+)\s*,")
_EXPORTING = re.compile("PYBIND11_MODULE|TORCH_LIBRARY")
_EXPORT = re.compile(
    r'\.def\s*\(\s*"(?P<name>\w+)(?:"\s*,\s*&?\s*(?:\w+::)*(?P<function>\w+)|\s*(?P<schema>\())'
)


def _read_cxx(result: Scan, repository: Path, texts: dict[Path, str], file: Path, seen: set[Path]) -> None:
    text = texts[file]
    if schemas.MARK.search(text):
        try:
            parsed = schemas.parse(schemas.locate(text, file)[0], str(file))
        except SourceError as error:
            result.left_out.append((str(file), error.what))
            return
        if any(argument.mutated for argument in parsed.arguments):
            result.left_out.append((f"{file} {parsed.entry}", "it works in place"))
            return
        launcher = CompiledFunction(
            name=parsed.entry,
            files=(file,),
            language="cuda" if file.suffix == ".cu" else "cpp",
            contract="device" if "cgins-launch:" in text else "launcher",
            parameters=tuple(Parameter(argument.name) for argument in parsed.arguments),
        )
        result.compiled.append(launcher)
        return
    library = _LIBRARY.search(text)
    exports = _EXPORT.finditer(text) if library or "PYBIND11_MODULE" in text else ()
    shared = {path: len(os.path.commonpath([path.parent, file.parent])) for path in texts}
    near = sorted(texts, key=lambda path: (path != file, -shared[path], path))
    for export in exports:
        function = export["function"] or export["name"]
        defined = ((_cxx_parameters(texts[path], function), path) for path in near)
        parameters, path = next((found for found in defined if found[0]), ((), file))
        # Hugging Face's layout names its sources and finds its headers itself.
        above = (folder / "build.toml" for folder in file.parents)
        toml = next((path for path in above if (repository / path).is_file()), None)
        namespace = library[1] if library and export["schema"] else "TORCH_EXTENSION_NAME"
        exported = CompiledFunction(
            name=("" if namespace == "TORCH_EXTENSION_NAME" else f"{namespace}::") + export["name"],
            files=(toml,) if toml else tuple(dict.fromkeys([file, path])),
            language="cuda" if path.suffix == ".cu" else "cpp",
            contract="torch-extension",
            parameters=parameters,
            missing="" if toml else _missing_header([repository / file, repository / path]),
        )
        seen |= {file, path}
        result.compiled.append(exported)
    if "__global__" in text and file not in seen:
        schema_line = "a schema line (cgins schema --op OP prints it)"
        result.left_out.append((str(file), f"it exports nothing: give it {schema_line} or a PYBIND11_MODULE"))


def _cxx_parameters(text: str, function: str) -> tuple[Parameter, ...]:
    """The parameters of a C++ function where it is defined; () where it is not."""
    definition = re.search(rf"\b{re.escape(function)}\s*\(([^(){{}};]*)\)\s*(?:const\s*)?\{{", text)
    listed = re.split(r",(?![^<]*>)", definition[1]) if definition else []
    parts = [part.partition("=") for part in listed if re.match(r"[^=]*\w", part)]
    return tuple(Parameter(re.findall(r"\w+", name)[-1], value.strip() or None) for name, _, value in parts)


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
