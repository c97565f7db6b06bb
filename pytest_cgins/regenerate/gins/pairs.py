"""Inputs and gold of ops as pairs of `.pt` files: run as a process of its own, because it needs torch.

What is to be written comes as JSON on stdin; what was written, or why not, goes as JSON to the file that it names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core.console import import_path
from pytest_cgins.core.errors import CginsError, ReplayError
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs import replay
from pytest_cgins.packs.modules import is_module_call
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.packs.values import decode, has_adapted


def main() -> int:
    """Write the pairs; always 0, because each that fails is told."""
    order: dict[str, Any] = json.load(sys.stdin)
    told: dict[str, str] = {}
    with import_path(Path(order["root"])):
        for stem, op in order["ops"].items():
            trust(op)
            try:
                _write(Path(order["out"]), stem, op, [open_pack(pack) for pack in order["packs"]])
                told[stem] = ""
            except CginsError as error:
                told[stem] = error.what
            except Exception as error:  # noqa: BLE001 - ops and torch.save raise in many ways
                told[stem] = f"{type(error).__name__}: {error}"
    Path(order["told"]).write_text(json.dumps(told), encoding="utf-8")
    return 0


def _write(out: Path, stem: str, op: str, packs: list[PackReader]) -> None:
    """Inputs as a list, or with keywords as `args` and `kwargs`; gold as the op returns it.

    Raises:
        CginsError: no trace of the op has values, or torch does not give its gold any more.
    """
    found = [(pack, trace) for pack in packs for trace in pack.pack.traces if trace.call.op == op]
    if not found:
        raise ReplayError(f"no trace of {op} is there any more")
    pack, trace = found[0]
    device = replay.recording_device(trace)
    # A pack of tier recipe has a sample of the gold: torch's answer is all of it, once it agrees with the sample.
    replay.check(trace, pack, device)
    inputs = _arguments(trace, replay.load_inputs(trace, pack, "cpu"))
    gold = _on_cpu(replay.run(trace, replay.load_inputs(trace, pack, device)))
    torch.save(inputs, out / f"{stem}_inputs.pt")
    torch.save(gold, out / f"{stem}_gold.pt")


def _arguments(trace: Trace, tensors: list[torch.Tensor]) -> object:
    call = trace.call
    if is_module_call(call) or any(has_adapted(argument.value) for argument in call.arguments):
        raise ReplayError(f"{call.op} takes more than tensors and plain values")
    args = [decode(one.value, tensors) for one in call.arguments if one.passed == "positional"]
    kwargs = {one.name: decode(one.value, tensors) for one in call.arguments if one.passed == "keyword"}
    return {"args": args, "kwargs": kwargs} if kwargs else args


def _on_cpu(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, list | tuple):
        return [_on_cpu(one) for one in value]
    return value
