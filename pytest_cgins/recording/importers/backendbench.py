"""Operator traces of BackendBench: `Operator: aten.add.Tensor`, then `cnt: 3, ((T([5, 5], f32), …), {})`.

A tensor is `T(shape, dtype[, stride[, device]])`. The same calls as JSON or JSON lines of `op_name`, `args`,
`count` are read as well. Texts are parsed, never evaluated.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core.dtypes import SHORT, extent
from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.packs import backward
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.recording.importers.collect import Budget, Collector, check_result, check_size, on
from pytest_cgins.recording.importers.expressions import DTYPES, parse
from pytest_cgins.recording.importers.files import numbered_lines, objects, parse_json, read_json

ABBREVIATIONS = {short: getattr(torch, name) for name, short in SHORT.items() if hasattr(torch, name)}
FUNCTIONAL: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Functions of torch with the arguments of an ATen overload, in its order."""

_OPERATOR = re.compile(r"Operator: (?P<op>\S+)\s*")
_COUNT = re.compile(r"cnt: (?P<count>[0-9]{1,18}), (?P<args>.*)", re.DOTALL)
_OP = re.compile(r"aten\.\w+(\.\w+)?", re.ASCII)
_LOW, _HIGH = -9, 10
"""Integers that are no index, as `torch.testing.make_tensor` draws them."""
_MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line of the source."""

    op: str
    """`aten.add.Tensor`."""
    args: str
    """`((…), {…})`."""
    count: int
    """How often it was met; 0 for a made-up call."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record every call of the source on inputs drawn for it: on the CPU first, wherever it is recorded."""
    for recorded in _lines(args.source, collector):
        if args.only not in recorded.op:
            continue
        entry = f"{recorded.op} {recorded.args}"
        with collector.leaving_out(entry):
            op, positional, keyword = _call(recorded, args.max_mib, functional=args.functional)
            check_result(op, positional, keyword, args.max_mib)
            # Before the trial, which may change them.
            moved = on(args.device, (positional, keyword))
            if args.device != "cpu":
                # An index out of bounds is an error on the CPU; on a GPU it ends the whole process.
                backward.resolve(op)(*positional, **keyword)
            call = partial(backward.resolve(op), *moved[0], **moved[1])
            collector.record(entry, op, call, max(1, recorded.count))


def _lines(source: Path, collector: Collector) -> Iterator[Recorded]:
    if source.suffix == ".parquet":
        raise RecordError(
            f"{source} is a parquet file, which needs a library that this tool does not",
            remedy="write it as JSON lines: pandas.read_parquet(…).to_json('ops.jsonl', orient='records', lines=True)",
        )
    if source.suffix in (".json", ".jsonl"):
        value = (
            read_json(source)
            if source.suffix == ".json"
            else [parse_json(line, f"{source}:{number}") for number, line in numbered_lines(source)]
        )
        for item in objects(value, source, "the calls"):
            yield Recorded(str(item.get("op_name")), str(item.get("args")), _count(item.get("count"), source))
        return
    op = ""
    found = False
    for number, line in numbered_lines(source):
        if match := _OPERATOR.fullmatch(line):
            op = match["op"]
        elif match := _COUNT.fullmatch(line):
            found = True
            if not op:
                raise RecordError(
                    f"{source}:{number}: a call before the first «Operator: …»", remedy="check the file"
                )
            yield Recorded(op, match["args"].strip(), int(match["count"]))
        else:
            # What follows is not of the operator before.
            op = line.strip() if line.lstrip().startswith("Operator") else op
            collector.leave_out(f"{source.name}:{number}", f"{line[:80]!r} is neither an operator nor a call")
    if not found:
        raise RecordError(
            f"{source} has no line «cnt: N, ((…), {{…}})»", remedy="name an operator trace of BackendBench"
        )


def _count(value: Any, source: Path) -> int:
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(
            f"{source}: {str(value)[:80]!r} is not a count", remedy="write a whole number"
        ) from error


