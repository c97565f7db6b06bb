"""Which files a proposal may change, by `cgins.yaml` on the base branch and by nothing that the proposal says.

What a new kernel may change in `cgins.yaml` itself is held against the old text in `regenerate.proposal.entry`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.errors import ConfigError, ProposalError
from pytest_cgins.github.contribution import Contribution

if TYPE_CHECKING:
    from pytest_cgins.config.model import Implementation


def check(contribution: Contribution, config: bytes | None, present: Mapping[str, bool]) -> None:
    """Refuse a contribution that changes more than its kernel.

    Args:
        contribution: the proposal.
        config: `cgins.yaml` on the base branch; None where there is none yet.
        present: whether each file of the contribution is on the base branch.

    Raises:
        ProposalError: it changes a file that is not the kernel's own.
        ConfigError: `cgins.yaml` on the base branch cannot be read.
    """
    name = f"{contribution.kernel}/{contribution.implementation}"
    own = None if config is None else _own(config, contribution)
    if contribution.goal == "generate":
        taken = sorted(path for path in contribution.files if present[path] and path != contribution.config)
        if own is not None:
            raise _refused(f"{contribution.config} on the base branch has a kernel {name} already")
        if taken:
            raise _refused(f'"{taken[0]}" is on the base branch already, and {name} is new')
        return
    if own is None:
        raise _refused(f"{contribution.config} on the base branch has no kernel {name}")
    foreign = sorted(set(contribution.files) - own)
    if foreign:
        raise _refused(f'"{foreign[0]}" is no source of {name}')


def _own(config: bytes, contribution: Contribution) -> set[str] | None:
    """Paths of the implementation's sources, from the top of the repository; None if there is no such one."""
    from pytest_cgins.config import load

    folder = contribution.config.rpartition("/")[0]
    with tempfile.TemporaryDirectory(prefix="cgins-config-") as place:
        root = Path(os.path.realpath(place))
        file = root / "cgins.yaml"
        file.write_bytes(config)
        try:
            found = load(file, require_traces=False, require_sources=False)
        except ConfigError as error:
            what = error.what.replace(str(root), "").lstrip("/")
            raise ConfigError(f"on the base branch: {what}", remedy=error.remedy) from None
        for entry in found.kernels:
            for one in entry.implementations:
                if (entry.name, f"{one.device}-{one.name}") == (
                    contribution.kernel,
                    contribution.implementation,
                ):
                    return {os.path.normpath(Path(folder, path)) for path in _sources(one, root)}
    return None


def _sources(implementation: Implementation, root: Path) -> list[str]:
    """Its sources, and the module that a Python kernel is in, from the folder of `cgins.yaml`."""
    module = implementation.target.partition(":")[0].replace(".", "/")
    listed = [os.path.relpath(source, root) for source in implementation.sources]
    return [*listed, f"{module}.py", f"{module}/__init__.py"] if module else listed


def _refused(why: str) -> ProposalError:
    return ProposalError(f"the proposal is refused: {why}", remedy="make it anew with --cgins-regenerate")
