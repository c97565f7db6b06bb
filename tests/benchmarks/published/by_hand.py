"""What a user without pytest-cgins would see of published kernels: `python by_hand.py LIST [ONLY]`, in the project.

Each kernel of the list is called as the list says, and differentiated if its op is, beside the op in torch: it raises, it
writes to an argument, two runs differ, its answer is another, a NaN does not come through, or a transposed argument gives
another answer. Findings of the gate that this shows as well are confirmed. Called again, it goes on with the next kernel.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import catalogue
import torch

RUNS = 20
ERROR = 1e-2
"""Of the largest number of the answer in torch: a difference above it is no rounding."""
Outcome = tuple[list[torch.Tensor], list[torch.Tensor]]


def main() -> None:
    module, only = sys.argv[1], "".join(sys.argv[2:])
    importlib.import_module(module)
    torch.backends.cuda.matmul.allow_tf32 = False
    entries = [entry for entry in catalogue.ENTRIES if re.search(only, entry.name)]
    told = Path("by-hand.json")
    found = json.loads(told.read_text()) if told.is_file() else {}
    for entry in entries:
        for backward in (False, True) if entry.backward else (False,):
            name = f"{entry.name}-backward" if backward else entry.name
            if name not in found:
                # A kernel that spoils the process is known by what it leaves: the next process goes on after it.
                told.write_text(json.dumps({**found, name: ["spoils the process"]}, indent=1))
                found[name] = _examined(entry, backward=backward)
                told.write_text(json.dumps(found, indent=1))
                print(name, "; ".join(found[name]) or "nothing found", flush=True)


def _examined(entry: catalogue.Entry, *, backward: bool) -> list[str]:
    """What is seen of one kernel."""
    module, _, path = entry.target.partition(":")
    values, keywords = entry.arguments()
    found = []
    for call in (1, 2):
        try:
            kernel = reduce(getattr, path.split("."), importlib.import_module(module))
            answer, changed = _called(kernel, values, keywords, backward=backward)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is what is looked for
            return [f"raises {type(error).__name__} in call {call}: {' '.join(str(error).split())[:160]}"]
    gold, _ = _called(entry.function, values, keywords, backward=backward)
    found += [f"writes to {what}" for what in changed]
    found += _differences(answer, gold)
    runs = [_called(kernel, values, keywords, backward=backward)[0] for _ in range(RUNS)]
    if any(not torch.equal(a, b) for run in runs for a, b in zip(answer, run, strict=True)):
        found.append(f"another answer in {RUNS} runs")
    for at, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found += _variant(
                entry, kernel, values, keywords, at, _with_nan(value), backward, f"NaN in argument {at}"
            )
            if value.dim() > 1:
                other = value.transpose(-1, -2).contiguous().transpose(-1, -2)
                found += _variant(
                    entry, kernel, values, keywords, at, other, backward, f"argument {at} transposed"
                )
    return found


def _called(
    function: Callable[..., Any], values: tuple[Any, ...], keywords: dict[str, Any], *, backward: bool
) -> tuple[list[torch.Tensor], list[str]]:
    """The answer of a function, or its gradients, and the names of what it wrote to."""
    given = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]
    kept = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
    torch.manual_seed(0)
    catalogue._generator.manual_seed(5)
    if backward:
        _, weights, gradients = catalogue.differentiated(function, tuple(given))
        catalogue._generator.manual_seed(5)
        as_put_in = [torch.randn(w.shape, generator=catalogue._generator).to(w.device) for w in weights]
        answer = [gradient for gradient in gradients if gradient is not None]
        changed = [
            f"gradient {i}"
            for i, (a, b) in enumerate(zip(weights, as_put_in, strict=True))
            if not torch.equal(a, b)
        ]
    else:
        with torch.no_grad():
            results = function(*given, **keywords)
        results = results if isinstance(results, (tuple, list)) else (results,)
        answer, changed = [result for result in results if isinstance(result, torch.Tensor)], []
    changed += [
        f"argument {i}" for i, (a, b) in enumerate(zip(given, kept, strict=True))
        if isinstance(b, torch.Tensor) and not torch.equal(a, b)
    ]  # fmt: skip
    return [value.detach().clone() for value in answer], changed


def _variant(
    entry: catalogue.Entry, kernel: Callable[..., Any], values: tuple[Any, ...], keywords: dict[str, Any],
    at: int, value: torch.Tensor, backward: bool, what: str,
) -> list[str]:  # fmt: skip
    """How kernel and op differ with another value of one argument; nothing where the op itself cannot take it."""
    other = (*values[:at], value, *values[at + 1 :])
    try:
        gold, _ = _called(entry.function, other, keywords, backward=backward)
    except (RuntimeError, ValueError):
        return []
    try:
        answer, _ = _called(kernel, other, keywords, backward=backward)
    except Exception as error:  # noqa: BLE001 - as above
        return [f"{what}: raises {type(error).__name__}"]
    return [f"{what}: {difference}" for difference in _differences(answer, gold)]


def _with_nan(value: torch.Tensor) -> torch.Tensor:
    value = value.clone()
    value.view(-1)[value.numel() // 2] = torch.nan
    return value


def _differences(answer: list[torch.Tensor], gold: list[torch.Tensor]) -> list[str]:
    """Outputs, or gradients, that are none of the op's."""
    if len(answer) != len(gold):
        return [f"{len(answer)} outputs for {len(gold)}"]
    found = []
    for at, (got, want) in enumerate(zip(answer, gold, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            found.append(f"output {at} is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}")
            continue
        got_64, want_64 = got.double(), want.double()
        if not torch.equal(got_64.isnan(), want_64.isnan()):
            found.append(f"output {at} has {int(got.isnan().sum())} NaN, not {int(want.isnan().sum())}")
        error, scale = (got_64 - want_64).nan_to_num().abs().max(), want_64.nan_to_num().abs().max()
        if error > ERROR * scale:
            found.append(f"output {at} is off by {error / scale:.1e} of its largest number")
    return found


if __name__ == "__main__":
    main()
