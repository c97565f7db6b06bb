"""tutorial.md, typed in from its first block to its last."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from tables import document
from walk import Command, blocks, commands, links, missing, patched

from pytest_cgins import cli

TEXT = document("tutorial.md")
ACTION = Path(__file__).parents[2] / "action" / "action.yml"


def test_every_step_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files are written, commands are run, in order, and each prints the lines that the tutorial quotes."""
    monkeypatch.chdir(tmp_path)
    last = Path()
    ran = []
    for block in blocks(TEXT):
        if block.file:
            last = Path(block.file)
            last.parent.mkdir(exist_ok=True)
            last.write_text(block.text)
        elif block.language == "diff":
            kernel = Path("kernels/layer_norm.cpp")
            kernel.write_text(patched(kernel.read_text(), block.text))
        elif block.language == "console":
            for command in commands(block):
                capfd.readouterr()
                printed = _cgins(command, capfd) if command.line.startswith("cgins ") else _pytest(command)
                absent = missing(command.quoted, printed)
                assert not absent, f"$ {command.line}\ndoes not print\n{absent}\nbut\n{printed}"
                ran.append(command.line.split()[0])
    assert ran.count("pytest") == 3
    assert ran.count("cgins") == 6


def _cgins(command: Command, capfd: pytest.CaptureFixture[str]) -> str:
    """In this process: a process of its own would import torch again."""
    assert cli.main(shlex.split(command.line)[1:]) == 0
    return capfd.readouterr().out


def _pytest(command: Command) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))
    }
    run = subprocess.run(
        [sys.executable, "-m", *shlex.split(command.line)],
        env={**environment, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == (1 if " failed" in command.quoted else 0), run.stdout + run.stderr
    return re.sub(r"(?m)^=+ | =+$", "", run.stdout)


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
    (step,) = [
        step for step in workflow["jobs"]["gate"]["steps"] if "pytest-cgins/action@" in step["uses"]
    ]
    assert set(step["with"]) <= set(yaml.safe_load(ACTION.read_text())["inputs"])


def test_links_lead_somewhere() -> None:
    """Each relative link is to a file of the repository."""
    folder = Path(cli.__file__).parent / "docs"
    found = links(TEXT)
    assert len(found) > 5
    for link in found:
        assert (folder / link).resolve().exists(), link


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
