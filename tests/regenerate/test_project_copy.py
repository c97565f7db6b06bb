"""A project's copy, in which candidates take the place of a kernel's sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_cgins.config import load
from pytest_cgins.core.errors import RegenerateError, RevisionError
from pytest_cgins.regenerate.project_copy import BASE, INCUMBENT, ProjectCopy

from .projects import FILES, YAML, committed, git, write

SOURCE = "native/scale.cpp"


def copy_of(
    project: Path, folder: Path, *, implementation: str = "cpp", baseline: str = "merge-base"
) -> ProjectCopy:
    config = load(project / "cgins.yaml")
    return ProjectCopy(config, ("scale", implementation, "cpu"), folder / "copy", baseline=baseline)


def test_it_has_what_builds_and_imports_read(tmp_path: Path) -> None:
    """Sources, headers, modules and settings are there, byte for byte; prose and what git ignores are not."""
    project = committed(tmp_path / "project", {**FILES, ".gitignore": "secret.py\n"})
    write(project, {"secret.py": "KEY = 1\n", "native/new.h": "// untracked\n"})
    copy = copy_of(project, tmp_path)
    found = {str(file.relative_to(copy.top)) for file in copy.top.rglob("*") if ".git/" not in str(file)}
    assert {SOURCE, "native/factor.h", "native/new.h", "kernels/scale.py", "cgins.yaml"} <= found
    assert not {"secret.py", "notes.md"} & found
    assert (copy.top / SOURCE).read_bytes() == (project / SOURCE).read_bytes()
    assert copy.files == (SOURCE,)
    assert copy.incumbent() == {SOURCE: FILES[SOURCE]}


def test_paths_of_its_configuration_are_its_own(tmp_path: Path) -> None:
    """Sources of all implementations lie in the copy, packs stay where they are."""
    project = committed(
        tmp_path / "project",
        {**FILES, "cgins.yaml": YAML + "traces: [traces/one]\n", "traces/one/manifest.json": "{}"},
    )
    copy = copy_of(project, tmp_path)
    assert copy.config.root == copy.top
    assert copy.config.traces == (project / "traces/one",)
    assert not (copy.top / "traces").exists()
    assert {file for one in copy.config.kernels[0].implementations for file in one.sources} == {
        copy.top / SOURCE
    }


def test_below_the_top_of_a_repository(tmp_path: Path) -> None:
    """Paths start at the top of the repository, also where cgins.yaml lies further down and names files beside it."""
    yaml = YAML.replace("native/scale.cpp", "../native/scale.cpp")
    files = {"ci/cgins.yaml": yaml, "ci/kernels/scale.py": FILES["kernels/scale.py"], SOURCE: FILES[SOURCE]}
    project = committed(tmp_path / "project", files)
    config = load(project / "ci/cgins.yaml")
    copy = ProjectCopy(config, ("scale", "cpp", "cpu"), tmp_path / "copy", baseline="merge-base")
    assert copy.files == (SOURCE,)
    assert copy.config.root == copy.top / "ci"
    assert copy.relative(config.file) == "ci/cgins.yaml"


def test_a_candidate_is_an_edit_of_the_incumbent(tmp_path: Path) -> None:
    """After `put` the copy differs from the incumbent in own sources only, and the project not at all."""
    project = committed(tmp_path / "project")
    copy = copy_of(project, tmp_path)
    copy.put({SOURCE: "first\r\n"})
    (copy.top / "native/factor.h").write_text("changed")
    (copy.top / "stray.py").write_text("changed")
    assert copy.touched() == ("native/factor.h", "stray.py")
    copy.put({SOURCE: "second"})
    assert copy.touched() == ()
    assert (copy.top / SOURCE).read_text() == "second"
    assert git(copy.top, "diff", "--name-only", INCUMBENT).split() == [SOURCE]
    assert git(project, "status", "--porcelain") == ""


def test_no_other_file_can_be_put(tmp_path: Path) -> None:
    """A path that is no own source is refused, with those that are."""
    copy = copy_of(committed(tmp_path / "project"), tmp_path)
    with pytest.raises(
        RegenerateError, match=r"cgins\.yaml is not a source of this kernel\n→ only native/scale\.cpp"
    ):
        copy.put({"cgins.yaml": ""})


def test_base_and_incumbent_are_its_commits(tmp_path: Path) -> None:
    """Uncommitted edits are the incumbent, and the project's base revision is a commit of the copy."""
    project = committed(tmp_path / "project")
    write(project, {SOURCE: "edited\n"})
    copy = copy_of(project, tmp_path)
    assert copy.base_commit == git(project, "rev-parse", "HEAD").strip()
    assert git(copy.top, "show", f"{BASE}:{SOURCE}") == FILES[SOURCE].replace("\r\n", "\n")
    assert git(copy.top, "show", f"{INCUMBENT}:{SOURCE}") == "edited\n"
    assert copy.against_base == BASE


