"""Trace sets of flashinfer-bench: `definitions/**/*.json` and `workloads/**/*.jsonl`.

A definition's reference is Python code with `run`; it is copied under the project, and the op is that function.
Inputs are random, a scalar, or a tensor of a safetensors file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.expression import amount, parse
from pytest_cgins.core.text import counted
from pytest_cgins.packs import ops
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.recording.importers.collect import Budget, Collector, check_size, on
from pytest_cgins.recording.importers.files import (
    numbered_lines,
    objects,
    parse_json,
    read_json,
    required,
    text_of,
)
from pytest_cgins.recording.importers.references import References, module_name, require

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8", "bool",
    )
}  # fmt: skip
"""What the format knows of those that torch can compute with."""
_LFS = b"version https://git-lfs"
_INTEGERS = 1024
"""Random integers are within ± this, as the format's own benchmark draws them; int8 has its whole range."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record a call for every workload.

    Raises:
        RecordError: if there is no definition.
    """
    source, references = args.source, References(args.references)
    files = sorted((source / "definitions").rglob("*.json"))
    required(files, source, "definitions/**/*.json", "name the root of a flashinfer-bench trace set")
    workloads: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((source / "workloads").rglob("*.jsonl")):
        for name, workload in _workloads(path, collector):
            workloads.setdefault(name, []).append(workload)
    for path in files:
        with collector.leaving_out(path.stem):
            definition = read_json(path)
            name = text_of(definition, "name")
            with collector.leaving_out(name):
                module = module_name("fib", name)
                code = text_of(definition, "reference")
                require(references.write(module, code, path.name), "run")
                if name not in workloads:
                    raise RecordError("no workload is for it")
                for workload in workloads.pop(name):
                    take(args, collector, definition, workload, references.op(module, "run"))
    for name, left in workloads.items():
        collector.leave_out(name, f"{counted(len(left), 'workload')} without a definition")


def _workloads(path: Path, collector: Collector) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in numbered_lines(path):
        with collector.leaving_out(f"{path.name}:{number}"):
            (document,) = objects([parse_json(line, f"{path}:{number}")], path, "the lines")
            (workload,) = objects([document.get("workload")], f"{path}:{number}", "workload")
            yield text_of(document, "definition"), workload


def take(
    args: argparse.Namespace,
    collector: Collector,
    definition: dict[str, Any],
    workload: dict[str, Any],
    op: str,
    *,
    builder: Callable[..., InputBuilder] | None = None,
) -> None:
    """Record the call of one workload, on inputs that `builder` makes."""
    entry = f"{definition['name']} {workload.get('uuid', '')}".strip()
    with collector.leaving_out(entry):
        try:
            maker = (builder or InputBuilder)(args.source, definition, workload, args.max_mib)
            inputs = [maker.make(name, spec) for name, spec in definition["inputs"].items()]
        except (KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"definition and workload do not fit: {type(error).__name__}: {error}"
            ) from error
        check_size(inputs, args.max_mib)
        moved = on(args.device, inputs)
        collector.record(entry, op, lambda: ops.locate(op)(*moved))


class InputBuilder:
    """Makes the inputs of one workload."""

    dtypes: ClassVar[dict[str, torch.dtype]] = DTYPES
    """Those that the format may name."""

    def __init__(
        self, root: Path, definition: dict[str, Any], workload: dict[str, Any], max_mib: float
    ) -> None:
        self.root = root
        self.definition = definition
        self.workload = workload
        self._budget = Budget(max_mib)

    def make(self, name: str, spec: dict[str, Any]) -> Any:
        """The input of a name, as the definition and the workload describe it.

        Raises:
            RecordError: it cannot be made.
        """
        given = self.workload.get("inputs", {}).get(name, {"type": "random"})
        dtype = self.dtypes.get(spec["dtype"])
        if dtype is None:
            raise RecordError(f"input {name}: {spec['dtype']} is not a dtype that torch can compute with")
        if given["type"] == "scalar":
            return given["value"]
        shape = None if spec["shape"] is None else tuple(self.size(axis) for axis in spec["shape"])
        if given["type"] == "safetensors":
            return self._stored(name, given, shape, dtype)
        if given["type"] != "random":
            raise RecordError(f"input {name} is of type {given['type']!r}, which is not known")
        return self.random(name, shape, dtype)

    def size(self, axis: str) -> int:
        """Of an axis in this workload.

        Raises:
            RecordError: it has none.
        """
        axes = self.definition["axes"]
        spec = axes[axis]
        size = spec["value"] if spec["type"] == "const" else self.workload["axes"].get(axis)
        if spec["type"] == "expr":
            expression = parse(spec["expression"])
            size = amount(expression, {name: self.size(name) for name in expression.names & axes.keys()})
        if type(size) is not int or size < 0:
            raise RecordError(f"axis {axis} has no size in this workload")
        return size

    def random(self, name: str, shape: tuple[int, ...] | None, dtype: torch.dtype) -> Any:
        """Random numbers, the same in each import."""
        self._budget.take(math.prod(shape or ()) * dtype.itemsize, f"input {name}")
        seed = seed_of(self.definition["name"], self.workload.get("uuid", ""), name)
        generator = torch.Generator().manual_seed(seed)
        if dtype is torch.bool:
            made = torch.randint(0, 2, shape or (), generator=generator, dtype=torch.bool)
        elif dtype.is_floating_point:
            made = torch.randn(shape or (), generator=generator)
            made = (made.clamp(-2, 2) if dtype.itemsize == 1 else made).to(dtype)
        else:
            high = 128 if dtype is torch.int8 else _INTEGERS
            made = torch.randint(-high, high, shape or (), generator=generator, dtype=dtype)
        if self.definition.get("op_type") == "sampling" and name == "probs":
            made = torch.softmax(made, dim=-1)
        return made.item() if shape is None else made

    def locate(self, path: Path) -> Path:
        """The file that a workload names."""
        return self.root / path

    def _stored(
        self, name: str, given: dict[str, Any], shape: tuple[int, ...] | None, dtype: torch.dtype
    ) -> torch.Tensor:
        path = self.locate(Path(given["path"])).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise RecordError(f"input {name}: {given['path']} is outside of {self.root}")
        if not path.is_file():
            raise RecordError(f"input {name}: {given['path']} is not there")
        with path.open("rb") as file:
            if file.read(len(_LFS)) == _LFS:
                raise RecordError(f"input {name}: {given['path']} is a Git LFS pointer; run git lfs pull")
        try:
            with safe_open(path, framework="pt") as tensors:
                found = tuple(tensors.get_slice(given["tensor_key"]).get_shape())
                self._budget.take(math.prod(found) * dtype.itemsize, f"input {name}")
                tensor: torch.Tensor = tensors.get_tensor(given["tensor_key"])
        except SafetensorError as error:
            raise RecordError(f"input {name}: {given['path']}: {error}") from error
        if tuple(tensor.shape) != (shape or ()) or tensor.dtype != dtype:
            raise RecordError(
                f"input {name}: {given['path']} has {tensor.dtype} {list(tensor.shape)}, the definition says "
                f"{dtype} {list(shape or ())}"
            )
        return tensor
