"""A reference function and its sizes: `ref.py` with `reference(**kwargs)`, and dims as JSON.

The arguments come from the first of these that there is:

1. `make_inputs(**dims)`, `setup(**dims)` or `get_inputs(**dims)` in the file: a dict of arguments, a list of them,
   or a dict whose `inputs` is such a dict.
2. `--kernel FILE.cu` with `extern "C" void solve(const float* A, …, float* C, int M, …)`: a flat buffer for each
   pointer, random where it is const and zero where it is written, and the dims for the integers.
3. Annotations of the parameters: `A: "float32[M, K]"`; other parameters are dims.

`reference` may return its result, or write to its arguments (`C[:] = …`), or both. `rtol` and `atol` of the file
become the tolerance in cgins.yaml.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import nearest
from pytest_cgins.packs import ops
from pytest_cgins.recording.importers.collect import Budget, Collector, check_size, on
from pytest_cgins.recording.importers.expressions import DTYPES
from pytest_cgins.recording.importers.files import parse_json, read_text
from pytest_cgins.recording.importers.references import References, module_name, require

MAKERS = ("make_inputs", "setup", "get_inputs")
_C_TYPES = {
    "float": torch.float32, "double": torch.float64, "unsigned char": torch.uint8, "char": torch.int8,
    "short": torch.int16, "int": torch.int32, "long": torch.int64, "half": torch.float16, "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
}  # fmt: skip
_SOLVE = re.compile(r'extern\s+"C"\s+\w+\s+solve\s*\((?P<parameters>[^()]*)\)')
# What is not closed reaches to the end, so that no text is gone through twice.
_COMMENT = re.compile(r"//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LONGEST_PARAMETER = 200
_PARAMETER = re.compile(r"(?P<type>[\w ]+?)\s*(?P<pointer>\*?)\s*(?:__restrict__\s*)?(?P<name>\w+)")
_SHAPE = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[\w\s,]*)\]")


def parse_dims(text: str) -> dict[str, int]:
    """Sizes by name.

    Raises:
        RecordError: if it is not a JSON object of integers.
    """
    dims = parse_json(text, "--dims")
    if not isinstance(dims, dict) or not all(type(size) is int for size in dims.values()):
        raise RecordError(
            f"--dims {text[:80]!r} is not an object of integers", remedy='write it like {"M": 64, "N": 32}'
        )
    return dims


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record one call of the reference."""
    source, dims = args.source, parse_dims(args.dims)
    references = References(args.references)
    entry = f"{source.stem} {json.dumps(dims)}"
    name = module_name("ref", source.absolute().parent.name if source.stem == "ref" else source.stem)
    with collector.leaving_out(entry):
        module = references.write(name, read_text(source), source.name)
        require(module, "reference")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            arguments = _arguments(module, dims, args.kernel, args.numel, args.max_mib)
        check_size(arguments, args.max_mib)
        positional, keyword = on(args.device, arguments)
        tolerance = _tolerance(module)
        op = references.op(name, "reference")
        call = collector.record(entry, op, lambda: ops.locate(op)(*positional, **keyword))
        if call.recorded and tolerance is not None:
            collector.report.tolerances[op] = tolerance


def _tolerance(module: ModuleType) -> tuple[float, float] | None:
    """(rtol, atol) of the file, if it has one of them."""
    given = [getattr(module, name, None) for name in ("rtol", "atol")]
    if given == [None, None]:
        return None
    if not all(
        value is None or (isinstance(value, int | float) and 0 <= value < math.inf) for value in given
    ):
        raise RecordError(
            f"rtol is {given[0]!r} and atol {given[1]!r}", remedy="they are numbers of at least 0"
        )
    return float(given[0] or 0), float(given[1] or 0)


def _arguments(
    module: ModuleType, dims: Mapping[str, int], kernel: Path | None, numel: int | None, max_mib: float
) -> tuple[list[Any], dict[str, Any]]:
    maker = next((getattr(module, name) for name in MAKERS if callable(getattr(module, name, None))), None)
    if maker is not None:
        return _made(module.reference, maker, dims)
    named = (
        _of_kernel(kernel, dims, numel, max_mib)
        if kernel is not None
        else _annotated(module.reference, dims, max_mib)
    )
    return [], _accepted(module.reference, named)


