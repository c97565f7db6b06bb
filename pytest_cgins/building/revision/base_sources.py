"""The kernels of one `cgins.yaml` as they are at the base revision: found and read, not yet built."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from pytest_cgins import config as configuration
from pytest_cgins.building.build_command import Commands
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.imports import is_in
from pytest_cgins.building.revision import merge_base as revisions
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import KernelSource, Namespace
from pytest_cgins.core.errors import BuildError, ConfigError, InfrastructureError, RevisionError, SourceError

PROSE = (".md", ".rst")
Name = tuple[str, str, str]
"""Kernel, implementation, device type."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Why there is no kernel of the base revision."""

    state: Literal["new", "none", "refused", "apart"]
    """The base revision does not have it; there is no base revision; it cannot be read there; it cannot be loaded beside
    the working tree's."""
    why: str
    """For a person, one line."""


class BaseSources:
    """Which commit a `cgins.yaml` is compared with, and what its kernels were there.

    Nothing is asked of git before it is needed, and no file is written before a kernel's sources are.

    Args:
        config: the file of the working tree.
        wanted: `merge-base`, a commit, or `none`.
        alone: whether its kernels are loaded in processes of their own, in which all of the project is the base's.
    """

    def __init__(self, config: Config, wanted: str, *, alone: bool = False) -> None:
        self._config = config
        self._alone = alone
        self._wanted = wanted
        self._lock = threading.RLock()
        self._checkout: revisions.Checkout | None = None
        self._base: Config | Absent | None = None

    def revision(self) -> revisions.Revision | None:
        """The commit that is compared with; None if there is none, for whatever reason.

        Raises:
            RevisionError: a commit was named, and git does not know it.
        """
        return self._resolved[0]

    @property
    def label(self) -> str:
        """The revision for messages, as `Revision.label`; "" if there is none. Errors as of `revision`."""
        found = self.revision()
        return found.label if found is not None else ""

    @property
    def commit(self) -> str:
        """The revision's commit; "" if there is none. Errors as of `revision`."""
        found = self.revision()
        return found.commit if found is not None else ""

    @property
    def note(self) -> str:
        """Why nothing is compared with; "" if something is.

        Raises:
            RevisionError: as `revision`.
        """
        return self._resolved[1]

    @property
    def _resolved(self) -> tuple[revisions.Revision | None, str]:
        """The commit, or why there is none."""
        with self._lock:
            return self._found

    @cached_property
    def _found(self) -> tuple[revisions.Revision | None, str]:
        if self._wanted == revisions.NONE:
            return None, "compared with nothing, as asked"
        try:
            return revisions.resolve(self._wanted, self._config.root), ""
        except RevisionError as error:
            if self._wanted != revisions.MERGE_BASE:
                raise
            return None, f"no base revision: {error.what} ({error.remedy})"

    @property
    def _written(self) -> revisions.Checkout:
        assert self._checkout is not None
        return self._checkout

    def top(self) -> Path | None:
        """Top folder of the base revision's files, which are written now; None where there are none.

        Raises:
            RevisionError, InfrastructureError: as `source`.
        """
        with self._lock:
            self._loaded()
            return self._checkout.top if self._checkout is not None else None

    def source(self, kernel: str, implementation: str, device: str) -> KernelSource | Absent:
        """An implementation at the base revision, or why there is none.

        Raises:
            RevisionError: as `revision`.
            InfrastructureError: there is a base revision, and git cannot give its files.
        """
        with self._lock:
            base = self._loaded()
            if isinstance(base, Absent):
                return base
            label = self._written.revision.label
            found = base.implementations.get((kernel, implementation, device))
            if found is None:
                return Absent("new", f"the kernel is not at {label}")
            if found[1].load and not self._alone:
                return self._why_not_loaded(*found, label)
            try:
                self._commands.run(found[1].build, f"{kernel}/{implementation}")
                return self._find(base, *found)
            except (BuildError, SourceError) as error:
                return Absent("refused", f"cannot be built at {label}: {self.short(error.what)}")

    @cached_property
    def _commands(self) -> Commands:
        """The project's own commands, which build the base revision's libraries in its own folder."""
        return Commands(self._written.root, default_cache())

    def import_folders(self, inherited: str) -> tuple[str, ...]:
        """PYTHONPATH of a process in which all of the project is the base's: its cgins.yaml's folder first; () without files.

        Args:
            inherited: PYTHONPATH of others, whose folders in the working tree are left out.
        """
        if self.top() is None:
            return ()
        kept = [folder for folder in inherited.split(os.pathsep) if folder]
        top = self._written.revision.repository
        return (
            *self._folders,
            *(folder for folder in kept if not is_in(Path(os.path.realpath(folder)), top)),
        )

    def _why_not_loaded(self, entry: KernelEntry, one: Implementation, label: str) -> Absent:
        """Why an operator of the base revision is not compared with: a process has one operator of a name."""
        libraries = [Path(name) for name in one.load if os.path.isabs(name)]  # noqa: PTH117
        absent = [self.short(str(file)) for file in libraries if not file.is_file()]
        if absent and not one.build:
            why = f"{', '.join(absent)} is not in git at {label}: there is nothing to compare with"
            return Absent("refused", why)
        return Absent(
            "apart",
            f"the operator of {entry.name}/{one.name} cannot be loaded beside that of {label}: torch has one operator of a "
            "name in a process",
        )

    def _find(self, base: Config, entry: KernelEntry, one: Implementation) -> KernelSource:
        python = one.contract == "python"
        found = find(base, entry, one, path=[*self._folders[1:], *self._path] if python else None)
        try:
            self._written.require_content(found.files)
        except RevisionError as error:
            raise InfrastructureError(error.what, remedy=error.remedy) from error
        return replace(found, namespace=self._namespace) if python and not self._alone else found

    def _loaded(self) -> Config | Absent:
        if self._base is None:
            at_base = self.revision()
            self._base = Absent("none", self.note) if at_base is None else self._load(at_base)
        return self._base

    def _load(self, at_base: revisions.Revision) -> Config | Absent:
        try:
            self._checkout = revisions.Checkout(at_base, default_cache().parent / "revisions")
            file = self._checkout.root / self._config.file.name
            self._checkout.require_content([file])
            if not file.is_file():
                return Absent("new", f"{self._config.file.name} is not at {at_base.label}")
            found = configuration.load(file, require_traces=False, require_sources=False)
            self._drop_traces(found)
            return found
        except RevisionError as error:
            # Not "compared with nothing", which passes.
            raise InfrastructureError(error.what, remedy=error.remedy) from error
        except ConfigError as error:
            refused = f"{self._config.file.name} at {at_base.label} is refused"
            return Absent("refused", f"no base revision: {refused}: {self.short(error.what)}")

    def _drop_traces(self, base: Config) -> None:
        """Remove trace packs, which tell a kernel the right answers: workers are shown the other files."""
        top, tree = self._written.revision.repository, self._written.top
        packs = [*base.traces, *(tree / path for path in _below(self._config.traces, top))]
        for pack in packs:
            if is_in(pack, tree) and pack != tree:
                shutil.rmtree(pack, ignore_errors=True)

    def short(self, text: str) -> str:
        """A message without the folder of the base revision's files, which is soon gone."""
        if self._checkout is None:
            return text
        return text.replace(f"{self._checkout.root}/", "").replace(f"{self._checkout.top}/", "")

    # ---- Python's modules

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        """Where modules of the base revision are: beside its cgins.yaml, and in `sys.path` by its counterparts."""
        top, tree = self._written.revision.repository, self._written.top
        mapped = [tree / folder.relative_to(top) for folder in _search_path() if is_in(folder, top)]
        present = (folder for folder in mapped if folder.is_dir())
        return tuple(dict.fromkeys(map(str, (self._written.root, *present))))

    @cached_property
    def _path(self) -> tuple[str, ...]:
        """`sys.path` without the working tree's folders."""
        top = self._written.revision.repository
        return tuple(str(folder) for folder in _search_path() if not is_in(folder, top))

    @cached_property
    def _namespace(self) -> Namespace:
        revision = self._written.revision
        return _make_namespace(f"base_{revision.commit[:10]}", self._folders, revision.repository)

    def own_namespace(self) -> Namespace:
        """A namespace of the working tree's own modules.

        Raises:
            RevisionError: as `revision`.
        """
        root = Path(os.path.realpath(self._config.root))
        at_base = self.revision()
        top = at_base.repository if at_base is not None else root
        places = [root, *(place for place in _search_path() if is_in(place, top))]
        return _make_namespace("twin", tuple(dict.fromkeys(map(str, places))), top)

    # ---- what changed

    @cached_property
    def changed(self) -> tuple[Path, ...]:
        """Files of the working tree that builds or imports may read and that differ from the base revision's.

        Untracked files that are not ignored are among them, trace packs and prose are not; of some files it is only
        known that they may differ, by their times.

        Raises:
            RevisionError: as `revision`, or git cannot tell.
        """
        at_base = self.revision()
        if at_base is None:
            return ()
        top = at_base.repository
        specs = [f":(literal){path}" for path in _below(self._read_folders(), top)]
        if not specs:
            return ()
        packs = [Path(os.path.realpath(pack)) for pack in self._config.traces]
        specs += [f":(exclude,literal){path}" for path in _below(packs, top)]
        found = dict.fromkeys(path for _, path in revisions.changes(at_base, specs))
        found |= dict.fromkeys(revisions.untracked(at_base, specs))
        return tuple(top / path for path in found if Path(path).suffix not in PROSE)

    def has_all(self, files: Iterable[str]) -> bool:
        """Whether the base revision has these files of the working tree; those outside of it do not count.

        Raises:
            RevisionError: git cannot tell.
        """
        at_base = self.revision()
        if at_base is None:
            return False
        own = [Path(file) for file in files]
        own = [file for file in own if is_in(Path(os.path.realpath(file.parent)), at_base.repository)]
        return revisions.has_all(at_base, _below(own, at_base.repository))

    def _read_folders(self) -> list[Path]:
        folders = [self._config.root]
        for kernel in self._config.kernels:
            for implementation in kernel.implementations:
                folders += plans.header_folders(implementation.sources, implementation.flags)
                if implementation.contract == "python":
                    folders += _search_path()
        return list(dict.fromkeys(folders))

    def close(self) -> None:
        """Remove the base revision's files."""
        with self._lock:
            if self._checkout is not None:
                self._checkout.close()
                self._checkout = None
                self._base = Absent("none", "the base revision's files are removed")


def _make_namespace(name: str, folders: tuple[str, ...], apart_from: Path) -> Namespace:
    """Two `cgins.yaml` of one commit have folders of their own, and may share a process."""
    digest = hashlib.sha256("\0".join(folders).encode()).hexdigest()
    return Namespace(name=f"_cgins_{name}_{digest[:8]}", folders=folders, apart_from=str(apart_from))


def _search_path() -> list[Path]:
    return [Path(os.path.realpath(place or ".")) for place in sys.path]


def _below(places: Iterable[Path], top: Path) -> list[str]:
    """Paths from a folder, of what is below it."""
    real = [Path(os.path.realpath(place.parent), place.name) for place in places]
    return [str(place.relative_to(top)) for place in real if is_in(place, top)]
