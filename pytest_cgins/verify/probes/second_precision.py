"""Probe `second_precision`: what is wrong in fp32, on the same numbers, and hidden by half precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.trace import Value, mapped
from pytest_cgins.core.verdict import Check
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.reference import widen
from pytest_cgins.verify.size_search import ProbedCall

NAME = "second_precision"
INPUTS = "fp32"
"""Name of the set."""
HALVES = ("float16", "bfloat16")


def sets(probed_call: ProbedCall, _key: str) -> tuple[list[InputSet], str]:
    """The numbers of a set in half precision as fp32, or none and why."""
    builder, reference_set = probed_call.builder, probed_call.reference_set
    facts = builder.semantics.facts
    dtypes = {meta.dtype for meta in reference_set.layout.metas if "float" in meta.dtype}
    if not dtypes & {*HALVES}:
        return [], "the case is not in half precision"
    if builder.trace.context.autocast:
        return [], "autocast would cast fp32 back"
    if facts is not None and "float32" not in facts.floats:
        return [], "the op does not take fp32"
    wide = widen(reference_set.layout, torch.float32)
    arguments = (replace(one, value=mapped(one.value, _in_fp32)) for one in reference_set.call.arguments)
    call = replace(reference_set.call, arguments=tuple(arguments))
    return [builder.make(INPUTS, rebuild(wide.metas, wide.spans, "cpu"), probe=NAME, call=call)], ""


def _in_fp32(leaf: Value) -> Value:
    return replace(leaf, value="float32") if leaf.kind == "dtype" and leaf.value in HALVES else leaf


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
