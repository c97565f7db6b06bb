"""Probe `second_precision`, and which arithmetic an error of fp32 looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.model import Check, Context, OpCall, Reason, Value
from pytest_cgins.trace.layout import Layout, rebuild
from pytest_cgins.verify import operators
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.maker import InputSet, Maker
from pytest_cgins.verify.reference import in_fp64, widen
from pytest_cgins.verify.rounding import BF16_BITS, TF32_BITS, rounded
from pytest_cgins.verify.semantics import Semantics

NAME = "second_precision"
INPUTS = "fp32"
"""Name of the set."""
HALVES = ("float16", "bfloat16")
_ALIKE = 0.7
"""Least correlation of two errors that have one cause: independent ones of 30 elements reach 0.6 once in a thousand."""
_SIZES = (0.4, 2.5)
"""Least and greatest ratio of their sizes."""
_FEWEST = 30  # elements that a correlation is told from


# ---- the same numbers in fp32


def sets(maker: Maker, semantics: Semantics, base: InputSet) -> tuple[list[InputSet], str]:
    """The numbers of a set in half precision as fp32, or none and why."""
    dtypes = {meta.dtype for meta in base.layout.metas if "float" in meta.dtype}
    if not dtypes & {*HALVES}:
        return [], "the case is not in half precision"
    if maker.trace.context.autocast:
        return [], "autocast would cast fp32 back"
    if semantics.facts is not None and "float32" not in semantics.facts.floats:
        return [], "the op does not take fp32"
    wide = widen(base.layout, torch.float32)
    call = replace(
        base.call,
        arguments=tuple(
            replace(argument, value=_in_fp32(argument.value)) for argument in base.call.arguments
        ),
    )
    return [maker.make(INPUTS, rebuild(wide.metas, wide.spans, "cpu"), probe=NAME, call=call)], ""


def _in_fp32(value: Value) -> Value:
    if value.kind == "dtype" and value.value in HALVES:
        return replace(value, value="float32")
    return replace(value, items=tuple(map(_in_fp32, value.items))) if value.items else value


def judge(
    half: ExpectedSet, checks: Sequence[Check], got: Sequence[Tensor], tolerance: Tolerance
) -> tuple[str, str]:
    """What a kernel's answer in fp32 tells of it.

    Args:
        half: what is expected of the same numbers in half precision.
        checks: those of its answer to them in fp32.
        got: that answer.
        tolerance: of the case.

    Returns:
        (what half precision hides, why nothing can be said): one of them, or none, is not "".
    """
    failed = next((check for check in checks if not check.passed), None)
    if failed is None:
        return "", ""
    if failed.rule == "form":
        return "", f"the kernel does not take fp32: {failed.message}"
    dtypes = [output.answer.dtype for output in half.outputs]
    narrow = [tensor.to(dtype) for tensor, dtype in zip(got, dtypes, strict=True)]
    if all(torch.equal(one.to(wide.dtype), wide) for one, wide in zip(narrow, got, strict=True)):
        return "", "the kernel does not take fp32: its answers have the significant bits of half precision"
    inside = compare(half, narrow, tolerance)
    if not all(check.passed for check in inside):
        return "", "the kernel does not take fp32: its answers are not even right within half precision"
    name = str(dtypes[0]).removeprefix("torch.")
    share = max((check.share for check in inside if check.share is not None), default=0.0)
    hidden = (
        f"in {name} the kernel is right, at {share:.2g} of the tolerance, but in fp32, on the same numbers, its error "
        f"is {failed.share:.3g} times the tolerance: half precision hides what is wrong. {failed.message}"
    )
    return hidden, ""


# ---- what an error looks like


def explain(made: InputSet, got: Sequence[Tensor], device: str) -> str:
    """The arithmetic whose error a wrong fp32 answer has; "" if it is none that is known.

    The error is compared with what the reference itself is off by on rounded inputs: an error of the same size
    that goes the same way has that cause.
    """
    if any(meta.dtype not in ("float32", "int64", "int32", "bool") for meta in made.layout.metas):
        return ""
    names = [name for name, error in _errors(made, device) if _is_alike(made, got, error)]
    return names[0] if names else _representable(made, got)


Errors = list[Tensor]


def _errors(made: InputSet, device: str) -> list[tuple[str, Errors]]:
    """Names of arithmetics, and the errors that rounding the inputs to theirs makes."""
    found = []
    for name, change in _ARITHMETICS:
        try:
            moved = in_fp64(made.call, change(made.layout), made.context, device, made.mutated)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        errors = [
            as_real(one).to(torch.float64).reshape(-1) - output.scale.reference.to(one.device)
            for one, output in zip(moved, made.expected.outputs, strict=True)
            if output.scale is not None
        ]
        found.append((name, errors))
    return found


_ARITHMETICS: tuple[tuple[str, Callable[[Layout], Layout]], ...] = (
    ("TF32: 11 significant bits", partial(rounded, bits=TF32_BITS)),
    ("TF32: 11 significant bits, the others cut off", partial(rounded, bits=TF32_BITS, cut=True)),
    ("bf16: 8 significant bits", partial(rounded, bits=BF16_BITS)),
    ("bf16: 8 significant bits, the others cut off", partial(rounded, bits=BF16_BITS, cut=True)),
)


def _is_alike(made: InputSet, got: Sequence[Tensor], errors: Errors) -> bool:
    """Whether the kernel's error is one that rounding made: its size, and which way it goes."""
    floating = [
        (tensor, output)
        for tensor, output in zip(got, made.expected.outputs, strict=True)
        if output.scale is not None
    ]
    for (tensor, output), error in zip(floating, errors, strict=True):
        assert output.scale is not None
        own = tensor.reshape(-1).to(torch.float64) - output.scale.reference
        # In units of what is allowed there: large elements would outweigh all others.
        unit = output.scale.unit
        one, other = own / unit, error / unit
        finite = torch.isfinite(one) & torch.isfinite(other)
        one, other = one[finite], other[finite]
        size, expected = (float(torch.linalg.vector_norm(values)) for values in (one, other))
        if one.numel() < _FEWEST or not size or not expected:
            continue
        alike = float(one @ other) / (size * expected)
        if alike >= _ALIKE and _SIZES[0] <= size / expected <= _SIZES[1]:
            return True
    return False


