"""Proposals that anybody may have made: they change one kernel's own files, or nothing."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.core.errors import ProposalError
from tests.pull_request.conftest import BRANCH, BROKEN, CONFIG, FIXED, SOURCE, Place, commit, git


def _changed(folder: Path, **fields: Any) -> Path:
    """A proposal that says something else of itself."""
    file = folder / "proposal.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


def _untouched(place: Place) -> None:
    heads = git(place.bare, "for-each-ref", "--format=%(refname:short)", "refs/heads/").split()
    assert heads == ["main"]
    assert place.twin.api.pulls == []


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", "../out.cpp", "tests/conftest.py", "README.md"])
def test_paths_that_no_kernel_has(place: Place, path: str) -> None:
    """A path that leaves the project, hides or is run by others is refused before anything is sent."""
    folder = place.propose()
    text = (folder / "proposal.json").read_text().replace(SOURCE, path)
    (folder / "proposal.json").write_text(text)
    assert place.open(folder) == 2
    assert path.rpartition("/")[2] in place.printed().err
    assert place.twin.requests == []


@pytest.mark.parametrize("path", ["kernels/shift.cpp", "kernels/new.h"])
def test_files_of_others(place: Place, path: str) -> None:
    """A consistent proposal that changes a file which cgins.yaml on the base does not give its kernel is refused."""
    base = {SOURCE: BROKEN} | ({} if path.endswith(".h") else {path: "int shift() { return 0; }\n"})
    folder = place.propose({SOURCE: FIXED, path: "int shift() { return 1; }\n"}, base=base)
    assert place.open(folder) == 2
    assert f'the proposal is refused: "{path}" is not a source of scale/cpu-cpp' in place.printed().err
    assert place.tip(BRANCH) == ""


def test_a_kernel_that_the_base_does_not_have(place: Place) -> None:
    """What is to be repaired must be in cgins.yaml on the base branch, whatever the clone's says."""
    folder = place.propose(kernel="scale", implementation="other")
    (place.clone / "cgins.yaml").write_text(
        CONFIG.replace("source: kernels/scale.cpp", "source: kernels/shift.cpp")
    )
    assert place.open(folder) == 2
    assert "cgins.yaml on the base branch has no kernel scale/cpu-other" in place.printed().err


def test_a_link_on_the_base_is_not_followed(place: Place) -> None:
    """A source that is a symbolic link on the base branch, or lies behind one, is refused."""
    (place.other / SOURCE).unlink()
    (place.other / SOURCE).symlink_to("shift.cpp")
    commit(place.other, {})
    assert place.open() == 2
    assert f'"{SOURCE}" is a symbolic link on the base branch' in place.printed().err


def test_hostile_words_do_nothing(place: Place) -> None:
    """Mentions, references, markers and commands in a message are text in an element, and report.md is not read."""
    message = "@octo fixes #1 <!-- cgins:pr:shift-cpu-cpp --> ::error:: </code><img src=x>"
    folder = place.propose(message=message)
    assert place.open(folder) == 0
    body = str(place.twin.api.pulls[0].body)
    assert "@octo" not in body
    assert "<img" not in body
    assert "#1 " not in body
    assert [line.split(":")[1] for line in body.splitlines() if "<!--" in line] == ["pr", "of", "end -->"]


def test_names_that_are_no_branch(place: Place) -> None:
    """A name that would end the hidden marker is refused."""
    assert place.open(place.propose(implementation="a--x")) == 2
    assert "cannot be the name of a branch" in place.printed().err
    assert place.twin.requests == []


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("2999-01-01T00:00:00Z", "which is still to come"),
        ("soon", "which is not a time"),
        ("0001-01-01T00:00:00+23:59", "which is not a time"),
    ],
)
def test_a_time_that_is_still_to_come(place: Place, when: str, said: str) -> None:
    """It would be later than all that come, and keep them away."""
    assert place.open(_changed(place.propose(), created_at=when)) == 2
    assert said in place.printed().err
    _untouched(place)


@pytest.mark.parametrize("base", ["--upload-pack=touch${IFS}here", "refs/heads/main", "HEAD", "f" * 39])
def test_a_base_that_is_no_commit(place: Place, base: str) -> None:
    """It is never a word for git."""
    assert place.open(_changed(place.propose(), base_commit=base)) == 2
    assert "base_commit: is not a commit" in place.printed().err
    _untouched(place)


def test_a_base_that_nobody_has(place: Place) -> None:
    """A commit that the server does not know: the text says that nobody can tell what has changed since."""
    assert place.open(_changed(place.propose(), base_commit="f" * 40)) == 0
    body = str(place.twin.api.pulls[0].body)
    assert "nobody can tell what main has changed since it was measured" in body


@pytest.mark.parametrize("field", ["id", "title", "config", "run_id"])
def test_words_that_do_not_follow(place: Place, field: str) -> None:
    """Its ID, title and project follow from what it changes, or it is refused."""
    assert place.open(_changed(place.propose(), **{field: "main\nCgins-Proposal: other"})) == 2
    assert place.printed().err.startswith("cgins: ")
    _untouched(place)


