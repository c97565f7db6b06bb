"""`cgins export`: kernels as a package that needs torch only."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def kind_first(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `export WHAT --as KIND` written as `export KIND WHAT`."""
    listed = [part for word in words for part in (word.split("=", 1) if word.startswith("--as=") else [word])]
    # `cgins runs export` is another command, whose `--as` is an option.
    start = listed[: listed.index("export")] if "export" in listed else ["runs"]
    if "runs" not in start and "--as" in listed[:-1]:
        place = listed.index("--as")
        kind = listed[place + 1]
        del listed[place : place + 2]
        listed.insert(listed.index("export") + 1, kind)
    return listed


def add_parser(kinds: Subparsers) -> None:
    """Add the kind `torch-library` to `cgins export`."""
    export = kinds.add_parser(
        "torch-library",
        help="kernels as operators of torch, in a package that is built and used without pytest-cgins",
        description="Write a Python package with the kernels' sources, a generated binding over torch's stable "
        "ABI, shapes for torch.compile, and gradients. Kernels for the backward of an exported op come along. "
        "`cgins export KERNEL --as torch-library` is the same.",
    )
    export.add_argument("kernels", nargs="+", metavar="KERNEL", help="names in cgins.yaml")
    export.add_argument(
        "--implementation", action="append", default=[], metavar="NAME", dest="implementations",
        help="an implementation to export, may be repeated; default: the launchers, one a device",
    )  # fmt: skip
    export.add_argument("--out", type=Path, metavar="DIR", help="default: NAMESPACE-torch-library")
    export.add_argument(
        "--namespace",
        metavar="NS",
        help="of torch.ops and of the package; default: the project folder's name",
    )
    add_config_option(export)
    export.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> int:
    """Write the package, and say what to do with it."""
    import sys

    from pytest_cgins.building.torch_library import package
    from pytest_cgins.config import load

    config = load(arguments.config, require_traces=False)
    known = {kernel.name: kernel for kernel in config.kernels}
    for name in arguments.kernels:
        if name not in known:
            raise ConfigError(
                f'{config.file}: no kernel "{name}"',
                remedy=nearest(name, known) or f"its kernels are {', '.join(known)}",
            )
    # Ops of the project are found as pytest finds them: from the folder of cgins.yaml.
    sys.path.insert(0, str(config.root))
    namespace = arguments.namespace or re.sub(r"\W", "_", config.root.name)
    folder = arguments.out or Path(f"{namespace}-torch-library")
    written = package.write(
        config,
        [known[name] for name in dict.fromkeys(arguments.kernels)],
        folder=folder,
        namespace=namespace,
        implementations=arguments.implementations,
    )
    for one in written.exported:
        print(f"{one.operator.qualified:40} {', '.join(one.devices)}")
    print(f"{folder}: {', '.join(written.libraries)}\nbuild it: pip install --no-build-isolation {folder}")
    return 0
