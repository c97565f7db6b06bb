"""Kernel sources as cgins.yaml names them: found, read, checked and digested, not yet built."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from pytest_cgins.building.builders import specialize
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.cxx import code_of, is_endless, own_headers
from pytest_cgins.building.loading import extension_exports, imports
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core import syntax
from pytest_cgins.core.case import CONTRACT_VERSION, KernelSource
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.text import nearest, nearest_path
from pytest_cgins.core.trace import OPERATORS


def find(
    config: Config, kernel: KernelEntry, implementation: Implementation, *, path: Sequence[str] | None = None
) -> KernelSource:
    """Read and check the sources of one implementation.

    Args:
        config: whose folder modules are looked up in first.
        kernel: an entry of it.
        implementation: one of the entry's.
        path: where modules are looked up then, by default `sys.path`.

    Raises:
        SourceError: a file, schema line, entry point or Python target is missing or wrong.
    """
    files = implementation.sources
    _require_files(files, f"{config.file.name}:{implementation.line}", config.root)
    schema = launch = module = import_root = ""
    if implementation.contract in ("launcher", "device"):
        text = read(files[0])
        schema, line = schemas.locate(text, files[0])
        parsed = schemas.parse(schema, f"{files[0]}:{line}")
        entry = parsed.entry
        if implementation.specialized is not None:
            specialize.require_sizes(implementation.specialized, parsed, f"{files[0]}:{line}")
        if implementation.contract == "device":
            launch = launch_line.locate(text, files[0])
            launch_line.read(launch, parsed, str(files[0]))
            _refuse_host_launch(text, files[0])
    elif implementation.contract == "torch-extension":
        entry = implementation.entry
        texts = extension_texts(files, implementation.flags)
        extension_exports.Exports.of(str(files[0]), texts).require(entry)
    else:
        import_root = str(config.root)
        path = sys.path if path is None else path
        if implementation.target.startswith(OPERATORS):
            module, entry = "torch", implementation.target.removeprefix("torch.")
            file = None
        else:
            module, _, entry = implementation.target.partition(":")
            file = find_target(module, entry, config.root, path) or _extension(module, config.root, path)
        loaded = _loaded_files(implementation, config, path)
        files = tuple(dict.fromkeys([*([file] if file else []), *loaded, *files]))
    source = KernelSource(
        kernel=kernel.name,
        implementation=implementation.name,
        op=kernel.op,
        device=implementation.device,
        contract=implementation.contract,
        entry=entry,
        schema=schema,
        launch=launch,
        files=tuple(str(file) for file in files),
        module=module,
        import_root=import_root,
        flags=(*(f"-D{name}={value}" for name, value in implementation.defines), *implementation.flags),
        specialized=implementation.specialized,
        archs=implementation.archs,
        interpret=implementation.interpret,
        load=implementation.load,
    )
    return _with_digest(source)


def read(file: Path) -> str:
    """Text of a source.

    Raises:
        SourceError: it is missing, unreadable, or not UTF-8.
    """
    if is_endless(file):
        what = f"{file} is a device, a pipe or a file of the system's"
        raise SourceError(what, remedy="write a plain file")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SourceError(
            f"{file}: no such file",
            remedy=nearest_path(file, file.name) or "paths in cgins.yaml start at the folder it lies in",
        ) from None
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror}", remedy="make the file readable") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file}: not UTF-8 at byte {error.start}", remedy="save it as UTF-8") from error


def extension_texts(files: Sequence[str | Path], flags: Sequence[str]) -> list[str]:
    """Texts of an extension's sources, then of the headers of its own that they include.

    Raises:
        SourceError: a source is missing, unreadable, or not UTF-8.
    """
    return [
        *(read(Path(file)) for file in files),
        *own_headers([str(file) for file in files], include_folders(flags)),
    ]


def include_folders(flags: Sequence[str]) -> list[Path]:
    """Folders of `-IFOLDER`."""
    return [Path(flag[2:]) for flag in flags if flag.startswith("-I")]


def link_flags(flags: Sequence[str]) -> list[str]:
    """Flags for the link of a library: libraries, their folders, and what goes to the linker by a prefix."""
    return [flag for flag in flags if flag.startswith(("-l", "-L", "-Wl,"))]


def takes_workspace(source: KernelSource, entry: str) -> bool:
    """Whether a launcher takes scratch memory, by any of its sources."""
    return any(wants_workspace(read(Path(file)), entry) for file in source.files)


def wants_workspace(text: str, entry: str) -> bool:
    """Whether a launcher's source defines `<entry>_workspace`, and so takes scratch memory."""
    return re.search(rf"\b{re.escape(entry)}_workspace\s*\(", code_of(text)) is not None


def _require_files(files: Sequence[Path], where: str, root: Path) -> None:
    """Raise SourceError for a source that is not there, with the line that names it."""
    for file in files:
        # os.path answers False for names that no file can have, where Path may raise.
        if not os.path.isfile(file):  # noqa: PTH113
            shown = os.path.relpath(file, root)
            raise SourceError(
                f"{where}: no such file: {shown}",
                remedy=nearest_path(file, shown) or f"the path starts at {root}",
            )


def _refuse_host_launch(text: str, file: Path) -> None:
    code = code_of(text)
    if "<<<" in code:
        line = code.count("\n", 0, code.index("<<<")) + 1
        raise SourceError(
            f"{file}:{line}: <<<…>>> in a device kernel, which has no host code",
            remedy="leave the launch to the launch line, or write contract: launcher",
        )


