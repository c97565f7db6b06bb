"""Which kernels of a scanned repository are entered in `cgins.yaml`, for which op, and why others are not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from pytest_cgins.app.init.known_ops import KNOWN, Match, match, parameters_of, plain_name
from pytest_cgins.app.init.scan import CompiledFunction, Definition, Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One implementation of a kernel."""

    implementation: str
    """Its name; that of the kernel is the match's."""
    language: str
    match: Match
    """The op, and how the function is called for it."""
    function: Definition | CompiledFunction
    covers: frozenset[str] = frozenset()
    """Qualified names of the kernels that it launches."""

    @property
    def needs_adapter(self) -> bool:
        """Whether the function is not called with the op's own arguments."""
        return isinstance(self.function, Definition) and not self.match.direct


@dataclass(slots=True)
class Plan:
    """What `cgins init` enters."""

    scan: Scan
    kernels: dict[str, Definition]
    """Those of Triton and CuTe that host functions launch, by qualified name."""
    entries: list[Entry] = field(default_factory=list)
    """In the order of their kernels' names."""
    operators: list[Definition] = field(default_factory=list)
    """Functions that are registered as operators of torch and of which no entry is."""
    left_out: list[tuple[str, str]] = field(default_factory=list)


def make_plan(scan: Scan) -> Plan:
    """Find an op for each kernel."""
    graph = _Graph(scan)
    plan = Plan(scan, graph.launched)
    reasons: dict[str, str] = {}
    matches: list[tuple[Definition, Match]] = []
    for function in sorted(filter(graph.launches, scan.definitions.values()), key=_rank):
        how = _match(function)
        if isinstance(how, str):
            reasons[function.qualified] = how
        else:
            matches.append((function, how))
    for function, how in matches:
        # What another one calls for the same op counts on what that one does before: contiguous arguments, say.
        inner = any(function.qualified in graph.reaches(other) for other, its in matches if its.op == how.op)
        entered = [entry for entry in plan.entries if entry.match.op == how.op]
        if clash := _clash(plan, how):
            reasons[function.qualified] = clash
        elif not inner and not any(graph.launches(function) <= entry.covers for entry in entered):
            launched = graph.launches(function)
            _enter(plan, plan.kernels[min(launched)].language, how, function, launched)
    for compiled in scan.compiled:
        how = _match_compiled(compiled)
        task = compiled.files[0].with_name(f"func_{compiled.name}.py")
        if isinstance(how, str) and any(definition.file == task for definition in scan.definitions.values()):
            how = f"its op is a task of robust-kbench: cgins import robustkbench {task.parent} records it"
        how = how if isinstance(how, str) else _clash(plan, how) or how
        if isinstance(how, str):
            plan.left_out.append((f"{compiled.files[0]} {compiled.name}", how))
        else:
            _enter(plan, compiled.language, how, compiled)
    called = {entry.function.name for entry in plan.entries}
    operators = (function for function in scan.definitions.values() if function.operator)
    plan.operators = [function for function in operators if function.name not in called]
    plan.left_out += [*_uncovered(plan, graph, reasons), *scan.left_out]
    plan.entries.sort(key=lambda entry: entry.match.name)
    return plan


