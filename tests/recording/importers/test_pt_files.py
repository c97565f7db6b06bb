from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.packs.gold import load_gold
from pytest_cgins.packs.store import open_pack

LINEAR = "torch.nn.functional.linear"


def save(folder: Path, name: str, value: object) -> None:
    path = folder / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)


def test_pairs_of_each_form(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """X_inputs with X_gold, inputN with goldN, and an entry with all in one file become traces of tier full."""
    x, w = torch.rand(3, 4), torch.rand(5, 4)
    save(tmp_path / "d", "a_0_op0_inputs", [x, w])
    save(tmp_path / "d", "a_0_op0_gold", x @ w.T)
    save(tmp_path / "d", "linear/input1", {"args": [x.half()], "kwargs": {"weight": w.half()}})
    save(tmp_path / "d", "linear/gold1", x.half() @ w.half().T)
    entry = {"function_name": "torch.nn.functional.softmax", "args": [x], "kwargs": {"dim": -1}}
    save(tmp_path / "d", "softmax/entry_000000", {**entry, "output": x.softmax(-1)})
    run = cgins("import", "pt", tmp_path / "d", "--op", f"a_0={LINEAR}", "--op", f"linear={LINEAR}")
    assert run.code == 0
    assert run.pack.tier == "full"
    assert run.ops() == [LINEAR, LINEAR, "torch.nn.functional.softmax"]


def test_the_gold_is_theirs(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """Gold that is a few ulps from ours is kept as it is, and the trace replays within the derived rule."""
    x = torch.rand(64)
    theirs = x.sin() * (1 + 4 * torch.finfo(torch.float32).eps)
    save(tmp_path / "d", "sin_inputs", [x])
    save(tmp_path / "d", "sin_gold", theirs)
    run = cgins("import", "pt", tmp_path / "d", "--op", "torch.sin")
    reader = open_pack(tmp_path / "pack")
    (trace,) = reader.pack.traces
    assert trace.replay == "derived"
    assert load_gold(trace, reader)[0].values.equal(theirs)
    assert run.code == 0


def test_drift_is_left_out(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """Gold that this torch does not reproduce, in its values or its form, is left out as drift."""
    x = torch.rand(8)
    for name, answer in (("values", x.cos()), ("form", x.sin().double()), ("good", x.sin())):
        save(tmp_path / "d", f"{name}_inputs", [x])
        save(tmp_path / "d", f"{name}_gold", answer)
    run = cgins("import", "pt", tmp_path / "d", "--op", "torch.sin")
    assert run.code == 0
    assert len(run.pack.traces) == 1
    assert "left out  values: drift: torch.sin " in run.out
    assert "left out  form: drift: output 0 of their gold is float64 [8], the op gives float32 [8]" in run.out


def test_several_outputs(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """A list of outputs is the gold of an op that returns a tuple."""
    x = torch.rand(4, 6)
    values, indices = x.topk(2)
    save(tmp_path / "d", "inputs", [x, 2])
    save(tmp_path / "d", "gold", [values, indices])
    run = cgins("import", "pt", tmp_path / "d", "--op", "torch.topk")
    assert run.code == 0
    assert len(run.pack.traces[0].gold.tensors) == 2


@pytest.mark.parametrize(
    ("inputs", "gold", "reason"),
    [
        ([torch.ones(2)], None, "its gold, x_gold.pt, is not there"),
        ({"x": torch.ones(2)}, torch.ones(3), "holds neither a list of inputs nor args and kwargs"),
        ([torch.ones(2)], [torch.ones(2), torch.ones(2)], "their gold has 2 tensors, the op gives 1"),
        (3, torch.ones(2), "holds neither a list of inputs nor args and kwargs"),
    ],
)
def test_incomplete_pairs(
    cgins: Callable[..., Any], tmp_path: Path, inputs: object, gold: object, reason: str
) -> None:
    """What is missing or of another form is said of the pair."""
    save(tmp_path / "d", "x_inputs", inputs)
    if gold is not None:
        save(tmp_path / "d", "x_gold", gold)
    run = cgins("import", "pt", tmp_path / "d", "--op", "torch.relu")
    assert run.code == 1
    assert "left out  x: " in run.out
    assert reason in run.out


class Hostile:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("made",)


def test_code_in_a_file_does_not_run(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """A pickled call is refused, and so is a file that names a function outside torch as its op."""
    save(tmp_path / "d", "x_inputs", Hostile())
    save(tmp_path / "d", "x_gold", torch.ones(2))
    save(tmp_path / "d", "entry_0", {"function_name": "os.mkdir", "args": ["made"], "output": torch.ones(1)})
    run = cgins("import", "pt", tmp_path / "d", "--op", "x=torch.sin")
    assert run.code == 1
    assert "x_inputs.pt cannot be read with weights_only=True" in run.out
    assert "os.mkdir is not a torch op" in run.out
    assert not (tmp_path / "made").exists()


def test_the_op_must_be_known(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """A pair that says nothing of its op asks for it; a folder without pairs is an error."""
    save(tmp_path / "d", "x_inputs", [torch.ones(2)])
    save(tmp_path / "d", "x_gold", torch.ones(2))
    assert "pass --op x=torch.…" in cgins("import", "pt", tmp_path / "d").out
    (tmp_path / "empty").mkdir()
    assert "has no X_inputs.pt with X_gold.pt" in cgins("import", "pt", tmp_path / "empty").err
