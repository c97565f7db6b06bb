"""The base revision's kernels, to be timed beside the same kernels of the working tree in one process."""

from __future__ import annotations

import ast
import os
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.contracts.cxx import code_of
from pytest_cgins.building.contracts.import_closure import ImportReader
from pytest_cgins.building.contracts.source import read
from pytest_cgins.building.kernel_builds import has_driver, unaltered
from pytest_cgins.building.revision.base_sources import Absent, BaseSources, Name
from pytest_cgins.config import Config, Implementation
from pytest_cgins.core import syntax
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import CginsError, InfrastructureError, RevisionError, SourceError

INCLUDED = frozenset({
    ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".def", ".tpp",
})  # fmt: skip
"""Files that a source in C++ or CUDA may include."""
READ_BY_PYTHON = INCLUDED | {".py", ".json", ".toml", ".yaml", ".yml", ".so", ".ptx", ".cubin"}
"""Files that a Python kernel may import, compile or read its configurations from, whether or not it says so."""


TWIN = "_cgins_twin"
"""What a second build of the same sources has in its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseKernel:
    """One implementation at the base revision."""

    state: Literal["changed", "unchanged", "new", "none", "refused", "apart"]
    """`changed`: it is another build; `unchanged`: it is the same; `new`: the base revision does not have it; `none`:
    there is no base revision; `refused`: it cannot be read, built or loaded; `apart`: it cannot be loaded beside the
    working tree's, and is compared in processes of its own where a session does so."""
    compiled: CompiledKernel | None = None
    """The build, where it is `changed`."""
    note: str = ""
    """For a person, one line: why there is no build; "" where it is `changed` or `unchanged`."""
    revision: str = ""
    """Its commit; "" where there is none."""


