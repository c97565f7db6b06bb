"""The sequential test in simulation: `benchmarks/sequential_simulation.py` on a hundredth of its tests."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULT = BENCHMARKS / "results" / "sequential-simulation.json"


@pytest.mark.exam
def test_tables_tell_what_the_json_has(tmp_path: Path) -> None:
    """Rows are decided as by the test itself, no bound is broken without correlation, and it breaks with it."""
    file, text = tmp_path / "it.json", tmp_path / "it.md"
    command = [sys.executable, str(BENCHMARKS / "sequential_simulation.py"), "--scale", "0.005"]
    subprocess.run([*command, "--json", str(file), "--markdown", str(text)], capture_output=True, check=True)
    found, table = json.loads(file.read_text()), text.read_text()
    assert found["replayed"] == {"rows": 560, "differences": 0}
    for row in found["exact"]:
        assert row["alarm_per_suite"] <= row["alpha"]
        assert row["cleared_on_its_bound"] <= row["beta"]
    assert not [row for row in found["shapes"] if row["verdict"] == "broken"]
    correlated = {(row["profile"], row["rho"]): row["on_the_bound"]["200"] for row in found["correlation"]}
    assert correlated["default", 0.6]["verdict"] == "broken"
    row = next(row for row in found["power"] if (row["profile"], row["sigma"]) == ("default", 0.01))
    points = {point["slowdown"]: point for point in row["curve"]}
    assert points[0.0]["clean"] > 0.999
    assert points[0.05]["slower"] > 0.99
    assert f"{points[0.05]['slower']:.3f} / {points[0.05]['clean']:.3f}" in table


def test_the_committed_result_held() -> None:
    """What documents cite: every bound that was tested without correlation was held by its interval, or is open."""
    found = json.loads(RESULT.read_text())
    assert found["scale"] == 1
    assert not [row for row in found["shapes"] if row["verdict"] == "broken"]
    assert all(row["verdict"] == "held" for row in found["shapes"] if row["tests"] == 1)
    for row in found["shapes"]:
        assert math.isclose(row["share"], row["count"] / row["of"])
