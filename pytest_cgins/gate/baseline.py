"""Cases and settings of `cgins.yaml` files, compared with those that they had at the base revision.

Nothing is stored between runs: the files of the base revision are read from git, so that every run of the same
commits says the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins import config as configuration
from pytest_cgins.building.cache.store import default_cache
from pytest_cgins.building.revision.merge_base import NONE, Checkout, Revision, changes, resolve
from pytest_cgins.config import Config
from pytest_cgins.config.weaker import weaker
from pytest_cgins.core.errors import CginsError, RevisionError
from pytest_cgins.gate import settings_files
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.packs.store import MANIFEST, read_manifest

CONFIG = "cgins.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseComparison:
    """What came of the comparison."""

    missing: tuple[tuple[Path, str], ...] = ()
    """Cases that only the base revision has: file, where it lies or lay, and name."""
    weaker: tuple[str, ...] = ()
    """Settings that are weaker than there, one line each, with the file's path from the top of the repository."""
    base: str = ""
    """What was compared with, as `Revision.label`; "" if nothing."""
    note: str = ""
    """Why it was not, or not all of it; "" if it was."""
    unread: bool = False
    """Whether it was to be compared, and the base revision or a file of it could not be read."""


def held_against(
    wanted: str, files: Iterable[Path], *, device: str = "auto", folders: Iterable[Path] = ()
) -> BaseComparison:
    """Compare the cases of files with those that the same files had at the base revision, as `revision.resolve` takes it, or `none`.

    Of a file that is gone from below one of the folders, all cases are missing.
    """
    if wanted == NONE:
        return BaseComparison(note=f"--cgins-baseline={NONE}")
    folders = [folder.resolve() for folder in folders]
    repositories: dict[Path, list[Path]] = {_repository(folder): [] for folder in folders}
    for file in files:
        repositories.setdefault(_repository(file.parent), []).append(file)
    found = [
        _held_in(repository, wanted, members, device, folders) for repository, members in repositories.items()
    ]
    return BaseComparison(
        missing=tuple(one for part in found for one in part.missing),
        weaker=tuple(one for part in found for one in part.weaker),
        base=", ".join(dict.fromkeys(part.base for part in found if part.base)),
        note="; ".join(dict.fromkeys(part.note for part in found if part.note)),
        unread=any(part.unread for part in found),
    )


def _repository(folder: Path) -> Path:
    """Top of the repository that a folder is in, without asking git; the folder itself if it is in none."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _held_in(
    repository: Path, wanted: str, files: list[Path], device: str, folders: list[Path]
) -> BaseComparison:
    if not (repository / ".git").exists():
        return BaseComparison(note=f"{repository} is in no git repository", unread=True)
    try:
        base = resolve(wanted, repository)
        now = [configuration.load(file, require_traces=False, require_sources=False) for file in files]
        gone = [
            base.repository / path for kind, path in changes(base, [f":(glob)**/{CONFIG}"]) if kind == "D"
        ]
        gone = [file for file in gone if any(file.is_relative_to(folder) for folder in folders)]
        moved = tuple(settings_files.moved(base, [*folders, *(config.root for config in now)]))
        if not gone and not changes(base, _specs(base, now)):
            return BaseComparison(base=base.label, weaker=moved)
        written = Checkout(base, default_cache().parent / "revisions", names=(CONFIG, MANIFEST))
        with closing(written) as checkout:
            found = _compared(_Base(checkout), now, gone, device)
            return replace(found, weaker=(*moved, *found.weaker))
    except RevisionError as error:
        return BaseComparison(note=f"{error.what} ({error.remedy})", unread=True)
    except CginsError as error:  # of the working tree: its files cannot be collected either
        return BaseComparison(note=error.what)


def _specs(base: Revision, configs: Iterable[Config]) -> list[str]:
    """What decides the cases, as git names it: the files and the manifests of their packs, as far as it has them."""
    places = [
        place for config in configs for place in (config.file, *(pack / MANIFEST for pack in config.traces))
    ]
    inside = (_below(place, base.repository) for place in places)
    return [f":(literal){path}" for path in inside if path is not None]


def _below(path: Path, folder: Path) -> Path | None:
    """A path from a folder; None if it is not below it."""
    path = Path(os.path.realpath(path.parent), path.name)
    return path.relative_to(folder) if path.is_relative_to(folder) else None


class _Base:
    """The base revision's `cgins.yaml` files."""

    def __init__(self, checkout: Checkout) -> None:
        self.label = checkout.revision.label
        self._checkout = checkout
        self.top = checkout.revision.repository
        self._tree = checkout.root

    def config(self, file: Path) -> Config | None:
        """What a file of the working tree was; None if it was not there.

        Raises:
            ConfigError: it cannot be read.
            RevisionError: this clone has no more of it, or of a manifest, than a pointer of Git LFS.
        """
        path = _below(file, self.top)
        if path is None or not (self._tree / path).is_file():
            return None
        self._checkout.require_content([self._tree / path])
        config = configuration.load(self._tree / path, require_traces=False, require_sources=False)
        self._checkout.require_content(Path(os.path.normpath(pack / MANIFEST)) for pack in config.traces)
        return replace(config, traces=tuple(self._pack(folder) for folder in config.traces))

    def _pack(self, folder: Path) -> Path:
        """Where a pack's manifest is: one that is not in git is where it was, and is the same on both sides."""
        if (folder / MANIFEST).is_file():
            return folder
        return Path(os.path.normpath(self.top / os.path.relpath(folder, self._tree)))


def _compared(base: _Base, now: Iterable[Config], gone: Iterable[Path], device: str) -> BaseComparison:
    missing: list[tuple[Path, str]] = []
    notes: list[str] = []
    loosened: list[str] = []
    configs = {config.file: config for config in now}
    names = {config.file: _names(config, device) for config in now}
    moved: set[str] = set()
    new: list[Config] = []
    for file in (*names, *gone):
        try:
            before = base.config(file)
            had = _names(before, device) if before else {}
        except CginsError as error:
            notes.append(f"{file.name} at {base.label} cannot be read: {error.what}")
            continue
        if before is None:
            moved |= set(names[file])
            new.append(configs[file])
        # A file that is gone may be a new one's old place, there too.
        places = [] if before is None else [configs[file]] if file in configs else new
        for config in places:
            path = _below(config.file, base.top) or config.file
            loosened += [f"{path}: {line}" for line in weaker(before, config)] if before else []
        has = names.get(file, moved)
        missing += [(file, name) for name in had if name not in has]
    return BaseComparison(
        missing=tuple(missing),
        weaker=tuple(loosened),
        base=base.label,
        note="; ".join(notes),
        unread=bool(notes),
    )


def _names(config: Config, device: str) -> dict[str, None]:
    """Names of cases, in order."""
    return {case.name: None for case in cases_of(config, device=device, read=read_manifest)}
