"""The wheel, installed somewhere else, with the source directory out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

ROOT = Path(__file__).parents[2]


@pytest.mark.exam
def test_wheel_works_without_the_sources(project: Path, tmp_path: Path, run: Callable[..., Run]) -> None:
    """All that a run needs is in the wheel: header, contract, schemas, typing marker, services."""
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "py.typed",
        "building/include/cgins.h",
        "building/CONTRACT.md",
        "regenerate/prompts/templates/methods.md",
        "regenerate/prompts/templates/generator.md",
        "regenerate/prompts/templates/contract/cgins_h.txt",
        "schemas/report-2.json",
        "schemas/proposal-1.json",
    ):
        assert f"pytest_cgins/{name}" in names
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--target",
        str(site),
    ]
    subprocess.run([*install, str(wheel)], check=True)
    (project / "conftest.py").write_text(
        "import pytest_cgins\n"
        "def pytest_report_header():\n"
        "    return f'imported from {pytest_cgins.__file__}'\n"
    )
    found = run(project, "--cgins", "--cgins-json=report.json", "-k", "right", env={"PYTHONPATH": str(site)})
    assert f"imported from {site}{os.sep}" in found.out
    assert found.code == 0, found.out
    assert list(found.statuses().values()) == ["PASSED", "PASSED"]
