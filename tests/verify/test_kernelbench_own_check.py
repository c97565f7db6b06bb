"""What KernelBench's own check accepts: `benchmarks/kernelbench_own_check.py` on two small problems."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.test_kernelbench_forged import PROBLEM

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kernelbench_own_check.py"


@pytest.mark.exam
def test_table_and_json_tell_the_same(tmp_path: Path) -> None:
    """Tiny answers let zeros pass with the wide tolerance alone, and the row says how tiny they are."""
    (tmp_path / "1_Tiny.py").write_text(PROBLEM.format(answer="x * 1e-3"))
    (tmp_path / "2_Twice.py").write_text(PROBLEM.format(answer="2 * x + 1"))
    file = tmp_path / "it.json"
    command = [sys.executable, str(SCRIPT), "--kernelbench", str(tmp_path), "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tiny, twice = json.loads(file.read_text())["problems"]
    assert tiny["accepted"] == {
        "zeros": [0.01], "ones": [], "input_copy": [], "positive_only": [0.01, 0.0001], "half_inside": [0.01, 0.0001],
    }  # fmt: skip
    assert twice["accepted"]["zeros"] == []
    assert "| zeros | 2 | 1 | 0 |" in done.stdout
    assert "| positive_only | 2 | 2 | 2 |" in done.stdout
    assert f"| 1_Tiny | zeros | 0.01 | {tiny['why']['zeros']} |" in done.stdout
    assert tiny["why"]["zeros"].startswith("off by at most 0.00")
    assert tiny["why"]["positive_only"].endswith("none is negative")
