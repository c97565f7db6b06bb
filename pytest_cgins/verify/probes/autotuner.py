"""Probe `autotuner`: whichever config a Triton autotuner may choose, the answer is right.

An autotuner times its configs in the first call and keeps the fastest; which that is may differ from process to process.
Here it is made to choose each in turn. What it chose by itself is told, and stands in reports. For the sizes of probes it
takes its first config that runs: tuning takes a tenth of a second a config, and they have dozens of sizes.
`triton.runtime.autotuner` is looked up where a kernel has imported it, and nowhere else.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pytest_cgins.building.loading.exceptions import kind_of
from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.measurement import TUNED_TEXT, TunedConfig
from pytest_cgins.core.text import counted
from pytest_cgins.verify.probe_support.rerun import Deviation, attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial

NAME = "autotuner"
MOST_S = 20.0
"""For all configs of a case: a run takes a millisecond, but on a GPU a config may have to be compiled."""
MOST_TOLD = 64
"""Choices that a process tells."""
_BASE = "_cgins_base_"
"""What namespaces of base revisions begin with."""
_CANNOT_RUN = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")
"""Errors by which an autotuner takes a config out of its choice."""


class Autotuners:
    """The autotuners of the modules that this process has loaded."""

    def __init__(self) -> None:
        module: Any = sys.modules.get("triton.runtime.autotuner")
        self._tuners: list[Any] = []
        self._ambiguous: frozenset[str] = frozenset()
        self._run: Any = getattr(getattr(module, "Autotuner", None), "run", None)
        if module is not None:
            objects = (item for item in gc.get_objects() if issubclass(type(item), module.Autotuner))
            self._tuners = sorted(objects, key=lambda tuner: (_module(tuner), _name(tuner)))
        homes: defaultdict[str, set[str]] = defaultdict(set)
        for tuner in self._tuners:
            homes[_name(tuner)].add(_own_module(tuner))
        self._ambiguous = frozenset(name for name, modules in homes.items() if len(modules) > 1)

    def choose_first(self) -> None:
        """Have each choose its first config: Triton's own timer wants a GPU's driver, also where it interprets."""
        for tuner in self._tuners:
            if getattr(tuner, "_do_bench", None) is None:
                tuner.do_bench = call_once

    def chosen(self, namespace: str | None = None) -> tuple[TunedConfig, ...]:
        """What they have chosen where there is a choice.

        Args:
            namespace: of the base revision's modules, for theirs alone; "" for those that are nobody's; None for all.
        """
        return tuple(
            TunedConfig(
                kernel=_text(self._name(tuner)),
                key=_text(key),
                config=_text(config),
                configs=len(tuner.configs),
            )
            for tuner in self._used(namespace)
            for key, config in _choices(tuner)
        )[:MOST_TOLD]

    def give(self, choices: Iterable[TunedConfig], namespace: str | None = None) -> tuple[str, ...]:
        """Make autotuners choose as others did where they have the same configs; notes on those that had not.

        Otherwise a difference of times would be that of two choices, made by timings, and not of two sources.

        Args:
            choices: what others chose.
            namespace: of the autotuners, as for `chosen`.
        """
        wanted = {(choice.kernel, choice.key): choice for choice in choices}
        notes = []
        for tuner in filter(self._is_tritons, self._used(namespace)):
            name, configs = self._name(tuner), {_text(config): config for config in tuner.configs}
            for key, config in _choices(tuner):
                choice = wanted.get((_text(name), _text(key)))
                if choice is None or choice.config == _text(config):
                    continue
                if choice.config not in configs or choice.configs != len(tuner.configs):
                    notes.append(
                        f"the autotuner of {name} has other configs than at the base revision: each chose for itself"
                    )
                    continue
                tuner.cache[key] = configs[choice.config]
                notes.append(
                    f"the autotuner of {name} chose {_text(config)} at the base revision, which was given the kernel's: {choice.config}"
                )
        return tuple(dict.fromkeys(notes))

    def deviations(self, trial: SetTrial) -> Iterator[Deviation]:
        """Run a trial with each config that could be chosen; what differs from its first answer."""
        ends = time.monotonic() + MOST_S
        for tuner in self._used():
            if not self._is_tritons(tuner):
                why = f"its library has an autotuner of its own, {kind_of(tuner)}, which may keep what it is told"
                yield Deviation(NAME, trial.name, (), about=why)
        tuners = [tuner for tuner in self._used() if self._is_tritons(tuner)]
        with ExitStack() as stack:
            offered = [stack.enter_context(_choosing(tuner, None)) for tuner in tuners]
            attempt(trial.again)
        for tuner, configs in zip(tuners, offered, strict=True):
            if not configs:
                why = f"later calls do not ask the autotuner of {self._name(tuner)} again"
                yield Deviation(NAME, trial.name, (), about=why)
            for index, config in enumerate(configs):
                about = f"config {config} of {self._name(tuner)}"
                if time.monotonic() > ends:
                    why = f"{counted(len(configs) - index, 'config')} of {self._name(tuner)} not run: {MOST_S:g} s were over"
                    yield Deviation(NAME, trial.name, (), about=why)
                    return
                with _choosing(tuner, config):
                    tensors, error = attempt(trial.again)
                refused = error is not None and error.kind == "LaunchError"
                if error is not None and refused and any(name in error.message for name in _CANNOT_RUN):
                    continue
                if error is not None or not all_same(tensors, trial.answer):
                    yield Deviation(NAME, trial.name, tensors, error, about=about)

    def _name(self, tuner: Any) -> str:
        """Its function's name, with the module's where two modules have one of this name."""
        name = _name(tuner)
        return f"{_own_module(tuner)}.{name}" if name in self._ambiguous else name

    def _is_tritons(self, tuner: Any) -> bool:
        """Whether it chooses as Triton's own do; a library's may keep choices and times for other processes."""
        return getattr(type(tuner), "run", None) is self._run

    def _used(self, namespace: str | None = None) -> list[Any]:
        """Those that have chosen."""
        return [
            tuner
            for tuner in self._tuners
            if len(tuner.configs) > 1 and _choices(tuner) and (namespace is None or _is_in(tuner, namespace))
        ]


@contextmanager
def _choosing(tuner: Any, wanted: Any) -> Iterator[list[Any]]:
    """Meanwhile an autotuner chooses one config, if it can, and else the one that it has chosen; gives those that it chooses from."""
    names = ("cache", "cache_results", "configs_timings", "best_config", "_bench")
    kept = {name: vars(tuner)[name] for name in names if name in vars(tuner)}
    offered: list[Any] = []
    chosen = [config for _, config in _choices(tuner)]  # its first may not run on this device

    def bench(*_args: Any, config: Any, **_meta: Any) -> list[float]:
        if config not in offered:
            offered.append(config)
        if wanted is not None and config == wanted:
            return [0.0] * 3
        return [0.5 if config in chosen else 1.0] * 3

    tuner.cache, tuner.cache_results, tuner._bench = {}, False, bench
    try:
        yield offered
    finally:
        for name in names:
            vars(tuner).pop(name, None)
        vars(tuner).update(kept)


@contextmanager
def first_chosen() -> Iterator[None]:
    """Meanwhile Triton's autotuners call each config once and choose the first that runs; which is forgotten afterwards.

    A library's own are left alone: they may keep what they choose for other processes.
    """
    tuners: Any = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if not hasattr(tuners, "do_bench"):  # its older releases have no such place
        yield
        return
    found, run = vars(tuners)["do_bench"], tuners.run
    before: dict[int, tuple[Any, dict[Any, Any]]] = {}

    def do_bench(tuner: Any) -> Any:
        if type(tuner).run is not run:
            return found.__get__(tuner, type(tuner))
        before.setdefault(id(tuner), (tuner, dict(tuner.cache)))
        return call_once

    def measure_and_keep_nothing(_tuner: Any, _key: Any, _configs: Any, measure: Any) -> bool:
        measure()
        return False

    with ExitStack() as stack:
        stack.enter_context(patch.object(tuners, "do_bench", property(do_bench)))
        if hasattr(tuners, "check_disk_cache"):
            stack.enter_context(patch.object(tuners, "check_disk_cache", measure_and_keep_nothing))
        try:
            yield
        finally:
            for tuner, cache in before.values():
                tuner.cache = cache


def notes(tuned: Sequence[TunedConfig]) -> tuple[str, ...]:
    """What is to be said of a kernel that is wrong on inputs of probes."""
    kernels = ", ".join(dict.fromkeys(choice.kernel for choice in tuned))
    return (f"on inputs of probes {kernels} ran with the first of its autotuner's configs",) * bool(kernels)


def has_others() -> bool:
    """Whether a library has an autotuner of its own here, which chooses in a way of its own."""
    tuners: Any = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    return tuners is not None and any(cls.run is not tuners.run for cls in tuners.__subclasses__())


def call_once(call: Any, quantiles: Sequence[float] = (), **_options: Any) -> list[float]:
    """Stand in for a benchmark of an autotuner's, for which all configs take as long."""
    call()
    return [1.0] * max(1, len(quantiles))


def _choices(tuner: Any) -> list[tuple[Any, Any]]:
    """Keys and configs; the last config under no key for an autotuner that keeps them in a way of its own."""
    cache: Any = getattr(tuner, "cache", None)
    if isinstance(cache, dict):
        return list(cache.items())
    best = getattr(tuner, "best_config", None)
    return [] if best is None else [("", best)]


def _text(value: object) -> str:
    return str(value)[:TUNED_TEXT]


def _name(tuner: Any) -> str:
    return str(getattr(getattr(tuner, "base_fn", None), "__name__", kind_of(tuner)))


def _module(tuner: Any) -> str:
    return str(getattr(getattr(tuner, "base_fn", None), "__module__", ""))


def _own_module(tuner: Any) -> str:
    """Its module, by the same name in the working tree and at the base revision."""
    return re.sub(rf"^{_BASE}[^.]*\.", "", _module(tuner))


def _is_in(tuner: Any, namespace: str) -> bool:
    """Whether it is in the base's modules; for "" whether it is in nobody's."""
    prefix = f"{namespace}." if namespace else _BASE
    return _module(tuner).startswith(prefix) == bool(namespace)
