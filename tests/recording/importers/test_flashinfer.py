from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.gold import load_gold
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.importers.flashinfer_export import call_of
from pytest_cgins.recording.record import record

GATHER = {
    "name": "scaled_gather",
    "op_type": "gather",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 8}, "n": {"type": "var"}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
        "index": {"shape": ["n"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n", "width"], "dtype": "bfloat16"}},
    "reference": "import torch\n\ndef run(x, index, scale):\n    return x[index] * scale\n",
}


def workload(name: str, rows: int, n: int, **inputs: Any) -> str:
    chosen = {
        "x": {"type": "random"},
        "index": {"type": "safetensors", "path": "blob/i.safetensors", "tensor_key": "i"},
        "scale": {"type": "scalar", "value": 0.5},
        **inputs,
    }
    document = {"uuid": f"{name}-{rows}", "axes": {"rows": rows, "n": n}, "inputs": chosen}
    return json.dumps({"definition": name, "solution": None, "workload": document, "evaluation": None})


@pytest.fixture
def trace_set(write: Callable[..., Path], tmp_path: Path) -> Callable[..., None]:
    def make(*lines: str, definition: dict[str, Any] | None = None) -> None:
        write("set/definitions/gather/scaled_gather.json", {**GATHER, **(definition or {})})
        write("set/workloads/gather/scaled_gather.jsonl", "\n".join(lines))
        (tmp_path / "set/blob").mkdir(exist_ok=True)
        save_file({"i": torch.tensor([3, 0, 3])}, tmp_path / "set/blob/i.safetensors")

    return make


def test_workloads_become_traces(cgins: Callable[..., Any], trace_set: Callable[..., None]) -> None:
    """Random, scalar and stored inputs are made as the workload says, for every workload."""
    trace_set(workload("scaled_gather", 4, 3), workload("scaled_gather", 5, 3))
    run = cgins("import", "flashinfer-bench", "set", "--allow-code", "--tier", "full")
    assert run.ops() == ["references.fib_scaled_gather.run"] * 2
    reader = open_pack(Path("pack"))
    x, index = load_inputs(reader.pack.traces[0], reader, "cpu")
    assert (x.shape, x.dtype) == ((4, 8), torch.bfloat16)
    assert index.tolist() == [3, 0, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (workload("scaled_gather", 2, 3), "IndexError: index 3 is out of bounds"),
        (workload("scaled_gather", 4, 2), "has torch.int64 [3], the definition says torch.int64 [2]"),
        (workload("other", 4, 3), "left out  other: 1 workload without a definition"),
        (workload("scaled_gather", 10**9, 3), "MiB, more than --max-mib"),
        (workload("scaled_gather", 4, 3, scale={"type": "what"}), "input scale is of type 'what'"),
        (
            workload("scaled_gather", 4, 3, index={"type": "safetensors", "path": "../i", "tensor_key": "i"}),
            "../i is outside of set",
        ),
        ("[1]", "left out  scaled_gather.jsonl:1: "),
    ],
)
def test_workloads_that_are_left_out(
    cgins: Callable[..., Any], trace_set: Callable[..., None], line: str, reason: str
) -> None:
    """A workload that does not fit is left out with the reason."""
    trace_set(line)
    run = cgins("import", "flashinfer-bench", "set", "--allow-code")
    assert run.code == 1
    assert reason in run.out


def test_a_pointer_of_git_lfs_is_named(
    cgins: Callable[..., Any], trace_set: Callable[..., None], write: Callable[..., Path]
) -> None:
    """A safetensors file that has not been fetched from LFS says so."""
    trace_set(workload("scaled_gather", 4, 3))
    write("set/blob/i.safetensors", "version https://git-lfs.github.com/spec/v1\n")
    run = cgins("import", "flashinfer-bench", "set", "--allow-code")
    assert "blob/i.safetensors is a Git LFS pointer; run git lfs pull" in run.out


def test_definitions_that_are_left_out(cgins: Callable[..., Any], trace_set: Callable[..., None]) -> None:
    """A reference without run, and a dtype that torch cannot compute with, leave the definition out."""
    trace_set(workload("scaled_gather", 4, 3), definition={"reference": "def go():\n    pass\n"})
    assert "it defines no run" in cgins("import", "flashinfer-bench", "set", "--allow-code").out
    inputs = {**GATHER["inputs"], "x": {"shape": ["rows"], "dtype": "float4_e2m1"}}  # type: ignore[dict-item]
    trace_set(workload("scaled_gather", 4, 3), definition={"inputs": inputs})
    assert "float4_e2m1 is not a dtype" in cgins("import", "flashinfer-bench", "set", "--allow-code").out
    assert "--allow-code" in cgins("import", "flashinfer-bench", "set").err