@pytest.mark.parametrize("kind", ["submodule", "folder", "behind-a-link"])
def test_what_is_no_file_on_the_base(place: Place, kind: str) -> None:
    """Where the base branch has a submodule, a folder or a link in the way, nothing is written."""
    git(place.other, "rm", "--quiet", "-r", "kernels")
    if kind == "submodule":
        entry = f"160000,{place.tip('main')},{SOURCE}"
        git(place.other, "update-index", "--add", "--cacheinfo", entry)
        git(place.other, "commit", "--quiet", "-m", "Submodule")
        git(place.other, "push", "--quiet", "origin", "HEAD:main")
    elif kind == "folder":
        commit(place.other, {f"{SOURCE}/inside.cpp": BROKEN})
    else:
        (place.other / "elsewhere").mkdir()
        (place.other / "elsewhere/scale.cpp").write_text(BROKEN)
        (place.other / "kernels").symlink_to("elsewhere")
        commit(place.other, {})
    assert place.open() == 2
    output = place.printed().err
    assert {"submodule": "is a submodule", "folder": "is a folder", "behind-a-link": "is a symbolic link"}[
        kind
    ] in output
    _untouched(place)


def test_markup_in_a_source(place: Place) -> None:
    """A patch that would end its fence, open elements and mention people shows as text; the file is as it was made."""
    evil = f"{FIXED}// ```\n// </details><script>x</script> @octo fixes #1 <!-- cgins:pr:other -->\n// ````\n"
    assert place.open(place.propose({SOURCE: evil})) == 0
    body = str(place.twin.api.pulls[0].body)
    fence = "`" * 5
    before, patch, after = body.partition(f"{fence}diff\n")
    assert patch
    assert after.count(fence) == 1
    outside = before + after.partition(fence)[2]
    assert not any(word in outside for word in ("<script>", "@octo", "#1 ", "cgins:pr:other"))
    assert place.source == evil


def test_a_source_with_commands_for_a_runner(place: Place) -> None:
    """What the command prints gives no commands to a runner that shows it."""
    assert place.open(place.propose(message="::set-output name=a::b\n##[error]x")) == 0
    output = "".join(place.printed())
    assert "::set-output" not in output
    assert "##[" not in output


@pytest.mark.parametrize("default", [False, True])
def test_the_base_branch_is_never_the_bots(place: Place, default: bool) -> None:
    """A base branch with the name of the kernel's own, or such a default branch whatever the base, would be overwritten."""
    commit(place.other, {"README.md": "words"}, branch=BRANCH)
    if default:
        place.twin.api.default_branch = BRANCH
    assert place.open(None, "--base", "main" if default else BRANCH) == 2
    assert f"{BRANCH} is the branch to go into, and would be overwritten" in place.printed().err
    assert place.twin.api.pulls == []


OTHER = "kernels/shift.cpp"


@pytest.mark.exam
def test_it_closes_nothing(place: Place) -> None:
    """Files that the base branch has close no pull request: neither another kernel's, nor its own that says otherwise."""
    place.open()
    foreign = place.propose({OTHER: "int shift() { return 0; }\n"}, base={OTHER: "x\n"}, name="two")
    assert place.open(foreign) == 2
    assert f'"{OTHER}" is not a source of scale/cpu-cpp' in place.printed().err
    same = place.propose({SOURCE: BROKEN}, base={SOURCE: "x\n"}, name="three", run_id="run-2")
    assert place.open(same) == 0
    assert "main already has these files: nothing was done" in place.printed().out
    assert [one.state for one in place.twin.api.pulls] == ["open"]
    assert place.tip(BRANCH)
    assert place.twin.api.comments == []


@pytest.mark.exam
def test_it_marks_nothing_stale(place: Place) -> None:
    """With the ID of an open pull request and an invented base it is stale, and that pull request is not."""
    place.open()
    assert place.open(place.propose(base={SOURCE: "invented\n"}, name="two")) == 1
    assert place.twin.api.pulls[0].labels == []
    assert place.twin.api.comments == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"hubconf.py": "x = 1\n"}, "cgins.yaml"),
        ({"cgins.yaml": None, "Kernels/added.cpp": "int a;\n"}, '"Kernels" is "kernels" where'),
    ],
)
def test_a_new_kernel_that_is_none(place: Place, files: dict[str, str | None], said: str) -> None:
    """It needs its entry in cgins.yaml, and overwrites nothing where upper and lower case are the same."""
    entry = "  added:\n    op: torch.nn.functional.gelu\n    source: Kernels/added.cpp\n"
    new = {path: CONFIG + entry if text is None else text for path, text in files.items()}
    base = {"cgins.yaml": CONFIG} if "cgins.yaml" in files else {}
    with pytest.raises(ProposalError) if not base else nullcontext():
        folder = place.propose(new, base=base, goal="generate", kernel="added")
        assert place.open(folder) == 2
        assert said in place.printed().err
    _untouched(place)


@pytest.mark.exam
def test_a_fork_of_the_same_owner(place: Place) -> None:
    """Its branch has the same label: its pull request is not taken for the bot's, and gets no words, labels or comments."""
    place.open()
    [theirs] = place.twin.api.pulls
    theirs.head_repository, theirs.login, text = "other", "mallory", theirs.body
    better = place.better()
    assert place.open(better) == 0
    assert (theirs.body, theirs.edits, theirs.labels) == (text, 0, [])
    assert [one.number for one in place.twin.api.pulls] == [1, 2]
