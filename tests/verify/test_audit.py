"""`cgins traces audit`: traces that cannot tell a wrong kernel are found, and scale alone does not make one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pytest_cgins.app import cli
from pytest_cgins.config import Tolerance
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording.record import record
from pytest_cgins.verify.audit import THRESHOLD, TraceAudit, audit

functional = torch.nn.functional
Audited = Callable[..., TraceAudit]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    """Record one call under tmp_path/"pack", and audit it."""

    def run(op: str, body: Callable[[], object], tier: str = "full") -> TraceAudit:
        torch.manual_seed(0)
        with record(tmp_path / "pack", ops=[op], tier=tier):
            body()
        reader = open_pack(tmp_path / "pack")
        (trace,) = reader.pack.traces
        return audit(trace, reader, "cpu", seed=0, tolerance=Tolerance())

    return run


@pytest.fixture
def audited_op(project: Callable[[str], ModuleType], audited: Audited) -> Audited:
    """Audit a marked function of two arguments, of which the second may be left out, by its text."""

    def run(signature: str, formula: str, *tensors: torch.Tensor) -> TraceAudit:
        module = project(
            f"import pytest_cgins\n@pytest_cgins.mark\ndef op({signature}):\n    return {formula}\n"
        )
        return audited(f"{module.__name__}.op", lambda: module.op(*tensors))

    return run


def forgeries(found: TraceAudit) -> list[str]:
    return [f"{one.forgery} {one.where}".strip() for one in found.accepted]


@pytest.mark.parametrize("tier", ["shapes", "recipe", "full"])
def test_an_ordinary_trace_trips_nothing(audited: Audited, tier: str) -> None:
    """All five filters apply to a linear layer, and none is below its threshold."""
    found = audited(
        "torch.nn.functional.linear",
        lambda: functional.linear(torch.randn(6, 8), torch.randn(5, 8), torch.randn(5)),
        tier,
    )
    assert [one.name for one in found.filters] == ["range", "seeds", "axis", "initialisation", "inputs"]
    assert all(one.value is not None and one.value > THRESHOLD for one in found.filters)
    assert (found.tripped, found.weak) == ((), False)


def test_small_answers_are_a_matter_of_scale(audited: Audited) -> None:
    """Probabilities of eight thousand classes lie within ±0.01, and no forgery passes."""
    found = audited("torch.nn.functional.softmax", lambda: functional.softmax(torch.randn(1, 8000), -1))
    assert {"range", "seeds", "axis"} <= set(found.tripped)
    assert not found.weak


def test_a_softmax_over_one_class_is_weak(audited: Audited) -> None:
    """It is 1 whatever goes in: ones pass, and so does everything that exploits a constant."""
    found = audited("torch.nn.functional.softmax", lambda: functional.softmax(torch.randn(4, 1), -1))
    assert forgeries(found) == ["ones", "permuted-gold", "other-draw", "repeated-slice axis 0"]
    assert {"seeds", "axis", "inputs"} <= set(found.tripped)
    assert "range" not in found.tripped


def test_an_output_of_zeros_is_weak(audited: Audited) -> None:
    """All filters on outputs and inputs trip."""
    found = audited("torch.Tensor.mul", lambda: torch.randn(4, 5).mul(0))
    assert "zeros" in forgeries(found)
    assert {"range", "seeds", "axis", "inputs"} <= set(found.tripped)


def test_an_axis_of_equal_slices_is_named(audited_op: Audited) -> None:
    """A mean that is broadcast again is the same along its axis, and only there."""
    found = audited_op("x", "x.mean(1, keepdim=True).expand_as(x).contiguous()", torch.randn(4, 6))
    assert forgeries(found) == ["repeated-slice axis 1"]
    assert (found.weak, found.exploitable) == (False, True)
    assert found.tripped == ("axis",)
    assert found.accepted[0].why == "one slice repeated along axis 1 passes"


def test_an_argument_that_does_not_count_is_named(audited_op: Audited) -> None:
    """A bias that is not used: the threshold sees it, and so does the gate."""
    found = audited_op("x, bias", "x * 2", torch.randn(4, 6), torch.randn(6))
    assert forgeries(found) == ["other-argument bias"]
    assert found.tripped == ("initialisation",)
    assert found.accepted[0].remedy == "record a call in which that argument counts"


def test_a_weight_that_counts_little_is_not_weak(audited_op: Audited) -> None:
    """It moves answers by less than 0.01, and the derived tolerance tells it."""
    found = audited_op("x, bias", "x + bias * 1e-4", torch.randn(4, 6), torch.randn(6))
    assert found.tripped == ("initialisation",)
    assert not found.weak


def test_an_answer_that_swamps_an_argument_is_weak_above_the_threshold(audited_op: Audited) -> None:
    """In bf16 a bias of size 1 is lost in answers of size 1e5, though they may move by more than 0.01."""
    found = audited_op("x, bias", "x + bias + 1e5", torch.randn(4, 6).bfloat16(), torch.randn(6).bfloat16())
    assert "other-argument bias" in forgeries(found)


def test_an_argument_that_the_op_never_looks_at_is_not_weak(tmp_path: Path) -> None:
    """The gradient of a linear layer's weight does not depend on the weight."""
    torch.manual_seed(0)
    weight = torch.randn(4, 6, requires_grad=True)
    with record(tmp_path / "pack", ops=["torch.nn.functional.linear@backward(weight)"]):
        functional.linear(torch.randn(5, 6), weight).pow(2).sum().backward()
    reader = open_pack(tmp_path / "pack")
    found = audit(reader.pack.traces[0], reader, "cpu", seed=0, tolerance=Tolerance())
    assert forgeries(found) == []


