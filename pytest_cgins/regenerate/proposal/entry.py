"""What a proposal may say in `cgins.yaml`: one new implementation, and nothing of what was there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cgins.config import Config, Implementation, KernelEntry, load
from pytest_cgins.core.errors import ConfigError, ProposalError
from pytest_cgins.regenerate.attempt import Goal, Target
from pytest_cgins.regenerate.proposal.paths import CONFIG_NAME
from pytest_cgins.regenerate.targets import only

_REMEDY = f"a new kernel adds one implementation to {CONFIG_NAME}; all else in it is for people to change"


def check_new_entry(
    target: Target, goal: Goal, config: str, base: Mapping[str, bytes], new: Mapping[str, bytes]
) -> None:
    """Hold the new `cgins.yaml` against the old one, and the other files against both.

    Args:
        target: what is added.
        goal: for others than `generate` there is nothing to look at: `cgins.yaml` is not among the files.
        config: its path.
        base: old contents by path.
        new: new contents by path.

    Raises:
        ProposalError: the kernel does not enter itself, it changes other entries, or makes exceptions for the new one.
    """
    if goal != "generate":
        return
    others = sorted(path for path in new if path != config)
    existing = [path for path in others if path in base]
    if existing:
        raise ProposalError(f"{existing[0]}: already exists, and the kernel is new", remedy=_REMEDY)
    if config not in new:
        # Only the entry says which files are the kernel's: without it they could be anybody's.
        raise ProposalError(f"{config}: is not among the files, and {target.name} is new", remedy=_REMEDY)
    # One folder for both, so that equal texts give equal paths: one that is nowhere, whose name no text can know, and as
    # deep as no project is, so that paths that lead out of it with `..` stay apart.
    root = Path("/", secrets.token_hex(16), *["d"] * 16)
    was = _loaded(base[config], root) if config in base else None
    now = _loaded(new[config], root)
    entry, added = find(now, target)
    own = _sources(added, root, config)
    foreign = [path for path in others if path not in own]
    if foreign:
        raise ProposalError(f"{foreign[0]}: is not a source of {target.name}", remedy=_REMEDY)
    _check_case(others, was, root, config)
    if was is None:
        if len(now.kernels) > 1 or len(entry.implementations) > 1:
            raise ProposalError(f"{config}: has more than {target.name}", remedy=_REMEDY)
        _check_first(config, entry, now)
        return
    if _plain(only(now, lambda key, _: key != target.key)) != _plain(was):
        raise ProposalError(f"{config}: changes more than {target.name}", remedy=_REMEDY)
    if all(kernel.name != entry.name for kernel in was.kernels):
        _check_settings(config, entry, was)


def _check_case(new: Sequence[str], was: Config | None, root: Path, config: str) -> None:
    """No new file stands in for another kernel's where upper and lower case are the same."""
    entries = was.implementations.values() if was is not None else ()
    known = {path.casefold(): path for _, one in entries for path in _sources(one, root, config)}
    for path in new:
        other = known.get(path.casefold(), path)
        if other != path:
            raise ProposalError(
                f"{path} and {other} are one file where upper and lower case are the same", remedy=_REMEDY
            )


def _check_first(config: str, entry: KernelEntry, now: Config) -> None:
    """A file that is new names traces and the kernel: who is asked, what is tolerated and who reviews is for people to say."""
    plain = Config(file=now.file, traces=now.traces, kernels=now.kernels)
    own = _without_settings(entry)
    if now != plain or replace(entry, work=own.work) != own:
        raise ProposalError(f"{config}: has settings of its own", remedy=_REMEDY)


def find(config: Config, target: Target) -> tuple[KernelEntry, Implementation]:
    """The target's entry.

    Raises:
        ProposalError: there is none.
    """
    found = config.implementations.get(target.key)
    if found is None:
        raise ProposalError(f"{CONFIG_NAME}: has no {target.name}", remedy="make the proposal again")
    if (found[0].op, found[1].contract) != (target.op, target.contract):
        raise ProposalError(
            f"{CONFIG_NAME}: {target.name} is of another op or contract than the proposal says",
            remedy="make the proposal again",
        )
    return found


def _check_settings(config: str, entry: KernelEntry, was: Config) -> None:
    """A kernel that is new is gated as all others are: without a tolerance, exceptions and times of its own."""
    plain = _without_settings(entry)
    timings = [plain.timing, *(kernel.timing for kernel in was.kernels)]
    if replace(entry, timing=plain.timing, work=plain.work) != plain or entry.timing not in timings:
        raise ProposalError(f"{config}: {entry.name} has settings of its own", remedy=_REMEDY)


def _without_settings(entry: KernelEntry) -> KernelEntry:
    return KernelEntry(name=entry.name, op=entry.op, implementations=entry.implementations, line=entry.line)


def _loaded(text: bytes, root: Path) -> Config:
    try:
        return load(root / CONFIG_NAME, require_traces=False, require_sources=False, content=text)
    except ConfigError as error:
        what = error.what.replace(f"{root}/", "")
        raise ProposalError(what, remedy="make the proposal again") from error


def module_files(one: Implementation) -> tuple[str, ...]:
    """Where the module of a Python target may be, from the folder of cgins.yaml; () for other contracts."""
    if one.contract != "python":
        return ()
    module = one.target.partition(":")[0].replace(".", "/")
    return f"{module}.py", f"{module}/__init__.py"


def _sources(one: Implementation, root: Path, config: str) -> set[str]:
    """Sources of an implementation, from the top of the repository."""
    folder = config.rpartition("/")[0]
    files = [*(os.path.relpath(file, root) for file in one.sources), *module_files(one)]
    return {os.path.normpath(f"{folder}/{file}") if folder else os.path.normpath(file) for file in files}


def _plain(config: Config) -> Config:
    """The configuration without where in the file things stand: a comment above them changes nothing."""
    kernels = tuple(
        replace(
            entry,
            line=0,
            exceptions=tuple(replace(exception, line=0) for exception in entry.exceptions),
            implementations=tuple(replace(one, line=0) for one in entry.implementations),
        )
        for entry in config.kernels
    )
    return replace(config, kernels=kernels)
