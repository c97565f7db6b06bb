"""Which files a proposal may change, by `cgins.yaml` on the base branch and never by the proposal.

What a new kernel may change in `cgins.yaml` itself is held against the old text in
`regenerate.proposal.entry`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.pull_request.contribution import Contribution, refused

if TYPE_CHECKING:
    from pytest_cgins.config import Config, Implementation
    from pytest_cgins.config.pull_request import PullRequestSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What `cgins.yaml` on the base branch says about a contribution's kernel."""

    own: frozenset[str] | None
    """Paths of its sources, from the top of the repository; None if it knows no such kernel."""
    pull_request: PullRequestSettings
    """What its pull requests are given."""


def on_base(contribution: Contribution, config: bytes | None) -> Base:
    """Read `cgins.yaml` as it is on the base branch; None where there is none yet.

    Raises:
        ConfigError: it cannot be read.
    """
    from pytest_cgins.config import load
    from pytest_cgins.config.pull_request import PullRequestSettings

    if config is None:
        return Base(own=None, pull_request=PullRequestSettings())
    root = Path("/", secrets.token_hex(16))
    try:
        base_config = load(root / "cgins.yaml", require_traces=False, require_sources=False, content=config)
    except ConfigError as error:
        what = error.what.replace(f"{root}/", "")
        raise ConfigError(f"on the base branch: {what}", remedy=error.remedy) from None
    return Base(own=_own(base_config, contribution, root), pull_request=base_config.pull_request)


def check(contribution: Contribution, base: Base, present: Collection[str], *, is_there: bool) -> None:
    """Refuse a contribution that changes more than its kernel.

    `present` are all files of the base branch; `is_there` says that it has those of the contribution already.

    Raises:
        ProposalError: it changes a file that is not the kernel's own.
    """
    name = f"{contribution.kernel}/{contribution.implementation}"
    is_new = contribution.goal == "generate" and not is_there
    if is_new:
        _check_new(contribution, base, present, name)
        return
    if base.own is None:
        raise refused(f"{contribution.config} on the base branch has no kernel {name}")
    own = {path for path in base.own if path in present}
    if contribution.goal == "generate":
        own.add(contribution.config)
    foreign = sorted(set(contribution.files) - own)
    if foreign:
        raise refused(f'"{foreign[0]}" is not a source of {name}')


def _check_new(contribution: Contribution, base: Base, present: Collection[str], name: str) -> None:
    """A new kernel comes with its entry; `regenerate.proposal.entry` has found just its sources there."""
    if base.own is not None:
        raise refused(f"{contribution.config} on the base branch has a kernel {name} already")
    if contribution.config not in contribution.files:
        raise refused(f"{name} is new, and {contribution.config} does not name it")
    known = {part.casefold(): part for path in present for part in _parts(path)}
    for path in sorted(set(contribution.files) - {contribution.config}):
        if path in present:
            raise refused(f'"{path}" is on the base branch already, and {name} is new')
        for part in _parts(path):
            if known.get(part.casefold(), part) != part:
                raise refused(
                    f'"{part}" is "{known[part.casefold()]}" where upper and lower case are the same'
                )


def _parts(path: str) -> list[str]:
    """A path, and the folders that it lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _own(config: Config, contribution: Contribution, root: Path) -> frozenset[str] | None:
    folder = contribution.config.rpartition("/")[0]
    for (kernel, name, device), (_, implementation) in config.implementations.items():
        if (kernel, f"{device}-{name}") == (contribution.kernel, contribution.implementation):
            return frozenset(os.path.normpath(Path(folder, path)) for path in _sources(implementation, root))
    return None


def _sources(implementation: Implementation, root: Path) -> list[str]:
    """Its sources, and the module that a Python kernel is in, from the folder of `cgins.yaml`."""
    module = implementation.target.partition(":")[0].replace(".", "/")
    listed = [os.path.relpath(source, root) for source in implementation.sources]
    return [*listed, f"{module}.py", f"{module}/__init__.py"] if module else listed