def find_target(module: str, function: str, root: Path, path: Sequence[str] | None = None) -> Path | None:
    """The file of a Python target, without importing anything.

    Args:
        module: dotted name, found from `root` first and then as Python finds modules.
        function: attribute path, whose first name the module must define at its top level.
        root: folder of cgins.yaml.
        path: where it is looked up then, by default `sys.path`.

    Returns:
        The Python file, or None for a module that is not written in Python.

    Raises:
        SourceError: no such module, or the module defines no such name.
    """
    file = _module_file(module, root, sys.path if path is None else path)
    if file is None or file.suffix != ".py":
        return None
    try:
        names = _names(read(file), str(file))
    except SyntaxError as error:
        raise SourceError(f"{file}:{error.lineno}: {error.msg}", remedy="correct the syntax") from error
    first = function.partition(".")[0]
    if first not in names and not names & {"*", "__getattr__"}:
        raise SourceError(
            f'{file}: module "{module}" defines no "{first}"',
            remedy=nearest(first, names) or "target is MODULE:FUNCTION, a name at the module's top level",
        )
    return file


def _extension(module: str, root: Path, path: Sequence[str]) -> Path | None:
    """The file of a compiled module of the project itself: it is what will run, and belongs into the digest."""
    file = _module_file(module, root, path)
    return file if file is not None and file.is_relative_to(root) and file.is_file() else None


def _loaded_files(implementation: Implementation, config: Config, path: Sequence[str]) -> Iterator[Path]:
    """The libraries and modules that register an operator; of a package its libraries, too: they are what will run.

    Raises:
        SourceError: one is missing.
    """
    for name in implementation.load:
        file = Path(name if os.path.isabs(name) else _module_file(name, config.root, path) or name)  # noqa: PTH117
        if not file.is_file():
            shown = os.path.relpath(file, config.root)
            raise SourceError(
                f"{config.file.name}:{implementation.line}: no such file: {shown}",
                remedy=nearest_path(file, shown)
                or (
                    "its build did not make it" if implementation.build else "build it, or add build: COMMAND"
                ),
            )
        yield file
        if file.suffix == ".py" and (file.parent / "__init__.py").is_file():
            yield from sorted(file.parent.rglob("*.so"))


def _module_file(module: str, root: Path, path: Sequence[str]) -> Path | None:
    folders = [str(root), *path]
    origin = None
    _refuse_reserved(module.partition(".")[0], root)
    for depth, part in enumerate(module.split(".")):
        # One name at a time: a dotted one would have the finder look into modules that are imported.
        spec = imports.find(part, folders, root)
        if spec is None:
            package = ".".join(module.split(".")[:depth])
            raise SourceError(
                f'no module "{part}" in {f"package {package}" if package else root} (target "{module}")',
                remedy=nearest(part, _modules_in(folders if package else [str(root)]))
                or "modules are looked up from the folder of cgins.yaml, then as Python finds them",
            )
        folders = list(spec.submodule_search_locations or ())
        origin = spec.origin
    if origin is None:
        raise SourceError(
            f'"{module}" is a folder without __init__.py, not a module',
            remedy=f"name a file in it: {module}.FILE:FUNCTION",
        )
    return Path(origin)


def _refuse_reserved(name: str, root: Path) -> None:
    """A module of the project that the workers would not find behind Python's, torch's or our own."""
    file = root / f"{name}.py"
    if name in imports.RESERVED and (file.is_file() or (root / name / "__init__.py").is_file()):
        raise SourceError(
            f'{file if file.is_file() else root / name}: "{name}" is the name of a module that Python, torch or '
            "pytest-cgins imports, and the project's does not come in its place",
            remedy="give it another name, or move it into a package",
        )


def _modules_in(folders: list[str]) -> set[str]:
    paths = [path for folder in folders if Path(folder).is_dir() for path in Path(folder).iterdir()]
    return {path.stem for path in paths if path.suffix == ".py" or path.is_dir()}


@lru_cache(maxsize=64)  # a file may have a thousand kernels
def _names(text: str, file: str) -> set[str]:
    return set(_top_level_names(syntax.module(text, file)))


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    """Names bound at the top level, also inside `if` and `try`; `*` for a star import."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            nodes = (name for target in targets for name in ast.walk(target))
            yield from (name.id for name in nodes if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                todo += getattr(node, field, [])
            todo += [statement for handler in getattr(node, "handlers", []) for statement in handler.body]


def _with_digest(source: KernelSource) -> KernelSource:
    parts = [
        f"contract {CONTRACT_VERSION}", source.kernel, source.implementation, source.op, source.device,
        source.contract, source.entry, source.schema, source.launch, source.module, *portable_flags(source.flags),
        *source.archs, str(source.interpret),
    ]  # fmt: skip
    if source.specialized is not None:
        it = source.specialized
        parts += ["specialized", *it.macros, *it.sizes, *map(str, it.builds)]
    if source.load:
        parts += ["load", *(Path(name).name for name in source.load)]
    for file in map(Path, source.files):
        compiled = file.name.endswith(tuple(EXTENSION_SUFFIXES))
        content = file_digest(file) if compiled else hashlib.sha256(read(file).encode()).hexdigest()
        parts += [file.name, content or ""]
    digest = hashlib.sha256("".join(f"{part}\0" for part in parts).encode())
    return replace(source, digest=digest.hexdigest())


def portable_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Flags without the folders of search paths, so that a moved project keeps its digests.

    What is found in those folders enters the build key by content.
    """
    return tuple(re.sub(r"^(-[IL]).*/", r"\1", flag) for flag in flags)
