"""Checks of form: number, shape, dtype and layout of outputs, and where NaN and infinities are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.building.loading.launcher import POISON_BYTE
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.model import Check, Reason, WorstElement
from pytest_cgins.core.text import counted
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.locate import describe
from pytest_cgins.verify.text import number, position, subject
from pytest_cgins.verify.tolerance import all_finite


def check(inputs: str, expected: Sequence[ExpectedOutput], got: Sequence[Tensor]) -> Check:
    """The first thing wrong with the form of the outputs, or a passing check."""
    if len(got) != len(expected):
        what = f"the kernel gave {counted(len(got), 'output tensor')}, the op gives {len(expected)}"
        return failed(inputs, Reason.OUTPUT_COUNT, what)
    for output, answer in zip(expected, got, strict=True):
        form = _Form(inputs, subject(output.index, len(expected)), output, answer)
        found = form.layout() or form.unwritten_integers() or form.patterns()
        if found is not None:
            return found
    empty = bool(expected) and all(output.answer.numel() == 0 for output in expected)
    stated = "the outputs are empty, as those of the op are: nothing was compared" if empty else ""
    return Check(rule="form", inputs=inputs, passed=True, reason=Reason.OK, message=stated, share=None)


def failed(inputs: str, reason: Reason, what: str) -> Check:
    """A failed check of form on a set of inputs, without elements."""
    message = f"{what} ({inputs} inputs)."
    return Check(rule="form", inputs=inputs, passed=False, reason=reason, message=message, share=None)


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of one output tensor."""

    inputs: str
    subject: str
    output: ExpectedOutput
    answer: Tensor

    def layout(self) -> Check | None:
        """Shape, dtype and strides."""
        answer, expected = self.answer, self.output
        shape, strides = tuple(answer.shape), tuple(answer.stride())
        if answer.numel() == 0 and expected.answer.numel() != 0:
            what = f"is empty, shape {shape}; expected is shape {expected.shape}"
            return failed(self.inputs, Reason.EMPTY, f"{self.subject} {what}")
        if shape != expected.shape:
            what = f"has shape {shape}, expected is {expected.shape}; shapes are never broadcast"
            return failed(self.inputs, Reason.SHAPE, f"{self.subject} {what}")
        if answer.dtype != expected.answer.dtype:
            what = f"is {answer.dtype}, expected is {expected.answer.dtype}".replace("torch.", "")
            return failed(self.inputs, Reason.DTYPE, f"{self.subject} {what}")
        right = any(_same_strides(strides, one, shape) for one in (expected.stride, expected.own_stride))
        if not right and not answer.is_contiguous():
            what = f"has strides {strides}; expected are the gold's {expected.stride}, or contiguous ones"
            return failed(self.inputs, Reason.STRIDE, f"{self.subject} {what}")
        return None

    def unwritten_integers(self) -> Check | None:
        """Integers are filled with their least value before the call, booleans with neither 0 nor 1.

        Unsigned ones are filled with bytes 0xA5, which answers of one byte may well have: they are unwritten only
        if nothing else is wrong.
        """
        dtype = self.answer.dtype
        if dtype.is_floating_point or dtype.is_complex:
            return None
        if dtype == torch.bool:
            wrong = self.answer.contiguous().view(torch.uint8) > 1
            return (
                self._elements(Reason.UNWRITTEN, "never written", wrong.reshape(-1)) if wrong.any() else None
            )
        given, right = self.answer, self.output.answer
        least = torch.iinfo(dtype).min
        if not dtype.is_signed:
            signed = getattr(torch, dtype_name(dtype).removeprefix("u"))
            given, right = (one.contiguous().view(signed) for one in (given, right))
            least = int.from_bytes(bytes([POISON_BYTE] * dtype.itemsize), "little", signed=True)
        wrong = (given == least) & (right != least)
        if not bool(wrong.any()) or (dtype == torch.uint8 and bool(((given != right) & ~wrong).any())):
            return None
        return self._elements(Reason.UNWRITTEN, "never written", wrong.reshape(-1))

    def patterns(self) -> Check | None:
        """NaN and infinities must be where both reference and torch have them, and may be where one has.

        Where an intermediate overflows in the case's dtype torch may give infinity or NaN while the fp64
        reference is finite; a better kernel is then as right as torch.
        """
        if self.output.scale is None or not self.answer.numel():
            return None
        y, t = self.answer.reshape(-1), self.output.answer.reshape(-1)
        r = self.output.scale.reference.to(t.dtype)
        if all(all_finite(values) for values in (y, r, t)):
            return None
        nan = torch.isnan(y)
        wrong = (nan & ~torch.isnan(r) & ~torch.isnan(t)) | (~nan & torch.isnan(r) & torch.isnan(t))
        if bool(wrong.any()):
            unwritten = wrong & _poison(y)
            if bool(unwritten.any()):
                return self._elements(Reason.UNWRITTEN, "never written", unwritten)
            return self._elements(Reason.NAN_PATTERN, "NaN, or not NaN, contrary to torch", wrong)
        for infinity in (torch.inf, -torch.inf):
            here = y == infinity
            wrong = (here & (r != infinity) & (t != infinity)) | (~here & (r == infinity) & (t == infinity))
            if bool(wrong.any()):
                return self._elements(
                    Reason.INFINITE_PATTERN, "infinite, or finite, contrary to torch", wrong
                )
        return None

    def _elements(self, reason: Reason, what: str, wrong: Tensor) -> Check:
        """A failed check with the first wrong element and the map of all; `wrong` is flat."""
        output, count, first = self.output, int(wrong.sum()), int(wrong.to(torch.uint8).argmax())
        place = describe(wrong.reshape(output.shape))
        reference = output.answer if output.scale is None else output.scale.reference
        worst = WorstElement(
            output=output.index,
            index=position(first, output.shape),
            expected=number(reference.reshape(-1)[first].item(), reference.dtype),
            got=number(self.answer.reshape(-1)[first].item(), self.answer.dtype),
            tolerance=0.0,
        )
        message = (
            f"{self.subject}: {count} of {counted(wrong.numel(), 'element is', 'elements are')} {what} ({self.inputs} inputs). First is "
            f"{list(worst.index)}: expected {worst.expected}, got {worst.got}. "
            f"Where: {place.splitlines()[0]}."
        )
        return Check(
            rule="form",
            inputs=self.inputs,
            passed=False,
            reason=reason,
            message=message,
            share=None,
            wrong=count,
            compared=wrong.numel(),
            worst=worst,
            map=place,
        )


def _same_strides(strides: Sequence[int], expected: Sequence[int], shape: Sequence[int]) -> bool:
    """Equal but for dimensions of size 1, whose strides mean nothing."""
    return all(a == b for a, b, size in zip(strides, expected, shape, strict=True) if size > 1)


def _poison(values: Tensor) -> Tensor:
    """Where the very NaN lies with which outputs are filled before the call.

    It is the positive quiet NaN without payload. Arithmetic on x86 makes the negative one, and on
    NVIDIA GPUs one with all bits set, so that an overflow is not taken for an unwritten element.
    """
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(values.element_size())
    if integers is None:
        return torch.isnan(values)
    poison = torch.full((1,), torch.nan, dtype=values.dtype, device=values.device)
    return values.contiguous().view(integers) == poison.view(integers)
