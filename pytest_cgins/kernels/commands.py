"""`cgins build` and `cgins schema`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.errors import CginsError, ConfigError
from pytest_cgins.text import nearest

if TYPE_CHECKING:
    from pytest_cgins.config import Config, KernelEntry

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    build = subparsers.add_parser(
        "build",
        help="build the kernels of cgins.yaml",
        description="Build all implementations of the named kernels, or of all. Exit status 1 if one fails.",
    )
    build.add_argument("kernels", nargs="*", metavar="KERNEL", help="names in cgins.yaml; default: all")
    build.add_argument("--device", choices=("cpu", "cuda"), help="only the implementations for this device")
    build.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="say what the compilers were asked; -vv: all messages",
    )
    build.add_argument("--timeout", type=float, default=600.0, metavar="S", help="limit a kernel, in seconds")
    _add_config_option(build)
    build.set_defaults(run=run_build)
    schema = subparsers.add_parser(
        "schema",
        help="print the C prototype that follows from a kernel's schema line",
        description="Print what a launcher must define, for each launcher of the kernel.",
    )
    schema.add_argument("kernel", metavar="KERNEL", help="name in cgins.yaml, or a source file")
    _add_config_option(schema)
    schema.set_defaults(run=run_schema)


def _add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, default=Path("cgins.yaml"), metavar="FILE", help="default: cgins.yaml"
    )


def run_build(arguments: argparse.Namespace) -> int:
    """Build, print a table, and say on stderr what failed."""
    from pytest_cgins.kernels.build import build
    from pytest_cgins.kernels.source import find

    config = _load(arguments.config)
    failures: list[CginsError] = []
    for kernel in _select(config, arguments.kernels):
        for implementation in kernel.implementations:
            if arguments.device not in (None, implementation.device):
                continue
            label = f"{kernel.name}/{implementation.name} ({implementation.device})"
            try:
                compiled = build(find(config, kernel, implementation), timeout_s=arguments.timeout)
            except CginsError as error:
                failures.append(error)
                print(f"{label:40} {'FAILED':>9}")
                continue
            state = "cached" if compiled.cached else f"{compiled.build_seconds:.2f} s"
            state = state if compiled.library else "-"
            print(f"{label:40} {state:>9}  {compiled.library or 'nothing to compile'}")
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the prototypes of a kernel's launchers, or of one source file."""
    from pytest_cgins.kernels import schema as schemas
    from pytest_cgins.kernels.source import read, wants_workspace

    given = Path(arguments.kernel)
    files = [given] if given.is_file() else _launchers(arguments.config, arguments.kernel)
    for file in files:
        text, line = schemas.locate(read(file), file)
        schema = schemas.parse(text, f"{file}:{line}")
        workspace = wants_workspace(read(file), schema.entry)
        print(f"// {file}:{line}: {text}")
        for declaration in schemas.prototype(schema, workspace=workspace).splitlines():
            print(f'extern "C" {declaration}')
    return 0


def _launchers(config: Path, kernel: str) -> list[Path]:
    entry = _select(_load(config), [kernel])[0]
    files = [i.sources[0] for i in entry.implementations if i.contract == "launcher"]
    if not files:
        raise ConfigError(
            f'kernel "{kernel}" has no launcher', remedy="only launchers have a schema line and a prototype"
        )
    return files


def _load(config: Path) -> Config:
    from pytest_cgins.config import load

    return load(config, require_traces=False)


def _select(config: Config, names: list[str]) -> list[KernelEntry]:
    known = {kernel.name: kernel for kernel in config.kernels}
    for name in names:
        if name not in known:
            raise ConfigError(
                f'{config.file}: no kernel "{name}"',
                remedy=nearest(name, known) or f"its kernels are {', '.join(known)}",
            )
    return [known[name] for name in names] or list(config.kernels)
