"""The kernels of `large_indices` in one project: for the CPU here, for a GPU in `tests/gpu/test_large_indices_gpu.py`."""

from __future__ import annotations

import ast
import importlib
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Probe, Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.verify.probes.registry import ALWAYS, PROBE_SPECS

SOURCES = Path(__file__).parent / "large_indices"


def launchers(suffix: str) -> dict[str, dict[str, Any]]:
    """Entries of cgins.yaml by kernel."""
    return {file.stem: {"contract": "launcher", "source": file.name} for file in SOURCES.glob(f"*{suffix}")}


def in_python() -> dict[str, dict[str, Any]]:
    """Entries of kernels in Python."""
    functions = ast.parse((SOURCES / "large_python.py").read_text()).body
    return {
        function.name: {
            "target": f"large_python:{function.name}",
            "sources": ["large_python.py"],
            "interpret": "triton" in function.name,
        }
        for function in functions
        if isinstance(function, ast.FunctionDef) and "__" in function.name
    }


@contextmanager
def gate(folder: Path, entries: Mapping[str, Mapping[str, Any]], device: str) -> Iterator[Evaluator]:
    """An evaluator of all of them."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    off = {
        name: {"off": "other tests look at it"}
        for name in PROBE_SPECS
        if name not in {"sizes", "large_indices", *ALWAYS}
    }
    kernels = {
        name: {"op": f"large_ops.{name.partition('__')[0]}", "device": device, "probes": off, **entry}
        for name, entry in entries.items()
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.chdir(folder)
        ops = importlib.import_module("large_ops")
        with pytest_cgins.record(
            folder / "traces/all", ops=sorted({entry["op"] for entry in kernels.values()})
        ):
            ops.run_calls(device)
        document = {"version": 1, "traces": ["traces/all"], "kernels": kernels}
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
        evaluator = Evaluator(config.load(folder / "cgins.yaml"), seed=20, timing=False)
        yield evaluator
        evaluator.close()
        sys.modules.pop("large_ops", None)


def probe_of(evaluation: Evaluation) -> Probe:
    """What came of `large_indices`."""
    assert evaluation.correctness is not None, evaluation.verdict
    return next(probe for probe in evaluation.correctness.probes if probe.name == "large_indices")


def told(evaluation: Evaluation) -> str:
    """The probe's message and the case's notes."""
    assert evaluation.correctness is not None
    return "\n".join([probe_of(evaluation).message, *evaluation.correctness.notes])


def wrong(evaluations: Mapping[str, Evaluation], bugs: Mapping[str, str]) -> list[str]:
    """Bugs that are not told as an overflow with their words, and right kernels that are accused."""
    found = []
    for name, evaluation in evaluations.items():
        verdict = evaluation.verdict
        if name in bugs:
            right = verdict.status is Status.INCORRECT and verdict.reason is Reason.INDEX_OVERFLOW
            right = right and bugs[name] in verdict.message
        else:
            right = verdict.status is Status.PASSED
        if not right:
            found.append(f"{name}: {verdict.status.value} {verdict.reason.value}: {verdict.message}")
    return found
