"""A clone that has all commits, and of files only those of its own commit: as the job has that publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.app.cli import main
from tests.pull_request.conftest import SOURCE, Place, commit, git
from tests.pull_request.twin import WRITER

SHIFT = "kernels/shift.cpp"


def partial_clone(place: Place) -> Path:
    """Made with a token that is not left in it."""
    folder = place.clone.parent / "partial"
    url = place.twin.remote.replace("http://", f"http://x-access-token:{WRITER}@")
    git(place.clone.parent, "clone", "--quiet", "--filter=blob:none", url, str(folder))
    git(folder, "remote", "set-url", "origin", place.twin.remote)
    return folder


@pytest.mark.exam
@pytest.mark.parametrize("how", ["api", "push"])
def test_files_that_are_missing_are_brought_with_the_token(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A base branch that went back to an older file, which the clone lacks, is committed on and looked after."""
    old = git(place.other, "show", f"HEAD:{SHIFT}") + "\n"
    commit(place.other, {SHIFT: "int shift() { return 7; }\n"})
    folder = partial_clone(place)
    missing = git(folder, "rev-list", "--objects", "--all", "--missing=print")
    assert f"?{git(place.bare, 'rev-parse', f'HEAD~1:{SHIFT}')}" in missing
    monkeypatch.chdir(folder)
    tip = commit(place.other, {SHIFT: old})
    assert place.open(None, "--commit-with", how) == 0
    [pull] = place.twin.api.pulls
    assert git(place.bare, "rev-parse", f"{pull.head}^") == tip
    assert git(place.bare, "diff", "--name-only", f"{pull.head}^", pull.head) == SOURCE
    commit(place.other, {"README.md": "more\n"})
    place.printed()
    assert main(["pull-request", "status"]) == 0
    assert "behind" in place.printed().out
