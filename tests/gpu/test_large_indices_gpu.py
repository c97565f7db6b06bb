"""Kernels on a GPU whose rows, offsets or counts overflow in large calls, and right ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted import large_calls

pytestmark = pytest.mark.gpu

BUGS = {
    "relu__byte_offset": "2^31 elements",
    "relu__count_cut": "2^32 elements",
    "relu__int_index": "2^31 elements",
    "relu__vectors_cut": "2^32 elements",
    "row_max__int_offset": "2^31 elements",
    "row_max__rows_in_y": "65,535",
    "row_max__stride_cut": "2^31 elements",
    "transposed__int_store": "2^31 elements",
}
"""Planted bugs, and the limit that is told."""


def test_bugs_are_named_and_right_kernels_pass(tmp_path: Path) -> None:
    """All calls are allocated: 2^32 elements of bfloat16 are 8 GiB, twice that with an output as large."""
    entries = large_calls.launchers(".cu")
    with large_calls.gate(tmp_path, entries, "cuda") as gate:
        evaluations = {case.kernel: gate.evaluate(case) for case in gate.cases()}
    assert len(evaluations) == len(entries) == 12
    for name, evaluation in evaluations.items():
        print(name, f"{evaluation.seconds:.2f} s", large_calls.told(evaluation), sep="\n  ")
    assert not large_calls.wrong(evaluations, BUGS)
    assert "2^31 elements" in large_calls.told(evaluations["relu__honest_refuses"])
