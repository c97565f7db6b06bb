"""Wrong kernels that only other calls tell from right ones: short blocks, other axes, unequal sizes, extremes in tails, ties.

They run in this process, on the sets of the probes: what such a set says in the gate `tests/verify/test_probe_inputs.py` has.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pytest_cgins
from pytest_cgins.config import Tolerance, declared
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.verify.compare import compare
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.prepare import PrepareOptions, prepare

SOURCES = Path(__file__).parent / "drawn"
TORCHS = (
    "add", "bucketize", "cat", "cumprod", "cumsum", "expm1", "index_add", "index_select", "sort", "sum", "var", "where",
)  # fmt: skip
SEMANTICS: Mapping[str, Mapping[str, Any]] = {
    "packed_cross": {"coupled": {"cu_q": {"offsets": "q[0]", "within": "cu_k"}, "cu_k": {"offsets": "k[0]"}}},
    "packed_overlap": {"coupled": {"q_offsets": {"offsets": "q[0]"}, "k_offsets": {"offsets": "k[0]"}}},
    "taken_pages": {"coupled": {"table": {"pages": "cache[0]"}}},
}
"""What is said of ops."""
BUGS = {
    "group_values__last_group_has_the_one_before": "sizes codes 128x128→161x161",
    "tile_linear__one_scale_for_256_rows": "scale 1x2→3x2",
    "wide_tile_linear__pairs_of_columns": "sizes x 5x1024→5x513",
    "block_codes__pairs": "sizes x 16x512→16x640",
    "nibble_linear__whole_groups": "sizes x 5x128→5x80",
    "table_values__factor_of_128": "most 8→3",
    "channel_scaled__middle": "other axis=",
    "index_select__rows": "other dim=1",
    "index_add__rows": "other dim=1",
    "cat__rows": "other dim=1",
    "int8_of_tensor__vectors_of_eight": "sizes x 24x64→",
    "row_normalized__vectors_of_sixteen": "sizes x 9x64→",
    "rotated__by_the_first_sequence": "other positions=tensor",
    "embedded__in_order": "other position_ids=tensor",
    "distances__as_many": "sizes b 24x16→29x16",
    "gated__square": "sizes x 32x32→37x32, gate 32x32→37x32",
    "packed_cross__first_key": "sizes q 18x8→9x8",
    "packed_overlap__one_table": "sizes q 18x5→9x5",
    "running_mean__carry_of_one_piece": "sizes x 4x320→1x",
    "cumsum__carry_of_one_piece": "sizes input 6x40→",
    "summed_tokens__from_piece_to_piece": "sizes x 2x48x8→",
    "taken_pages__numbered_in_bytes": "sizes cache 16x4x6→331x4x6",
    "bucketize__left": "other right=True",
    "where__in_turns": "sizes condition 16→8x1",
    "add__in_turns": "sizes other 16→8x1",
    "cat__eight_at_most": "sizes of lists",
    "thinned__twelve_bits": "other seed=",
    "block_codes__least_of_half": "other x by 2^-",
    "sum__in_32_bits": "other integers",
    "sort__keys_of_fp64": "other integers",
    "expm1__cancels": "other input by 2^-",
    "var__one_pass": "edge",
}
"""Planted bugs, and inputs that show each."""


@pytest.fixture(scope="module")
def sets_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], tuple[InputSet, ...]]]:
    """The sets of an op's call with a seed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(SOURCES)
        folder = tmp_path_factory.mktemp("drawn")
        ops = importlib.import_module("drawn_ops")
        names = {kernel.partition("__")[0] for kernel in (*BUGS, *_honest())}
        with pytest_cgins.record(folder / "pack", ops=sorted(map(_op, names))):
            ops.run_calls()
        yield cache(lambda name, seed: _prepared(open_pack(folder / "pack"), name, seed))
        for module in ("drawn_ops", "drawn_bugs", "drawn_honest"):
            sys.modules.pop(module, None)


def _op(name: str) -> str:
    return f"torch.{name}" if name in TORCHS else f"drawn_ops.{name}"


def _prepared(pack: PackReader, name: str, seed: int) -> tuple[InputSet, ...]:
    trace = next(one for one in pack.pack.traces if one.call.op == _op(name))
    options = PrepareOptions(probes=("sizes", "arguments"), declared=declared(SEMANTICS.get(name, {})))
    return prepare(trace, pack, "cpu", seed, options).sets


def _outcomes(module: str, kernel: str, sets: tuple[InputSet, ...]) -> tuple[list[str], list[str]]:
    """The sets on which a kernel is wrong, and those that it refuses."""
    function = getattr(importlib.import_module(module), kernel)
    setattr(sys.modules[module], kernel, pytest_cgins.mark(function))
    wrong, refused = [], []
    for one in sets:
        tensors = one.tensors()
        try:
            result = invoke(replace(one.call, op=f"{module}.{kernel}"), tensors)
        except (RuntimeError, NotImplementedError, IndexError):
            refused.append(one.expected.name)
            continue
        answer = list(map(as_real, flatten(result)[1]))
        if not all(check.passed for check in compare(one.expected, answer, Tolerance())):
            wrong.append(one.expected.name)
    return wrong, refused


@pytest.mark.parametrize("seed", [3, pytest.param(2026, marks=pytest.mark.exam)])
@pytest.mark.parametrize("kernel", BUGS)
def test_a_bug_is_shown_by_its_call(
    sets_of: Callable[[str, int], tuple[InputSet, ...]], kernel: str, seed: int
) -> None:
    """With any seed, and not by what was recorded."""
    wrong, _ = _outcomes("drawn_bugs", kernel, sets_of(kernel.partition("__")[0], seed))
    assert any(BUGS[kernel] in name for name in wrong), wrong
    assert not {"recorded", "fresh"} & {*wrong}


def _honest() -> list[str]:
    lines = (SOURCES / "drawn_honest.py").read_text().splitlines()
    return [line.partition("(")[0].removeprefix("def ") for line in lines if line.startswith("def ")]


@pytest.mark.parametrize("seed", [3, 2026])
@pytest.mark.parametrize("kernel", _honest())
def test_a_right_kernel_is_not_accused(
    sets_of: Callable[[str, int], tuple[InputSet, ...]], kernel: str, seed: int
) -> None:
    """It may refuse calls, and answers at least the recorded one."""
    wrong, refused = _outcomes("drawn_honest", kernel, sets_of(kernel.partition("__")[0], seed))
    assert not wrong
    assert not {"recorded", "fresh", "edge"} & {*refused}
