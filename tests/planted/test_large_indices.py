"""Kernels for the CPU whose rows, offsets or counts overflow in large calls, and right ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason
from tests.planted import large_calls

APART, MANY = "rows apart beyond 2^31 elements", "more than 2^31 elements"
BUGS = {
    "relu__int_count": f"{MANY} output 0 is wrong from row 0 on",
    "relu__last_part_dropped": "from row 8,388,608 on, beyond 2^31 elements of output 0",
    "row_max__unsigned_offset": APART,
    "row_max__int_begins": APART,
    "row_max__bytes_of_31_bits": APART,
    "row_max__int_gather": APART,
    "row_sum32__triton_int": APART,
    "pages__int_begin": APART,
    "row_max__rows_of_16_bits": "from row 65,536 on, beyond 65,535 rows",
    "row_max__at_most_65535": "from row 65,535 on, beyond 65,535 rows",
    "row_max__short_index": "more than 65,535 rows output 0 is wrong from row 32,7",
}
"""Planted bugs, and what is told of them."""
MISSED = {
    "relu__byte_offset": "it takes seven seconds here, and the call is left out above two",
    "row_max__int_product": "g++ advances the row's address in 64 bits, so its answers are right",
    "row_max__stride_cut": "as above",
}


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Evaluation]]:
    entries = {**large_calls.launchers(".cpp"), **large_calls.in_python()}
    entries = {name: entry for name, entry in entries.items() if name not in MISSED}
    with large_calls.gate(tmp_path_factory.mktemp("large"), entries, "cpu") as gate:
        yield {case.kernel: gate.evaluate(case) for case in gate.cases()}


def test_rows_beyond_16_bits_have_their_own_reason(tmp_path: Path) -> None:
    """The cheapest of them, which stands for all in `make test`."""
    name = "row_max__rows_of_16_bits"
    with large_calls.gate(tmp_path, {name: large_calls.launchers(".cpp")[name]}, "cpu") as gate:
        (case,) = gate.cases()
        evaluation = gate.evaluate(case)
    assert evaluation.verdict.reason is Reason.INDEX_OVERFLOW
    assert BUGS[name] in evaluation.verdict.message


@pytest.mark.exam
def test_bugs_are_named_and_right_kernels_pass(evaluations: dict[str, Evaluation]) -> None:
    """Each overflow with the limit that it goes beyond, or the call that it dies of."""
    assert evaluations.keys() >= BUGS.keys()
    assert sum("__honest_" in name for name in evaluations) == len(evaluations) - len(BUGS) >= 8
    assert not large_calls.wrong(evaluations, BUGS)


@pytest.mark.exam
def test_what_is_refused_or_left_out_is_told(evaluations: dict[str, Evaluation]) -> None:
    """With the kernel's own words, or with what it would take."""
    refusals = large_calls.told(evaluations["row_max__honest_few_rows"])
    assert "at most 65535 rows" in refusals
    assert "offsets have 32 bits" in refusals
    assert large_calls.probe_of(evaluations["row_max__honest_few_rows"]).outcome == "not-run"
    assert "at most 2^31 - 1 elements" in large_calls.told(evaluations["relu__honest_refuses"])
    assert "a copy of its inputs would take 4 GiB" in large_calls.told(evaluations["relu__honest_torch"])
    held = evaluations["row_max__honest_row_pointer"]
    assert (large_calls.probe_of(held).outcome, large_calls.told(held).strip()) == ("held", "")
