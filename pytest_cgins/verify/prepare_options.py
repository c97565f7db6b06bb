"""What a kernel's entry in cgins.yaml, and the run, ask of the preparation of a trace."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_cgins.config import Declared, declared
from pytest_cgins.verify.messages import Question

PREPARED = frozenset({"sizes", "arguments", "layouts", "special_values", "second_precision"})
"""Probes that have sets of inputs of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """Kernels with equal ones share a preparation."""

    probes: frozenset[str] = frozenset()
    """Those of `PREPARED` that are switched on."""
    claims: tuple[str, ...] = ()
    """What the kernel is said to take beyond what was recorded."""
    declared: Declared = field(default_factory=Declared)
    """What the user says of the op."""
    allow_tf32: bool = False
    """Whether fp32 products of inputs rounded to TF32 are right."""
    interpreted: bool = False
    """Whether the kernel runs in Triton's interpreter, which takes a millisecond for what others do at once."""


def prepare_options_of(question: Question) -> PrepareOptions:
    """Those of a question to the judge."""
    return PrepareOptions(
        probes=frozenset(question.probes) & PREPARED,
        claims=question.claims,
        declared=declared(question.semantics),
        allow_tf32=question.allow_tf32,
        interpreted=question.interpreted,
    )
