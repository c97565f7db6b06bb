from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.importers.solexecbench import _shaped, _tolerance

CODE = """import torch


def make_inputs(axes_and_scalars, device):
    rows, experts = axes_and_scalars["rows"], axes_and_scalars["experts"]
    assert axes_and_scalars["half"] == 4 and axes_and_scalars["scale"] == 2.0
    return {"x": torch.ones(rows, 8, device=device), "router": torch.arange(rows, device=device) % experts}


def run(x, router, scale):
    return x * (router[:, None] + scale)
"""
PROBLEM = {
    "name": "Route-1.5B rows",
    "axes": {
        "rows": {"type": "var"},
        "half": {"type": "const", "value": 4},
        "width": {"type": "expr", "expression": "half * 2"},
        "experts": {"type": "const", "value": 3},
    },
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float32"},
        "router": {"shape": ["rows"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "float32"}},
    "custom_inputs_entrypoint": "make_inputs",
    "reference": CODE,
}


def workload(rows: int, *, kind: str = "custom", **more: Any) -> str:
    inputs = {"x": {"type": kind}, "router": {"type": kind}, "scale": {"type": "scalar", "value": 2.0}}
    return json.dumps({"uuid": f"w{rows}", "axes": {"rows": rows}, "inputs": inputs, **more})


@pytest.fixture
def problem(write: Callable[..., Path]) -> Callable[..., None]:
    def make(*lines: str, **changes: Any) -> None:
        write("set/route/definition.json", {**PROBLEM, **changes})
        write("set/route/workload.jsonl", "\n".join(lines) + "\n\n")

    return make


def test_workloads_become_traces(cgins: Callable[..., Any], problem: Callable[..., None]) -> None:
    """The entry point of the code makes inputs; sizes follow from others, and drawn ones are the same each time."""
    problem(workload(5), workload(6, kind="random"))
    run = cgins("import", "solexecbench", "set", "--allow-code", "--tier", "full")
    assert run.ops() == ["references.sol_route_1_5b_rows.run"] * 2, run.out
    reader = open_pack(Path("pack"))
    x, router = load_inputs(next(one for one in reader.pack.traces if "5x8" in one.signature), reader, "cpu")
    assert x.eq(1).all()
    assert router.tolist() == [0, 1, 2, 0, 1]
    again = cgins("import", "solexecbench", "set/route", "--allow-code", "--tier", "full", "--out", "again")
    assert {one.id for one in again.pack.traces} == {one.id for one in run.pack.traces}


def test_each_tolerance_is_that_of_its_workloads(
    cgins: Callable[..., Any], problem: Callable[..., None]
) -> None:
    """Workloads with another tolerance are of another op with the same code, since an op has one in cgins.yaml."""
    problem(
        workload(5),
        workload(6, tolerance={"max_atol": 0.5}),
        workload(7, tolerance={"required_matched_ratio": 0.9}),
    )
    run = cgins("import", "solexecbench", "set", "--allow-code", "--config", "cgins.yaml")
    assert run.code == 0, run.out
    kernels = yaml.safe_load(Path("cgins.yaml").read_text())["kernels"]
    assert {kernel["op"].split(".")[1]: kernel["tolerance"] for kernel in kernels.values()} == {
        "sol_route_1_5b_rows": {"rtol": 0.01, "atol": 0.01},
        "sol_route_1_5b_rows_tolerance2": {"rtol": 0.01, "atol": 0.5},
    }
    assert len([op for op in run.ops() if op.endswith("rows.run")]) == 2
    assert "required_matched_ratio is not taken over" in run.out


