"""What a case, and each of its sets of inputs, can tell from the right answer: forged answers that some rule must refuse.

The tolerance follows torch's own error, and that is as large as the answer where torch cancels all digits. Each set of
inputs must refuse what it would be wrong to accept, in each kind of rows; edge rows that do not are drawn milder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Literal, get_args

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import equal, movable, readable
from pytest_cgins.core.verdict import ForgeryCheck
from pytest_cgins.verify import inputs
from pytest_cgins.verify.compare import ExpectedSet, accepts
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.tolerance import reduced

Forgery = Literal["zeros", "ones", "input-copy", "permuted-gold"]
FORGERIES: tuple[Forgery, ...] = get_args(Forgery)


def check(sets: Sequence[ExpectedSet], tolerance: Tolerance) -> tuple[ForgeryCheck, ...]:
    """One result for each forgery that can be made for this case.

    A forgery is caught if some rule refuses it on some set of inputs. Where several inputs could be
    copied, each must be caught, but for one that equals the answer on other inputs than the recorded too.
    """
    results = []
    identical = set.intersection(*map(_identical, sets)) if len(sets) > 1 else set()
    for forgery in FORGERIES:
        variants = [list(_forge(forgery, expected, identical)) for expected in sets]
        count = min((len(variant) for variant in variants), default=0)
        if count == 0:
            continue
        caught = all(
            any(
                not accepts(expected, variant[number], tolerance)
                for expected, variant in zip(sets, variants, strict=True)
            )
            for number in range(count)
        )
        results.append(ForgeryCheck(forgery=forgery, caught=caught))
    return tuple(results)


def forged_by_chance(expected: ExpectedSet) -> bool:
    """Whether a forged answer equals torch's on few elements, which other draws may tell apart: relu of six numbers < 0."""
    truths = [output.answer for output in expected.outputs]
    if sum(truth.numel() for truth in truths) > _FEW:
        return False
    return any(
        all(map(equal, forged, truths))
        for forgery in FORGERIES
        for forged in _forge(forgery, expected, set())
    )


def _identical(expected: ExpectedSet) -> set[str]:
    """Arguments that equal every output: dropout in evaluation is to give its input."""
    return {
        name
        for name, argument in expected.arguments.items()
        if expected.outputs
        and all(
            _alike(argument, output.answer) and equal(argument, output.answer) for output in expected.outputs
        )
    }


def _forge(forgery: Forgery, expected: ExpectedSet, identical: set[str]) -> Iterator[list[Tensor]]:
    """Forged outputs, in place of all outputs; several for several inputs that could be copied."""
    truths = [output.answer for output in expected.outputs]
    if not truths:
        return
    if forgery == "zeros":
        yield [torch.zeros_like(truth) for truth in truths]
    elif forgery == "ones":
        yield [torch.ones_like(truth) for truth in truths]
    elif forgery == "permuted-gold":
        # Of random numbers any order is as good, and some ops promise none.
        drawn = any(output.draws is not None for output in expected.outputs)
        moved = [permuted(truth) for truth in truths]
        free = expected.arrangement is not None and all(map(equal, expected.arranged(moved), truths))
        if not drawn and not free and any(truth.numel() > 1 for truth in truths):
            yield moved
    else:
        for name, argument in expected.arguments.items():
            if name not in identical and any(_alike(argument, truth) for truth in truths):
                yield [argument if _alike(argument, truth) else truth for truth in truths]


def permuted(answer: Tensor) -> Tensor:
    """Rows moved down by one, the last to the top; elements where there is but one row."""
    if answer.numel() == 0:
        return answer
    rows = movable(answer.reshape(-1, answer.shape[-1]) if answer.ndim else answer.reshape(1, 1))
    return rows.roll(1, 0 if rows.shape[0] > 1 else 1).view(answer.dtype).reshape(answer.shape)


def _alike(argument: Tensor, answer: Tensor) -> bool:
    return argument.shape == answer.shape and argument.dtype == answer.dtype


