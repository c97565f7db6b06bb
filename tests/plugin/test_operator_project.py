"""An extension in the manner of vLLM's, with its own setup.py: built, recorded, gated and checked without a change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import Run

SOURCE = Path(__file__).parent / "operator_project"


@pytest.mark.slow
def test_each_operator_is_recorded_gated_and_checked(run: Callable[..., Run], tmp_path: Path) -> None:
    """Both levels have the same calls; all pass, but what torch's compiler takes from nobody is skipped."""
    folder = Path(shutil.copytree(SOURCE, tmp_path / "project"))
    for words in (("setup.py", "build_ext", "--inplace"), ("record_fused.py",)):
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    ended = run(folder, "--cgins", "--cgins-opcheck", "-rA", "--cgins-json=report.json", forked=False)
    found: dict[str, dict[str, int]] = {}
    for one in ended.document()["evaluations"]:
        kernel = found.setdefault(one["case"]["kernel"], {})
        word = f"{one['verdict']['status']} {one['case']['check'] or 'case'}"
        kernel[word] = kernel.get(word, 0) + 1
    passed = {f"PASSED {check}": 2 for check in ("case", "schema", "fake", "aot", "compile")}
    doubled = dict.fromkeys(("PASSED case", "PASSED schema", "PASSED fake"), 4)
    out_form = {"PASSED aot": 2, "PASSED compile": 2, "SKIPPED aot": 2, "SKIPPED compile": 2}
    assert found == {
        "rms_norm": passed, "fused_add_rms_norm": passed, "silu_and_mul": passed, "scaled_add": doubled | out_form,
    }, ended.out  # fmt: skip
    assert "GOLD ALONE in 2 cases" in ended.out
    assert ended.code == 0
