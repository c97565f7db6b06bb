"""The keys of a kernel that say what it may do: `probes`, `repeatable`, `claims`, `precision`.

`semantics`, which says what its op does, is read by `config.semantics`.
"""

from __future__ import annotations

from typing import cast

from pytest_cgins.config.document import Section, Value
from pytest_cgins.config.model import CLAIMS, Claim, ProbeException, Repeatability
from pytest_cgins.core.model import PROBES

CONDUCT_KEYS = ("probes", "repeatable", "claims", "precision", "semantics")
_MINIMUM_REASON = 8  # characters: "because" explains nothing


def exceptions(value: Value | None, kernel: str) -> tuple[ProbeException, ...]:
    """`probes: {NAME: {off: REASON}}`."""
    if value is None:
        return ()
    section = value.mapping(f'probes of kernel "{kernel}"')
    section.refuse_unknown(PROBES)
    found = []
    for name in section:
        entry = section.require(name, remedy="")
        one = entry.mapping(f'probe "{name}" of kernel "{kernel}"')
        one.refuse_unknown(("off",))
        reason = one.require("off", remedy='write off: "why this kernel may"')
        text = reason.text().strip()
        if len(text) < _MINIMUM_REASON:
            reason.fail(
                f'the reason for switching {name} off is "{text}"',
                remedy="say in a few words why this kernel may; reports show it",
            )
        found.append(ProbeException(probe=name, reason=text, line=entry.line))
    return tuple(found)


def repeatability(value: Value | None, kernel: str) -> Repeatability:
    """`repeatable: exact | tolerance | {rtol, atol}`."""
    if value is None:
        return Repeatability()
    if value.node.tag.endswith(":str"):
        word = value.choice("exact", "tolerance", otherwise="a mapping such as {rtol: 1e-5}")
        return Repeatability(kind="tolerance" if word == "tolerance" else "exact")
    section = value.mapping(f'repeatable of kernel "{kernel}"')
    section.refuse_unknown(("rtol", "atol"))
    rtol, atol = section.get("rtol"), section.get("atol")
    if rtol is None and atol is None:
        section.fail(f"{section.title} is empty", remedy="write exact, tolerance, or {rtol: 1e-5, atol: 0}")
    return Repeatability(
        kind="explicit", rtol=rtol.amount() if rtol else 0.0, atol=atol.amount() if atol else 0.0
    )


def claims(section: Section) -> tuple[Claim, ...]:
    """`claims: [strided, misaligned]`."""
    value = section.get("claims")
    found = [item.choice(*CLAIMS) for item in value.items()] if value else []
    return cast("tuple[Claim, ...]", tuple(dict.fromkeys(found)))


def allow_tf32(value: Value | None, kernel: str) -> bool:
    """`precision: {allow_tf32: true}`."""
    if value is None:
        return False
    section = value.mapping(f'precision of kernel "{kernel}"')
    section.refuse_unknown(("allow_tf32",))
    allowed = section.get("allow_tf32")
    return allowed.boolean() if allowed else False
