from __future__ import annotations

import contextlib
import copy
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.importers import backendbench
from pytest_cgins.recording.importers.backendbench import ABBREVIATIONS, _Reader
from pytest_cgins.recording.importers.collect import Collector

TEXT = """Operator: aten.add.Tensor
cnt: 3, ((T([5, 5], f32), T([5, 5], f32)), {})
cnt: 0, ((T([5, 5], f16), 2.0), {'alpha': 1})
Operator: aten.embedding.default
cnt: 2, ((T([30, 8], f32), T([4, 7], i64)), {})
Operator: aten._softmax.default
cnt: 4, ((T([4, 9], f32, [1, 4]), -1, False), {})
Operator: aten.cat
cnt: 1, (([T([2, 3], bf16), T([4, 3], bf16)],), {'dim': 0})
"""


def options(source: Path, **settings: object) -> Namespace:
    return Namespace(
        source=source, **{"max_mib": 1, "device": "cpu", "functional": False, "only": "", **settings}
    )


def args_of(text: str) -> Any:
    return _Reader(torch.Generator().manual_seed(0), 1.0).call(text)


def test_a_text_becomes_traces(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """Every line becomes a trace of its overload, with its count, dtypes and strides."""
    run = cgins("import", "backendbench", write("ops.txt", TEXT))
    assert run.code == 0
    traces = {trace.signature.split("-")[0] + trace.call.op: trace for trace in run.pack.traces}
    assert traces["f32torch.ops.aten.add.Tensor"].count == 3
    assert traces["f16torch.ops.aten.add.Tensor"].count == 1
    assert traces["f32torch.ops.aten._softmax.default"].tensors[0].stride == (1, 4)
    assert [meta.shape for meta in traces["bf16torch.ops.aten.cat.default"].tensors] == [(2, 3), (4, 3)]
    assert "torch.ops.aten.embedding.default" in run.ops()


def test_functional_names(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """With --functional an overload that a torch function stands for has its name; --only picks ops."""
    run = cgins("import", "backendbench", write("ops.txt", TEXT), "--functional", "--only", "add")
    assert run.ops() == ["torch.add", "torch.add"]


def test_json_lines(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """The data set's rows as JSON lines are read as well, dtypes and devices in quotes too."""
    rows = [
        {"op_name": "aten.relu.default", "args": "((T([3], f32, None, 'cpu'),), {})", "count": 7},
        {"op_name": "aten.to.dtype", "args": "((T([3], 'f32'), torch.float16), {})", "count": 1},
        {"op_name": "aten.sum.SymInt", "args": "((T([3, 2], f32), [-1]), {'dtype': th.float64})", "count": 1},
    ]
    run = cgins("import", "backendbench", write("ops.jsonl", "\n".join(map(json.dumps, rows))))
    assert run.ops() == [
        "torch.ops.aten.relu.default",
        "torch.ops.aten.sum.dim_IntList",
        "torch.ops.aten.to.dtype",
    ]
    assert run.pack.traces[0].count == 7


@pytest.mark.parametrize(
    ("op", "args", "index"),
    [
        ("embedding.default", "T([30, 8], f32), T([400], i64)", 1),
        ("gather.default", "T([3, 70], f32), 0, T([2, 70], i64)", 1),
        ("index_select.default", "T([9, 5], f32), 1, T([64], i32)", 1),
        ("nll_loss_forward.default", "T([64, 11], f32), T([64], i64), None, 1, -100", 1),
        ("index.Tensor", "T([7, 6], f32), [T([50], i64)]", 1),
    ],
)
def test_indices_are_within_bounds(
    cgins: Callable[..., Any], write: Callable[..., Path], op: str, args: str, index: int
) -> None:
    """Integer tensors of indexing ops are drawn from what they index, so that torch takes them."""
    run = cgins("import", "backendbench", write("ops.txt", f"Operator: aten.{op}\ncnt: 1, (({args}), {{}})"))
    assert run.code == 0, run.out
    assert run.pack.traces[0].replay == "bitwise"


@pytest.mark.parametrize(
    ("op", "args", "reason"),
    [
        ("aten.nope.default", "T([4], f32),", "no op is called torch.ops.aten.nope.default"),
        ("os.system", "'true',", "'os.system' is not an ATen op"),
        ("aten.mm.default", "T([4, 9], f32), T([4, 9], f32)", "RuntimeError: mat1 and mat2 shapes"),
        ("aten.sin.default", "T([4096, 4096], f32),", "a tensor of 64 MiB, more than --max-mib"),
        ("aten.sin.default", "__import__('os').system('true'),", "is not on the allow-list"),
        ("aten.sin.default", "T([-3], f32),", "[-3] are not sizes of a tensor"),
        ("aten.sin.default", "T([3], f99),", "'f99' is not on the allow-list"),
    ],
)
def test_refused_lines(
    cgins: Callable[..., Any], write: Callable[..., Path], op: str, args: str, reason: str
) -> None:
    """A line that torch or the allow-list refuses is left out by name, with the reason."""
    run = cgins(
        "import",
        "backendbench",
        write("ops.txt", f"Operator: {op}\ncnt: 1, (({args}), {{}})"),
        "--max-mib",
        8,
    )
    assert run.code == 1
    assert f"left out  {op} (({args})" in run.out
    assert reason in run.out


def test_other_files(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A parquet file is named with what to make of it; a text without calls is an error."""
    assert "orient='records'" in cgins("import", "backendbench", write("ops.parquet", "PAR1")).err
    assert "has no line «cnt: N" in cgins("import", "backendbench", write("ops.txt", "hello")).err
    assert (
        "before the first «Operator"
        in cgins("import", "backendbench", write("b.txt", "cnt: 1, ((), {})")).err
    )


def test_inputs_depend_on_the_line_alone(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Importing twice gives the same traces, whatever stood before in the file."""
    ids = []
    for number, text in enumerate((TEXT, "\n".join(TEXT.splitlines()[:2]))):
        with Collector(tmp_path / f"pack{number}", "full") as collector:
            backendbench.run(options(write("o.txt", text), only="add"), collector)
            collector.finish()
        traces = open_pack(tmp_path / f"pack{number}").pack.traces
        ids.append({trace.id for trace in traces if trace.dtype == "float32"})
    assert ids[0] == ids[1]


_LEAF = st.none() | st.booleans() | st.integers(-99, 99) | st.text("abxy", max_size=3)


@pytest.mark.exam
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from(sorted(ABBREVIATIONS)),
    others=st.lists(_LEAF | st.lists(_LEAF, max_size=3), max_size=3),
)
def test_reading_is_the_inverse_of_writing(shape: list[int], dtype: str, others: list[Any]) -> None:
    """A tensor's shape and dtype and all plain arguments come back from the text as they were written."""
    parts = [f"T({shape}, {dtype})", *map(repr, others)]
    (tensor, *read), keywords = args_of(f"(({', '.join(parts)},), {{'k': {others!r}}})")
    assert (list(tensor.shape), tensor.dtype) == (shape, ABBREVIATIONS[dtype])
    assert read == others
    assert keywords == {"k": others}


@given(text=st.text(max_size=60))
def test_any_text_is_a_call_or_an_error_of_ours(text: str) -> None:
    """Whatever stands in a line, nothing but RecordError comes out of reading it."""
    with contextlib.suppress(RecordError):
        args_of(text)


@pytest.mark.parametrize("count", ["many", [1], float("inf")])
def test_counts_that_are_none(cgins: Callable[..., Any], write: Callable[..., Path], count: Any) -> None:
    """A count that is not a number is an error with its value."""
    call = {"op_name": "aten.relu.default", "args": "((T([4], f32),), {})", "count": count}
    run = cgins("import", "backendbench", write("ops.json", [call]))
    assert run.code == 2
    assert "is not a count" in run.err


def test_lines_that_are_neither_are_told(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A line that is not understood is told, and calls after it do not go to the operator before it."""
    text = "Operator: aten.relu.default\ncnt: 3, ((T([4], f32),), {})\ncnt: x\nOperator : aten.tanh\n"
    text += f"cnt: 1, ((T([5], f32),), {{}})\ncnt: {'9' * 5000}, ((T([6], f32),), {{}})\n"
    run = cgins("import", "backendbench", write("ops.txt", text))
    assert [trace.tensors[0].shape for trace in run.pack.traces] == [(4,)]
    assert "ops.txt:3: 'cnt: x' is neither" in run.out
    assert "'Operator : aten.tanh' is not an ATen op" in run.out
    assert "4 left out" in run.out


def test_a_trial_does_not_change_what_is_recorded(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial on the CPU before a GPU's call has inputs of its own, or in-place ops would run twice."""
    monkeypatch.setattr(backendbench, "on", lambda _, values: copy.deepcopy(values))
    source = write("ops.txt", "Operator: aten.relu_.default\ncnt: 1, ((T([64], f32),), {})\n")
    with Collector(tmp_path / "pack", "full") as collector:
        backendbench.run(options(source, device="elsewhere"), collector)
        collector.finish()
    reader = open_pack(tmp_path / "pack")
    (tensor,) = load_inputs(reader.pack.traces[0], reader, "cpu")
    assert (tensor < 0).any()


def test_outputs_are_held_against_the_limit(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A call whose result is beyond --max-mib is left out."""
    text = "Operator: aten.repeat.default\ncnt: 1, ((T([2], f32), [30000000]), {})\n"
    run = cgins("import", "backendbench", write("ops.txt", text), "--max-mib", "64")
    assert run.code == 1
    assert "its outputs have 229 MiB" in run.out
