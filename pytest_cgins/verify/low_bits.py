"""Numbers of few bits and their scales: what torch's products of them give in a wide dtype, and how they are drawn anew.

Codes, such as two numbers of four bits in a byte, are integers to torch, and integers stay as recorded. These are drawn over
all of their range, if they are declared (`roles: {packed: codes}`) or look like codes: bytes that fill half of their range,
words with both of their signs, exponents, and integers that are named scale or zero point, within what was recorded.
Scales that divide or multiply them keep their sign and, within an octave, their magnitude: others would leave the payload's range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import E8M0, readable
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.recipe import seed_of, uniform_integers
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.semantics import Semantics, op_word

NAN_CODE = 255
"""The code of NaN in `E8M0`, also where it lies in bytes."""
_WORDS = ("scale", "scales", "exponent", "exponents")
_CODE_WORDS = ("zero", "zeros", "qzeros", "zeropoint", "zp", *_WORDS)
_FILLED = 128
"""Bytes that differ by as much fill half of their range, and have a quarter as many values: masks of 0 and 255 have not."""
_LOOKED_AT = 4096
"""Of so many at most, from the first."""
_SIGNED = 2**27
"""An index of 32 bits is not as far from zero as this, on both sides."""
_OCTAVES = 2
"""By how many octaves exponents leave what was recorded."""
_SMALL = (62, 64)
"""Exponents of which two are at the least of fp32's normal numbers, less what payloads and sums add."""
_DEQUANTIZED = 2
"""Arguments of an op that dequantises: a payload and its scales."""
_INTEGER_PRODUCTS = ("int_mm", "weight_int8pack_mm")
"""torch's products of bytes, which are numbers to them, whatever was recorded of these."""
_BYTES = (0x00, 0xFF, 0x0F, 0xF0, 0x88, 0x80, 0x08, 0x7F, 0x77)
"""Edges of packed numbers: least and greatest of both halves, of one, with and without sign."""


# ---- products ---------------------------------------------------------------------------------------------------