def _call(
    recorded: Recorded, max_mib: float, *, functional: bool
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    if not _OP.fullmatch(recorded.op):
        raise RecordError(f"{recorded.op[:80]!r} is not an ATen op", remedy="only aten ops are imported")
    # Older torch versions called this overload so.
    named = "aten.sum.dim_IntList" if recorded.op == "aten.sum.SymInt" else recorded.op
    overload = named if named.count(".") == 2 else f"{named}.default"
    op = FUNCTIONAL.get(overload, "") if functional else ""
    op = op or f"torch.ops.{overload}"
    try:
        backward.resolve(op)
    except TraceError as error:
        raise RecordError(error.what, remedy=error.remedy) from error
    seed = seed_of(recorded.op, recorded.args)
    reader = _Reader(torch.Generator().manual_seed(seed % 2**63), max_mib)
    args, kwargs = reader.call(recorded.args)
    check_size((args, kwargs), max_mib)
    reader.draw(overload.split(".")[1], args)
    return op, args, kwargs


class _Reader:
    """Turns the text of one call into its arguments; integers get values when all shapes are known."""

    def __init__(self, generator: torch.Generator, max_mib: float) -> None:
        self._generator = generator
        self._budget = Budget(max_mib)
        self._integers: list[torch.Tensor] = []

    def call(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        value = self._value(parse(text))
        match value:
            case (tuple() as args, dict() as kwargs):
                return args, kwargs
        raise RecordError(f"{text[:80]!r} is not ((arguments), {{keywords}})")

    def draw(self, op: str, args: tuple[Any, ...]) -> None:
        """Fill the integer tensors: indices within the bounds of what they index."""
        bound = _index_bound(op, args)
        for tensor in self._integers:
            low, high = (0, bound) if bound else (_LOW, _HIGH)
            low = max(low, 0) if tensor.dtype is torch.uint8 else low
            drawn = torch.randint(low, high, _extent(tensor), generator=self._generator, dtype=tensor.dtype)
            tensor.as_strided((drawn.numel(),), (1,)).copy_(drawn)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return _unquoted(node.value)
        if isinstance(node, ast.Tuple):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.List):
            return [self._value(item) for item in node.elts]
        if isinstance(node, ast.Dict):
            return self._dict(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand)
            if isinstance(value, int | float):
                return -value
        if isinstance(node, ast.Name) and node.id in _NAMES:
            return _NAMES[node.id]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return _torch_constant(node)
        if isinstance(node, ast.Call):
            return self._made(node)
        raise _refused(node)

    def _dict(self, node: ast.Dict) -> dict[str, Any]:
        keys = [self._value(key) if key is not None else None for key in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise _refused(node)
        return {str(key): self._value(value) for key, value in zip(keys, node.values, strict=True)}

    def _made(self, node: ast.Call) -> Any:
        args = [self._value(arg) for arg in node.args]
        args += [self._value(keyword.value) for keyword in node.keywords]
        called = ast.unparse(node.func)
        if called in ("device", "torch.device", "th.device"):
            return torch.device("cpu")
        if called != "T" or not 2 <= len(args) <= 4 or not isinstance(args[1], torch.dtype):
            raise _refused(node)
        return self._tensor(args[0], args[1], args[2] if len(args) > 2 else None)

    def _tensor(self, shape: Any, dtype: torch.dtype, stride: Any) -> torch.Tensor:
        sizes, steps = _sizes(shape), None if stride is None else _sizes(stride)
        count = math.prod(sizes) if steps is None else extent(sizes, steps)
        self._budget.take(count * dtype.itemsize, "a tensor")
        flat = torch.empty(count, dtype=dtype)
        if dtype.is_floating_point or dtype.is_complex:
            flat = torch.randn(count, generator=self._generator).to(dtype)
        elif dtype is torch.bool:
            flat = torch.randint(0, 2, (count,), generator=self._generator, dtype=torch.bool)
        tensor = flat.view(sizes) if steps is None else flat.as_strided(sizes, steps)
        if not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool):
            self._integers.append(tensor)
        return tensor


_NAMES: dict[str, Any] = {**ABBREVIATIONS, "inf": float("inf"), "nan": float("nan")}


def _unquoted(value: object) -> Any:
    """A constant; dtypes and devices stand in quotes in some files."""
    if not isinstance(value, str):
        return value
    if value in ABBREVIATIONS:
        return ABBREVIATIONS[value]
    if value.startswith(("torch.device(", "cuda")) or value == "cpu":
        return torch.device("cpu")
    return value


def _torch_constant(node: ast.Attribute) -> Any:
    assert isinstance(node.value, ast.Name)
    if node.value.id in ("torch", "th"):
        if node.attr in DTYPES:
            return DTYPES[node.attr]
        if node.attr in ("strided", "contiguous_format", "preserve_format", "channels_last"):
            return getattr(torch, node.attr)
    raise _refused(node)


def _sizes(value: Any) -> tuple[int, ...]:
    good = isinstance(value, list | tuple) and len(value) <= _MAX_DIMENSIONS
    if not good or not all(type(size) is int and 0 <= size < 2**40 for size in value):
        raise RecordError(f"{str(value)[:80]} are not sizes of a tensor")
    return tuple(value)


def _extent(tensor: torch.Tensor) -> tuple[int]:
    return (tensor.untyped_storage().nbytes() // tensor.element_size(),)


def _refused(node: ast.AST) -> RecordError:
    return RecordError(f"{ast.unparse(node)[:80]!r} is not on the allow-list of an operator trace")


def _size(tensor: Any, dim: Any) -> int:
    return int(tensor.shape[dim]) if isinstance(tensor, torch.Tensor) and tensor.ndim else 0


def _smallest(tensor: Any) -> int:
    return min(tensor.shape, default=0) if isinstance(tensor, torch.Tensor) else 0


_BOUNDS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    **dict.fromkeys(("embedding", "_embedding_bag", "embedding_bag"), lambda args: _size(args[0], 0)),
    "embedding_dense_backward": lambda args: int(args[2]),
    **dict.fromkeys(
        ("index", "index_put", "_unsafe_index", "_unsafe_index_put"), lambda args: _smallest(args[0])
    ),
    **dict.fromkeys(
        [
            "index_select",
            "index_add",
            "index_copy",
            "index_fill",
            "gather",
            "scatter",
            "scatter_add",
            "scatter_reduce",
        ],
        lambda args: _size(args[0], args[1]),
    ),
    **dict.fromkeys(("take", "bincount"), lambda args: args[0].numel()),
    "nll_loss_forward": lambda args: _size(args[0], 1 if args[0].ndim > 1 else 0),
    "nll_loss_backward": lambda args: _size(args[1], 1 if args[1].ndim > 1 else 0),
    "nll_loss2d_forward": lambda args: _size(args[0], 1),
    "nll_loss2d_backward": lambda args: _size(args[1], 1),
    "max_pool2d_with_indices_backward": lambda args: _size(args[1], -1) * _size(args[1], -2),
    "max_unpool2d": lambda args: int(args[2][0]) * int(args[2][1]),
    "one_hot": lambda args: int(args[1]) if len(args) > 1 else 10,
}
"""How many values an index of the op may have, by the op's name."""


def _index_bound(op: str, args: tuple[Any, ...]) -> int:
    find = _BOUNDS.get(op) or _BOUNDS.get(op.removesuffix("_"))
    try:
        return find(args) if find is not None else 0
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"the arguments are not those of aten.{op}: {error}") from error
