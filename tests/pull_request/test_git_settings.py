"""A clone whose settings, hooks and refs would have git do something else: the process with the token heeds none."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.pull_request.clone import Clone, Identity
from pytest_cgins.pull_request.remote import parse
from tests.pull_request import twin as twins
from tests.pull_request.conftest import BRANCH, FIXED, SOURCE, Place, commit, git
from tests.pull_request.test_partial_clone import partial_clone

HOOKS = (
    "pre-push",
    "reference-transaction",
    "post-checkout",
    "post-index-change",
    "fsmonitor-watchman",
    "pre-auto-gc",
)
SETTINGS = {
    "rewritten": '[url "ELSEWHERE/"]\n  insteadOf = SERVER/',
    "rewritten-whole": '[url "ELSEWHERE/x.git"]\n  insteadOf = REMOTE',
    "rewritten-push": '[url "ELSEWHERE/"]\n  pushInsteadOf = SERVER/',
    "a-program-as-address": '[url "ext::PROGRAM "]\n  insteadOf = SERVER\n[protocol "ext"]\n  allow = always',
    "a-remote-of-the-same-name": '[remote "REMOTE"]\n  url = ELSEWHERE/x.git\n  pushurl = ELSEWHERE/x.git',
    "a-helper-for-the-remote": '[remote "REMOTE"]\n  url = REMOTE\n  vcs = evil',
    "programs-of-the-remote": '[remote "REMOTE"]\n  url = REMOTE\n  receivepack = PROGRAM\n  uploadpack = PROGRAM',
    "proxy": "[http]\n  proxy = ELSEWHERE",
    "proxy-of-the-address": '[http "REMOTE"]\n  proxy = ELSEWHERE',
    "proxy-of-the-remote": '[remote "REMOTE"]\n  url = REMOTE\n  proxy = ELSEWHERE',
    "credentials": "[credential]\n  helper = !PROGRAM",
    "credentials-of-the-address": '[credential "SERVER"]\n  helper = !PROGRAM',
    "a-password-asked-for": "[core]\n  askPass = PROGRAM",
    "programs": "[core]\n  sshCommand = PROGRAM\n  gitProxy = PROGRAM\n  fsmonitor = PROGRAM\n  alternateRefsCommand = PROGRAM\n"
    "  pager = PROGRAM\n  editor = PROGRAM\n[gpg]\n  program = PROGRAM\n[commit]\n  gpgSign = true\n[push]\n  gpgSign = true\n"
    "[log]\n  showSignature = true\n[diff]\n  external = PROGRAM",
    "hooks": "[core]\n  hooksPath = HOOKS",
    "another-header": '[http "REMOTE"]\n  extraHeader = Authorization: Basic eDp5',
    "cookies-and-agent": "[http]\n  cookieFile = HOOKS/cookies\n  saveCookies = true\n  userAgent = nobody",
    "other-ids": "[core]\n  abbrev = 4\n[diff]\n  renames = copies\n[log]\n  mailmap = true\n[i18n]\n  logOutputEncoding = UTF-16",
    "refspecs": '[remote "REMOTE"]\n  url = REMOTE\n  fetch = +refs/heads/*:refs/heads/*\n  push = refs/heads/main\n  mirror = true',
    "push-options": "[push]\n  followTags = true\n  pushOption = ci.skip\n  recurseSubmodules = on-demand",
}  # fmt: skip
"""In one word what a section does. REMOTE, SERVER, ELSEWHERE, PROGRAM and HOOKS are filled in."""


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """A server of others, and what it heard."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.command} {self.path} {self.headers}")
            self.send_error(404)

        do_POST = do_CONNECT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()


def _program(folder: Path) -> tuple[Path, Path]:
    """A program that says in a file that it ran."""
    said, program = folder / "it-ran", folder / "hooks" / "program"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$0 $*" >>"{said}"\n')
    program.chmod(0o755)
    for hook in HOOKS:
        (program.parent / hook).symlink_to(program)
    return program, said


