"""What a candidate is judged by and may not change, told by digests before and after."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from pytest_cgins.building.builders import plan
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.config import Config
from pytest_cgins.core import git, syntax
from pytest_cgins.core.errors import RevisionError
from pytest_cgins.core.text import counted, text_of
from pytest_cgins.gate.settings_files import SETTINGS
from pytest_cgins.packs.store import PROFILES
from pytest_cgins.regenerate.attempt import Guarded
from pytest_cgins.regenerate.methods import memory_file

WHOLE_NBYTES = 16 << 20
"""Larger files, which only packs have, are told by their size and time: a pack's blobs are named by their content, which
is checked when they are read."""
SUFFIXES = frozenset({
    ".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json", ".jsonl", ".txt", ".sh", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl",
    ".inc", ".cu", ".c", ".cc", ".cpp", ".cxx", ".pt", ".so", ".ptx", ".cubin",
})  # fmt: skip
"""Files outside of packs that a verdict may depend on: tests, configurations, kernels and what they include or load."""
SKIPPED_FOLDERS = frozenset({"node_modules", "venv", "build"})
"""Besides hidden folders, where there is no git to say what the project's files are."""
BASE = "base revision"
"""The revision that times are compared with, among the names of files."""
_TEST = re.compile(r"conftest\.py|test_.*\.py|.*_test\.py")
_TEST_FOLDERS = frozenset({"test", "tests"})
_TEST_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".json"})
_FILE = re.compile(r"[\w+-][\w.+-]*\.\w+")
"""The name of a file within a text, as in `#include "rows.cuh"`."""
_SOURCES = SUFFIXES - (_TEST_SUFFIXES - {".py"}) - {".jsonl", ".txt", ".pt", ".so", ".ptx", ".cubin"}
"""Files whose texts say what is read besides them."""


def guarded(config: Config, top: Path, own: Iterable[str], base_commit: str) -> Guarded:
    """Digests as they are now, of all files that a verdict could depend on: `GuardedFiles` says on which it does.

    Args:
        config: the project's file.
        top: its top folder.
        own: the kernel's own sources, relative to `top`, which may change.
        base_commit: the revision that times are compared with; "" for none.
    """
    free = set(own)
    files = {name: _digest(top / name) for name in sorted(set(_of_project(config, top))) if name not in free}
    for pack in config.traces:
        for place in sorted(pack.rglob("*")):
            # A profile is for readers: no verdict depends on it.
            if place.is_file() and place.parent.name != PROFILES:
                files[os.path.relpath(place, top)] = _digest(place)
    files[BASE] = base_commit
    return Guarded(files=files)


def differences(before: Guarded, after: Guarded) -> tuple[str, ...]:
    """Names whose digests differ, or that are in one only."""
    names = sorted({*before.files, *after.files})
    return tuple(name for name in names if before.files.get(name) != after.files.get(name))


def relevant_changes(
    changed: Sequence[str],
    known: Iterable[str],
    *sources: Mapping[str, str],
    config: Config,
    top: Path,
    kernels: Config,
) -> tuple[str, ...]:
    """Those of the changed files that a verdict depends on; another kernel, a script or a log is none of them.

    They are packs, `cgins.yaml`, tests and their settings, the base revision, and what the kernel's sources and the op's
    module include, import or name, over any number of files.

    Args:
        changed: names as of `differences`.
        known: all names that there are, and were.
        sources: the kernel's own, by path: the incumbent's, and the candidate's.
        config: the project's file.
        top: the project's top folder, where names start.
        kernels: those kernels alone that are judged.
    """
    if not changed:
        return ()
    packs = tuple(os.path.relpath(pack, top) for pack in config.traces)
    fixed = {BASE, os.path.relpath(config.file, top)}
    read = _read_by(_Names(known, os.path.relpath(config.root, top)), sources, top, kernels)
    return tuple(
        name
        for name in changed
        if name in fixed
        or name in read
        or _is_test(name)
        or any(name.startswith(f"{pack}/") for pack in packs)
    )


def _is_test(name: str) -> bool:
    """Whether pytest runs a file, takes its settings from it, or is likely to find a test's tolerances in it."""
    path = PurePosixPath(name)
    is_beside_tests = path.suffix in _TEST_SUFFIXES and not _TEST_FOLDERS.isdisjoint(path.parts[:-1])
    return path.name in SETTINGS or is_beside_tests or _TEST.fullmatch(path.name) is not None


