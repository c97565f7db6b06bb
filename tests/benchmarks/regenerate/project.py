"""The project of the benchmark: the example in a repository of its own, with new ops, and bugs that are not committed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bugs import HERE, REPOSITORY, Bug

EXAMPLE = REPOSITORY / "example_project"
NEW_OPS = HERE / "new_ops"
PACK = "traces/new_ops"
BUNDLE = "project.bundle"


def environment() -> dict[str, str]:
    """Of all processes: they find this repository's packages, and leave no bytecode in the project."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def make(work: Path, bugs: Sequence[Bug], python: str) -> Path:
    """The project below a folder, made if it is not there yet, and with its repository.

    The repository may be left behind when the folder is carried elsewhere: it is made anew from `project.bundle`.
    """
    project = work / "project"
    if not (work / BUNDLE).exists():
        shutil.rmtree(project, ignore_errors=True)
        _copy(project)
        subprocess.run([python, "-m", "record.new_ops"], cwd=project, env=environment(), check=True)
        commit(project)
        for bug in bugs:
            bug.plant(project)
    elif not (project / ".git").is_dir():
        restore(project)
    return project


def _copy(project: Path) -> None:
    left_out = shutil.ignore_patterns("__pycache__", ".cgins", ".benchmarks", "conversations")
    shutil.copytree(EXAMPLE, project, ignore=left_out)
    shutil.copytree(NEW_OPS, project, ignore=left_out, dirs_exist_ok=True)
    file = project / "cgins.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("\nkernels:", f"\n  - {PACK}\nkernels:", 1), encoding="utf-8")
    (project / ".gitignore").write_text("__pycache__/\n.cgins/\n", encoding="utf-8")


def commit(project: Path, bundle: str = BUNDLE) -> None:
    """All of a project as its base revision, with a bundle of it beside the project."""
    _git(project, "init", "-q", "-b", "main")
    _git(project, "add", "-A")
    _git(
        project,
        "-c",
        "user.name=benchmark",
        "-c",
        "user.email=benchmark@localhost",
        "commit",
        "-qm",
        "The example project",
    )
    _git(project, "bundle", "create", "-q", f"../{bundle}", "main")


def restore(project: Path, bundle: str = BUNDLE) -> None:
    """The repository of a project that was carried without it, from the file beside the project."""
    _git(project, "init", "-q", "-b", "main")
    _git(project, "config", "core.fileMode", "false")  # a folder that was carried may have lost them
    _git(project, "fetch", "-q", f"../{bundle}", "main")
    _git(project, "update-ref", "refs/heads/main", "FETCH_HEAD")
    _git(project, "reset", "-q", "--mixed")


def _git(project: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=project, check=True)
