"""Which ops are recorded when none are named: those that compute, and that someone may write a kernel for.

Getters, views, factories, copies and comparisons are left out; so is dropout, whose kernel would have to
draw torch's own random numbers. What works in place is asked of torch itself, so that an op of a later version
is recorded too: it computes unless it is listed as one that does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from pytest_cgins.core.errors import RecordError

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
    return frozenset(words.difference(WORDS["not_computed_in_place"]))


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


def _forms(namespace: object, name: str) -> set[Callable[..., Any]]:
    spellings = (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__")
    return {getattr(namespace, form) for form in spellings if hasattr(namespace, form)}
