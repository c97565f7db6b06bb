"""A copy of a project in which candidates take the place of a kernel's sources.

The copy is a git repository of its own: one commit is the project's base revision, one the incumbent. So a candidate is
gated exactly as a person's edit would be, and the project itself is never written to.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path

from pytest_cgins import config as configuration
from pytest_cgins.building.builders import plan
from pytest_cgins.building.contracts import source
from pytest_cgins.building.revision import merge_base as revision
from pytest_cgins.building.revision.base_kernels import READ_BY_PYTHON
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core import git
from pytest_cgins.core.errors import GitError, RegenerateError, RevisionError, SourceError
from pytest_cgins.regenerate.methods import memory_file
from pytest_cgins.regenerate.targets import only

LIMIT_NBYTES = 4 << 20
"""Larger files are not sources, and are left out, as they are of a base revision's checkout."""
HEADERS = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"})
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".cgins", "__pycache__", "node_modules", ".venv", "venv", ".tox", "build"}
)
BASE, INCUMBENT, CHAMPION = "refs/tags/base", "refs/tags/incumbent", "refs/tags/champion"
_IDENTITY = (
    ("user.name", "pytest-cgins"), ("user.email", "pytest-cgins@localhost"), ("commit.gpgSign", "false")
)  # fmt: skip