def test_integers_can_be_learnt_by_heart(audited: Audited) -> None:
    """Nothing can be drawn anew: the filters over draws do not apply."""
    found = audited("torch.Tensor.add", lambda: torch.arange(5).add(torch.tensor([3, 1, 4, 1, 5])))
    assert forgeries(found) == ["by-heart"]
    values = {one.name: one.value for one in found.filters}
    assert [values[name] for name in ("seeds", "initialisation", "inputs")] == [None, None, None]
    assert values["range"] == 9.0


MASK = torch.full((4, 4), -torch.inf).triu(1)


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("torch.Tensor.relu_", lambda: torch.randn(4, 6).relu_()),  # audited by what it changed
        ("torch.Tensor.add", lambda: torch.randn(4, 4).add(MASK)),  # infinities are the same in all draws
    ],
)
def test_nor_ops_in_place_nor_masks_hide_anything(
    audited: Audited, op: str, body: Callable[[], object]
) -> None:
    """Nothing trips, and no movement is infinite."""
    found = audited(op, body)
    assert (found.tripped, found.weak) == ((), False)
    assert all(one.value is None or one.value < 1e6 for one in found.filters)


def test_an_empty_output_is_not_weak(audited: Audited) -> None:
    """There is nothing to compare, which the gate skips, and no filter has a value."""
    found = audited("torch.nn.functional.relu", lambda: functional.relu(torch.randn(0, 3)))
    assert (found.weak, found.exploitable) == (False, False)
    assert any("the gate skips it" in note for note in found.notes)
    assert all(one.value is None for one in found.filters)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    with record(tmp_path / "pack", tier="full"):
        functional.gelu(torch.randn(3, 4))
        functional.softmax(torch.randn(4, 1), -1)
    return tmp_path / "pack"


def test_the_command_names_weak_traces_and_remedies(pack: Path, capsys) -> None:
    """Status 0, and 1 with --strict."""
    assert cli.main(["traces", "audit", str(pack)]) == 0
    out = capsys.readouterr().out
    assert "WEAK" in out
    assert "torch.nn.functional.softmax" in out
    assert "gelu" not in out
    assert "ones pass" in out
    assert f"{pack}: 2 traces, 1 weak, 0 below a threshold only" in out
    assert cli.main(["traces", "audit", "--strict", str(pack)]) == 1


def test_the_command_prints_json(pack: Path, capsys) -> None:
    """By pack, one document a trace."""
    assert cli.main(["traces", "audit", "--json", "--seed", "3", str(pack)]) == 0
    (audits,) = json.loads(capsys.readouterr().out).values()
    assert {one["op"].rpartition(".")[2]: one["weak"] for one in audits} == {"gelu": False, "softmax": True}
    assert all(len(one["filters"]) == 5 for one in audits)


def test_random_ops_are_told_apart_from_failures(tmp_path: Path, capsys) -> None:
    """Their elements cannot be compared: that is no fault of the pack."""
    with record(tmp_path / "pack", ops=["torch.nn.functional.dropout"]):
        functional.dropout(torch.ones(4, 4))
    assert cli.main(["traces", "audit", "--strict", str(tmp_path / "pack")]) == 0
    assert "1 draws random numbers and is not audited" in capsys.readouterr().out


def test_a_trace_that_cannot_be_run_is_a_failure(project, tmp_path: Path, capsys, monkeypatch) -> None:
    """Status 1 without --strict too."""
    from pytest_cgins.packs import ops

    module = project("def scale(x):\n    return x * 2\n")
    with record(tmp_path / "pack", ops=[f"{module.__name__}.scale"]):
        module.scale(torch.randn(4))
    monkeypatch.setattr(ops, "_trusted", set())
    assert cli.main(["traces", "audit", str(tmp_path / "pack")]) == 1
    assert "neither a torch op nor a marked function" in capsys.readouterr().err
    assert cli.main(["traces", "audit", "--trust", f"{module.__name__}.scale", str(tmp_path / "pack")]) == 0
