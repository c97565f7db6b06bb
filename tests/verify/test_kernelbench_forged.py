"""Forged kernels against problems in KernelBench's form: `benchmarks/kernelbench_forged.py` on two small ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "kernelbench_forged.py"
PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {answer}


def get_inputs():
    return [torch.rand(16, 64)]


def get_init_inputs():
    return []
"""


def _ran(folder: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and table of a run over two problems."""
    level = folder / "level1"
    level.mkdir()
    (level / "1_Root.py").write_text(PROBLEM.format(answer="x.sqrt()"))
    (level / "2_Nothing.py").write_text(PROBLEM.format(answer="x - x"))
    document, markdown = folder / "it.json", folder / "it.md"
    command = [
        sys.executable, str(SCRIPT), "--kernelbench", str(level), "--work", str(folder / "work"), "--jobs", "2",
        "--json", str(document), "--markdown", str(markdown), *more,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert document.is_file(), done.stderr
    assert done.stdout == markdown.read_text()
    return done.returncode, json.loads(document.read_text()), done.stdout


def _rows(text: str, first: str) -> list[list[str]]:
    """Cells of the table whose heading begins with `first`."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith(f"| {first} |"))
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")])
    return rows


@pytest.mark.exam
def test_forged_kernels(tmp_path: Path) -> None:
    """The table and the JSON agree, and a problem that cannot tell zeros is listed with what was measured."""
    code, document, text = _ran(tmp_path)
    assert code == 0, text
    results = {one["problem"]: one for one in document["results"]}
    assert document["reference"]["passed"] == document["problems"] == len(results) == 2
    assert document["environment"][0]["torch"]
    rows = _rows(text, "forgery")
    assert [row[0] for row in rows] == list(document["forgeries"])
    for name, made, caught, no_power, _, missed, not_judged, by in rows:
        counted = document["forgeries"][name]
        counts = [counted[key] for key in ("made", "caught", "no_power", "missed", "not_judged")]
        assert counts == [int(made), int(caught), int(no_power), int(missed), int(not_judged)]
        assert by == ", ".join(f"{reason} {count}" for reason, count in counted["caught_by"].items())
        outcomes = [one["outcomes"][name] for one in results.values() if name in one["outcomes"]]
        assert int(made) == len(outcomes)
        assert int(caught) == sum(outcome.startswith(("INCORRECT", "SUSPECT")) for outcome in outcomes)
    told = [
        (one["problem"], one["accepts"], one["kernel"] or "not made", one["why"].replace("|", "¦"))
        for one in document["no_power"]
    ]
    assert [tuple(row) for row in _rows(text, "problem")] == told
    assert document["missed"] == document["not_judged"] == []
    assert document["forgeries"]["ones"]["caught"] == 2
    why = {(one["problem"], one["accepts"]): one["why"] for one in document["no_power"]}
    root = why["1_Root", "positive_only"]
    assert "all inputs ≥ 0, |x| = x" in root
    assert "torch has no number for inputs of both signs" in root
    zeros = why["2_Nothing", "zeros"]
    assert "max |answer| = 0, worst error 0 against" in zeros
    assert "inputs of both signs do not tell it either" in zeros


def test_deadline_has_passed(tmp_path: Path) -> None:
    """Problems that were not begun are told as such, and nothing is counted of them."""
    code, document, text = _ran(tmp_path, "--deadline", "0")
    assert code == 0
    assert document["not_gated"] == dict.fromkeys(["1_Root", "2_Nothing"], "not begun: --deadline had passed")
    assert "0 of 2 problems gated on cpu" in text
    assert "- 1_Root: not begun: --deadline had passed" in text
    assert all(one["made"] == 0 for one in document["forgeries"].values())
