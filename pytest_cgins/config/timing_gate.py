"""`gate`: how times are judged, of the file and of each kernel.

Four layers, the later before the earlier: the file's profile, the file's other keys, the kernel's profile, the
kernel's other keys. Limits are checked after they are merged, at the line that came last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

from pytest_cgins.config.document import Section, Value, keys, one_of

WHOLE_SUITE_KEYS = ("alpha", "baseline")
"""Of the file alone: all cases share them."""
PROFILE_FIELDS = ("tolerate", "catch", "max_blocks")
"""What a profile stands for."""
LEAST_BLOCKS, MOST_BLOCKS = 10, 10_000
"""Ten blocks that all point one way are the fewest that prove anything at 1%."""
GREATEST_FLOOR = 1000.0
_NUMBER = re.compile(r"((?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?)[ ]?(%?)")
_REVISION = re.compile(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]{0,249}")

FailOn = Literal["regression", "inconclusive", "never"]
Cache = Literal["cold", "warm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """How far a kernel's resources may grow without failing the compile gate."""

    registers: Annotated[int | None, Value.integer] = None
    """Growth up to so many registers a thread is accepted; None: up to what costs no resident warps."""
    spill_nbytes: Annotated[int, Value.integer, "spill_bytes"] = 0
    """Growth up to so many spilled bytes a thread, stores and loads together, is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingGate:
    """How a kernel's time is judged: `gate` of the file, and of the kernel, which comes before it."""

    tolerate: Annotated[float, _slowdown] = 0.02
    """δ₀: slowdowns up to this against the base revision pass; 0.02 is 2%."""
    catch: Annotated[float, _catch] = 0.05
    """δ₁: slowdown that must be caught."""
    floor_vs_torch: Annotated[float | None, _floor] = None
    """Least speed against torch, eager: 0.9 is nine tenths of torch's; None for none."""
    fail_on: Annotated[FailOn, one_of(FailOn)] = "regression"
    """`regression`: a proven slowdown fails; `inconclusive`: an undecided case too; `never`: neither does."""
    alpha: Annotated[float, _chance] = 0.01
    """Chance of a false alarm in the whole suite."""
    beta: Annotated[float, _chance] = 0.01
    """Chance of clearing a kernel that is slower by `catch`."""
    max_blocks: Annotated[int, _blocks] = 64
    """After so many blocks a case is undecided."""
    cache: Annotated[Cache, one_of(Cache)] = "cold"
    """`cold`: inputs rotate through more than twice the last-level cache; `warm`: they do not."""


PROFILES = {"default": TimingGate(), "strict": TimingGate(tolerate=0.01, catch=0.03, max_blocks=256)}
"""What `gate.profile` stands for; other keys of `gate` come before it."""


Settings = Mapping[str, tuple[Any, Value]]
"""By field: its value, and what that was read from; a profile for what follows from it."""


def percent(share: float) -> str:
    """A share as people write it: 0.025 is 2.5%."""
    return f"{share * 100:.10g}%"


def of_file(value: Value | None) -> tuple[Settings, str]:
    """The file's `gate`, over which kernels lay theirs, and its `baseline`, "" if it names none.

    Raises:
        ConfigError: an unknown key, or a value that cannot be meant; with file, line and remedy.
    """
    if value is None:
        return {}, ""
    section = value.mapping()
    _refuse(section, keys(ResourceLimits), "only kernels have it", "write it in a kernel's gate")
    section.refuse_unknown(("profile", *keys(TimingGate), "baseline"))
    settings = _checked(_layer(section), section)
    baseline = section.get("baseline")
    return settings, _revision(baseline) if baseline else ""


def of_kernel(value: Value | None, below: Settings) -> tuple[TimingGate, ResourceLimits]:
    """A kernel's `gate`, laid over the file's.

    Raises:
        ConfigError: an unknown key, or a value that cannot be meant; with file, line and remedy.
    """
    if value is None:
        return _gate(below), ResourceLimits()
    section = value.mapping()
    remedy = "write it in the gate of the file: gate at the top level"
    _refuse(section, WHOLE_SUITE_KEYS, "all kernels of a run share it", remedy)
    times = (key for key in keys(TimingGate) if key not in WHOLE_SUITE_KEYS)
    section.refuse_unknown(("profile", *times, *keys(ResourceLimits)))
    limits = ResourceLimits(**section.fields(ResourceLimits, others=True))
    return _gate(_checked({**below, **_layer(section)}, section)), limits


