"""`cgins traces explain`: the distances told are those that `compare` holds answers to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins import record
from pytest_cgins.app import cli
from pytest_cgins.config import Tolerance
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.compare import compare
from pytest_cgins.verify.explain import Allowance, explain
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, prepare

DERIVED = Tolerance()


def prepared(folder: Path) -> Preparation:
    """The first trace of a pack, on the CPU."""
    reader = open_pack(folder)
    return prepare(reader.pack.traces[0], reader, "cpu", 1, PrepareOptions())


@pytest.fixture
def softmax(tmp_path: Path) -> Preparation:
    with record(tmp_path / "pack", ops=["torch.nn.functional.softmax"]):
        functional.softmax(torch.rand(16, 64).half(), -1)
    return prepared(tmp_path / "pack")


def test_one_element_may_be_off_by_what_is_told(softmax: Preparation) -> None:
    """Just within passes, just beyond fails: numbers of a softmax of numbers alike have one ulp."""
    (recorded, *_), told = softmax.core, list(explain(softmax, "cpu", DERIVED))
    gold = next(row for row in told if (row.inputs, row.rule) == ("recorded", "gold"))
    answer = recorded.expected.outputs[0].answer
    ulp = 2.0**-10 * 2.0 ** torch.floor(torch.log2(answer[3, 5].double()))
    for share, passes in ((0.9, True), (1.1, False)):
        wrong = answer.double()
        wrong[3, 5] += round(share * gold.allowed_ulp) * ulp
        checks = compare(recorded.expected, [wrong.half()], DERIVED)
        assert [check.passed for check in checks if check.rule == "gold"] == [passes]


def test_the_last_rounding_is_most_of_half_precision(softmax: Preparation) -> None:
    """torch errs by a quarter of an ulp in the middle; all together may err little more than rounding does."""
    row = next(row for row in explain(softmax, "cpu", DERIVED) if row.rule == "reference")
    assert row.dtype == "float16"
    assert row.torch_ulp == pytest.approx(0.25, abs=0.05)
    assert row.single_ulp < 0.01
    assert "mostly the last rounding (0.5 ulp)" in row.why
    assert 0.5 < row.rms_ulp < 2 < row.allowed_ulp
    assert 1.7 < row.allclose_ulp < 3.4  # 1.02 to 2.05 of rtol and 0.65 to 1.3 of atol


def test_a_tolerance_of_one_s_own_is_told_as_that(softmax: Preparation) -> None:
    """rtol 1e-3 is 1.02 to 2.05 ulp of float16; nothing is asked of all elements together."""
    explicit = replace(DERIVED, kind="explicit", rtol=1e-3, atol=0.0)
    row = next(iter(explain(softmax, "cpu", explicit)))
    assert (row.rule, row.why, row.rms_ulp) == ("gold", "rtol and atol of cgins.yaml", None)
    assert 1.02 < row.allowed_ulp < 2.05


def exact_rows(folder: Path) -> Iterator[Allowance]:
    with record(folder, ops=["torch.eq"]):
        torch.eq(torch.arange(6), 3)
    yield from explain(prepared(folder), "cpu", DERIVED)


def test_integers_have_no_tolerance(tmp_path: Path) -> None:
    assert {row.why for row in exact_rows(tmp_path / "pack")} == {"integers and booleans must be equal"}


def test_the_command_takes_a_case_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A table, JSON, and for a name that is none the nearest; a case of a GPU is explained on the CPU."""
    with record(tmp_path / "traces/tiny", ops=["torch.nn.functional.relu"]):
        functional.relu(torch.randn(6, 40))
    (tmp_path / "relu.py").write_text("def relu(input):\n    return input.clamp_min(0)\n")
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n"
        "  relu: {op: torch.nn.functional.relu, target: 'relu:relu', device: cuda, sources: [relu.py]}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["traces", "explain", "relu/*", "--cgins-seed", "7"]) == 0
    out = capsys.readouterr().out
    assert "ulp of float32, medians over elements" in out
    assert "seed 7" in out
    assert cli.main(["traces", "explain", "relu/*", "--json"]) == 0
    ((name, rows),) = json.loads(capsys.readouterr().out).items()
    assert {row["rule"] for row in rows} == {"gold", "reference"}
    assert cli.main(["traces", "explain", name.replace("relu", "rely", 1)]) != 0
    assert f'did you mean "{name}"' in capsys.readouterr().err


@pytest_cgins.mark
def to_int8(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8)


@pytest_cgins.mark
def to_e4m3(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("op", [to_int8, to_e4m3])
def test_on_a_grid_steps_are_told_and_how_many_may_be_off(tmp_path: Path, op) -> None:
    """As many as are told may be off by a step, where they are nearest to a boundary; one more may not."""
    with record(tmp_path / "pack", ops=[f"{__name__}.{op.__name__}"]):
        op(torch.randn(64, 512, generator=torch.Generator().manual_seed(3)), 0.02)
    case = prepared(tmp_path / "pack")
    fresh = next(one for one in case.core if one.expected.name == "fresh")
    row = next(row for row in explain(case, "cpu", DERIVED) if row.inputs == "fresh")
    assert (row.allowed_ulp, row.grid.steps, row.grid.compared) == (1.0, 1, 64 * 512)
    assert f"{row.grid.most} of 32768 elements may be off, by 1 step" in row.why
    assert row.grid.step == (1.0 if op is to_int8 else pytest.approx(4, rel=0.8))
    (output,) = fresh.expected.outputs
    right = output.answer.reshape(-1).float()
    up, down = (
        output.grid.rounding(output.grid.exact + error).to(output.answer.dtype).float()
        for error in (output.grid.error, -output.grid.error)
    )
    moved = torch.where(up != right, up, down)
    movable = (moved != right).nonzero().reshape(-1)
    assert len(movable) > row.grid.most
    for count, passes in ((row.grid.most, True), (row.grid.most + 1, False)):
        answer = right.clone()
        answer[movable[:count]] = moved[movable[:count]]
        checks = compare(fresh.expected, [answer.to(output.answer.dtype).reshape(output.shape)], DERIVED)
        assert [check.passed for check in checks if check.rule == "reference"] == [passes]
