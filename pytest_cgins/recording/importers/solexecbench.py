"""Problems of SOL-ExecBench: folders with a `definition.json` and a `workload.jsonl`, a workload a line.

They are flashinfer-bench's definitions and workloads, with sizes that follow from others, inputs that a function of
the reference's code makes, and a tolerance for each workload.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.recording.importers.collect import Collector, check_size
from pytest_cgins.recording.importers.files import (
    numbered_lines,
    objects,
    parse_json,
    read_json,
    required,
    text_of,
)
from pytest_cgins.recording.importers.flashinfer import DTYPES, InputBuilder, take
from pytest_cgins.recording.importers.references import References, module_name, require

_USUAL = {"max_rtol": 1e-2, "max_atol": 1e-2}
"""The format's own tolerance of a workload that states none."""


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record a call for every workload of every problem, of a folder or of those in it.

    An op has one tolerance: workloads of a problem that state others are of another op, with the same code.

    Raises:
        RecordError: if there is no problem.
    """
    references = References(args.references)
    problems = sorted(path.parent for path in args.source.rglob("definition.json"))
    remedy = "name a problem of SOL-ExecBench, or a folder of them"
    required(problems, args.source, "definition.json", remedy)
    collector.report.note(
        "a tolerance here holds for every element; required_matched_ratio is not taken over"
    )
    for problem in problems:
        entry = problem.name
        with collector.leaving_out(entry):
            definition = read_json(problem / "definition.json")
            name, code = text_of(definition, "name"), text_of(definition, "reference")
            workloads = list(_workloads(problem / "workload.jsonl", entry, collector))
            modules: dict[tuple[float, float], ModuleType] = {}
            for tolerance in dict.fromkeys(stated for _, stated in workloads):
                number = [f"tolerance{len(modules) + 1}"] if modules else []
                module = references.write(module_name("sol", name, *number), code, f"{entry}/definition.json")
                require(module, "run")
                modules[tolerance] = module
                collector.report.tolerances[f"{module.__name__}.run"] = tolerance
            for workload, tolerance in workloads:
                module = modules[tolerance]
                builder = partial(_ProblemInputs, module, args.device, problem)
                take(args, collector, definition, workload, f"{module.__name__}.run", builder=builder)


def _workloads(
    path: Path, entry: str, collector: Collector
) -> Iterator[tuple[dict[str, Any], tuple[float, float]]]:
    """Each workload, with its relative and its absolute tolerance."""
    for number, line in numbered_lines(path):
        with collector.leaving_out(f"{entry} {path.name}:{number}"):
            (workload,) = objects([parse_json(line, f"{path}:{number}")], path, "the lines")
            stated = _tolerance(workload.get("tolerance") or {})
            yield workload, stated


def _tolerance(stated: Any) -> tuple[float, float]:
    (document,) = objects([stated], "tolerance", "it")
    rtol, atol = (document.get(name, usual) for name, usual in _USUAL.items())
    if not all(isinstance(limit, int | float) and 0 <= limit < math.inf for limit in (rtol, atol)):
        raise RecordError(f"max_rtol {rtol!r} and max_atol {atol!r} are no tolerance")
    return float(rtol), float(atol)


class _ProblemInputs(InputBuilder):
    """Makes the inputs of one workload, as the format's evaluator does: some by what they are called."""

    dtypes: ClassVar[dict[str, torch.dtype]] = {**DTYPES, "float64": torch.float64}

    def __init__(self, module: ModuleType, device: str, problem: Path, *given: Any) -> None:
        super().__init__(*given)
        self._module = module
        self._device = device
        self._problem = problem
        self._max_mib = given[-1]

    @cached_property
    def _custom(self) -> dict[str, Any]:
        entry = text_of(self.definition, "custom_inputs_entrypoint")
        require(self._module, entry)
        given = self.workload.get("inputs", {})
        scalars = {name: spec["value"] for name, spec in given.items() if spec["type"] == "scalar"}
        sizes = {axis: self.size(axis) for axis in self.definition["axes"]}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            inputs: dict[str, Any] = getattr(self._module, entry)(
                {**sizes, **scalars}, torch.device(self._device)
            )
        check_size(inputs, self._max_mib)
        return inputs

    def make(self, name: str, spec: dict[str, Any]) -> Any:
        """See `InputBuilder.make`."""
        if self.workload.get("inputs", {}).get(name, {}).get("type") != "custom":
            return super().make(name, spec)
        if name not in self._custom:
            raise RecordError(f"input {name}: {self.definition['custom_inputs_entrypoint']} does not make it")
        return self._custom[name]

    def random(self, name: str, shape: tuple[int, ...] | None, dtype: torch.dtype) -> Any:
        """See `InputBuilder.random`: weights, masks, angles and decays get values that such inputs have."""
        drawn = super().random(name, shape, dtype)
        if shape is None or not dtype.is_floating_point or dtype.itemsize == 1:
            return drawn
        return _shaped(
            name, drawn.float(), str(self.definition["inputs"][name].get("description") or "").lower()
        ).to(dtype)

    def locate(self, path: Path) -> Path:
        """The file in the source or in the problem's folder, under the path's last parts where the first ones are missing."""
        for root in (self._problem, self.root):
            for start in range(len(path.parts)):
                if (file := root.joinpath(*path.parts[start:])).is_file():
                    return file
        return self.root / path


def _shaped(name: str, drawn: torch.Tensor, description: str) -> torch.Tensor:
    """Normal numbers as an input of this name has them."""
    square = drawn.ndim > 1 and drawn.size(-1) == drawn.size(-2)
    if re.search(r"norm\d*_weight$", name):
        return 1 + 0.1 * drawn
    if re.search(r"norm\d*_bias$", name):
        return 0.1 * drawn
    if square and (
        name in ("attention_mask", "causal_mask") or ("causal" in description and "mask" in description)
    ):
        return torch.zeros_like(drawn).masked_fill(
            torch.ones_like(drawn).triu(1) > 0, torch.finfo(torch.bfloat16).min
        )
    if name.endswith("mask"):
        return (drawn > 0).float()
    if angle := re.search(r"(?:^|_)(cos|sin)(?:_|$)", name):
        return drawn.cos() if angle[1] == "cos" else drawn.sin()
    if re.search(r"(?:^|_)r?(?:std|var|variance)\d*$", name):
        return drawn.abs() + 0.1
    if name in ("A", "A_log", "A_cumsum", "g"):
        decay = -drawn.abs() - 0.001
        return decay.cumsum(-1) if name == "A_cumsum" else decay
    if re.search(r"(?:attn|attention|routing)_weights$", name) or (
        "softmax" in description and "output" in description
    ):
        return drawn.softmax(-1)
    if drawn.ndim > 1 and re.search(r"(?:^|_)(?:weights?|projs?|matrix)\d*$", name):
        return drawn / math.sqrt(drawn.size(-1))
    return drawn
