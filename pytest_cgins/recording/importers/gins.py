"""Programs of GinS: a JSON list of operations over defined tensors, run in order with a shared context.

[{"name": …, "operations": [{"assignment": "c", "operation": "torch.matmul", "inputs": ["a", "b"]}],
  "definitions": [{"variable": "a", "value": "torch.randn(64, 64, device='cuda')"}]}]
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs import backward
from pytest_cgins.recording.importers.collect import Collector, check_result, one_line
from pytest_cgins.recording.importers.expressions import Evaluator, parse
from pytest_cgins.recording.importers.files import objects, read_json, require_torch_op, text_of


def run(args: argparse.Namespace, collector: Collector) -> None:
    """Record every operation of every program.

    Raises:
        RecordError: if the file is not such a list.
    """
    programs = objects(read_json(args.source), args.source, "a list of programs")
    for number, program in enumerate(programs):
        if not program.get("operations"):
            continue
        name = str(program.get("name") or f"program{number}")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            _Program(name, collector, args.max_mib).run(program, args.source)


class _Program:
    """One program's names and operations."""

    def __init__(self, name: str, collector: Collector, max_mib: float) -> None:
        self._name = name
        self._collector = collector
        self._evaluator = Evaluator(max_mib, self._device)
        self._max_mib = max_mib
        self._missing: dict[str, str] = {}

    def run(self, program: dict[str, Any], source: Path) -> None:
        for definition in objects(program.get("definitions", []), source, f"definitions of {self._name}"):
            variable, value = text_of(definition, "variable"), text_of(definition, "value")
            try:
                self._evaluator.names[variable] = self._evaluator.evaluate(value)
            except Exception as error:  # noqa: BLE001 - torch refuses arguments in many ways
                self._missing[variable] = one_line(error)
        for number, operation in enumerate(objects(program.get("operations", []), source, "operations")):
            assigned = str(operation.get("assignment") or f"op{number}")
            entry = f"{self._name}/{number}:{assigned}"
            try:
                self._operate(entry, assigned, text_of(operation, "operation"), operation.get("inputs", []))
            except Exception as error:  # noqa: BLE001 - torch refuses arguments in many ways
                self._missing[assigned] = f"{entry} was left out"
                self._evaluator.names.pop(assigned, None)
                self._collector.leave_out(entry, error)

    def _operate(self, entry: str, assigned: str, op: str, inputs: object) -> None:
        args, kwargs = self._arguments(inputs)
        require_torch_op(op)
        check_result(op, args, kwargs, self._max_mib)

        def call() -> Any:
            return backward.resolve(op)(*args, **kwargs)

        made = self._collector.record(entry, op, call)
        if not made.ran:
            # What comes after needs the value, even if this call cannot be recorded.
            try:
                self._evaluator.names[assigned] = call()
            except Exception:  # noqa: BLE001 - whatever torch raises, it is in the report
                self._missing[assigned] = f"{entry} was left out"
                self._evaluator.names.pop(assigned, None)
            return
        self._evaluator.names[assigned] = made.result

    def _arguments(self, inputs: object) -> tuple[list[Any], dict[str, Any]]:
        """Values of the inputs: names, expressions, or `keyword=expression`."""
        call = parse(f"f({', '.join(map(str, inputs))})") if isinstance(inputs, list) else None
        keywords = [item.arg for item in call.keywords] if isinstance(call, ast.Call) else []
        # «a) + f(b» would be something else than a call of f.
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or (
            None in keywords or len(set(keywords)) < len(keywords)
        ):
            raise RecordError(
                f"its inputs are {str(inputs)[:120]!r}",
                remedy='inputs is a list of names, expressions and "keyword=expression"',
            )
        for node in ast.walk(call):
            if isinstance(node, ast.Name) and node.id in self._missing:
                raise RecordError(f"its input {node.id} is not there: {self._missing[node.id]}")
        args = [self._evaluator.evaluate(ast.unparse(arg)) for arg in call.args]
        kwargs = {str(item.arg): self._evaluator.evaluate(ast.unparse(item.value)) for item in call.keywords}
        return args, kwargs

    def _device(self, asked: str) -> str:
        if asked.startswith("cuda") and not torch.cuda.is_available():
            self._collector.report.note(f"device {asked!r} was mapped to the CPU: there is no GPU here")
            return "cpu"
        return asked
