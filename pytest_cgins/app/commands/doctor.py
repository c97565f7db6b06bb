"""`cgins doctor`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from pytest_cgins.app.commands.options import Subparsers, command, flag
from pytest_cgins.core.text import columns


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    doctor = command(
        subparsers,
        "doctor  check GPUs, compilers and Python packages on this machine",
        run_doctor,
        "Look for compilers, GPUs, profilers, packages and permissions; say what each missing one disables and how "
        "to get it. Exit status 1 only if Python, torch or the C++ compiler is unusable.",
    )
    flag(doctor, "--json  print one JSON document instead of a table")
    flag(doctor, "--probe  also build a tiny kernel and run it under ncu; needs the GPU")


def run_doctor(arguments: argparse.Namespace) -> int:
    """Examine and print."""
    from pytest_cgins.doctor.examine import examine
    from pytest_cgins.doctor.render import render

    report = examine(probe=arguments.probe)
    if arguments.json:
        # Not by `documents`: the doctor must work where a package that we need is missing.
        print(json.dumps(asdict(report), indent=1, ensure_ascii=False))
    else:
        print(render(report, width=columns(sys.stdout), colour=sys.stdout.isatty()), end="")
    return report.exit_status
