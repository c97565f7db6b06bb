"""`cgins profile`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.app.commands.traces import add_trust, imports_of, trust_named
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_failures, print_table, tracked
from pytest_cgins.core.device import DEVICES, device_of, require_device, usable_device
from pytest_cgins.core.errors import TraceError
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.profile import PackProfile, TraceProfile, write

if TYPE_CHECKING:
    from rich.table import Table


_SHOWN = 2
_SHOWN_WIDTH = 48


def add_parsers(subparsers: Subparsers) -> None:
    """Add `cgins profile`."""
    parser = command(
        subparsers,
        "profile  measure the time of a pack's traces on this machine",
        run,
        "Replay every trace of trace packs; count and time its ATen calls and CUDA kernels. The results are kept "
        "in the pack's folder profiles/, in one document per device and torch version. "
        "Exit status 1 if a trace could not be replayed.",
    )
    option(parser, "packs PACK  folder of a trace pack", nargs="+", type=Path)
    option(
        parser,
        "--device  device to replay on (default: that of the recording, if it is present)",
        choices=DEVICES,
    )
    flag(parser, "--json  print the documents instead of a table")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Profile packs, and print by op what costs how much; 1 if a trace could not be replayed."""
    from pytest_cgins.recording import profiler

    if args.device:
        require_device(args.device)
    trust_named(args)
    readers = [(folder, open_pack(folder)) for folder in args.packs]
    profiles: list[PackProfile] = []
    failures: list[TraceError] = []
    for folder, reader in readers:
        with imports_of(folder):
            device = args.device or usable_device({trace.origin.device for trace in reader.pack.traces})
            made, failed = profiler.profile(
                reader, device, tracked(reader.pack.traces, f"Profiling {folder}")
            )
        failures += failed
        profiles.append(made)
        if made.traces:
            file = write(folder, made)
            if not args.json:
                print(f"{file}: {made.device_name}, torch {made.torch}")
                print_table(by_op(made))
                for one in made.traces:
                    if one.other_ns_per_call is not None:
                        took = f"{1e-3 * one.median_ns_per_call:.1f} µs, and {1e-3 * one.other_ns_per_call:.1f} µs"
                        print(
                            f"note: {one.op} {one.signature} took {took} at another time: the device was busy or not warm"
                        )
    if args.json:
        print(json.dumps([documents.dump_python(made) for made in profiles], indent=1))
    print_failures(failures)
    return 1 if failures else 0


def by_op(profile: PackProfile) -> Table:
    """The ops of a profile, the costliest first."""
    on_gpu = device_of(profile.device).is_cuda
    columns = [">time", "op", ">traces", ">calls", ">µs/call", "ATen calls"]
    table = new_table(*columns, *(["CUDA kernels"] if on_gpu else []))
    groups: dict[str, list[TraceProfile]] = {}
    for measured in profile.traces:
        groups.setdefault(measured.op, []).append(measured)
    for op, traces in sorted(groups.items(), key=lambda item: -sum(one.time_share for one in item[1])):
        calls = sum(trace.calls for trace in traces)
        total_ns = sum(trace.calls * trace.median_ns_per_call for trace in traces)
        aten = [
            (call.name, trace.calls * call.count) for trace in traces for call in trace.aten if not call.view
        ]
        kernels = [
            (kernel.name, trace.calls * kernel.ns_per_call) for trace in traces for kernel in trace.kernels
        ]
        share = f"{100 * sum(trace.time_share for trace in traces):.1f} %"
        counts = str(len(traces)), str(calls), f"{1e-3 * total_ns / calls:.1f}"
        table.add_row(share, op, *counts, *([_top(aten), _top(kernels)] if on_gpu else [_top(aten)]))
    return table


def _top(weights: Iterable[tuple[str, float]]) -> str:
    """The names that weigh most, and how many others there are."""
    total: dict[str, float] = {}
    for name, weight in weights:
        total[_short(name)] = total.get(_short(name), 0.0) + weight
    shown = sorted(total, key=lambda name: -total[name])[:_SHOWN]
    more = len(total) - len(shown)
    return ", ".join(shown) + (f" +{more}" if more else "")


def _short(name: str) -> str:
    """`aten.addmm` for the default overload; a kernel's name without namespaces, types and arguments."""
    name = name.removeprefix("void ").replace("(anonymous namespace)::", "").removesuffix(".default")
    name = name.partition("<")[0].partition("(")[0].rpartition("::")[2]
    return name if len(name) <= _SHOWN_WIDTH else f"{name[: _SHOWN_WIDTH - 1]}…"
