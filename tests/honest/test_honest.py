"""Kernels that are right, however they compute: each passes with every probe on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_cgins.core.verdict import Status
from tests.adversarial import project
from tests.adversarial.specimens import HONEST, Specimen, collect
from tests.planted import edits
from tests.selected import selected

SPECIMENS = collect(HONEST)
LONG = {
    "torch.Tensor.add_", "torch.argmax", "torch.cummax", "torch.kthvalue", "torch.matmul", "torch.nn.functional.batch_norm",
    "torch.nn.functional.dropout", "torch.nn.functional.gelu", "torch.nn.functional.scaled_dot_product_attention",
}  # fmt: skip
"""Ops each of whose kernels takes more than four seconds: `make test-exam` has them."""


@pytest.fixture(scope="module")
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[project.Gate]:
    """All that are tested, in one project, with default settings."""
    folder, specimens = tmp_path_factory.mktemp("honest"), selected(request, "specimen")
    with (
        project.workers_are_forked(),
        project.large_calls_are_made_once_a_kernel(),
        project.gate(folder, specimens) as opened,
    ):
        yield opened


@pytest.mark.parametrize("specimen", [one.parameter for one in SPECIMENS])
def test_passes(gate: project.Gate, specimen: Specimen) -> None:
    """No probe and no comparison calls it wrong, in any dtype that it takes."""
    for evaluation in gate.evaluate(specimen):
        verdict = evaluation.verdict
        told = f"{evaluation.case.name}: {verdict.status.value} ({verdict.reason.value}): {verdict.message}"
        if "base" in specimen.flags:  # it may be slower: what matters is that it is not accused of harm
            assert verdict.status not in (Status.SUSPECT, Status.INCORRECT), told
        else:
            assert verdict.status is Status.PASSED, told


def test_there_are_enough_of_them() -> None:
    """With the variants of tests/planted, whose tests run with the same probes, they are more than sixty."""
    assert len(SPECIMENS) + len(edits.variants("cpu")) >= 60


def test_each_kind_is_gated_for_every_change() -> None:
    """`make test` has a kernel in each language, and of each op that does not take long."""
    always = [one for one in SPECIMENS if "always" in one.flags]
    assert {one.language for one in always} == {one.language for one in SPECIMENS}
    assert {one.op for one in SPECIMENS} - {one.op for one in always} == LONG
