"""Problems of KernelBench: a Python file with `Model`, `get_inputs()` and `get_init_inputs()`.

The file is copied under the project, and the op is the module class in the copy.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.recording.importers.collect import Collector, check_size, on, tensors_in
from pytest_cgins.recording.importers.files import read_text, required
from pytest_cgins.recording.importers.references import References, constants, module_name, override, require

SEED = 42
_PROBLEM = re.compile(r"(?P<number>\d+)_(?P<title>.+)\.py")
_MIB = 2**20
_LEAST = 8
"""Sizes below this are left alone by `--shrink`, but for the batch."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record one call of each problem's model, of a file or of those in a folder, at any depth.

    Raises:
        RecordError: if there is no problem.
    """
    source, overrides = args.source, dict(map(_override, args.overrides))
    references = References(args.references)
    files = [source] if source.is_file() else sorted(source.rglob("*.py"), key=_order)
    files = [path for path in files if path == source or _PROBLEM.fullmatch(path.name)]
    required(files, source, "KernelBench problem", "name a file such as 19_ReLU.py, or its folder")
    for path in files:
        with collector.leaving_out(path.stem):
            code, note = _sized(read_text(path), path, overrides, args.max_mib, shrink=args.shrink)
            _take(path, code, collector, references, max_mib=args.max_mib, device=args.device)
            if note:
                collector.report.note(f"{path.stem}: {note}")


def problem_name(path: Path) -> str:
    """Name of the module that a problem is copied to: `kb_l1_001_square_matrix_multiplication`."""
    match = _PROBLEM.fullmatch(path.name)
    level = re.fullmatch(r"level_?(\d+)", path.parent.name)
    parts = ["kb", *([f"l{level[1]}"] if level else [])]
    if match is None:
        return module_name(*parts, path.stem)
    return module_name(*parts, f"{int(match['number']):03d}", match["title"])


def _order(path: Path) -> tuple[str, int, str]:
    match = _PROBLEM.fullmatch(path.name)
    return str(path.parent), int(match["number"]) if match else 0, path.name


def _sized(
    code: str, path: Path, overrides: Mapping[str, object], max_mib: float, *, shrink: bool
) -> tuple[str, str]:
    """The code with the sizes that were asked for, and what `--shrink` made of them."""
    code = override(code, overrides, path.name) if overrides else code
    reduced = shrunk(code, max_mib) if shrink else {}
    if not reduced:
        return code, ""
    shown = ", ".join(f"{name}={value}" for name, value in reduced.items())
    return override(code, reduced, path.name), f"sizes reduced to fit {max_mib:g} MiB: {shown}"


def _take(
    path: Path, code: str, collector: Collector, references: References, *, max_mib: float, device: str
) -> None:
    name = problem_name(path)
    module = references.write(name, code, path.name)
    require(module, "Model", "get_inputs", "get_init_inputs")
    planned = _planned_bytes(vars(module))
    if planned is not None and planned > max_mib * _MIB:
        raise RecordError(
            f"its tensors have {planned / _MIB:.0f} MiB, more than the {max_mib:g} MiB of --max-mib",
            remedy="raise --max-mib, or make it smaller with --set batch_size=… or --shrink",
        )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = module.Model(*module.get_init_inputs()).to(device)
        inputs = on(device, list(module.get_inputs()))
    check_size([model, inputs], max_mib)
    collector.record(path.stem, references.op(name, "Model"), lambda: model(*inputs))


def _planned_bytes(scope: Mapping[str, Any]) -> int | None:
    """Bytes of inputs, parameters and outputs, found without allocating any; None if torch cannot say.

    Raises:
        RecordError: if the model does not take the inputs.
    """
    try:
        with torch.no_grad(), torch.device("meta"):
            model, inputs = scope["Model"](*scope["get_init_inputs"]()), scope["get_inputs"]()
            held = [*tensors_in(model), *tensors_in(inputs)]
            output = model(*inputs)
    except NotImplementedError:
        return None
    except Exception as error:
        if "meta tensor" in str(error):  # it asks a tensor for its numbers
            return None
        raise RecordError(f"the model does not take its inputs: {error}") from error
    return sum(tensor.numel() * tensor.element_size() for tensor in [*held, *tensors_in(output)])


def shrunk(code: str, max_mib: float) -> dict[str, object]:
    """Smaller values for the file's sizes, so that the problem fits; {} if it does.

    The batch is halved down to 4 first, then the greatest size that can be while the model takes its inputs.

    Raises:
        RecordError: if it cannot be made to fit.
    """
    values: dict[str, object] = {}
    size = _bytes_with(code, values)
    if size is None:
        return {}
    while size > max_mib * _MIB:
        for changed in _candidates(code, values):
            smaller = _bytes_with(code, {**values, **changed})
            if smaller is not None and smaller < size:
                values, size = {**values, **changed}, smaller
                break
        else:
            raise RecordError(
                f"it has {size / _MIB:.0f} MiB at the least sizes that --shrink finds, more than "
                f"{max_mib:g} MiB of --max-mib",
                remedy="raise --max-mib, or give sizes with --set",
            )
    return values


def _bytes_with(code: str, values: Mapping[str, object]) -> int | None:
    scope: dict[str, Any] = {"__name__": "problem"}
    try:
        # The user has allowed the file's code to run.
        exec(compile(override(code, values, "problem"), "problem", "exec"), scope)  # noqa: S102
        return _planned_bytes(scope)
    except RecordError:
        if not values:
            raise
        return None


def _candidates(code: str, values: Mapping[str, object]) -> list[dict[str, object]]:
    """What could be made smaller next, in the order in which to try it: one size, else all of one size."""
    ranked: list[tuple[int, int, str, object]] = []
    for name, node in constants(code).items():
        if any(isinstance(part, ast.Name) for part in ast.walk(node.value)):
            continue
        value: Any = values.get(name, _constant(node.value))
        batch = "batch" in name
        if type(value) is int and value >= (2 if batch else 2 * _LEAST):
            rank = 0 if batch and value > 4 else 2 if batch else 1
            ranked.append((rank, -value, name, value // 2))
        elif _is_sizes(value) and max(value) >= 2 * _LEAST:
            halved = tuple(size // 2 if size == max(value) else size for size in value)
            ranked.append((1, -max(value), name, halved))
    ranked.sort(key=lambda item: item[:3])
    together: dict[int, dict[str, object]] = {}
    for _, size, name, smaller in ranked:
        together.setdefault(size, {})[name] = smaller
    single: list[dict[str, object]] = [{name: smaller} for _, _, name, smaller in ranked]
    return single + [changed for changed in together.values() if len(changed) > 1]


def _is_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(type(size) is int for size in value)


def _constant(node: ast.expr) -> object:
    """The value of an expression of numbers."""
    try:
        return eval(compile(ast.Expression(node), "constant", "eval"), {"__builtins__": {}})  # noqa: S307
    except Exception:  # noqa: BLE001 - anything but a number is no size
        return None


def _override(text: str) -> tuple[str, object]:
    name, found, value = text.partition("=")
    try:
        if found and name.isidentifier():
            return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        pass
    raise RecordError(
        f"--set {text!r} is not NAME=VALUE", remedy="write a Python literal, such as batch_size=8"
    )
