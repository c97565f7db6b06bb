"""tutorial.md, typed in from its first block to its last."""

from __future__ import annotations

import re
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from tables import document
from walk import blocks, missing, run

TEXT = document("tutorial.md")
ACTION = Path(__file__).parents[2] / "action" / "action.yml"


@pytest.mark.exam
def test_every_step_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files are written, commands are run, in order, and each prints the lines that the tutorial quotes."""
    monkeypatch.chdir(tmp_path)
    ran = [line.split()[0] for line in run(TEXT, capfd)]
    assert ran.count("pytest") == 5
    assert ran.count("git") == 3
    assert ran.count("cgins") == 6


def test_install_asks_for_an_extra_that_exists() -> None:
    """The one command that the walk leaves out is right all the same."""
    (shell,) = [block.text for block in blocks(TEXT) if block.language == "sh"]
    extras = re.findall(r"pytest-cgins\[(\w+)\]", shell)
    assert extras
    assert set(extras) <= set(metadata("pytest-cgins").get_all("Provides-Extra"))


def test_workflow_uses_inputs_of_the_action() -> None:
    """The workflow is YAML, asks for reading alone, and passes inputs that the action has."""
    (workflow,) = [
        yaml.safe_load(block.text) for block in blocks(TEXT) if "uses:" in block.text and not block.file
    ]
    assert workflow["permissions"] == {"contents": "read"}
    (step,) = [step for step in workflow["jobs"]["gate"]["steps"] if "pytest-cgins/action@" in step["uses"]]
    assert set(step["with"]) <= set(yaml.safe_load(ACTION.read_text())["inputs"])


@pytest.mark.parametrize(
    ("quoted", "printed"),
    [
        ("2 failed, 1 passed …", "3 failed, 0 passed in 3.4s"),
        ("…\n3 passed", "2 passed"),
        ("cpp 1.75 us 2.84x PASSED", "cpp 3 ns 1.3x FAILED"),
        ("a\nb", "b\na"),
        ("f32-1x96-9841", "f32-1x96-9842"),
        ("....#...", "PASSED"),
    ],
)
def test_a_quotation_can_be_missing(quoted: str, printed: str) -> None:
    """The comparison is loose in numbers only."""
    assert missing(quoted, printed)


def test_numbers_of_another_machine_are_no_difference() -> None:
    """Times, ratios, counts of hundreds and pictures may differ."""
    quoted = "x  110 of 672 wrong, error 118 times, 1.75 us  2.84x (2.26..8.29)\n.......\n…"
    assert not missing(quoted, "x 96 of 672 wrong, error 35.3 times, 12 ns 8x (1.1..9.5)\n..-.#..\n")
