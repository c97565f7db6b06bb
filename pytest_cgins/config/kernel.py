"""One kernel of `cgins.yaml`: its implementations, how it is judged, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from pytest_cgins.config import semantics, timing_gate
from pytest_cgins.config.document import Reader, Section, Value, keys
from pytest_cgins.config.implementation import (
    Implementation,
    check_name,
    implementation,
    implementation_keys,
    target_of,
)
from pytest_cgins.config.semantics import Declared
from pytest_cgins.config.timing_gate import ResourceLimits, TimingGate
from pytest_cgins.core.expression import ExpressionError, amount, parse
from pytest_cgins.core.trace import is_registered
from pytest_cgins.core.verdict import PROBES

_MOST_RANKS = 64
_MINIMUM_REASON = 8  # characters: "because" explains nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a kernel may be from gold: the derived rule, or plain allclose."""

    kind: Literal["derived", "explicit"] = "derived"
    """`explicit`: |y − gold| ≤ atol + rtol·|gold|, every element."""
    rtol: Annotated[float, Value.amount] = 0.0
    """Relative part, for `explicit`."""
    atol: Annotated[float, Value.amount] = 0.0
    """Absolute part, for `explicit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredWork:
    """What cgins.yaml says a call must do, as expressions over the op's arguments; "" where it does not say."""

    nbytes: Annotated[str, _expression, "bytes"] = ""
    """Bytes read and written."""
    flops: Annotated[str, _expression] = ""
    """Floating-point operations, a multiply-add being two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatability:
    """How far a kernel's answers to the same inputs may differ from each other."""

    kind: Literal["exact", "tolerance", "explicit"] = "exact"
    """`exact`: bit for bit; `tolerance`: each within the case's tolerance; `explicit`: |a − b| ≤ atol + rtol·|a|."""
    rtol: Annotated[float, Value.amount] = 0.0
    """Relative part, for `explicit`."""
    atol: Annotated[float, Value.amount] = 0.0
    """Absolute part, for `explicit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeException:
    """A probe that a kernel is excused from."""

    probe: str
    """Its name."""
    reason: str
    """Why, as the user wrote it; reports show it."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Processes that call a kernel together, each with inputs of its own."""

    count: Annotated[int, _rank_count] = 1
    """How many; 1 is a kernel that needs no others."""
    replicated: Annotated[tuple[str, ...], Value.texts] = ()
    """Arguments that hold the same numbers on all of them."""


