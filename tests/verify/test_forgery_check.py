"""A forged answer that every rule would accept is found out, and each set of inputs refuses such answers by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pytest_cgins.config import Tolerance
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify import forgery_check
from pytest_cgins.verify.compare import ExpectedSet, accepts
from pytest_cgins.verify.forgery_check import permuted
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.probes.registry import PREPARED
from tests.verify.helpers import DERIVED, expected_output, expected_set, normal
from tests.verify.test_judge import record

X, Y = normal(4, 5), normal(4, 5, seed=1)
ZERO, ONE, COPY, MOVED = forgery_check.FORGERIES
ALL = dict.fromkeys((ZERO, ONE, MOVED), True)


def of(answer: torch.Tensor, name: str = "recorded", **arguments: torch.Tensor) -> ExpectedSet:
    return expected_set(expected_output(answer), name=name, arguments=arguments)


CASES: dict[str, tuple[list[ExpectedSet], dict[str, bool]]] = {
    "an ordinary answer": ([of(X * 2 + 1, x=X)], {**ALL, COPY: True}),
    "zeros, in any order": ([of(torch.zeros(4, 5))], {ZERO: False, ONE: True, MOVED: False}),
    "relu of positive numbers": ([of(X.abs(), input=X.abs())], {**ALL, COPY: False}),
    "an identity, which a copy is right for": ([of(X, input=X), of(Y, "fresh", input=Y)], ALL),
    "a copy on recorded inputs alone": (
        [of(X.abs(), input=X.abs()), of(Y.relu(), "fresh", input=Y)],
        {**ALL, COPY: True},
    ),
    "a copy of one input of two": ([of(X, other=torch.ones(4, 5), input=X)], {**ALL, COPY: False}),
    "one set that tells beside one that does not": ([of(torch.zeros(4, 5)), of(X, "fresh")], ALL),
    "inputs of other shapes and dtypes": ([of(X, x=normal(4, 6), y=Y.double())], ALL),
    "integers": ([of(torch.arange(12).reshape(3, 4))], ALL),
    "a single number, which cannot move": ([of(torch.tensor(2.0))], {ZERO: True, ONE: True}),
    "nothing": ([of(torch.zeros(0, 4))], {ZERO: False, ONE: False}),
}


@pytest.mark.parametrize(("sets", "caught"), CASES.values(), ids=list(CASES))
def test_forgeries_are_caught_or_told(sets: list[ExpectedSet], caught: dict[str, bool]) -> None:
    """A forgery goes unnoticed that passes on all sets of inputs."""
    assert {one.forgery: one.caught for one in forgery_check.check(sets, DERIVED)} == caught


def test_wide_explicit_tolerance_is_held_by_the_reference_rule() -> None:
    """atol larger than the output accepts anything as gold; rule 2 does not."""
    made = expected_set(expected_output(X, gold=X))
    lax = Tolerance(kind="explicit", atol=10.0)
    assert all(result.caught for result in forgery_check.check([made], lax))


def test_single_rows_are_permuted_by_element() -> None:
    """One row moves by one element."""
    assert forgery_check.permuted(torch.arange(4)).tolist() == [3, 0, 1, 2]


DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def prepared(folder: Path, op: str, run: Callable[[], object]) -> Preparation:
    record(folder, run, op)
    reader = open_pack(folder)
    (trace,) = reader.pack.traces
    return prepare(trace, reader, "cpu", 1, PrepareOptions(probes=PREPARED))


def accepted(made: InputSet, rows: slice = slice(None)) -> list[str]:
    """Wrong answers, in all rows or in some, that a set of inputs lets pass."""
    (output,) = made.expected.outputs
    right = output.answer
    steps = (torch.arange(right.numel()) % 3 / 2).to(right.dtype).reshape(right.shape)
    found = []
    for name, forged in (
        ("zeros", torch.zeros_like(right)),
        ("ones", torch.ones_like(right)),
        ("steps", steps),
        ("moved", permuted(right)),
    ):
        answer = right.clone()
        answer[rows] = forged[rows]
        if not torch.equal(answer, right) and accepts(made.expected, [answer], DERIVED):
            found.append(name)
    return found


def last(*shape: int, dtype: torch.dtype) -> Tensor:
    """N(0, 1) with the channels last in memory."""
    return normal(*shape, dtype=dtype).to(memory_format=torch.channels_last)


INEXACT: dict[str, tuple[str, Callable[[torch.dtype, int], object]]] = {
    "group_norm": (
        "torch.nn.functional.group_norm",
        lambda dtype, n: functional.group_norm(
            last(n, 8, 6, 5, dtype=dtype), 4, normal(8, dtype=dtype), normal(8, dtype=dtype, seed=1)
        ),
    ),
    "group_norm_contiguous": (
        "torch.nn.functional.group_norm",
        lambda dtype, n: functional.group_norm(normal(n, 8, 6, 5, dtype=dtype), 2),
    ),
    "instance_norm": (
        "torch.nn.functional.instance_norm",
        lambda dtype, n: functional.instance_norm(last(n, 8, 6, 5, dtype=dtype)),
    ),
    "layer_norm": (
        "torch.nn.functional.layer_norm",
        lambda dtype, n: functional.layer_norm(normal(n, 60, dtype=dtype), (60,)),
    ),
    "batch_norm": (
        "torch.nn.functional.batch_norm",
        lambda dtype, n: functional.batch_norm(last(n, 8, 6, 5, dtype=dtype), None, None, training=True),
    ),
}


@pytest.mark.exam
@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", INEXACT)
def test_edge_rows_refuse_what_is_wrong(tmp_path: Path, name: str, dtype: torch.dtype, rows: int) -> None:
    """Zeros, ones, 0, ½ and 1 in turns, and moved rows: over the whole set, and in the row whose mean is large alone."""
    op, run = INEXACT[name]
    found = prepared(tmp_path / "pack", op, lambda: run(dtype, rows))
    edge = next(made for made in found.core if made.expected.name == "edge")
    assert accepted(edge) == []
    if name != "batch_norm":
        assert accepted(edge, slice(1, 2)) == []
    assert not any("prove nothing" in note for note in found.notes)


def test_what_was_drawn_milder_is_said(tmp_path: Path) -> None:
    """Torch sums squares where channels come last, and loses all digits of rows of mean 1024."""
    op = INEXACT["group_norm"][0]
    milder, as_ever = (
        prepared(tmp_path / name, op, partial(INEXACT[name][1], torch.float32, 4)).notes
        for name in ("group_norm", "group_norm_contiguous")
    )
    (note,) = (note for note in milder if "milder" in note)
    assert note.endswith("would pass as the right answer: mean 1024, deviation 1 became mean 32, deviation 1")
    assert not any("milder" in note for note in as_ever)


CANCELS = """
import pytest_cgins

