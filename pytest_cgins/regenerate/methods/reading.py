"""A file of methods, read and checked: every complaint names file, line, method, value and remedy."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_cgins.config import document
from pytest_cgins.config.document import Section, Value
from pytest_cgins.core.device import DEVICES, DeviceName, device_of
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.regenerate.methods.model import (
    AXES,
    DTYPES,
    FAMILIES,
    FIGURES,
    LANGUAGES,
    Axis,
    Family,
    Language,
    Method,
    Signature,
    Trigger,
    is_metric,
)

VERSION = 1
_KEYS = (
    "title", "axis", "priority", "what", "device", "languages", "how", "needs", "families", "dtypes", "capability", "triggers", "sass",
    "requires", "conflicts", "risks",
)  # fmt: skip
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_RANGE = re.compile(r"(\d{2,3})?(-)?(\d{2,3})?")
_LAST = 9999
_MOST_CHARACTERS = 900


def read(file: Path) -> tuple[Method, ...]:
    """The methods of a file, in its order.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    top = document.read(file)
    top.refuse_unknown(("version", "methods"))
    version = top.require("version", remedy=f"write version: {VERSION}")
    if version.integer() != VERSION:
        version.fail(f"version {version.scalar()} of a methods file", remedy=f"write version: {VERSION}")
    methods = top.require("methods", remedy="write methods: and below it one entry a method").mapping(
        "methods"
    )
    values = [methods.require(name, remedy="write it") for name in methods]
    return tuple(_method(value.key, value) for value in values)


def _method(name: str, value: Value) -> Method:
    if len(name) > 60 or not _ID.fullmatch(name):
        value.fail(f'"{name}" is not a method id', remedy="write lower-case words with hyphens: vector-loads")
    it = value.mapping(f'method "{name}"')
    it.refuse_unknown(_KEYS)
    device = _device(it)
    least, most = _range(it.get("capability"), cpu=not device_of(device).is_cuda)
    return Method(
        id=name,
        title=_text(it, "title", "write what people call it"),
        axis=_axis(it),
        priority=_priority(it),
        what=_text(it, "what", "write what it does and when it helps, in two to four sentences"),
        device=device,
        languages=_languages(it, device),
        how=_how(it, device),
        needs=_lines(it, "needs"),
        families=_families(it),
        dtypes=tuple(one.choice(*DTYPES) for one in _items(it, "dtypes")),
        least_capability=least,
        most_capability=most,
        triggers=tuple(_trigger(one, it) for one in _items(it, "triggers")),
        signatures=tuple(_signature(one, it) for one in _items(it, "sass")),
        requires=_lines(it, "requires"),
        conflicts=_lines(it, "conflicts"),
        risks=_lines(it, "risks"),
    )


def _text(it: Section, key: str, remedy: str) -> str:
    value = it.require(key, remedy=remedy)
    text = " ".join(value.text().split())
    if len(text) > _MOST_CHARACTERS:
        value.fail(
            f'"{key}" of {it.title} has {counted(len(text), "character")}',
            remedy=f"say it in {_MOST_CHARACTERS}: prompts quote it",
        )
    return text


def _axis(it: Section) -> Axis:
    word = it.require("axis", remedy=f"write {', '.join(AXES)}").choice(*AXES)
    return next(axis for axis in AXES if axis == word)


def _device(it: Section) -> DeviceName:
    value = it.get("device")
    named = "cuda" if value is None else value.choice(*reversed(DEVICES))
    return next(kind for kind in DEVICES if kind == named)


def _priority(it: Section) -> int:
    value = it.require("priority", remedy="write 1 to try it first, 2, or 3 to try it last")
    number = value.integer()
    if not 1 <= number <= 3:
        value.fail(f'"priority" of {it.title} is {number}', remedy="write 1, 2 or 3")
    return number


def _items(it: Section, key: str) -> list[Value]:
    value = it.get(key)
    return [] if value is None else value.items()


def _lines(it: Section, key: str) -> tuple[str, ...]:
    return tuple(" ".join(one.text().split()) for one in _items(it, key))


def _for_device(device: DeviceName) -> tuple[Language, ...]:
    return tuple(one for one in LANGUAGES if one in device_of(device).languages)


def _languages(it: Section, device: DeviceName) -> tuple[Language, ...]:
    known = _for_device(device)
    named = [one.choice(*known) for one in _items(it, "languages")]
    return tuple(one for one in LANGUAGES if one in (named or known))


def _how(it: Section, device: DeviceName) -> dict[Language, str]:
    value = it.get("how")
    if value is None:
        return {}
    told = value.mapping(f"how of {it.title}")
    known = _languages(it, device)
    told.refuse_unknown(known)
    return {one: _text(told, one, "write how") for one in known if one in told}


def _families(it: Section) -> tuple[Family, ...]:
    named = [one.choice(*FAMILIES) for one in _items(it, "families")]
    return tuple(one for one in FAMILIES if one in named)


def _range(value: Value | None, *, cpu: bool = False) -> tuple[int, int]:
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


def _trigger(value: Value, it: Section) -> Trigger:
    told = value.mapping(f"a trigger of {it.title}")
    told.refuse_unknown(("metric", "good", "bad"))
    metric = told.require("metric", remedy="name a metric of ncu or a figure of ours")
    name = metric.text()
    if not is_metric(name):
        metric.fail(
            f'"{name}" in {told.title} is not a metric',
            remedy=nearest(name, FIGURES)
            or f"name a metric of ncu with its suffix, or one of {', '.join(FIGURES)}",
        )
    good, bad = (told.require(key, remedy=f"write the {key} value") for key in ("good", "bad"))
    if good.amount() == bad.amount():
        bad.fail(
            f"good and bad of {told.title} are both {bad.scalar()}",
            remedy="they tell which direction is better",
        )
    return Trigger(metric=name, good=good.amount(), bad=bad.amount())


def _signature(value: Value, it: Section) -> Signature:
    told = value.mapping(f"a SASS signature of {it.title}")
    told.refuse_unknown(("sm", "any", "all"))
    any_of, all_of = told.get("any"), told.get("all")
    if any_of is not None and all_of is None:
        mode, listed = "any", any_of
    elif all_of is not None and any_of is None:
        mode, listed = "all", all_of
    else:
        told.fail(
            f"{told.title} must have either any or all", remedy="write any: [REGEX, …] or all: [REGEX, …]"
        )
    patterns = tuple(_pattern(one) for one in listed.items())
    if not patterns:
        listed.fail(f"{told.title} is empty", remedy="leave sass out where machine code does not tell")
    least, most = _range(told.get("sm"))
    return Signature(least=least, most=most, mode="any" if mode == "any" else "all", patterns=patterns)


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
