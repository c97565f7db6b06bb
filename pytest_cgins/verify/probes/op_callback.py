"""Probe `op_callback`: a kernel computes its answer itself, not by the op that it replaces.

The trusted side notes which operators of ATen torch's own op runs; the worker notes which ones the kernel runs. It
trips if the kernel runs an operator of the family that does the op's work, or all that the op itself consists of:
a fallback, or a call of the user's marked function. Views, allocations, copies and casts are anyone's, and what is computed
from nothing but numbers that torch drew: so autotuners heat a GPU.

On the calling thread a dispatch mode sees all calls, those of C++ among them, also inside operators that the kernel
defines; such an operator itself counts by its whole name, `namespace::name`, as it does if it is the op. What escapes it, on other threads, by
switching modes off, boxed or redispatched, is seen by implementations of the op's own operators that are put before torch's, for
each backend that has some, from before the kernel is loaded; those need torch 2.9. What runs below the dispatcher is
the matter of `native_code` and `libraries`.

Where an op has a heavy part (products, norms, softmax, attention, pooling), that part is its work: leaving it to torch and doing the rest by
hand needs an exception in cgins.yaml. It is evaded by composing the op of light operators that are not its own: exp, sum and
division for softmax.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from pytest_cgins.core.device import device_of
from pytest_cgins.core.trace import OF_TORCH
from pytest_cgins.verify.probe_support import op_families as families
from pytest_cgins.verify.probe_support.native_code import TORCH

NAME = "op_callback"
MAXIMUM_RUNS = 64
"""Different runs that are told of."""
LEAST_SHARE = 0.5
"""How much of its operand a pointwise operator must have been run on to have computed an answer."""

_BESIDE = {"add", "sum", "mul"}
"""What stands beside a heavy operator without making another op of it: a bias, its gradient."""
_WIDE = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""Plain numbers of Python, and the dtype that has all of their digits."""

_numel_of = Tensor.numel  # a kernel's tensor could have another of its own

Calls = Mapping[str, int]
"""Operators by plain name, with the elements of the greatest tensor of each of their calls, in sum.

The empty name has those of the greatest input: a kernel is compared with its own set's share of what the op runs."""


class Counter:
    """Counts the operators that run, and how much they are run on."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def add(self, op: object, arguments: Iterable[Any], result: Any) -> None:
        """Note one call; views are not."""
        name = _counted(op) if isinstance(op, OpOverload) else ""
        if name:
            with torch._C.DisableTorchFunction():
                numel = max((_numel(value) for value in (*arguments, result)), default=0)
            self.calls[name] = self.calls.get(name, 0) + numel


def remedy(probe: str) -> str:
    """What to do where others compute the answer."""
    return (
        "compute the answer in the kernel, or, if it is meant to, say why in its entry in cgins.yaml: "
        f'probes: {{{probe}: {{off: "…"}}}}'
    )


def judge(runs: Sequence[Calls], own: Calls) -> str:
    """What is wrong with a kernel's runs, beside what torch runs for the op; "" if nothing is."""
    essential = _essential(own)
    for calls in runs:
        entered = [str(name)[:100] for name in calls if str(name).startswith(TORCH)]
        if entered:
            return (
                f"the kernel has torch compute its answer: it runs {entered[0].removeprefix(TORCH)}, and a launcher runs "
                f"no code of torch's; {remedy(NAME)}"
            )
        ran = {str(name): int(numel) for name, numel in calls.items()}
        given, recorded = ran.pop("", 0), own.get("", 0)
        scale = given / recorded if given and recorded else 1
        called = _callback(ran, {name: int(numel * scale) for name, numel in essential.items()})
        if called:
            return (
                f"the kernel has torch compute its answer: it runs {_shown(called)}, and the op itself runs "
                f"{_shown(list(essential))}; {remedy(NAME)}"
            )
    return ""


def _shown(names: Sequence[str]) -> str:
    return ", ".join(name[:100] if "::" in name else f"aten::{name[:100]}" for name in names[:4])


def _callback(calls: Calls, own: Calls) -> list[str]:
    """The calls by which the kernel has torch do the op's work, or all of its heavy part; [] if it does not."""
    heavy = {name: numel for name, numel in own.items() if families.is_heavy(name)}
    is_alone = not {families.family(name) for name in own.keys() - heavy.keys()} - _BESIDE
    found = [name for name in calls if families.family(name) == "oneDNN's layout"]
    for name, numel in {} if found else (heavy or own).items():
        least = 0 if heavy and is_alone else numel * LEAST_SHARE
        wanted = families.family(name)
        for others in ({wanted}, *families.INSTEAD.get(wanted, ())):
            alike = [called for called in calls if families.family(called) in others]
            ran = {families.family(called) for called in alike} == others
            if ran and sum(calls[called] for called in alike) >= least:
                found += alike
                break
        else:
            return []
    return list(dict.fromkeys(found))


def _essential(own: Calls) -> Calls:
    """The operators that do an op's work: copies only if there is nothing else, and no forward of a backward."""
    working = {name: numel for name, numel in own.items() if name and not families.is_free(name)}
    backwards = {name: numel for name, numel in working.items() if "_backward" in name}
    made = ("empty", "new_empty", "empty_like", "empty_strided", "detach", "alias")
    return backwards or working or {name: numel for name, numel in own.items() if name and name not in made}


