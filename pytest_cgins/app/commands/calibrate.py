"""`cgins calibrate`: how noisy times of this device are, for the verdicts that rest on them."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option, say
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import Config, load, select
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.errors import ConfigError, InfrastructureError
from pytest_cgins.core.options import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_cgins.gate.calibrate import Plan
    from pytest_cgins.gate.calibration import Calibration
    from pytest_cgins.gate.evaluate import Evaluator


LEAST_PROCESSES, MOST_PROCESSES = 3, 1000
LEAST_BLOCKS, MOST_BLOCKS = 3, 1000
MOST_CASES = 100


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    parser = command(
        subparsers,
        "calibrate  measure the timing noise of this device",
        run_calibrate,
        "Time kernels of cgins.yaml against second builds of themselves in fresh processes, for calls of each "
        "length. `pytest --cgins` then tolerates 2.5 times the upper bound of the spread between processes, on top of "
        "gate.tolerate. Run it on the machine that gates, while nothing else uses the device.",
    )
    option(parser, "kernels KERNEL  names in cgins.yaml; default: all", nargs="*")
    add_config_option(parser)
    option(parser, "--device  device to calibrate (default: cuda if there is one, else cpu)", choices=DEVICES)
    option(
        parser,
        "--processes N  fresh processes (default: %(default)s)",
        type=whole_number(LEAST_PROCESSES, MOST_PROCESSES),
        default=10,
    )
    option(
        parser,
        "--blocks N  blocks of each case in each process (default: %(default)s)",
        type=whole_number(LEAST_BLOCKS, MOST_BLOCKS),
        default=64,
    )
    option(
        parser,
        "--cases-per-class N  cases for each length of calls, of different kernels if possible (default: %(default)s)",
        type=whole_number(1, MOST_CASES),
        default=2,
    )
    flag(parser, "--peaks  also measure the roofline's peaks again")
    flag(parser, "--json  print one JSON document instead of a table")


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Measure, keep, print.

    Raises:
        ConfigError: the file or the arguments are wrong.
        InfrastructureError: the device is not there or not to be had, or no kernel could be timed.
        OSError: the calibration cannot be kept.
    """
    from pytest_cgins.gate import calibration
    from pytest_cgins.gate.calibrate import Plan
    from pytest_cgins.report import calibration_table

    config = load(arguments.config, require_sources=False)
    kernels = {entry.name for entry in select(config, arguments.kernels)}
    plan = Plan(
        processes=arguments.processes, blocks=arguments.blocks, cases_per_class=arguments.cases_per_class
    )
    made = _measured(config, kernels, arguments.device, plan, peaks=arguments.peaks)
    file = calibration.store(made)
    if arguments.json:
        print(documents.dump(made, indent=1))
    else:
        print(f"{made.key.parts['device']}: {file}")
        print(calibration_table.render(made, colour=sys.stdout.isatty()), end="")
    for line in calibration_table.remarks(made):
        say(line)
    return 0


def _measured(
    config: Config, kernels: set[str], wanted: str | None, plan: Plan, *, peaks: bool
) -> Calibration:
    from pytest_cgins.gate.calibrate import CalibrationRun
    from pytest_cgins.gate.evaluate import Evaluator
    from pytest_cgins.run.early_verdict import EndedError

    evaluator = Evaluator(config, seed=0, device=wanted or "auto", probes="off")
    with closing(evaluator):
        try:
            device = _device(evaluator, wanted)
            cases = _cases(evaluator, kernels, device, config.file)
            if peaks:
                evaluator.peaks.measure(cases[0].device)
            return CalibrationRun(evaluator, device, plan, say=say).run(cases)
        except EndedError as end:
            raise InfrastructureError(end.verdict.message) from end


def _device(evaluator: Evaluator, wanted: str | None) -> str:
    there = evaluator.devices.described()
    if wanted is not None and wanted not in there:
        raise InfrastructureError(
            f"--device {wanted}: torch sees no such device here",
            remedy="run it on a machine with one; `cgins doctor` says what is missing",
        )
    return wanted or [kind for kind in DEVICES if kind in there][-1]


def _cases(evaluator: Evaluator, kernels: set[str], device: str, file: Path) -> Sequence[Case]:
    cases = [
        case
        for case in evaluator.cases()
        if case.kernel in kernels and case.device.partition(":")[0] == device
    ]
    if not cases:
        raise ConfigError(
            f"{file}: none of {', '.join(sorted(kernels))} has an implementation for {device}",
            remedy="name others, or another --device",
        )
    return cases
