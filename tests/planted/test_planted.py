"""Recall on the planted bugs and false fails on legitimate variants, in fp32 on the CPU."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
import torch

from pytest_cgins.building.build import default_cache
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.planted import edits, project
from tests.planted.outcome import ELSEWHERE, Outcome, listed
from tests.selected import selected

BUGS = {bug.id: bug for bug in listed()}
ALWAYS = {bug.place: bug.id for bug in reversed(BUGS.values())}.values()
"""The first bug of each kind of place, which stand for all of them in `make test`."""
VARIANTS = [source.name for source in edits.variants("cpu")]
TESTED = [pytest.param(bug, marks=() if bug in ALWAYS else pytest.mark.exam) for bug in BUGS]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The planted kernels that are tested: built, run in the verification worker, and judged until a bug is found."""
    names = selected(request, "bug") + selected(request, "variant")
    sources = [*(edits.planted(bug, "cpu") for bug in BUGS), *edits.variants("cpu")]
    sources = [source for source in sources if source.name in names]
    folder = tmp_path_factory.mktemp("planted")
    # Compiling is most of this; -O1 contracts to fma as -O3 does, with which benchmarks/planted_bugs.py builds them.
    loaded = project.make(folder / "project", sources, "cpu", [torch.float32], flags=["-O1"])
    # What the numbers tell: probes are tested elsewhere, and benchmarks/adversarial.py has these variants with all of them.
    evaluator = Evaluator(loaded, seed=20, timing=False, probes="off", cache=default_cache())
    with closing(evaluator):
        assert project.build_all(loaded, names, "cpu", default_cache(), jobs=2) == {}
        return {name: _outcome(evaluator, name) for name in names}


def _outcome(evaluator: Evaluator, kernel: str) -> Outcome:
    """All cases of a kernel; of one with a bug those up to the first that finds it and says where it is."""
    outcome = Outcome(kernel, "float32", ())
    for case in evaluator.cases():
        done = kernel in BUGS and outcome.caught and outcome.names(_place_of(kernel))
        if case.kernel == kernel and not done:
            outcome = replace(outcome, evaluations=(*outcome.evaluations, evaluator.evaluate(case)))
    return outcome


def _place_of(bug: str) -> str:
    return ELSEWHERE.get(bug, BUGS[bug].place)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("bug", BUGS)
def test_every_listed_bug_is_an_edit_of_the_example(bug: str, device: str) -> None:
    """Every edit of bugs.yaml still applies to the example kernel, and changes it."""
    source = edits.planted(bug, device)
    assert source.op == BUGS[bug].op
    assert (source.text, source.headers) not in [(s.text, s.headers) for s in edits.variants(device)]


def test_an_edit_that_no_longer_applies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that was rewritten under an edit is not silently gated unedited."""
    monkeypatch.setitem(edits.CPP, "gelu-unwritten-tail", [("no such text", "")])
    with pytest.raises(LookupError, match=r"occurs 0 times in gelu\.cpp"):
        edits.planted("gelu-unwritten-tail", "cpu")
    monkeypatch.setitem(edits.CUDA, "sin-cosine", [("#pragma once", "")])
    with pytest.raises(LookupError, match=r"times in sin\.cu, elementwise\.cuh, operations\.h, elements\.h"):
        edits.planted("sin-cosine", "cuda")


@pytest.mark.parametrize("bug", TESTED)
def test_bug_is_caught(outcomes: dict[str, Outcome], bug: str) -> None:
    """The gate refuses the kernel with this bug in at least one case."""
    assert outcomes[bug].caught, [e.verdict for e in outcomes[bug].evaluations]


@pytest.mark.parametrize("bug", TESTED)
def test_message_names_the_place(outcomes: dict[str, Outcome], bug: str) -> None:
    """A failed check's message says where the wrong elements are: rows, columns, elements, everywhere."""
    messages = [check.message for check in outcomes[bug].failed_checks()]
    assert outcomes[bug].names(_place_of(bug)), messages


@pytest.mark.exam
@pytest.mark.parametrize("variant", VARIANTS)
def test_legitimate_variant_passes(outcomes: dict[str, Outcome], variant: str) -> None:
    """A kernel that is right, but sums or computes in another way, passes every case."""
    verdicts = [evaluation.verdict for evaluation in outcomes[variant].evaluations]
    assert [verdict.status for verdict in verdicts] == [Status.PASSED] * len(verdicts), verdicts


@pytest.mark.parametrize(
    ("bug", "parameter"), [("linear-ignores-bias", "bias"), ("layer_norm-ignores-weight", "weight")]
)
def test_hints_tell_an_ignored_parameter_by_name(
    outcomes: dict[str, Outcome], bug: str, parameter: str
) -> None:
    """Where the answer is right for the call without the bias, or without the weight, the message says so."""
    messages = " ".join(check.message for check in outcomes[bug].failed_checks())
    assert f"the same call without `{parameter}`" in messages


@pytest.mark.parametrize("bug", ["linear-unwritten-last-row", "gelu-unwritten-tail"])
def test_unwritten_elements_have_their_own_reason(outcomes: dict[str, Outcome], bug: str) -> None:
    """Poison left in the output is reported as unwritten, not as a wrong value."""
    assert {check.reason.value for check in outcomes[bug].failed_checks()} == {"unwritten"}
