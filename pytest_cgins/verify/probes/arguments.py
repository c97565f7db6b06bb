"""Probe `arguments`: what the recorded call left at one value is changed, and must count.

Scalars are recorded with one value each, masks often with all of it let through, and class indices without one that
is to be ignored: a kernel that knows these by heart, or leaves them out, is right on all that was recorded. So is one that
keeps fp32 numbers in a format of fewer exponents: the first argument comes very large and very small, too. What is
legal, and what counts, torch itself says: values of plain arguments, and masks, are tried until it takes one that makes a difference. A kernel may
refuse it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import E8M0
from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.trace import Argument, OpCall, Value
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import with_value
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify import inputs
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import ENTRIES, Semantics, each_word, integer_of, is_eps, op_word
from pytest_cgins.verify.size_search import ProbedCall
from pytest_cgins.verify.tolerance import all_finite
from pytest_cgins.verify.value_search import CALMING, NAME, SMALL_EPS, VECTORS, Change, ValueSearch, is_axis

__all__ = ["NAME", "sets"]

_TIMES_EPS = 1024.0
"""From 1e-5 to 1e-2: beside variances near 1 a factor of 4 is not seen."""
_FACTOR = 0.75
"""Stays within [0, 1], and on its side of 0."""
_COUNTED = frozenset({"alpha", "beta"})
"""Scalars that are often recorded as whole numbers, and need not be."""
_UNSAID = {"add": "alpha", "sub": "alpha"}
"""Factors that calls of torch's built-in functions leave at 1 by not naming them."""
_PERIODIC = frozenset({"sin", "cos"})
_KEEP_DIGITS = each_word(
    "acos acosh asin asinh atan atan2 atanh ceil cosh cumsum erf erfc exp2 expm1 floor hypot log log10 log1p log2 logaddexp "
    "logit logsumexp norm normalize reciprocal round rsqrt sign sinh sqrt square trunc vector_norm"
)
"""Further ops of torch that do at both ends."""
_ON_INTEGERS = each_word(
    "abs add amax amin argmax argmin argsort clamp cummax cummin cumsum diff div eq floor_divide floordiv fmod ge gt le lt max "
    "maximum min minimum mod mul ne neg remainder sign sort sub sum topk"
)
"""Ops of torch that compute with integers, and do not only go where they say."""
OTHER_SEED = "another seed"
"""Name of the set of random ops."""
_UNSCALED = frozenset({"float32", "int64", "bool"})
"""Beside any other type a number may be out of range."""
_LARGE, _SMALL = (30, 36), (-27, -24)
"""Exponents: beyond fp16, and beyond integers of 32 bits; fp64 keeps the digits of 1 + x."""
_LOOSER = 16.0
"""Limits then, as a multiple of the usual ones: of numbers that are nearly equal torch is exact by luck, a plain loop is not."""
_IGNORED = -100
"""What cross entropies ignore unless they are told otherwise."""


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """The sets, or none and why."""
    builder, reference_set, small = probed_call.builder, probed_call.reference_set, probed_call.small
    semantics, key = builder.semantics, f"{key}/{NAME}"
    call, changed = _with_other_scalars(reference_set.call, semantics)
    tensors = reference_set.tensors()
    changed += _change_lone_numbers(semantics, tensors)
    generator = torch.Generator().manual_seed(seed_of(key) % 2**63)
    for index in _masks(semantics, reference_set):
        if _block_some(tensors[index], generator):
            changed.append(semantics.names[index])
    if (ignoring := _ignoring(semantics, reference_set)) is not None:
        target, ignored = ignoring
        tensors[target].view(-1)[1::5] = ignored
        changed.append("target")
    input_sets = []
    if changed:
        other = builder.make(f"other {', '.join(changed)}", tensors, probe=NAME, call=call)
        input_sets.append(replace(other, origin=reference_set))
    input_sets += _empty_rows(builder, reference_set)
    if ignoring is not None:
        input_sets += _ignoring_a_class(builder, reference_set, *ignoring)
    if builder.random and (context := reference_set.context).rng_seed is not None:
        context = replace(context, rng_seed=context.rng_seed + 1)
        input_sets.append(
            replace(reference_set.named(OTHER_SEED, NAME), context=context, origin=reference_set)
        )
    if small.nbytes <= _LIMIT_BYTES:
        input_sets += _option_sets(probed_call, key)
        # Along another axis there are often a thousand rows where there were three.
        if not probed_call.interpreted and probed_call.extra_dimension is not None:
            input_sets += _axis_sets(builder, probed_call.extra_dimension)
        input_sets += _scaled(builder, small, key)
        input_sets += _far_integers(builder, small, key)
    return input_sets, "" if input_sets else "the call has no scalar and no mask that could be another"