def _read_by(names: _Names, sources: Iterable[Mapping[str, str]], top: Path, kernels: Config) -> set[str]:
    """Files that the sources, and the modules of ops and targets, include, import or name."""
    todo = [pair for texts in sources for pair in texts.items()]
    found: set[str] = set()

    def add(more: Iterable[str]) -> None:
        for name in more:
            if name not in found:
                found.add(name)
                todo.append((name, text_of(top / name) if Path(name).suffix in _SOURCES else ""))

    for entry in kernels.kernels:
        add(names.module(entry.op.partition("@")[0].split(".")))
        for implementation in entry.implementations:
            add(names.module(implementation.target.partition(":")[0].split(".")))
    while todo:
        path, text = todo.pop()
        add(names.named_in(text))
        if path.endswith(".py"):
            for folder, parts in _imports(path, text):
                add(names.module(parts, folder))
    return found


class _Names:
    """Files by what texts call them.

    Args:
        known: their names.
        root: the folder that Python imports from, relative to where names start.
    """

    def __init__(self, known: Iterable[str], root: str) -> None:
        self._known = frozenset(known)
        self._root = "" if root == "." else root
        self._by_last: defaultdict[str, list[str]] = defaultdict(list)
        self._compiled: defaultdict[str, list[str]] = defaultdict(list)
        for name in self._known:
            last = name.rpartition("/")[2]
            self._by_last[last].append(name)
            if last.endswith(".so"):
                self._compiled[last.partition(".")[0]].append(name)

    def named_in(self, text: str) -> Iterator[str]:
        """Files, Python's left out, whose last part is in a text."""
        for last in set(_FILE.findall(text)):
            if not last.endswith(".py"):
                yield from self._by_last.get(last, ())

    def module(self, parts: list[str], folder: str | None = None) -> Iterator[str]:
        """Files of a dotted name's packages, its module, and a module that it may be an attribute of.

        Args:
            parts: of the name.
            folder: where a relative import starts; None for an absolute one, which is found anywhere (`src/`, say) if
                the project's own folder does not have it.
        """
        found = list(self._below(self._root if folder is None else folder, parts))
        if not found and folder is None and parts[0]:
            tails = [f"{'/'.join(parts[:count])}.py" for count in (len(parts), len(parts) - 1) if count]
            found = [
                name
                for tail in tails
                for name in self._by_last.get(tail.rpartition("/")[2], ())
                if name.endswith(f"/{tail}")
            ]
        yield from found

    def _below(self, folder: str, parts: list[str]) -> Iterator[str]:
        for count, last in enumerate(parts, 1):
            place = "/".join(filter(None, [folder, *parts[:count]]))
            yield from (name for name in (f"{place}.py", f"{place}/__init__.py") if name in self._known)
            yield from self._compiled.get(last, ())


def _imports(path: str, text: str) -> Iterator[tuple[str | None, list[str]]]:
    """What a Python file imports: the folder that a relative import starts in, else None, and the parts of the name."""
    tree = syntax.readable(text)
    if tree is None:
        return
    for level, module, name in syntax.imports(tree):
        folder = "/".join(path.split("/")[:-level]) if level else None
        yield folder, ".".join(filter(None, (module, name))).split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            texts = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from ((None, text.lstrip(".").split(".")) for text in texts if isinstance(text, str))


def digest(texts: Mapping[str, str]) -> str:
    """sha256 over names and texts: a candidate's sources by path, or digests by file."""
    whole = hashlib.sha256()
    for name in sorted(texts):
        for part in (name, texts[name]):
            encoded = part.encode(errors="surrogateescape")
            whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.hexdigest()


def _of_project(config: Config, top: Path) -> Iterator[str]:
    """What git lists below the folder of cgins.yaml and those of headers, and tests and settings above; else what lies there."""
    root = Path(os.path.realpath(config.root))
    headers = {
        Path(os.path.realpath(folder))
        for _, one in config.implementations.values()
        for folder in plan.header_folders([str(file) for file in one.sources], one.flags)
    }
    packs = [pack.resolve() for pack in config.traces]
    # A search itself writes there what it learns, and nothing of it is asked when a candidate is judged.
    learned = root / memory_file.FOLDER / memory_file.NAME
    for name in _listed(top) or _walked(top, root):
        path = top / name
        if path == learned or path.suffix not in SUFFIXES:
            continue
        inside = any(path.is_relative_to(folder) for folder in (root, *headers))
        if (inside or _is_test(name)) and not any(path.is_relative_to(pack) for pack in packs):
            yield name


def _listed(top: Path) -> list[str]:
    try:
        return git.files(top)
    except RevisionError:
        return []


def _walked(top: Path, root: Path) -> Iterator[str]:
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS]
        yield from (os.path.relpath(Path(place, name), top) for name in files)


def _digest(file: Path) -> str:
    try:
        found = file.stat()
        if found.st_size > WHOLE_NBYTES:
            return f"{counted(found.st_size, 'byte')} of {found.st_mtime_ns}"
        return file_digest(str(file)) or ""
    except OSError:
        return ""
