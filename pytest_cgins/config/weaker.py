"""Which settings of a `cgins.yaml` are weaker than at the base revision: what a pull request loosens.

`RULES` gives each field of each class in a `Config` the direction in which it is weaker. A test fails for a field
without a rule, so that a new setting cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pytest_cgins.config.implementation import Implementation
from pytest_cgins.config.kernel import (
    DeclaredWork,
    KernelEntry,
    ProbeException,
    Ranks,
    Repeatability,
    Tolerance,
)
from pytest_cgins.config.llm import Budget, LlmSettings, Models, Temperatures
from pytest_cgins.config.load import Config
from pytest_cgins.config.model import ModelEntry
from pytest_cgins.config.pull_request import PullRequestSettings
from pytest_cgins.config.semantics import Declared
from pytest_cgins.config.timing_gate import ResourceLimits, TimingGate

Rule = Callable[[Any, Any], bool]
"""Whether the second value is weaker than the first."""


def neutral(_before: Any, _now: Any) -> bool:
    """Never: a name, how a kernel is built, or what shows up as missing cases."""
    return False


def changed(before: Any, now: Any) -> bool:
    """Any change: nobody can say which value is weaker."""
    return bool(before != now)


def newly_set(before: Any, now: Any) -> bool:
    """A new value; without one the default holds, which is strict."""
    return bool(now and before != now)


def replaced(before: Any, now: Any) -> bool:
    """Another value than the former one, or none; a first one adds a check."""
    return bool(before and before != now)


def higher(before: Any, now: Any) -> bool:
    """A higher value; None is no limit."""
    return before is not None and (now is None or now > before)


def lower(before: Any, now: Any) -> bool:
    """A lower value; None asks for nothing."""
    return before is not None and (now is None or now < before)


def removed(before: Any, now: Any) -> bool:
    """Fewer members."""
    return not set(before) <= set(now)


def added(before: Any, now: Any) -> bool:
    """More members."""
    return removed(now, before)


def narrowed(before: Any, now: Any) -> bool:
    """Some of the former members; () stands for all there are."""
    return bool(now) and (not before or removed(before, now))


def looser_than(strictest: str) -> Rule:
    """A change to anything but the strictest value."""
    return lambda before, now: now not in (before, strictest)


def fails_less(before: str, now: str) -> bool:
    """Fewer outcomes of a timing fail."""
    ranks = ("inconclusive", "regression", "never")
    return ranks.index(now) > ranks.index(before)


def fewer_registers_kept(before: int | None, now: int | None) -> bool:
    """More growth is accepted; None accepts what costs no resident warps."""
    return now is not None and (before is None or now > before)


RULES: Mapping[type, Mapping[str, Rule | None]] = {
    Config: {
        "file": neutral, "traces": neutral, "kernels": None, "whole_models": None, "baseline": newly_set, "llm": None, "pull_request": None,
    },
    KernelEntry: {
        "name": neutral, "op": changed, "reference": replaced, "implementations": None, "tolerance": None, "limits": None, "timing": None,
        "work": None, "exceptions": None, "repeatability": None, "claims": removed, "allow_tf32": higher,
        "semantics": None, "ranks": None, "line": neutral,
    },
    # Fewer ranks show fewer faults; the same numbers on all ranks hide which rank's were taken.
    Ranks: {"count": lower, "replicated": added},
    Implementation: {
        "name": neutral, "device": neutral, "contract": neutral, "sources": neutral, "target": neutral, "load": neutral, "build": neutral,
        "entry": neutral,
        "defines": neutral, "specialized": neutral, "flags": neutral, "archs": narrowed, "interpret": higher, "line": neutral,
    },
    ModelEntry: {
        "name": neutral, "make": changed, "device": neutral, "chosen": narrowed, "tolerance": None, "timing": None, "line": neutral,
    },
    Tolerance: {"kind": looser_than("derived"), "rtol": higher, "atol": higher},
    Repeatability: {"kind": looser_than("exact"), "rtol": higher, "atol": higher},
    ResourceLimits: {"registers": fewer_registers_kept, "spill_nbytes": higher},
    TimingGate: {
        "tolerate": higher, "catch": higher, "floor_vs_torch": lower, "fail_on": fails_less,
        # With a lower chance of a false alarm, a slowdown must be larger before it is proven.
        "alpha": lower, "beta": higher, "max_blocks": lower, "cache": changed,
    },
    DeclaredWork: {"nbytes": neutral, "flops": neutral},
    ProbeException: {"probe": neutral, "reason": neutral, "line": neutral},
    Declared: dict.fromkeys(
        ("kind", "roles", "domain", "rows", "fixed", "mutated", "outputs", "indices", "coupled"), changed
    ),
    LlmSettings: {
        # Where prompts go, with which key, and what that may cost.
        "provider": changed, "base_url": changed, "api_key_env": changed, "path": neutral, "models": None,
        "temperature": None, "max_answer_tokens": higher, "policy": neutral, "stream": neutral, "timeout_s": neutral,
        "budget": None, "prices": changed, "runs": neutral,
    },
    Models: {"generator": changed, "helper": changed, "verifier": changed},
    Temperatures: dict.fromkeys(("generator", "helper", "verifier"), neutral),
    Budget: dict.fromkeys(
        ("repair_attempts", "side_by_side", "candidates", "rounds", "branches", "generations", "tokens", "usd", "minutes"),
        higher,
    ),
    PullRequestSettings: {
        "draft": lower, "labels": neutral, "reviewers": removed, "team_reviewers": removed, "assignees": neutral,
    },
}  # fmt: skip
"""None for a field of further classes: their fields are compared, those of several kernels by name."""
KEYS = {
    "timing": "gate", "limits": "gate", "exceptions": "probes", "repeatability": "repeatable", "baseline": "gate.baseline",
    "spill_nbytes": "spill_bytes", "allow_tf32": "precision.allow_tf32", "kernels": "", "whole_models": "", "implementations": "", "chosen": "kernels",
}  # fmt: skip
"""What cgins.yaml calls a field, where that is another name."""


def weaker(before: Config, now: Config) -> tuple[str, ...]:
    """The settings that are weaker now, one line each: `relu: gate.tolerate 0.02 → 0.1`. A new kernel has none."""
    return tuple(_weaker(before, now, ""))


def _weaker(before: Any, now: Any, path: str) -> Iterator[str]:
    for field, rule in RULES[type(now)].items():
        old, new = getattr(before, field), getattr(now, field)
        key = KEYS.get(field, field)
        where = f"{path}{key}" if not path or path.endswith(": ") or not key else f"{path}.{key}"
        if rule is not None:
            if rule(old, new):
                yield f"{where} {_shown(old)} → {_shown(new)}"
        elif isinstance(new, tuple):
            yield from _weaker_members(old, new, where)
        elif new is not None:
            yield from _weaker(_asking_nobody(new) if old is None else old, new, where)


def _weaker_members(before: tuple[Any, ...], now: tuple[Any, ...], where: str) -> Iterator[str]:
    former = {_identity(member): member for member in before}
    for member in now:
        earlier = former.get(_identity(member))
        if isinstance(member, ProbeException):  # that it is there makes the file weaker
            if earlier is None:
                yield f"{where}.{member.probe} on → off ({member.reason})"
        elif earlier is not None:
            kernel = f"{where.removesuffix(': ')}/" if isinstance(member, Implementation) else ""
            yield from _weaker(earlier, member, f"{kernel}{member.name}: ")


def _identity(member: KernelEntry | ModelEntry | Implementation | ProbeException) -> object:
    """What tells it from others of its kind."""
    if isinstance(member, Implementation):
        return member.name, member.device
    return member.probe if isinstance(member, ProbeException) else member.name


def _asking_nobody(now: LlmSettings) -> LlmSettings:
    """What a new section is compared with, so that all it says of whom it asks counts."""
    return LlmSettings(provider="replay", runs=now.runs, budget=now.budget)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, Mapping):
        prices = (
            f"{name}: {price.input_usd_per_million_tokens}, {price.output_usd_per_million_tokens}"
            for name, price in value.items()
        )
        return f"{{{'; '.join(prices)}}}"
    return "none" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)
