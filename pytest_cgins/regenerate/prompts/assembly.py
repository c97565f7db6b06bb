"""What all prompts for a kernel share: who is spoken to, and all that stays the same from attempt to attempt.

What never changes comes first, so that providers can keep it; what the last attempt did comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_cgins.regenerate.model import Message
from pytest_cgins.regenerate.prompts import (
    answers_format,
    blocks,
    contract,
    definitions,
    demands,
    failures,
    figures,
    files,
    hardware,
    history,
    languages,
    traces,
    workload,
)
from pytest_cgins.regenerate.prompts.context import Context

MOST_CHARACTERS = 84_000
"""Of a whole prompt: about 24,000 tokens."""

_WORDS = {
    "cpp": "C++ kernels for CPUs", "cuda": "CUDA C++ kernels", "device": "CUDA device kernels built by NVRTC", "triton": "Triton kernels",
    "cute": "CUDA kernels with CuTe (CUTLASS)", "cute-dsl": "kernels in CuTe DSL", "python": "kernels called from Python",
}  # fmt: skip


def messages(context: Context, task: str, sections: Sequence[str]) -> tuple[Message, ...]:
    """A prompt for the generator.

    Args:
        context: what it is about.
        task: what is asked for, in a paragraph.
        sections: what this prompt has besides what all have, in order; it comes last.
    """
    user = blocks.join([f"# Task\n{task}", *known(context), *sections, answers_format.described(context)])
    return (Message(role="system", text=system(context)), Message(role="user", text=bounded(user)))


def system(context: Context) -> str:
    """Who the model is, and what holds above all else."""
    return "\n".join(
        [
            (
                f"You write {_WORDS[languages.of(context)]} that replace ops of PyTorch. A gate "
                "compiles and runs what you answer, compares it with torch in fp64 on recorded and "
                "on "
                "fresh inputs, and looks for shortcuts. It cannot be argued with: only a right kernel passes."
            ),
            (
                "The kernel must compute the op itself, for all inputs. Never special-case recorded "
                "values, keep results between calls, call torch for the arithmetic, or look at the "
                "gate."
            ),
            blocks.DATA_RULE,
        ]
    )


def known(context: Context) -> list[str]:
    """What stays the same from attempt to attempt."""
    return [
        definitions.described(context),
        traces.described(context),
        contract.described(context),
        demands.described(context),
        blocks.section("Hardware", [hardware.described(with_peaks(context))]),
        files.headers(context),
    ]


def with_peaks(context: Context) -> hardware.Hardware:
    """The device, with the peaks that measurements name where it has none."""
    it = context.hardware
    if it.peak_bytes_per_s:
        return it
    for one in context.evaluations:
        roofline = one.measurement.roofline if one.measurement is not None else None
        if roofline is not None:
            rates = {one.case.dtype: roofline.peak_flops_per_s} if roofline.peak_flops_per_s else {}
            return replace(
                it,
                peak_bytes_per_s=roofline.peak_bytes_per_s,
                peak_flops_per_s={**rates, **it.peak_flops_per_s},
            )
    return it


def state(context: Context) -> list[str]:
    """The sources as they are, and what was tried."""
    return [files.incumbent(context), files.own(context), history.described(context), failed(context)]


def failed(context: Context) -> str:
    """What is wrong with the files as they are shown: of the last attempt, else what the gate found."""
    if context.attempts:
        last = context.attempts[-1]
        return blocks.section(
            "What is wrong now", [failures.of_attempt(last, tuple(context.sources), context.top)]
        )
    found = failures.of_evaluations(context.evaluations, context.top)
    return blocks.section("What is wrong now", [found] if found else [])


def times(context: Context) -> str:
    """What was measured."""
    return figures.described(context)


def advice(context: Context) -> str:
    """What makes such a kernel fast on this device."""
    return workload.described(replace(context, hardware=with_peaks(context)))


def bounded(text: str) -> str:
    """A last guard: each part has its own bound, which together stay below this one but for odd projects."""
    if len(text) <= MOST_CHARACTERS:
        return text
    # The answer's form comes last and must stay.
    return blocks.middle_out(text, MOST_CHARACTERS)
