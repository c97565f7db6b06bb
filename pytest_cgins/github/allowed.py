"""Which files a proposal may change, by `cgins.yaml` on the base branch and by nothing that the proposal says."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from pytest_cgins.errors import ConfigError, ProposalError
from pytest_cgins.github.contribution import Contribution
from pytest_cgins.regenerate.proposal_paths import CONFIG_NAME as CONFIG

if TYPE_CHECKING:
    from pytest_cgins.config.model import Config, Implementation

HEADERS = (".cuh", ".h", ".hh", ".hpp", ".inc", ".inl")
"""Beside a kernel's sources, files of these kinds are its own too."""


def check(contribution: Contribution, config: bytes, present: Mapping[str, bool]) -> None:
    """Refuse a contribution that changes more than its kernel.

    Args:
        contribution: the proposal, checked by itself.
        config: `cgins.yaml` on the base branch.
        present: whether each file of the contribution is on the base branch.

    Raises:
        ProposalError: it changes a file that is not the kernel's own.
        ConfigError: `cgins.yaml` on the base branch cannot be read.
    """
    before = _load(config, "on the base branch")
    mine = _implementation(before, contribution)
    if mine is None and contribution.goal != "generate":
        raise _refused(
            f"{CONFIG} on the base branch has no kernel {contribution.kernel}/{contribution.implementation}"
        )
    prefix = "".join(contribution.config.rpartition("/")[:2])
    own = {prefix + path for path in _own(mine, _root(before))} if mine else set()
    for path in contribution.files:
        if path == contribution.config:
            _check_config(contribution, config, contribution.files[path])
        elif path in own or _beside(path, own):
            continue
        elif contribution.goal != "generate" or present[path]:
            raise _refused(f'"{path}" is no source of {contribution.kernel}/{contribution.implementation}')


def _check_config(contribution: Contribution, config: bytes, changed: bytes) -> None:
    """A generated kernel may enter itself, and change nothing else."""
    if contribution.goal != "generate":
        raise _refused(f"only a new kernel may change {CONFIG}")
    try:
        after = _load(changed, "of the proposal")
    except ConfigError as error:
        raise _refused(f"its {CONFIG} cannot be read: {error.what}") from None
    if _rest(_load(config, "on the base branch"), contribution) != _rest(after, contribution):
        raise _refused(f"its {CONFIG} changes more than {contribution.kernel}/{contribution.implementation}")


def _rest(config: Config, contribution: Contribution) -> str:
    """All that a config says, without one implementation, its lines and its place."""
    said = [
        f"{one.name}={getattr(config, one.name)!r}"
        for one in dataclasses.fields(config)
        if one.name not in ("file", "kernels")
    ]
    for entry in config.kernels:
        others = [one for one in entry.implementations if not _named(one, contribution)]
        if entry.name != contribution.kernel:
            said.append(repr(entry))
        elif others:
            said += [repr(entry).replace(repr(entry.implementations), ""), repr(others)]
    return re.sub(r"\bline=\d+", "", "\n".join(said)).replace(repr(str(_root(config)))[1:-1], "")


def _load(config: bytes, where: str) -> Config:
    from pytest_cgins.config.load import load

    with tempfile.TemporaryDirectory(prefix="cgins-config-") as folder:
        file = Path(folder, CONFIG)
        file.write_bytes(config)
        try:
            return load(file, require_traces=False, require_sources=False)
        except ConfigError as error:
            what = error.what.replace(str(file), CONFIG)
            raise ConfigError(f"{where}: {what}", remedy=error.remedy) from None


def _implementation(config: Config, contribution: Contribution) -> Implementation | None:
    for entry in config.kernels:
        if entry.name == contribution.kernel:
            return next((one for one in entry.implementations if _named(one, contribution)), None)
    return None


def _named(implementation: Implementation, contribution: Contribution) -> bool:
    return contribution.implementation == f"{implementation.device}-{implementation.name}"


def _root(config: Config) -> Path:
    return config.file.parent


def _own(implementation: Implementation, root: Path) -> set[str]:
    """Paths of its sources, and of the module that a Python kernel is in."""
    own = {
        source.relative_to(root).as_posix()
        for source in implementation.sources
        if source.is_relative_to(root)
    }
    module = implementation.target.partition(":")[0].replace(".", "/")
    return own | ({f"{module}.py", f"{module}/__init__.py"} if module else set())


def _beside(path: str, own: set[str]) -> bool:
    """Whether it is a header in a folder of the kernel's sources, or below."""
    return path.endswith(HEADERS) and any(
        PurePosixPath(path).is_relative_to(PurePosixPath(source).parent) for source in own
    )


def _refused(why: str) -> ProposalError:
    return ProposalError(f"the proposal is refused: {why}", remedy="make it anew with --cgins-regenerate")
