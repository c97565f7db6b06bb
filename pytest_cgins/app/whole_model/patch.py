"""`pytest_cgins.patch`: the kernels of a `cgins.yaml` in a program of one's own.

Eager calls are seen by a function mode that is on while the model runs. torch.compile does not see modes: in a graph that
it has traced, calls of ops are replaced by one operator that is registered with torch, `cgins::swapped`, behind which
the same `Swap` answers. A kernel that has no contract for a call leaves it to torch, and is counted.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from pytest_cgins import config as configuration
from pytest_cgins.app.whole_model.swap import Swap
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.core.device import DEVICES, device_of, usable_device
from pytest_cgins.core.options import BARE_VARIABLE
from pytest_cgins.core.text import counted
from pytest_cgins.recording.intercept import Interceptor, marked

Graph = Callable[..., Any]
_TENSOR = object()


@dataclass(frozen=True, slots=True)
class SwapCounts:
    """What became of the calls of one op."""

    kernel: str
    """`NAME/IMPLEMENTATION`, as in cgins.yaml."""
    hits: int
    """Calls that the kernel answered."""
    fallbacks: dict[str, int]
    """Calls that torch answered, by the reason."""
    errors: int
    """Of the fallbacks: calls in which the kernel failed."""


class Patch:
    """Kernels in the place of ops, until `remove`; as a context manager, until its end.

    With a model they are used while it runs; without one, in the thread and the block of the `with` statement. Calls that
    ask for gradients are torch's.
    """

    def __init__(
        self, model: torch.nn.Module | None, swap: Swap, labels: dict[str, str], left_out: Sequence[str]
    ) -> None:
        self.model = model
        """What is patched; None for a block."""
        self.left_out = tuple(left_out)
        """Kernels that are not there, and why."""
        self._swap = swap
        self._labels = labels
        self._stack = ExitStack()
        self._chosen = self._stack.enter_context(marked(list(labels)))
        if model is not None:
            self._put_into(model)

    def __enter__(self) -> Patch:
        if self.model is None:
            self._stack.enter_context(self._mode())
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Leave the ops to torch again."""
        self._stack.close()

    def counts(self) -> dict[str, SwapCounts]:
        """What became of calls since the patch, by qualified name of the op. Replays of a CUDA graph count none."""
        return {
            op: SwapCounts(self._labels[op], tally.swapped, dict(tally.left), tally.failed)
            for op, tally in self._swap.tallies.items()
        }

    def __str__(self) -> str:
        """A line for each op that was called, and each kernel that is left out."""
        lines = [
            f"{op}: {count.kernel} answered {counted(count.hits, 'call')}, torch {sum(count.fallbacks.values())}"
            + "".join(f"; {number} × {why}" for why, number in count.fallbacks.items())
            for op, count in self.counts().items()
            if count.hits or count.fallbacks
        ]
        return "\n".join([*lines, *self.left_out])

    def backend(self, graph: torch.fx.GraphModule, examples: list[Any]) -> Graph:
        """A backend for torch.compile: torch's own, after calls of ops were replaced in the graph.

        Ops that are functions of the project's are not found: torch.compile traces into them.

        Args:
            graph: as torch.compile traced it.
            examples: inputs.
        """
        for node in list(graph.graph.nodes):
            if (func := self._op_of(node)) is not None:
                self._replace(graph.graph, node, func)
        graph.graph.lint()
        graph.recompile()
        inductor: Any = torch._dynamo.lookup_backend("inductor")
        return cast("Graph", inductor(graph, examples))

    def _mode(self) -> Interceptor:
        return Interceptor(self._chosen, self._swap, marked=False)

    def _put_into(self, model: torch.nn.Module) -> None:
        own = model.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return own(*args, **kwargs)
            with self._mode():
                return own(*args, **kwargs)

        before = vars(model).get("forward")
        model.forward = forward

        def put_back() -> None:
            if before is None:
                vars(model).pop("forward", None)
            else:
                model.forward = before

        self._stack.callback(put_back)

    def _op_of(self, node: torch.fx.Node) -> Callable[..., Any] | None:
        """The op with a kernel that a node calls."""
        func: Any = node.target
        if node.op == "call_method":
            func = getattr(torch.Tensor, str(func), None)
        elif node.op != "call_function":
            return None
        return func if func in self._chosen else None

    def _replace(self, graph: torch.fx.Graph, node: torch.fx.Node, func: Callable[..., Any]) -> None:
        """Have a node's call answered by `cgins::swapped`, if its arguments and results are tensors and constants.

        Calls that write to an argument, or give a view of one, stay as they are.
        """
        leaves, spec = tree_flatten((node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, slice))
        sources = [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]
        given: list[Any] = [source.meta.get("example_value") for source in sources]
        result = node.meta.get("example_value")
        is_one = isinstance(result, torch.Tensor)
        results: list[Any] = [result] if is_one else list(result) if isinstance(result, tuple | list) else []
        if not (results and all(isinstance(tensor, torch.Tensor) for tensor in (*given, *results))):
            return
        wants_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
        if wants_gradients or not _memory_of(given).isdisjoint(_memory_of(results)):
            return
        constants = [_TENSOR if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
        _SITES.append(_Site(self._swap, func, constants, spec))
        with graph.inserting_before(node):
            answers = graph.call_function(torch.ops.cgins.swapped.default, (sources, len(_SITES) - 1))
            answer = graph.call_function(operator.getitem, (answers, 0)) if is_one else answers
        node.replace_all_uses_with(answer)
        graph.erase_node(node)


@dataclass(frozen=True, slots=True)
class _Site:
    """A call of an op in a graph."""

    swap: Swap
    """Of the patch, which answers and counts."""
    func: Callable[..., Any]
    """The op."""
    constants: list[Any]
    """Leaves of its arguments that are no tensors; `_TENSOR` where one is."""
    spec: TreeSpec
    """How the leaves make its arguments."""

    def answer(self, tensors: Sequence[torch.Tensor], answered_by: Callable[..., Any]) -> list[torch.Tensor]:
        """Tensors of the result, none of which lies on an argument: an operator must not give one of those."""
        given = iter(tensors)
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self.constants]
        args, kwargs = tree_unflatten(leaves, self.spec)
        results = tree_leaves(answered_by(self.func, args, kwargs))
        taken = _memory_of(tensors)
        return [result if taken.isdisjoint(_memory_of([result])) else result.clone() for result in results]