@pytest_cgins.mark
def cancels(x):
    return (x + 1e10) - 1e10
"""


def test_a_set_that_nothing_helps_is_named(tmp_path: Path, project: Callable[[str], ModuleType]) -> None:
    """An op that cancels whatever it is given accepts zeros: of the edge rows and of other sizes the report says so."""
    module = project(CANCELS)
    found = prepared(tmp_path / "pack", f"{module.__name__}.cancels", lambda: module.cancels(normal(6, 20)))
    notes = [note for note in found.notes if "prove nothing" in note]
    assert notes[0] == ("edge inputs: zeros would pass as the right answer, so these inputs prove nothing")
    assert notes[1] == (
        "probe sizes: on some inputs zeros would pass as the right answer, so these inputs prove nothing"
    )
    assert [note.split(":")[0] for note in notes[1:]] == ["probe sizes", "probe layouts"]


def test_few_fresh_elements_are_drawn_again_while_a_forged_answer_is_right(tmp_path: Path) -> None:
    """Seeds by which relu dropped all recorded, fresh and edge elements: zeros passed, and a right kernel was `WEAK`."""
    torch.manual_seed(0)
    record(tmp_path, lambda: functional.relu(torch.randn(2, 3)), "torch.nn.functional.relu", tier="recipe")
    reader = open_pack(tmp_path)
    (trace,) = reader.pack.traces
    for seed in (*range(1_000_363, 1_000_366), 1_001_614):
        power = prepare(trace, reader, "cpu", seed).power(DERIVED)
        assert [one.forgery for one in power if not one.caught] == []