_TELLING = 0.1
"""Part of the rows' usual size by which a forged answer must differ: what is closer need not be told."""
_ATTEMPTS = 6
"""How often edge rows are drawn at most."""
_MILD = 1.5
"""Mean or deviation of rows that need not be milder."""
_FEW = 64
"""Elements beyond which no draw makes a forged answer right by chance: 2⁻⁶⁴ for the signs of relu's input."""
_LOOKED_AT = 1000
"""Elements of an output that nearly always refuse a forged answer."""


Forge = Callable[[Tensor], Tensor]
"""A wrong answer's elements in places of the flat output, in float64."""
Blind = Mapping[tuple[int, int], str]
"""Wrong answers that would pass, by the numbers of output and row."""


def blind_to(expected: ExpectedSet) -> str:
    """A wrong answer that would pass on a set of inputs, in words; "" if all are refused."""
    found = _blind_rows(expected, ((output, None) for output in expected.outputs))
    return _words(found) if found else ""


def edge_set(
    make: Callable[[Sequence[Tensor]], InputSet],
    draw: Callable[[inputs.Milder], list[Tensor]],
    semantics: Semantics,
) -> tuple[InputSet, list[str]]:
    """The edge inputs, with rows that tell, and what is to be said of them; whatever the op raises is raised."""
    milder: dict[int, int] = {}
    tried: list[tuple[int, InputSet, Blind, inputs.Milder]] = []
    for _ in range(_ATTEMPTS):
        input_set = make(draw(milder))
        blind = _blind_rows(input_set.expected, _numbered(input_set, semantics))
        tried.append((len(blind), input_set, blind, milder))
        harsh = _harshest(input_set, semantics, milder) if blind else None
        if harsh is None:
            break
        milder = {**milder, harsh: milder.get(harsh, 0) + 1}
    _, input_set, blind, kept = min(tried, key=lambda one: one[0])
    notes = []
    if kept:
        dtype = _dtype(input_set, semantics)
        old, new = (inputs.edge_patterns(semantics, dtype, times) for times in ({}, kept))
        rows = "; ".join(f"{_row(old[number])} became {_row(new[number])}" for number in sorted(kept))
        told = _words(tried[0][2])
        notes.append(f"edge rows were drawn milder, because on harsher ones {told}: {rows}")
    if blind:
        told = _words(blind)
        notes.append(f"edge inputs: {told}, so these inputs prove nothing")
    return input_set, notes


def _blind_rows(expected: ExpectedSet, numbered: Iterable[tuple[ExpectedOutput, Tensor | None]]) -> Blind:
    return {
        (output.index, row): name
        for output, numbers in numbered
        for row, name in _blind(output, expected, numbers).items()
    }


def _words(blind: Blind) -> str:
    """Alike for ops of one output and of several, so that a summary counts them together."""
    (output, _), name = next(iter(blind.items()))
    return f"{name} would pass as the right {f'output {output}' if output else 'answer'}"


def _row(pattern: tuple[float, float]) -> str:
    shift, scale = pattern
    return f"mean {shift:.4g}, deviation {scale:.4g}"


def _dtype(input_set: InputSet, semantics: Semantics) -> torch.dtype:
    """Dtype of the data that the rows are in."""
    data = inputs.data(semantics, input_set.tensors())
    return data[0][1].dtype if data else torch.float32


def _harshest(input_set: InputSet, semantics: Semantics, milder: Mapping[int, int]) -> int | None:
    """The edge row on which torch itself errs most, of those that can still be milder; None if none can."""
    patterns = inputs.edge_patterns(semantics, _dtype(input_set, semantics), milder)
    harsh = {number: max(abs(shift), scale) for number, (shift, scale) in enumerate(patterns)}
    harsh = {number: size for number, size in harsh.items() if size > _MILD}
    errors: dict[int, float] = {}
    for output, numbers in _numbered(input_set, semantics):
        if output.scale is not None and numbers is not None and output.answer.numel():
            off = (output.answer.reshape(-1).to(torch.float64) - output.scale.reference).abs()
            greatest = _per_row(off.nan_to_num(nan=0.0, posinf=0.0), numbers, "amax")
            errors |= {n: max(errors.get(n, 0.0), float(one)) for n, one in enumerate(greatest)}
    # Where rows are not seen in the output, the largest numbers are what cancels.
    return max(harsh, key=lambda number: (errors.get(number, 0.0), harsh[number]), default=None)