@cache
def _counted(op: OpOverload) -> str:
    """Plain name; "" for views."""
    marks = [returned.alias_info for returned in op._schema.returns]
    is_view = any(mark is not None and not mark.is_write for mark in marks)
    return "" if is_view else families.plain(op._schema.name)


def _numel(value: Any) -> int:
    if issubclass(type(value), Tensor):
        return _numel_of(value)
    if type(value) in (list, tuple):
        return max((_numel(item) for item in value), default=0)
    return 0


_installed: list[Overrides] = []


class _Thread(threading.local):
    """One for each thread."""

    is_seen = False
    """Whether its present call of an operator is told of already."""


class Overrides:
    """Implementations of operators that tell of their calls, and then do what torch's do.

    Args:
        own: the operators of the op, by plain names.
        device: `cpu` or `cuda:0`.
        told: is called with operator, arguments and result, on the thread that calls it.
    """

    def __init__(
        self, own: Calls, device: str, told: Callable[[OpOverload, tuple[Any, ...], Any], None]
    ) -> None:
        self._told = told
        self.thread = _Thread()
        """The calling thread's state."""
        self._libraries: list[Any] = []
        self._backend = device_of(device).backend
        self._names = frozenset(_essential(own))

    def install(self) -> None:
        """Put them before torch's own; takes about a millisecond."""
        if self._libraries or not hasattr(torch.library, "get_kernel"):
            return
        for left in tuple(_installed):  # a request that ended badly
            left.remove()
        _installed.append(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that they override
            for namespace, kernels in _kernels(self._names, self._backend).items():
                library: Any = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
                self._libraries.append(library)
                for op, key, kernel in kernels:
                    with suppress(RuntimeError):
                        name = op._name.removeprefix(f"{namespace}::")
                        library.impl(name, self._telling(op, kernel), key, with_keyset=True)
                # What has the same name there from now on is the kernel's: see `integrity`.
                torch.library._impls.difference_update(library._op_impls)

    def remove(self) -> None:
        """Take them away."""
        if self._libraries:
            for library in self._libraries:
                library._destroy()
            self._libraries.clear()
            _installed.remove(self)

    def _telling(self, op: OpOverload, kernel: Any) -> Callable[..., Any]:
        thread, told, call = self.thread, self._told, kernel.call_boxed
        wanted = [str(argument.type) == "Tensor" for argument in op._schema.arguments]

        def run(keys: Any, *arguments: Any, **named: Any) -> Any:
            is_seen, thread.is_seen = thread.is_seen, True  # nor are those that it calls in its turn told of
            try:
                result = call(keys, *_tensors_again(arguments, wanted), **named)
            finally:
                thread.is_seen = is_seen
            if not is_seen:
                told(op, (*arguments, *named.values()), result)
            return result

        return run


def _tensors_again(arguments: Sequence[Any], wanted: Sequence[bool]) -> Sequence[Any]:
    """Arguments with tensors where Python was given plain numbers in their place, which decide no dtype."""
    tensor = next((argument for argument in arguments if issubclass(type(argument), Tensor)), None)
    if tensor is None or all(type(argument) not in _WIDE for argument in arguments):
        return arguments
    return [
        _number(one, tensor) if is_tensor and type(one) in _WIDE else one
        for one, is_tensor in zip(arguments, wanted, strict=False)
    ]


def _number(number: complex, tensor: Tensor) -> Tensor:
    """A number as a tensor, with all of its digits where that leaves the result's dtype as it is.

    Half precision is multiplied and divided by it in fp32: rounded first, it would give other answers than torch's.
    """
    dtype = torch.result_type(tensor, number)
    whole = torch.tensor(number, dtype=_WIDE[type(number)])
    return whole if torch.result_type(tensor, whole) == dtype else whole.to(dtype)


@cache
def _kernels(names: frozenset[str], backend: str) -> Mapping[str, list[tuple[OpOverload, str, Any]]]:
    """Overloads that do what these names do, by namespace, and for each backend key what torch runs for them."""
    wanted = {"oneDNN's layout", *map(families.family, names)}
    wanted |= {other for name in wanted for others in families.INSTEAD.get(name, ()) for other in others}
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    found: dict[str, list[tuple[OpOverload, str, Any]]] = {}
    for name in sorted({name.partition(".")[0] for name in all_operators()}):
        plain = families.plain(name)
        if families.is_free(plain) or (plain not in names and families.family(plain) not in wanted):
            continue
        namespace, _, short = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), short)
        for overload in packet.overloads():
            op = getattr(packet, overload)
            for key in (backend, *(f"{kind}{backend}" for kind in _KINDS)):
                with suppress(RuntimeError, AttributeError):  # no implementation, or Python's alone
                    explicit = key == backend and any(has(op._name, each) for each in _EXPLICIT)
                    if explicit or has(op._name, key):
                        found.setdefault(namespace, []).append((op, key, torch.library.get_kernel(op, key)))
    return found


@cache
def all_operators() -> tuple[str, ...]:
    """Full names of torch's own operators, overloads apart."""
    names = torch._C._dispatch_get_all_op_names()
    return tuple(name for name in names if name.partition("::")[0] in OF_TORCH)


_EXPLICIT = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# Not Mkldnn, whose kernels torch does not hand out: that tensors are given its layout is seen, and enough.
_KINDS = ("Quantized", "Sparse", "SparseCsr", "NestedTensor")
