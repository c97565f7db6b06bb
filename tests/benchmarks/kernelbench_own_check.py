"""What KernelBench's own check accepts on its own inputs at its own sizes, where it cannot tell a wrong answer.

python tests/benchmarks/kernelbench_own_check.py --kernelbench CHECKOUT [--device cuda] [--max-gib 16] [--json out.json]

The check is `torch.allclose(answer, reference, atol=t, rtol=t)` on what `get_inputs` draws, with t of 1e-2 (version 0)
and 1e-4 (version 1, fp32). Nothing of pytest-cgins takes part; `kernelbench_forged.py` gates the same forged answers.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from kernelbench import problems
from torch import Tensor

TOLERANCES = (1e-2, 1e-4)
SEED = 42


@dataclass(frozen=True)
class Row:
    """One problem."""

    problem: str
    mib: float
    """Inputs, parameters and answer."""
    accepted: dict[str, list[float]] = field(default_factory=dict)
    """Forgery → tolerances with which it is accepted, of those that can be made."""
    why: dict[str, str] = field(default_factory=dict)
    """Forgery → what was measured, where it is accepted."""
    left_out: str = ""
    """Why it was not judged; "" if it was."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="checkout, or its folder level1")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-gib", type=float, default=16.0, help="inputs, parameters and answer together")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--only", default="", help="regular expression on the problem's file name")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.deadline
    torch.set_default_device(arguments.device)
    rows = []
    for path in problems(arguments.kernelbench, arguments.only):
        if time.monotonic() > end:
            rows.append(Row(path.stem, 0.0, left_out="--deadline had passed"))
            continue
        rows.append(_row(path, arguments.max_gib * 2**30))
        print(rows[-1], file=sys.stderr, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    document = {"device": name, "torch": torch.__version__, "problems": [asdict(row) for row in rows]}
    print(report(document))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _row(path: Path, limit_nbytes: float) -> Row:
    try:
        module = _imported(path)
        torch.manual_seed(SEED)
        model = module.Model(*module.get_init_inputs()).eval()
        inputs = module.get_inputs()
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        nbytes = sum(one.numel() * one.element_size() for one in (*tensors, *model.parameters()))
        if nbytes > limit_nbytes:
            return Row(path.stem, nbytes / 2**20, left_out="larger than --max-gib")
        with torch.inference_mode():
            reference = model(*inputs)
            nbytes += reference.numel() * reference.element_size()
            return _judged(path.stem, nbytes / 2**20, model, inputs, reference)
    except (RuntimeError, MemoryError) as error:  # out of memory among them
        return Row(path.stem, 0.0, left_out=(str(error).splitlines() or [type(error).__name__])[0][:120])


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"problem_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _judged(name: str, mib: float, model: Any, inputs: Sequence[Any], reference: Tensor) -> Row:
    row = Row(name, mib)
    for forgery, make in _forgeries(model, inputs, reference):
        try:
            answer = make()
        except RuntimeError:  # torch has no half precision for it here
            continue
        row.accepted[forgery] = [t for t in TOLERANCES if torch.allclose(answer, reference, atol=t, rtol=t)]
        if row.accepted[forgery]:
            row.why[forgery] = _why(forgery, answer, reference, inputs)
        del answer
    return row


def _forgeries(
    model: Any, inputs: Sequence[Any], reference: Tensor
) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    yield "zeros", lambda: torch.zeros_like(reference)
    yield "ones", lambda: torch.ones_like(reference)
    alike = [
        one
        for one in inputs
        if isinstance(one, Tensor) and one.shape == reference.shape and one.dtype == reference.dtype
    ]
    if alike:
        yield "input_copy", alike[0].clone
    if all(one.is_floating_point() for one in inputs if isinstance(one, Tensor)):
        yield (
            "positive_only",
            lambda: model(*[one.abs() if isinstance(one, Tensor) else one for one in inputs]),
        )

        def half() -> Tensor:
            narrow = [one.half() if isinstance(one, Tensor) else one for one in inputs]
            answer: Tensor = model.half()(*narrow).to(reference.dtype)
            return answer

        yield "half_inside", half  # the last: it changes the model


def _why(forgery: str, answer: Tensor, reference: Tensor, inputs: Sequence[Any]) -> str:
    if forgery == "positive_only":
        least = min(float(one.min()) for one in inputs if isinstance(one, Tensor))
        if least >= 0:
            return f"the least input is {least:.3g}: none is negative"
    wide = reference.double()
    error = float((answer.double() - wide).abs().max())
    return f"off by at most {error:.3g}, where answers reach {float(wide.abs().max()):.3g}"


def report(document: dict[str, Any]) -> str:
    """How many problems accept each forgery, and which, with what was measured."""
    rows = document["problems"]
    judged = [row for row in rows if not row["left_out"]]
    lines = [f"{len(judged)} of {len(rows)} problems on {document['device']}.", ""]
    lines += [f"| forgery | made | accepted within {' | within '.join(f'{t:g}' for t in TOLERANCES)} |"]
    lines += ["|---|---|" + "---|" * len(TOLERANCES)]
    for forgery in dict.fromkeys(name for row in judged for name in row["accepted"]):
        made = [row["accepted"][forgery] for row in judged if forgery in row["accepted"]]
        counts = " | ".join(str(sum(t in within for within in made)) for t in TOLERANCES)
        lines.append(f"| {forgery} | {len(made)} | {counts} |")
    lines += ["", "| problem | accepts | within | measured |", "|---|---|---|---|"]
    for row in judged:
        for forgery, why in row["why"].items():
            if forgery in ("zeros", "ones", "input_copy"):
                within = ", ".join(f"{t:g}" for t in row["accepted"][forgery])
                lines.append(f"| {row['problem']} | {forgery} | {within} | {why} |")
    left = [f"{row['problem']} ({row['left_out']})" for row in rows if row["left_out"]]
    return "\n".join([*lines, *([f"\nnot judged: {'; '.join(left)}"] if left else [])])


if __name__ == "__main__":
    raise SystemExit(main())