def test_export_and_import_give_the_same_calls(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """A pack of tier full that is exported and imported has the same inputs and the same gold."""
    weight = torch.randn(6)
    with torch.no_grad(), record(tmp_path / "mine", ["torch.nn.functional.layer_norm", "torch.cat"], "full"):
        for rows in (2, 5):
            torch.nn.functional.layer_norm(torch.randn(rows, 6), [6], weight, eps=1e-3)
        torch.cat([torch.randn(2, 3), torch.randn(4, 3)], dim=0)
    exported = cgins("export", "flashinfer-bench", "mine", "--out", "set")
    assert exported.code == 0
    assert "2 definitions in set, 0 traces left out" in exported.out
    run = cgins("import", "flashinfer-bench", "set", "--allow-code", "--tier", "full")
    assert run.code == 0, run.out
    assert _values(tmp_path / "mine") == _values(tmp_path / "pack")


def _values(folder: Path) -> set[tuple[Any, ...]]:
    reader = open_pack(folder)
    return {
        (
            *(tuple(tensor.flatten().tolist()) for tensor in load_inputs(trace, reader, "cpu")),
            *(tuple(gold.values.tolist()) for gold in load_gold(trace, reader)),
        )
        for trace in reader.pack.traces
    }


def test_export_shares_axes(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """Sizes that vary are variable axes, shared by all tensors that have them; numbers are scalar inputs."""
    with torch.no_grad(), record(tmp_path / "mine", ["torch.addmm"], "recipe"):
        for rows in (2, 5):
            torch.addmm(torch.randn(7), torch.randn(rows, 3), torch.randn(3, 7), beta=0.5)
    cgins("export", "flashinfer-bench", "mine", "--out", "set")
    (path,) = (tmp_path / "set/definitions").rglob("*.json")
    definition = json.loads(path.read_text())
    assert definition["axes"] == {
        "n7": {"type": "const", "value": 7},
        "axis0": {"type": "var"},
        "n3": {"type": "const", "value": 3},
    }
    assert definition["inputs"]["mat1"]["shape"] == ["axis0", "n3"]
    assert definition["inputs"]["beta"] == {"shape": None, "dtype": "float32"}
    assert definition["outputs"] == {"output": {"shape": ["axis0", "n7"], "dtype": "float32"}}
    (lines,) = (tmp_path / "set/workloads").rglob("*.jsonl")
    axes = [json.loads(line)["workload"]["axes"] for line in lines.read_text().splitlines()]
    assert sorted(one["axis0"] for one in axes) == [2, 5]
    assert not list(tmp_path.glob("set/blob"))


def test_exported_indices_keep_their_values(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """In tier recipe floats are random, and indices are written; --values writes all."""
    with torch.no_grad(), record(tmp_path / "mine", ["torch.nn.functional.embedding"], "recipe"):
        torch.nn.functional.embedding(torch.tensor([1, 4, 4]), torch.randn(5, 2))
    for out, stored in (("some", ["input"]), ("all", ["input", "weight"])):
        cgins("export", "flashinfer-bench", "mine", "--out", out, *(["--values"] if out == "all" else []))
        (lines,) = (tmp_path / out / "workloads").rglob("*.jsonl")
        inputs = json.loads(lines.read_text())["workload"]["inputs"]
        assert [name for name, spec in inputs.items() if spec["type"] == "safetensors"] == stored
        run = cgins("import", "flashinfer-bench", out, "--allow-code", "--out", f"pack_{out}")
        assert run.code == 0, run.out


def test_an_imported_reference_is_exported_as_it_was(
    cgins: Callable[..., Any], trace_set: Callable[..., None], tmp_path: Path
) -> None:
    """The reference of an imported definition comes back verbatim, without having been run again."""
    trace_set(workload("scaled_gather", 4, 3))
    cgins("import", "flashinfer-bench", "set", "--allow-code")
    assert cgins("export", "flashinfer-bench", "pack", "--out", "again").code == 0
    (path,) = (tmp_path / "again/definitions").rglob("*.json")
    assert json.loads(path.read_text())["reference"] == GATHER["reference"]


def test_a_hostile_pack_is_no_code(tmp_path: Path) -> None:
    """A pack whose argument is named like code is not exported as code."""
    with torch.no_grad(), record(tmp_path / "mine", ["torch.nn.functional.gelu"], "full"):
        torch.nn.functional.gelu(torch.ones(3), approximate="tanh")
    call = open_pack(tmp_path / "mine").pack.traces[0].call
    hostile = replace(call.arguments[1], name="approximate='none') or print(")
    assert hostile.passed == "keyword"
    with pytest.raises(RecordError, match="is not a parameter name"):
        call_of(replace(call, arguments=(call.arguments[0], hostile)))


def test_what_the_format_cannot_say(cgins: Callable[..., Any], tmp_path: Path) -> None:
    """Changed arguments, other dtypes and random draws are left out by name; a used folder is refused."""
    ops = ["torch.Tensor.add_", "torch.sin", "torch.nn.functional.dropout"]
    with torch.no_grad(), record(tmp_path / "mine", ops, "full"):
        torch.ones(3).add_(1)
        torch.sin(torch.ones(3, dtype=torch.float64))
        torch.nn.functional.dropout(torch.ones(3))
    run = cgins("export", "flashinfer-bench", "mine", "--out", "set")
    assert run.code == 1
    assert "the op changes its arguments" in run.out
    assert "the format has no float64" in run.out
    assert "the op draws random numbers" in run.out
    (tmp_path / "used").mkdir()
    (tmp_path / "used/file").touch()
    assert "already exists" in cgins("export", "flashinfer-bench", "mine", "--out", "used").err
