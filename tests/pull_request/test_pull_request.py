"""A proposal becomes one pull request, over real git, and nothing of others is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pull_request import twin as twins
from tests.pull_request.conftest import BETTER, BRANCH, BROKEN, CONFIG, FIXED, SOURCE, Place, commit, git
from tests.pull_request.twin import Fault

NEW = "int added() { return 0; }\n"
ENTRY = "  added:\n    op: torch.nn.functional.gelu\n    source: kernels/added.cpp\n"


def test_a_proposal_becomes_a_draft_pull_request(place: Place) -> None:
    """One commit on the tip of the base, by the bot, with the new source; the report is the body."""
    assert place.open() == 0
    [pull] = place.twin.api.pulls
    assert (pull.head, pull.base, pull.draft, pull.state) == (BRANCH, "main", True, "open")
    assert pull.title == "Repair scale (cpp on cpu)"
    assert pull.body is not None
    assert pull.body.startswith("<!-- cgins:pr:scale-cpu-cpp -->\n")
    assert "wrong answer" in pull.body
    assert place.source == FIXED
    assert git(place.bare, "rev-list", "--count", f"main..{BRANCH}") == "1"
    assert git(place.bare, "rev-parse", f"{BRANCH}^") == place.tip("main")
    assert git(place.bare, "diff", "--name-only", "main", BRANCH) == SOURCE
    shown = git(place.bare, "log", "-1", "--format=%an%n%(trailers:key=Cgins-Proposal)", BRANCH)
    assert shown == "cgins-tester\nCgins-Proposal: run-1/scale-cpu-cpp"
    assert place.printed().out == f"opened #1 {place.twin.url}/octo/kernels/pull/1: {pull.title}\n"


@pytest.mark.exam
def test_another_proposal_takes_the_same_pull_request(place: Place) -> None:
    """GitHub says that there is one already; it gets the new commit and the new words."""
    place.open()
    better = place.better(message="other words")
    assert place.open(better) == 0
    [pull] = place.twin.api.pulls
    assert pull.edits == 1
    assert "other words" in str(pull.body)
    assert place.source == BETTER
    assert git(place.bare, "rev-list", "--count", f"main..{BRANCH}") == "1"
    assert place.printed().out.splitlines()[1].startswith("updated #1 ")


def test_a_stale_proposal_is_told(place: Place) -> None:
    """The kernel changed on the server meanwhile: nothing is pushed, and the exit status is 1."""
    folder = place.propose()
    commit(place.other, {SOURCE: "int scale() { return 9; }\n"})
    assert place.open(folder) == 1
    output = place.printed().out
    assert output.startswith(
        'the proposal is stale: "kernels/scale.cpp" on main is not what it was made on ('
    )
    assert "regenerate the kernel on the tip of main" in output
    assert place.tip(BRANCH) == ""
    assert place.twin.api.pulls == []


@pytest.mark.exam
@pytest.mark.parametrize("ended", ["closed", "closed-and-deleted", "merged-and-reverted"])
@pytest.mark.parametrize("moved", [False, True])
def test_the_same_files_of_another_run(place: Place, ended: str, moved: bool) -> None:
    """What a person closed, or merged and took back, stays so until the files differ, whichever run brings them."""
    place.open()
    [pull] = place.twin.api.pulls
    if ended == "merged-and-reverted":
        place.twin.api.merge(pull)
        git(place.other, "pull", "--quiet", "origin", "main")
        commit(place.other, {SOURCE: BROKEN})
    else:
        place.twin.api.set_state(pull, "closed")
        if ended.endswith("deleted"):
            git(place.bare, "update-ref", "-d", f"refs/heads/{BRANCH}")
    if moved:
        git(place.other, "pull", "--quiet", "origin", "main")
        commit(place.other, {"README.md": "words"})
    place.printed()
    assert place.open(place.propose(name="two", run_id="run-2", message="other words")) == 0
    assert "#1 " in place.printed().out
    assert len(place.twin.api.pulls) == 1
    assert place.open(place.better(name="three", run_id="run-3")) == 0
    assert [one.state for one in place.twin.api.pulls][1:] == ["open"]


@pytest.mark.exam
@pytest.mark.parametrize(
    "options",
    [["-m", "Mine"], ["--amend", "--no-edit"], ["--amend", "--no-edit", "--signoff"], ["--amend", "--reset-author", "-m", "Mine"]],
    ids=["on top", "amended", "signed off", "taken over"],
)  # fmt: skip
def test_a_persons_work_on_the_branch_is_kept(place: Place, options: list[str]) -> None:
    """A commit on the bot's, or the bot's commit amended, if only in its words: it stops, and says whose work it is."""
    place.open()
    place.stand_on_branch()
    if options in (["-m", "Mine"], ["--amend", "--no-edit"]):
        (place.other / SOURCE).write_text("int scale() { return 4; }\n")
    git(place.other, "commit", "--quiet", "--all", *options)
    mine = place.push()
    assert place.open(place.better()) == 1
    assert place.tip(BRANCH) == mine
    output = place.printed().out
    assert f"not opened: {BRANCH} has 1 commit that is not the bot's" in output
    assert f"→ merge them, or move them to another branch and delete {BRANCH}" in output
    assert "nothing was changed" in output
    assert "by ada@team.example" in output


def test_a_persons_pull_request_keeps_its_words(place: Place) -> None:
    """One of the same branch without the hidden marker is not the bot's."""
    place.open()
    place.twin.api.pulls[0].body = "my own words"
    assert place.open(place.propose(message="other words", run_id="run-2")) == 2
    assert place.twin.api.pulls[0].body == "my own words"
    assert "pull request #1 of cgins/repair/scale-cpu-cpp is not the bot's" in place.printed().err