class ProjectCopy:
    """The project of a `cgins.yaml`, copied for one implementation whose sources change.

    Args:
        config: the loaded file of the project.
        key: names of kernel and implementation, and device type, as of `Config.implementations`.
        folder: an empty or absent folder, which is the copy's from now on.
        baseline: base revision of the project, as `--cgins-baseline` takes it.
        overlay: files that the copy has besides, by path from the project's top, such as a `cgins.yaml` with an entry
            that is new; `config` is what it says.

    Raises:
        RegenerateError: a source of the implementation lies outside of the project.
        RevisionError: a commit was named, and git does not know it.
    """

    def __init__(
        self,
        config: Config,
        key: tuple[str, str, str],
        folder: Path,
        *,
        baseline: str,
        overlay: Mapping[str, str] | None = None,
    ) -> None:
        self._own = config
        self._key = key
        self.top = folder
        self._environment = git.isolated(_IDENTITY)
        self.project = top_of(config)
        """Top folder of the project: of its repository, or of its cgins.yaml where there is none."""
        own = self._entry(config)
        self.files = self._own_files(config, *own)
        """The implementation's own sources, relative to the project's top, main file first."""
        folder.mkdir(parents=True, exist_ok=True)
        self.base_commit = self._commit_base(baseline)
        """The project's base revision; "" where it has none."""
        self._clear()
        self._copy()
        self._overlay = dict(overlay or {})
        for path, text in self._overlay.items():
            self._write(path, text)
        self._git("add", "--all", "--force")
        self._git("commit", "--quiet", "--allow-empty", "--message", "incumbent")
        self._git("update-ref", INCUMBENT, "HEAD")
        self.config = self._moved(config)
        """The file as it is in the copy; its packs are the project's."""
        self._require_import_from_copy()

    @classmethod
    def restored(
        cls,
        key: tuple[str, str, str],
        folder: Path,
        project: Path,
        *,
        config: str,
        traces: Iterable[Path],
        base_commit: str,
    ) -> ProjectCopy:
        """The same copy on another machine, from its repository in `folder`; what lies in the project is the incumbent.

        Args:
            key: as of `Config.implementations`.
            folder: has the repository.
            project: an absent folder, which becomes the project.
            config: its cgins.yaml, relative to it.
            traces: its packs.
            base_commit: its base revision, where it was copied.
        """
        made = cls.__new__(cls)
        made._key, made.top, made.base_commit, made._overlay = key, folder, base_commit, {}
        made._environment = git.isolated(_IDENTITY)
        made._git("worktree", "add", "--quiet", "--force", "--detach", str(project), INCUMBENT)
        made.project = _real(project)
        loaded = configuration.load(made.project / config, require_traces=False, require_sources=False)
        made._own = replace(loaded, traces=tuple(traces))
        made.files = made._own_files(made._own, *made._entry(made._own))
        made.config = made._moved(made._own)
        made.put({})
        return made

    @property
    def against_base(self) -> str:
        """What a candidate's times are compared with: the base revision in the copy, or nothing."""
        return BASE if self.base_commit else revision.NONE

    @property
    def base_is_incumbent(self) -> bool:
        """Whether all that builds and imports read is in the base revision as it is: who beats one beats the other."""
        if not self.base_commit:
            return False
        names = self._git("diff", "--name-only", "--no-renames", "-z", BASE, INCUMBENT).split("\0")
        return not any(Path(name).suffix in READ_BY_PYTHON for name in names if name)

    def uncommitted(self, commit: str) -> tuple[str, ...]:
        """Files of the project that are gated and that a commit has not as they are, own sources left out.

        Files of a pack that git does not have are none of them: packs may be kept outside of git.

        Args:
            commit: of the project; "" for none.
        """
        if not commit:
            return ()
        packs = [_real(pack) for pack in self._own.traces if _real(pack).is_relative_to(self.project)]
        places = sorted({str(place.relative_to(self.project)) for place in (*self._folders(), *packs)})

        def listed(*words: str) -> set[str]:
            # It is not to refresh the user's index.
            return set(_git(self.project, "--no-optional-locks", *words, "--", *places).split("\0")[:-1])

        changed = listed("diff", "--no-ext-diff", "--name-only", "--no-renames", "-z", commit)
        added = listed("ls-files", "--others", "--exclude-standard", "-z")
        copied = self._git("ls-tree", "-r", "-z", "--name-only", INCUMBENT).split("\0")
        gated = {
            path
            for path in changed
            if Path(path).suffix in READ_BY_PYTHON
            or any((self.project / path).is_relative_to(pack) for pack in packs)
        }
        found = (gated | added.intersection(copied)).difference(self.files)
        return tuple(sorted(path for path in found if memory_file.FOLDER not in path.split("/")))

    def add_worktree(self, number: int) -> ProjectCopy:
        """Another folder with the same files and commits, in which another candidate lies at the same time.

        Args:
            number: which; each is made once.
        """
        made = copy(self)
        made.top = self.top.parent / f"{self.top.name}-{number}"
        self._git("worktree", "add", "--quiet", "--force", "--detach", str(made.top), INCUMBENT)
        made.config = made._moved(self._own)
        return made

    def set_champion(self, files: Mapping[str, str]) -> None:
        """Have these sources be the champion, which other candidates are compared with; no file is touched."""
        with tempfile.TemporaryDirectory(prefix="cgins-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self._git("read-tree", INCUMBENT, extra=index)
            for path, text in files.items():
                place = Path(folder, "source")
                place.write_text(text, encoding="utf-8", newline="")
                blob = self._git("hash-object", "-w", "--no-filters", "--", str(place)).strip()
                self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", extra=index)
            tree = self._git("write-tree", extra=index).strip()
        commit = self._git("commit-tree", tree, "-p", INCUMBENT, "-m", "champion").strip()
        self._git("update-ref", CHAMPION, commit)

    def entry(self) -> tuple[KernelEntry, Implementation]:
        """The kernel and the implementation, as they are in the copy."""
        return self._entry(self.config)

    def incumbent(self) -> dict[str, str]:
        """Texts of the own sources as candidates find them, by path; "" for those that are not there yet."""
        return {path: self._overlay.get(path, text) for path, text in self.texts(self.files).items()}

    def relative(self, file: Path) -> str:
        """A file's path from the project's top."""
        return str((_real(file.parent) / file.name).relative_to(self.project))

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Texts of files of the project, by path; "" for those that are not there."""
        return {path: _text(self.project / path) for path in paths}

    def put(self, files: Mapping[str, str]) -> None:
        """Have these be the own sources, and everything else as it was.

        Args:
            files: whole texts by path, own sources all.
        """
        self._git("checkout", "--quiet", "--force", INCUMBENT.rpartition("/")[2])
        self._git("clean", "-ffdxq")
        for path, text in files.items():
            if path not in self.files:
                raise RegenerateError(
                    f"{path} is not a source of this kernel",
                    remedy=f"only {', '.join(self.files)} may change",
                )
            self._write(path, text)

    def touched(self) -> tuple[str, ...]:
        """Files that differ from the incumbent's, own sources left out: none, unless something got at the copy."""
        told = self._git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored")
        paths = [entry[3:] for entry in told.split("\0") if entry]
        return tuple(sorted(path for path in paths if path not in self.files and "__pycache__" not in path))

    def with_implementation(self, *, alone: bool = True) -> Config:
        """The copy's configuration with this implementation alone, or with all that share a source with it."""
        own = {self.top / path for path in self.files}
        return only(
            self.config,
            lambda key, one: (
                key == self._key or (not alone and not own.isdisjoint(_files_of(self.config, one)))
            ),
        )

    def headers(self) -> tuple[str, ...]:
        """Paths of the project's headers, which sources may include and must leave as they are."""
        found = (place for place in sorted(self.top.rglob("*")) if place.suffix in HEADERS)
        return tuple(str(place.relative_to(self.top)) for place in found)

    # ---- how it is made

    def _entry(self, config: Config) -> tuple[KernelEntry, Implementation]:
        found = config.implementations.get(self._key)
        if found is None:
            raise RegenerateError(
                f"{config.file} has no implementation {self._key[1]!r} of kernel {self._key[0]!r} for {self._key[2]}",
                remedy="name an existing one",
            )
        return found

    def _own_files(self, config: Config, entry: KernelEntry, one: Implementation) -> tuple[str, ...]:
        """Paths of an implementation's sources, relative to the project's top."""
        listed = _files_of(config, one)
        outside = [file for file in listed if not _real(file).is_relative_to(self.project)]
        if outside or not listed:
            where = ", ".join(map(str, outside)) or f"target {one.target}"
            raise RegenerateError(
                f"{config.file}: a source of {entry.name}/{one.name} lies outside of {self.project}: {where}",
                remedy="only kernels whose sources are in the project can be regenerated",
            )
        return tuple(dict.fromkeys(str(_real(file).relative_to(self.project)) for file in listed))

    def _require_import_from_copy(self) -> None:
        """A module that the project's own folder of imports has too must not come from there."""
        entry, one = self._entry(self.config)
        if one.contract != "python":
            return
        file = _module_file(self.config, one)
        if file is None and one.sources and not any(place.exists() for place in one.sources):
            return  # it is not written yet
        if file is None or not _real(file).is_relative_to(_real(self.top)):
            raise RegenerateError(
                f"target {one.target} of {entry.name}/{one.name} is not imported from the folder of {self._own.file.name}",
                remedy="move the module below that folder: only there can a candidate take its place",
            )

    def _commit_base(self, wanted: str) -> str:
        self._git("init", "--quiet")
        if wanted == revision.NONE:
            return ""
        try:
            at_base = revision.resolve(wanted, self._own.root)
        except RevisionError:
            if wanted != revision.MERGE_BASE:
                raise
            return ""
        checkout = revision.Checkout(at_base, self.top.parent / "revisions")
        try:
            self._drop_packs(checkout.top)
            tree = {"GIT_WORK_TREE": str(checkout.top)}
            self._git("add", "--all", "--force", extra=tree)
            self._git("commit", "--quiet", "--allow-empty", "--message", "base", extra=tree)
        finally:
            checkout.close()
        self._git("update-ref", BASE, "HEAD")
        return at_base.commit

    def _write(self, path: str, text: str) -> None:
        place = self.top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", newline="")

    def _clear(self) -> None:
        for place in self.top.iterdir():
            if place.name != ".git":
                shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()

    def _copy(self) -> None:
        for path in self._listed():
            origin, place = self.project / path, self.top / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if origin.is_symlink() and not _real(origin).is_relative_to(self.project):
                continue  # what is elsewhere is not the project's
            shutil.copy2(origin, place, follow_symlinks=False)

    def _listed(self) -> Iterator[str]:
        """Files of the project that builds and imports may read."""
        packs = [_real(pack) for pack in self._own.traces]
        for path in dict.fromkeys(
            [*self._known(), *self.files, str(_real(self._own.file).relative_to(self.project))]
        ):
            place = self.project / path
            if any(_real(place).is_relative_to(pack) for pack in packs) or not place.is_file():
                continue
            if place.suffix in READ_BY_PYTHON and place.stat().st_size <= LIMIT_NBYTES:
                yield path

    def _known(self) -> Iterable[str]:
        """Files below the folders that matter: by git, or by the folders themselves."""
        folders = sorted({str(folder.relative_to(self.project)) for folder in self._folders()})
        try:
            words = ["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *folders]
            return [path for path in _git(self.project, *words).split("\0") if path]
        except RegenerateError:
            return [path for folder in folders for path in _walk(self.project, self.project / folder)]

    def _folders(self) -> Iterator[Path]:
        yield _real(self._own.root)
        for _, one in self._own.implementations.values():
            for folder in plan.header_folders([str(file) for file in one.sources], one.flags):
                if _real(folder).is_relative_to(self.project):
                    yield _real(folder)

    def _drop_packs(self, tree: Path) -> None:
        for pack in self._own.traces:
            if _real(pack).is_relative_to(self.project):
                shutil.rmtree(tree / _real(pack).relative_to(self.project), ignore_errors=True)

    def _moved(self, config: Config) -> Config:
        """The same configuration with all paths of the project in the copy, packs excepted."""
        return replace(
            config,
            file=self._place(config.file),
            kernels=tuple(
                replace(
                    entry,
                    implementations=tuple(
                        replace(
                            implementation,
                            sources=tuple(self._place(file) for file in implementation.sources),
                            flags=tuple(
                                flag.replace(f"{self.project}/", f"{self.top}/")
                                for flag in implementation.flags
                            ),
                        )
                        for implementation in entry.implementations
                    ),
                )
                for entry in config.kernels
            ),
        )

    def _place(self, file: Path) -> Path:
        real = _real(file.parent) / file.name
        return self.top / real.relative_to(self.project) if real.is_relative_to(self.project) else file

    def _git(self, *words: str, extra: Mapping[str, str] | None = None) -> str:
        own = {"GIT_DIR": str(self.top / ".git"), **(extra or {})}
        return _git(self.top, *words, environment={**self._environment, **own})


def _files_of(config: Config, one: Implementation) -> list[Path]:
    """Sources of an implementation, the module of a Python target first where they do not list it."""
    file = _module_file(config, one) if one.contract == "python" else None
    return [*([] if file is None or file in one.sources else [file]), *one.sources]


def _module_file(config: Config, one: Implementation) -> Path | None:
    """The file of a Python target; None where it is not there, or not written in Python."""
    module, _, function = one.target.partition(":")
    try:
        return source.find_target(module, function, config.root)
    except SourceError:  # a kernel that is broken or not there yet: the gate tells
        end = f"/{module.replace('.', '/')}.py"
        return next((file for file in one.sources if file.exists() and file.as_posix().endswith(end)), None)


def head(folder: Path) -> str:
    """The commit that a folder's working tree is at; "" without one."""
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    except RegenerateError:
        return ""


def top_of(config: Config) -> Path:
    """Top folder of a project: of its repository, or of its cgins.yaml where there is none."""
    try:
        return _real(Path(_git(config.root, "rev-parse", "--show-toplevel").strip()))
    except RegenerateError:
        return _real(config.root)


def _git(folder: Path, *words: str, environment: Mapping[str, str] | None = None) -> str:
    try:
        return os.fsdecode(git.run(folder, *words, environment=environment or git.isolated()))
    except GitError as error:
        raise RegenerateError(error.what, remedy=error.remedy) from None


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _walk(top: Path, folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        yield from (str(Path(place, name).relative_to(top)) for name in sorted(files))


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise RegenerateError(f"{file}: {error}", remedy="a source must be readable UTF-8") from error
