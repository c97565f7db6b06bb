"""An extension in the manner of vLLM's, with its own setup.py: built, recorded, gated and checked without a change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.packs.store import open_pack
from tests.forked_python import ForkedPython
from tests.plugin.conftest import Run

SOURCE = Path(__file__).parent / "operator_project"


@pytest.mark.exam
def test_each_operator_is_recorded_gated_and_checked(
    run: Callable[..., Run], forked_torch: ForkedPython, tmp_path: Path
) -> None:
    """Both levels have the same calls; all pass, but what torch's compiler takes from nobody is skipped."""
    folder = Path(shutil.copytree(SOURCE, tmp_path / "project"))
    for words in (("setup", "build_ext", "--inplace"), ("record_fused",)):
        done = forked_torch.run(["-m", *words], cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    calls = [
        sorted(
            trace.signature.rpartition("-")[0] for trace in open_pack(folder / "traces" / level).pack.traces
        )
        for level in ("function", "dispatch")
    ]
    assert calls[0] == calls[1] != []
    ended = run(folder, "--cgins", "--cgins-opcheck", "-rA", "--cgins-json=report.json")
    found: dict[str, dict[str, int]] = {}
    for one in ended.document()["evaluations"]:
        kernel = found.setdefault(one["case"]["kernel"], {})
        word = f"{one['verdict']['status']} {one['case']['check'] or 'case'}"
        kernel[word] = kernel.get(word, 0) + 1
    passed = {f"PASSED {check}": 1 for check in ("case", "schema", "fake", "aot", "compile")}
    doubled = dict.fromkeys(("PASSED case", "PASSED schema", "PASSED fake"), 2)
    out_form = {"PASSED aot": 1, "PASSED compile": 1, "SKIPPED aot": 1, "SKIPPED compile": 1}
    assert found == {
        "rms_norm": passed, "fused_add_rms_norm": passed, "silu_and_mul": passed, "scaled_add": doubled | out_form,
    }, ended.out  # fmt: skip
    assert "GOLD ALONE in 1 case" in ended.out
    assert ended.code == 0
