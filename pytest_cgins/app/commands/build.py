"""`cgins build`: kernels built on the command line, for this machine or for architectures that are named."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pytest_cgins import __version__
from pytest_cgins.app.commands.options import Subparsers, command, flag, listed, option
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config, Implementation, KernelEntry, load_without_traces, select
from pytest_cgins.core import documents
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.core.options import above_zero, whole_number
from pytest_cgins.core.session_report import Compilation

if TYPE_CHECKING:
    from pytest_cgins.building.build_queue import BuildQueue


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    build = command(
        subparsers,
        "build  build the kernels of cgins.yaml",
        run_build,
        "Build all implementations of the named kernels, or of all kernels. With --arch: build the CUDA ones for "
        "each architecture, and print their registers, spills, stack and shared memory. Exit status 1 if a build fails.",
    )
    option(build, "kernels KERNEL  names in cgins.yaml; default: all", nargs="*")
    option(build, "--device  only the implementations for this device", choices=DEVICES)
    option(
        build,
        "--arch ARCH[,ARCH]  build CUDA kernels for these architectures, e.g. sm_80,sm_90a; no GPU needed",
    )
    flag(build, "--all  with --arch: also build implementations without architectures, for this machine")
    option(
        build,
        "--baseline REV  with --arch: fail if spills or registers grew since this commit, or merge-base "
        "(default: %(default)s)",
        default=NONE,
    )
    flag(build, "--resources  with --arch: list each function, with its most frequent opcodes")
    flag(build, "--json  with --arch: print a report as --cgins-json writes it")
    option(build, "-j/--jobs N  parallel builds (default: one per core)", type=whole_number(1), default=0)
    option(
        build, "-v/--verbose  show the compilers' command lines; -vv: all messages", action="count", default=0
    )
    option(
        build,
        "--timeout S  limit of one kernel, in seconds (default: %(default)s)",
        type=above_zero,
        default=600.0,
    )
    add_config_option(build)


def run_build(arguments: argparse.Namespace) -> int:
    """Build, print a table, and say on stderr what failed.

    Raises:
        ConfigError: the file or the arguments are wrong.
        RevisionError: the commit to compare with is unknown.
    """
    from pytest_cgins.building.build_queue import BuildQueue

    if arguments.arch is not None and not arguments.arch.strip(", "):
        raise ConfigError(
            f'--arch "{arguments.arch}" names no architecture', remedy="name some: --arch sm_80,sm_90a"
        )
    if not arguments.arch:
        for name, default in (("resources", False), ("json", False), ("baseline", NONE)):
            if getattr(arguments, name) != default:
                raise ConfigError(
                    f"--{name} goes with --arch", remedy="name architectures: --arch sm_80,sm_90a"
                )
    config = load_without_traces(arguments.config)
    chosen = select(config, arguments.kernels)
    with closing(BuildQueue(jobs=arguments.jobs, timeout_s=arguments.timeout)) as build_queue:
        if not arguments.arch:
            wanted = list(_implementations(chosen, arguments.device))
            return _build(config, wanted, build_queue)
        status = 0
        if arguments.device != "cpu":
            status = _compile(config, chosen, arguments, build_queue)
        if arguments.all or arguments.device == "cpu":
            others = [
                pair
                for pair in _implementations(chosen, arguments.device)
                if pair[1].device == "cpu" or pair[1].contract == "python"
            ]
            status = max(status, _build(config, others, build_queue, to_stderr=arguments.json))
        return status


def _implementations(
    kernels: list[KernelEntry], device: str | None
) -> Iterator[tuple[KernelEntry, Implementation]]:
    for kernel in kernels:
        for implementation in kernel.implementations:
            if device in (None, implementation.device):
                yield kernel, implementation


def _build(
    config: Config,
    chosen: list[tuple[KernelEntry, Implementation]],
    build_queue: BuildQueue,
    *,
    to_stderr: bool = False,
) -> int:
    """Build for this machine; a line an implementation, in the order of the file."""
    out = sys.stderr if to_stderr else sys.stdout
    sources: list[KernelSource | CginsError] = []
    for kernel, implementation in chosen:
        try:
            sources.append(find(config, kernel, implementation))
        except CginsError as error:
            sources.append(error)
    build_queue.add(source for source in sources if isinstance(source, KernelSource))
    failures: list[CginsError] = []
    for (kernel, implementation), wanted in zip(chosen, sources, strict=True):
        label = f"{kernel.name}/{implementation.name} ({implementation.device})"
        try:
            if isinstance(wanted, CginsError):
                raise wanted
            compiled = build_queue.result(wanted)
        except CginsError as error:
            failures.append(error)
            print(f"{label:40} {'FAILED':>9}", file=out)
            continue
        state = "cached" if compiled.cached else f"{compiled.build_seconds:.2f} s"
        state = state if compiled.library else "-"
        print(f"{label:40} {state:>9}  {compiled.library or 'nothing to compile'}", file=out)
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


def _compile(
    config: Config, chosen: list[KernelEntry], arguments: argparse.Namespace, build_queue: BuildQueue
) -> int:
    """Build for the architectures that are named; a line a build."""
    from pytest_cgins.gate.compilation import Compiler
    from pytest_cgins.report import document

    started_at, started = datetime.now(timezone.utc), time.monotonic()
    compiler = Compiler(
        config, archs=listed(arguments.arch), baseline=arguments.baseline, build_queue=build_queue,
        instructions=arguments.resources or arguments.json,
    )  # fmt: skip
    with closing(compiler):
        targets = [target for target in compiler.targets() if target.kernel in chosen]
        compiler.revision()
        compiler.start(targets)
        found = [compiler.compile(target) for target in targets]
    status = int(any(one.verdict.status.outcome in ("fail", "error") for one in found))
    if arguments.json:
        seconds = time.monotonic() - started
        report = document.session_report(
            (), (), version=__version__, seed=0, started_at=started_at, seconds=seconds, exit_status=status,
            compilations=found,
        )  # fmt: skip
        print(documents.dump(report, indent=1))
    else:
        _print(found, resources=arguments.resources)
    return status


def _print(found: list[Compilation], *, resources: bool) -> None:
    from pytest_cgins.report import compiled, console, escape, failure, terminal

    colour = sys.stdout.isatty()
    if not found:
        print("no CUDA kernel is selected")
        return
    print(console.text(terminal.build_table(found, colour=colour, each=True), colour=colour), end="")
    if resources:
        print(f"\n{console.text(terminal.opcode_table(found, colour=colour), colour=colour)}", end="")
    for line in terminal.build_lines(found, brief=True):
        print(console.text(line, colour=colour), end="")
    for one in compiled.worst_first(found):
        if one.verdict.status.outcome not in ("fail", "error"):
            continue
        print(escape.lines(f"\n{one.name}: {failure.headline(one)}"), file=sys.stderr)
        rest = one.verdict.message.partition("\n")[2]
        if rest:
            print(escape.lines(rest), file=sys.stderr)
