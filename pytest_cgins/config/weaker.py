"""Which settings of a `cgins.yaml` are weaker than they were: what a pull request would be judged by, and loosens.

`RULES` has each field of each class that a `Config` is made of, with the direction in which it is weaker: a field that is
not in it is an error of the tests, so that a new setting cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pytest_cgins.config.llm import Budget, LlmSettings, Models, Temperatures
from pytest_cgins.config.model import (
    Config,
    DeclaredWork,
    Implementation,
    KernelEntry,
    ProbeException,
    Repeatability,
    ResourceLimits,
    TimingGate,
    Tolerance,
)
from pytest_cgins.config.pull_request import PullRequestSettings
from pytest_cgins.config.semantics import Declared

Rule = Callable[[Any, Any], bool]
"""Whether a value, the second, is weaker than another, the first."""


def neutral(_before: Any, _now: Any) -> bool:
    """Never: it names things, says how a kernel is built, or is seen as missing cases."""
    return False


def changed(before: Any, now: Any) -> bool:
    """Whatever it becomes: nobody can say which is the weaker one."""
    return bool(before != now)


def newly_said(before: Any, now: Any) -> bool:
    """If it is said, and is another; what is no longer said is the default, which is the strict one."""
    return bool(now and before != now)


def higher(before: Any, now: Any) -> bool:
    """If it is more; None is no limit."""
    return before is not None and (now is None or now > before)


def lower(before: Any, now: Any) -> bool:
    """If it is less; None is nothing that is asked for."""
    return before is not None and (now is None or now < before)


def added(before: Any, now: Any) -> bool:
    """If there is more of it."""
    return not set(now) <= set(before)


def removed(before: Any, now: Any) -> bool:
    """If there is less of it."""
    return not set(before) <= set(now)


def narrowed(before: Any, now: Any) -> bool:
    """If it is some of what it was; () is all there are."""
    return bool(now) and (not before or removed(before, now))


def looser_than(strictest: str) -> Rule:
    """If it is another than it was, and not the strictest."""
    return lambda before, now: now not in (before, strictest)


def fails_less(before: str, now: str) -> bool:
    """If fewer outcomes of a timing fail."""
    ranks = ("inconclusive", "regression", "never")
    return ranks.index(now) > ranks.index(before)


def fewer_registers_kept(before: int | None, now: int | None) -> bool:
    """If growth up to a number is accepted that was not; None accepts what costs no resident warps."""
    return now is not None and (before is None or now > before)


RULES: Mapping[type, Mapping[str, Rule | None]] = {
    Config: {
        "file": neutral, "traces": neutral, "kernels": None, "baseline": newly_said, "llm": None, "pull_request": None,
    },
    KernelEntry: {
        "name": neutral, "op": changed, "implementations": None, "tolerance": None, "limits": None, "timing": None,
        "work": None, "exceptions": None, "repeatability": None, "claims": removed, "allow_tf32": higher,
        "semantics": None, "line": neutral,
    },
    Implementation: {
        "name": neutral, "device": neutral, "contract": neutral, "sources": neutral, "target": neutral, "entry": neutral,
        "defines": neutral, "specialized": neutral, "flags": neutral, "archs": narrowed, "interpret": higher, "line": neutral,
    },
    Tolerance: {"kind": looser_than("derived"), "rtol": higher, "atol": higher},
    Repeatability: {"kind": looser_than("exact"), "rtol": higher, "atol": higher},
    ResourceLimits: {"registers": fewer_registers_kept, "spill_nbytes": higher},
    TimingGate: {
        "tolerate": higher, "catch": higher, "floor_vs_torch": lower, "fail_on": fails_less,
        # Less of a chance of a false alarm is more that a slowdown must be before it is proven.
        "alpha": lower, "beta": higher, "max_blocks": lower, "cache": changed,
    },
    DeclaredWork: {"nbytes": neutral, "flops": neutral},
    ProbeException: {"probe": neutral, "reason": neutral, "line": neutral},
    Declared: dict.fromkeys(
        ("kind", "roles", "domain", "rows", "fixed", "mutated", "outputs", "indices"), changed
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
        ("repair_attempts", "candidates", "rounds", "branches", "tokens", "usd", "minutes"), higher
    ),
    PullRequestSettings: {
        "draft": lower, "labels": neutral, "reviewers": removed, "team_reviewers": removed, "assignees": neutral,
    },
}  # fmt: skip
"""None is for what is made of further classes, or of several of one, which are held against each other by their names."""
KEYS = {
    "timing": "gate", "limits": "gate", "exceptions": "probes", "repeatability": "repeatable", "baseline": "gate.baseline",
    "spill_nbytes": "spill_bytes", "allow_tf32": "precision.allow_tf32", "kernels": "", "implementations": "",
}  # fmt: skip
"""What cgins.yaml calls a field, where that is another name."""


def weaker(before: Config, now: Config) -> tuple[str, ...]:
    """The settings that are weaker, one line each: `relu: gate.tolerate 0.02 → 0.1`. What is new has none.

    Args:
        before: the file at the base revision.
        now: the file.
    """
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
            known = {_name(one): one for one in old}
            for one in new:
                yield from _weaker_member(known.get(_name(one)), one, where)
        elif new is not None:
            yield from _weaker(_unsaid(new) if old is None else old, new, where)


def _weaker_member(before: Any, now: Any, where: str) -> Iterator[str]:
    """What is weaker about one of several, which may be new."""
    if isinstance(now, ProbeException):  # being there is what makes it weaker
        if before is None:
            yield f"{where}.{now.probe} on → off ({now.reason})"
        else:
            yield from _weaker(before, now, f"{where}.{now.probe}")
    elif before is not None:
        inner = (
            f"{where.removesuffix(': ')}/{now.name}: " if isinstance(now, Implementation) else f"{now.name}: "
        )
        yield from _weaker(before, now, inner)


def _name(one: Any) -> object:
    """What tells it from others of its kind."""
    if isinstance(one, Implementation):
        return one.name, one.device
    return one.probe if isinstance(one, ProbeException) else one.name


def _unsaid(now: LlmSettings) -> LlmSettings:
    """A section that asks nobody: all that a new one says of whom it asks counts."""
    return LlmSettings(provider="replay", runs=now.runs, budget=now.budget)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, Mapping):
        prices = (
            f"{name}: {one.input_usd_per_million_tokens}, {one.output_usd_per_million_tokens}"
            for name, one in value.items()
        )
        return f"{{{'; '.join(prices)}}}"
    return "none" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)
