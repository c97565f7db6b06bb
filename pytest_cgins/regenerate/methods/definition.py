"""What a method is, and how its parts are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pytest_cgins.config.document import Value, Word, between, one_of
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.text import counted, nearest

T = TypeVar("T")
_RANGE = re.compile(r"(\d{2,3})?(-)?(\d{2,3})?")
_LAST = 9999
_MOST_CHARACTERS = 900

Axis = Literal["compute", "memory", "latency"]
"""What a method makes better: arithmetic, traffic, or waiting."""
AXES: tuple[Axis, ...] = get_args(Axis)

Language = Literal["cuda", "triton", "cute", "cpp"]
"""What it is written in; `cpp` is C++ for the host."""
LANGUAGES: tuple[Language, ...] = get_args(Language)

Family = Literal[
    "matmul", "convolution", "activation", "norm", "reduction", "attention", "embedding", "elementwise", "pooling",
    "fused",
]  # fmt: skip
"""Kinds of workload."""
FAMILIES: tuple[Family, ...] = get_args(Family)

FIGURES: dict[str, str] = json.loads(Path(__file__).with_name("figures.json").read_text(encoding="utf-8"))
"""Figures that triggers may name, and what they are; those of ncu are independent of its version. All else is a metric of
ncu by its own name."""

_NCU = re.compile(r"[a-z][a-z0-9]*__[a-z0-9_]+(?:\.[a-z0-9_]+)*")


def is_metric(name: str) -> bool:
    """Whether a trigger may name it: one of `FIGURES`, or what looks like a metric of ncu."""
    return name in FIGURES or _NCU.fullmatch(name) is not None


DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
"""Types of inputs that methods may be for."""


def _meets(wanted: Collection[str], there: Collection[str]) -> bool:
    return not wanted or not there or bool(set(wanted) & set(there))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(Document):
    """A number that says whether a method is worth trying."""

    metric: Annotated[str, _metric]
    """A key of `FIGURES`, or a metric of ncu with its suffix."""
    good: Annotated[float, Value.amount]
    """Here the method has nothing left to gain."""
    bad: Annotated[float, Value.amount]
    """Here it is urgent."""

    @property
    def direction(self) -> Literal["higher", "lower"]:
        """Which values are better."""
        return "higher" if self.good > self.bad else "lower"

    def severity(self, value: float) -> float:
        """From 0 where the value is good to 1 where it is bad, in proportion between them."""
        return min(1.0, max(0.0, (value - self.good) / (self.bad - self.good)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature(Document):
    """What machine code of some architectures shows where a method was applied."""

    least: int = 0
    """First architecture that it holds for: 80 for sm_80."""
    most: int = 9999
    """Last one, itself included."""
    mode: Literal["any", "all"]
    """Whether one of the patterns is enough."""
    patterns: tuple[str, ...]
    """Regular expressions; each is matched from the start of an instruction, `HMMA.16816.F32 R4, R8, R2, R4`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Document):
    """One way to make a kernel faster."""

    id: str
    """Short and stable: prompts, choices and the memory of past rounds use it."""
    title: Annotated[str, text]
    """What people call it."""
    axis: Annotated[Axis, one_of(Axis)]
    """What it makes better."""
    priority: Annotated[int, between(1, 3)]
    """1: try first; 3: try last."""
    what: Annotated[str, text]
    """What it does and when it helps, in a few sentences."""
    device: Annotated[DeviceName, one_of(DeviceName)] = "cuda"
    """Where the kernel must run."""
    languages: tuple[Language, ...]
    """In which it can be written."""
    how: dict[Language, str] = field(default_factory=dict)
    """How, where that differs by language."""
    needs: Annotated[tuple[str, ...], _lines] = ()
    """Preconditions, which the model must check."""
    families: Annotated[tuple[Family, ...], in_order(FAMILIES)] = ()
    """Workloads that it suits; () for all."""
    dtypes: Annotated[tuple[str, ...], in_order(DTYPES)] = ()
    """Types of the inputs that it is for, as torch names them: `float16`; () for all."""
    least_capability: int = 0
    """First compute capability that has it: 80 for 8.0; 0 on a CPU."""
    most_capability: int = 9999
    """Last one: some instructions are of one generation alone."""
    triggers: Annotated[tuple[Trigger, ...], _each(_trigger)] = ()
    """Numbers that call for it; the worst of them counts."""
    signatures: Annotated[tuple[Signature, ...], _each(_signature), "sass"] = ()
    """By architecture; () where machine code does not tell it from other code."""
    requires: Annotated[tuple[str, ...], _lines] = ()
    """Methods that must be in the kernel already, or be chosen with it; one of them is enough."""
    conflicts: Annotated[tuple[str, ...], _lines] = ()
    """Methods that must not be chosen with it, in either order."""
    risks: Annotated[tuple[str, ...], _lines] = ()
    """What goes wrong with it, as the gate will see it."""

    def runs_on(self, capability: int) -> bool:
        """Whether a device of that capability has it."""
        return self.least_capability <= capability <= self.most_capability

    def suits(self, families: tuple[Family, ...], dtypes: tuple[str, ...] = ()) -> bool:
        """Whether it is for one of these workloads and types; () is any."""
        return _meets(self.families, families) and _meets(self.dtypes, dtypes)

    def severity(self, metrics: dict[str, float]) -> float | None:
        """Worst of its triggers that have a value, None if none has."""
        found = [one.severity(metrics[one.metric]) for one in self.triggers if one.metric in metrics]
        return max(found, default=None)


