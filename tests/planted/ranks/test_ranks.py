"""Kernels of two ranks: sixteen with a bug are told from ten honest ones, by what is wrong and on which rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.planted.ranks import project
from tests.planted.ranks.project import OPS
from tests.planted.ranks.rank_kernels import BUGS, HONEST
from tests.selected import selected

ALWAYS = {
    "mapped_sum", "fused_product_sum", "product_of_gathered", "stale_buffer", "right_in_step", "own_order",
    "dies", "first_alone", "slow_second",
}  # fmt: skip
"""What every change gates."""

FOUND = {
    "missing_sync": (("stale-answer", "rank-race"), "comes late|follow each other"),
    "right_in_step": (("stale-answer", "rank-race"), "rank [01] comes late|follow each other"),
    "stale_buffer": (("stale-answer",), "call before"),
    "symmetric_without_barrier": (("stale-answer", "rank-race"), "comes late|follow each other"),
    "wrong_peer": (("reference-mismatch",), "rank 0's numbers are in the place of rank 1's"),
    "greatest": (("reference-mismatch",), "the greatest of the ranks' parts, not their sum"),
    "rounded": (("reference-mismatch",), "rounded to bfloat16 before they were added up"),
    # No rank looks at it a second time alone: the others would not call the op with it.
    "a_little_off": (("reference-mismatch",), "rank 0 of 2.*1 of .* compared elements"),
    "own_order": (("ranks-disagree",), "other bits on rank 1 than on rank 0"),
    "stays_away": (("rank-hang",), "^rank 1 of 2 did not come back within .*rank_kernels.py"),
    "both_receive": (("rank-hang",), "^ranks 0, 1 of 2 did not come back"),
    "dies": (("crashed",), "^rank 1 of 2: .*SIGSEGV"),
    "raises": (("raised",), "^rank 1 of 2: .*no such chunk"),
    "first_alone": (
        ("reference-mismatch",),
        "rank 1 of 2 \\(right on 1 other rank\\).*other ranks' part is missing",
    ),
    "next_chunk": (("reference-mismatch",), "it is the answer of rank 1"),
    "swapped": (("reference-mismatch",), "in the places of other ranks'"),
    "no_mean": (("reference-mismatch",), "2 times the answer"),
}
"""Reasons that name a bug, and what the message says."""


def _tested(names: object) -> list[object]:
    return [
        pytest.param(name, marks=() if name in ALWAYS else pytest.mark.exam)
        for name in names  # type: ignore[attr-defined]
    ]


@pytest.fixture(scope="module")
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """All that are tested, in one project."""
    names = {*selected(request, "kernel"), "slow_second", "mapped_sum", "stays_away"}
    loaded = project.make(
        tmp_path_factory.mktemp("ranks"), {name: OPS[name] for name in OPS if name in names}
    )
    evaluator = project.evaluator(loaded)
    yield evaluator
    evaluator.close()


def evaluated(gate: Evaluator, kernel: str) -> Evaluation:
    """Its one case."""
    (case,) = (one for one in gate.cases() if one.kernel == kernel)
    return gate.evaluate(case)


def require_found(found: Evaluation, kernel: str) -> None:
    """The reason is that of the bug, and the message names the rank, or what was done instead."""
    reasons, words = FOUND[kernel]
    told = f"{found.verdict.status.value} ({found.verdict.reason.value}): {found.verdict.message}\n{found.output}"
    assert found.verdict.status.outcome == "fail", told
    assert found.verdict.reason.value in reasons, told
    assert re.search(words, found.verdict.message), told


@pytest.mark.parametrize("kernel", _tested(BUGS))
def test_a_bug_is_found_by_name(gate: Evaluator, kernel: str) -> None:
    """The reason is that of the bug, and the message names the rank, or what was done instead."""
    require_found(evaluated(gate, kernel), kernel)


@pytest.mark.parametrize("kernel", _tested(HONEST))
def test_an_honest_kernel_passes(gate: Evaluator, kernel: str) -> None:
    """Each rank has checks of its own."""
    found = evaluated(gate, kernel)
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.correctness is not None
    assert {check.inputs for check in found.correctness.checks} == {
        "fresh/0", "second/0", "fresh/1", "second/1",
    }  # fmt: skip


def test_all_ranks_of_a_hang_are_ended(gate: Evaluator) -> None:
    """Also the one that does not listen; it is named, and the other as well, which waited for it."""
    found = evaluated(gate, "stays_away")
    require_found(found, "stays_away")
    pids = re.findall(r"(?m)^process (\d+)$", found.output)
    assert len(pids) == 2, found.output
    assert not [pid for pid in pids if Path("/proc", pid).exists()]


def test_time_is_that_of_the_slowest_rank(gate: Evaluator) -> None:
    """Rank 1 has its answer as soon as rank 0 has, and returns 10 ms later."""
    timed = project.evaluator(gate.config, timing=True, reference=gate.pool)
    try:
        found = evaluated(timed, "slow_second")
    finally:
        timed.close()
    assert found.verdict.status is Status.PASSED, found.verdict.message
    assert found.measurement is not None
    assert found.measurement.kernel.median_ns_per_call > 10e6


@pytest.mark.exam
def test_slower_than_the_base_revision(tmp_path: Path) -> None:
    """Kernel and base are timed by the same ranks, block by block, and again in fresh ones."""
    loaded = project.make(tmp_path, {"mapped_sum": "summed"})
    project.commit(tmp_path)
    source = tmp_path / "rank_kernels.py"
    source.write_text(
        source.read_text().replace(
            "total = torch.stack(buffers).sum(0)",
            "time.sleep(0.001)\n    total = torch.stack(buffers).sum(0)",
        )
    )
    gate = project.evaluator(loaded, timing=True, baseline="HEAD")
    try:
        found = evaluated(gate, "mapped_sum")
    finally:
        gate.close()
    assert (found.verdict.status, found.verdict.reason) == (Status.SLOWER, Reason.SLOWER_THAN_BASE), (
        found.verdict.message
    )
    assert found.measurement is not None
    assert found.measurement.confirmation is not None


def test_ranks_need_processes(gate: Evaluator) -> None:
    """Pytest's own process is one."""
    alone = Evaluator(gate.config, seed=1, timing=False, isolation="none", reference=gate.pool)
    try:
        found = evaluated(alone, "mapped_sum")
    finally:
        alone.close()
    assert (found.verdict.status, found.verdict.reason) == (Status.INFRASTRUCTURE, Reason.TOOL_MISSING)
    assert "--cgins-isolation=none" in found.verdict.message
