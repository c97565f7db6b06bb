"""Which kernels of a scanned repository are entered in `cgins.yaml`, for which op, and why others are not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pytest_cgins.app.init.known_ops import Match, match, plain_name
from pytest_cgins.app.init.scan import CompiledFunction, Definition, Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One implementation of a kernel."""

    kernel: str
    """Name of the kernel in `cgins.yaml`."""
    implementation: str
    """Name of the implementation; with an adapter also that of the adapter."""
    language: str
    """What it is written in."""
    match: Match
    """The op, and how the function is called for it."""
    function: Definition | CompiledFunction
    """What is called."""
    covers: frozenset[str] = frozenset()
    """Qualified names of the kernels that it launches."""


@dataclass(slots=True)
class Plan:
    """What `cgins init` enters."""

    scan: Scan
    """What it follows from."""
    kernels: dict[str, Definition]
    """Those of Triton and CuTe that host functions launch, by qualified name."""
    entries: list[Entry] = field(default_factory=list)
    """In the order of their kernels' names."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What is not entered, and why."""


def make_plan(scan: Scan) -> Plan:
    """Find an op for each kernel."""
    graph = _Graph(scan)
    plan = Plan(scan, graph.launched)
    reasons: dict[str, str] = {}
    for function in sorted(filter(graph.launches, scan.definitions.values()), key=_rank):
        how, reached = _match(function), graph.launches(function)
        covered = {name for entry in plan.entries for name in entry.covers}
        if isinstance(how, str):
            reasons[function.qualified] = how
        elif not reached <= covered:
            _enter(plan, plan.kernels[min(reached)].language, how, function, reached)
    for compiled in scan.compiled:
        how = match(plain_name(compiled.name.rpartition("::")[2])[0], compiled.parameters, by_place=True)
        if isinstance(how, Match) and not how.direct:
            how = f"its parameters are not those of {how.op} in order: an adapter must call it"
        elif isinstance(how, Match) and compiled.missing:
            how = f"it includes {compiled.missing}, which is not beside it: enter it with its flags by hand"
        if isinstance(how, str):
            plan.left_out.append((f"{compiled.files[0]}:{compiled.line} {compiled.name}", how))
        else:
            language = "cuda" if any(file.suffix == ".cu" for file in compiled.files) else "cpp"
            _enter(plan, language, how, compiled, frozenset())
    plan.left_out += [*_uncovered(plan, graph, reasons), *scan.left_out]
    plan.entries.sort(key=lambda entry: entry.kernel)
    return plan


class _Graph:
    """Which host functions launch which kernels, themselves or through others."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        hosts = [one for one in scan.definitions.values() if one.role != "kernel"]
        named = {self._origin(name) for host in hosts for name in host.uses | host.backward_uses}
        kernels = {name: one for name, one in scan.definitions.items() if one.role == "kernel"}
        self.launched = {name: one for name, one in kernels.items() if name in named}
        self._reached: dict[tuple[str, bool], frozenset[str]] = {}

    def _origin(self, name: str) -> str:
        """The definition that a qualified name leads to, through modules that import it."""
        for _ in range(8):
            if name in self._scan.definitions or name not in self._scan.aliases:
                break
            name = self._scan.aliases[name]
        return name

    def launches(self, function: Definition, *, backward: bool = False) -> frozenset[str]:
        """The kernels that a call of a host function may launch; those of a backward only if asked for."""
        if function.role not in ("function", "autograd"):
            return frozenset()
        key = (function.qualified, backward)
        if key not in self._reached:
            self._reached[key] = self._follow(
                function.uses | (function.backward_uses if backward else frozenset())
            )
        return self._reached[key]

    def _follow(self, names: Iterable[str]) -> frozenset[str]:
        launched, seen, waiting = set(), set(), [self._origin(name) for name in names]
        while waiting:
            name = waiting.pop()
            definition = self._scan.definitions.get(name)
            if definition is None or name in seen:
                continue
            seen.add(name)
            if definition.role == "kernel":
                launched.add(name)
            else:
                waiting += [self._origin(other) for other in definition.uses]
        return frozenset(launched)


def _rank(function: Definition) -> tuple[object, ...]:
    """Functions that are named after the op come first, and of these the ones at the top of a package."""
    _, affixes = plain_name(function.name)
    return (affixes, function.module.count("."), function.qualified)


def _match(function: Definition) -> Match | str:
    if function.name.endswith("_"):
        return "it works in place"
    if function.name.startswith("_") or "._" in f".{function.module}":
        return "its name says that it is private"
    if numbers := re.search(
        r"int\d|fp\d|quant|sparse|varlen|ragged", f"{function.module}.{function.name}".lower()
    ):
        return f"its name says {numbers[0]}: it takes other numbers than the op"
    if function.several:
        return "it returns a tuple"
    name, _ = plain_name(function.name)
    return match(name, function.parameters, by_place=function.role == "autograd")


def _enter(
    plan: Plan, language: str, how: Match, function: Definition | CompiledFunction, covers: frozenset[str]
) -> None:
    taken = {entry.implementation for entry in plan.entries if entry.kernel == how.name}
    number = 2
    name = language
    while name in taken:
        name, number = f"{language}_{number}", number + 1
    plan.entries.append(
        Entry(
            kernel=how.name,
            implementation=name,
            language=language,
            match=how,
            function=function,
            covers=covers,
        )
    )


def _uncovered(plan: Plan, graph: _Graph, reasons: dict[str, str]) -> Iterable[tuple[str, str]]:
    """The kernels that no entry launches, by the host function that says most about them."""
    covered = {name for entry in plan.entries for name in entry.covers}
    backwards = {
        name: entry.function.qualified
        for entry in plan.entries
        if isinstance(entry.function, Definition)
        for name in graph.launches(entry.function, backward=True)
    }
    hosts = sorted(
        (one for one in plan.scan.definitions.values() if one.qualified in reasons),
        key=lambda one: (one.name.startswith("_"), len(graph.launches(one)), one.qualified),
    )
    for name, kernel in sorted(
        plan.kernels.items(), key=lambda item: "._" in f".{item[0].rpartition('.')[0]}"
    ):
        if name in covered:
            continue
        host = next((one for one in hosts if name in graph.launches(one)), None)
        why = (
            f"{host.qualified}: {reasons[host.qualified]}"
            if host
            else "no function that was read launches it"
        )
        if name in backwards:
            why = f"it belongs to the backward of {backwards[name]}"
        yield f"{kernel.file}:{kernel.line} {kernel.name}", why
