"""A builder that is killed costs its own build and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "build_killed.py"


@pytest.mark.exam
def test_builder_is_killed(tmp_path: Path) -> None:
    """Killed at six moments: nobody hangs, nothing corrupt is loaded, each kernel is built once, nothing is left."""
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "cpp", "--moments", "6", "--json", str(figures)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert figures.is_file(), done.stderr
    row = json.loads(figures.read_text())["launchers"]["cpp"]
    assert [row[name] for name in ("hangs", "corrupt_loads", "survivors", "leftovers")] == [0] * 4, row
    assert row["built_once"] == row["moments"] == 6
    assert done.returncode == 0