@pytest.mark.exam
def test_a_dry_run_changes_nothing(place: Place) -> None:
    """No branch, no pull request, and no request but for reading."""
    folder = place.propose()
    assert place.open(folder, "--dry-run") == 0
    assert place.tip(BRANCH) == ""
    assert {request.method for request in place.twin.requests if "/api/v3/" in request.path} == {"GET"}
    assert not any("receive-pack" in request.path + request.query for request in place.twin.requests)
    place.open(folder)
    place.open(place.better(), "--dry-run")
    place.open(folder, "--dry-run")
    output = place.printed().out.splitlines()
    assert (
        output[0]
        == f"dry run: would push {BRANCH} and open a pull request into main: Repair scale (cpp on cpu)"
    )
    assert output[2].startswith(f"dry run: would push {BRANCH} and update #1 ")
    assert output[3].startswith("unchanged: #1 ")
    assert place.source == FIXED


@pytest.mark.exam
def test_a_project_below_the_top(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths begin at the top of the repository; a kernel of the same name in another project has a branch of its own."""
    commit(place.other, {"sub/cgins.yaml": CONFIG, f"sub/{SOURCE}": BROKEN})
    git(place.clone, "pull", "--quiet", str(place.bare), "main")
    files = {f"sub/{SOURCE}": FIXED}
    folder = place.propose(files, base={f"sub/{SOURCE}": BROKEN}, config="sub/cgins.yaml")
    assert place.open(folder) == 2
    assert place.open(place.propose(name="top")) == 0
    monkeypatch.chdir(place.clone / "sub")
    assert place.open(folder) == 0
    first, second = place.twin.api.pulls
    assert first.head == BRANCH
    assert second.head.startswith(f"{BRANCH}-")
    assert git(place.bare, "diff", "--name-only", "main", second.head) == f"sub/{SOURCE}"
    assert git(place.bare, "diff", "--name-only", "main", first.head) == SOURCE


@pytest.mark.exam
def test_one_branch_goes_into_one_base(place: Place) -> None:
    """On another base's tip the branch would bring that one's commits along: nothing is changed."""
    commit(place.other, {"a.txt": "of the release"}, branch="release")
    folder = place.propose()
    place.open(folder)
    before = place.tip(BRANCH)
    assert place.open(folder, "--base", "release") == 2
    assert f"pull request #1 of {BRANCH} goes into main: nothing was changed" in place.printed().err
    place.twin.api.pulls[0].base = "release"
    assert place.open(folder) == 2
    assert "use --base release" in place.printed().err
    assert (place.tip(BRANCH), len(place.twin.api.pulls)) == (before, 1)


@pytest.mark.exam
def test_what_people_wrote_around_it_stays(place: Place) -> None:
    """Title and words of a person are kept; the part between the bot's markers is the bot's."""
    place.open()
    [pull] = place.twin.api.pulls
    pull.title, pull.body = "WIP: wait for Ada", f"Mind the release.\n\n{pull.body}\n\nReviewed by Bea."
    better = place.better(message="other words")
    assert place.open(better) == 0
    body = str(pull.body)
    assert pull.title == "WIP: wait for Ada"
    assert body.startswith("Mind the release.\n\n<!-- cgins:pr:scale-cpu-cpp -->\n")
    assert body.endswith("<!-- cgins:end -->\n\nReviewed by Bea.")
    assert "other words" in body
    assert "wrong answer" not in body
    assert place.open(better) == 0
    assert pull.edits == 1


@pytest.mark.exam
def test_what_was_closed_stays_closed_when_others_come(place: Place) -> None:
    """An earlier proposal does not come back after a later one was closed too, whatever the base has become."""
    first = place.propose()
    third = place.propose({SOURCE: "int scale() { return 5; }\n"}, name="three", run_id="run-0")
    place.open(first)
    place.twin.api.set_state(place.twin.api.pulls[0], "closed")
    place.open(place.better())
    place.twin.api.set_state(place.twin.api.pulls[1], "closed")
    commit(place.other, {"README.md": "words"})
    assert place.open(first) == 0
    assert place.open(third) == 0
    output = place.printed().out.splitlines()
    assert "#1 " in output[2]
    assert "was closed: nothing was done" in output[2]
    assert "has a later proposal, run-2/scale-cpu-cpp" in output[3]
    assert [one.state for one in place.twin.api.pulls] == ["closed", "closed"]


@pytest.mark.exam
def test_a_branch_that_was_merged_and_left(place: Place) -> None:
    """A person's commit on it was merged with it, squashed: nothing of it can be lost."""
    place.open()
    place.stand_on_branch()
    fixed = "int scale() { return 4; }\n"
    commit(place.other, {SOURCE: fixed}, branch=BRANCH)
    place.twin.api.merge(place.twin.api.pulls[0], squash=True)
    assert place.show(f"main:{SOURCE}") + "\n" == fixed
    better = place.propose(
        {SOURCE: "int scale() { return 5; }\n"}, base={SOURCE: fixed}, name="two", run_id="run-2"
    )
    assert place.open(better) == 0
    assert len(place.twin.api.pulls) == 2
    assert git(place.bare, "rev-list", "--count", f"main..{BRANCH}") == "1"


def test_a_new_kernel_comes_with_its_entry(place: Place) -> None:
    """A generated kernel adds a file and its lines of cgins.yaml, on a branch of its own."""
    folder = place.propose(
        {"kernels/added.cpp": NEW, "cgins.yaml": CONFIG + ENTRY},
        base={"cgins.yaml": CONFIG},
        goal="generate",
        kernel="added",
    )
    assert place.open(folder) == 0
    branch = "cgins/generate/added-cpu-cpp"
    assert git(place.bare, "diff", "--name-only", "main", branch).split() == [
        "cgins.yaml",
        "kernels/added.cpp",
    ]
    assert place.twin.api.pulls[0].title == "Add added (cpp on cpu)"


def test_ready_base_and_author_are_options(place: Place) -> None:
    """--ready, --base and --author are taken."""
    commit(place.other, {"README.md": "of the release"}, branch="release")
    assert place.open(None, "--ready", "--base", "release", "--author", "Cgins <cgins@team.example>") == 0
    [pull] = place.twin.api.pulls
    assert (pull.draft, pull.base) == (False, "release")
    assert git(place.bare, "log", "-1", "--format=%an %ce", BRANCH) == "Cgins cgins@team.example"


def test_an_executable_source_stays_executable(place: Place) -> None:
    """The mode of a file is the base's."""
    git(place.other, "update-index", "--chmod=+x", SOURCE)
    git(place.other, "commit", "--quiet", "-m", "Mode")
    git(place.other, "push", "--quiet", "origin", "HEAD:main")
    assert place.open() == 0
    assert git(place.bare, "ls-tree", BRANCH, SOURCE).startswith("100755 ")


# ---- bad days


def test_a_push_that_the_api_has_not_seen_yet(place: Place) -> None:
    """The new branch is unknown for a moment: it is asked again."""
    place.twin.api.unseen_heads = 2
    assert place.open() == 0
    assert len(place.twin.api.pulls) == 1


def test_a_killed_run_is_gone_on_with(place: Place) -> None:
    """The branch was pushed and no pull request made: the next run makes it, with the same commit."""
    folder = place.propose()
    place.twin.faults = [Fault("POST", "/pulls", status=422, message="not today")]
    assert place.open(folder) == 2
    before = place.tip(BRANCH)
    assert place.open(folder) == 0
    assert place.tip(BRANCH) == before
    assert len(place.twin.api.pulls) == 1


@pytest.mark.exam
def test_drafts_that_a_repository_does_not_have(place: Place) -> None:
    """It is opened ready, with a note; if --draft was given, GitHub's refusal comes with what to do."""
    place.twin.api.drafts = False
    folder = place.propose()
    assert place.open(folder, "--draft") == 2
    assert "→ open it with --ready" in place.printed().err
    assert place.open(folder) == 0
    assert [one.draft for one in place.twin.api.pulls] == [False]
    assert "note: it is not a draft: this repository does not allow drafts" in place.printed().err


def test_a_workflows_token_that_may_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Actions may not open pull requests, the setting is named."""
    monkeypatch.setenv("GITHUB_TOKEN", twins.ACTIONS)
    assert place.open() == 2
    assert "Actions, General, Workflow permissions" in place.printed().err


def test_a_base_that_is_not_there(place: Place) -> None:
    """--base that names no branch."""
    assert place.open(None, "--base", "nowhere") == 2
    assert 'there is no branch "nowhere" on the server' in place.printed().err


# ---- secrets


@pytest.mark.parametrize(
    ("token", "status", "said"),
    [
        ("wrong-token-1234", "401", "set GITHUB_TOKEN or GH_TOKEN to one that is"),
        (twins.READER, "not accessible", "contents: write"),
    ],
)
def test_a_token_that_is_not_enough(
    place: Place, monkeypatch: pytest.MonkeyPatch, token: str, status: str, said: str
) -> None:
    """The message names the status and the remedy, and not the token."""
    monkeypatch.setenv("GITHUB_TOKEN", token)
    monkeypatch.setenv("GIT_TRACE_CURL", "1")
    monkeypatch.setenv("GIT_CURL_VERBOSE", "1")
    assert place.open() == 2
    output = "".join(place.printed())
    assert status in output
    assert said in output
    assert token not in output


def test_no_token(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a token nothing is sent; another variable can be named."""
    monkeypatch.delenv("GITHUB_TOKEN")
    monkeypatch.setenv("MY_TOKEN", twins.WRITER)
    assert place.open() == 2
    error = place.printed().err
    assert "there is no token: GITHUB_TOKEN and GH_TOKEN are not set" in error
    assert "contents: write and pull-requests: write" in error
    assert place.twin.requests == []
    assert place.open(None, "--token-variable", "MY_TOKEN") == 0


@pytest.mark.exam
def test_the_token_is_nowhere(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not in the output of a verbose run, not on a command line, not in a file of the clone or of the server."""
    secret = "ghs_" + "Q7" * 18
    place.twin.tokens.add(secret)
    lines = tmp_path / "lines"
    wrapper = tmp_path / "bin/git"
    wrapper.parent.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {lines}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    folder = place.propose()
    environment = {**os.environ, "GITHUB_TOKEN": secret, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    words = [
        "--log-level",
        "debug",
        "pull-request",
        "open",
        "--proposal",
        str(folder),
        "--commit-with",
        "push",
    ]
    command = [sys.executable, "-c", CHILD, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stderr
    output = (done.stdout + done.stderr + lines.read_text()).encode()
    kept = [
        path.read_bytes() for top in (place.clone, place.bare) for path in top.rglob("*") if path.is_file()
    ]
    assert not any(secret.encode() in text for text in (output, *kept))
    assert "push" in lines.read_text()


CHILD = """
import sys
from pytest_cgins.app.cli import main
code = main(sys.argv[1:])
heavy = [one for one in sys.modules if one.split(".")[0] in ("torch", "openai") or ".execute" in one]
print("imported:", [one for one in heavy if "pytest_cgins" in one or one == "torch"], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.exam
def test_a_shallow_clone_is_enough(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one commit of history, as actions/checkout makes it, and with a base that moved on before and after."""
    folder = place.propose()
    commit(place.other, {"a.txt": "a"})
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{place.bare}", "shallow")
    git(tmp_path / "shallow", "remote", "set-url", "origin", place.twin.remote)
    monkeypatch.chdir(tmp_path / "shallow")
    assert place.open(folder) == 0
    commit(place.other, {"b.txt": "b"})
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{place.bare}", "later")
    git(tmp_path / "later", "remote", "set-url", "origin", place.twin.remote)
    monkeypatch.chdir(tmp_path / "later")
    assert place.open(folder) == 0
    assert git(place.bare, "rev-parse", f"{BRANCH}^") == place.tip("main")
    assert len(place.twin.api.pulls) == 1
