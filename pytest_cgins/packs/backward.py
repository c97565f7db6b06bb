"""The backward of an op as an op of its own: `OP@backward(a,b)`.

It takes what autograd hands to the op's outputs, `grad_output` (with several outputs `grad_outputs.0`,
`grad_outputs.1`, …; None for one that nothing was asked of), then the arguments of OP, and gives the
gradients of a and b. That is a function like any other: it is replayed, computed in fp64 and judged as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import OpCall, Value, mapped, tensor_indices
from pytest_cgins.packs import ops
from pytest_cgins.packs.forward import bound
from pytest_cgins.packs.signature import Bound, bind, call_of
from pytest_cgins.packs.values import encode

SINGLE = "grad_output"
SEVERAL = "grad_outputs"
MARK = "@backward"

_NAME = re.compile(r"(?P<op>[^@()]+)@backward\((?P<names>[A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)*)\)", re.ASCII)
_LEAF_IN_PLACE = "a leaf Variable that requires grad"


def is_derived(op: str) -> bool:
    """Whether a qualified name is that of a backward."""
    return MARK in op


def name_of(op: str, names: Sequence[str]) -> str:
    """Qualified name of the backward of `op` with respect to its arguments `names`."""
    return f"{op}{MARK}({','.join(names)})"


def parse(op: str) -> tuple[str, tuple[str, ...]]:
    """The op and the names of its arguments that a backward is of.

    Raises:
        TraceError: if it is not written `OP@backward(a,b)`.
    """
    match = _NAME.fullmatch(op)
    if match is None:
        raise TraceError(
            f"{op!r} is not the name of a backward",
            remedy="write the arguments that get a gradient, separated by commas only: "
            "torch.nn.functional.linear@backward(input,weight)",
        )
    return match["op"], tuple(match["names"].split(","))


def is_gradient(name: str) -> bool:
    """Whether an argument of a backward is one of autograd's, by its name."""
    return name == SINGLE or name.startswith(f"{SEVERAL}.")


def check_names(op: str, arguments: Sequence[str]) -> None:
    """Raise RecordError if an argument of the op has a name that its backward needs for itself."""
    for name in arguments:
        if is_gradient(name) or name == SEVERAL:
            raise RecordError(
                f"its argument {name} has the name of what its backward takes besides",
                remedy=f"rename the argument, or record {op} without its backward",
            )


class Backward:
    """The callable that `OP@backward(a,b)` stands for.

    Gradients are passed first, or by keyword. It leaves its arguments as they are.
    """

    def __init__(self, forward: Callable[..., Any], op: str) -> None:
        setattr(self, ops.OP_NAME, op)
        self.name = op
        self.forward = forward
        self.forward_name, self.names = parse(op)

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Bound]:
        """The arguments by name: gradients, then those of the op; see `signature.bind`.

        Raises:
            TypeError: if there is no gradient.
        """
        named = {name: value for name, value in kwargs.items() if is_gradient(name)}
        own = {name: value for name, value in kwargs.items() if name not in named}
        if named:
            gradients = [Bound(name, named[name], "keyword") for name in sorted(named, key=_position)]
        elif args:
            gradients, args = [Bound(SINGLE, args[0], "positional")], args[1:]
        else:
            raise TypeError(f"{self.name} needs {SINGLE}, or {SEVERAL}.0, {SEVERAL}.1, …")
        return gradients + bind(self.forward, args, own)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the op and its backward.

        Returns:
            One gradient a tensor of each named argument, of its shape and dtype; zeros where the result does
            not depend on it.
        """
        return prepared(*call_of(self.name, self, args, kwargs))()


def resolve(op: str) -> Callable[..., Any]:
    """The callable that the qualified name of an op, or of the backward of one, stands for.

    Raises:
        TraceError: as `ops.resolve`, or if the name of a backward is not written as one.
    """
    return Backward(ops.resolve(parse(op)[0]), op) if "@" in op else ops.resolve(op)


def _position(name: str) -> int:
    return int(name.rpartition(".")[2]) if name != SINGLE else 0


def prepared(call: OpCall, tensors: Sequence[torch.Tensor]) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Run the forward of a backward's call once; what is given runs the backward alone, any number of times, on copies.

    On a GPU the backward runs on the stream that is current now, as autograd has it.

    Raises:
        TraceError: if an argument has no gradient, or there are not as many gradients as outputs.
    """
    forward, names, gradients = _split(call)
    with torch.inference_mode(mode=False), torch.enable_grad():
        try:
            outputs, leaves = _forward(
                forward, names, _copies(forward, tensors), in_place=_is_in_place(forward)
            )
        except RuntimeError as error:
            if _LEAF_IN_PLACE not in str(error):
                raise
            outputs, leaves = _forward(forward, names, _copies(forward, tensors), in_place=True)
    pairs = _paired(call.op, outputs, gradients, tensors)
    return _Runner([output for output, _ in pairs], leaves, [gradient for _, gradient in pairs])


