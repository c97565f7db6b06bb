"""A `cgins.yaml` for imported ops, with torch or the reference itself as the kernel to begin with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.recording.importers.collect import Report

_TORCH = re.compile(r"torch\.(?P<module>(nn\.functional|special|linalg|fft)\.)?(?P<name>\w+)")

_PLAIN = re.compile(r"[A-Za-z./][\w./-]*")
"""A path that YAML takes for a text as it is."""


def write(config: Path, report: Report, pack_folder: Path) -> str:
    """Write a `cgins.yaml`, or say what to add to the one that is there; what to print."""
    assert report.pack is not None
    kernels = "\n".join(_kernels(report.pack, report))
    traces = Path(os.path.relpath(pack_folder.absolute(), config.absolute().parent)).as_posix()
    if not _PLAIN.fullmatch(traces):
        traces = json.dumps(traces, ensure_ascii=False)
    if config.exists():
        return f"{config} already exists; add to its traces: {traces}\nand to its kernels:\n{kernels}"
    config.parent.mkdir(parents=True, exist_ok=True)
    open_ended = all(line.lstrip().startswith("#") for line in kernels.splitlines())
    head = "kernels: {}  # take {} away when you put kernels in here:" if open_ended else "kernels:"
    config.write_text(f"version: 1\ntraces:\n  - {traces}\n{head}\n{kernels}\n", encoding="utf-8")
    if open_ended:
        return f"{config} written: no op of these has a callable to begin with, so put kernels of yours in"
    return (
        f"{config} written: `pytest --cgins` gates the reference as its own kernel until you put yours there"
    )


def _kernels(pack: TracePack, report: Report) -> Iterator[str]:
    devices: dict[str, set[str]] = {}
    for trace in pack.traces:
        devices.setdefault(trace.call.op, set()).add(trace.origin.device)
    names: set[str] = set()
    for op, found in devices.items():
        name = _name(op, names)
        names.add(name)
        target = _target(op)
        # An entry needs an implementation; a callable that has no name cannot be one.
        comment = "  " if target else "  # "
        yield f"{comment}{name}:"
        yield f"{comment}  op: {op}"
        if op in report.tolerances:
            rtol, atol = report.tolerances[op]
            yield f"{comment}  tolerance: {{rtol: {rtol!r}, atol: {atol!r}}}"
        if target:
            yield f'{comment}  probes: {{op_callback: {{off: "{_STANDS_IN}"}}}}'
        yield f"{comment}  implementations:"
        for device in sorted(found):
            shown = (
                f"target: {target}" if target else f"source: kernels/{name}.{_SUFFIXES.get(device, 'cpp')}"
            )
            label = "reference" if target else "kernel"
            yield f"{comment}    - {{name: {label}, device: {device}, {shown}}}"


_STANDS_IN = "the reference stands in for a kernel: take this away with it"
_SUFFIXES = {"cuda": "cu"}


def _name(op: str, taken: set[str]) -> str:
    """A kernel's name: that of the op, or of the module which an imported reference has to itself."""
    forward, _, rest = op.partition("@")
    parts = forward.split(".")
    own = parts[-1] if parts[0] == "torch" and parts[1:2] != ["ops"] else "_".join(parts[-2:])
    if parts[0] != "torch" and parts[-1] in ("Model", "run", "reference", "forward_fn"):
        own = parts[-2]
    if parts[:2] == ["torch", "ops"] and parts[-1] in ("default", "Tensor"):
        own = parts[-2]
    name = f"{own}_backward" if rest and not own.endswith("_backward") else own
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _target(op: str) -> str:
    """`module:function` that calls the op itself; "" where a backward has none."""
    if is_derived(op):
        return ""
    if op.startswith("torch."):
        if op.startswith(("torch.Tensor.", "torch.ops.")):
            return f"torch:{op.removeprefix('torch.')}"
        match = _TORCH.fullmatch(op)
        return (
            f"torch{'.' + match['module'].rstrip('.') if match['module'] else ''}:{match['name']}"
            if match
            else ""
        )
    module, _, function = op.rpartition(".")
    return f"{module}:{function}.forward" if function == "Model" else f"{module}:{function}"
