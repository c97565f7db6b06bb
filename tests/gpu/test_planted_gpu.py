"""Recall and false fails of the gate for CUDA kernels, in fp32, fp16 and bf16."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

torch = pytest.importorskip("torch")

from pytest_cgins.building.build import default_cache  # noqa: E402
from pytest_cgins.core.verdict import Status  # noqa: E402
from tests.planted import edits, project  # noqa: E402
from tests.planted.outcome import ELSEWHERE, Outcome, evaluate_at_once, listed  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

BUGS = {bug.id: bug for bug in listed()}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
UNOBSERVABLE = {("layer_norm-one-pass-variance", "bfloat16")}
"""With an fp32 accumulator, and means that leave bf16 four bits for the deviations, nothing cancels."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """All planted kernels built by nvcc, run on the GPU, and judged there."""
    sources = [*(edits.planted(bug, "cuda") for bug in BUGS), *edits.variants("cuda")]
    names = [source.name for source in sources]
    loaded = project.make(tmp_path_factory.mktemp("planted") / "project", sources, "cuda", DTYPES)
    assert project.build_all(loaded, names, "cuda", default_cache(), jobs=os.cpu_count() or 8) == {}
    return evaluate_at_once(loaded.file, names, default_cache(), processes=8)


def test_bugs_are_called_incorrect_in_every_dtype(outcomes: list[Outcome]) -> None:
    """Each bug is caught in each dtype in which it can be seen."""
    missed = {(o.kernel, o.dtype) for o in outcomes if o.kernel in BUGS and not o.caught}
    assert missed <= UNOBSERVABLE


def test_messages_name_the_place_in_fp32(outcomes: list[Outcome]) -> None:
    """A failed check's message says where the wrong elements are."""
    unnamed = [
        outcome.kernel
        for outcome in outcomes
        if outcome.kernel in BUGS
        and outcome.dtype == "float32"
        and not outcome.names(ELSEWHERE.get(outcome.kernel, BUGS[outcome.kernel].place))
    ]
    assert unnamed == []


def test_legitimate_variants_pass_in_every_dtype(outcomes: list[Outcome]) -> None:
    """Other orders of summation and other formulas pass every case."""
    failed = {
        evaluation.case.name: evaluation.verdict.message
        for outcome in outcomes
        if outcome.kernel not in BUGS
        for evaluation in outcome.evaluations
        if evaluation.verdict.status is not Status.PASSED
    }
    assert failed == {}