@pytest.mark.parametrize(
    ("name", "where"),
    [
        *(("all", where) for where in ("config", "included", "worktree")),
        *(pytest.param(name, "config", marks=pytest.mark.exam) for name in SETTINGS),
    ],
)
def test_settings_of_the_repository(
    place: Place, elsewhere: tuple[str, list[str]], name: str, where: str
) -> None:
    """In .git/config, in a file that it includes, or in that of its work tree: the pull request comes as it would."""
    url, heard = elsewhere
    program, said = _program(place.clone.parent)
    text = "\n".join(SETTINGS.values()) if name == "all" else SETTINGS[name]
    for word, value in {
        "REMOTE": place.twin.remote, "SERVER": place.twin.url, "ELSEWHERE": url, "PROGRAM": program, "HOOKS": program.parent,
    }.items():  # fmt: skip
        text = text.replace(word, str(value))
    folder = place.clone / ".git"
    file = {"config": "config", "included": "more", "worktree": "config.worktree"}[where]
    if where == "included":
        git(place.clone, "config", "include.path", "more")
        git(place.clone, "config", f"includeIf.gitdir:{folder}/.path", "more")
    if where == "worktree":
        git(place.clone, "config", "extensions.worktreeConfig", "true")
    with (folder / file).open("a") as settings:
        settings.write(f"\n{text}\n")
    git(place.clone, "config", f"http.{place.twin.url}/.extraheader", "AUTHORIZATION: basic bm90OnRoaXM=")
    assert place.open(None, "--commit-with", "push") == 0
    pushes = [request for request in place.twin.requests if request.path.endswith("git-receive-pack")]
    assert [one.authorization.startswith("Basic eC1hY2Nlc3MtdG9rZW46") for one in pushes] == [True]
    assert place.source == FIXED
    assert git(place.bare, "for-each-ref", "--format=%(refname)").split() == [
        f"refs/heads/{BRANCH}",
        "refs/heads/main",
    ]
    assert heard == []
    assert not said.exists(), said.read_text()


def test_hooks_of_the_repository(place: Place) -> None:
    """Nothing that git would run beside a command runs."""
    program, said = _program(place.clone.parent)
    for hook in HOOKS:
        (place.clone / ".git/hooks" / hook).symlink_to(program)
    assert place.open(None, "--commit-with", "push") == 0
    assert not said.exists(), said.read_text()


def test_objects_that_stand_for_others(place: Place) -> None:
    """`git replace` and grafts in the clone change nothing of what is compared and committed."""
    tip = git(place.clone, "rev-parse", "HEAD")
    (place.clone / SOURCE).write_text("int evil() {}\n")
    git(place.clone, "commit", "--quiet", "-am", "Another")
    git(place.clone, "replace", tip, git(place.clone, "rev-parse", "HEAD"))
    (place.clone / ".git/info/grafts").write_text(f"{tip}\n")
    assert place.open(None, "--commit-with", "push") == 0
    assert git(place.bare, "rev-parse", f"{BRANCH}^") == tip
    assert git(place.bare, "diff", "--name-only", f"{BRANCH}^", BRANCH) == SOURCE


