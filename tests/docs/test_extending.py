"""extending.md: its diffs apply to the files that there are, and what it names is there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tables import document
from walk import blocks, links, patched

from pytest_cgins import plugin

PACKAGE = Path(plugin.__file__).parent
TEXT = document("extending.md")
NEW = {
    "verify/probes/working_directory.py",
    "report/lines.py",
    "recording/importers/opcalls.py",
    "timing/devices/simulator.py",
}
"""Files that a reader writes."""
PROJECT = Path(__file__).parents[1] / "plugin" / "project"
CONFIG = """
version: 1
traces: [traces/tiny]
kernels:
  relu:
    op: torch.nn.functional.relu
    implementations:
      - {name: right, device: simulator, source: kernels/relu.cpp}
      - {name: wrong, device: simulator, source: kernels/relu.cpp, defines: {WRONG: 1}}
"""


def changed() -> dict[str, str]:
    """The files that a reader who does all of it writes or changes, each hunk's lines being in its file once."""
    files: dict[str, str] = {}
    for block in blocks(TEXT):
        if block.language == "diff":
            source = files.get(block.file) or (PACKAGE / block.file).read_text(encoding="utf-8")
            for hunk in block.text.split("@@\n"):
                source = patched(source, hunk)
            files[block.file] = source
        elif block.language == "python":
            assert block.file in NEW
            files[block.file] = block.text
    return files


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as it is afterwards."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in changed().items():
        (folder / PACKAGE.name / name).write_text(source, encoding="utf-8")
    return folder


def test_diffs_apply() -> None:
    """What comes of a Python file can be parsed."""
    files = changed()
    assert len(files) > 10
    for name, source in files.items():
        if name.endswith(".py"):
            ast.parse(source)


def test_the_device_gates_kernels(extended: Path, tmp_path: Path) -> None:
    """A right kernel passes on it and is timed, a wrong one fails."""
    project = shutil.copytree(PROJECT, tmp_path / "project")
    subprocess.run([sys.executable, "record_tiny.py"], cwd=project, check=True)
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "cgins.yaml").write_text(CONFIG)
    command = [
        sys.executable, "-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins", "--cgins-device=simulator",
        "--cgins-json=report.json",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(extended), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    report = json.loads((project / "report.json").read_text())
    statuses = {
        (one["case"]["device"], one["case"]["implementation"], one["verdict"]["status"])
        for one in report["evaluations"]
    }
    assert statuses == {("simulator", "right", "PASSED"), ("simulator", "wrong", "INCORRECT")}, done.stdout
    assert {one["device_name"] for one in report["environments"]} >= {"simulator"}
    assert all(one["measurement"] for one in report["evaluations"] if one["verdict"]["status"] == "PASSED")


def test_the_importer_imports(extended: Path, tmp_path: Path) -> None:
    """A call becomes a trace, and a line that is none is left out."""
    (tmp_path / "calls.jsonl").write_text('{"op": "torch.relu", "shapes": [[8, 64]]}\n[]\n')
    main = "from pytest_cgins.app.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", main, "import", "opcalls", "calls.jsonl", "--out", "pack"]
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert "left out  calls.jsonl:2" in done.stdout
    assert "1 trace, " in done.stdout


def test_files_exist() -> None:
    """Each file that is named is there, but for those that are written here."""
    for name in set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", TEXT)) - NEW - {"pytest_cgins/"}:
        assert any((folder / name).exists() for folder in (PACKAGE, PACKAGE.parent)), name


def test_links_lead_somewhere() -> None:
    """Each relative link is a file."""
    for link in links(TEXT):
        assert (PACKAGE / "docs" / link).exists(), link
