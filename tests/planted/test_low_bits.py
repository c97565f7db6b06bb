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
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.compare import compare
from pytest_cgins.verify.prepare import Preparation, PrepareOptions, prepare

SOURCES = Path(__file__).parent / "low_bits"
QUANTIZATION, GOLD, REFERENCE, NAN = (
    Reason.QUANTIZATION,
    Reason.GOLD_MISMATCH,
    Reason.REFERENCE_MISMATCH,
    Reason.NAN_PATTERN,
)
REASONS = {
    "per_token__scale_of_previous_row": QUANTIZATION,
    "per_token__e5m2_maximum": GOLD,
    "per_token__maximum_240": GOLD,
    "per_token__eps_missing": NAN,
    "per_token__double_rounding": QUANTIZATION,
    "per_token__per_tensor": GOLD,
    "per_token__stale_maximum": GOLD,
    "per_token__nan_swallowed": NAN,
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
    "int8_scaled__half_away_from_zero": QUANTIZATION,
    "e4m3_scaled__half_away_from_zero": QUANTIZATION,
    "int8_static__wraps": QUANTIZATION,
    "int8_static__least_missing": QUANTIZATION,
    "uint8_affine__zero_point_first": QUANTIZATION,
    "uint8_affine__one_lower": QUANTIZATION,
    "e4m3_static__toward_zero": QUANTIZATION,
    "e4m3_static__subnormals_flushed": QUANTIZATION,
    "e4m3_static__as_e5m2": QUANTIZATION,
    "e4m3_static__carry_lost": QUANTIZATION,
    "e4m3_static__no_saturation": NAN,
    "e5m2_static__toward_zero": QUANTIZATION,
    "e5m2_static__infinite": Reason.INFINITE_PATTERN,
    "e5m2_static__range_of_e4m3": QUANTIZATION,
    "dequantized_product__scale_of_first_row": GOLD,
    "dequantized_product__read_as_e5m2": GOLD,
    "dequantized_product__subnormals_flushed": REFERENCE,
    "block_scaled__first_block_twice": GOLD,
    "block_scaled__scale_of_next_block": GOLD,
    "block_scaled__scales_after_the_sum": GOLD,
    "block_scaled__transposed_scales": GOLD,
    "int8_product__least_ignored": GOLD,
    "int8_product__recorded_range": REFERENCE,
    "int8_product__scales_swapped": GOLD,
    "int8_product__sums_in_int16": GOLD,
    "int8_weights__low_seven_bits": GOLD,
    "int8_weights__minus_128_wraps": GOLD,
    "int8_weights__scale_of_first_row": GOLD,
    "int8_weights__scaled_in_bf16": GOLD,
    "int8_weights__unsigned": GOLD,
    "packed_weights__groups_of_64": GOLD,
    "packed_weights__last_group_has_the_one_before": GOLD,
    "scaled_result__forgotten": QUANTIZATION,
    "scaled_result__multiplied": QUANTIZATION,
    "row_scaled__bias_forgotten": GOLD,
    "row_scaled__bias_scaled_too": GOLD,
    "row_scaled__rows_of_a_for_columns": GOLD,
    "row_scaled__scale_of_first_column": GOLD,
    "row_scaled__scale_of_first_row": GOLD,
    "row_scaled__scale_of_previous_row": GOLD,
    "scaled_to_e4m3__saturates_at_240": QUANTIZATION,
    "scaled_to_e4m3__scale_divides": QUANTIZATION,
    "scaled_to_e4m3__through_bf16": QUANTIZATION,
    "scaled_to_e4m3__toward_zero": QUANTIZATION,
    "tensor_scaled__last_depth_missing": GOLD,
    "tensor_scaled__one_scale_forgotten": GOLD,
    "tensor_scaled__read_as_e5m2": GOLD,
    "tensor_scaled__scale_in_bf16": GOLD,
    "tensor_scaled__scale_of_wrong_operand": GOLD,
    "tensor_scaled__subnormals_flushed": REFERENCE,
    "tensor_scaled__sums_in_bf16": GOLD,
    "int32_columns__interleaved": GOLD,
    "int32_columns__plus_one_missing": GOLD,
    "int32_columns__sign_of_the_word": GOLD,
    "int32_columns__wraps_at_sixteen": GOLD,
    "int32_columns__zeros_backward": GOLD,
    "int4_values__groups_of_64": GOLD,
    "int4_values__low_nibble_unsigned": GOLD,
    "int4_values__minus_eight_is_zero": GOLD,
    "int4_values__offset_eight": GOLD,
    "int4_values__scale_in_bf16": REFERENCE,
    "int4_values__sign_and_magnitude": GOLD,
    "int4_values__sign_extension_missing": GOLD,
    "mxfp4_values__bias_128": GOLD,
    "mxfp4_values__blocks_of_16": GOLD,
    "mxfp4_values__five_for_six": GOLD,
    "mxfp4_values__nan_scale_ignored": NAN,
    "mxfp4_values__nibbles_swapped": GOLD,
    "mxfp4_values__recorded_exponents": REFERENCE,
    "mxfp4_values__subnormal_as_normal": GOLD,
    "mxfp4_values__twos_complement": GOLD,
    "mxfp8_product__block_of_the_neighbour": GOLD,
    "mxfp8_product__exponents_added_in_bytes": NAN,
    "mxfp8_product__scales_of_a_twice": GOLD,
    "mxfp8_product__sums_in_bf16": GOLD,
    "mxfp8_quantize__codes_without_bias": QUANTIZATION,
    "mxfp8_quantize__exponent_seven": QUANTIZATION,
    "mxfp8_quantize__neighbour_in_block": QUANTIZATION,
    "mxfp8_quantize__rounds_exponents": QUANTIZATION,
    "mxfp8_quantize__toward_zero": QUANTIZATION,
    "mxfp8_values__bias_128": GOLD,
    "mxfp8_values__blocks_of_16": GOLD,
    "mxfp8_values__code_as_value": GOLD,
    "mxfp8_values__code_zero_is_zero": REFERENCE,
    "mxfp8_values__nan_scale_ignored": NAN,
    "mxfp8_values__shifted_code": REFERENCE,
    "nvfp4_product__blocks_of_32": GOLD,
    "nvfp4_product__nibbles_swapped": GOLD,
    "nvfp4_product__scale_as_exponent": GOLD,
    "nvfp4_product__sign_of_scale_lost": GOLD,
    "nvfp4_product__table_in_steps": GOLD,
    "nvfp4_product__whole_scale_forgotten": GOLD,
    "uint4_groups__group_of_the_neighbour": GOLD,
    "uint4_groups__halves_of_the_row": GOLD,
    "uint4_groups__high_nibble_dropped": GOLD,
    "uint4_groups__last_group_has_the_one_before": GOLD,
    "uint4_groups__last_group_missing": GOLD,
    "uint4_groups__nibbles_swapped": GOLD,
    "uint4_groups__signed_bytes": GOLD,
    "uint4_groups__zero_point_after_scale": GOLD,
    "uint4_groups__zero_point_eight": GOLD,
    "uint4_groups__zero_point_of_first_group": GOLD,
    "uint4_groups__zero_point_off_by_one": GOLD,
    "uint4_linear__nibbles_swapped": GOLD,
    "uint4_linear__sums_in_bf16": REFERENCE,
    "uint4_linear__zero_point_off_by_one": GOLD,
    "uint4_pack__in_bf16": QUANTIZATION,
    "uint4_pack__nibbles_swapped": QUANTIZATION,
    "uint4_pack__scale_of_previous_row": QUANTIZATION,
    "int4_pack__half_away_from_zero": QUANTIZATION,
    "int4_pack__negatives_down": QUANTIZATION,
    "int4_pack__offset_eight": QUANTIZATION,
    "int4_pack__scale_of_next_block": QUANTIZATION,
    "int4_pack__sign_fills_the_byte": QUANTIZATION,
    "uint4_pack__one_more_in_a_thousand": QUANTIZATION,
    "uint4_pack__truncates": QUANTIZATION,
    "uint4_pack__wraps": QUANTIZATION,
    "uint4_pack__zero_point_seven": QUANTIZATION,
    "e4m3_into__last_column_missing": QUANTIZATION,
    "e4m3_into__scale_of_previous_row": QUANTIZATION,
    "e4m3_into__through_bf16": QUANTIZATION,
    "e4m3_into__toward_zero": QUANTIZATION,
    "norm_quantize__normed_in_e4m3_range": GOLD,
    "norm_quantize__scale_in_bf16": QUANTIZATION,
    "norm_quantize__toward_zero": QUANTIZATION,
    "uint8_rows__truncates": QUANTIZATION,
    "e4m3_bytes__in_bf16": REFERENCE,
    "int4_words__half_away_from_zero": QUANTIZATION,
    "uint4_groups__zero_point_of_eight": REFERENCE,
}
"""Planted bugs and why they are refused."""
if bool(torch.full((1,), 500.0).to(torch.float8_e4m3fn).float().isfinite()):
    del REASONS["e4m3_static__no_saturation"]  # torch's own cast saturates: there it is right