Claim = Literal["strided", "misaligned", "batch_invariant"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
"""What a kernel may claim: it takes any strides; addresses that are no multiple of 16; a row's bits do not depend on the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEntry:
    """One kernel of cgins.yaml."""

    name: str
    """Its key."""
    op: str
    """Qualified name of the op it replaces."""
    reference: Annotated[str, _reference] = ""
    """`module:function` that tells what is right in the op's place; "" for the op itself, or the recorded gold alone."""
    implementations: tuple[Implementation, ...]
    """At least one."""
    tolerance: Annotated[Tolerance, difference(Tolerance, ("derived",), "{rtol: 1e-3, atol: 1e-5}")] = (
        Tolerance()
    )
    """For rule 1."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    """For the compile gate."""
    timing: TimingGate = field(default_factory=TimingGate)
    """How its time is judged."""
    work: Annotated[DeclaredWork, _work] = DeclaredWork()
    """For the roofline."""
    exceptions: Annotated[tuple[ProbeException, ...], _probe_exceptions, "probes"] = ()
    """Probes that it is excused from."""
    repeatability: Annotated[
        Repeatability,
        difference(Repeatability, ("exact", "tolerance"), "{rtol: 1e-5, atol: 0}"),
        "repeatable",
    ] = Repeatability()
    """For the probe `repeat`."""
    claims: Annotated[tuple[Claim, ...], _claims] = ()
    """What it claims: the probes `layouts` and `invariance` try it."""
    allow_tf32: Annotated[bool, _allow_tf32, "precision"] = False
    """Whether fp32 products may be computed on inputs of 11 significant bits (TF32)."""
    semantics: Annotated[Declared, semantics.semantics] = field(default_factory=Declared)
    """What the user says of its op."""
    ranks: Annotated[Ranks, _ranks] = Ranks()
    """Processes that call it together."""
    line: int = 0
    """Line in cgins.yaml, 1-based."""

    @property
    def judged_by(self) -> str:
        """Qualified name of the function that tells what is right; "" where the recorded gold alone does.

        An operator of others is the very code that is gated: it does not judge itself.
        """
        if self.reference:
            return self.reference.replace(":", ".") + "".join(self.op.partition("@")[1:])
        return "" if is_registered(self.op) else self.op


def kernel(value: Value, gate: timing_gate.Settings) -> KernelEntry:
    """A kernel, whose own `gate` comes before that of the file."""
    name = value.key
    check_name(value, name, "kernel")
    section = value.mapping(f'kernel "{name}"')
    # In the short form the keys of the one implementation stand beside those of the kernel.
    others = () if "implementations" in section else implementation_keys()
    section.refuse_unknown(("op", "implementations", *keys(KernelEntry), "gate", *others))
    op = section.require("op", remedy="name the op it replaces, e.g. op: torch.nn.functional.gelu").text()
    implementations = _implementations(section, op)
    timing, limits = timing_gate.of_kernel(section.get("gate"), gate)
    return KernelEntry(
        name=name,
        op=op,
        implementations=implementations,
        limits=limits,
        timing=timing,
        line=section.line,
        **section.fields(KernelEntry, others=True),
    )


def _implementations(section: Section, op: str) -> tuple[Implementation, ...]:
    listed = section.get("implementations")
    if listed:
        implementations = tuple(
            _listed(item, number, section.title, op) for number, item in enumerate(listed.items(), 1)
        )
        if not implementations:
            listed.fail(f"{section.title} has no implementation", remedy="list at least one")
    elif any(key in section for key in implementation_keys()):
        implementations = (implementation(section, op),)
    else:
        section.fail(
            f"{section.title} has neither implementations nor a source or target",
            remedy="add source: FILE.cpp, target: MODULE:FUNCTION, or implementations: […]",
        )
    _refuse_twins(section, implementations)
    return implementations


def _listed(item: Value, number: int, kernel: str, op: str) -> Implementation:
    section = item.mapping(f"implementation {number} of {kernel}")
    if "name" in section:
        section.title = f'implementation "{section["name"].scalar()}" of {kernel}'
    section.refuse_unknown(implementation_keys())
    return implementation(section, op)


def _refuse_twins(section: Section, implementations: tuple[Implementation, ...]) -> None:
    """Refuse two implementations that a test id could not tell apart (`cpu-x` is also `x` on cpu)."""
    seen: dict[str, Implementation] = {}
    for second in implementations:
        device, name = second.device, second.name
        first = seen.setdefault(name if name.startswith(device) else f"{device}-{name}", second)
        if first is not second:
            section.fail(
                f'{section.title} has two implementations "{name}" for device {device}, in lines '
                f"{first.line} and {second.line}",
                remedy="give one of them another name",
            )


def _reference(value: Value) -> str:
    return target_of(
        value, "name a function of torch that takes the op's arguments, e.g. tests.reference:rms_norm"
    )


def difference(cls: type[Any], words: tuple[str, ...], example: str) -> Reader:
    """A reader of an allowed difference: a word, or a mapping of `rtol` and `atol`."""

    def read(value: Value) -> Any:
        if value.is_a("str"):
            return cls(kind=value.choice(*words, otherwise=f"a mapping such as {example}"))
        section = value.mapping()
        bounds = section.fields(cls)
        if not bounds:
            section.fail(f"{section.title} is empty", remedy=f"write {', '.join(words)}, or {example}")
        return cls(kind="explicit", **bounds)

    return read


def _work(value: Value) -> DeclaredWork:
    """`work: {bytes: EXPRESSION, flops: EXPRESSION}`.

    An expression that needs a call is checked at the call; what is wrong in any call is an error here.
    """
    section = value.mapping()
    work = section.fields(DeclaredWork)
    if not work:
        section.fail(
            f"{section.title} is empty", remedy="write {bytes: EXPRESSION}, {flops: EXPRESSION} or both"
        )
    return DeclaredWork(**work)


def _expression(value: Value) -> str:
    text = value.scalar().strip()
    wrong = "no expression" if value.is_a("bool", "null") or not text else _wrong_with_expression(text)
    if wrong:
        value.fail(
            f"{value.label} is {text[:80] or 'empty'}: {wrong}",
            remedy="write arithmetic over the op's arguments, e.g. 2 * input.numel() * input.itemsize, or a "
            "number: 2e9",
        )
    return text


def _wrong_with_expression(text: str) -> str:
    try:
        parsed = parse(text)
        if not parsed.names:
            amount(parsed, {})
    except ExpressionError as error:
        return str(error)
    return ""


def _probe_exceptions(value: Value) -> tuple[ProbeException, ...]:
    """`probes: {NAME: {off: REASON}}`."""
    section = value.mapping()
    section.refuse_unknown(PROBES)
    return tuple(_probe_exception(section[name], value.section.title) for name in section)


def _probe_exception(value: Value, kernel: str) -> ProbeException:
    section = value.mapping(f'probe "{value.key}" of {kernel}')
    section.refuse_unknown(("off",))
    reason = section.require("off", remedy='write off: "why this kernel may"')
    text = reason.text().strip()
    if len(text) < _MINIMUM_REASON:
        reason.fail(
            f'the reason for switching {value.key} off is "{text}"',
            remedy="say in a few words why this kernel may; reports show it",
        )
    return ProbeException(probe=value.key, reason=text, line=value.line)


def _ranks(value: Value) -> Ranks:
    """`ranks: 2`, or `ranks: {count: 2, replicated: [weight]}`."""
    if not value.is_a("map"):
        return Ranks(count=_rank_count(value))
    section = value.mapping()
    section.require("count", remedy="write how many processes call the kernel, count: 2")
    return Ranks(**section.fields(Ranks))


def _rank_count(value: Value) -> int:
    count = value.integer()
    if not 2 <= count <= _MOST_RANKS:
        value.refuse(f"not within 2 to {_MOST_RANKS}", remedy="leave ranks out for a kernel of one process")
    return count


def _claims(value: Value) -> tuple[Claim, ...]:
    """`claims: [strided, misaligned, batch_invariant]`."""
    return tuple(dict.fromkeys(item.choice(*CLAIMS) for item in value.items()))


def _allow_tf32(value: Value) -> bool:
    """`precision: {allow_tf32: true}`."""
    section = value.mapping()
    section.refuse_unknown(("allow_tf32",))
    return "allow_tf32" in section and section["allow_tf32"].boolean()
