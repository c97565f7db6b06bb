"""What is observed around everything that a kernel does in a worker: one object a request."""

from __future__ import annotations

import secrets
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial, reduce
from operator import or_
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload

from pytest_cgins.building.loading.launcher import Launcher, poison
from pytest_cgins.core.device import DEVICES, device_of
from pytest_cgins.core.trace import OF_TORCH
from pytest_cgins.verify.messages import KernelRequest
from pytest_cgins.verify.probe_support import audit_hook, floating_point, process_settings
from pytest_cgins.verify.probe_support.dispatch_mode import DispatchMode
from pytest_cgins.verify.probe_support.native_code import Guarded
from pytest_cgins.verify.probe_support.origin import Origins
from pytest_cgins.verify.probes import integrity, libraries, op_callback, snooping
from pytest_cgins.verify.probes.integrity import Integrity
from pytest_cgins.verify.probes.op_callback import Counter, Overrides
from pytest_cgins.verify.probes.snooping import Snooping

LOADED, RAN, TIMED = "as it was loaded", "as it ran", "as it was timed"


class Watch:
    """Watches a kernel while it is loaded, bound and run; what it saw is told as plain JSON by probe.

    Everything that looks at the kernel is taken hold of before its code is loaded.
    """

    def __init__(self, wanted: frozenset[str], request: KernelRequest) -> None:
        floating_point.restore()
        floating_point.start_threads()
        origins = (
            Origins.for_request(request) if wanted & {integrity.NAME, snooping.NAME} else Origins((), ())
        )
        self._integrity = Integrity(origins) if integrity.NAME in wanted else None
        if self._integrity is None:
            integrity.doubt()
        self._snooping = Snooping(origins) if snooping.NAME in wanted else None
        own: Mapping[str, int] = next((packed.op_calls for packed in request.sets if packed.op_calls), {})
        self._calls = _Calls(own, request.device) if op_callback.NAME in wanted else None
        self._poisons = "poison" in wanted and request.kernel.source.contract in ("python", "torch-extension")
        # Held, since a kernel could replace what the classes have.
        self._check = self._checker()
        source = request.kernel.source
        self._source: str = next(iter(source.files), "")  # none where a library is installed
        self._on_cpu = not device_of(request.device).is_accelerator
        self._taken: list[str] | None = None
        if libraries.NAME in wanted and source.contract in ("launcher", "torch-extension"):
            path = Path(request.kernel.library)
            self._taken, byways = libraries.look_into(path, source.contract, source.device)
            if self._snooping is not None:
                self._snooping.note_all(byways, self._source)
        self._ran = False
        self._sets = len(request.sets)
        self._recomputed: list[list[str]] = []
        self.spent = False
        """Whether the kernel did something after which no other kernel should run in this process."""

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around the kernel's import, or the loading of its library."""
        before = set(sys.modules)
        if self._calls is not None:
            self._calls.overrides.install()  # else it could take what it calls off the dispatcher as it is loaded
        with self._observed_python(LOADED):
            yield
        if self._snooping is not None:
            self._snooping.look_into({name: sys.modules[name] for name in set(sys.modules) - before})
        self._check(LOADED)

    def guard(self, kernel: object) -> None:
        """Have a launcher that was loaded run without torch's code: see `native_code`."""
        if (
            self._calls is not None
            and self._on_cpu
            and type(kernel) is Launcher
            and type(kernel.function) is not Guarded
        ):
            kernel.function = Guarded(kernel.function, self._calls.entered)

    @contextmanager
    def running(self, numel: int = 0) -> Iterator[None]:
        """Around one run, whose greatest input has so many elements."""
        _keep_compiler_out()
        with ExitStack() as stack:
            stack.enter_context(self._observed_python(RAN))
            if self._calls is not None:
                stack.enter_context(self._calls.run(numel))
            if self._calls is not None or self._poisons:
                stack.enter_context(_Operators(self._calls, poisons=self._poisons))
            stack.enter_context(self._computing())
            if self._snooping is not None:
                stack.enter_context(self._snooping.no_children(self._source))
            yield
        if not self._ran:
            self._ran = True
            self._check(RAN, operators=False)

    @contextmanager
    def timing(self) -> Iterator[Callable[[], None]]:
        """Around everything that is done to time the kernel.

        Yields:
            What to call between batches: it puts back what the kernel has set, which would slow torch's arm.
        """
        floating_point.restore()
        before = process_settings.read()

        def put_back() -> None:
            floating_point.restore()
            self._put_back(before, TIMED)

        try:
            with self._listening():
                yield put_back
        finally:
            put_back()

    def observed(self) -> dict[str, Any]:
        """Facts by probe, after the last run."""
        facts: dict[str, Any] = {}
        if self._calls is not None:
            self._calls.overrides.remove()
        self._check(RAN)
        if self._calls is not None:
            facts[op_callback.NAME] = self._calls.runs
        if self._integrity is not None:
            if len(self._recomputed) > self._sets:
                self._integrity.take_settings(self._recomputed[-1], RAN)
            self._integrity.check_code(RAN)
            facts[integrity.NAME] = self._integrity.facts()
            self._integrity.done()
        if self._taken is not None:
            facts[libraries.NAME] = self._taken
        if self._snooping is not None:
            facts[snooping.NAME] = self._snooping.facts()
        self.spent = bool(facts.get(integrity.NAME) or facts.get(snooping.NAME))
        return facts

    def _checker(self) -> Callable[..., None]:
        if self._integrity is None:
            return lambda _when, **_: None
        check, check_operators = self._integrity.check, self._integrity.check_operators

        def both(when: str, *, operators: bool = True) -> None:
            check(when)
            if operators:
                check_operators(when)

        return both

    @contextmanager
    def _observed_python(self, when: str) -> Iterator[None]:
        """Listen to audit events as far as probes want it, and keep settings."""
        before = process_settings.read()
        try:
            with self._listening():
                yield
        finally:
            self._put_back(before, when)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Notice that a run leaves its thread rounding or flushing otherwise."""
        before = floating_point.state()
        try:
            yield
        finally:
            changes = before.changes_to(floating_point.state())
            if changes:
                floating_point.put_back(before)
                self._recomputed.append(changes)

    def _put_back(self, before: Mapping[str, Any], when: str) -> None:
        # Always: the next kernel in this process, and torch's arm, are to find them as they were.
        floating_point.round_to_nearest()
        changes = process_settings.put_back(before)
        if self._integrity is not None:
            self._integrity.take_settings(changes, when)

    def _listening(self) -> AbstractContextManager[None]:
        snoop, touch = self._snooping, self._integrity
        events = (snooping.EVENTS if snoop is not None else frozenset()) | (
            integrity.EVENTS if touch is not None else frozenset()
        )

        def hear(event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
            if snoop is not None and event in snooping.EVENTS:
                snoop.hear(event, arguments, frame)
            if touch is not None and event in integrity.EVENTS:
                touch.hear(event, arguments, frame)

        return audit_hook.listening(hear, events)


def _keep_compiler_out() -> None:
    """Where torch's compiler is loaded: have it run our observers as they are, when a compiled kernel meets them."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None and rules not in _told:
        _told.append(rules)
        for package in ("probes", "probe_support"):  # and no more: marked functions are to be compiled
            rules.add(f"pytest_cgins.verify.{package}")