class _Graph:
    """Which host functions launch which kernels, themselves or through others."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        hosts = [host for host in scan.definitions.values() if host.role != "kernel"]
        named = {self._origin(name) for host in hosts for name in host.uses | host.backward_uses}
        kernels = {name: kernel for name, kernel in scan.definitions.items() if kernel.role == "kernel"}
        self.launched = {name: kernel for name, kernel in kernels.items() if name in named}
        self.reaches = cache(self._reaches)

    def _origin(self, name: str) -> str:
        """The definition that a qualified name leads to, through modules that import it."""
        for _ in range(8):
            if name in self._scan.definitions or name not in self._scan.aliases:
                break
            name = self._scan.aliases[name]
        return name

    def launches(self, function: Definition, *, backward: bool = False) -> frozenset[str]:
        """The kernels that a call of a host function may launch; those of a backward only if asked for."""
        return self.reaches(function, backward=backward) & self.launched.keys()

    def _reaches(self, function: Definition, *, backward: bool = False) -> frozenset[str]:
        """The definitions that a host function refers to, itself or through others, up to kernels."""
        if function.role not in ("function", "autograd"):
            return frozenset()
        reached: dict[str, Definition] = {}
        waiting = [*function.uses, *(function.backward_uses if backward else ())]
        while waiting:
            name = self._origin(waiting.pop())
            definition = self._scan.definitions.get(name)
            if definition is not None and name not in reached:
                reached[name] = definition
                waiting += definition.uses if definition.role != "kernel" else ()
        return frozenset(reached.keys() - {function.qualified})


def _rank(function: Definition) -> tuple[object, ...]:
    """Functions that are named after the op come first, and of these the ones at the top of a package."""
    return (plain_name(function.name)[1], function.module.count("."), function.qualified)


def _match(function: Definition) -> Match | str:
    full = f".{function.qualified}"
    if function.name.endswith("_"):
        return "it works in place"
    if "._" in full:
        return "its name says that it is private"
    if numbers := re.search(r"int\d|fp\d|quant|sparse|varlen|ragged", full.lower()):
        return f"its name says {numbers[0]}: it takes other numbers than the op"
    if function.several:
        return "it returns a tuple"
    return match(plain_name(function.name)[0], function.parameters, by_place=function.role == "autograd")


def _match_compiled(compiled: CompiledFunction) -> Match | str:
    name = plain_name(compiled.name.rpartition("::")[2])[0]
    # What an op is called with has all of its own parameters, those with defaults too.
    of_op = parameters_of(name)
    names = [parameter.name for parameter in compiled.parameters]
    is_extension = compiled.contract == "torch-extension"
    strange = [] if is_extension or not of_op else [one for one in names if one not in of_op]
    if strange:
        return f"its parameter {strange[0]} is not one of {name}'s ({', '.join(of_op)})"
    known = [one for one in compiled.parameters if one.name not in of_op or one.name in KNOWN[name].examples]
    how = match(name, known, by_place=True)
    if isinstance(how, Match) and how.fixed and not is_extension:
        return f"it takes no {how.fixed[0]}, as {how.op} does"
    others = set(names).difference(one.name for one in known)
    in_order = all(names.index(one) == of_op.index(one) for one in others)
    if isinstance(how, Match) and is_extension and not (how.direct and in_order):
        return f"its parameters are not those of {how.op} in order: an adapter must call it"
    if isinstance(how, Match) and compiled.missing:
        return f"it includes {compiled.missing}, which is not beside it: enter it with its flags by hand"
    return how


def _clash(plan: Plan, how: Match) -> str:
    """Why an op is not entered once more; "" if it is called as it is by what is entered."""
    first = next((entry for entry in plan.entries if entry.match.op == how.op), None)
    if first is None or first.match.call == how.call:
        return ""
    return f"{how.op} is entered with other arguments, by {first.function.name}"


def _enter(
    plan: Plan,
    language: str,
    how: Match,
    function: Definition | CompiledFunction,
    covers: frozenset[str] = frozenset(),
) -> None:
    number = sum((entry.match.name, entry.language) == (how.name, language) for entry in plan.entries) + 1
    name = language if number == 1 else f"{language}_{number}"
    plan.entries.append(
        Entry(implementation=name, language=language, match=how, function=function, covers=covers)
    )


def _uncovered(plan: Plan, graph: _Graph, reasons: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The kernels that no entry launches, by the host function that says most about them; private ones last."""
    entered = [entry.function for entry in plan.entries if isinstance(entry.function, Definition)]
    backwards = {name: function for function in entered for name in graph.launches(function, backward=True)}
    public: Iterable[Definition] = sorted(
        (host for host in plan.scan.definitions.values() if host.qualified in reasons),
        key=lambda host: ("._" in f".{host.qualified}", len(graph.launches(host)), host.qualified),
    )
    covered = {name for entry in plan.entries for name in entry.covers}
    kernels = [(name, kernel) for name, kernel in plan.kernels.items() if name not in covered]
    for name, kernel in sorted(kernels, key=lambda item: ("._" in f".{item[1].module}", item[0])):
        host = next((host for host in public if name in graph.launches(host)), None)
        why = "no function that was read launches it"
        if name in backwards:
            why = f"it belongs to the backward of {backwards[name].qualified}"
        elif host is not None:
            why = f"{host.qualified}: {reasons[host.qualified]}"
        yield f"{kernel.file} {kernel.name}", why
