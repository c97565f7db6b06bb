"""Probe `recompiles`: a call like one that was made before compiles nothing.

A Triton kernel is compiled for each signature: the dtypes of its tensors, the values of its constants, whether sizes are 1
or divisible by 16. A constant that changes from call to call, or a function that is defined anew in each, compiles in each,
which takes a thousand times as long as the call. Triton tells of what it compiles since version 3.4; CuTe's compiler is
listened to; of torch's the graphs are counted.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from pytest_cgins.core.measurement import JitCompilations
from pytest_cgins.core.text import counted
from pytest_cgins.verify.probe_support.rerun import attempt
from pytest_cgins.verify.probe_support.set_trial import SetTrial

NAME = "recompiles"
CALLS = 4
"""Calls that are made like one before."""
LEAST = 3
"""So many must compile: a seed that is drawn anew may be odd, even and divisible by 16, and no more than that."""
SECONDS = "cgins-seconds"
"""File beside what Triton keeps of a compilation: how long it took."""
CUTE = "cutlass.base_dsl.dsl"
"""Module of CuTe's compiler."""
_MOST_S = 1e6
_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Compilation:
    """What a JIT compiler was asked for."""

    function: str
    module: str
    seconds: float
    """How long it took, now or when it was compiled for the cache on disk."""
    cached: bool
    compiler: Any = None
    """Triton's object of the function, which knows what was compiled of it."""


class Compilations:
    """What was compiled in this process since it listens."""

    def __init__(self) -> None:
        self._heard: list[Compilation] = []
        self._next: Any = None
        self._hears_cute = False

    def listen(self) -> None:
        """Hear of compilations of Triton's and CuTe's, if they were imported; who listened before hears of them, too."""
        cute: Any = getattr(sys.modules.get(CUTE), "BaseDSL", None)
        if hasattr(cute, "compile_and_cache") and not self._hears_cute:
            self._hears_cute = True
            cute.compile_and_cache = self._telling(cute.compile_and_cache)
        knobs: Any = sys.modules.get("triton.knobs")
        compilation: Any = getattr(knobs, "compilation", None)
        if hasattr(compilation, "listener") and compilation.listener != self._hear:
            self._next = compilation.listener
            compilation.listener = self._hear

    @staticmethod
    def can_hear() -> bool:
        """Whether there is a compiler in this process to hear of."""
        return not sys.modules.keys().isdisjoint(("triton.knobs", "torch._dynamo.utils", CUTE))

    def mark(self) -> tuple[int, int]:
        """Where `since` is to begin."""
        return len(self._heard), _graphs()

    def since(self, mark: tuple[int, int], *, besides: str = "", graphs: bool = True) -> list[str]:
        """Functions that were compiled after a mark.

        Args:
            mark: as `mark` gave it.
            besides: namespace of the base revision's modules, which do not count.
            graphs: whether those of torch's compiler count.
        """
        heard = [
            compilation.function
            for compilation in self._heard[mark[0] :]
            if not (besides and compilation.module.startswith(f"{besides}."))
        ]
        return [*heard, *["a graph of torch.compile"] * (graphs * (_graphs() - mark[1]))]

    def counted(self, namespace: str | None = None) -> JitCompilations | None:
        """What was compiled so far; None if nothing was.

        Args:
            namespace: of the base revision's modules, for theirs alone; "" for all but those of a base; None for all.
        """
        prefix = f"{namespace}." if namespace else "_cgins_base_"
        heard = [
            compilation
            for compilation in self._heard
            if namespace is None or compilation.module.startswith(prefix) == bool(namespace)
        ]
        if not heard:
            return None
        return JitCompilations(
            count=len(heard),
            seconds=min(_MOST_S, sum(compilation.seconds for compilation in heard)),
            cached=sum(compilation.cached for compilation in heard),
            **_resources({id(one.compiler): one.compiler for one in heard if one.compiler}.values()),
        )

    def _telling(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """CuTe's compiler of what it has traced, which its cache in memory asks when it has no answer."""

        @wraps(compile_)
        def compile_and_tell(*args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            compiled = compile_(*args, **options)
            self._note(options.get("funcBody"), time.perf_counter() - started)
            return compiled

        return compile_and_tell

    def _hear(self, **told: Any) -> None:
        if self._next is not None:
            self._next(**told)
        function, cached = getattr(told.get("src"), "fn", None), bool(told.get("cache_hit"))
        self._note(function, _seconds(told, cached=cached), cached=cached, compiler=function)

    def _note(self, function: object, seconds: float, *, cached: bool = False, compiler: Any = None) -> None:
        name, module = getattr(function, "__name__", "a kernel"), getattr(function, "__module__", "")
        self._heard.append(Compilation(str(name)[:_SHOWN], str(module), seconds, cached, compiler))


def observe(trial: SetTrial, compilations: Compilations) -> Iterator[str]:
    """Functions that calls like the first one compile: one a call that compiles something."""
    for _ in range(CALLS):
        before = compilations.mark()
        # Torch's compiler leaves calls alone that operators are watched in.
        attempt(lambda: trial.prepared().run())
        yield from compilations.since(before)[:1]


def judge(facts: Sequence[str]) -> str:
    """What to say of functions that were compiled in calls like earlier ones; "" if they are few."""
    names = [str(name)[:_SHOWN] for name in facts]
    if len(names) < LEAST:
        return ""
    functions = ", ".join(dict.fromkeys(names))
    return (
        f"calls with the same signature compile again: {counted(len(names), 'compilation')} of {functions} after the first call\n"
        "→ pass what changes from call to call as an argument, not as a constant (tl.constexpr, cutlass.Constexpr), and define "
        "kernels once; keep what cute.compile returns"
    )


def _resources(functions: Iterable[Any]) -> dict[str, int]:
    """Most registers and spilled bytes of what was compiled and loaded of Triton functions; {} where none tells."""
    with suppress(AttributeError, TypeError, IndexError):
        caches = [cache[0] for function in functions for cache in function.device_caches.values()]
        loaded = [kernel for cache in caches for kernel in cache.values() if getattr(kernel, "n_regs", None)]
        if loaded:
            return {
                "registers_per_thread": max(int(kernel.n_regs) for kernel in loaded),
                "spill_nbytes": 4 * max(int(kernel.n_spills) for kernel in loaded),  # it counts registers
            }
    return {}


def _graphs() -> int:
    """Graphs that torch's compiler has made in this process."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0


def _seconds(told: Mapping[str, Any], *, cached: bool) -> float:
    """The time of a compilation, kept beside its results: who finds them in the cache tells it, too."""
    seconds = float(getattr(told.get("times"), "total", 0)) / 1e6
    # Of another Triton: an error here would be the kernel's, which is what calls it.
    with suppress(OSError, ValueError, TypeError, AttributeError, StopIteration):
        file = Path(next(iter(told.get("metadata_group", {}).values()))).parent / SECONDS
        if cached:
            seconds = float(file.read_text(encoding="ascii")[:_SHOWN])
        else:
            file.write_text(f"{seconds}", encoding="ascii")
    return min(_MOST_S, max(0.0, seconds)) if math.isfinite(seconds) else 0.0
