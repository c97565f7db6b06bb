"""Whether machine code shows that a method was applied.

A listing is cuobjdump's (`cuobjdump -sass`), nvdisasm's, or bare instructions. What cannot be told is `unknown`, and
unknown is never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.methods.definition import Method, Signature

Shown = Literal["present", "absent", "unknown"]
"""What machine code says of a method."""
MOST_LINES = 8
"""Matching lines that are kept a pattern."""

_SECTION = re.compile(r"\s*(?:arch = |\.target\s+|code for )(sm_\w+)\s*$")
_FUNCTION = re.compile(r"\s*(?:Function : |\.text\.)(\S+?):?\s*$")
_LISTED = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][^;/]*)")
_BARE = re.compile(r"\s*(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]+(?:\.\w+)*(?:\s[^;]*)?);?\s*$")
_ARCH = re.compile(r"(?:sm_|compute_)?(\d{2,3})[af]?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Document):
    """An instruction that matched."""

    function: str
    """The kernel it is in, mangled; "" where the listing does not say."""
    text: str
    """The instruction: `HMMA.16816.F32 R4, R8, R2, R4`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SassCheck(Document):
    """What machine code says of one method."""

    method: str
    """Its id."""
    shown: Shown
    """The answer."""
    lines: tuple[Line, ...] = ()
    """Instructions that matched, the first of each pattern."""
    missing: tuple[str, ...] = ()
    """Patterns without a match, where it is absent."""
    note: str = ""
    """Why it is unknown."""


def check(listing: Iterable[str], method: Method, arch: str) -> SassCheck:
    """Look for a method's signature. Patterns that must all be there must be in one kernel.

    Args:
        listing: lines of a disassembly, or instructions.
        method: what is looked for.
        arch: whose code counts, where the listing has several: `sm_90a`.
    """
    signature = signature_for(method, arch)
    if signature is None:
        why = "has no SASS signature" if not method.signatures else f"has no SASS signature for {arch}"
        return SassCheck(method=method.id, shown="unknown", note=f"{method.id} {why}")
    code = tuple(instructions(listing, arch))
    if not code:
        return SassCheck(method=method.id, shown="unknown", note=f"the listing has no code for {arch}")
    functions = dict.fromkeys(line.function for line in code)
    found = [_of_one(tuple(line for line in code if line.function == name), signature) for name in functions]
    lines, missing = min(found, key=lambda pair: len(pair[1]))
    if signature.mode == "any":
        lines = tuple(line for some, _ in found for line in some)
        missing = () if lines else signature.patterns
    return SassCheck(
        method=method.id,
        shown="absent" if missing else "present",
        lines=lines[: MOST_LINES * len(signature.patterns)],
        missing=missing,
    )


def signature_for(method: Method, arch: str) -> Signature | None:
    """The first of a method's signatures that speaks of an architecture."""
    named = _ARCH.fullmatch(arch)
    if named is None:
        return None
    return next((one for one in method.signatures if one.least <= int(named[1]) <= one.most), None)


def instructions(listing: Iterable[str], arch: str) -> Iterator[Line]:
    """Instructions of an architecture, without predicate, address and encoding."""
    wanted, function, listed = True, "", False
    for line in listing:
        if section := _SECTION.match(line):
            wanted, function, listed = section[1] == arch, "", True
        elif named := _FUNCTION.match(line):
            function, listed = named[1], True
        elif wanted and (found := _LISTED.match(line)):
            listed = True
            yield Line(function=function, text=" ".join(found[1].split()))
        elif wanted and not listed and (found := _BARE.match(line)):
            yield Line(function=function, text=" ".join(found[1].split()))


def _of_one(code: tuple[Line, ...], signature: Signature) -> tuple[tuple[Line, ...], tuple[str, ...]]:
    """Instructions of one function that match, and the patterns that nothing in it matches."""
    found: dict[str, list[Line]] = {}
    for pattern in signature.patterns:
        matching = dict.fromkeys(line for line in code if re.match(pattern, line.text))
        found[pattern] = list(matching)[:MOST_LINES]
    lines = tuple(dict.fromkeys(line for some in found.values() for line in some))
    return lines, tuple(pattern for pattern, some in found.items() if not some)
