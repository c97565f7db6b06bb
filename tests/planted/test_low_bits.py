"""Kernels that quantise: planted bugs are refused for their own reason, right ones pass the whole gate."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.config import Tolerance
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.compare import compare
from pytest_cgins.verify.prepare import Preparation, PrepareOptions, prepare

SOURCES = Path(__file__).parent / "low_bits"
QUANTIZATION, GOLD, REFERENCE = Reason.QUANTIZATION, Reason.GOLD_MISMATCH, Reason.REFERENCE_MISMATCH
REASONS = {
    "per_token__scale_of_previous_row": QUANTIZATION,
    "per_token__e5m2_maximum": GOLD,
    "per_token__maximum_240": GOLD,
    "per_token__eps_missing": Reason.NAN_PATTERN,
    "per_token__double_rounding": QUANTIZATION,
    "per_token__per_tensor": GOLD,
    "per_token__stale_maximum": GOLD,
    "per_token__nan_swallowed": Reason.NAN_PATTERN,
    "per_token__scale_inverted": GOLD,
    "per_token__bf16_scale": QUANTIZATION,
    "per_block__scale_of_next_block": QUANTIZATION,
    "per_block__transposed_scales": GOLD,
    "per_block__blocks_of_64": GOLD,
    "norm_quantize__maximum_before_weight": GOLD,
    "norm_quantize__eps_after_root": REFERENCE,
    "int8_channels__negatives_up": QUANTIZATION,
    "int8_channels__truncates": QUANTIZATION,
    "int8_channels__maximum_128": GOLD,
    "int8_channels__half_inside": QUANTIZATION,
    "int8_static__wraps": QUANTIZATION,
    "int8_static__least_missing": QUANTIZATION,
    "uint8_affine__zero_point_first": QUANTIZATION,
    "uint8_affine__one_lower": QUANTIZATION,
    "e4m3_static__toward_zero": QUANTIZATION,
    "e4m3_static__subnormals_flushed": QUANTIZATION,
    "e4m3_static__as_e5m2": QUANTIZATION,
    "e4m3_static__carry_lost": QUANTIZATION,
    "e4m3_static__no_saturation": Reason.NAN_PATTERN,
    "e5m2_static__toward_zero": QUANTIZATION,
    "e5m2_static__infinite": Reason.INFINITE_PATTERN,
    "e5m2_static__range_of_e4m3": QUANTIZATION,
    "dequantized_product__scale_of_first_row": GOLD,
    "dequantized_product__read_as_e5m2": GOLD,
    "dequantized_product__subnormals_flushed": REFERENCE,
}
"""Planted bugs and why they are refused."""
if bool(torch.full((1,), 500.0).to(torch.float8_e4m3fn).float().isfinite()):
    del REASONS["e4m3_static__no_saturation"]  # torch's own cast saturates: there it is right
OPS = (
    "per_token",
    "per_block",
    "norm_quantize",
    "int8_channels",
    "int8_static",
    "uint8_affine",
    "e4m3_static",
    "e5m2_static",
    "dequantized_product",
)
"""Ops that are gated."""
LAUNCHERS = {file.stem for file in SOURCES.glob("*.cpp") if file.stem.startswith(OPS)}


def _entries() -> dict[str, dict[str, Any]]:
    """Kernels of cgins.yaml."""
    entries: dict[str, dict[str, Any]] = {}
    for module in ("quantize_bugs", "quantize_honest"):
        for name in vars(importlib.import_module(module)):
            if "__" in name.strip("_") and name.startswith(OPS):
                entries[name] = {
                    "target": f"{module}:{name}",
                    "sources": [f"{module}.py"],
                    "probes": {"op_callback": {"off": "it is Python"}},
                }
    entries |= {name: {"contract": "launcher", "source": f"{name}.cpp"} for name in LAUNCHERS}
    return {
        name: {"op": f"quantize_ops.{name.partition('__')[0]}", "device": "cpu", **entry}
        for name, entry in entries.items()
    }


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All of them in one project."""
    folder = tmp_path_factory.mktemp("low_bits")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.chdir(folder)
        ops = importlib.import_module("quantize_ops")
        with pytest_cgins.record(
            folder / "traces/all", ops=sorted({entry["op"] for entry in _entries().values()})
        ):
            ops.run_calls()
        document = {"version": 1, "traces": ["traces/all"], "kernels": _entries()}
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
        evaluator = Evaluator(config.load(folder / "cgins.yaml"), seed=20, timing=False)
        yield evaluator
        evaluator.close()
        for name in ("quantize_ops", "quantize_bugs", "quantize_honest"):
            sys.modules.pop(name, None)


def _reasons(prepared: Preparation, kernel: str) -> set[Reason]:
    """Why answers of a kernel in Python are wrong on any set of inputs."""
    module = importlib.import_module("quantize_bugs")
    setattr(module, kernel, pytest_cgins.mark(getattr(module, kernel)))
    reasons = set()
    for inputs in prepared.sets:
        result = invoke(replace(inputs.call, op=f"quantize_bugs.{kernel}"), inputs.tensors())
        checks = compare(inputs.expected, flatten(result)[1], Tolerance())
        reasons |= {check.reason for check in checks if not check.passed}
    return reasons


def test_every_bug_is_refused_for_its_own_reason(gate: Evaluator) -> None:
    """All that is wrong with an answer is looked at: a wrong scale makes codes wrong as well."""
    pack = open_pack(Path("traces/all"))
    options = PrepareOptions(probes=("special_values",))
    missed = set(REASONS)
    for trace in pack.pack.traces:
        prepared = prepare(trace, pack, "cpu", 20, options)
        for kernel in [one for one in missed if f"quantize_ops.{one.partition('__')[0]}" == trace.call.op]:
            if kernel not in LAUNCHERS and REASONS[kernel] in _reasons(prepared, kernel):
                missed.remove(kernel)
    for case in gate.cases():
        if case.kernel in missed & LAUNCHERS:
            verdict = gate.evaluate(case).verdict
            if verdict.status is Status.INCORRECT and verdict.reason is REASONS[case.kernel]:
                missed.remove(case.kernel)
    assert not missed


def test_right_kernels_pass(gate: Evaluator) -> None:
    """Reciprocals, fp64, blocks, tables, one pass: with another rounding on the way, codes differ by a step here and there."""
    accused = []
    bugs = vars(importlib.import_module("quantize_bugs"))
    honest = [case for case in gate.cases() if case.kernel not in REASONS and case.kernel not in bugs]
    for case in honest:
        verdict = gate.evaluate(case).verdict
        if verdict.status is not Status.PASSED:
            accused.append(f"{case.kernel}: {verdict.status.value} {verdict.message}")
    assert not accused, "\n".join(accused)
    assert len(honest) > 20