def whole(
    call: OpCall,
    tensors: Sequence[torch.Tensor],
    bind_forward: Callable[[OpCall, Sequence[torch.Tensor]], Callable[[], object]] = bound,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Run the forward of a backward's call and the backward behind it, both each time; no copies are made.

    A function that keeps what it needs may overwrite it in its backward, so one graph serves one backward only.
    `bind_forward` gives what runs a call of the op, by default the op itself.

    Raises:
        TraceError: as `prepared`; of what the forward returns, when it runs.
    """
    forward, names, gradients = _split(call)
    inner, present, leaves = _with_leaves(forward, names, tensors, in_place=_is_in_place(forward))
    run_forward = bind_forward(inner, present)

    def run() -> tuple[torch.Tensor, ...]:
        outputs: list[torch.Tensor] = []
        # On this thread: what watches a kernel watches the thread that calls it.
        with (
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(mode=False),
        ):
            encode(run_forward(), outputs)
            pairs = _paired(call.op, outputs, gradients, tensors)
            runner = _Runner([output for output, _ in pairs], leaves, [gradient for _, gradient in pairs])
            return runner()

    return run


def reads(call: OpCall, name: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the gradients of a backward depend on the numbers of one of its arguments, as autograd's graph tells.

    The bias of a linear layer is an argument of its backward, and no gradient depends on it. Nothing is computed: the
    graph is that of tensors without memory. Where it cannot be had, the answer is yes.
    """
    bare = [tensor.detach().to("meta") for tensor in tensors]
    inner, names, gradients = _split(call)
    # A leaf a tensor of each of these, in this order; an argument may have several.
    owners = [
        argument.name
        for argument in inner.arguments
        if argument.name in (*names, name)
        for index in dict.fromkeys(tensor_indices(argument.value))
        if bare[index].is_floating_point() or bare[index].is_complex()
    ]
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            outputs, leaves = _forward(inner, (*names, name), bare, in_place=True)
            watched = [leaf for leaf, owner in zip(leaves, owners, strict=True) if owner == name]
            asked = [leaf for leaf, owner in zip(leaves, owners, strict=True) if owner in names]
            pairs = _paired(call.op, outputs, gradients, bare)
            made = torch.autograd.grad(
                [output for output, _ in pairs], asked, [gradient for _, gradient in pairs],
                create_graph=True, allow_unused=True,
            )  # fmt: skip
            results = [one for one in made if one is not None and one.requires_grad]
            seen = torch.autograd.grad(results, watched, results, allow_unused=True) if results else ()
    except Exception:  # noqa: BLE001 - an op of anyone's, on tensors without memory
        return True
    return not watched or any(one is not None for one in seen)


def _split(call: OpCall) -> tuple[OpCall, tuple[str, ...], list[Value]]:
    """The call of a backward's op, the arguments that get a gradient, and the gradients of its outputs."""
    forward_name, names = parse(call.op)
    gradients = [argument.value for argument in call.arguments if is_gradient(argument.name)]
    own = tuple(argument for argument in call.arguments if not is_gradient(argument.name))
    return replace(call, op=forward_name, arguments=own), names, gradients


def _copies(call: OpCall, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, those of the call as they lie on memory of their own: an op may change running statistics."""
    used = sorted({index for argument in call.arguments for index in tensor_indices(argument.value)})
    own = list(tensors)
    with torch.no_grad():
        for device in dict.fromkeys(tensors[index].device for index in used):
            here = [index for index in used if tensors[index].device == device]
            layout = lay_out([tensors[index] for index in here], copy=False)
            for index, copy in zip(here, rebuild(layout.metas, layout.spans, device), strict=True):
                own[index] = copy
    return own


def _forward(
    call: OpCall, names: Sequence[str], tensors: Sequence[torch.Tensor], *, in_place: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs of the op, and the leaves of the named arguments."""
    inner, present, leaves = _with_leaves(call, names, tensors, in_place=in_place)
    outputs: list[torch.Tensor] = []
    encode(bound(inner, present)(), outputs)
    return outputs, leaves


def _with_leaves(
    call: OpCall, names: Sequence[str], tensors: Sequence[torch.Tensor], *, in_place: bool
) -> tuple[OpCall, list[torch.Tensor], list[torch.Tensor]]:
    """The call on leaves of autograd in the place of the named arguments, its tensors, and the leaves, a tensor each.

    An argument that is passed twice is two leaves: a backward gives partial derivatives.
    """
    present = list(tensors)
    leaves: list[torch.Tensor] = []
    arguments = []
    for argument in call.arguments:
        value = argument.value
        if argument.name in names:
            own: dict[int, int] = {}
            for index in dict.fromkeys(tensor_indices(value)):
                if tensors[index].is_floating_point() or tensors[index].is_complex():
                    leaf = tensors[index].detach().requires_grad_()
                    leaves.append(leaf)
                    # An op in place refuses leaves.
                    present.append(leaf.clone() if in_place else leaf)
                    own[index] = len(present) - 1
            value = _renumbered(value, own)
        arguments.append(replace(argument, value=value))
    found = {argument.name for argument in call.arguments}
    if missing := [name for name in names if name not in found]:
        raise TraceError(
            f"{call.op} has no argument {', '.join(missing)} in this call",
            remedy=f"its arguments are {', '.join(sorted(found))}",
        )
    return replace(call, arguments=tuple(arguments)), present, leaves


def _renumbered(value: Value, own: dict[int, int]) -> Value:
    """The tree with other indices for some of its tensors."""

    def renumbered(leaf: Value) -> Value:
        number = own.get(int(leaf.value or 0), leaf.value) if leaf.kind == "tensor" else leaf.value
        return replace(leaf, value=number)

    return mapped(value, renumbered)


def _is_in_place(call: OpCall) -> bool:
    """Whether an op says by its name or arguments that it writes to one of its tensors."""
    named = any(argument.name == "inplace" and argument.value.value is True for argument in call.arguments)
    word = call.op.rpartition(".")[2]
    return named or (word.endswith("_") and not word.endswith("__")) or word.startswith("__i")


def _paired(
    op: str, outputs: Sequence[torch.Tensor], gradients: Sequence[Value], tensors: Sequence[torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each output that a gradient came to, with it."""
    if len(outputs) != len(gradients):
        raise TraceError(
            f"{op}: the op returns {counted(len(outputs), 'tensor')}, and {counted(len(gradients), 'gradient is', 'gradients are')} passed",
            remedy=f"pass {SINGLE} for one output, {SEVERAL}.0, {SEVERAL}.1, … for several, None where none came",
        )
    pairs = []
    for output, value in zip(outputs, gradients, strict=True):
        if value.kind == "tensor" and output.requires_grad:
            pairs.append((output, tensors[int(value.value or 0)]))
    if not pairs:
        raise TraceError(
            f"{op}: no output has both a gradient and a derivative",
            remedy="name arguments that the op is differentiable by",
        )
    return pairs


class _Runner:
    """Autograd over a graph that stays."""

    def __init__(
        self, outputs: list[torch.Tensor], leaves: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        self._outputs = outputs
        self._leaves = leaves
        self._gradients = gradients
        device = outputs[0].device.type
        self._autocast = device if torch.is_autocast_enabled(device) else ""

    def __call__(self) -> tuple[torch.Tensor, ...]:
        with self._without_autocast():
            found = torch.autograd.grad(
                self._outputs, self._leaves, self._gradients, retain_graph=True, allow_unused=True
            )
        made: list[torch.Tensor] = []
        for one, leaf in zip(found, self._leaves, strict=True):
            gradient = torch.zeros_like(leaf) if one is None else one
            # An addition's backward gives one object for all its arguments: results are told apart by identity.
            twice = any(gradient is other for other in (*made, *self._gradients))
            made.append(gradient.detach() if twice else gradient)
        return tuple(made)

    @contextmanager
    def _without_autocast(self) -> Iterator[None]:
        """As torch wants `backward()` to be called: its casts are in the graph already."""
        if self._autocast:
            torch.set_autocast_enabled(self._autocast, False)
        try:
            yield
        finally:
            if self._autocast:
                torch.set_autocast_enabled(self._autocast, True)
