"""Torch's own answers to a call: in the case's dtype, in fp32, and in fp64 as the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.device import device_of, torch_device
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.layout import Layout, dtype_name, rebuild
from pytest_cgins.core.trace import Context, OpCall, TensorMeta
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.context import restore
from pytest_cgins.verify import low_bits
from pytest_cgins.verify.probe_support import memory
from pytest_cgins.verify.probe_support.dispatch_mode import DispatchMode
from pytest_cgins.verify.rounding import TF32_BITS, rounded
from pytest_cgins.verify.tolerance import finite_distance

REFUSALS = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError)
"""What torch, and mostly an op of a user, raises on arguments that it does not take; our own errors are none of these."""
_WIDENED = 32
"""Bytes on a device for each of 16-bit inputs: three copies in fp64, and what the op makes of them."""
_TRUNCATED = 184
"""Lengths of a sum from which tensor cores err more than the op's conditioning tells: see `Lengths`."""
_SCORES_NBYTES = 1 << 30
"""Of an attention in fp64, from which it is computed in parts."""
# A prime: the lots do not fall in step with rows of any usual length.
_PERIOD = 8191
_OTHERS, _AWAY = 8, 2.0**-12
_WIDER_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Outputs of one call on one set of inputs: returned tensors first, then the mutated inputs."""

    answer: tuple[Tensor, ...]
    """t: in the recorded context and dtype."""
    answer32: tuple[Tensor, ...]
    """t32: of the inputs widened to float32; TF32 and autocast off."""
    reference: tuple[Tensor, ...]
    """r: of the inputs widened to float64."""
    perturbed: tuple[Tensor, ...] | None
    """Like r, of inputs moved by ±2⁻²⁴ of themselves, a fp32 rounding each: how well conditioned the op is
    on them; further, where long products of 16-bit numbers are summed (`Lengths`). Where r is fp32, the one thing that tells how far two right answers may lie from each other. None where that
    is not asked for, or the fp64 reference is slow to make."""
    rounded: tuple[Tensor, ...] | None
    """Like r, of inputs rounded to TF32; None unless that was asked for."""
    mutated: tuple[int, ...]
    """Indices of the input tensors that the op changed."""
    steps: float
    """Roundings of fp32 by which `perturbed` was moved."""
    note: str
    """How the reference was made where float64 was not to be had; "" otherwise."""

    def arranged(self, arrange: Callable[[Sequence[Tensor]], list[Tensor]]) -> Answers:
        """The answers in the form in which they are compared."""
        names = ("answer", "answer32", "reference", "perturbed", "rounded")
        parts = ((name, getattr(self, name)) for name in names)
        arranged: dict[str, Any] = {name: part and tuple(arrange(part)) for name, part in parts}
        return replace(self, **arranged)


def answers(
    call: OpCall,
    inputs: Layout,
    context: Context,
    device: str,
    *,
    mutated: Sequence[int] | None = None,
    mutable: Sequence[int] = (),
    conditioning: bool = True,
    tf32: bool = False,
    mode: type[KeepWide] | None = None,
) -> Answers:
    """Run the op up to five times, each on fresh copies of the inputs.

    Args:
        call: op and arguments.
        inputs: tensors as the case has them: the reference widens what was rounded to the case's dtype.
        context: recorded context; only t sees all of it.
        device: `cpu` or `cuda:0`.
        mutated: input tensors that the op changes; None finds out by comparing.
        mutable: further ones that it may change, whether or not it did.
        conditioning: whether to run it on perturbed inputs as well.
        tf32: whether to run it on inputs rounded to TF32 as well.
        mode: in which all of them run, in place of the one that keeps casts wide.

    Raises:
        Exception: whatever the op raises on its own inputs.
    """
    with Lengths() as products:
        tensors, returned = _run(call, inputs, context, device, None if mode is None else mode(None))
    changed = tuple(mutated) if mutated is not None else _changed(inputs, tensors, device)
    changed += tuple(index for index in mutable if index not in changed)
    own = (*returned, *(tensors[index] for index in changed))
    wide = _Widened(call, inputs, context, changed, mode or KeepWide, products.steps)
    own32 = own if _is_single_precision(inputs, context) else wide.run(device, torch.float32)
    reference, dtype, note = wide.reference(device, own32)
    alone = dtype == torch.float32  # nothing else tells how far two right answers may lie from each other
    perturbed = wide.perturbed(device, dtype) if (conditioning and not note) or alone else None
    if perturbed is not None and [one.shape for one in perturbed] != [one.shape for one in reference]:
        perturbed = None  # how much it returns depends on the numbers, as of `unique`
    return Answers(
        answer=own,
        answer32=own32,
        reference=reference,
        perturbed=perturbed,
        rounded=widened(call, rounded(inputs, TF32_BITS), context, device, changed)
        if tf32 and not note
        else None,
        mutated=changed,
        steps=products.steps,
        note=note,
    )


def widened(
    call: OpCall,
    inputs: Layout,
    context: Context,
    device: str,
    mutated: Sequence[int],
    *,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, ...]:
    """Outputs of the op on inputs widened to `dtype`, then the inputs `mutated` as they are after it.

    Raises:
        Exception: whatever the op raises on them.
    """
    return _Widened(call, inputs, context, tuple(mutated)).run(device, dtype)


def other_errors(
    call: OpCall, inputs: Layout, context: Context, device: str, mutated: Sequence[int]
) -> list[Tensor]:
    """|t32 − r| of each output at its greatest on eight further inputs, whose numbers are up to 2⁻¹² of themselves away, float64.

    Where terms cancel whatever the inputs are, as in layer norm's gradient at a number that is most of its row, torch is near
    by luck, and inputs that are moved move nothing: on other inputs its luck is another one. A rounding is not enough, since
    sums of numbers of few bits are exact.

    Raises:
        Exception: whatever the op raises on them, and where it answers in other shapes.
    """
    op = _Widened(call, inputs, context, tuple(mutated))
    narrow = widen(inputs_on(inputs, device), torch.float32)
    storages = {meta.storage for meta in narrow.metas if meta.dtype in ("float32", "complex64")}
    greatest: list[Tensor] = []
    for number in range(_OTHERS):
        spans = list(narrow.spans)
        for storage in storages:
            values = spans[storage].view(torch.float32)
            # Towards 0: probabilities, signs of logarithms and positions stay where the op takes them.
            factors = 1 - _AWAY * _uniform().roll(number * _PERIOD // _OTHERS).to(values)
            spans[storage] = (values * factors.repeat(-(-values.numel() // _PERIOD))[: values.numel()]).view(
                torch.uint8
            )
        moved = Layout(narrow.metas, spans)
        exact = op.run_on(widen(moved, torch.float64), device, torch.float64)
        pairs = zip(op.run_on(moved, device, torch.float32), exact, strict=True)
        distances = [finite_distance(as_real(one), as_real(other).to(torch.float64)) for one, other in pairs]
        greatest = [*map(torch.maximum, greatest, distances)] if number else distances
    return greatest


def answer(
    call: OpCall, inputs: Layout, context: Context, device: str, *, mutated: Sequence[int] = ()
) -> list[Tensor]:
    """What the op returns in the recorded context, then the inputs `mutated` as they are after it: t."""
    tensors, returned = _run(call, inputs, context, device)
    return [*returned, *(tensors[index] for index in mutated)]


def memory_taken(call: OpCall, inputs: Layout, context: Context, device: str) -> int:
    """Bytes that torch takes for a call beyond the inputs, at its most, or a bound of them; 0 where it fails or nobody tells."""
    try:
        tensors = rebuild(inputs.metas, inputs.spans, device)
        begun = memory.begin_peak(device, at_most=True)
        with restore(context, device):
            result = invoke(call, tensors)
        most = memory.peak(device)
        del result
    except RuntimeError:
        return 0
    return max(0, most - begun) if begun is not None and most is not None else 0


def _run(
    call: OpCall, inputs: Layout, context: Context, device: str, mode: KeepWide | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """(argument tensors after the call, returned tensors); an op that raises something else refuses by a RuntimeError."""
    tensors = rebuild(inputs.metas, inputs.spans, device)
    try:
        with restore(context, device), mode or nullcontext():
            result = invoke(call, tensors)
    except (CginsError, *REFUSALS):
        raise
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
    returned = flatten(result)[1] if mode is None else map(mode.kept, flatten(result)[1])
    return tensors, [tensor.detach().resolve_conj().resolve_neg() for tensor in returned]


class KeepWide(DispatchMode):  # type: ignore[no-untyped-call]
    """Turns every cast to a narrower dtype inside an op into one to the wide dtype.

    Marked functions cast (`x.float()` … `.to(x.dtype)`), and ops take `dtype=`; at the dispatch level
    both are a `dtype` keyword. Without this the fp64 reference of such an op would be fp32 in disguise. None
    as dtype changes nothing.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._dtype = dtype
        # Casts that became wider ones, by the bytes of an element: what is viewed as integers has the narrow number's bits.
        self._casts: dict[int, torch.dtype] = {}

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        if self._dtype is None:
            return func(*args, **named)
        if low_bits.rounds_to(func, args, named) is not None:
            return low_bits.in_wide(func, args, named, self._dtype)
        if isinstance(dtype := named.get("dtype"), torch.dtype):
            named = {**named, "dtype": wider(dtype, self._dtype)}
            if named["dtype"] != dtype:
                self._casts[dtype.itemsize] = dtype
        if func is torch.ops.aten.view.dtype and args[0].dtype == self._dtype:
            args = (args[0].to(self._casts.get(args[1].itemsize, self._dtype)), args[1])
        return func(*args, **named)

    def kept(self, returned: Tensor) -> Tensor:
        """What the op returned, as it is kept."""
        return returned


