"""Which op of torch a kernel replaces: certain where its name and all parameters that it requires are the op's.

What ops take is in `known_ops.yaml`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_cgins.app.init.scan import Parameter

_DATA: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OWN = "cgins_ops."
"""How ops begin that `functions` has the code of."""
_BEFORE, _BEHIND = (frozenset(_DATA["affixes"][side].split()) for side in ("before", "behind"))
_WORD = re.compile(r"(?P<implied>~?)(?P<name>\w+)(?:=(?P<example>[^?]+))?(?P<optional>\??)")


@dataclass(frozen=True, slots=True)
class KnownOp:
    """An op of torch."""

    op: str
    examples: dict[str, str]
    """Its parameters that a kernel may take, in order, each with an expression for a call."""
    implied: frozenset[str]
    """Those of which a kernel may know the value."""
    optional: frozenset[str]
    """Those that a kernel may leave at their defaults."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a host function is called for an op."""

    name: str
    """What kernels for the op are called."""
    op: str
    declares: tuple[str, ...]
    """Parameters of the op that the kernel takes or that an adapter checks, in the op's order."""
    arguments: tuple[str, ...]
    """What the host function is given, as Python writes it in a call."""
    fixed: tuple[str, ...]
    """Parameters whose value it knows."""
    direct: bool
    """Whether the op's arguments can be passed in order, so that no adapter is needed."""
    call: str
    """A call of the op over `examples`."""

    @property
    def guards(self) -> list[str]:
        """Conditions under which the kernel must refuse a call."""
        return [_DATA["guards"][name] for name in self.fixed]


def _known(line: str) -> KnownOp:
    op, *words = line.split()
    parts = [part for word in words if (part := _WORD.fullmatch(word))]
    return KnownOp(
        op, {part["name"]: part["example"] or part["name"] for part in parts},
        implied=frozenset(part["name"] for part in parts if part["implied"]),
        optional=frozenset(part["name"] for part in parts if part["optional"]),
    )  # fmt: skip


KNOWN = {name: _known(line) for name, line in _DATA["ops"].items()}
"""By what kernels for it are called."""
_JOINED = {name.replace("_", ""): name for name in KNOWN} | {"swish": "silu"}


def plain_name(name: str) -> tuple[str, int]:
    """A function's name without what says how it is written, and how many words that took away.

    `LigerRMSNormFunction` is `rms_norm`, and so is `triton_rmsnorm_fwd`.
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = [word for word in spaced.lower().split("_") if word]
    count = len(words)
    while len(words) > 1 and words[-1] in _BEHIND:
        words.pop()
    while len(words) > 1 and words[0] in _BEFORE and "_".join(words) not in KNOWN:
        words.pop(0)
    return _JOINED.get("".join(words)) or "_".join(words), count - len(words)


def match(name: str, parameters: Sequence[Parameter], *, by_place: bool) -> Match | str:
    """The op that a host function of this `plain_name` replaces, or why that is not certain.

    `by_place` says that it takes no arguments by name, as `apply` and C++ functions do.
    """
    known = KNOWN.get(name)
    if known is None:
        return f"no op of torch is known that is called {name}"
    given: dict[str, str] = {}
    arguments: list[str] = []
    skipped = False
    for parameter in parameters:
        counterpart = _counterpart(parameter.name, known, given)
        if counterpart:
            given[counterpart] = parameter.name
            by_name = (skipped and not by_place) or parameter.by_name
            arguments.append(f"{parameter.name}={counterpart}" if by_name else counterpart)
            continue
        if parameter.default is None:
            return f"its parameter {parameter.name} is not one that init knows of {known.op} ({', '.join(known.examples)})"
        if _differs(parameter):
            return f"its {parameter.name} is {parameter.default} by default, that of {known.op} is not"
        skipped = True
        arguments += [parameter.default] if by_place else []
    needed = [name for name in known.examples if name not in known.optional | known.implied]
    if missing := [name for name in needed if name not in given]:
        return f"it does not take {missing[0]}, as {known.op} does"
    while by_place and arguments[-1] not in given:
        arguments.pop()
    fixed = tuple(name for name in known.examples if name in known.implied and name not in given)
    first, *others = declares = tuple(name for name in known.examples if name in given or name in fixed)
    passed = [known.examples[first], *(f"{other}={known.examples[other]}" for other in others)]
    direct = not fixed and not skipped and arguments == [*known.examples][: len(arguments)]
    call = f"{known.op}({', '.join(passed)})"
    return Match(name, known.op, declares, tuple(arguments), fixed, direct, call)


def parameters_of(name: str) -> list[str]:
    """All parameters of the op that kernels of a name replace; [] if none is known."""
    from pytest_cgins.packs import ops, signature  # with torch

    known = KNOWN.get(name)
    if known is None or known.op.startswith(OWN):
        return list(known.examples) if known else []
    return signature.parameters(ops.locate(known.op))


def _counterpart(parameter: str, known: KnownOp, given: dict[str, str]) -> str:
    """The op's parameter that a function calls by this name; "" if none is certain."""
    word = parameter.lower().strip("_").removesuffix("_ptr")
    free = [name for name in known.examples if name not in given]
    called = [name for name in free if word in _DATA["synonyms"].get(name, "").split()]
    return word if word in free else (called or [""])[0]


_TUNING = re.compile(r"[A-Z][A-Z0-9_]*|num_\w+|(?i:block|tile|group)\w*|\w+_(?:size|warps|stages)")
"""Names of parameters that change how a function computes, and not what."""


def _differs(parameter: Parameter) -> bool:
    """Whether a parameter that is left at its default makes a function another one than the op."""
    try:
        default = ast.literal_eval(str(parameter.default))
    except (ValueError, SyntaxError):
        return False
    if parameter.name in _DATA["defaults"]:
        return default not in (None, _DATA["defaults"][parameter.name])
    return bool(default) and not _TUNING.fullmatch(parameter.name)


def examples(calls: str) -> list[str]:
    """The assignments of what calls of ops name."""
    named = (name for name in _DATA["examples"] if re.search(rf"[(=,]{name}\b(?!=)", calls))
    return [f"{name} = {_DATA['examples'][name]}" for name in named]


def functions(ops: Iterable[str]) -> list[str]:
    """The code of those ops that torch has no function for."""
    named = {op.removeprefix(OWN) for op in ops if op.startswith(OWN)}
    return [code for name, code in _DATA["functions"].items() if name in named]
