"""Probe `arguments`: what the recorded call left at one value is changed, and must count.

Scalars are recorded with one value each, masks often with all of it let through, and class indices without one that
is to be ignored: a kernel that knows these by heart, or leaves them out, is right on all that was recorded. So is one that
keeps fp32 numbers in a format of fewer exponents: the first argument comes very large and very small, too. What is
legal, and what counts, torch itself says (see `option_trial.py`); a kernel may refuse it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.model import Argument, OpCall, Value
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import with_value
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify import inputs, option_trial
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import Semantics
from pytest_cgins.verify.semantics.call import word
from pytest_cgins.verify.semantics.entries import ENTRIES

NAME = "arguments"
_SMALL_EPS = 1e-3
_TIMES_EPS = 1024.0
"""From 1e-5 to 1e-2: beside variances near 1 a factor of 4 is not seen."""
_FACTOR = 0.75
"""Stays within [0, 1], and on its side of 0."""
_COUNTED = frozenset({"alpha", "beta"})
"""Scalars that are often recorded as whole numbers, and need not be."""
_UNSAID = {"add": "alpha", "sub": "alpha"}
"""Factors that calls of torch's built-in functions leave at 1 by not naming them."""
_PERIODIC = frozenset({"sin", "cos"})
_UNSCALED = frozenset({"float32", "int64", "bool"})
"""Beside any other type a number may be out of range."""
_EXPONENTS = (18, 30)
_LOOSER = 16.0
"""Limits then, as a multiple of the usual ones: of numbers that are nearly equal torch is exact by luck, a plain loop is not."""
_IGNORED = -100
"""What cross entropies ignore unless they are told otherwise."""


def sets(  # noqa: PLR0917
    builder: InputSetBuilder,
    semantics: Semantics,
    base: InputSet,
    key: str,
    small: InputSet,
    others: Sequence[OpCall] = (),
    ranked: InputSet | None = None,
) -> tuple[list[InputSet], str]:
    """The sets, or none and why.

    Args:
        builder: of the trace.
        semantics: of its call.
        base: the set whose numbers are taken.
        key: seed of the session and name of the trace.
        small: the same on small arguments, on which options are tried.
        others: what else was recorded of the op.
        ranked: the same in a dimension more, whose axes are tried, if torch takes it.
    """
    call, changed = _with_other_scalars(base.call, semantics)
    tensors = rebuild(base.layout.metas, base.layout.spans, "cpu")
    generator = torch.Generator().manual_seed(seed_of(f"{key}/{NAME}") % 2**63)
    for index in _masks(semantics, base):
        if _block_some(tensors[index], generator):
            changed.append(semantics.names[index])
    for index in _classes(semantics, base):
        _ignore_some(tensors[index], _ignored(base.call))
        changed.append(semantics.names[index])
    made = []
    if changed:
        one = builder.make(f"other {', '.join(changed)}", tensors, probe=NAME, call=call)
        made.append(replace(one, origin=base))
    if sum(span.nbytes for span in small.layout.spans) <= option_trial.LIMIT_BYTES:
        made += option_trial.sets(builder, semantics, small, f"{key}/{NAME}", others)
        made += option_trial.axes(builder, semantics, ranked) if ranked is not None else []
        made += _scaled(builder, semantics, small, f"{key}/{NAME}")
    return made, "" if made else "the call has no scalar and no mask that could be another"