_told: list[object] = []


class _Calls:
    """The operators that a kernel runs, run by run, from whatever thread."""

    def __init__(self, own: Mapping[str, int], device: str) -> None:
        self.drawn = None if _DRAWING & set(own) else _Drawn()
        """None where drawing is the op's own work."""
        self.overrides = Overrides(own, device, self.told)
        self.runs: list[dict[str, int]] = []
        self._counter: Counter | None = None
        self._first = 0

    @contextmanager
    def run(self, numel: int) -> Iterator[None]:
        """Around one run, whose greatest input has so many elements."""
        self.overrides.install()
        self._counter = counter = Counter()
        try:
            yield
        finally:
            self._counter = None
            if counter.calls and numel:
                counter.calls[""] = numel
            if counter.calls and counter.calls not in self.runs and len(self.runs) < op_callback.MAXIMUM_RUNS:
                self.runs.append(counter.calls)

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Around a call that will be told of by whoever made it."""
        thread = self.overrides.thread
        before, thread.is_seen = thread.is_seen, True
        try:
            yield
        finally:
            thread.is_seen = before

    def entered(self, symbol: str) -> None:
        """Code that a launcher has no need of."""
        if {symbol: 1} not in self.runs and len(self.runs) < op_callback.MAXIMUM_RUNS:
            self.runs.append({symbol: 1})

    def told(self, op: OpOverload, arguments: tuple[Any, ...], result: Any) -> None:
        """One call of an operator."""
        if self._counter is not None:
            self._counter.add(op, arguments, result)


_DRAWING = frozenset({
    "rand", "randn", "randint", "normal", "uniform", "random", "bernoulli", "dropout", "native_dropout", "multinomial", "exponential",
})  # fmt: skip
_PLACES = 4096


class _Drawn:
    """Tensors of numbers that torch drew by lot, or computed from such, and that nobody has written to since.

    An autotuner heats a GPU with products of them, which answer nothing. Of each the numbers in some places are kept, which
    a kernel does not know: content that is copied over it shows.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor, torch.Tensor]] = {}
        self._lots = torch.Generator().manual_seed(secrets.randbits(63))

    @staticmethod
    def draws(op: object, arguments: Sequence[Any]) -> bool:
        """Whether a call fills a tensor by lot, whatever it is given."""
        name = op._schema.name.removeprefix("aten::") if isinstance(op, OpOverload) else ""
        whole = name.endswith("_") or not any(True for _ in _tensors(arguments))
        return whole and name.rstrip("_") in _DRAWING

    def keep(self, result: object) -> None:
        """Note what a call gave."""
        for tensor in _tensors((result,)):
            if type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.numel():
                places = torch.randint(tensor.numel(), (_PLACES,), generator=self._lots)
                seen = torch.take(tensor.detach(), places.to(tensor.device))
                # Nothing is kept of what is gone: a kernel that draws in each call would seem to take more and more memory.
                alive = weakref.ref(tensor, partial(self._forget, id(tensor)))
                self._kept[id(tensor)] = (alive, places, seen)

    def _forget(self, key: int, _: object) -> None:
        self._kept.pop(key, None)

    def all_are(self, arguments: Sequence[Any]) -> bool:
        """Whether all tensors among some arguments, and there are some, hold such numbers."""
        tensors = [*_tensors(arguments)]
        return bool(tensors) and all(self._is(tensor) for tensor in tensors)

    def _is(self, tensor: torch.Tensor) -> bool:
        kept = self._kept.get(id(tensor))
        if kept is None or kept[0]() is not tensor or device_of(str(tensor.device)).is_capturing():
            return False
        return torch.equal(torch.take(tensor.detach(), kept[1].to(tensor.device)), kept[2])