def rounds_to(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> torch.dtype | None:
    """The dtype to which one of torch's products of numbers of few bits rounds; None of other operators."""
    if _name(func) not in _PRODUCTS:
        return None
    given = _arguments(func, args, named)
    dtype: torch.dtype = given.get("out_dtype") or given["self"].dtype
    return dtype


def in_wide(func: Any, args: Sequence[Any], named: Mapping[str, Any], dtype: torch.dtype) -> Tensor:
    """What such a product gives in a wide dtype, of what its inputs truly hold: torch itself takes no others than few bits.

    Raises:
        NotImplementedError: scales lie as only the device's own library knows.
    """
    given = _arguments(func, args, named)
    result: Tensor = _PRODUCTS[_name(func)]({**given, "func": func}, dtype)
    if given.get("bias") is not None:
        result = result + given["bias"].to(dtype)
    if given.get("scale_result") is not None:
        power = _result_power(_name(func), result.device.type, given.get("out_dtype") or torch.float8_e4m3fn)
        result = result * given["scale_result"].to(dtype) ** power
    return result if given.get("out") is None else given["out"].copy_(result)


def unrounded(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Tensor:
    """What such a product gives in fp32: by torch's own kernel, if that returns fp32 as well."""
    given = _arguments(func, args, named)
    if given.get("scale_result") is None:
        with suppress(RuntimeError, ValueError):
            wide: Tensor = func(**{**given, "out_dtype": torch.float32})
            return wide
    return in_wide(func, args, named, torch.float32)


@cache
def _result_power(name: str, device: str, dtype: torch.dtype) -> int:
    """Power of `scale_result` by which torch multiplies there: the CPU of 2.13 divides float8, the GPU of 2.11 leaves all as it is."""
    if name != "_scaled_mm":
        raise NotImplementedError(f"what scale_result does in {name} is not known")
    ones, one = torch.ones(16, 16, device=device).to(torch.float8_e4m3fn), torch.ones((), device=device)
    product = torch._scaled_mm(ones, ones.t(), one, one, scale_result=4 * one, out_dtype=dtype)
    return round(math.log(float(product[0, 0]) / 16, 4))


def _scaled(given: Mapping[str, Any], dtype: torch.dtype) -> Tensor:
    factors: list[Tensor] = []
    for operand, scale in (("self", "scale_a"), ("mat2", "scale_b")):
        factor = given[operand].to(dtype)
        for level in given[scale] if isinstance(given[scale], list | tuple) else [given[scale]]:
            factor = factor * _spread(level.to(dtype), factor.shape)
        factors.append(factor)
    return factors[0] @ factors[1]


def _spread(scale: Tensor, shape: Sequence[int]) -> Tensor:
    """A scale for each element: of one, of a row, or of a block."""
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.ndim != len(shape):
        sizes = "x".join(map(str, scale.shape))
        raise NotImplementedError(
            f"scales of size {sizes} lie as the device's library has them: gate a function that dequantises"
        )
    for dim, size in enumerate(shape):
        if scale.shape[dim] not in (1, size):
            scale = scale.repeat_interleave(-(-size // scale.shape[dim]), dim).narrow(dim, 0, size)
    return scale


def _grouped(given: Mapping[str, Any], dtype: torch.dtype) -> Tensor:
    """Groups of rows, of columns, or of what is summed over: offsets divide what has two dimensions."""
    a, b, left, right = (given[name].to(dtype) for name in ("self", "mat2", "scale_a", "scale_b"))
    pieces = [slice(*ends) for ends in pairwise([0, *given["offs"].tolist()])] if a.ndim + b.ndim < 6 else []
    if a.ndim == b.ndim == 2:  # scales of each group, one behind the other
        left, right = (one.reshape(len(pieces), -1) for one in (left, right))
        return torch.stack(
            [(a[:, piece] * left[n, :, None]) @ (b[piece] * right[n]) for n, piece in enumerate(pieces)]
        )
    a, b = a * left[..., None], b * right[..., None, :]
    if not pieces:
        return torch.matmul(a, b)
    of_rows = a.ndim == 2
    products = [a[piece] @ b[n] if of_rows else a[n] @ b[:, piece] for n, piece in enumerate(pieces)]
    return torch.cat(products, 0 if of_rows else 1)


def _int4_weight(given: Mapping[str, Any], dtype: torch.dtype) -> Tensor:
    """Codes lie as the device's kernel wants them: its product with the identity tells them."""
    x, scales = given["self"].to(dtype), given["qScaleAndZeros"].to(dtype)
    unit = torch.zeros_like(scales, dtype=torch.bfloat16)
    unit[..., 0] = 1
    rows = torch.split(torch.eye(x.shape[1], dtype=torch.bfloat16, device=x.device), _ROWS)
    codes = torch.cat([given["func"](part, given["mat2"], given["qGroupSize"], unit) for part in rows]).to(
        dtype
    )
    groups = torch.arange(len(codes), device=x.device) // given["qGroupSize"]
    product: Tensor = x @ (codes * scales[groups, :, 0] + scales[groups, :, 1])
    return product


def _weight_only(given: Mapping[str, Any], dtype: torch.dtype) -> Tensor:
    product: Tensor = given["self"].to(dtype) @ given["mat2"].to(dtype).t() * given["scales"].to(dtype)
    return product


_ROWS = 1024
"""Of the identity, at once."""
_PRODUCTS: Mapping[str, Callable[[Mapping[str, Any], torch.dtype], Tensor]] = {
    "_scaled_mm": _scaled, "_scaled_mm_v2": _scaled, "_scaled_grouped_mm": _grouped, "_weight_int8pack_mm": _weight_only,
    "_weight_int4pack_mm": _int4_weight, "_weight_int4pack_mm_for_cpu": _int4_weight,
}  # fmt: skip


def _name(func: Any) -> str:
    return str(getattr(getattr(func, "overloadpacket", None), "__name__", ""))


def _arguments(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **named}


# ---- draws ------------------------------------------------------------------------------------------------------


def draw(
    semantics: Semantics,
    call: OpCall,
    tensors: Sequence[Tensor],
    recorded: Sequence[Tensor],
    key: str,
    *,
    edge: bool = False,
) -> None:
    """Write new numbers into codes and their scales; at an edge some go to the ends of what they can be."""
    coupled = {coupling.argument for coupling in couplings_of(semantics, call, recorded)}
    numbers = op_word(call) in _INTEGER_PRODUCTS and call.op.startswith("torch.")
    ranges = {
        index: limits
        for index, tensor in enumerate(recorded)
        if semantics.names.get(index) not in coupled
        and (limits := code_range(semantics, index, tensor, numbers=numbers))
    }
    exponents = [index for index in ranges if has_nan_code(semantics, index, recorded[index])]
    payloads = [index for index in ranges if index not in exponents and recorded[index].ndim == 2]
    # One payload and its exponents are multiplied and nothing else: the least of all can be seen.
    least = (0, 1) if len(exponents) == 1 and len(recorded) == _DEQUANTIZED else _SMALL
    for index, (low, high) in ranges.items():
        tensor = tensors[index]
        # All of them: beside the products of greater ones those of the least would go unseen.
        limits = least if edge and index in exponents else (low, high)
        lots = uniform_integers(seed_of(key, "codes", index), tensor.numel(), *limits)
        codes = torch.from_numpy(lots).reshape(tensor.shape)
        if edge and index not in exponents:
            # Columns of a second factor meet the rows of the first.
            is_turned = (
                index in payloads[1:] and len(tensor) == recorded[payloads[0]].shape[1] != tensor.shape[1]
            )
            rows = _at_edges(codes.t() if is_turned else codes, low, high, tensor.dtype)
            codes = rows.t() if is_turned else rows
        _write_codes(tensor, codes)
    payload = any(
        index in ranges or (tensor.is_floating_point() and is_narrow(tensor) and tensor.dtype != E8M0)
        for index, tensor in enumerate(recorded)
    )
    for index, tensor in enumerate(recorded):
        if not is_scale(semantics, index, tensor):
            continue
        if payload or tensor.ndim > 1:
            _draw_scales(tensors[index], tensor, seed_of(key, "scales", index))
        else:
            tensors[index].abs_()


def code_range(
    semantics: Semantics, index: int, recorded: Tensor, *, numbers: bool = False
) -> tuple[int, int] | None:
    """Least and greatest code of an argument, whose bytes may be numbers of which the op takes any; None if it holds none."""
    name = semantics.names.get(index, "")
    role = dict(semantics.declared.roles).get(name)
    if not recorded.numel() or (role and role != "codes") or _overlaps(recorded):
        return None
    if recorded.dtype == E8M0:
        codes = recorded.contiguous().view(torch.uint8)
        known = codes[codes < NAN_CODE]
        return _widened(known) if known.numel() else (127, 127)
    if recorded.dtype == torch.bool or recorded.is_floating_point() or recorded.is_complex():
        return None
    if role:
        info, domain = torch.iinfo(recorded.dtype), semantics.domain(index) or (-math.inf, math.inf)
        return int(max(domain[0], info.min)), int(min(domain[1], info.max))
    if numbers and recorded.element_size() == 1:
        return torch.iinfo(recorded.dtype).min, torch.iinfo(recorded.dtype).max
    low, high = int(recorded.min()), int(recorded.max())
    if recorded.dtype == torch.uint8 and _is_called(name, _WORDS):
        return _widened(recorded)
    named = _is_called(name, _CODE_WORDS)
    both_signs = low < -_SIGNED and high > _SIGNED
    if (
        recorded.ndim > 1
        and recorded.dtype == torch.int32
        and (both_signs or (named and max(-low, high) > _SIGNED))
    ):
        return -(2**31), 2**31 - 1
    if named and low == high:  # one zero point for all, which a kernel may know by heart
        info = torch.iinfo(recorded.dtype)
        return max(low - 1, info.min, min(low, 0)), min(high + 1, info.max)
    is_filled = (
        recorded.ndim > 1
        and recorded.element_size() == 1
        and high - low >= _FILLED
        and 4 * len(set(recorded.reshape(-1)[:_LOOKED_AT].tolist())) >= min(recorded.numel(), _FILLED)
    )
    return (low, high) if low < high and (is_filled or named) else None


def is_scale(semantics: Semantics, index: int, recorded: Tensor) -> bool:
    """Whether an argument is called one, and all that was recorded of it is greater than 0."""
    name = semantics.names.get(index, "")
    known = dict(semantics.declared.roles).get(name)
    plain = (
        recorded.is_floating_point() and recorded.dtype != E8M0 and recorded.ndim > 0 and recorded.numel() > 0
    )
    if not plain or known or not _is_called(name, _WORDS) or _overlaps(recorded):
        return False
    numbers = readable(recorded)
    return bool((torch.isfinite(numbers) & (numbers > 0)).all())


def has_nan_code(semantics: Semantics, index: int, tensor: Tensor) -> bool:
    """Whether NaN is a code of an argument: it holds exponents of scales."""
    as_bytes = tensor.dtype == torch.uint8 and _is_called(semantics.names.get(index, ""), _WORDS)
    return tensor.numel() > 0 and (tensor.dtype == E8M0 or as_bytes) and not _overlaps(tensor)


def is_called_scale(name: str) -> bool:
    """Whether an argument is called one."""
    return _is_called(name, _WORDS)


def _is_called(name: str, words: Sequence[str]) -> bool:
    """Whether one of these is a word of an argument's name."""
    return not set(words).isdisjoint(name.rpartition(".")[2].lower().split("_"))


def put_nan(tensor: Tensor) -> None:
    """The code of NaN as the last exponent."""
    codes = tensor.contiguous().view(torch.uint8).clone()
    codes.view(-1)[-1] = NAN_CODE
    _write_codes(tensor, codes)


def _widened(codes: Tensor) -> tuple[int, int]:
    return max(0, int(codes.min()) - _OCTAVES), min(NAN_CODE - 1, int(codes.max()) + _OCTAVES)


def _write_codes(tensor: Tensor, codes: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.copy_(codes.to(torch.uint8).view(tensor.dtype))
    else:
        tensor.copy_(codes)


def _at_edges(codes: Tensor, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """Every second row at one edge, the others as drawn."""
    repeated = [byte * (0x01010101 if dtype.itemsize == 4 else 1) for byte in _BYTES]
    bits = 8 * dtype.itemsize
    signed = [code - 2**bits if dtype.is_signed and code >= 2 ** (bits - 1) else code for code in repeated]
    edges = list(dict.fromkeys([low, high, *(code for code in signed if low <= code <= high)]))
    rows = torch.arange(codes.numel() // max(1, codes.shape[-1] if codes.ndim else 1))
    rows = rows.reshape(*codes.shape[:-1], 1) if codes.ndim else rows.reshape(())
    at_edge = torch.tensor(edges)[rows // 2 % len(edges)]
    return torch.where(rows % 2 == 0, at_edge, codes)


def _draw_scales(tensor: Tensor, recorded: Tensor, seed: int) -> None:
    """Numbers whose logarithms are spread evenly over the recorded range and an octave to both sides."""
    low, high = (math.log2(float(extreme)) for extreme in readable(recorded).aminmax())
    lots = torch.from_numpy(uniform_integers(seed, tensor.numel(), 0, 2**24 - 1)).to(torch.float64) / 2**24
    info = torch.finfo(tensor.dtype)
    drawn = torch.exp2(low - 1 + (high - low + 2) * lots).clamp(info.smallest_normal, info.max)
    tensor.copy_(drawn.reshape(tensor.shape))


def is_narrow(tensor: Tensor) -> bool:
    """Whether it holds bytes, of whatever kind, and no truth values."""
    return tensor.element_size() == 1 and tensor.dtype != torch.bool


def _overlaps(tensor: Tensor) -> bool:
    return any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