def _made(
    reference: Callable[..., Any], maker: Callable[..., Any], dims: Mapping[str, int]
) -> tuple[list[Any], dict[str, Any]]:
    made = maker(**_accepted(maker, dims))
    if isinstance(made, dict):
        inputs = made["inputs"] if isinstance(made.get("inputs"), dict) else made
        return [], _accepted(reference, {**dims, **inputs})
    if isinstance(made, list | tuple):
        return list(made), {}
    raise RecordError(
        f"{maker.__name__} returned {type(made).__name__}", remedy="return a dict or a list of arguments"
    )


def _accepted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a function has parameters for."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(values)
    return {parameter.name: values[parameter.name] for parameter in parameters if parameter.name in values}


def _of_kernel(kernel: Path, dims: Mapping[str, int], numel: int | None, max_mib: float) -> dict[str, Any]:
    """Arguments as the parameters of `solve` say."""
    match = _SOLVE.search(_COMMENT.sub(" ", read_text(kernel)))
    if match is None:
        raise RecordError(
            f'{kernel} has no extern "C" void solve(…)', remedy="name the kernel that ref.py belongs to"
        )
    greatest = sorted((abs(size) for size in dims.values()), reverse=True)[:2]
    count = numel if numel is not None else math.prod(greatest)
    values: dict[str, Any] = {}
    budget = Budget(max_mib)
    for text in filter(str.strip, match["parameters"].split(",")):
        short = " ".join(text.split())
        parameter = _PARAMETER.fullmatch(short) if len(short) <= _LONGEST_PARAMETER else None
        if parameter is None:
            raise RecordError(
                f"{kernel}: the parameter {short[:_LONGEST_PARAMETER]!r} of solve cannot be read"
            )
        words = [word for word in parameter["type"].split() if word != "const"]
        name, pointer = parameter["name"], bool(parameter["pointer"])
        if not pointer:
            values[name] = _dim(name, dims)
        elif " ".join(words) not in _C_TYPES:
            raise RecordError(f"{kernel}: {text.strip()!r} points to a type that no tensor has")
        else:
            dtype = _C_TYPES[" ".join(words)]
            budget.take(count * dtype.itemsize, name)
            random = "const" in parameter["type"].split()
            values[name] = _random((count,), dtype) if random else torch.zeros(count, dtype=dtype)
    return values


def _annotated(reference: Callable[..., Any], dims: Mapping[str, int], max_mib: float) -> dict[str, Any]:
    """Arguments as the annotations of `reference` say."""
    budget = Budget(max_mib)
    values: dict[str, Any] = {}
    for parameter in inspect.signature(reference).parameters.values():
        match = _SHAPE.fullmatch(str(parameter.annotation).strip("'\""))
        if match is not None:
            dtype = DTYPES.get(match["dtype"])
            if dtype is None:
                raise RecordError(f"{match['dtype']} is not a dtype", remedy=nearest(match["dtype"], DTYPES))
            sizes = [part.strip() for part in match["sizes"].split(",") if part.strip()]
            shape = tuple(int(part) if part.isdecimal() else _dim(part, dims) for part in sizes)
            budget.take(math.prod(shape) * dtype.itemsize, parameter.name)
            values[parameter.name] = _random(shape, dtype)
        elif parameter.name in dims:
            values[parameter.name] = dims[parameter.name]
    if not any(isinstance(value, torch.Tensor) for value in values.values()):
        raise RecordError(
            "nothing says what its tensors are",
            remedy=f"define {MAKERS[0]}(**dims), pass --kernel FILE.cu, or annotate parameters: "
            'A: "float32[M, K]"',
        )
    return values


def _dim(name: str, dims: Mapping[str, int]) -> int:
    if name not in dims:
        raise RecordError(f"--dims has no {name}", remedy=nearest(name, dims) or f"add {name}")
    return dims[name]


def _random(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.float32).to(dtype)
    high = 2 if dtype is torch.bool else 100
    return torch.randint(0, high, shape, dtype=dtype)
