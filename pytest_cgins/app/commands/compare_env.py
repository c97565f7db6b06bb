"""`cgins compare-env`: the same kernels in two environments."""

from __future__ import annotations

import argparse
import subprocess
import sys

from pytest_cgins.app.commands.options import Subparsers, command, option

SAME_SOURCES = "--cgins-baseline=none"


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    parser = command(
        subparsers,
        "compare-env  gate kernels in one environment against the same kernels in another",
        run,
        "Runs pytest --cgins on the kernels of ENV, compared with the same sources in BASE: answers, compile time, size, "
        "registers, spills, memory and time. An environment is a virtual environment, NAME=VALUE, a wheel, a library, a folder "
        "to import from, the root of a container, or several of them in one string.",
    )
    option(parser, "base BASE  environment that is compared with; . is this one")
    option(parser, "env ENV  environment under test; . is this one")
    option(parser, "arguments ARGUMENT  folders, and options of pytest behind --", nargs="*")


def run(arguments: argparse.Namespace) -> int:
    """Have pytest compare; its exit code."""
    options = [f"--cgins-base-env={arguments.base}", f"--cgins-env={arguments.env}", SAME_SOURCES]
    command = [sys.executable, "-m", "pytest", "--cgins", *options, *arguments.arguments]
    return subprocess.run(command, check=False).returncode
