"""How an operator is registered with torch, looked at on recorded arguments: what `--cgins-opcheck` finds.

torch's own `opcheck` judges schema, autograd keys, fake tensors and dispatch under AOTAutograd. Beside it stand what it
does not look at: gradients that are not there or are wrong, each property of a fake tensor by itself, whole graphs of
`torch.compile`, and replays of a CUDA graph on other numbers than those that it was captured with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from pytest_cgins.core.tensors import Kept, pack
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import is_registered
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.inputs import names_of
from pytest_cgins.packs.ops import resolve
from pytest_cgins.run import graph_replay
from pytest_cgins.verify.messages import CheckOperator, OperatorFinding
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy

Finding = tuple[Reason, str] | None
"""What is wrong, and what to say of it; None if nothing is."""
Arguments = tuple[Sequence[Any], dict[str, Any]]
_SHOWN = 1500
_CLOSE = 1e-2
"""For torch's own tests, which look at how an operator is registered: unordered sums differ from call to call."""
_GRADIENTS_CLOSE = {1: 0.2, 2: 0.1}
"""Share of their root mean square within which gradients are alike, by bytes an element: 0.01 for longer ones."""
_AUTOGRAD_KEYS = ("Autograd", "CompositeImplicitAutograd")


class Operator:
    """A kernel that is a torch operator, with the recorded sets of inputs."""

    def __init__(self, request: CheckOperator, buffers: Sequence[Buffer], kernel: LoadedKernel) -> None:
        self._kernel = kernel
        self._device = request.device
        self._context = replace(request.sets[0].context, inference_mode=False)
        self._name = request.kernel.source.name
        self._sets = request.sets
        self._followed = set(request.followed) - set(request.sets[0].mutated)
        self._contents = [
            Content(inputs, Kept(inputs.tensors, buffer, request.device))
            for inputs, buffer in zip(request.sets, buffers, strict=True)
        ]
        op = request.sets[0].call.op
        self._reference = "" if is_registered(op) else op
        namespace, name, *overload = request.kernel.source.operator.split(".")
        packet = getattr(getattr(torch.ops, namespace), name)
        self._function = getattr(packet, overload[0]) if overload else packet
        self.op = self._overload()

    def finding(self, check: OperatorCheck) -> OperatorFinding:
        """What one check finds."""
        checks: Mapping[OperatorCheck, Callable[[], Finding]] = {
            "schema": self._schema, "autograd": self._autograd, "fake": self._fake, "aot": self._aot,
            "compile": self._compile, "graph": self._graph,
        }  # fmt: skip
        with self._around():
            reason, message = self._why_not(check) or checks[check]() or (Reason.OK, "")
        return OperatorFinding(reason=reason, message=message)

    def _why_not(self, check: OperatorCheck) -> Finding:
        """Why a check says nothing of this call; None if it does."""
        why = ""
        if check == "autograd" and not self._differentiable():
            why = "the recorded call follows no gradient: autograd was off, or no argument that is only read requires one"
        elif check in ("aot", "compile", "graph") and self._context.rng_seed is not None:
            why = "the operator draws random numbers"
        elif check in ("aot", "compile") and any(one.alias_info for one in self.op._schema.returns):
            why = "torch.compile takes no operator of others that returns an argument; one that returns nothing, -> (), it takes"
        return (Reason.NOT_APPLICABLE, why) if why else None

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
        return sorted(self._followed) if self._context.grad_enabled else []

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

    def _schema(self) -> Finding:
        """What the schema says of mutation and aliasing is what happens."""
        text = self._opcheck("test_schema")
        if "mutated" in text:
            remedy = "declare it: Tensor(a!) in the schema, or mutates_args"
            return Reason.UNDECLARED_MUTATION, f"{text}\n→ {remedy}"
        if "alias" in text:
            return (Reason.UNDECLARED_ALIAS, f"{text}\n→ return a copy, or declare it: Tensor(a) → Tensor(a)")
        return (Reason.WRONG_SCHEMA, text) if text else None

    def _autograd(self) -> Finding:
        """Gradients that the recorded call follows come out, and are those of the reference."""
        text = self._opcheck("test_autograd_registration", followed=True)
        if text:
            remedy = "register the formula by torch.library.register_autograd"
            return Reason.WRONG_AUTOGRAD, f"{text}\n→ {remedy}"
        if not _floating(self._run(self.op, followed=True)):
            return None
        has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
        keys = (*_AUTOGRAD_KEYS, f"Autograd{device_of(self._device).backend}")
        register = "→ register a formula: torch.library.register_autograd; where nobody needs gradients, record under torch.no_grad()"
        if not any(has(self.op._name, key) for key in keys):
            none = (
                f"the recorded call follows gradients, and {self.op} has no autograd formula: they end here"
            )
            return Reason.NO_AUTOGRAD, f"{none}\n{register}"
        try:
            own = self._gradients(self.op)
        except Exception as error:  # noqa: BLE001 - whatever a user's formula raises
            raised = f"its backward raised {told(error)}"
            if "no autograd formula" in raised:
                return Reason.NO_AUTOGRAD, f"{raised}\n{register}"
            return Reason.WRONG_AUTOGRAD, raised
        if not self._reference or self._sets[0].mutated:
            return None
        try:
            right = self._gradients(resolve(self._reference))
        except Exception:  # noqa: BLE001 - a reference without gradients says nothing of them
            return None
        return self._compared_gradients(own, right)

    def _compared_gradients(
        self, own: Sequence[torch.Tensor | None], right: Sequence[torch.Tensor | None]
    ) -> Finding:
        names = names_of(self._contents[0].call)
        for index, mine, theirs in zip(self._differentiable(), own, right, strict=True):
            if theirs is not None and theirs.numel() and not _gradients_alike(mine, theirs):
                what = f"the gradient of {names[index]} is not that of {self._reference}"
                return Reason.WRONG_GRADIENT, what + ", it is None" * (mine is None)
        return None

    def _fake(self) -> Finding:
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
                if isinstance(error, UnsupportedOperatorException) or "fake impl" in str(error):
                    register = "→ register one: torch.library.register_fake"
                    return Reason.NO_FAKE, f"{self.op} has no fake implementation\n{register}"
                return Reason.WRONG_FAKE, f"its fake implementation raised {told(error)}"
        text = self._opcheck("test_faketensor")
        return _unlike_fake(real, fake) or ((Reason.WRONG_FAKE, text) if text else None)

    def _aot(self) -> Finding:
        """AOTAutograd traces it with sizes as symbols, and the trace does what the operator does."""
        text = self._opcheck("test_aot_dispatch_dynamic", followed=True)
        return (Reason.AOT_DISPATCH, text) if text else None

    def _compile(self) -> Finding:
        """`torch.compile` makes one graph of it that does what the operator does."""
        from torch._dynamo.exc import TorchDynamoException

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
                    return (Reason.GRAPH_BREAK, f"torch.compile(fullgraph=True) raised {told(error)}")
                except Exception as error:  # noqa: BLE001 - what the compiled code raises, the operator did not
                    return (Reason.COMPILED_DIFFERS, f"compiled, it raised {told(error)}")
            for what, mine, theirs in (
                ("returns something else", _tensors(given), _tensors(wanted)),
                ("leaves its arguments otherwise", own, tensors),
            ):
                if not graph_replay.alike(mine, theirs):
                    text = f"compiled by torch.compile, {op} {what} than when it is called"
                    return Reason.COMPILED_DIFFERS, text
        return None

    def _graph(self) -> Finding:
        """A CUDA graph of a call, replayed on other numbers, does what a call does."""
        from pytest_cgins.timing.cuda_timer import CaptureError

        first, *others = self._contents
        other = others[0] if others else self._turned()
        with torch.no_grad():
            copy = TimedCopy(self._kernel, first, self._device)
            arm = Rotating([copy.bare])
            arm(0)
            copy.take(first)
            try:
                graph_replay.require("kernel", arm, copy, other)
            except CaptureError as error:
                reason = Reason.NOT_CAPTURABLE if error.replayed is None else Reason.STALE_REPLAY
                return (reason, str(error))
        return None

    def _turned(self) -> Content:
        """The recorded set with the numbers of each tensor in reverse: there is no other where gold alone is known."""
        inputs = self._sets[0]
        tensors = self._contents[0].kept.unpack()
        for tensor in tensors:
            if tensor.is_floating_point() and tensor.is_contiguous():
                tensor.copy_(tensor.reshape(-1).flip(0).reshape(tensor.shape))
        header, buffer = pack(tensors)
        return Content(replace(inputs, tensors=header), Kept(header, buffer, self._device))

    # ---- runs

    def _opcheck(self, name: str, *, followed: bool = False) -> str:
        """What is wrong by one of torch's own tests; "" if nothing is."""
        positional, keyword = self._arguments(followed=followed)
        close = {"rtol": _CLOSE, "atol": _CLOSE}
        results: Any = torch.library.opcheck(
            self.op, tuple(positional), keyword, test_utils=name, raise_exception=False, **close
        )
        return "" if results[name] == "SUCCESS" else told(results[name])

    def _run(self, function: Callable[..., Any], *content: Content, **options: Any) -> Any:
        """Call it; other arguments are those of `_arguments`."""
        positional, keyword = self._arguments(*content, **options)
        return function(*positional, **keyword)

    def _gradients(self, function: Callable[..., Any]) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the arguments that have some, for cotangents that are the same for each function."""
        tensors = self._contents[0].kept.unpack()
        given = _floating(self._run(function, followed=True, tensors=tensors))
        results = [one for one in given if one.requires_grad]
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
    text = str(error).partition("\nfrom user code:")[0].strip()
    return f"{type(error).__name__}: {text[:_SHOWN]}{' …' if len(text) > _SHOWN else ''}"


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _floating(result: Any) -> list[torch.Tensor]:
    return [tensor for tensor in _tensors(result) if tensor.is_floating_point()]


def _unlike_fake(real: Any, fake: Any) -> Finding:
    """The first property of a fake result that the real one does not have; sizes that are symbols are any size."""
    reals, fakes = _tensors(real), _tensors(fake)
    if len(reals) != len(fakes):
        numbers = f"{counted(len(fakes), 'fake tensor')} for {counted(len(reals), 'real one')}"
        return Reason.WRONG_FAKE, numbers
    for number, (mine, theirs) in enumerate(zip(reals, fakes, strict=True)):
        sized = theirs.ndim == mine.ndim and _alike(theirs.shape, mine.shape)
        told_apart = [axis for axis, size in enumerate(mine.shape) if size > 1] if mine.numel() else []
        strides = (
            [stride[axis] for axis in told_apart if sized] for stride in (theirs.stride(), mine.stride())
        )
        properties = (
            (Reason.FAKE_SHAPE, sized, tuple(theirs.shape), tuple(mine.shape)),
            (Reason.FAKE_DTYPE, mine.dtype == theirs.dtype, theirs.dtype, mine.dtype),
            (Reason.FAKE_DEVICE, mine.device == theirs.device, theirs.device, mine.device),
            (Reason.FAKE_STRIDE, _alike(*strides), theirs.stride(), mine.stride()),
        )
        for reason, holds, made, own in properties:
            if not holds:
                what = reason.value.removeprefix("fake-")
                return reason, f"output {number}: the fake tensor has {what} {made}, the real one {own}"
    return None


def _alike(made: Iterable[Any], own: Iterable[int]) -> bool:
    """Whether numbers of a fake tensor are those of the real one, as far as they are no symbols."""
    return all(not isinstance(fake, int) or fake == real for fake, real in zip(made, own, strict=True))


def _gradients_alike(mine: torch.Tensor | None, theirs: torch.Tensor) -> bool:
    if mine is None or mine.shape != theirs.shape:
        return mine is None and not theirs.any()
    close = _GRADIENTS_CLOSE.get(theirs.element_size(), 0.01)
    scale = float(theirs.double().square().mean().sqrt())
    return float((mine.double() - theirs.double()).square().mean().sqrt()) <= close * scale
