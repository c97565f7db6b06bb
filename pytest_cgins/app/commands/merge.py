"""`cgins merge`: reports of several runs as one."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.core.text import counted


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    merge = command(
        subparsers,
        "merge  join the reports of several runs",
        run,
        "Join what runs on several machines wrote with --cgins-json: shards of a suite, types of GPUs. The "
        "exit code is that of a gate over all cases; 2 if the reports do not add up.",
    )
    option(merge, "files FILE  JSON reports", type=Path, nargs="+")
    option(merge, "--out PATH  where the merged report goes", type=Path, required=True)
    option(
        merge,
        "--expect N  how many runs there must be: one without a shard's number is missed by nothing else",
        type=int,
        default=0,
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the merged report.

    Returns:
        Its exit code.

    Raises:
        ConfigError: a file cannot be read or is not a report.
        MergeError: they do not add up to one.
        OSError: the merged report cannot be written.
    """
    from pytest_cgins.report import document, merge, reading
    from pytest_cgins.report.counts import counts
    from pytest_cgins.report.merge_cases import Part

    parts = [Part(name=str(path), report=reading.load(path)) for path in arguments.files]
    whole = merge.merged(parts, expected=arguments.expect)
    document.write(whole, arguments.out)
    for part in parts:
        if merge.lost_device(part.report):
            print(f"{part.name}: exit code 5, no device for its cases was there, and it gated nothing")
        if failures := part.report.other_failures:
            print(f"{part.name}: {counted(failures, 'failure')} besides those of cases")
    found, runs = counts(whole), len(whole.merged)
    tests = f", {counted(tests, 'test')} of times" if (tests := merge.own_tests(whole)) else ""
    print(
        f"{counted(runs, 'run')}: {found.passed} passed, {found.failed} failed, {counted(found.errors, 'error')}, "
        f"{found.skipped} skipped{tests}; exit code {whole.exit_status}"
    )
    return whole.exit_status
