"""Which ops are recorded when none are named: those that compute, and that someone may write a kernel for.

Getters, views, factories, copies and comparisons are left out; so is dropout, whose kernel would have to
draw torch's own random numbers. What works in place is asked of torch itself, so that an op of a later version
is recorded too: it computes unless it is listed as one that does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.text import counted
from pytest_cgins.packs.ops import qualified_name, resolve

WORDS: dict[str, list[str]] = {
    name: words.split()
    for name, words in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}
_IN_PLACE_OPERATORS = "__iand__ __ior__ __ixor__ __ilshift__ __irshift__ __ifloordiv__ __imod__"
"""Those whose plain forms, which mostly make masks and indices, are not recorded."""


def refuse_uninitialised(name: str, func: object) -> None:
    """Raise RecordError for an op whose result is memory that nothing has been written to."""
    schema = getattr(func, "_schema", None)
    word = schema.name.rpartition("::")[2] if schema is not None else getattr(func, "__name__", "")
    if word.strip("_") in WORDS["uninitialised"]:
        raise RecordError(
            f"{name} cannot be recorded: its result is uninitialised memory, so there is no gold",
            remedy="take it out of ops=[…], and record the ops that fill its result",
        )


def computes(name: str) -> bool:
    """Whether an op of ATen is one that computes, by its name without the namespace: `gelu`, `index_add_`."""
    word = name.strip("_")
    return word in _words() or (name.endswith("_") and word in _in_place_words())


@cache
def _words() -> frozenset[str]:
    return frozenset(WORDS["functional"]) | frozenset(WORDS["arithmetic"])


@cache
def _in_place_words() -> frozenset[str]:
    names = {name for namespace in (torch.Tensor, torch, torch.nn.functional) for name in dir(namespace)}
    words = {name[:-1] for name in names if name.endswith("_") and not name.startswith("_")}
    return frozenset(words.difference(WORDS["not_computing"]))


@cache
def default_ops() -> frozenset[Callable[..., Any]]:
    """The callables, in the forms in which models reach them: function, method, operator, in place."""
    found: set[Callable[..., Any]] = set()
    for name in WORDS["functional"]:
        found |= _forms(torch.nn.functional, name)
    for name in WORDS["arithmetic"]:
        found |= _forms(torch, name) | _forms(torch.Tensor, name)
    in_place = [f"{name}_" for name in _in_place_words()] + _IN_PLACE_OPERATORS.split()
    for namespace in (torch.nn.functional, torch, torch.Tensor):
        found |= {getattr(namespace, name) for name in in_place if hasattr(namespace, name)}
    return frozenset(found)


_NAMED = 10


def passed_over(calls: Counter[Callable[..., Any]]) -> str:
    """A sentence about functions of torch that compute too, and that nobody asked for; "" if none was called."""
    names = [(name, count) for func, count in calls.most_common() if (name := _named_if_new(func))]
    if not names:
        return ""
    named = ", ".join(f"{name} ({counted(count, 'call')})" for name, count in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"not recorded, since only common ops are unless they are named: {named}{more}; "
        "ops=[…] / --ops records exactly what it names"
    )


def _named_if_new(func: Callable[..., Any]) -> str:
    """The name of a function that makes new tensors of those that it is given, as its schemas in ATen tell; else ""."""
    word = getattr(func, "__name__", "_")
    if word.startswith("_") or word.endswith("_") or word in WORDS["not_computing"]:
        return ""
    packet = getattr(torch.ops.aten, word, None)
    if not any(_makes_new(getattr(packet, overload)) for overload in (packet.overloads() if packet else ())):
        return ""
    name = qualified_name(func)
    with suppress(TraceError):  # what a function of torch calls may have a name in C alone
        return name if resolve(name) is func else ""
    return ""


def _makes_new(overload: torch._ops.OpOverload) -> bool:
    """Whether it is no view, no factory like `zeros_like`, and draws nothing."""
    schema = overload._schema
    arguments = {argument.name: str(argument.type) for argument in schema.arguments}
    returns = [(str(one.type), one.alias_info) for one in schema.returns]
    return (
        any("Tensor" in kind for kind in arguments.values())
        and "pin_memory" not in arguments
        and bool(returns)
        and all("Tensor" in kind and alias is None for kind, alias in returns)
        and torch.Tag.nondeterministic_seeded not in overload.tags
    )


def _forms(namespace: object, name: str) -> set[Callable[..., Any]]:
    spellings = (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__")
    return {getattr(namespace, form) for form in spellings if hasattr(namespace, form)}