FAMILIES = ("quantize", "scaled", "packed")
"""Modules NAME_ops, NAME_bugs and NAME_honest."""
LAUNCHERS = {file.stem for file in SOURCES.glob("*.cpp")}


def _op(kernel: str) -> str:
    """The op that a kernel stands for, by its name."""
    name = kernel.partition("__")[0]
    modules = (f"{family}_ops" for family in FAMILIES)
    return next(f"{module}.{name}" for module in modules if hasattr(importlib.import_module(module), name))


def _entries() -> dict[str, dict[str, Any]]:
    """Kernels of cgins.yaml."""
    entries: dict[str, dict[str, Any]] = {}
    for module in (f"{family}_{kind}" for family in FAMILIES for kind in ("bugs", "honest")):
        for name in vars(importlib.import_module(module)):
            if "__" in name.strip("_"):
                entries[name] = {
                    "target": f"{module}:{name}",
                    "sources": [f"{module}.py"],
                    "probes": {"op_callback": {"off": "it is Python"}},
                }
    entries |= {name: {"contract": "launcher", "source": f"{name}.cpp"} for name in LAUNCHERS}
    return {name: {"op": _op(name), "device": "cpu", **entry} for name, entry in entries.items()}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All of them in one project."""
    folder = tmp_path_factory.mktemp("low_bits")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        patched.chdir(folder)
        entries = _entries()
        with pytest_cgins.record(
            folder / "traces/all", ops=sorted({entry["op"] for entry in entries.values()})
        ):
            for family in FAMILIES:
                importlib.import_module(f"{family}_ops").run_calls()
        document = {"version": 1, "traces": ["traces/all"], "kernels": entries}
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document))
        evaluator = Evaluator(config.load(folder / "cgins.yaml"), seed=20, timing=False)
        yield evaluator
        evaluator.close()
        for family in FAMILIES:
            for kind in ("ops", "bugs", "honest"):
                sys.modules.pop(f"{family}_{kind}", None)


def _reasons(prepared: Preparation, kernel: str) -> set[Reason]:
    """Why answers of a kernel in Python are wrong on any set of inputs."""
    module = importlib.import_module(_op(kernel).partition(".")[0].replace("_ops", "_bugs"))
    setattr(module, kernel, pytest_cgins.mark(getattr(module, kernel)))
    reasons = set()
    for inputs in prepared.sets:
        tensors = inputs.tensors()
        result = invoke(replace(inputs.call, op=f"{module.__name__}.{kernel}"), tensors)
        answer = [*flatten(result)[1], *(tensors[index] for index in inputs.mutated)]
        checks = compare(inputs.expected, list(map(as_real, answer)), Tolerance())
        reasons |= {check.reason for check in checks if not check.passed}
    return reasons


def test_every_bug_is_refused_for_its_own_reason(gate: Evaluator) -> None:
    """All that is wrong with an answer is looked at: a wrong scale makes codes wrong as well."""
    pack = open_pack(Path("traces/all"))
    options = PrepareOptions(probes=("special_values",))
    missed = set(REASONS)
    for trace in pack.pack.traces:
        prepared = prepare(trace, pack, "cpu", 20, options)
        for kernel in [one for one in missed if _op(one) == trace.call.op]:
            if kernel not in LAUNCHERS and REASONS[kernel] in _reasons(prepared, kernel):
                missed.remove(kernel)
    for case in gate.cases():
        if case.kernel in missed & LAUNCHERS:
            verdict = gate.evaluate(case).verdict
            if verdict.status is Status.INCORRECT and verdict.reason is REASONS[case.kernel]:
                missed.remove(case.kernel)
    assert not missed


@pytest.mark.exam
def test_right_kernels_pass(gate: Evaluator) -> None:
    """Reciprocals, fp64, blocks, tables, one pass: with another rounding on the way, codes differ by a step here and there."""
    accused = []
    bugs = {name for family in FAMILIES for name in vars(importlib.import_module(f"{family}_bugs"))}
    honest = [case for case in gate.cases() if case.kernel not in REASONS and case.kernel not in bugs]
    for case in honest:
        verdict = gate.evaluate(case).verdict
        if verdict.status is not Status.PASSED:
            accused.append(f"{case.kernel}: {verdict.status.value} {verdict.message}")
    assert not accused, "\n".join(accused)
    assert len(honest) > 70
