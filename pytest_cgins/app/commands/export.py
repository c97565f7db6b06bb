"""`cgins export`: kernels as a package that needs torch only."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import load
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest


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


def add_parsers(kinds: Subparsers) -> None:
    """Add the kind `torch-library` to `cgins export`."""
    export = command(
        kinds,
        "torch-library  kernels as operators of torch, in a package that is built and used without pytest-cgins",
        run_export,
        "Write a Python package with the kernels' sources, a generated binding over torch's stable "
        "ABI, shapes for torch.compile, and gradients. Kernels for the backward of an exported op come along. "
        "`cgins export KERNEL --as torch-library` is the same.",
    )
    option(export, "kernels KERNEL  names in cgins.yaml", nargs="+")
    option(
        export,
        "--implementation NAME  an implementation to export, may be repeated; default: the launchers, one a device",
        action="append",
        default=[],
        dest="implementations",
    )
    option(export, "--out DIR  default: NAMESPACE-torch-library", type=Path)
    option(export, "--namespace NS  of torch.ops and of the package; default: the project folder's name")
    add_config_option(export)


def run_export(arguments: argparse.Namespace) -> int:
    """Write the package, and say what to do with it."""
    import sys

    from pytest_cgins.building.torch_library import package

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
