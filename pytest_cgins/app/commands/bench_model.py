"""`cgins bench-model`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.app.commands.options import Subparsers, add_seed, command, option, seed_of
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.config import Config, TimingGate
from pytest_cgins.core import documents
from pytest_cgins.core.console import import_path, new_table, print_table
from pytest_cgins.core.device import DEVICES, device_of, require_device, usable_device
from pytest_cgins.core.options import BARE_VARIABLE
from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    from rich.table import Table

    from pytest_cgins.app.whole_model.document import ModelBench

FILE = Path(".cgins/model_bench.json")
NOT_COMPARED = "the model's outputs are not tensors of one form, and were not compared"
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
        "bench-model  time a whole model with and without its kernels",
        run,
        "Run a model with the kernels of cgins.yaml, compare its outputs, and time it in turns with the unchanged "
        "model. The kernels run in this process, with your rights: gate them with `pytest --cgins` first.",
    )
    option(parser, "model MODULE:FUNCTION  returns a function without arguments, or (model, inputs)")
    option(parser, "--device  device of the model (default: cuda if there is one)", choices=DEVICES)
    option(
        parser,
        "--kernel NAME[/IMPLEMENTATION]  use only this kernel; repeatable (default: the first implementation of each "
        "kernel for the device)",
        action="append",
        default=[],
    )
    add_config_option(parser)
    option(parser, "--out FILE  file of the results (default: %(default)s)", type=Path, default=FILE)
    add_seed(parser, "of the order of blocks")


def run(arguments: argparse.Namespace) -> int:
    """Swap, compare, time, write, print; exit status 1 if outputs are not finite that are so without kernels."""
    # Before launchers are imported: outputs are timed as a user would have them, without guards and poison.
    os.environ[BARE_VARIABLE] = "1"
    config = configuration.load(arguments.config, require_traces=False)
    made = _measured(arguments, config)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(documents.dump(made, indent=1) + "\n", encoding="utf-8")
    _show(made)
    return int(made.difference is not None and not made.difference.finite)


def _measured(arguments: argparse.Namespace, config: Config) -> ModelBench:

    from pytest_cgins.app.whole_model import bench, workload
    from pytest_cgins.app.whole_model.document import MODEL_BENCH_VERSION, ModelBench, SwappedKernel
    from pytest_cgins.app.whole_model.kernels import chosen_implementations, load_kernels
    from pytest_cgins.app.whole_model.swap import Swap
    from pytest_cgins.regenerate.profiling import bench as ratios
    from pytest_cgins.timing.environment import describe

    kind = require_device(arguments.device) if arguments.device else usable_device(DEVICES)
    device = device_of(kind).case_name
    chosen = chosen_implementations(config, arguments.kernel, kind)
    import_from(str(config.root))
    with import_path(Path.cwd()):
        loaded, left_out = load_kernels(config, chosen, all_of_them=bool(arguments.kernel))
        swap = Swap({op: kernel for op, (kernel, _) in loaded.items()}, device)
        pair = bench.Pair(workload.made(arguments.model, device), swap, list(loaded), device)
        with pair.ready():
            tallies, difference = pair.compared()
            measurement = pair.timed(TimingGate(), seed=seed_of(arguments))
    environment = describe(device)
    (ratio,) = ratios.ratios(measurement)
    return ModelBench(
        version=MODEL_BENCH_VERSION,
        model=arguments.model,
        device=device,
        device_name=environment.device_name,
        torch=environment.torch,
        kernels=tuple(
            SwappedKernel(kernel=label, op=op, calls=tallies[op].swapped, left=dict(tallies[op].left))
            for op, (_, label) in loaded.items()
        ),
        difference=difference,
        measurement=measurement,
        ratio=ratio,
        notes=(*left_out, *([] if difference is not None else [NOT_COMPARED])),
    )


def _show(made: ModelBench) -> None:
    from pytest_cgins.core.number_text import time_ns

    table: Table = new_table("kernel", "op", ">calls swapped", ">left to torch", "why")
    for kernel in made.kernels:
        why = "; ".join(kernel.left) or ("" if kernel.calls else "the model does not call it")
        calls = str(kernel.calls), str(sum(kernel.left.values()))
        table.add_row(kernel.kernel, kernel.op, *calls, why.partition("\n")[0])
    print_table(table)
    if made.difference is not None:
        said = "" if made.difference.finite else "; NOT FINITE where the model without kernels is"
        print(f"outputs differ by {made.difference.relative_rms:.2g} of their size{said}")
    ratio, measured = made.ratio, made.measurement
    print(
        f"{made.model} on {made.device_name}: {time_ns(measured.kernel.median_ns_per_call)} with kernels, "
        f"{time_ns(ratio.ns_per_call)} without: {ratio.ratio:.3f}× ({ratio.low:.3f} … {ratio.high:.3f}), "
        f"{_PROVEN[measured.comparisons[0].outcome]} in {counted(ratio.blocks, 'block')}"
    )
    for note in (*measured.notes, *made.notes):
        print(note)