def _refuse(section: Section, others: Iterable[str], why: str, remedy: str) -> None:
    """Refuse keys that belong to the other kind of gate."""
    for key in others:
        if key in section:
            section[key].fail(f"{section[key].label}: {why}", remedy=remedy)


def _gate(settings: Settings) -> TimingGate:
    return TimingGate(**{field: value for field, (value, _) in settings.items()})


def _layer(section: Section) -> Settings:
    """What one mapping says: its profile, and over that its other keys."""
    layer: dict[str, tuple[Any, Value]] = {}
    profile = section.get("profile")
    if profile:
        chosen = PROFILES[profile.choice(*PROFILES)]
        layer = {name: (getattr(chosen, name), profile) for name in PROFILE_FIELDS}
    own = section.fields(TimingGate, others=True)
    return layer | {key: (value, section[key]) for key, value in own.items()}


def _checked(settings: Settings, section: Section) -> Settings:
    """The same, if what is tolerated lies below what must be caught."""
    gate = _gate(settings)
    if gate.tolerate >= gate.catch:
        sources = {key: settings[key][1] for key in ("tolerate", "catch") if key in settings}
        tolerate, catch = (
            f"{key} {percent(share)} ({_origin(sources.get(key))})"
            for key, share in (("tolerate", gate.tolerate), ("catch", gate.catch))
        )
        given = list(sources.values())
        latest = next((value for value in given if value.section is section), given[0])
        latest.fail(
            f"{section.title} has {tolerate}, which is not below {catch}",
            remedy="let catch be the greater of both, e.g. tolerate: 2%, catch: 5%",
        )
    return settings


def _origin(source: Value | None) -> str:
    """Where a value is written: `profile strict, line 4`."""
    if source is None:
        return "default"
    return f"profile {source.node.value}, " * (source.key == "profile") + f"line {source.line}"


def _number(value: Value) -> float | None:
    """`2%`, `0.02` or `2e-2`, read in decimals, so that all three are one number; None for anything else."""
    match = _NUMBER.fullmatch(value.scalar().strip())
    if match is None:
        return None
    return float(Decimal(match[1]) / (100 if match[2] else 1))


def _slowdown(value: Value) -> float:
    """A slowdown of 0 to 100%."""
    number = _number(value)
    if number is None:
        value.refuse("not a share of the time", remedy="write a percentage or a fraction, e.g. 2% or 0.02")
    if number > 1:
        value.refuse(
            f"which is {percent(number)}; the most is 100%",
            remedy=f"write {number:g}% if that is what is meant",
        )
    return number


def _catch(value: Value) -> float:
    number = _slowdown(value)
    if number == 0:
        value.refuse("not above 0", remedy="write what must be found, e.g. 5%")
    return number


def _chance(value: Value) -> float:
    """A chance above 0, of at most a half."""
    number = _number(value)
    if number is None or not 0 < number <= 0.5:
        value.refuse(
            "not a chance above 0 and up to 0.5", remedy="write a fraction or a percentage, e.g. 0.01 or 1%"
        )
    return number


def _floor(value: Value) -> float | None:
    """A speed against torch; None for `none` and `false`."""
    word = value.scalar().strip()
    if word == "none" or (value.is_a("bool") and not value.boolean()):
        return None
    number = _number(value)
    if number is None or not 0 < number <= GREATEST_FLOOR:
        value.refuse(
            f"not a speed above 0 and up to {GREATEST_FLOOR:g} times torch's",
            remedy="write a number such as 0.9 (nine tenths of torch's speed), or none",
        )
    return number


def _blocks(value: Value) -> int:
    number = value.integer()
    if not LEAST_BLOCKS <= number <= MOST_BLOCKS:
        few = number < LEAST_BLOCKS
        usual = PROFILES["default"].max_blocks
        value.refuse(
            "too few to prove anything" if few else "more than any run has time for",
            remedy=f"write {LEAST_BLOCKS} to {MOST_BLOCKS}; the profile default has {usual}",
        )
    return number


def _revision(value: Value) -> str:
    """`merge-base`, `none`, or what git may know as a commit."""
    word = value.scalar()
    if value.is_a("bool", "null") or not _REVISION.fullmatch(word):
        value.refuse("not the name of a commit", remedy="write merge-base, none, or a commit, tag or branch")
    return word