def _representable(made: InputSet, got: Sequence[Tensor]) -> str:
    """Half precision that all elements of an answer have, and the expected ones do not."""
    for name, dtype in (
        ("fp16: 11 significant bits", torch.float16),
        ("bf16: 8 significant bits", torch.bfloat16),
    ):
        few_steps = 8 * torch.finfo(dtype).eps
        for tensor, output in zip(got, made.expected.outputs, strict=True):
            if tensor.dtype != torch.float32 or tensor.numel() < _FEWEST:
                continue
            narrow, expected = tensor.to(dtype).to(torch.float32), output.answer
            same = (narrow == tensor) | ~torch.isfinite(tensor)
            # Zeros are representable, too, and no rounding of anything.
            off = ((tensor - expected).abs() / expected.abs()).nanmedian()  # NaN where both are 0
            if (
                bool(same.all())
                and float(off) < few_steps
                and not bool((expected.to(dtype).to(torch.float32) == expected).all())
            ):
                return name
    return ""


def named(check: Check, arithmetic: str) -> Check:
    """A failed check whose error has a name."""
    message = (
        f"{check.message}\n→ its error is as of {arithmetic}. Compute in whole fp32, or allow it in cgins.yaml: "
        "precision: {allow_tf32: true}"
        if arithmetic.startswith("TF32")
        else f"{check.message}\n→ its error is as of {arithmetic}: compute in whole fp32"
    )
    return replace(check, reason=Reason.LOW_PRECISION, message=message)


# ---- where TF32 is allowed


def multiplies(call: OpCall, inputs: Layout, context: Context, device: str) -> bool:
    """Whether an op multiplies matrices in fp32: only there is TF32 an arithmetic of torch's own."""
    if not any(meta.dtype == "float32" for meta in inputs.metas):
        return False
    return operators.multiply(operators.operators(call, inputs, context, device))
