"""Kernels whose way of cheating only the sandbox keeps out: see the flag `sandbox` of their files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.adversarial import project
from tests.adversarial.specimens import ADVERSARIAL, collect

SPECIMENS = [one for one in collect(ADVERSARIAL) if "sandbox" in one.flags]


@pytest.mark.exam
def test_native_code_does_not_read_gold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: WorkerPool
) -> None:
    """A kernel that needs what it reads from a pack passes without a sandbox, unseen, and fails in one."""
    sandbox = Sandbox(devices=has_gpu())
    if trouble := sandbox.available():
        pytest.skip(f"this host gives no sandbox: {trouble}")
    monkeypatch.setattr(project, "PACKS", {"f32": project.PACKS["f32"]})
    loaded = project.make(tmp_path, SPECIMENS)
    for fence, outcome in ((None, "pass"), (sandbox, "fail")):
        made = Evaluator(loaded, seed=project.SEED, timing=False, sandbox=fence, reference=reference)
        with closing(made) as evaluator:
            cases = evaluator.cases()
            assert {case.kernel for case in cases} == {one.name for one in SPECIMENS}
            for case in cases:
                verdict = evaluator.evaluate(case).verdict
                assert verdict.status.outcome == outcome, f"{verdict.reason.value}: {verdict.message}"
                if fence:
                    expected = {one.name: one.caught_by for one in SPECIMENS}[case.kernel]
                    assert verdict.reason.value in expected, verdict.message
