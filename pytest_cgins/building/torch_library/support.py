"""The Python half of exported kernels: shapes of outputs, and backward. It needs torch, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_FAKE_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


@dataclass(frozen=True)
class BackwardKernel:
    """A kernel that computes gradients of an op."""

    run: Callable[..., Any]
    """Takes the gradient of the output, then the operator's arguments; returns the gradients."""
    gradients: tuple[str, ...]
    """The op's arguments that these are the gradients of."""
    devices: tuple[str, ...]
    """Device types that it runs on."""


@dataclass(frozen=True)
class Operator:
    """What Python adds to an operator of a library."""

    name: str
    """Qualified: `namespace::name`."""
    arguments: tuple[str, ...]
    """Names of the operator's arguments."""
    reference: Callable[..., Any]
    """The op that the kernel replaces, as a function of these arguments: it tells shapes and gradients."""
    outputs: tuple[str, ...] = ("tensor",)
    """What the reference returns, as the kernel declares it: `tensor`, `list` (of tensors; at most one), or
    `argument` for one that is written to and returned."""
    mutated: tuple[str, ...] = ()
    """Arguments that are written to."""
    differentiable: bool = True
    """Whether gradients go through it; not through one that writes to its arguments."""
    backward: tuple[BackwardKernel, ...] = ()
    """Kernels for the gradients; where none fits, torch's own backward of the reference serves."""


def load(namespace: str, folder: Path, files: Sequence[str]) -> torch.library.Library:
    """Load the libraries of a package, as many as were built for this machine.

    Args:
        namespace: of their operators.
        folder: where they are.
        files: their names; those that define operators come first.

    Returns:
        A fragment of the namespace, for `register`.

    Raises:
        ImportError: none was built, or torch refuses one.
    """
    found = [folder / file for file in files if (folder / file).is_file()]
    if not found:
        raise ImportError(
            f"{folder}: no kernels were built; run `python build_kernels.py`, or install the package"
        )
    for file in found:
        try:
            torch.ops.load_library(file)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError) as error:
            raise ImportError(f"{file} cannot be loaded into torch {torch.__version__}: {error}") from error
    return torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]


def register(operator: Operator, library: torch.library.Library) -> None:
    """Register shapes and backward of an operator that a loaded library defines.

    Args:
        operator: what to register.
        library: a fragment of its namespace; what is registered lasts as long as it.
    """

    def fake(*values: Any) -> Any:
        made = [_like(tensor, tensor.device) for tensor in _outputs(operator, values)]
        return _nested(operator, made)

    def outputs(*values: Any) -> list[torch.Tensor]:
        # It logs what goes wrong with a traceback, and the caller gets the error.
        _FAKE_LOGGER.disabled = True
        try:
            with FakeTensorMode() as mode:
                found = _outputs(operator, tree_map_only(torch.Tensor, mode.from_tensor, values))
            return [_like(tensor, "meta") for tensor in found]
        except Exception as error:  # noqa: BLE001 - the stable ABI hands on no errors but as data
            text = str(error) or type(error).__name__
            return [torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)]
        finally:
            _FAKE_LOGGER.disabled = False

    torch.library.register_fake(operator.name, fake, lib=library)
    if set(operator.outputs) - {"argument"}:
        for key in ("CPU", "CUDA"):
            library.impl(f"{operator.name.partition('::')[2]}_outputs", outputs, key)  # type: ignore[no-untyped-call]
    if operator.mutated:
        _tell_autograd_of_writes(operator, library)
    if operator.differentiable:
        torch.library.register_autograd(
            operator.name,
            lambda context, *gradients: _backward(operator, context, gradients),
            setup_context=_keep,
            lib=library,
        )


def _tell_autograd_of_writes(operator: Operator, library: torch.library.Library) -> None:
    """Count a tensor's versions up: autograd then refuses a backward whose saved tensor was overwritten."""
    namespace, _, name = operator.name.partition("::")
    overload = getattr(getattr(torch.ops, namespace), name).default
    places = [operator.arguments.index(argument) for argument in operator.mutated]

    def count_and_call(keys: Any, *values: Any) -> Any:
        torch.autograd.graph.increment_version(_tensors([values[place] for place in places]))
        return overload.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *values)

    library.impl(name, count_and_call, "ADInplaceOrView", with_keyset=True)  # type: ignore[no-untyped-call]


def number(kind: int, integer: int, real: float, imaginary: float) -> bool | int | float | complex | None:
    """The number of a Scalar that was passed in four parts; see `parts`."""
    numbers = (bool(integer), integer, real, complex(real, imaginary))
    return None if kind < 0 else numbers[kind]


def parts(value: bool | int | float | complex | None) -> tuple[int, int, float, float]:
    """A Scalar in four parts, which an operator over the stable ABI can take: kind, integer, real, imaginary."""
    if value is None:
        return -1, 0, 0.0, 0.0
    if isinstance(value, bool):
        return 0, int(value), float(value), 0.0
    if isinstance(value, int):
        return 1, value, float(value), 0.0
    if isinstance(value, complex):
        return 3, 0, value.real, value.imag
    return 2, 0, value, 0.0


def listed(value: Any) -> Any:
    """A list argument of which a single number stands for a list of one."""
    return [value] if isinstance(value, bool | int | float) else value


