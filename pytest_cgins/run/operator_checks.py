"""How an operator is registered with torch, looked at on recorded arguments: what `--cgins-opcheck` finds.

torch's own `opcheck` judges schema, autograd keys, fake tensors and dispatch under AOTAutograd. Beside it stand what it
does not look at: gradients that are not there or are wrong, each property of a fake tensor by itself, whole graphs of
`torch.compile`, and replays of a CUDA graph on other numbers than those that it was captured with.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from pytest_cgins.building.contracts import arguments
from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import OperatorCheck
from pytest_cgins.core.device import device_of
from pytest_cgins.core.tensors import Kept
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import is_registered
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.ops import resolve
from pytest_cgins.run import graph_replay
from pytest_cgins.run.timed_copy import Content, Rotating, TimedCopy
from pytest_cgins.verify.messages import CheckOperator, OperatorFinding

Arguments = tuple[Sequence[Any], dict[str, Any]]
_SHOWN = 1500
_GRADIENTS_CLOSE = {1: 0.2, 2: 0.1}
"""Share of their root mean square within which gradients are alike, by bytes an element: 0.01 for longer ones."""
_AUTOGRAD_KEYS = ("Autograd", "CompositeImplicitAutograd")


class Operator:
    """A kernel that is a torch operator, with the recorded sets of inputs.

    Args:
        request: what is asked.
        buffers: one a set.
        kernel: the loaded kernel.
    """

    def __init__(self, request: CheckOperator, buffers: Sequence[Buffer], kernel: LoadedKernel) -> None:
        self._kernel = kernel
        self._device = request.device
        self._context = replace(request.sets[0].context, inference_mode=False)
        self._name = request.kernel.source.name
        self._metas = request.sets[0].metas
        self._mutated = request.sets[0].mutated
        self._contents = [
            Content(inputs, Kept(inputs.tensors, buffer, request.device))
            for inputs, buffer in zip(request.sets, buffers, strict=True)
        ]
        op = request.sets[0].call.op
        self._reference = "" if is_registered(op) else op
        namespace, name, *overload = request.kernel.source.operator.split(".")
        self._packet = getattr(getattr(torch.ops, namespace), name)
        self._function = getattr(self._packet, overload[0]) if overload else self._packet
        self.op = self._overload()

    def finding(self, check: OperatorCheck) -> OperatorFinding:
        """What one check finds."""
        checks: Mapping[OperatorCheck, Callable[[], OperatorFinding]] = {
            "schema": self._schema, "autograd": self._autograd, "fake": self._fake, "aot": self._aot,
            "compile": self._compile, "graph": self._graph,
        }  # fmt: skip
        with self._around():
            return checks[check]()

    # ---- arguments

    def _arguments(
        self,
        content: Content | None = None,
        *,
        followed: bool = False,
        tensors: list[torch.Tensor] | None = None,
    ) -> Arguments:
        """Arguments of the recorded call on memory of their own; gradients follow those that were recorded so."""
        content = content or self._contents[0]
        own = content.kept.unpack() if tensors is None else tensors
        if followed:
            for index in self._differentiable():
                own[index].requires_grad_()
        values = arguments.call_values(content.call, own)
        return arguments.match(content.call, values, arguments.signatures(self._function), self._name, own)

    def _overload(self) -> OpOverload:
        if isinstance(self._function, OpOverload):
            return self._function
        positional, keyword = self._arguments()
        resolved: Any = torch._C._jit_resolve_packet
        name = resolved(self._function._qualified_op_name, *positional, **keyword)
        overload: OpOverload = getattr(self._function, name or "default")
        return overload

    def _differentiable(self) -> list[int]:
        """Argument tensors whose gradients the recorded call follows; one that is written to has none of its own."""
        if not self._context.grad_enabled:
            return []
        return [
            index
            for index, meta in enumerate(self._metas)
            if meta.requires_grad and index not in self._mutated and "float" in meta.dtype
        ]

    @contextmanager
    def _around(self) -> Iterator[None]:
        """In the recorded context, with caches of torch's compiler that no earlier build of the operator has filled."""
        import torch._dynamo
        import torch._functorch.config as functorch
        import torch._inductor.config as inductor

        with ExitStack() as stack:
            stack.enter_context(inductor.patch(compile_threads=1, fx_graph_cache=False))
            stack.enter_context(functorch.patch(enable_autograd_cache=False))
            stack.enter_context(restore(self._context, self._device))
            torch._dynamo.reset()
            yield

    # ---- checks

    def _schema(self) -> OperatorFinding:
        """What the schema says of mutation and aliasing is what happens."""
        text = self._opcheck("test_schema")
        if "mutated" in text:
            return _wrong(
                Reason.UNDECLARED_MUTATION, f"{text}\n→ declare it: Tensor(a!) in the schema, or mutates_args"
            )
        if "alias" in text:
            return _wrong(
                Reason.UNDECLARED_ALIAS, f"{text}\n→ return a copy, or declare it: Tensor(a) → Tensor(a)"
            )
        return _wrong(Reason.WRONG_SCHEMA, text) if text else _right()

    def _autograd(self) -> OperatorFinding:
        """Gradients that the recorded call follows come out, and are those of the reference."""
        if not self._differentiable():
            why = "the recorded call follows no gradient: autograd was off, or no argument that is only read requires one"
            return OperatorFinding(reason=Reason.NOT_APPLICABLE, message=why)
        text = self._opcheck("test_autograd_registration", followed=True)
        if text:
            return _wrong(
                Reason.WRONG_AUTOGRAD, f"{text}\n→ register the formula by torch.library.register_autograd"
            )
        results = _floating(self._run(self.op, followed=True))
        backend = device_of(self._device).backend
        has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
        none = not any(has(self.op._name, key) for key in (*_AUTOGRAD_KEYS, f"Autograd{backend}"))
        if not results:
            return _right()
        register = "→ register a formula: torch.library.register_autograd; where nobody needs gradients, record under torch.no_grad()"
        if none:
            return _wrong(
                Reason.NO_AUTOGRAD,
                f"the recorded call follows gradients, and {self.op} has no autograd formula: they end here\n{register}",
            )
        try:
            own = self._gradients(self.op)
        except Exception as error:  # noqa: BLE001 - whatever a user's formula raises
            what = told(error)
            reason = Reason.NO_AUTOGRAD if "no autograd formula" in what else Reason.WRONG_AUTOGRAD
            return _wrong(
                reason, f"its backward raised {what}" + (f"\n{register}" * (reason is Reason.NO_AUTOGRAD))
            )
        if not self._reference or self._mutated:
            return _right()
        try:
            right = self._gradients(resolve(self._reference))
        except Exception:  # noqa: BLE001 - a reference without gradients says nothing of them
            return _right()
        return self._compared_gradients(own, right)

    def _compared_gradients(
        self, own: Sequence[torch.Tensor | None], right: Sequence[torch.Tensor | None]
    ) -> OperatorFinding:
        names = {
            int(argument.value.value or 0): argument.name
            for argument in self._contents[0].call.arguments
            if argument.value.kind == "tensor"
        }
        for index, mine, theirs in zip(self._differentiable(), own, right, strict=True):
            if theirs is None or not theirs.numel() or _gradients_alike(mine, theirs):
                continue
            what = "is not there" if mine is None else f"is {_worst(mine, theirs)}"
            return _wrong(
                Reason.WRONG_GRADIENT,
                f"the gradient of {names.get(index, f'tensor {index}')} {what}; that of {self._reference} is another",
            )
        return _right()

    def _fake(self) -> OperatorFinding:
        """Fake tensors come out as real ones do."""
        from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        with torch.no_grad():
            real = self._run(self.op)
            mode: Any = FakeTensorMode(shape_env=ShapeEnv())
            positional, keyword = pytree.tree_map_only(
                torch.Tensor, lambda tensor: mode.from_tensor(tensor, static_shapes=True), self._arguments()
            )
            try:
                with mode:
                    fake = self.op(*positional, **keyword)
            except Exception as error:  # noqa: BLE001 - whatever a user's fake implementation raises
                what = told(error)
                none = isinstance(error, UnsupportedOperatorException) or "fake impl" in what
                return _wrong(
                    Reason.NO_FAKE if none else Reason.WRONG_FAKE,
                    f"{self.op} has no fake implementation\n→ register one: torch.library.register_fake"
                    if none
                    else f"its fake implementation raised {what}",
                )
        found = _unlike_fake(real, fake)
        if found is not None:
            return _wrong(*found)
        text = self._opcheck("test_faketensor")
        return _wrong(Reason.WRONG_FAKE, text) if text else _right()

    def _returns_argument(self) -> OperatorFinding | None:
        """The finding for an operator of torch's own form `out=`, which torch's compiler takes from nobody else."""
        if not any(returned.alias_info for returned in self.op._schema.returns):
            return None
        why = "torch.compile takes no operator of others that returns an argument; one that returns nothing, -> (), it takes"
        return OperatorFinding(reason=Reason.NOT_APPLICABLE, message=why)

    def _aot(self) -> OperatorFinding:
        """AOTAutograd traces it with sizes as symbols, and the trace does what the operator does."""
        if refused := self._returns_argument():
            return refused
        text = self._opcheck("test_aot_dispatch_dynamic", followed=True)
        return _wrong(Reason.AOT_DISPATCH, text) if text else _right()

    def _compile(self) -> OperatorFinding:
        """`torch.compile` makes one graph of it that does what the operator does."""
        from torch._dynamo.exc import TorchDynamoException

        if refused := self._returns_argument():
            return refused
        op = self.op

        def call(*positional: Any, **keyword: Any) -> Any:
            return op(*positional, **keyword)

        compiled = torch.compile(call, fullgraph=True)
        for content in self._contents:
            tensors, own = content.kept.unpack(), content.kept.unpack()
            with torch.no_grad():
                wanted = self._run(op, content, tensors=tensors)
                try:
                    given = self._run(compiled, content, tensors=own)
                except TorchDynamoException as error:
                    return _wrong(Reason.GRAPH_BREAK, f"torch.compile(fullgraph=True) raised {told(error)}")
                except Exception as error:  # noqa: BLE001 - what the compiled code raises, the operator did not
                    return _wrong(Reason.COMPILED_DIFFERS, f"compiled, it raised {told(error)}")
            changed = [index for index, pair in enumerate(zip(own, tensors, strict=True)) if not _same(*pair)]
            if changed or not graph_replay.alike(_tensors(given), _tensors(wanted)):
                what = (
                    f"leaves argument tensor {changed[0]} otherwise" if changed else "returns something else"
                )
                return _wrong(
                    Reason.COMPILED_DIFFERS, f"compiled by torch.compile, {op} {what} than when it is called"
                )
        return _right()

    def _graph(self) -> OperatorFinding:
        """A CUDA graph of a call, replayed on other numbers, does what a call does."""
        from pytest_cgins.timing.cuda_timer import CaptureError

        first, other = self._contents[0], self._contents[-1]
        with torch.no_grad():
            copy = TimedCopy(self._kernel, first, self._device)
            arm = Rotating([copy.bare])
            arm(0)
            copy.take(first)
            try:
                graph_replay.require("kernel", arm, copy, other)
            except CaptureError as error:
                reason = Reason.NOT_CAPTURABLE if error.replayed is None else Reason.STALE_REPLAY
                return _wrong(reason, str(error))
        return _right()

    # ---- runs

    def _opcheck(self, name: str, *, followed: bool = False) -> str:
        """What is wrong by one of torch's own tests; "" if nothing is."""
        positional, keyword = self._arguments(followed=followed)
        results: Any = torch.library.opcheck(
            self.op, tuple(positional), keyword, test_utils=name, raise_exception=False
        )
        return "" if results[name] == "SUCCESS" else told(results[name])

    def _run(
        self,
        function: Callable[..., Any],
        content: Content | None = None,
        *,
        followed: bool = False,
        tensors: list[torch.Tensor] | None = None,
    ) -> Any:
        positional, keyword = self._arguments(content, followed=followed, tensors=tensors)
        return function(*positional, **keyword)

    def _gradients(self, function: Callable[..., Any]) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the arguments that have some, for cotangents that are the same for each function."""
        tensors = self._contents[0].kept.unpack()
        results = [
            one for one in _floating(self._run(function, followed=True, tensors=tensors)) if one.requires_grad
        ]
        generator = torch.Generator().manual_seed(0)
        cotangents = [
            torch.randn(one.shape, generator=generator).to(device=one.device, dtype=one.dtype)
            for one in results
        ]
        leaves = [tensors[index] for index in self._differentiable()]
        if not results:
            return (None,) * len(leaves)
        return torch.autograd.grad(results, leaves, cotangents, allow_unused=True)


def told(error: BaseException) -> str:
    """The class and text of what was raised, cut where torch goes on for pages."""
    text = str(error).strip()
    kind = type(error).__name__
    if not text:
        text = traceback.format_exception_only(error)[-1].strip()
    return f"{kind}: {text[:_SHOWN]}{' …' if len(text) > _SHOWN else ''}"


def _right() -> OperatorFinding:
    return OperatorFinding(reason=Reason.OK)


def _wrong(reason: Reason, message: str) -> OperatorFinding:
    return OperatorFinding(reason=reason, message=message)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _floating(result: Any) -> list[torch.Tensor]:
    return [tensor for tensor in _tensors(result) if tensor.is_floating_point()]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return graph_replay.alike([one], [other])


def _unlike_fake(real: Any, fake: Any) -> tuple[Reason, str] | None:
    """The first property of a fake result that the real one does not have; sizes that are symbols are any size."""
    reals, fakes = _tensors(real), _tensors(fake)
    if len(reals) != len(fakes):
        return (
            Reason.WRONG_FAKE,
            f"{counted(len(fakes), 'fake tensor')} for {counted(len(reals), 'real one')}",
        )
    for number, (mine, theirs) in enumerate(zip(reals, fakes, strict=True)):
        shape = [size if isinstance(size, int) else None for size in theirs.shape]
        sized = len(shape) == mine.ndim and all(
            size in (None, own) for size, own in zip(shape, mine.shape, strict=True)
        )
        strides = (
            [
                (own, made)
                for own, made, size in zip(mine.stride(), theirs.stride(), mine.shape, strict=True)
                if size > 1 and isinstance(made, int)
            ]
            if sized and mine.numel()
            else []
        )
        properties = (
            (Reason.FAKE_SHAPE, sized, tuple(theirs.shape), tuple(mine.shape)),
            (Reason.FAKE_DTYPE, mine.dtype == theirs.dtype, theirs.dtype, mine.dtype),
            (Reason.FAKE_DEVICE, mine.device == theirs.device, theirs.device, mine.device),
            (Reason.FAKE_STRIDE, all(own == made for own, made in strides), theirs.stride(), mine.stride()),
        )
        for reason, holds, made, own in properties:
            if not holds:
                what = reason.value.removeprefix("fake-")
                return reason, f"output {number}: the fake tensor has {what} {made}, the real one {own}"
    return None


def _gradients_alike(mine: torch.Tensor | None, theirs: torch.Tensor) -> bool:
    if mine is None or mine.shape != theirs.shape:
        return False
    close = _GRADIENTS_CLOSE.get(theirs.element_size(), 0.01)
    scale = float(theirs.double().square().mean().sqrt())
    return float((mine.double() - theirs.double()).square().mean().sqrt()) <= close * scale


def _worst(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    if mine.shape != theirs.shape:
        return f"of shape {tuple(mine.shape)} and not {tuple(theirs.shape)}"
    place = int((mine.double() - theirs.double()).abs().argmax())
    return f"{mine.reshape(-1)[place].item():.6g} where {theirs.reshape(-1)[place].item():.6g} is due (element {place})"
