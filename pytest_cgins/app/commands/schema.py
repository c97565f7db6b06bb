"""`cgins schema`, and what commands that read cgins.yaml share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.source import read, wants_workspace
from pytest_cgins.building.contracts.torch_schema import overloads
from pytest_cgins.config import load_without_traces, select
from pytest_cgins.core.errors import ConfigError, SourceError
from pytest_cgins.core.text import nearest_path, upwards


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    schema = command(
        subparsers,
        "schema  print the C prototype of a kernel's schema line",
        run_schema,
        "Print the C function that each launcher of the kernel must define.",
    )
    option(schema, "kernel KERNEL  name in cgins.yaml, or a source file", nargs="?")
    option(schema, "--op OP  print the schema lines of an op of torch instead: topk, F.silu, aten::add")
    add_config_option(schema)


def add_config_option(parser: argparse.ArgumentParser, what: str = "") -> None:
    """Add `--config`, and `what` to its help."""
    found = upwards(Path())
    option(
        parser,
        f"--config FILE  {what}default: cgins.yaml here, or in the nearest folder above",
        default=Path("cgins.yaml") if found is None else Path(os.path.relpath(found)),
    )


def run_schema(arguments: argparse.Namespace) -> int:
    """Print the prototypes of a kernel's launchers and device kernels, or of one source file."""
    if arguments.op:
        return _print_schemas_of(arguments.op)
    if not arguments.kernel:
        raise ConfigError("no kernel is named", remedy="name one, or an op: cgins schema --op topk")
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


def _print_schemas_of(name: str) -> int:
    """Print a line for each overload of an op that the language of schema lines can say."""
    from pytest_cgins.packs import ops

    full = ops.full_names(name)
    if not full:
        ops.locate(ops.in_full(name))
    lines = dict.fromkeys(line for one in full or [name] for line in overloads(one))
    for line in lines:
        try:
            schemas.parse(line)
        except SourceError as error:
            print(f"// torch: {line}  ({error.what.rpartition(': ')[2]})")
        else:
            print(f"// cgins: {line}")
    if not lines:
        raise ConfigError(
            f"{name} has no schema in torch",
            remedy="record a call of it; `cgins generate` derives the line from traces",
        )
    return 0


def _launchers(config: Path, kernel: str) -> list[Path]:
    entry = select(load_without_traces(config), [kernel])[0]
    files = [i.sources[0] for i in entry.implementations if i.contract in ("launcher", "device")]
    for file in files:
        if not file.is_file():
            raise SourceError(
                f"{file}: no such file",
                remedy=nearest_path(file, file.name)
                or f"write it; cgins schema --op {entry.op} prints the line that it begins with",
            )
    if not files:
        raise ConfigError(
            f'kernel "{kernel}" has no launcher and no device kernel',
            remedy="only these have a schema line and a prototype",
        )
    return files