@pytest.mark.parametrize(
    ("edits", "same"),
    [({}, True), ({SOURCE: "edited\n"}, False), ({"native/factor.h": "#define FACTOR 3\n"}, False),
     ({"native/new.h": "\n"}, False), ({"notes.md": "other notes\n"}, True)],
)  # fmt: skip
def test_whether_the_base_is_the_incumbent(tmp_path: Path, edits: dict[str, str], same: bool) -> None:
    """What no build and no import reads makes no difference; the base of a project without one is nobody."""
    project = committed(tmp_path / "project", {**FILES, SOURCE: FILES[SOURCE].replace("\r\n", "\n")})
    write(project, edits)
    assert copy_of(project, tmp_path).base_is_incumbent == same
    assert not copy_of(project, tmp_path / "none", baseline="none").base_is_incumbent


def test_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no base, and times are compared with nothing; a baseline that was named is missed."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    project = write(tmp_path / "project")
    copy = copy_of(project, tmp_path)
    assert copy.base_commit == ""
    assert copy.against_base == "none"
    assert copy.files == (SOURCE,)
    with pytest.raises(RevisionError):
        copy_of(project, tmp_path / "again", baseline="v1")


def test_implementations_that_share_a_source(tmp_path: Path) -> None:
    """With a candidate's module, all kernels of that module are tried; with a file of its own, it alone."""
    project = committed(tmp_path / "project")
    python = copy_of(project, tmp_path / "1", implementation="python")
    assert python.files == ("kernels/scale.py",)
    names = [
        one.name for entry in python.with_implementation(alone=False).kernels for one in entry.implementations
    ]
    assert names == ["python", "other"]
    alone = [one.name for entry in python.with_implementation().kernels for one in entry.implementations]
    assert alone == ["python"]


def test_sources_outside_of_the_project(tmp_path: Path) -> None:
    """A source that is not in the project cannot be proposed, which is said at once."""
    write(tmp_path, {"elsewhere.cpp": "x"})
    yaml = YAML.replace("native/scale.cpp", str(tmp_path / "elsewhere.cpp"))
    project = committed(tmp_path / "project", {**FILES, "cgins.yaml": yaml})
    with pytest.raises(
        RegenerateError, match="only kernels whose sources are in the project can be regenerated"
    ):
        copy_of(project, tmp_path)


def test_a_module_that_is_imported_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python finds a target in the project by its own path, a copy could not take its place."""
    files = {
        "ci/cgins.yaml": YAML.replace("source: native/scale.cpp", "source: a.cpp"),
        "ci/a.cpp": "",
        **FILES,
    }
    project = committed(tmp_path / "project", files)
    monkeypatch.syspath_prepend(str(project))
    config = load(project / "ci/cgins.yaml")
    with pytest.raises(RegenerateError, match=r"is not imported from the folder of cgins\.yaml"):
        ProjectCopy(config, ("scale", "python", "cpu"), tmp_path / "copy", baseline="none")


def test_an_overlay_is_part_of_the_incumbent(tmp_path: Path) -> None:
    """What the run adds itself is no change of a candidate."""
    project = committed(tmp_path / "project")
    config = load(project / "cgins.yaml")
    copy = ProjectCopy(
        config, ("scale", "cpp", "cpu"), tmp_path / "copy", baseline="none", overlay={"cgins.yaml": "added\n"}
    )
    copy.put({SOURCE: "x"})
    assert (copy.top / "cgins.yaml").read_text() == "added\n"
    assert copy.touched() == ()


def test_hooks_and_settings_of_the_user_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a template's hooks nor settings for line ends or signatures reach the copy."""
    home = write(tmp_path / "home", {"template/hooks/pre-commit": "#!/bin/sh\nexit 1\n"})
    os.chmod(home / "template/hooks/pre-commit", 0o755)  # noqa: PTH101
    write(
        home,
        {
            ".gitconfig": f"[init]\ntemplateDir = {home}/template\n[core]\nautocrlf = true\n[commit]\ngpgSign = true\n"
        },
    )
    project = committed(tmp_path / "project")
    monkeypatch.setenv("HOME", str(home))
    copy = copy_of(project, tmp_path)
    copy.put({SOURCE: "one\r\ntwo\n"})
    assert (copy.top / SOURCE).read_bytes() == b"one\r\ntwo\n"