@dataclass(frozen=True, slots=True)
class _Widened:
    """The op on inputs in wider dtypes, outside autocast."""

    call: OpCall
    inputs: Layout
    context: Context
    mutated: tuple[int, ...]
    mode: type[KeepWide] = KeepWide
    steps: float = 1.0
    """Of 2⁻²⁴, by which `perturbed` moves inputs."""

    last: dict[tuple[str, torch.dtype], Layout] = field(default_factory=dict)
    """The inputs as they were widened last."""

    def run(self, device: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Outputs of the op on inputs widened to `dtype`."""
        return self.run_on(self.wide(device, dtype), device, dtype)

    def wide(self, device: str, dtype: torch.dtype) -> Layout:
        """The inputs widened to `dtype`, not to be written to."""
        if (device, dtype) not in self.last:
            self.last.clear()
            self.last[device, dtype] = widen(inputs_on(self.inputs, device), dtype)
        return self.last[device, dtype]

    def perturbed(self, device: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """Outputs of the op in fp64 on inputs moved by ±2⁻²⁴ of themselves, signs drawn by lot, `steps` times; in fp32 by ±2⁻²³, which it can hold."""
        wide = self.wide(device, dtype)
        spans, steps = list(wide.spans), self.steps * (1 if dtype == torch.float64 else 2)
        names = {dtype_name(dtype), dtype_name(_WIDER_COMPLEX[dtype])}
        for storage in {m.storage for m in wide.metas if m.dtype in names}:
            values = spans[storage].view(dtype)
            factors = _factors(steps, values.device).repeat(-(-values.numel() // _PERIOD))[: values.numel()]
            spans[storage] = (factors * values).to(dtype).view(torch.uint8)
        return self.run_on(Layout(wide.metas, spans), device, dtype)

    def run_on(self, inputs: Layout, device: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Outputs of the op on these inputs, which are of `dtype` where they may be."""
        neutral = Context(default_dtype=dtype_name(dtype), rng_seed=self.context.rng_seed)
        with AttentionInParts() if dtype == torch.float64 else nullcontext():
            tensors, returned = _run(self.call, inputs, neutral, device, self.mode(dtype))
        return (*returned, *(tensors[index] for index in self.mutated))

    def reference(
        self, device: str, answer32: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], torch.dtype, str]:
        """R computed on the device, else on the CPU, else t32 in its place; what it was computed in; what is to be said of it."""
        refusals: list[str] = []
        for place in dict.fromkeys((device, "cpu")):
            try:
                outputs = self.run(place, torch.float64)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                refusals.append(f"{place}: {str(error).splitlines()[0]}")
            else:
                note = f"the fp64 reference was computed on the CPU ({refusals[0]})" if refusals else ""
                return tuple(tensor.to(torch_device(device)) for tensor in outputs), torch.float64, note
        note = f"{self.call.op} does not run in fp64 ({'; '.join(refusals)}): fp32 is the reference"
        wide = tuple(tensor.to(wider(tensor.dtype, torch.float64)) for tensor in answer32)
        return wide, torch.float32, note


