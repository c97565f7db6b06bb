"""`cgins bench-model`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import Subparsers, add_seed, command, flag, option, repeatable, seed_of
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core import documents
from pytest_cgins.core.console import import_path, new_table, print_table
from pytest_cgins.core.device import DEVICES, require_device, usable_device
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.options import BARE_VARIABLE
from pytest_cgins.core.text import counted, nearest

if TYPE_CHECKING:
    from rich.table import Table

    from pytest_cgins.app.whole_model.document import ModelBench, ModelBenches
    from pytest_cgins.app.whole_model.measure import Subject

FILE = Path(".cgins/model_bench.json")
_PROVEN = {
    "faster": "proven faster",
    "slower": "proven slower",
    "clean": "proven not slower",
    "inconclusive": "nothing is proven",
}


def add_parsers(subparsers: Subparsers) -> None:
    """Add `cgins bench-model`."""
    parser = command(
        subparsers,
        "bench-model  time whole models with and without their kernels",
        run,
        "Run models with the kernels of cgins.yaml, check their outputs, and time them in turns with the unchanged "
        "models. The kernels run in this process, with your rights: gate them with `pytest --cgins` first.",
    )
    option(
        parser,
        "models MODEL  one of `models` in cgins.yaml, or MODULE:FUNCTION, which returns (model, inputs) or a function "
        "without arguments (default: all of cgins.yaml)",
        nargs="*",
    )
    option(parser, "--device  device of the models (default: cuda if there is one)", choices=DEVICES)
    repeatable(
        parser,
        "--kernel NAME[/IMPLEMENTATION]  use only this kernel; repeatable (default: the first implementation of each "
        "kernel for the device)",
    )
    repeatable(parser, "--against NAME[/IMPLEMENTATION]  compare with this kernel in their place; repeatable")
    option(
        parser,
        "--baseline REV  compare with the kernels of this revision, a commit or merge-base (default: %(default)s)",
        default=NONE,
    )
    flag(parser, "--compile  time torch.compile as well")
    flag(parser, "--no-timing  check outputs alone")
    option(
        parser,
        "--suite-tests N  tests of times that share the chance of a false alarm (default: %(default)s)",
        default=1,
    )
    add_config_option(parser)
    option(parser, "--out FILE  file of the results (default: %(default)s)", type=Path, default=FILE)
    add_seed(parser, "of the order of blocks")


def run(arguments: argparse.Namespace) -> int:
    """Swap, compare, time, write, print; exit status 1 if outputs are wrong, or not finite that are so without kernels."""
    # Before launchers are imported: outputs are timed as a user would have them, without guards and poison.
    os.environ[BARE_VARIABLE] = "1"
    config = configuration.load(arguments.config, require_traces=False)
    subjects = _subjects(arguments, config)
    from pytest_cgins.app.whole_model.measure import measured, together

    import_from(str(config.root))
    with import_path(Path.cwd()):
        made = together([measured(config, subject) for subject in subjects])
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(documents.dump(made, indent=1) + "\n", encoding="utf-8")
    _show(made)
    return int(any(map(_is_wrong, made.models)))


def _subjects(arguments: argparse.Namespace, config: Config) -> list[Subject]:
    from pytest_cgins.app.whole_model.measure import Subject

    entries = {entry.name: entry for entry in config.whole_models}
    asked = require_device(arguments.device) if arguments.device else ""
    wanted = arguments.models or [
        name
        for name, entry in entries.items()
        if entry.device == asked or (not asked and usable_device([entry.device]) == entry.device)
    ]
    if not wanted:
        raise ConfigError(
            f"{config.file} has no models{' for ' + asked if asked else ''} that can run here",
            remedy="name MODULE:FUNCTION, or add models: {NAME: {make: MODULE:FUNCTION}} to it",
        )
    subjects = []
    for name in wanted:
        entry = entries.get(name)
        if entry is None and ":" not in name:
            raise ConfigError(
                f'{config.file} has no model "{name}"',
                remedy=nearest(name, entries) or "write MODULE:FUNCTION, such as models.bert:make",
            )
        subjects.append(
            Subject(
                make=entry.make if entry is not None else name,
                device=asked
                or (require_device(entry.device) if entry is not None else usable_device(DEVICES)),
                entry=entry,
                kernels=arguments.kernel,
                against=arguments.against,
                baseline=arguments.baseline,
                compile=arguments.compile,
                timing=not arguments.no_timing,
                tests=arguments.suite_tests,
                seed=seed_of(arguments),
            )
        )
    return subjects


def _is_wrong(made: ModelBench) -> bool:
    return any(not check.passed for check in made.checks) or (
        made.difference is not None and not made.difference.finite
    )


def _show(made: ModelBenches) -> None:
    for model in made.models:
        _show_model(model)
    for other, speedup in (("without kernels", made.speedup_vs_torch), ("base", made.speedup_vs_base)):
        if speedup is not None:
            models = counted(len(made.models), "model")
            print(f"{models}, sum of times, {other} over with kernels: {speedup:.3f}×")


def _show_model(made: ModelBench) -> None:
    from pytest_cgins.core.number_text import time_ns

    table: Table = new_table("kernel", "op", ">calls swapped", ">left to torch", ">torch", ">kernel", "why")
    for kernel in made.kernels:
        why = "; ".join(kernel.left) or ("" if kernel.calls else "the model does not call it")
        calls = str(kernel.calls), str(sum(kernel.left.values()))
        times = (time_ns(ns) if ns else "" for ns in (kernel.torch_ns_per_run, kernel.kernel_ns_per_run))
        table.add_row(kernel.kernel, kernel.op, *calls, *times, why.partition("\n")[0])
    print_table(table)
    if made.difference is not None:
        said = "" if made.difference.finite else "; NOT FINITE where the model without kernels is"
        print(f"outputs differ by {made.difference.relative_rms:.2g} of their size{said}")
    for check in made.checks:
        if not check.passed:
            print(f"WRONG: {check.message}")
    if made.measurement is not None:
        measured = made.measurement
        own = time_ns(measured.kernel.median_ns_per_call)
        print(f"{made.model} on {made.device_name}: {own} with kernels")
        outcomes = {one.against: one.outcome for one in measured.comparisons}
        for ratio in made.ratios:
            name = {"torch": "without", "base": f"with {made.base.label}"}.get(ratio.against, "torch.compile")
            proven = f", {_PROVEN[outcomes[ratio.against]]}" if ratio.against in outcomes else ""
            print(
                f"  {time_ns(ratio.ns_per_call)} {name}: {ratio.ratio:.3f}× ({ratio.low:.3f} … {ratio.high:.3f})"
                f"{proven} in {counted(ratio.blocks, 'block')}"
            )
        if made.plain is not None:
            plain = made.plain
            print(
                f"  mean of ten runs after one that is discarded, each by itself: {time_ns(plain.kernel_ns)} with kernels, "
                f"{time_ns(plain.torch_ns)} without"
            )
    for note in (*(made.measurement.notes if made.measurement is not None else ()), *made.notes):
        print(note)
