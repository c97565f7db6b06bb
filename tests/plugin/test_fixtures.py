"""The fixtures in a user's own tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

USER_TESTS = """
import pytest
import torch
from torch.nn import functional
from pytest_cgins.packs.store import open_pack


@pytest.mark.cgins(kernel="relu", implementation="right")
def test_case_has_tensors(cgins_case):
    assert cgins_case.case.kernel == "relu"
    (x,) = cgins_case.inputs
    assert cgins_case.args == (x,) and cgins_case.kwargs == {"inplace": False}
    expected = functional.relu(*cgins_case.args, **cgins_case.kwargs).reshape(-1)
    (gold,) = cgins_case.gold
    torch.testing.assert_close(gold.values, expected[gold.positions], rtol=0, atol=0)


@pytest.mark.cgins(kernel="relu", implementation="right")
def test_case_is_ok(cgins_case):
    evaluation = cgins_case.assert_ok()
    assert evaluation.verdict.status.value == "PASSED"


@pytest.mark.cgins(kernel="relu", implementation="refuse")
def test_case_is_not_ok(cgins_case):
    cgins_case.assert_ok()


@pytest.mark.cgins(op="torch.nn.functional.threshold")
def test_case_by_op(cgins_case):
    assert cgins_case.case.kernel == "threshold"


@pytest.mark.cgins(kernel="relu")
def test_kernel_runs_elsewhere(cgins_kernel):
    x = torch.randn(6, 5).t()
    torch.testing.assert_close(cgins_kernel(x.contiguous()), functional.relu(x), rtol=0, atol=0)


@pytest.mark.cgins(kernel="relu", implementation="crash")
def test_kernel_crash_is_an_exception(cgins_kernel):
    from pytest_cgins.core.errors import WorkerCrashed

    with pytest.raises(WorkerCrashed):
        cgins_kernel(torch.randn(3))


@pytest.mark.cgins(kernel="relu", implementation="refuse")
def test_kernel_refusal_is_an_exception(cgins_kernel):
    from pytest_cgins.core.errors import LaunchError

    with pytest.raises(LaunchError, match="3 elements are too many"):
        cgins_kernel(torch.randn(3))


@pytest.mark.cgins(kernel="relu", implementation="right")
def test_kernel_of_another_device(cgins_kernel):
    cgins_kernel(torch.empty(3, device="meta"))


@pytest.mark.cgins(kernel="relu", implementation="cuda")
def test_kernel_of_an_absent_device(cgins_kernel):
    if not torch.cuda.is_available():
        raise AssertionError
    pytest.skip("no cuda device on this machine, had there been none")


def test_kernel_needs_a_name(cgins_kernel):
    pass


def test_benchmark_times_a_callable(cgins_benchmark):
    slow = cgins_benchmark(torch.mm, torch.randn(200, 200), torch.randn(200, 200), budget_s=0.02)
    quick = cgins_benchmark(lambda: None, budget_s=0.02)
    assert (slow.device, slow.method) == ("cpu", "perf-counter")
    assert 0 < quick.median_ns_per_call < slow.median_ns_per_call
    assert len(slow.samples_ns_per_call) >= 6


def test_record_writes_below_tmp_path(cgins_record, tmp_path):
    with cgins_record("mine", ops=["torch.nn.functional.silu"]):
        functional.silu(torch.randn(3, 3))
    (trace,) = open_pack(tmp_path / "mine").pack.traces
    assert trace.call.op == "torch.nn.functional.silu"


def test_asking_at_run_time_is_too_late(request):
    request.getfixturevalue("cgins_case")
"""


@pytest.mark.exam
def test_fixtures(project: Path, run: Callable[..., Run]) -> None:
    """Users' tests get cases, kernels, timings and recordings; their evaluations are in the report."""
    (project / "test_user.py").write_text(USER_TESTS)
    found = run(
        project, "--cgins", "--cgins-no-timing", "--cgins-json=report.json", "test_user.py", "-v", "-rA"
    )
    failed = {
        re.split(r"[\[ ]", line)[1].rpartition("::")[2]
        for line in found.lines
        if line.startswith(("FAILED ", "ERROR "))
    }
    assert failed == {
        "test_case_is_not_ok",
        "test_kernel_of_another_device",
        "test_kernel_needs_a_name",
        "test_asking_at_run_time_is_too_late",
    }, found.out
    assert "mark the test: @pytest.mark.cgins(kernel=" in found.out
    assert "During handling of" not in found.out
    assert "no implementation 'right' for meta, where the tensors are" in found.out
    assert "move the tensors to cpu" in found.out
    assert re.search(r"^SKIPPED .*no cuda device on this machine", found.out, re.MULTILINE)
    # Tracebacks end at the user's own line.
    assert not re.search(r"pytest_cgins/\S+:\d+: [A-Z]\w+Error", found.out)
    assert "cgins_case has to be an argument of the test" in found.out
    again = re.search(
        r"^again.*test_user\.py::test_case_is_not_ok\[relu/cpu-refuse/tiny/\S+\]'$", found.out, re.MULTILINE
    )
    assert again is not None
    assert sorted(found.statuses().values()) == ["PASSED"] * 2 + ["RUNTIME_ERROR"] * 2


def test_misspelt_marker_is_a_collection_error(project: Path, run: Callable[..., Run]) -> None:
    """A kernel that cgins.yaml does not have is an error that names the nearest, not an empty test."""
    (project / "test_user.py").write_text(
        "import pytest\n@pytest.mark.cgins(kernel='relo')\ndef test_x(cgins_case): pass\n"
    )
    found = run(project, "--cgins", "--collect-only", "test_user.py")
    assert found.code == 2
    assert 'did you mean "relu"?' in found.out
    assert "Traceback" not in found.out