class AttentionInParts(TorchFunctionMode):
    """Computes attention in fp64 by sequences and heads, where all scores at once are large.

    Those of 32 heads of 8,192 words take 17 GB, and torch holds seven times as much: 119 GB were seen.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        if func is functional.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *rest: Any, **named: Any
) -> Tensor:
    along = [
        dim
        for dim in range(-query.dim(), -2)
        if query.dim() == key.dim() == value.dim()
        and key.shape[dim] == value.shape[dim] > 1
        and query.shape[dim] % key.shape[dim] == 0
    ]
    nbytes = 8 * query.shape[:-1].numel() * key.shape[-2]
    if not along or nbytes <= _SCORES_NBYTES or (rest[:1] or (named.get("dropout_p", 0.0),)) != (0.0,):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask, *rest, **named)
    # With fewer heads of keys than of queries each of them has its queries in a row.
    dim = along[0]
    count = key.shape[dim]
    is_split = attn_mask is not None and attn_mask.dim() >= -dim and attn_mask.shape[dim] > 1
    masks = attn_mask.chunk(count, dim) if attn_mask is not None and is_split else (attn_mask,) * count
    parts = zip(query.chunk(count, dim), key.chunk(count, dim), value.chunk(count, dim), masks, strict=True)
    return torch.cat([_attention(*part, *rest, **named) for part in parts], dim)


class Lengths(DispatchMode):  # type: ignore[no-untyped-call]
    """Notes how many products of 16-bit numbers are summed for an element, at most.

    Tensor cores cut their sums off where fp32 rounds them (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA
    tensor cores", 2021): a plain loop over K numbers in steps of 16 errs in one direction, about K/46 times as much as
    roundings of the inputs to fp32 do, measured for K up to 14,336. cuBLAS splits such sums, and its own error does not tell.
    A quarter of it is the unit, of which an element may err by 16.
    """

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0

    @property
    def steps(self) -> float:
        """Roundings of fp32 by which inputs are moved to see what right kernels may err by."""
        return max(1.0, self.longest / _TRUNCATED)

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        name = str(func)
        given = [one for one in (*args, *named.values()) if isinstance(one, Tensor) and one.dim() > 1]
        if len(given) > 1 and given[0].is_floating_point() and given[0].element_size() <= 2:
            if "attention" in name:
                self.longest = max(self.longest, given[1].shape[-2])
            elif "conv" in name:
                self.longest = max(self.longest, given[1].numel() // max(1, min(given[1].shape[:2])))
            elif any(word in name for word in ("mm", "linear", "matmul")):
                self.longest = max(self.longest, given[-2].shape[-1])
        return func(*args, **named)


@lru_cache(maxsize=16)
def _factors(steps: float, device: torch.device) -> Tensor:
    """1 ± steps·2⁻²⁴, signs drawn by lot."""
    signs = torch.randint(0, 2, (_PERIOD,), generator=torch.Generator().manual_seed(0)).double()
    return (1 + (2 * signs - 1) * 2.0**-24 * steps).to(device)


def _is_single_precision(inputs: Layout, context: Context) -> bool:
    """Whether t is t32 by definition."""
    floating = {meta.dtype for meta in inputs.metas if "int" not in meta.dtype and meta.dtype != "bool"}
    plain = not context.autocast and context.float32_matmul_precision == "highest"
    return floating <= {"float32", "complex64"} and plain and context.default_dtype == "float32"


def _changed(inputs: Layout, after: Sequence[Tensor], device: str) -> tuple[int, ...]:
    """Indices of tensors whose bytes a call changed."""
    before = rebuild(inputs.metas, inputs.spans, device)
    return tuple(
        index
        for index, (old, new) in enumerate(zip(before, after, strict=True))
        if not torch.equal(_bits(old), _bits(new))
    )


def _bits(tensor: Tensor) -> Tensor:
    """The tensor's bytes in row-major order: unlike numbers, they are equal where NaN is."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def inputs_on(inputs: Layout, device: str) -> Layout:
    """The tensors' memory on a GPU that has room for them in fp64, to be widened there: a host takes longer for that than the op."""
    need = _WIDENED * sum(span.numel() for span in inputs.spans)
    if torch_device(device).partition(":")[0] == "cpu" or need > device_of(device).free_nbytes():
        return inputs
    return Layout(inputs.metas, [span.to(torch_device(device)) for span in inputs.spans])


def widen(inputs: Layout, dtype: torch.dtype) -> Layout:
    """The tensors with floating and complex ones widened to `dtype`; strides and aliases are kept.

    A storage that tensors of several dtypes share is split, one storage a tensor: bytes that are two
    things at once cannot be widened as both.
    """
    metas: list[TensorMeta] = list(inputs.metas)
    spans = list(inputs.spans)
    for storage in range(len(inputs.spans)):
        members = [index for index, meta in enumerate(inputs.metas) if meta.storage == storage]
        dtypes = {inputs.metas[index].dtype for index in members}
        if len(dtypes) == 1:
            old = getattr(torch, dtypes.pop())
            new = wider(old, dtype)
            if new != old:
                spans[storage] = _widen_span(inputs.spans[storage], old, new)
                for index in members:
                    metas[index] = replace(metas[index], dtype=dtype_name(new))
            continue
        for index in members:
            old = getattr(torch, inputs.metas[index].dtype)
            new = wider(old, dtype)
            spans.append(_widen_span(inputs.spans[storage], old, new))
            metas[index] = replace(metas[index], dtype=dtype_name(new), storage=len(spans) - 1)
    return Layout(tuple(metas), spans)


def _widen_span(span: Tensor, old: torch.dtype, new: torch.dtype) -> Tensor:
    rest = span.numel() % old.itemsize
    return (span[:-rest] if rest else span).view(old).to(new).view(torch.uint8)


def wider(old: torch.dtype, target: torch.dtype) -> torch.dtype:
    """`target`, or its complex partner, for narrower floating dtypes; others as they are."""
    if old.is_complex:
        target = _WIDER_COMPLEX[target]
    elif not old.is_floating_point:
        return old
    return target if old.itemsize < target.itemsize else old


@cache
def _uniform() -> Tensor:
    """Numbers in [0, 1), by lot."""
    return torch.rand(_PERIOD, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