@pytest.mark.parametrize(
    ("line", "changes", "reason"),
    [
        (workload(5, axes={}), {}, "axis rows has no size"),
        (workload(10**9, kind="random"), {}, "MiB, more than --max-mib"),
        (workload(5), {"custom_inputs_entrypoint": "nothing"}, "it defines no nothing"),
        (workload(5), {"custom_inputs_entrypoint": None}, "has no text 'custom_inputs_entrypoint'"),
        (workload(5, tolerance={"max_atol": -1}), {}, "max_rtol 0.01 and max_atol -1 are no tolerance"),
        (workload(5, tolerance=[]), {"reference": "import torch\n"}, "it defines no run"),
        ("[1]", {}, "left out  route workload.jsonl:1: "),
        (workload(5, kind="what"), {}, "input x is of type 'what'"),
        (workload(5, kind="random"), {"axes": {**PROBLEM["axes"], "width": {"type": "expr", "expression": "width + 1"}}}, "RecursionError"),  # type: ignore[dict-item]
    ],
)  # fmt: skip
def test_what_is_left_out(
    cgins: Callable[..., Any], problem: Callable[..., None], line: str, changes: dict[str, Any], reason: str
) -> None:
    """A workload that does not fit is left out with the reason, and nothing is written."""
    problem(line, **changes)
    run = cgins("import", "solexecbench", "set", "--allow-code")
    assert run.code == 1
    assert reason in run.out
    assert run.pack is None


def test_stored_inputs_are_found_below_the_problem(
    cgins: Callable[..., Any], problem: Callable[..., None], tmp_path: Path
) -> None:
    """A path may begin with folders of the repository that the set was made in; one that leads out is refused."""
    stored = {"type": "safetensors", "path": "data/trace/blob/r.safetensors", "tensor_key": "r"}
    given = {"x": {"type": "random"}, "router": stored, "scale": {"type": "scalar", "value": 2.0}}
    problem(
        workload(3, inputs=given),
        workload(4, inputs={**given, "router": {**stored, "path": "../../r.safetensors"}}),
    )
    (tmp_path / "set/blob").mkdir()
    save_file({"r": torch.tensor([2, 0, 1])}, tmp_path / "set/blob/r.safetensors")
    save_file({"r": torch.tensor([2, 0, 1, 1])}, tmp_path / "r.safetensors")
    run = cgins("import", "solexecbench", "set", "--allow-code", "--tier", "full")
    reader = open_pack(Path("pack"))
    assert [load_inputs(one, reader, "cpu")[1].tolist() for one in reader.pack.traces] == [[2, 0, 1]]
    assert "../../r.safetensors is outside of set" in run.out


@pytest.mark.parametrize(
    ("name", "description", "holds"),
    [
        ("input_layernorm_weight", "", lambda made: (made - 1).abs().max() < 1),
        ("rstd", "", lambda made: made.min() >= 0.1),
        ("A_log", "", lambda made: made.max() < 0),
        ("sin_cached", "", lambda made: made.abs().max() <= 1),
        ("probs", "softmax output", lambda made: torch.allclose(made.sum(-1), torch.ones(8))),
        ("text_mask", "", lambda made: set(made.unique().tolist()) == {0.0, 1.0}),
        ("mask", "a causal mask", lambda made: made.tril().eq(0).all() and made[0, 1] < -1e30),
        ("gate_proj", "", lambda made: 0.2 < made.std() < 0.5),
        ("x", "", lambda made: 0.8 < made.std() < 1.2),
    ],
)
def test_inputs_are_what_they_are_called(
    name: str, description: str, holds: Callable[[torch.Tensor], bool]
) -> None:
    """A normal number is no standard deviation, and no probability."""
    drawn = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    assert holds(_shaped(name, drawn, description))


@given(
    st.dictionaries(
        st.sampled_from(["max_rtol", "max_atol"]), st.none() | st.booleans() | st.floats() | st.text()
    )
    | st.none()
    | st.text()
)
def test_a_tolerance_is_numbers_or_refused(stated: Any) -> None:
    """Whatever a file says, what comes out can stand in cgins.yaml."""
    try:
        rtol, atol = _tolerance(stated)
    except RecordError:
        return
    assert 0 <= rtol < float("inf")
    assert 0 <= atol < float("inf")