class _Operators(DispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that the calling thread runs, from Python and from C++."""

    supports_higher_order_operators = True

    def __init__(self, calls: _Calls | None, *, poisons: bool) -> None:
        super().__init__()
        self._calls = calls
        self._poisons = poisons

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        if isinstance(func, OpOverload) and func.namespace not in OF_TORCH:
            result = self._look_inside(func, args, named)
            if self._calls is not None:
                self._calls.told(func, (*args, *named.values()), result)
            return result
        if self._calls is None:
            result = func(*args, **named)
        else:
            drawn, given = self._calls.drawn, (*args, *named.values())
            with self._calls.on_this_thread():
                idle = drawn is not None and drawn.all_are(given)
                result = func(*args, **named)
                if drawn is not None and (idle or drawn.draws(func, given)):
                    drawn.keep(result)
            if not idle:
                self._calls.told(func, given, result)
        if self._poisons:
            poison_new(func, result)
        return result

    def _look_inside(self, func: OpOverload, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run an operator that is not torch's, and see the operators that it runs."""
        tensors = list(_tensors((*args, *named.values())))
        keys: Any = reduce(or_, map(torch._C._dispatch_keys, tensors)) if tensors else None
        if keys is None or keys.has(_PYTHON):  # the latter if a tensor's class has code of its own
            return func(*args, **named)
        with self:
            # Whatever comes before Python's place in the order of dispatch has been run.
            return func.redispatch(keys & _BELOW_PYTHON, *args, **named)


_ALLOCATORS = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)


def poison_new(op: object, result: object) -> None:
    """Part of probe `poison`: memory that a Python or C++ kernel allocates through torch is poisoned like a launcher's.

    What `torch.empty` and its kin return, also to C++ on the calling thread and to operators that the kernel defines
    (if they have tensors as arguments), is filled with values that answers rarely have. A tensor that is handed back
    without having been written all over then shows. It is evaded by memory that does not come through torch's
    dispatcher: `malloc`, `at::detail::empty_cpu`, another thread. What no allocating operator returned stays as it is.
    """
    if not isinstance(op, torch._ops.OpOverload) or op._schema.name not in _ALLOCATORS:
        return
    if type(result) is not torch.Tensor or result.layout is not torch.strided:
        return
    if result.device.type in DEVICES:
        device = device_of(str(result.device))
        if not device.is_capturing():
            with suppress(RuntimeError, NotImplementedError):  # types that nothing can be filled with
                poison(result)
            # A kernel may use its memory on another stream at once: nothing would order the poison before that.
            device.wait_for_stream()


def _tensors(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    """All tensors of an operator's arguments."""
    for value in arguments:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


_PYTHON: Any = torch._C.DispatchKey.Python
_BELOW_PYTHON: Any = torch._C._dispatch_keyset_full_after(_PYTHON)
