"""Projects as people have them: a source is missing, a run begins in a folder below, a path is in no locale."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import CGINS, ForkedPython

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.exam
def test_a_missing_source_stops_its_own_kernel_alone(
    project: Path, run: Callable[..., Any], cgins: Callable[..., Any]
) -> None:
    """The others are gated and built; the missing one is a BUILD_ERROR with the line that names it, and a guess."""
    (project / "kernels/threshold.cpp").rename(project / "kernels/thresholds.cpp")
    done = run(
        project, "--cgins", "--cgins-no-timing", "--cgins-json=report.json", "-k", "threshold or scaled", "-q"
    )
    assert done.statuses() == {
        "threshold/cpp f32-3x5-fbcb": "BUILD_ERROR",
        "scaled/python f32-5x4-9132": "PASSED",
    }
    message = done.evaluations()["threshold/cpp f32-3x5-fbcb"]["verdict"]["message"]
    assert (
        message
        == 'cgins.yaml:13: no such file: kernels/threshold.cpp\n→ did you mean "kernels/thresholds.cpp"?'
    )
    built = cgins(project, "build", "relu", "threshold")
    assert "threshold/cpp (cpu)" in built.stdout
    assert "relu/right (cpu)" in built.stdout
    assert "no such file: kernels/threshold.cpp" in built.stdout + built.stderr


@pytest.mark.parametrize("ini", [True, False])
def test_pytest_below_a_cgins_yaml_finds_it(project: Path, run: Callable[..., Any], ini: bool) -> None:
    """Its items have names by which they run again; a folder that has a file of its own takes that one."""
    if not ini:
        (project / "pytest.ini").unlink()
    below = project / "kernels/deep"
    below.mkdir()
    done = run(below, "--cgins", "--collect-only", "-q", "-k", "scaled")
    (name,) = [line for line in done.lines if "::scaled" in line]
    assert name.partition("::")[0] == ("cgins.yaml" if ini else "../../cgins.yaml")
    again = run(below, "--cgins", "--collect-only", "-q", f"../../cgins.yaml::{name.partition('::')[2]}")
    assert any(line.endswith(name.removeprefix("../../")) for line in again.lines)
    (below / "cgins.yaml").write_text("version: 1\nkernels: {}\n")
    assert "scaled" not in run(below, "--cgins", "--collect-only", "-q").out


def test_paths_on_the_command_line_are_all_that_is_taken(project: Path, run: Callable[..., Any]) -> None:
    """Whoever names a folder gets what is in it."""
    (project / "kernels/deep").mkdir()
    assert "no tests" in run(project, "--cgins", "--collect-only", "-q", "kernels/deep").out


@pytest.mark.exam
def test_commands_below_a_cgins_yaml_find_it(project: Path, forked_python: ForkedPython) -> None:
    """`cgins schema` and the others that take a file take the nearest one above."""
    below = project / "kernels/deep"
    below.mkdir()
    done = forked_python.run([*CGINS, "schema", "threshold"], cwd=below)
    assert done.returncode == 0, done.stderr
    assert "threshold(Tensor input" in done.stdout
    (project / ".cgins/runs").mkdir(parents=True)
    done = forked_python.run([*CGINS, "runs", "ls"], cwd=below)
    assert "no run in ../../.cgins/runs" in done.stderr


@pytest.mark.exam
@pytest.mark.parametrize("name", [b"f\xffold", "prüf核".encode()])
def test_a_path_that_the_locale_cannot_encode_is_an_error_with_a_remedy(
    project: Path, run: Callable[..., Any], forked_python: ForkedPython, name: bytes
) -> None:
    """No INTERNALERROR and no traceback: what is wrong, and what to do, in the shell and in pytest."""
    folder = Path(shutil.move(project, Path(os.fsdecode(os.fsencode(project.parent) + b"/" + name))))
    utf8 = name != b"f\xffold"
    remedy = "set PYTHONUTF8=1, or a locale such as C.UTF-8" if utf8 else "rename it"
    for said in (
        run(folder, "--cgins", "-q", "--cgins-json=report.json", env=ASCII).out,
        forked_python.run([*CGINS, "build"], cwd=folder, env=os.environ | ASCII).stderr,
    ):
        assert "INTERNALERROR" not in said
        assert "Traceback" not in said
        assert remedy in said
    if utf8:
        done = run(folder, "--cgins", "--collect-only", "-q", env={**ASCII, "PYTHONUTF8": "1"})
        assert "14 tests collected" in done.out
