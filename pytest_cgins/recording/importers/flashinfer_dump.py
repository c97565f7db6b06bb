"""What flashinfer writes under `FLASHINFER_TRACE_DUMP=1`: a JSON file for each op and its constant sizes.

A file has flashinfer-bench's definition with no workload: sizes that vary are not in it. Many have the code of a
function that makes inputs (`init`); most have the reference (`reference`), under a name of its own.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

from pytest_cgins.core import syntax
from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs import ops
from pytest_cgins.recording.importers.collect import Collector, check_size, on
from pytest_cgins.recording.importers.files import read_json, required, text_of
from pytest_cgins.recording.importers.flashinfer import InputBuilder
from pytest_cgins.recording.importers.references import References, module_name

_HEADS = ("head_dim", "head_size")
_SIZES = (16, 7)
"""Of an axis that varies, in one call each, unless `--axis` says."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record calls of the reference of every definition.

    Raises:
        RecordError: if there is none.
    """
    source, references = args.source, References(args.references)
    files = [source] if source.is_file() else sorted(source.rglob("*.json"))
    given = dict(_axis(text) for text in args.axes)
    for path in required(files, source, "*.json", "name the folder that FLASHINFER_TRACE_DUMP_DIR named"):
        with collector.leaving_out(path.stem):
            definition = _Definition(read_json(path), references, path.name, given)
            for size in _SIZES if definition.varies else _SIZES[:1]:
                entry = f"{path.stem} {size}" if definition.varies else path.stem
                with collector.leaving_out(entry):
                    arguments = on(args.device, definition.arguments(size, args.device, args.max_mib))
                    collector.record(entry, definition.op, lambda: ops.locate(definition.op)(**arguments))  # noqa: B023 - it is called at once


def _axis(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not size.isdecimal():
        raise RecordError(f"--axis {text} is not NAME=SIZE", remedy="write e.g. --axis batch_size=32")
    return name, int(size)


class _Definition:
    """One file, its code copied to the project."""

    def __init__(self, document: Any, references: References, origin: str, given: dict[str, int]) -> None:
        module = module_name("fid", text_of(document, "name"))
        if not document.get("reference"):
            raise RecordError("flashinfer has no reference for it")
        self._document = document
        self._axes: dict[str, dict[str, Any]] = document["axes"]
        self._reference = _write(references, module, text_of(document, "reference"), origin, "reference")
        self._init = None
        if document.get("init"):
            self._init = _write(references, f"{module}_init", text_of(document, "init"), origin, "init")
        self.op = references.op(module, "run")
        known = {name: axis["value"] for name, axis in self._axes.items() if "value" in axis}
        self._sizes = {**known, **{name: size for name, size in given.items() if name in self._axes}}
        needed = list(self._axes) if self._init is None else _required(self._init)
        self._free = [name for name in needed if name not in self._sizes and name != "device"]
        self.varies = bool(self._free)
        """Whether the size of some axis is to be chosen."""

    def arguments(self, size: int, device: str, max_mib: float) -> dict[str, Any]:
        """What the reference is called with.

        Raises:
            RecordError: something that it needs is not made, or is too big.
        """
        sizes = {**self._sizes, **dict.fromkeys(self._free, size)}
        inputs = self._drawn(sizes, max_mib) if self._init is None else self._initial(sizes, device, max_mib)
        wanted = inspect.signature(self._reference).parameters
        taken = {name: inputs[name] for name in wanted if name in inputs}
        # What the reference calls otherwise than flashinfer's function does has the form that the definition says.
        others = [part for name, value in inputs.items() if name not in taken for part in _parts(value)]
        for name in _required(self._reference):
            if name in taken:
                continue
            spec = self._document["inputs"].get(name)
            fitting = [other for other in others if spec and self._fits(other, spec)]
            if name.endswith("scale") and (head := next((axis for axis in _HEADS if axis in sizes), "")):
                fitting.append(sizes[head] ** -0.5)  # as flashinfer does where none is passed
            if not fitting:
                raise RecordError(f"nothing makes {name}, which the reference takes")
            taken[name] = fitting[0]
            others = [other for other in others if other is not fitting[0]]
        return taken

    def _fits(self, value: Any, spec: dict[str, Any]) -> bool:
        shape = spec["shape"]
        if not isinstance(value, torch.Tensor) or shape is None or value.ndim != len(shape):
            return False
        sizes = [self._axes[axis].get("value") for axis in shape]
        return spec["dtype"] in ("unknown", str(value.dtype).removeprefix("torch.")) and all(
            size in (None, own) for size, own in zip(sizes, value.shape, strict=True)
        )

    def _drawn(self, sizes: dict[str, int], max_mib: float) -> dict[str, Any]:
        axes = {name: {"type": "var"} for name in self._axes}
        builder = InputBuilder(Path(), {**self._document, "axes": axes}, {"axes": sizes}, max_mib)
        inputs = {name: spec for name, spec in self._document["inputs"].items() if not spec.get("optional")}
        return {name: builder.make(name, spec) for name, spec in inputs.items()}

    def _initial(self, sizes: dict[str, int], device: str, max_mib: float) -> dict[str, Any]:
        assert self._init is not None
        parameters = inspect.signature(self._init).parameters
        given = {name: size for name, size in sizes.items() if name in parameters}
        with torch.random.fork_rng():
            with (
                suppress(
                    UnsupportedFakeTensorException, DynamicOutputShapeException, DataDependentOutputException
                ),
                FakeTensorMode(),
            ):
                check_size(self._init(**given, device="cpu"), max_mib)  # before it takes memory
            inputs = self._init(**given, device=device)
        check_size(inputs, max_mib)
        # Those of wrappers are for two calls, `plan` and `run`.
        return {**inputs["plan"], **inputs["run"]} if set(inputs) == {"plan", "run"} else inputs


def _required(function: Callable[..., Any]) -> list[str]:
    """The parameters that a call must give."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind not in variable
    ]


def _parts(value: Any) -> list[Any]:
    return [part for item in value for part in _parts(item)] if isinstance(value, list | tuple) else [value]


def _write(references: References, module: str, code: str, origin: str, kind: str) -> Callable[..., Any]:
    """The function of a kind in code that is copied to a module of the project."""
    functions = [node.name for node in syntax.module(code).body if isinstance(node, ast.FunctionDef)]
    if not functions or not functions[-1].endswith(f"_{kind}"):
        raise RecordError(f"its {kind} does not end with a function NAME_{kind}")
    written = references.write(module, f"{code.rstrip()}\n\n\nrun = {functions[-1]}\n", origin)
    function: Callable[..., Any] = vars(written)["run"]
    return function