def _scaled(builder: InputSetBuilder, semantics: Semantics, small: InputSet, key: str) -> Iterator[InputSet]:
    """fp32 numbers near the ends of what other formats hold: the first argument times a large and a small power of two.

    Of torch's own ops that keep their digits there, of which a sine does not.
    """
    name, metas = word(builder.call), small.layout.metas
    known = builder.call.op.startswith("torch.") and not is_derived(builder.call.op) and not builder.random
    if not known or name not in ENTRIES.keys() - _PERIODIC or {meta.dtype for meta in metas} - _UNSCALED:
        return
    draw = random.Random(seed_of(key))  # noqa: S311
    for sign in (1, -1) if semantics.kind != "norm" else (1,):  # a small row is eps
        tensors = rebuild(metas, small.layout.spans, "cpu")
        exponent = sign * draw.randint(*_EXPONENTS)
        for index, tensor in [*inputs.data(semantics, tensors)][:1]:
            tensor.mul_(2.0**exponent)
            shown = f"other {semantics.names.get(index, index)} by 2^{exponent}"
            made = builder.make(shown, tensors, probe=NAME, call=small.call)
            if all(bool(output.answer.isfinite().all()) for output in made.expected.outputs):
                yield replace(made, origin=small, expected=made.expected.looser(_LOOSER, rms_times=_LOOSER))


def _with_other_scalars(call: OpCall, semantics: Semantics) -> tuple[OpCall, list[str]]:
    fixed = {argument for argument, _ in semantics.fixed}
    changed: list[str] = []
    arguments: list[Argument] = []
    for argument in call.arguments:
        other = None if argument.name in fixed else _other(argument)
        if other is not None:
            changed.append(argument.name)
            argument = with_value(argument, other)  # noqa: PLW2901
        arguments.append(argument)
    unsaid = _UNSAID.get(word(call).strip("_"))
    if unsaid and unsaid not in fixed and all(argument.name != unsaid for argument in call.arguments):
        changed.append(unsaid)
        arguments.append(Argument(name=unsaid, value=Value(kind="int", value=2), passed="keyword"))
    return replace(call, arguments=tuple(arguments)), changed


def _other(argument: Argument) -> Value | None:
    """Another value of a scalar, None for what is not a number that may be another."""
    value = argument.value
    if value.kind == "int" and argument.name in _COUNTED:
        return replace(value, value=int(value.value or 0) + 1)
    if value.kind != "float":
        return None
    number = float.fromhex(str(value.value))
    if {"eps", "epsilon"} & set(argument.name.lower().split("_")):
        number = number * _TIMES_EPS if number <= _SMALL_EPS else 4 * number
    elif not number or not math.isfinite(number):
        return None  # 0 switches something off, mostly
    else:
        number *= _FACTOR
    return replace(value, value=number.hex())


def _masks(semantics: Semantics, base: InputSet) -> Iterator[int]:
    for index, meta in enumerate(base.layout.metas):
        overlapping = any(step == 0 and size > 1 for size, step in zip(meta.shape, meta.stride, strict=True))
        numbers = meta.dtype == "bool" or "float" in meta.dtype
        masks = index in semantics.names and numbers and semantics.kept(index, meta) == "mask"
        if masks and meta.shape and meta.numel > 1 and not overlapping:
            yield index


def _block_some(mask: Tensor, generator: torch.Generator) -> bool:
    """Block a quarter of what a mask lets through, but for the first of each row; whether that changed anything."""
    blocked = torch.rand(mask.shape, generator=generator) < 0.25
    blocked[..., 0] = False
    open_ = mask if mask.dtype == torch.bool else mask == 0
    chosen = blocked & open_
    mask[chosen] = False if mask.dtype == torch.bool else -torch.inf
    return bool(chosen.any())


def _classes(semantics: Semantics, base: InputSet) -> Iterator[int]:
    """Tensors of class indices of which some may be ignored."""
    if word(base.call) not in ("cross_entropy", "nll_loss"):
        return
    for index, meta in enumerate(base.layout.metas):
        if semantics.names.get(index) == "target" and meta.dtype == "int64" and meta.numel > 1:
            yield index


def _ignored(call: OpCall) -> int:
    given: Sequence[Value] = [
        argument.value for argument in call.arguments if argument.name == "ignore_index"
    ]
    return int(given[0].value or 0) if given and given[0].kind == "int" else _IGNORED


def _ignore_some(target: Tensor, ignored: int) -> None:
    target.view(-1)[1::5] = ignored
