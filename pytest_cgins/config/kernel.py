"""One kernel of `cgins.yaml`: its implementations, how it is judged, and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_cgins.config import timing_gate
from pytest_cgins.config.document import Section, Value
from pytest_cgins.config.implementation import IMPLEMENTATION_KEYS, check_name, implementation
from pytest_cgins.config.model import (
    CLAIMS,
    Claim,
    DeclaredWork,
    Implementation,
    KernelEntry,
    ProbeException,
    Repeatability,
    Tolerance,
)
from pytest_cgins.config.semantics import semantics
from pytest_cgins.core.expression import ExpressionError, amount, parse
from pytest_cgins.core.model import PROBES

_MINIMUM_REASON = 8  # characters: "because" explains nothing


def kernel(value: Value, gate: timing_gate.Settings) -> KernelEntry:
    """A kernel, whose own `gate` comes before that of the file."""
    name = value.key
    check_name(value, name, "kernel")
    section = value.mapping(f'kernel "{name}"')
    section.refuse_unknown(KERNEL_KEYS if "implementations" in section else _ALL_KEYS)
    op = section.require("op", remedy="name the op it replaces, e.g. op: torch.nn.functional.gelu").text()
    implementations = _implementations(section)
    timing, limits = timing_gate.of_kernel(section.get("gate"), gate)
    fields = {field: read(section[key]) for key, (field, read) in _READERS.items() if key in section}
    return KernelEntry(
        name=name,
        op=op,
        implementations=implementations,
        limits=limits,
        timing=timing,
        line=section.line,
        **fields,
    )


def _implementations(section: Section) -> tuple[Implementation, ...]:
    listed = section.get("implementations")
    if listed:
        implementations = tuple(
            _listed(item, number, section.title) for number, item in enumerate(listed.items(), 1)
        )
        if not implementations:
            listed.fail(f"{section.title} has no implementation", remedy="list at least one")
    elif any(key in section for key in IMPLEMENTATION_KEYS):
        implementations = (implementation(section),)
    else:
        section.fail(
            f"{section.title} has neither implementations nor a source or target",
            remedy="add source: FILE.cpp, target: MODULE:FUNCTION, or implementations: […]",
        )
    _refuse_twins(section, implementations)
    return implementations


def _listed(item: Value, number: int, kernel: str) -> Implementation:
    name = item.mapping(f"implementation {number} of {kernel}").get("name")
    section = item.mapping(
        f'implementation "{name.scalar()}" of {kernel}' if name else f"implementation {number} of {kernel}"
    )
    section.refuse_unknown(IMPLEMENTATION_KEYS)
    return implementation(section)


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


def _tolerance(value: Value) -> Tolerance:
    """`tolerance: derived | {rtol, atol}`."""
    return Tolerance(**_allowed_difference(value, ("derived",), "{rtol: 1e-3, atol: 1e-5}"))


def _repeatability(value: Value) -> Repeatability:
    """`repeatable: exact | tolerance | {rtol, atol}`."""
    return Repeatability(**_allowed_difference(value, ("exact", "tolerance"), "{rtol: 1e-5, atol: 0}"))


def _allowed_difference(value: Value, words: tuple[str, ...], example: str) -> dict[str, Any]:
    """`kind`, `rtol` and `atol` of a word, or of a mapping."""
    if value.is_a("str"):
        return {"kind": value.choice(*words, otherwise=f"a mapping such as {example}")}
    section = value.mapping()
    bounds = section.read({"rtol": Value.amount, "atol": Value.amount})
    if not bounds:
        section.fail(f"{section.title} is empty", remedy=f"write {', '.join(words)}, or {example}")
    return {"kind": "explicit", **bounds}


def _work(value: Value) -> DeclaredWork:
    """`work: {bytes: EXPRESSION, flops: EXPRESSION}`.

    An expression that needs a call is checked at the call; what is wrong in any call is an error here.
    """
    section = value.mapping()
    work = section.read({"bytes": _expression, "flops": _expression})
    if not work:
        section.fail(
            f"{section.title} is empty", remedy="write {bytes: EXPRESSION}, {flops: EXPRESSION} or both"
        )
    return DeclaredWork(nbytes=work.get("bytes", ""), flops=work.get("flops", ""))


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


def _claims(value: Value) -> tuple[Claim, ...]:
    """`claims: [strided, misaligned]`."""
    return tuple(dict.fromkeys(item.choice(*CLAIMS) for item in value.items()))


def _allow_tf32(value: Value) -> bool:
    """`precision: {allow_tf32: true}`."""
    return bool(value.mapping().read({"allow_tf32": Value.boolean}).get("allow_tf32"))


_READERS: Mapping[str, tuple[str, Callable[[Value], Any]]] = {
    "tolerance": ("tolerance", _tolerance),
    "work": ("work", _work),
    "probes": ("exceptions", _probe_exceptions),
    "repeatable": ("repeatability", _repeatability),
    "claims": ("claims", _claims),
    "precision": ("allow_tf32", _allow_tf32),
    "semantics": ("semantics", semantics),
}
"""By key: the field of `KernelEntry`, and what reads it."""
KERNEL_KEYS = ("op", "implementations", *_READERS, "gate")
_ALL_KEYS = (*KERNEL_KEYS, *IMPLEMENTATION_KEYS)
"""In the short form the keys of the one implementation stand beside those of the kernel."""