def text(value: Value) -> str:
    """A text without line breaks, short enough for prompts."""
    line = " ".join(value.text().split())
    if len(line) > _MOST_CHARACTERS:
        value.fail(
            f'"{value.key}" of {value.section.title} has {counted(len(line), "character")}',
            remedy=f"say it in {_MOST_CHARACTERS}: prompts quote it",
        )
    return line


def _each(reader: Callable[[Value], T]) -> Callable[[Value], tuple[T, ...]]:
    return lambda value: tuple(map(reader, value.items()))


def in_order(known: Sequence[Word]) -> Callable[[Value], tuple[Word, ...]]:
    """A reader of some words, which gives them in the order of those that are known."""

    def read_words(value: Value) -> tuple[Word, ...]:
        named = [item.choice(*known) for item in value.items()]
        return tuple(word for word in known if word in named)

    return read_words


def architectures(value: Value | None, *, cpu: bool = False) -> tuple[int, int]:
    """`80`: from 80 on; `80-89`: up to 89, too; `-89`: up to 89."""
    if value is None:
        return (0 if cpu else 70), _LAST
    found = _RANGE.fullmatch(value.scalar())
    first, last = (
        (int(found[1] or 70), int(found[3] or _LAST)) if found and (found[1] or found[3]) else (1, 0)
    )
    if cpu or first > last:
        value.fail(
            f'"{value.key}" in {value.section.title} is {value.scalar()}',
            remedy="leave it out for a CPU" if cpu else "write 80 for sm_80 and later, or 80-89",
        )
    return first, last


def _trigger(value: Value) -> Trigger:
    told = value.mapping(f"a trigger of {value.section.title}")
    fields = told.fields(Trigger)
    told.require("metric", remedy="name a metric of ncu or a figure of ours")
    good, bad = (told.require(key, remedy=f"write the {key} value") for key in ("good", "bad"))
    if good.amount() == bad.amount():
        bad.fail(
            f"good and bad of {told.title} are both {bad.scalar()}",
            remedy="they tell which direction is better",
        )
    return Trigger(**fields)


def _metric(value: Value) -> str:
    name = value.text()
    if not is_metric(name):
        value.fail(
            f'"{name}" in {value.section.title} is not a metric',
            remedy=nearest(name, FIGURES)
            or f"name a metric of ncu with its suffix, or one of {', '.join(FIGURES)}",
        )
    return name


def _lines(value: Value) -> tuple[str, ...]:
    return tuple(" ".join(line.split()) for line in value.texts())


def _signature(value: Value) -> Signature:
    told = value.mapping(f"a SASS signature of {value.section.title}")
    told.refuse_unknown(("sm", "any", "all"))
    if ("any" in told) == ("all" in told):
        told.fail(
            f"{told.title} must have either any or all", remedy="write any: [REGEX, …] or all: [REGEX, …]"
        )
    mode: Literal["any", "all"] = "any" if "any" in told else "all"
    listed = told[mode]
    patterns = tuple(_pattern(item) for item in listed.items())
    if not patterns:
        listed.fail(f"{told.title} is empty", remedy="leave sass out where machine code does not tell")
    least, most = architectures(told.get("sm"))
    return Signature(least=least, most=most, mode=mode, patterns=patterns)


def _pattern(value: Value) -> str:
    text = value.text()
    try:
        found = re.compile(text)
    except re.error as error:
        value.fail(
            f'"{text}" in {value.section.title} is not a regular expression: {error}', remedy="correct it"
        )
    if found.match(""):
        value.fail(f'"{text}" in {value.section.title} matches anything', remedy="begin with an opcode: HMMA")
    return text