def _ignoring(semantics: Semantics, reference_set: InputSet) -> tuple[int, int] | None:
    """The tensor that holds classes, and which of them is ignored."""
    ignored = integer_of(reference_set.call, "ignore_index", _IGNORED)
    if ignored is None or op_word(reference_set.call) not in ("cross_entropy", "nll_loss"):
        return None
    for index, meta in enumerate(reference_set.layout.metas):
        is_integers = meta.dtype == "int64" and meta.numel > 1 and not meta.is_expanded
        if semantics.names.get(index) == "target" and is_integers:
            return index, ignored
    return None


def _ignoring_a_class(
    builder: InputSetBuilder, reference_set: InputSet, target: int, ignored: int
) -> Iterator[InputSet]:
    """The call with a class that is ignored, in the place of what was: targets may hold the old one, and torch takes these no more."""
    tensors, name = reference_set.tensors(), "ignore_index"
    classes = tensors[target].view(-1)
    counted = classes[classes != ignored]
    if not len(counted) or name in dict(builder.semantics.fixed):
        return
    other = int(counted[len(counted) // 2])
    classes[classes == ignored] = other
    arguments = tuple(
        with_value(one, replace(one.value, value=other)) if one.name == name else one
        for one in reference_set.call.arguments
    )
    call = replace(reference_set.call, arguments=arguments)
    made = builder.make(f"other {name}={other}", tensors, probe=NAME, call=call)
    if call != reference_set.call and all(all_finite(output.answer) for output in made.expected.outputs):
        yield replace(made, origin=reference_set)


def _empty_rows(builder: InputSetBuilder, reference_set: InputSet) -> list[InputSet]:
    """The call with a mask that lets nothing through in one row, where torch answers 0 to that row."""
    tensors, semantics, names = reference_set.tensors(), builder.semantics, []
    for index in _masks(semantics, reference_set):
        mask = tensors[index]
        if mask.ndim > 1 and mask.shape[-2] > 1:
            inputs.block_first_row(mask)
            names.append(semantics.names[index])
    if not names:
        return []
    made = builder.make(f"a row of {', '.join(names)} that lets nothing through", tensors, probe=NAME)

    def zeros(input_set: InputSet) -> int:
        answers = [one.answer.reshape(one.shape) for one in input_set.expected.outputs if one.shape]
        return sum(int((answer == 0).all(-1).sum()) for answer in answers)

    finite = all(all_finite(output.answer) for output in made.expected.outputs)
    return [replace(made, origin=reference_set)] if finite and zeros(made) > zeros(reference_set) else []


def _scaled(builder: InputSetBuilder, small: InputSet, key: str) -> Iterator[InputSet]:
    """fp32 numbers near the ends of what other formats hold: the first argument times a large and a small power of two.

    Of torch's own ops that keep their digits there, of which a sine does not; of a user's, small ones.
    """
    name, metas, semantics = op_word(builder.call), small.layout.metas, builder.semantics
    its_own, derived = builder.call.op.startswith("torch."), is_derived(builder.call.op)
    known = not its_own or name in (ENTRIES.keys() | _KEEP_DIGITS) - _PERIODIC
    # Numbers that are all alike to an op make ties.
    known = known and (its_own or not small.returns_integers)
    if not known or derived or builder.random or {meta.dtype for meta in metas} - _UNSCALED:
        return
    draw = random.Random(seed_of(key))  # noqa: S311
    for ends in (_LARGE, _SMALL)[not its_own : 2 - (semantics.kind == "norm")]:  # a small row is eps
        tensors = rebuild(metas, small.layout.spans, "cpu")
        exponent = draw.randint(*ends)
        for index, tensor in [*inputs.data(semantics, tensors)][: 0 if semantics.declared.domain else 1]:
            tensor.mul_(2.0**exponent)
            shown = f"other {semantics.names.get(index, index)} by 2^{exponent}"
            input_set = builder.make(shown, tensors, probe=NAME, call=small.call)
            if all(all_finite(output.answer) for output in input_set.expected.outputs):
                yield replace(input_set.looser(_LOOSER, rms_times=_LOOSER), origin=small)


def _far_integers(builder: InputSetBuilder, small: InputSet, key: str) -> Iterator[InputSet]:
    """Integers of both signs, up to where no sum or product of a row is beyond their type: more than fp32 and fp64 hold exactly.

    Each second one is that before and one more.
    """
    tensors = small.tensors()
    chosen = [one for one in tensors if one.dtype in (torch.int32, torch.int64) and one.numel() > 1]
    name = op_word(builder.call).strip("_")
    if not builder.call.op.startswith("torch.") or name not in _ON_INTEGERS or len(chosen) < len(tensors):
        return
    generator = torch.Generator().manual_seed(seed_of(f"{key}/integers") % 2**63)
    metas = zip(chosen, small.layout.metas, strict=True)
    for tensor in (one for one, meta in metas if not meta.is_expanded):
        bits = 8 * tensor.element_size() - 2
        bits = bits // 2 if name == "mul" else bits
        # What torch itself sums in int64 may be as large as its type holds.
        bits -= max(tensor.shape).bit_length() if tensor.dtype == torch.int64 else 0
        flat = torch.randint(1, 1 << bits, (tensor.numel(),), generator=generator)
        flat >>= torch.randint(0, bits - 1, flat.shape, generator=generator) * (
            torch.arange(len(flat)) % 3 == 0
        )
        flat.clamp_min_(1)  # some ops divide
        flat[1::2] = flat[: len(flat) // 2 * 2 : 2] + 1
        flat *= torch.randint(0, 2, flat.shape, generator=generator) * 2 - 1
        tensor.copy_(flat.reshape(tensor.shape))
    with suppress(Exception):  # an op of a user may refuse by any exception
        yield replace(builder.make("other integers", tensors, probe=NAME, call=small.call), origin=small)


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
    unsaid = _UNSAID.get(op_word(call).strip("_"))
    if unsaid and unsaid not in fixed and all(argument.name != unsaid for argument in call.arguments):
        changed.append(unsaid)
        arguments.append(Argument(name=unsaid, value=Value(kind="int", value=2), passed="keyword"))
    return replace(call, arguments=tuple(arguments)), changed


def _change_lone_numbers(semantics: Semantics, tensors: Sequence[Tensor]) -> list[str]:
    """Have tensors without dimensions, as scales of a whole tensor are, hold another number, as scalars do; their names."""
    kept = {name for name, dim in semantics.fixed if dim is None} | dict(semantics.declared.roles).keys()
    changed: list[str] = []
    for index, tensor in enumerate(tensors):
        name = semantics.names.get(index, "")
        if tensor.ndim == 0 and tensor.is_floating_point() and tensor.dtype != E8M0 and name not in kept:
            number = float(tensor)
            tensor.fill_(_FACTOR ** (1 + len(changed)) * number)  # none like another
            changed += [name] if math.isfinite(number) and float(tensor) != number else []
    return changed


def _other(argument: Argument) -> Value | None:
    """Another value of a scalar, None for what is not a number that may be another."""
    value = argument.value
    if value.kind == "int" and argument.name in _COUNTED:
        return replace(value, value=int(value.value or 0) + 1)
    if value.kind != "float":
        return None
    number = float.fromhex(str(value.value))
    if is_eps(argument.name):
        number = number * _TIMES_EPS if number <= SMALL_EPS else 4 * number
    elif not number or not math.isfinite(number):
        return None  # 0 switches something off, mostly
    else:
        number *= _FACTOR
    return replace(value, value=number.hex())


def _masks(semantics: Semantics, reference_set: InputSet) -> Iterator[int]:
    for index, meta in enumerate(reference_set.layout.metas):
        numbers = meta.dtype == "bool" or "float" in meta.dtype
        masks = index in semantics.names and numbers and semantics.kept(index, meta) == "mask"
        if masks and meta.shape and meta.numel > 1 and not meta.is_expanded:
            yield index


def _block_some(mask: Tensor, generator: torch.Generator) -> bool:
    """Block a quarter of what a mask lets through, but for the first of each row; whether that changed anything."""
    blocked = torch.rand(mask.shape, generator=generator) < 0.25
    blocked[..., 0] = False
    open_ = mask if mask.dtype == torch.bool else mask == 0
    chosen = blocked & open_
    mask[chosen] = False if mask.dtype == torch.bool else -torch.inf
    return bool(chosen.any())


_LIMIT_BYTES = 512 << 10
"""Larger arguments are not run some dozens of times."""
_MOST = 8
"""Arguments that are changed by themselves."""
_MOST_WORDS = 3
"""Other values of one that is a word."""
_LEFT = frozenset((
    "inplace", "out", "dtype", "device", "layout", "generator", "memory_format", "pin_memory",
    "requires_grad", "size_average", "reduce", "training", "sparse", "sorted", "stable", "max_norm",
))  # fmt: skip
"""What says where an answer lies, and of which type, and what torch itself has given up."""


def _option_sets(probed_call: ProbedCall, key: str) -> list[InputSet]:
    """Each plain argument with another value by itself, then as many at once as torch takes, and all of these but one.

    Of a random op, values with which it is none: what is drawn shows no option, and these are compared as of other ops.
    """
    original = probed_call.small
    draw = random.Random(seed_of(key))  # noqa: S311
    search = ValueSearch(replace(probed_call.builder, random={}), original, draw, probed_call.others)
    fixed = {argument for argument, _ in probed_call.builder.declared.fixed}
    arguments = [
        argument
        for argument in original.call.arguments
        if argument.passed != "state"
        and argument.name not in fixed
        and (argument.name in CALMING if probed_call.builder.random else argument.name not in _LEFT)
    ]
    search.draw.shuffle(arguments)
    input_sets: list[InputSet] = []
    together, last = list[Change](), original
    for argument in arguments:
        most = 0 if len(input_sets) >= _MOST else _MOST_WORDS if argument.value.kind == "str" else 1
        legal = [*itertools.islice(search.each([], argument), most)]
        alone = next(iter(legal), None)
        if alone is not None:
            input_sets += [input_set for input_set, _ in legal]
            both = search.first(together, argument) if together else alone
            together = both[1] if both is not None else together
            last = both[0] if both is not None else last
        elif is_axis(argument) and (turned := search.turned(argument)) is not None:
            input_sets.append(turned)
    if len(together) > 1:
        input_sets.append(last)
    return [*input_sets, *search.but_one(together)]


def _axis_sets(builder: InputSetBuilder, extra_dimension: InputSet) -> list[InputSet]:
    """The call in a dimension more along its middle axis, along the outer two, and normalized over two axes, if torch takes it."""
    search = ValueSearch(builder, extra_dimension, random.Random(0), ())  # noqa: S311 - nothing is drawn
    before = search.answer([])
    fixed = {argument for argument, _ in builder.declared.fixed}
    input_sets = [
        search.legal(changes, before)
        for changes in _other_axes(extra_dimension)
        if not fixed & {argument.name for argument, _ in changes}
    ]
    return [one.named(f"{one.expected.name} in a dimension more", NAME) for one in input_sets if one]


def _other_axes(extra_dimension: InputSet) -> Iterator[list[Change]]:
    """What to change of a call so that it runs along other axes of its first argument."""
    tensors = extra_dimension.tensors()
    for argument in extra_dimension.call.arguments:
        if argument.name == "dim":
            middle, outer = _whole_numbers((-2,))[0], _whole_numbers((0, -1))
            yield [(with_value(argument, middle), None)]
            yield [(with_value(argument, Value(kind="tuple", items=outer)), None)]
        elif argument.name == "normalized_shape" and len(argument.value.items) == 1 and tensors[0].ndim > 1:
            shape = tuple(tensors[0].shape[-2:])
            wide = [
                (argument, tensors[int(argument.value.value or 0)].expand(shape).contiguous())
                for argument in extra_dimension.call.arguments
                if argument.name in VECTORS and argument.value.kind == "tensor"
            ]
            yield [
                (replace(argument, value=replace(argument.value, items=_whole_numbers(shape))), None),
                *wide,
            ]


def _whole_numbers(numbers: Sequence[int]) -> tuple[Value, ...]:
    return tuple(Value(kind="int", value=number) for number in numbers)
