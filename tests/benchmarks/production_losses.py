"""Why a production kernel is slower than torch: both under ncu, by call, with its own counters.

    python tests/benchmarks/production_losses.py GATE [--below RATIO] [--most N] [--only WORDS] [--json FILE] [--markdown FILE]

GATE is a report of `pytest --cgins-json`, or `production-h200.json`, whose `gate` is taken. Of its cases those are looked
at in which the kernel reaches less than RATIO of torch's speed, the worst first. Each side makes one call on the recorded
inputs, with cold caches; what it launches is told with its share of the peaks. Needs an NVIDIA GPU and ncu.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "example_project" / "production"
MARK = "spin_kernel"
SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "WarpStateStats")
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
SHOWN = ("sm_pct", "tensor_pct", "dram_pct", "l2_pct", "occupancy_pct", "waves", "registers_per_thread")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gate", type=Path)
    parser.add_argument("--below", type=float, default=0.95, metavar="RATIO")
    parser.add_argument("--most", type=int, default=16, metavar="N")
    parser.add_argument("--only", default="", help="regular expression for names of cases")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run(json.loads(options.gate.read_text()))
        return 0
    slow = [
        one for one in sorted(slower(json.loads(options.gate.read_text())), key=lambda one: one["speedup"])
        if one["speedup"] < options.below and re.search(options.only, one["case"])
    ][: options.most]  # fmt: skip
    rows = profiled(slow)
    page = "\n".join(lines(rows))
    print(page)
    if options.markdown:
        options.markdown.write_text(page + "\n")
    if options.json:
        options.json.write_text(json.dumps({"cases": rows}, indent=1) + "\n")
    return int(len(rows) < len(slow))


def slower(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Case, speed over torch, and both times in microseconds."""
    for one in report.get("gate", {}).get("cases", ()):
        if one.get("torch_us") and one.get("kernel_us"):
            kernel_us, torch_us = one["kernel_us"], one["torch_us"]
            yield {"case": one["case"], "speedup": torch_us / kernel_us, "us": [kernel_us, torch_us]}
    for one in report.get("evaluations", ()):
        numbers, case = one["verdict"]["numbers"], one["case"]
        if "speedup_vs_torch" in numbers:
            us = [numbers[f"{side}_median_ns_per_call"] / 1e3 for side in ("kernel", "torch")]
            name = f"{case['kernel']}/{case['pack']}/{case['signature']}"
            yield {"case": name, "speedup": numbers["speedup_vs_torch"], "us": us}


def run(cases: list[str]) -> None:
    """As the process that ncu looks into: one call a case and side, a mark before each."""
    sys.path[:0] = [str(PROJECT), str(PROJECT.parent)]
    import torch

    from pytest_cgins import config
    from pytest_cgins.building.loading.imports import import_from
    from pytest_cgins.packs.call import bound
    from pytest_cgins.packs.ops import trust
    from pytest_cgins.packs.replay import load_inputs
    from pytest_cgins.packs.store import open_pack

    entries = {entry.name: entry for entry in config.load(PROJECT / "cgins.yaml").kernels}
    torch.set_grad_enabled(False)
    for case in cases:
        kernel, pack, signature = case.split("/")
        import_from(str(PROJECT))
        trust(entries[kernel].op)
        reader = open_pack(PROJECT / "traces" / pack)
        trace = next(
            one
            for one in reader.pack.traces
            if one.signature == signature and one.call.op == entries[kernel].op
        )
        module, _, name = entries[kernel].implementations[0].target.partition(":")
        ours = getattr(__import__(module, fromlist=[name]), name)
        inputs = load_inputs(trace, reader, "cuda")
        for instead in (ours, None):
            call = bound(trace.call, inputs, instead=instead)
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            torch.cuda._sleep(1)
            call()
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
        del inputs, call
        torch.cuda.empty_cache()
        print(case, file=sys.stderr, flush=True)


def profiled(slow: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with the launches of both sides."""
    from pytest_cgins.regenerate.profiling import ncu as profilers
    from pytest_cgins.regenerate.profiling.profile import profiled as understood

    found = profilers.find()
    if found is None:
        raise SystemExit("no ncu here: the doctor says where it is looked for")
    found = replace(found, sections=tuple(one for one in found.sections if one in SECTIONS))
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "cases.json"
        names.write_text(json.dumps([one["case"] for one in slow]))
        report = Path(folder) / "report"
        command = [sys.executable, __file__, str(names), "--child"]
        words = found.around(command, report, extra=(TENSOR,))
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        launches, trouble = found.read(report.with_suffix(profilers.SUFFIX))
    if trouble or not launches:
        raise SystemExit(trouble or profilers.refusal(done.stdout) or done.stdout[-2000:])
    sides: list[list[Any]] = []
    for launch in launches:
        if MARK in launch.name:
            sides.append([])
        elif sides:
            sides[-1].append(launch)
    rows = []
    for one, ours, theirs in zip(slow, sides[::2], sides[1::2], strict=False):
        told = {
            side: [
                {
                    "name": kernel.name, "grid": kernel.grid, "block": kernel.block, "us": (kernel.ns or 0) / 1e3,
                    **{metric.name: metric.value for metric in kernel.metrics},
                }
                for kernel in understood(of_side)
            ]
            for side, of_side in (("kernel", ours), ("torch", theirs)) if of_side
        }  # fmt: skip
        rows.append({**one, **told})
    return rows


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table in Markdown, a line a launch."""
    yield "| call | side | launch | grid | us cold | " + " | ".join(SHOWN) + " | first stall |"
    yield "|---|---|---|---|---:|" + "---:|" * len(SHOWN) + "---|"
    for row in rows:
        for side in ("kernel", "torch"):
            for launch in row.get(side, ()):
                figures = " | ".join(f"{launch[name]:.3g}" if name in launch else "" for name in SHOWN)
                stalls = sorted(
                    ((value, name) for name, value in launch.items() if "stall" in name), reverse=True
                )
                stall = f"{stalls[0][1]} {stalls[0][0]:.0f}" if stalls else ""
                name = re.sub(r"\(.*|<.*", "", launch["name"])[:40]
                call = f"{row['case']} {row['speedup']:.2f}×"
                yield f"| {call} | {side} | {name} | {launch['grid']} | {launch['us']:.1f} | {figures} | {stall} |"


if __name__ == "__main__":
    sys.exit(main())
