"""What the case of a problem's pack tells of forged answers, by torch's own answers and the gate's own tolerance.

python kernelbench_power.py --device cpu --seed 1 --json power.json FORGERY...

Run by `kernelbench_forged.py` in a problem's folder. The forged kernels of its `candidates.py` are called here, without
a worker or a probe, on the sets of inputs that decide whether a kernel is right. A forgery that is accepted on all of
them is besides offered on the same inputs with signs drawn by lot, as far as torch takes such: whether it was the
inputs that could not tell it, or the op.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.layout import rebuild
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.modules import rebuild as rebuild_module
from pytest_cgins.packs.ops import trust
from pytest_cgins.packs.store import open_pack
from pytest_cgins.packs.values import decode
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import accepts
from pytest_cgins.verify.forgery_check import permuted
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.reference import REFUSALS

TOLERANCE = Tolerance()
Forge = Callable[[InputSet], list[Tensor]]


@dataclass(frozen=True)
class Told:
    """What the case tells of one forgery."""

    accepted: bool
    """Whether every rule accepts it on every set of inputs."""
    why: str
    """What was measured, in words."""
    signed: bool = False
    """Whether inputs of both signs would tell it, where it is accepted."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("forgeries", nargs="+", help="functions of candidates.py, or permuted_gold")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seed", type=int, required=True, help="that of the gate")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    device = "cuda:0" if arguments.device == "cuda" else "cpu"
    reader = open_pack(Path("pack"))
    (trace,) = reader.pack.traces
    trust(trace.call.op)
    prepared = prepare(trace, reader, device, arguments.seed)
    told = {name: tell(name, prepared, device) for name in arguments.forgeries}
    arguments.json.write_text(json.dumps({name: asdict(one) for name, one in told.items()}, indent=1) + "\n")
    return 0


def tell(name: str, prepared: Preparation, device: str) -> Told:
    """What the case tells of one forgery."""
    forge = _forge(name, device)
    measured: list[tuple[float, str]] = []
    for made in prepared.core:
        try:
            forged = forge(made)
        except REFUSALS as error:
            return Told(
                False, f"torch does not compute it on the {made.expected.name} inputs: {_first_line(error)}"
            )
        if not accepts(made.expected, forged, TOLERANCE):
            return Told(
                False, f"the rules refuse it on the {made.expected.name} inputs: {_worst(made, forged)[1]}"
            )
        measured.append(_worst(made, forged))
    words = [_inputs(prepared), max(measured)[1]]
    signed, why = _signed(prepared, device, forge)
    return Told(True, "; ".join(filter(None, [*words, why])), signed)


def _forge(name: str, device: str) -> Forge:
    if name == "permuted_gold":
        return lambda made: [permuted(output.answer) for output in made.expected.outputs]
    import candidates  # type: ignore[import-not-found] # the problem's own

    function = getattr(candidates, name)

    def forge(made: InputSet) -> list[Tensor]:
        call = made.call
        tensors = rebuild(made.layout.metas, made.layout.spans, device)
        given = [one for one in call.arguments if one.passed != "state"]
        positional = [decode(one.value, tensors) for one in given if one.passed == "positional"]
        keyword = {one.name: decode(one.value, tensors) for one in given if one.passed == "keyword"}
        with restore(made.context, device):
            result = function(rebuild_module(call, tensors), *positional, **keyword)
        answers = [*flatten(result)[1], *(tensors[index] for index in made.mutated)]
        return [as_real(one.detach()).contiguous() for one in answers]

    return forge


def _worst(made: InputSet, forged: Sequence[Tensor]) -> tuple[float, str]:
    """The greatest share of the tolerance that a forged answer takes, and what it is made of."""
    return max(_measured(made, forged), default=(0.0, "the op has no output"))


def _measured(made: InputSet, forged: Sequence[Tensor]) -> Iterator[tuple[float, str]]:
    for output, answer in zip(made.expected.outputs, forged, strict=True):
        on = f"on the {made.expected.name} inputs"
        if output.shape != answer.shape:
            yield math.inf, f"its shape is {list(answer.shape)}, not {list(output.shape)}, {on}"
        elif output.scale is None:
            differing = int((answer != output.answer).sum())
            yield float(differing), f"{differing} of {answer.numel()} exact elements differ {on}"
        elif answer.numel():
            bound = rules.against_reference(output.scale)
            assessed = rules.assess(answer.reshape(-1), bound)
            worst = int(assessed.relative.argmax())
            error = abs(float(answer.reshape(-1)[worst]) - float(bound.expected[worst]))
            what = (
                f"max |answer| = {float(bound.expected.abs().max()):.3g}, worst error {error:.3g} against tolerance "
                f"{bound.allowed_at(worst):.3g} (share {assessed.share:.2g}) {on}"
            )
            yield assessed.share, what


def _arguments(made: InputSet) -> list[int]:
    """Floating-point tensors that are passed, and are no state of the module."""
    call = made.call
    passed = [one.value for one in call.arguments if one.passed != "state" and one.value.kind == "tensor"]
    indices = [int(value.value or 0) for value in passed]
    return [index for index in indices if "float" in made.layout.metas[index].dtype]


def _inputs(prepared: Preparation) -> str:
    """What all inputs have in common."""
    least = math.inf
    for made in prepared.core:
        tensors = rebuild(made.layout.metas, made.layout.spans, "cpu")
        for index in _arguments(made):
            least = min(least, float(tensors[index].min()) if tensors[index].numel() else math.inf)
    if math.isinf(least):
        return "no input is a floating-point tensor"
    names = ", ".join(made.expected.name for made in prepared.core)
    return f"all inputs ≥ 0, |x| = x (least {least:.3g}; {names} inputs)" if least >= 0 else ""


def _signed(prepared: Preparation, device: str, forge: Forge) -> tuple[bool, str]:
    """Whether inputs of both signs tell a forgery, and what is to be said of it."""
    base = prepared.reference_set
    tensors = rebuild(base.layout.metas, base.layout.spans, "cpu")
    lot = torch.Generator().manual_seed(0)
    for index in _arguments(base):
        signs = torch.randint(0, 2, tensors[index].shape, generator=lot) * 2 - 1
        tensors[index].copy_(tensors[index].abs() * signs)
    try:
        made = InputSetBuilder(prepared.trace, prepared.call, device).make("signed", tensors)
        forged: list[Any] = forge(made)
    except REFUSALS as error:
        return False, f"torch does not take inputs of both signs: {_first_line(error)}"
    if any(_loses_numbers(one.answer, two.answer) for one, two in _pairs(base, made)):
        return False, "torch has no number for inputs of both signs"
    if accepts(made.expected, forged, TOLERANCE):
        return False, "inputs of both signs do not tell it either"
    return True, f"inputs of both signs, which torch takes, would tell it: {_worst(made, forged)[1]}"


def _pairs(base: InputSet, made: InputSet) -> Iterator[tuple[Any, Any]]:
    return zip(base.expected.outputs, made.expected.outputs, strict=True)


def _loses_numbers(before: Tensor, after: Tensor) -> bool:
    return int(torch.isfinite(after).sum()) < int(torch.isfinite(before).sum())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    sys.exit(main())