def test_files_of_a_partial_clone_come_from_the_server(
    place: Place, elsewhere: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever address or program the clone names for files that it lacks."""
    url, heard = elsewhere
    program, said = _program(place.clone.parent)
    folder = partial_clone(place)
    commit(place.other, {SOURCE: "int scale() { return 5; }\n"})
    git(folder, "config", "remote.evil.promisor", "true")
    git(folder, "config", "remote.evil.url", f"{url}/x.git")
    git(folder, "config", "remote.origin.uploadpack", str(program))
    monkeypatch.chdir(folder)
    proposal = place.propose(base={SOURCE: "int scale() { return 5; }\n"})
    assert place.open(proposal, "--commit-with", "push") == 0
    assert heard == []
    assert not said.exists()


@pytest.mark.parametrize("how", ["api", "push"])
def test_the_clone_is_as_it_was(place: Place, how: str) -> None:
    """Edits, what is staged, the branch, the refs and the settings: nothing is written but objects."""
    (place.clone / "kernels/shift.cpp").write_text("// edited\n")
    (place.clone / "staged.txt").write_text("staged\n")
    git(place.clone, "add", "staged.txt")

    def seen() -> dict[Path, int]:
        files = (file for file in place.clone.rglob("*") if "objects" not in file.parts)
        return {file: file.stat().st_mtime_ns for file in files}

    before = seen()
    assert place.open(None, "--commit-with", how) == 0
    assert seen() == before


def test_nothing_is_left_in_the_temporary_folder(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The repository of our own goes with the object that made it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    tool = Clone(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))
    assert tool.fetch(place.twin.remote, "main")
    assert len(list((tmp_path / "own").iterdir())) == 1
    del tool
    assert list((tmp_path / "own").iterdir()) == []


@pytest.mark.parametrize("kind", ["worktree", "shallow", "odd-name", "sha256"])
def test_clones_of_every_kind(place: Place, kind: str) -> None:
    """A linked work tree, a shallow clone, one at a path that is no UTF-8, and one with longer ids."""
    folder = place.clone.parent / "another"
    if kind == "odd-name":
        folder = Path(os.fsdecode(os.fsencode(folder) + b"\xff\"#'"))
    if kind == "sha256":
        git(place.clone.parent, "init", "--quiet", "--object-format=sha256", "another")
        (folder / "x").write_text("x")
        git(folder, "add", "x")
        git(folder, "commit", "--quiet", "-m", "Work")
        commit_id = git(folder, "rev-parse", "HEAD")
        assert Clone(folder).tree_of(commit_id) == git(folder, "rev-parse", "HEAD^{tree}")
        return
    commit(place.other, {"README.md": "more\n"})
    if kind == "worktree":
        git(place.clone, "worktree", "add", "--quiet", "--detach", str(folder))
    else:
        depth = ["--depth=1"] if kind == "shallow" else []
        git(place.clone.parent, "clone", "--quiet", *depth, f"file://{place.bare}", str(folder))
    tool = Clone(folder, token=twins.WRITER, remote=parse(place.twin.remote))
    tip = tool.fetch(place.twin.remote, "main")
    assert tip == place.tip("main")
    made = tool.commit(
        tool.tree(tip, {SOURCE: b"x"}), tip, "Words\n", Identity(name="Ada", email="a@b.example")
    )
    tool.push(place.twin.remote, made, "work", expected=None)
    assert git(place.bare, "rev-list", "--count", "main..work") == "1"


# ---- redirects


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_git_follows_no_redirect(place: Place, elsewhere: tuple[str, list[str]], status: int) -> None:
    """Wherever it points to, nothing is asked there; the remedy names the address to set."""
    url, heard = elsewhere
    place.twin.faults = [
        twins.Fault(
            path="/info/refs", status=status, headers={"Location": f"{url}/octo/new.git/info/refs"}, times=9
        )
    ]
    tool = Clone(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))
    with pytest.raises(GitHubError, match=f"returned error: {status}") as caught:
        tool.fetch(place.twin.remote, "main")
    assert heard == []
    assert caught.value.remedy == (
        "the repository was renamed or moved: give the remote its new address, with git remote set-url"
    )


def test_a_push_that_is_refused_for_a_workflows_file(place: Place) -> None:
    """The permission that is told is the one that lacks."""
    hook = place.bare / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\necho 'refusing to allow a GitHub App to create or update workflow `.github/workflows/ci.yml` without "
        "`workflows` permission' >&2\nexit 1\n"
    )
    hook.chmod(0o755)
    tool = Clone(place.clone, token=twins.WRITER, remote=parse(place.twin.remote))
    tip = str(tool.fetch(place.twin.remote, "main"))
    with pytest.raises(GitHubError, match="refusing to allow") as caught:
        tool.push(place.twin.remote, tip, "work", expected=None)
    assert "needs workflows: write" in caught.value.remedy
