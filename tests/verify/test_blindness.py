"""Each set of inputs refuses wrong answers by itself: where torch's own are too inexact it is drawn milder, or named."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.compare import accepts
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.power import permuted
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.prepare_options import PREPARED, PrepareOptions
from tests.verify.helpers import DERIVED, normal
from tests.verify.test_judge import record

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


CALLS: dict[str, tuple[str, Callable[[torch.dtype, int], object]]] = {
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


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_edge_rows_refuse_what_is_wrong(tmp_path: Path, name: str, dtype: torch.dtype, rows: int) -> None:
    """Zeros, ones, 0, ½ and 1 in turns, and moved rows: over the whole set, and in the row whose mean is large alone."""
    op, run = CALLS[name]
    found = prepared(tmp_path / "pack", op, lambda: run(dtype, rows))
    edge = next(made for made in found.core if made.expected.name == "edge")
    assert accepted(edge) == []
    if name != "batch_norm":
        assert accepted(edge, slice(1, 2)) == []
    assert not any("without power" in note for note in found.notes)


def test_what_was_drawn_milder_is_said(tmp_path: Path) -> None:
    """Torch sums squares where channels come last, and loses all digits of rows of mean 1024."""
    op = CALLS["group_norm"][0]
    milder, as_ever = (
        prepared(tmp_path / name, op, partial(CALLS[name][1], torch.float32, 4)).notes
        for name in ("group_norm", "group_norm_contiguous")
    )
    (note,) = (note for note in milder if "milder" in note)
    assert note.endswith("from the right answer: mean 1024, deviation 1 became mean 32, deviation 1")
    assert not any("milder" in note for note in as_ever)


CANCELS = """
import pytest_cgins

@pytest_cgins.mark
def cancels(x):
    return (x + 1e10) - 1e10
"""


def test_a_set_that_nothing_helps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that cancels whatever it is given accepts zeros: of the edge rows and of other sizes the report says so."""
    module = f"cancels_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(CANCELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    cancels = importlib.import_module(module).cancels
    found = prepared(tmp_path / "pack", f"{module}.cancels", lambda: cancels(normal(6, 20)))
    sys.modules.pop(module)
    notes = [note for note in found.notes if "without power" in note]
    assert notes[0] == (
        "the edge inputs are without power: torch's own answers to them do not tell zeros from the right answer"
    )
    assert notes[1] == (
        "the probe sizes is without power on some of its inputs: torch's own answers to them do not tell zeros from "
        "the right answer"
    )
    assert [note.split(" is ")[0] for note in notes[1:]] == ["the probe sizes", "the probe layouts"]
