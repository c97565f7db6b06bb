"""Fresh inputs of both signs for ops that nothing is known of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytest_cgins
from pytest_cgins.config import Declared
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, prepare


@pytest_cgins.mark
def rectified(x: torch.Tensor) -> torch.Tensor:
    return x.clamp_min(0.0)


@pytest_cgins.mark
def entropy_weighted(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return x * torch.log(p)


@pytest_cgins.mark
def refusing(x: torch.Tensor) -> torch.Tensor:
    if bool((x < 0).any()):
        raise ValueError("x must not be negative")
    return x + 1


def _rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.01


def _prepared(folder: Path, op: Callable[..., torch.Tensor], *args: Any, **options: Any) -> Preparation:
    name = f"{__name__}.{op.__name__}"
    with pytest_cgins.record(folder, ops=[name]):
        op(*args)
    reader = open_pack(folder)
    return prepare(reader.pack.traces[0], reader, "cpu", 1, PrepareOptions(**options))


def _signs(prepared: Preparation, name: str) -> set[float]:
    values = prepared.reference_set.expected.arguments[name]
    assert prepared.reference_set.expected.name == "fresh"
    return set(torch.sign(values).unique().tolist())


def test_an_argument_of_one_sign_gets_both(tmp_path: Path) -> None:
    """A ReLU that was recorded on [0, 1) is asked on negative numbers as well, and the report says so."""
    prepared = _prepared(tmp_path / "pack", rectified, _rand(16, 32))
    assert _signs(prepared, "x") == {-1.0, 1.0}
    (told,) = [note for note in prepared.notes if "tested with both" in note]
    assert told == (
        "recorded with one sign, tested with both, since torch takes them: x "
        "(if the other cannot occur, say so in cgins.yaml: semantics: {domain: {x: [0, null]}})"
    )


@pytest.mark.parametrize(
    ("op", "signs", "options"),
    [
        (entropy_weighted, {"x": {-1.0, 1.0}, "p": {1.0}}, {}),  # logarithms of p would be NaN
        (refusing, {"x": {1.0}}, {}),
        (rectified, {"x": {1.0}}, {"declared": Declared(domain=(("x", 0.0, float("inf")),))}),
    ],
)
def test_an_argument_may_keep_its_sign(
    tmp_path: Path, op: Callable[..., torch.Tensor], signs: dict[str, set[float]], options: dict[str, Any]
) -> None:
    """One whose numbers would be lost, that torch refuses, or of which the user says its domain."""
    prepared = _prepared(
        tmp_path / "pack", op, *(_rand(16, 32, seed=seed) for seed in range(len(signs))), **options
    )
    assert {name: _signs(prepared, name) for name in signs} == signs
    assert any("tested with both, since torch takes them: x" in note for note in prepared.notes) is (
        -1.0 in signs["x"]
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_signs_depend_on_the_seed_alone(tmp_path: Path, seed: int) -> None:
    """Two preparations of one seed have the same inputs."""
    _prepared(tmp_path / "pack", rectified, _rand(16, 32))
    reader = open_pack(tmp_path / "pack")
    one, other = (prepare(reader.pack.traces[0], reader, "cpu", seed).reference_set for _ in range(2))
    assert torch.equal(one.expected.arguments["x"], other.expected.arguments["x"])


@pytest_cgins.mark
def in_steps(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    return (x / step).round().clamp(-128, 127).to(torch.int8)


@pytest_cgins.mark
def times(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale


@pytest.mark.parametrize(("op", "name"), [(in_steps, "step"), (times, "scale")])
def test_scales_keep_their_sign(tmp_path: Path, op: Callable[..., torch.Tensor], name: str) -> None:
    """Beside numbers of few bits whatever they are called, and by their name elsewhere; data get both signs."""
    prepared = _prepared(tmp_path / "pack", op, _rand(16, 32), _rand(16, 1))
    assert _signs(prepared, name) == {1.0}
    assert {-1.0, 1.0} <= _signs(prepared, "x")