def _numbered(input_set: InputSet, semantics: Semantics) -> Iterator[tuple[ExpectedOutput, Tensor | None]]:
    """Outputs, and which edge row each of their elements is made of."""
    tensors = input_set.tensors()
    for output in input_set.expected.outputs:
        yield output, inputs.edge_numbers(semantics, input_set.call, tensors, output.answer)


def _blind(output: ExpectedOutput, expected: ExpectedSet, numbers: Tensor | None) -> dict[int, str]:
    """Wrong answers that would pass in an output, by the number of the row; all is of one row without numbers."""
    scale = output.scale
    if scale is None or output.draws is not None or not output.answer.numel():
        return {}
    right, answer = scale.reference, output.answer.reshape(-1)
    finite = torch.isfinite(right) & torch.isfinite(readable(answer))

    def distances(forgeries: Sequence[tuple[str, Forge]], places: Tensor) -> Tensor:
        forged = torch.stack([forge(places) for _, forge in forgeries])
        return torch.where(finite[places], forged - right[places], 0.0).abs()

    everywhere = torch.arange(len(right), device=right.device)
    forgeries = list(_forgeries(output, expected))
    if numbers is None:
        # One element is enough to refuse an answer, and one of few does in nearly every set.
        few = everywhere[:: -(-len(right) // _LOOKED_AT)]
        least = scale.unit[few] * scale.peak_limit
        near = (distances(forgeries, few) <= least).all(1).tolist()
        forgeries = [*compress(forgeries, near)]
        numbers = torch.zeros_like(everywhere)
    if not forgeries:
        return {}
    counts = _per_row(finite.to(torch.float64), numbers, "sum")
    sizes = (_per_row(torch.where(finite, right, 0.0) ** 2, numbers, "sum") / counts).sqrt()
    # Errors of large rows hide small ones, which other sets of inputs tell.
    usual = float(sizes.nan_to_num(0.0).square().mean().sqrt())
    found: dict[int, str] = {}
    for name, forge in forgeries:
        (off_by,) = distances([(name, forge)], everywhere)
        off = (_per_row(off_by**2, numbers, "sum") / counts).sqrt()
        z = off_by / scale.unit
        passes = _per_row(z, numbers, "amax") <= scale.peak_limit
        passes &= (_per_row(z**2, numbers, "sum") / len(z)).sqrt() <= scale.rms_limit
        for number in (passes & (off > 0) & (off >= _TELLING * usual)).nonzero().reshape(-1).tolist():
            found.setdefault(number, name)
    return found


def _forgeries(output: ExpectedOutput, expected: ExpectedSet) -> Iterator[tuple[str, Forge]]:
    """Wrong answers, each with its name and what it has in some places of the flat output."""
    answer = output.answer
    yield "zeros", lambda places: torch.zeros_like(places, dtype=torch.float64)
    yield "ones", lambda places: torch.ones_like(places, dtype=torch.float64)
    yield "0, ½ and 1 in turns", lambda places: (places % 3).to(torch.float64) / 2
    if expected.arrangement is None:
        yield "its rows in another order", _elements(permuted(answer))
    for name, argument in expected.arguments.items():
        if argument.shape == answer.shape and argument.dtype == answer.dtype:
            yield f"a copy of `{name}`", _elements(argument)


def _elements(tensor: Tensor) -> Forge:
    flat = tensor.reshape(-1)
    return lambda places: flat[places].to(torch.float64)


def _per_row(values: Tensor, numbers: Tensor, how: str) -> Tensor:
    """Sum or greatest value of each row."""
    return reduced(values, numbers, int(numbers.max()) + 1, how)