class BaseKernels:
    """The kernels of one `cgins.yaml` at the revision that it is compared with.

    Nothing is asked of git, read or written before a method is called. Where no file that a build could read differs
    from the base revision's, it stays at asking git.

    Args:
        config: the file of the working tree.
        wanted: `merge-base`, a commit, or `none`.
        builds: those of the run: base kernels are built beside them, and are quiet with them; None for none.
        cache: folder of built kernels, by default that of `builds`, else the user's.
        alone: whether they are loaded without the working tree's, so that nothing stands in their way.
    """

    def __init__(
        self,
        config: Config,
        *,
        wanted: str,
        builds: BuildQueue | None = None,
        cache: Path | None = None,
        alone: bool = False,
    ) -> None:
        self._config = config
        self._alone = alone
        self._sources = BaseSources(config, wanted, alone=alone)
        self._build_queue = BuildQueue(
            cache=cache, beside=builds, jobs=builds.jobs if builds is not None else 0
        )
        self._own = {name: one for name, (_, one) in config.implementations.items()}
        # Asked for while the files are written, whose lock `may_differ` waits for.
        self._touched: dict[Name, bool] = {}
        self._writer = ThreadPoolExecutor(1, "cgins-base")
        self._lock = threading.Lock()
        self._found: dict[tuple[Name, str], BaseKernel] = {}

    @property
    def label(self) -> str:
        """The revision for messages, as `Revision.label`; "" if there is none.

        Raises:
            RevisionError: a commit was named, and git does not know it. So does each method below.
        """
        return self._sources.label

    @property
    def commit(self) -> str:
        """The revision's commit; "" if there is none."""
        return self._sources.commit

    @property
    def root(self) -> Path | None:
        """Top folder of the base revision's files, which workers must see; None where there is nothing in it for them.

        They are written when it is first asked for, and stay until `close`.
        """
        return self._sources.top() if self.may_differ() else None

    def import_folders(self, inherited: str) -> tuple[str, ...]:
        """See `BaseSources.import_folders`; () where nothing differs."""
        return self._sources.import_folders(inherited) if self.may_differ() else ()

    def build_ahead(self, kernels: Iterable[Name]) -> None:
        """Begin to write the base revision's files, and to build what is another build than the working tree's.

        Args:
            kernels: kernel, implementation and device type, in the order in which they will be needed.
        """
        names = tuple(dict.fromkeys(kernels))
        with suppress(RevisionError):
            if self.may_differ():
                self._touched |= {name: self.is_touched(*name) for name in names}
                # A repository of thousands of files takes seconds, in which workers import torch.
                self._writer.submit(self._build_ahead, names)

    def _build_ahead(self, kernels: Iterable[Name]) -> None:
        sources = []
        for name in kernels:
            one = self._own.get(name)
            if one is None or one.contract == "python" or (device_of(name[2]).is_cuda and not has_driver()):
                continue
            try:
                found = self._sources.source(*name)
            except (InfrastructureError, RevisionError):  # told by `of`
                return
            if self.is_touched(*name) and isinstance(found, KernelSource) and found.contract != "python":
                sources.append(replace(found, archs=one.archs))
        self._build_queue.add(sources)

    def is_touched(self, kernel: str, implementation: str, device: str) -> bool:
        """Whether an implementation may be another than at the base revision, as far as the names of changed files tell."""
        name = (kernel, implementation, device)
        if name in self._touched:
            return self._touched[name]
        one = self._own.get(name)
        with suppress(RevisionError):
            return one is not None and self.may_differ() and self._is_touched(one)
        return False

    def _is_touched(self, one: Implementation) -> bool:
        changed = set(self._sources.changed)
        if one.contract == "python":
            return any(file.suffix in READ_BY_PYTHON for file in changed)
        listed = {file for each in self._own.values() for file in each.sources}
        # Which headers a build reads is not known yet.
        headers = any(file not in listed and file.suffix in INCLUDED for file in changed)
        return headers or self._config.file in changed or not changed.isdisjoint(one.sources)

    def of(self, kernel: str, implementation: str, device: str, compiled: CompiledKernel) -> BaseKernel:
        """An implementation at the base revision, built for the same architectures; waits for the build.

        Args:
            kernel: its name.
            implementation: its name.
            device: `cpu` or `cuda`.
            compiled: the working tree's build.

        Raises:
            InfrastructureError: it could not be tried to build it: what is missing, or was lost.
        """
        name = (kernel, implementation, device)
        with self._lock:
            known = self._found.get((name, compiled.key))
        if known is not None:
            return known
        found = self._of(name, compiled)
        if found.state != "none":
            found = replace(found, revision=self.commit)
        with self._lock:
            return self._found.setdefault((name, compiled.key), found)

    def twin(self, compiled: CompiledKernel) -> BaseKernel:
        """A second build of the working tree's own sources: what lies between both is noise.

        Args:
            compiled: the first build.
        """
        source = compiled.source
        if source.contract == "python":
            source = replace(source, namespace=self._sources.own_namespace())
            why = obstacle_of_module(source)
            if why:
                return self._refused(why)
            built = replace(compiled, source=source, key=f"{compiled.key}-{TWIN}")
        else:
            try:
                built = unaltered(self._build_queue, replace(source, flags=(*source.flags, f"-D{TWIN}=1")))
                why = obstacle_of_library(built)
            except (CginsError, OSError) as error:
                why = self._sources.short(str(error).partition("\n")[0])
            if why:
                return self._refused(why)
        return BaseKernel(state="changed", compiled=built, revision=self.commit)

    def close(self) -> None:
        """Remove the base revision's files; builds of them that are under way are not waited for."""
        self._writer.shutdown(cancel_futures=True)
        self._build_queue.close()
        self._sources.close()

    def may_differ(self) -> bool:
        """Whether the base revision's files are needed to tell what differs.

        Raises:
            RevisionError: see `label`.
        """
        if self._sources.revision() is None:
            return False
        try:
            return bool(self._sources.changed)
        except RevisionError:  # the files themselves will tell
            return True

    def _of(self, name: Name, compiled: CompiledKernel) -> BaseKernel:
        if self._sources.revision() is None:
            return BaseKernel(state="none", note=self._sources.note)
        if not self.may_differ():
            return self._where_nothing_differs(compiled, built=bool(self._own[name].build))
        if (
            compiled.source.load
            and self._sources.has_all(compiled.source.files)
            and not self._imports_differ()
        ):
            return BaseKernel(state="unchanged")
        source = self._sources.source(*name)
        if isinstance(source, Absent):
            return BaseKernel(state=source.state, note=source.why)
        if source.op != compiled.source.op:
            return self._refused(f"it was a kernel for {source.op}")
        return self._of_source(replace(source, archs=compiled.source.archs), compiled)

    def _of_source(self, source: KernelSource, compiled: CompiledKernel) -> BaseKernel:
        obstacle = ""
        if source.contract == "python":
            if self._is_same_module(source, compiled):
                return BaseKernel(state="unchanged")
            obstacle = obstacle_of_module(source)
            if compiled.source.contract == "python" and source.interpret != compiled.source.interpret:
                why = "only one of both is for Triton's interpreter, which is on or off for a whole process"
                return self._refused(why)
        try:
            built = unaltered(self._build_queue, source)
            if built.key == compiled.key:
                return BaseKernel(state="unchanged")
            obstacle = obstacle or obstacle_of_library(built)
        except InfrastructureError:
            raise
        except (CginsError, OSError) as error:
            first = self._sources.short(str(error).partition("\n")[0])
            return BaseKernel(state="refused", note=f"cannot be built at {self.label}: {first}")
        if obstacle and not self._alone:
            return BaseKernel(state="apart", note=self._beside(obstacle))
        return BaseKernel(state="changed", compiled=built)

    def _imports_differ(self) -> bool:
        """Whether anything of the project differs that what is loaded could read."""
        changed = (file for file in self._sources.changed if file != self._config.file)
        return any(file.suffix in READ_BY_PYTHON for file in changed)

    def _where_nothing_differs(self, compiled: CompiledKernel, *, built: bool) -> BaseKernel:
        # What a project's own command builds of the same files is the same.
        files = [file for file in compiled.source.files if not (built and file.endswith(".so"))]
        try:
            in_git = self._sources.has_all(files)
        except RevisionError as error:
            return BaseKernel(state="refused", note=f"{error.what} ({error.remedy})")
        if in_git:
            return BaseKernel(state="unchanged")
        names = ", ".join(Path(file).name for file in files)
        note = f"git does not have all of its files at {self.label}: {names}"
        return BaseKernel(state="refused", note=note)

    def _is_same_module(self, source: KernelSource, compiled: CompiledKernel) -> bool:
        """Whether a Python target and all that it may import or read is as it was."""
        if source.digest != compiled.source.digest or compiled.source.contract != "python":
            return False
        top = self._sources.top()
        own = any(top is not None and Path(file).is_relative_to(top) for file in source.files)
        return not (own and self._imports_differ())

    def _refused(self, why: str) -> BaseKernel:
        return BaseKernel(state="refused", note=self._beside(why))

    def _beside(self, why: str) -> str:
        return f"cannot be loaded beside that of {self.label}: {why}"


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
