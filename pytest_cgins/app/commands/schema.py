"""`cgins schema`, and what commands that read cgins.yaml share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.source import read, wants_workspace
from pytest_cgins.building.contracts.torch_schema import defaults, overloads
from pytest_cgins.config import load_without_traces, select
from pytest_cgins.core.console import import_path
from pytest_cgins.core.errors import ConfigError, SourceError
from pytest_cgins.core.text import nearest_path, upwards
from pytest_cgins.packs.store import MANIFEST, open_pack
from pytest_cgins.regenerate.new_kernel import word_of


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    schema = command(
        subparsers,
        "schema  print the C prototype of a kernel's schema line",
        run_schema,
        "Print the C function that each launcher of the kernel must define.",
    )
    option(schema, "kernel KERNEL  name in cgins.yaml, or a source file", nargs="?")
    option(
        schema, "--op OP  print the schema lines of an op instead: topk, aten::add, F.silu@backward(input)"
    )
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
        return _print_schemas_of(arguments.op, arguments.config)
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


def _print_schemas_of(name: str, config: Path) -> int:
    """Print a line for each overload of an op, or of its backward; where torch has none that fits, that of recorded calls."""
    from pytest_cgins.packs import backward, ops
    from pytest_cgins.packs.signature import parameters

    forward, gradients = backward.parse(name) if backward.is_derived(name) else (name, ())
    with import_path(config.absolute().parent, Path.cwd()):
        full = ops.full_names(forward) or [ops.in_full(forward)]
        known = {parameter for op in full for parameter in parameters(ops.locate(op))}
    texts = {name for op in full for name, default in defaults(op).items() if default.startswith("'")}
    lines: dict[str, None] = {}
    for line in dict.fromkeys(line for op in full for line in overloads(op)):
        try:
            schema = schemas.parse(line)
        except SourceError as error:
            lines |= {} if gradients else {f"// torch: {line}  ({error.what.rpartition(': ')[2]})": None}
            continue
        # An op in Python may differ from the operator of its name: embedding in order and names, huber_loss in `reduction`.
        takes_calls = all(one.has_default or one.name in known for one in schema.arguments)
        if takes_calls and all(one.type == "str" for one in schema.arguments if one.name in texts):
            fitting = _backward_of(line, schema, gradients) if gradients else line
            lines |= {f"// cgins: {fitting}": None} if fitting else {}
    if not lines:
        op = backward.name_of(full[0], gradients) if gradients else full[0]
        lines[f"// cgins: {_recorded_line(op, config)}"] = None
    print("\n".join(lines))
    return 0


def _backward_of(line: str, schema: schemas.Schema, names: Sequence[str]) -> str:
    """The line of an overload's backward; "" unless it gives one tensor, and those named are tensors that it leaves as they are."""
    from pytest_cgins.regenerate.prompts.schema_line import returned_gradients  # with torch

    tensors = {one.name for one in schema.arguments if one.type == "Tensor" and not one.list}
    is_plain = len(schema.outputs) == 1 and not schema.outputs[0].list
    if not is_plain or any(one.mutated for one in schema.arguments) or not tensors.issuperset(names):
        return ""
    arguments = line.partition("(")[2].rpartition(") ->")[0]
    return f"{schema.entry}_backward(Tensor grad_output, {arguments}) -> {returned_gradients(names)}"


def _recorded_line(op: str, config: Path) -> str:
    from pytest_cgins.regenerate.prompts.schema_line import from_traces

    named = load_without_traces(config).traces if config.is_file() else ()
    packs = [pack for pack in named if (pack / MANIFEST).is_file()]
    traces = [trace for pack in packs for trace in open_pack(pack).pack.traces if trace.call.op == op]
    if not traces:
        option = " --backward" if "@" in op else ""
        raise ConfigError(
            f"no schema in torch fits {op}, and no call of it is recorded in the packs of {config}",
            remedy=f"record one: cgins record SCRIPT.py --out traces/NAME --ops '{op}'{option}; name the pack under traces:",
        )
    line = from_traces(word_of(op), op, traces)
    if not line:
        raise ConfigError(
            f"{op} was recorded with arguments that no schema line can have",
            remedy="write its kernel with contract: python or torch-extension",
        )
    return line


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
