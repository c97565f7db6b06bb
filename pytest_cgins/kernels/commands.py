"""`cgins schema`, and what commands that read cgins.yaml share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.errors import ConfigError
from pytest_cgins.text import nearest

if TYPE_CHECKING:
    from pytest_cgins.config import Config, KernelEntry

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    schema = subparsers.add_parser(
        "schema",
        help="print the C prototype that follows from a kernel's schema line",
        description="Print what a launcher must define, for each launcher of the kernel.",
    )
    schema.add_argument("kernel", metavar="KERNEL", help="name in cgins.yaml, or a source file")
    add_config_option(schema)
    schema.set_defaults(run=run_schema)


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config", type=Path, default=Path("cgins.yaml"), metavar="FILE", help="default: cgins.yaml"
    )


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the prototypes of a kernel's launchers and device kernels, or of one source file."""
    from pytest_cgins.kernels import launch_line
    from pytest_cgins.kernels import schema as schemas
    from pytest_cgins.kernels.source import read, wants_workspace

    given = Path(arguments.kernel)
    files = [given] if given.is_file() else _launchers(arguments.config, arguments.kernel)
    for file in files:
        text, line = schemas.locate(read(file), file)
        schema = schemas.parse(text, f"{file}:{line}")
        workspace = wants_workspace(read(file), schema.entry)
        print(f"// {file}:{line}: {text}")
        if "cgins-launch:" in read(file):
            plan = launch_line.read(launch_line.locate(read(file), file), schema, str(file))
            print("\n".join(launch_line.prototypes(plan, schema)))
            continue
        for declaration in schemas.prototype(schema, workspace=workspace).splitlines():
            print(f'extern "C" {declaration}')
    return 0


def _launchers(config: Path, kernel: str) -> list[Path]:
    entry = select(load_config(config), [kernel])[0]
    files = [i.sources[0] for i in entry.implementations if i.contract in ("launcher", "device")]
    if not files:
        raise ConfigError(
            f'kernel "{kernel}" has no launcher and no device kernel',
            remedy="only these have a schema line and a prototype",
        )
    return files


def load_config(config: Path) -> Config:
    """The file, without looking for trace packs.

    Raises:
        ConfigError: it is wrong.
    """
    from pytest_cgins.config import load

    return load(config, require_traces=False)


def select(config: Config, names: list[str]) -> list[KernelEntry]:
    """The named kernels, or all.

    Raises:
        ConfigError: there is no kernel of a name.
    """
    known = {kernel.name: kernel for kernel in config.kernels}
    for name in names:
        if name not in known:
            raise ConfigError(
                f'{config.file}: no kernel "{name}"',
                remedy=nearest(name, known) or f"its kernels are {', '.join(known)}",
            )
    return [known[name] for name in names] or list(config.kernels)