def _memory_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {tensor.untyped_storage()._cdata for tensor in tensors}


_SITES: list[_Site] = []
"""Calls in graphs that were compiled in this process, by the number that is their operator's argument."""


@torch.library.custom_op("cgins::swapped", mutates_args=())
def _swapped(tensors: list[torch.Tensor], site: int) -> list[torch.Tensor]:
    return _SITES[site].answer(tensors, _SITES[site].swap)


@_swapped.register_fake
def _(tensors: list[torch.Tensor], site: int) -> list[torch.Tensor]:
    return _SITES[site].answer(tensors, lambda func, args, kwargs: func(*args, **kwargs))


def patch(
    model: torch.nn.Module | None = None,
    config: str | Path = "cgins.yaml",
    *,
    kernels: Sequence[str] = (),
    device: str = "",
) -> Patch:
    """Put kernels in the place of the ops that a model calls.

    Kernels are built if need be, and run in this process with its rights: gate them with `pytest --cgins` first. For
    `torch.compile` pass the patch's backend, `torch.compile(model, backend=patched.backend)`.

    Args:
        model: patched in place, until `remove`; None for a block, `with pytest_cgins.patch(config=…):`.
        config: path of the `cgins.yaml`.
        kernels: `NAME` or `NAME/IMPLEMENTATION`; by default the first implementation of each kernel for the device.
        device: `cpu` or `cuda`; by default that of the model, or of the machine.

    Returns:
        The patch, which counts.

    Raises:
        ConfigError: the file is wrong, or has no such kernel for the device.
        CginsError: a kernel that was named cannot be built or loaded; others are left out, and told.
    """
    # Launchers ask for it as they are imported: outputs are a user's, without guards and poison.
    before = os.environ.get(BARE_VARIABLE, "")
    os.environ[BARE_VARIABLE] = "1"
    from pytest_cgins.app.whole_model.kernels import load_kernels

    os.environ[BARE_VARIABLE] = before
    parameter = next(model.parameters(), None) if model is not None else None
    place = device or (str(parameter.device) if parameter is not None else usable_device(DEVICES))
    device = place.partition(":")[0]
    loaded_config = configuration.load(Path(config), require_traces=False)
    import_from(str(loaded_config.root))
    loaded, left_out = load_kernels(loaded_config, kernels, device)
    kernels_by_op = {op: one.kernel for op, one in loaded.items()}
    swap = Swap(kernels_by_op, device_of(place).case_name, learns=True)
    swap.learning = False
    return Patch(model, swap, {op: one.label for op, one in loaded.items()}, left_out)
