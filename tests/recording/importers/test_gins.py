from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
RAND = "torch.randn(4, 4)"


def program(*operations: tuple[str, str, list[str]], **definitions: str) -> dict[str, Any]:
    return {
        "name": "p",
        "operations": [{"assignment": a, "operation": o, "inputs": i} for a, o, i in operations],
        "definitions": [{"variable": name, "value": value} for name, value in definitions.items()],
    }


def test_the_example_file(cgins: Callable[..., Any]) -> None:
    """The example's programs are imported whole; its GPU is mapped to the CPU where there is none."""
    run = cgins("import", "gins", ROOT / "example_project/benchmarks/initial_testing.json")
    assert run.code == 0
    assert run.ops() == ["torch.matmul"] * 3 + ["torch.sin"] * 2
    assert "5 traces" in run.out
    assert "0 left out" in run.out
    assert ("device 'cuda' was mapped to the CPU" in run.out) is not torch.cuda.is_available()


def test_operations_share_a_context(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """An operation takes what an earlier one made, and a name may be assigned anew."""
    source = write(
        "p.json",
        [
            program(
                ("c", "torch.matmul", ["a", "b"]),
                ("c", "torch.sin", ["c"]),
                ("d", "torch.nn.functional.softmax", ["c", "dim=-1"]),
                a="torch.randn(3, 4)",
                b="a.T",
            )
        ],
    )
    run = cgins("import", "gins", source, "--tier", "full")
    assert [trace.tensors[0].shape for trace in run.pack.traces] == [(3, 4), (3, 3), (3, 3)]
    (softmax,) = [trace for trace in run.pack.traces if trace.call.op.endswith("softmax")]
    assert {one.name: one.passed for one in softmax.call.arguments}["dim"] == "keyword"


def test_what_fails_takes_only_its_users_along(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A refused definition leaves out the operations that need it, each with the reason, and no others."""
    source = write(
        "p.json",
        [
            program(
                ("c", "torch.sin", ["bad"]),
                ("d", "torch.cos", ["c"]),
                ("e", "torch.cos", ["good"]),
                ("f", "torch.mm", ["good", "torch.ones(9, 9)"]),
                bad="open('/etc/passwd')",
                good=RAND,
            )
        ],
    )
    run = cgins("import", "gins", source)
    assert run.code == 0
    assert run.ops() == ["torch.cos"]
    assert "left out  p/0:c: its input bad is not there: \"open('/etc/passwd')\": open is not on" in run.out
    assert "left out  p/1:d: its input c is not there: p/0:c was left out" in run.out
    assert "left out  p/3:f: RuntimeError: mat1 and mat2 shapes" in run.out


def test_only_torch_ops_are_run(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """An operation that is no torch op is refused before it is called."""
    source = write(
        "p.json", [program(("c", "os.mkdir", ["str('made')"]), ("d", "torch.load", ["a"]), a=RAND)]
    )
    run = cgins("import", "gins", source)
    assert run.code == 1
    assert run.pack is None
    assert "os.mkdir is not a torch op" in run.out
    assert not (tmp_path / "made").exists()


def test_a_call_that_cannot_be_recorded_still_gives_its_value(
    cgins: Callable[..., Any], write: Callable[..., Path]
) -> None:
    """What comes after an unrecordable call works on its result."""
    source = write(
        "p.json", [program(("n", "torch.numel", ["a"]), ("d", "torch.mul", ["a", "n"]), a="torch.ones(4)")]
    )
    run = cgins("import", "gins", source)
    assert run.ops() == ["torch.mul"]
    assert "left out  p/0:n: " in run.out


def test_a_file_of_another_form_is_an_error(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A file that is not a list of programs, or no JSON, is named with what it should be."""
    run = cgins("import", "gins", write("p.json", {"name": "p"}))
    assert run.code == 2
    assert "a list of programs should be a list of objects" in run.err
    assert "is not JSON" in cgins("import", "gins", write("q.json", "[")).err


def test_sizes_are_limited(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """A definition beyond --max-mib is refused with both sizes."""
    source = write("p.json", [program(("c", "torch.sin", ["a"]), a="torch.randn(2048, 2048)")])
    run = cgins("import", "gins", source, "--max-mib", 4)
    assert run.code == 1
    assert "a tensor of 16 MiB; 4 MiB are allowed" in run.out


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (["a) + torch.sin(a"], "its inputs are"),
        (["**a"], "its inputs are"),
        (["a", "dim=0", "dim=1"], "its inputs are"),
        ("a", "its inputs are 'a'"),
        ({"a": 1}, "its inputs are"),
        (None, "its inputs are 'None'"),
        (["a @ torch.ones(3, 3)"], "RuntimeError"),
        (["1/0"], "ZeroDivisionError"),
        (["int('x')"], "ValueError"),
    ],
)
def test_inputs_that_are_none(
    cgins: Callable[..., Any], write: Callable[..., Path], inputs: Any, reason: str
) -> None:
    """Inputs of another form, and expressions that torch refuses, leave out their operation alone."""
    good = ("d", "torch.cos", ["a"])
    run = cgins("import", "gins", write("p.json", [program(("c", "torch.sum", inputs), good, a=RAND)]))
    assert run.ops() == ["torch.cos"]
    assert f"left out  p/0:c: {reason}" in run.out


def test_a_program_imports_no_module(
    cgins: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    """A module that a program names is not imported, even if it lies in the folder: that would run it."""
    write("beside.py", f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(x):\n    return x\n")
    run = cgins("import", "gins", write("p.json", [program(("c", "beside.f", ["a"]), a=RAND)]))
    assert run.code == 1
    assert "beside.f is not a torch op" in run.out
    assert not (tmp_path / "ran").exists()


def test_outputs_are_held_against_the_limit(cgins: Callable[..., Any], write: Callable[..., Path]) -> None:
    """An operation whose result is beyond --max-mib is left out before it takes the memory."""
    operations = [("c", "torch.Tensor.repeat", ["a", "2**20", "2**20"]), ("d", "torch.sin", ["a"])]
    run = cgins("import", "gins", write("p.json", [program(*operations, a=RAND)]), "--max-mib", "1")
    assert run.ops() == ["torch.sin"]
    assert "its outputs have 67108864 MiB, more than the 1 MiB of --max-mib" in run.out