def seed(generator: torch.Generator | int | None) -> int:
    """The seed that a kernel takes for a generator: its own, torch's for None, or a number as it is."""
    if isinstance(generator, int):
        return generator
    drawn = torch.initial_seed() if generator is None else generator.initial_seed()
    # Operators take signed numbers, kernels the same 64 bits without sign.
    return drawn - 2**64 if drawn >= 2**63 else drawn


def refuse_gradients(name: str, *values: Any) -> None:
    """Raise RuntimeError if autograd watches an argument of an operator that has no backward."""
    if torch.is_grad_enabled():
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                raise RuntimeError(
                    f"{name} has no backward: it writes to its arguments; call it under torch.no_grad(), or "
                    "on tensors that need no gradient"
                )


def _outputs(operator: Operator, values: Sequence[Any]) -> list[torch.Tensor]:
    """New outputs of the reference on fake tensors, without those that are arguments.

    Raises:
        RuntimeError: the op returns another number of tensors than the kernel declares.
    """
    declared = operator.outputs
    if not set(declared) - {"argument"}:
        return []
    values = [
        tree_map_only(torch.Tensor, torch.empty_like, value) if name in operator.mutated else value
        for name, value in zip(operator.arguments, values, strict=True)
    ]
    with torch.no_grad(), _without_autocast():
        found = _tensors(operator.reference(*values))
    length = len(found) - len(declared) + 1 if "list" in declared else 0
    kinds = [kind for kind in declared for _ in range(length if kind == "list" else 1)]
    if len(kinds) != len(found):
        raise RuntimeError(f"the op returns {len(found)} tensors, and the kernel declares {len(declared)}")
    return [tensor for tensor, kind in zip(found, kinds, strict=True) if kind != "argument"]


def _nested(operator: Operator, made: list[torch.Tensor]) -> Any:
    """New outputs as the operator returns them: one, several, or with a list among them."""
    kinds = [kind for kind in operator.outputs if kind != "argument"]
    length = len(made) - len(kinds) + 1
    rest = iter(made)
    nested = [[next(rest) for _ in range(length)] if kind == "list" else next(rest) for kind in kinds]
    return nested[0] if len(nested) == 1 else tuple(nested) or None


def _like(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _without_autocast() -> AbstractContextManager[object]:
    """An operator computes in the types that it is given, whatever autocast says."""
    stack = ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack


@dataclass(frozen=True)
class _Saved:
    """The place of a saved tensor among those of a call."""

    index: int


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save what a backward needs, tensors apart: autograd watches them."""
    del output
    tensors: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> _Saved:
        tensors.append(tensor)
        return _Saved(len(tensors) - 1)

    ctx.arguments = tree_map_only(torch.Tensor, place, inputs)
    ctx.save_for_backward(*tensors)


def _backward(operator: Operator, context: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
    saved = context.saved_tensors
    values = tree_map_only(_Saved, lambda place: saved[place.index], context.arguments)
    needed = [any(tree_leaves(need)) for need in context.needs_input_grad]
    incoming = _tensors(list(gradients))
    kernel = _fitting(operator, values, needed)
    # Whoever asks for a derivative of the gradients gets them from torch, which can give it.
    if kernel is None or torch.is_grad_enabled():
        return _by_reference(operator, values, needed, incoming)
    # Autograd hands gradients on with any strides, zeros among them.
    found = kernel.run(incoming[0].contiguous(), *values)
    made = dict(zip(kernel.gradients, _tensors(found), strict=True))
    return tuple(made[name] if need else None for name, need in zip(operator.arguments, needed, strict=True))


def _fitting(operator: Operator, values: Sequence[Any], needed: Sequence[bool]) -> BackwardKernel | None:
    """The first backward kernel that gives all that is asked for, on the device of the call."""
    asked = {name for name, need in zip(operator.arguments, needed, strict=True) if need}
    tensors = {
        name
        for name, value in zip(operator.arguments, values, strict=True)
        if isinstance(value, torch.Tensor)
    }
    device = _tensors(list(values))[0].device.type
    for kernel in operator.backward:
        if asked <= set(kernel.gradients) <= tensors and device in kernel.devices:
            return kernel
    return None


def _by_reference(
    operator: Operator, values: Sequence[Any], needed: Sequence[bool], gradients: Sequence[torch.Tensor]
) -> tuple[Any, ...]:
    """Gradients by running the reference once more; they have a derivative if one is asked for."""
    again = torch.is_grad_enabled()

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor
        return tensor.view_as(tensor) if again else tensor.detach().requires_grad_()

    with torch.enable_grad(), _without_autocast():
        own = [
            tree_map_only(torch.Tensor, leaf, value) if need else value
            for value, need in zip(values, needed, strict=True)
        ]
        with _NoRandomNumbers(operator.name):
            outputs = _tensors(operator.reference(*own))
        pairs = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
        wanted = [value if need else None for value, need in zip(own, needed, strict=True)]
        leaves = [tensor for tensor in _tensors(wanted) if tensor.requires_grad]
        found = iter(
            torch.autograd.grad(
                [output for output, _ in pairs], leaves, [gradient for _, gradient in pairs],
                allow_unused=True, create_graph=again,
            )
        )  # fmt: skip
    return tuple(
        tree_map_only(torch.Tensor, lambda tensor: next(found) if tensor.requires_grad else None, value)
        for value in wanted
    )


class _NoRandomNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses ops that draw random numbers: run once more, they draw others than the kernel did."""

    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            raise RuntimeError(f"{self.name} has no backward: the op that it replaces draws random numbers")
        return func(*args, **(kwargs or {}))
