"""A clone, used through a bare repository of its own on the clone's objects.

So the clone's working tree, index, refs, hooks and settings, and whatever these include, are neither heeded
nor changed. Read are its objects, to which others come, the address of a remote, and where in it a folder is.
The token is given to git in the environment, for one url only; it is on no command line, in no file and in no
message.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from pytest_cgins.building.revision.merge_base import LFS_POINTER
from pytest_cgins.core import git
from pytest_cgins.core.errors import GitError, GitHubError
from pytest_cgins.pull_request.credentials import workflow_permission
from pytest_cgins.pull_request.remote import Remote, without_user
from pytest_cgins.pull_request.retries import retried

LIMIT_S = 300.0
"""Longest that one command of git may take."""
TRIES = 3
"""Times that the server is asked, if there is trouble on the way."""
MOST_COMMITS = 100
"""No more commits of a branch are listed."""
REFUSED_MODES = {"120000": "a symbolic link", "160000": "a submodule"}
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MESSAGE_LENGTH = 2000
_TROUBLE = re.compile(
    r"error: (403|429|5\d\d)|Could not resolve host|Connection (reset|refused|timed out)|Empty reply|hung up|"
    r"early EOF|unexpected disconnect|Recv failure|outstanding read data|transfer closed"
)
"""What git says of trouble that may pass; so GitHub also limits how much is asked of it (403)."""
MOVED = "the repository was renamed or moved: give the remote its new address, with git remote set-url"


class BranchMovedError(GitHubError):
    """Somebody else changed a branch between a look at it and a change of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Author and committer of a commit."""

    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a branch, as far as the opener looks at it."""

    id: str
    """40 or 64 hex digits."""
    tree: str
    parents: tuple[str, ...]
    """None for the first one, several for a merge."""
    author: str
    """The author's email."""
    committer: str
    """The committer's email."""
    message: str


class Clone:
    """One clone, and perhaps a token for one remote."""

    def __init__(self, folder: Path, *, token: str = "", remote: Remote | None = None) -> None:
        """Nothing is run yet but a look at what folders git trusts. What is made goes with the object.

        The token is sent to the remote alone, and over ssh not at all.

        Raises:
            GitHubError: there is no such folder.
        """
        if not folder.is_dir():
            raise GitHubError(
                f"{folder}: no such folder", remedy="run the command in a clone of the repository"
            )
        self._folder = folder
        self._remote = remote
        self._secrets = _proxy_passwords()
        settings = []
        if token and remote is not None and remote.scheme != "ssh":
            basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            settings = [(f"http.{remote.url}.extraHeader", f"Authorization: Basic {basic}")]
            self._secrets += (token, basic)
        self._environment = git.isolated(settings)

    def remote_url(self, name: str) -> str:
        """The url of a remote.

        Raises:
            GitHubError: there is no such remote.
        """
        try:
            return self._look("config", "--get", f"remote.{name}.url").strip()
        except GitHubError:
            raise GitHubError(
                f'{self._folder}: git knows no remote "{name}"',
                remedy="name one of `git remote` with --remote",
            ) from None

    def prefix(self) -> str:
        """From the top of the working tree to the folder: "" or `a/b/`."""
        return self._look("rev-parse", "--show-prefix").rstrip("\n")

    def fetch(self, url: str, branch: str) -> str | None:
        """Bring a branch's commits here.

        Returns:
            The commit at its tip; None if there is no such branch.
        """
        commit = self.tip(url, branch)
        if commit is not None:
            self._ask("fetch", "--quiet", "--no-tags", url, f"refs/heads/{branch}")
        return commit

    def tip(self, url: str, branch: str) -> str | None:
        """The commit at the tip of a branch of the remote; None if there is no such branch."""
        ref = f"refs/heads/{branch}"
        listed = self._ask("ls-remote", "--refs", url, ref).splitlines()
        tip = next((line.split("\t")[0] for line in listed if line.endswith(f"\t{ref}")), None)
        return None if tip is None else _checked(tip)

    def entry(self, commit: str, path: str) -> tuple[str, str] | None:
        """Mode and blob of a file in a commit; None if there is none.

        Raises:
            GitHubError: there is a folder, a link or a submodule at the path or above it.
        """
        above_it = _with_parents(path)
        # `-t` lists a folder, too, when it is gone into.
        listed = self._run("ls-tree", "-z", "-t", "--full-tree", commit, "--", *above_it).split("\0")
        entries = {name: entry.split(" ") for entry, _, name in (line.partition("\t") for line in listed)}
        for above in above_it:
            if above not in entries:
                return None
            mode, kind, blob = entries[above]
            if mode in REFUSED_MODES or (kind == "tree") != (above != path):
                kind_there = REFUSED_MODES.get(mode, "a folder" if kind == "tree" else "a file")
                raise GitHubError(
                    f'"{path}": "{above}" is {kind_there} on the base branch', remedy="remove it there first"
                )
        return mode, blob

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self._run("rev-parse", "--verify", f"{commit}^{{tree}}").strip()

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Paths, from the top of the repository, that differ between two commits."""
        listed = self._run("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after)
        return tuple(path for path in listed.split("\0") if path)

    def paths(self, commit: str) -> tuple[str, ...]:
        """Paths of all files of a commit."""
        listed = self._run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
        return tuple(path for path in listed.split("\0") if path)

    def bring(self, url: str, commit: str) -> bool:
        """Have a commit here, from the server if need be; False where neither has it."""
        if not _COMMIT.fullmatch(commit):
            return False
        for fetched in (False, True):
            try:
                if fetched:
                    self._ask("fetch", "--quiet", "--no-tags", url, commit)
                self._run("cat-file", "-e", f"{commit}^{{commit}}")
            except GitHubError:
                continue
            return True
        return False

    def read(self, blob: str) -> bytes:
        """The bytes of a file."""
        return self._output("cat-file", "blob", blob)

    def checked_out(self, commit: str, path: str, blob: str) -> bytes:
        """The bytes of a file in a checkout of a commit, by its `.gitattributes`; no filter program runs."""
        with self._attributes(commit, path) as variables:
            return self._output("cat-file", "--filters", f"--path={path}", blob, variables=variables)

    def checked_in(self, commit: str, path: str, content: bytes) -> bytes:
        """What git would store of such bytes of a file in a checkout of a commit, likewise."""
        with self._attributes(commit, path) as variables:
            words = ("hash-object", "-w", f"--path={path}", "--stdin")
            return self.read(self._run(*words, given=content, variables=variables).strip())

    def stored(self, commit: str, path: str, content: bytes, made_on: str) -> bytes | None:
        """What is to be committed for new bytes of a file in a checkout of a commit.

        A checkout differs from what is stored by `.gitattributes` (ends of lines, encodings, `$Id$`), by a
        user's `core.autocrlf`, and where Git LFS keeps the file. What the bytes were `made_on`, a sha256, "" where
        there was no file, tells which of these it was.

        Returns:
            None if the file is not what the new bytes were made on.

        Raises:
            GitHubError: Git LFS keeps it, or git cannot convert it.
        """
        entry = self.entry(commit, path)
        if entry is None or not made_on:
            return None if entry is not None or made_on else self.checked_in(commit, path, content)
        old = self.read(entry[1])
        if digest(old) == made_on:
            return content
        if _kept_by_lfs(old, made_on):
            raise GitHubError(
                f'"{path}" is kept by Git LFS on the base branch, where no file is written',
                remedy="apply the proposal's patch.diff in a clone and push it, or take the file out of LFS: "
                "git lfs untrack",
            )
        if digest(self.checked_out(commit, path, entry[1])) == made_on:
            return self.checked_in(commit, path, content)
        if digest(old.replace(b"\n", b"\r\n")) == made_on and b"\r" not in old:
            return content.replace(b"\r\n", b"\n")
        return None

    def has(self, commit: str, path: str, content: bytes) -> bool:
        """Whether a checkout of a commit has such bytes of a file, or has them but for the ends of lines."""
        entry = self.entry(commit, path)
        if entry is None:
            return False
        now = self.read(entry[1])
        return (
            now in (content, content.replace(b"\r\n", b"\n"))
            or _kept_by_lfs(now, digest(content))
            or now == self.checked_in(commit, path, content)
        )

    @contextmanager
    def _attributes(self, commit: str, path: str) -> Iterator[dict[str, str]]:
        """A work tree that has nothing but the `.gitattributes` that a path has in a commit."""
        with tempfile.TemporaryDirectory(prefix="cgins-attributes-") as folder:
            names = [".gitattributes", *(f"{above}/.gitattributes" for above in _with_parents(path)[:-1])]
            listed = self._run("ls-tree", "-z", "--full-tree", commit, "--", *names)
            for entry, _, name in (line.partition("\t") for line in listed.split("\0")):
                if entry.startswith("100"):
                    file = Path(folder, name)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(self.read(entry.split()[2]))
            yield {"GIT_WORK_TREE": folder}

    def tree(self, base: str, files: Mapping[str, bytes]) -> str:
        """Write the tree of a commit with some files put in place of its own; executable ones stay so."""
        lines = []
        for path, content in sorted(files.items()):
            blob = self._run("hash-object", "-w", "--no-filters", "--stdin", given=content).strip()
            before = self.entry(base, path)
            lines.append(f"{before[0] if before else '100644'} {blob}\t{path}\0")
        with tempfile.TemporaryDirectory(prefix="cgins-index-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self._run("read-tree", base, variables=index)
            self._run("update-index", "-z", "--index-info", given="".join(lines).encode(), variables=index)
            return self._run("write-tree", variables=index).strip()

    def commit(self, tree: str, parent: str, message: str, identity: Identity) -> str:
        """Write a commit; no ref is set."""
        variables = {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in (("NAME", identity.name), ("EMAIL", identity.email))
        }
        made = self._run(
            "commit-tree", tree, "-p", parent, "-F", "-", given=message.encode(), variables=variables
        )
        return _checked(made.strip())

    def push(self, url: str, commit: str, branch: str, *, expected: str | None) -> None:
        """Set a branch of the remote to a commit; again, if the network or the server was in trouble.

        Raises:
            BranchMovedError: it has another tip than expected; None: it must not exist.
        """
        lease = f"--force-with-lease=refs/heads/{branch}:{expected or ''}"

        def push() -> None:
            try:
                self._run("push", "--quiet", "--porcelain", lease, url, f"{commit}:refs/heads/{branch}")
            except GitHubError as error:
                now = self.tip(url, branch)
                # The answer may have been lost, and nothing else.
                if now == commit:
                    return
                if now != expected:
                    raise BranchMovedError(error.what, remedy=error.remedy) from None
                raise

        retried("git push", push, _pause_s, TRIES)

    def commits(self, branch: str, base: str) -> tuple[Commit, ...]:
        """Commits of a branch that are not in a base, newest first; both are ids that `fetch` gave."""
        form = "%x01%H%x00%T%x00%P%x00%ae%x00%ce%x00%B"
        listed = self._run(
            "log", f"--format={form}", "--no-show-signature", f"-n{MOST_COMMITS}", f"{base}..{branch}"
        )
        return tuple(_commit(record) for record in listed.split("\x01")[1:])

    def _ask(self, *arguments: str) -> str:
        """Run a command that only reads from the server; again after trouble of the network or the server."""
        return retried(f"git {arguments[0]}", lambda: self._run(*arguments), _pause_s, TRIES)

    def _run(self, *arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None) -> str:
        return self._output(*arguments, given=given, variables=variables).decode("utf-8", "replace")

    def _output(
        self, *arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> bytes:
        return self._done(*arguments, given=given, variables={**self._own, **(variables or {})})

    def _look(self, *arguments: str) -> str:
        """Run a command that only reads, and starts nothing, in the clone itself."""
        return self._done(*arguments).decode("utf-8", "replace")

    @cached_property
    def _own(self) -> dict[str, str]:
        """The variables of a repository of our own, with the clone's objects, refs and shallow limits."""
        asked = ("rev-parse", "--show-object-format", "--git-path", "objects", "--git-path", "shallow")
        form, objects, shallow = map(os.fsdecode, self._done(*asked).splitlines())
        # For the server to send no more than lacks. A replaced object is none of its.
        refs = self._done("for-each-ref", "--format=%(objectname) %(refname)").splitlines(keepends=True)
        folder = Path(tempfile.mkdtemp(prefix="cgins-git-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        own = {"GIT_DIR": str(folder)}
        self._done("init", "--quiet", "--bare", "--template=", f"--object-format={form}", variables=own)
        known = [line for line in refs if b" refs/replace/" not in line]
        (folder / "packed-refs").write_bytes(b"".join(known))
        if (self._folder / shallow).is_file():
            shutil.copyfile(self._folder / shallow, folder / "shallow")
        if self._remote is not None and self._is_partial():
            for key, value in (
                ("core.repositoryFormatVersion", "1"),
                ("extensions.partialClone", "server"),
                ("remote.server.url", self._remote.url),
                ("remote.server.promisor", "true"),
            ):
                self._done("config", key, value, variables=own)
        return own | {"GIT_OBJECT_DIRECTORY": str((self._folder / objects).resolve())}

    def _is_partial(self) -> bool:
        """Whether the clone was made without all files, which are then asked for one by one."""
        try:
            return "true" in self._look("config", "--get-regexp", r"^remote\..*\.promisor$")
        except GitHubError:
            return False

    def _done(self, *arguments: str, given: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
        environment = {**self._environment, **(variables or {})}
        # Attributes are found from within a work tree alone.
        folder = environment.get("GIT_WORK_TREE", self._folder)
        try:
            return git.run(folder, *arguments, environment=environment, given=given, limit_s=LIMIT_S)
        except GitError as error:
            if error.output is None:
                raise GitHubError(error.what, remedy=error.remedy) from None
            output = self._printable(error.output)
            raise GitHubError(f"git {arguments[0]} failed: {output}", remedy=_remedy(output)) from None

    def _printable(self, output: bytes) -> str:
        text = without_user(output.decode("utf-8", "replace").strip())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)[
            :_MESSAGE_LENGTH
        ]


def _with_parents(path: str) -> list[str]:
    """A path in a repository after the folders above it, from the top down."""
    return [path[: at.start()] for at in re.finditer("/", path)] + [path]


def _proxy_passwords() -> tuple[str, ...]:
    """What of the proxies in the environment no message may have, longest first."""
    secrets = set()
    for address in filter(None, map(os.environ.get, git.PROXIES)):
        user = address.rpartition("@")[0]
        password = user.rpartition("://")[2].partition(":")[2]
        secrets |= {user, password, unquote(password)} if password else set()
    return tuple(sorted(secrets, key=len, reverse=True))


def _pause_s(error: GitHubError, tried: int) -> float | None:
    trouble = not isinstance(error, BranchMovedError) and _TROUBLE.search(error.what)
    return float(tried) if trouble else None


def _remedy(output: str) -> str:
    if needed := workflow_permission(output):
        return needed
    if re.search(r"error: 30[1278]\b", output):
        return MOVED
    if "stale info" in output or "fetch first" in output:
        return "the branch was changed by somebody else meanwhile: look at it, and run the command again"
    if "Authentication failed" in output or "terminal prompts disabled" in output or "error: 401" in output:
        return "the token is missing or not valid for this repository: see pull-requests.md"
    if "error: 403" in output or "denied" in output.lower():
        return "the token needs the permission contents: write, and the branch must not be protected"
    return ""


def _commit(text: str) -> Commit:
    identifier, tree, parents, author, committer, message = text.split("\0", 5)
    return Commit(
        id=_checked(identifier),
        tree=tree,
        parents=tuple(parents.split()),
        author=author,
        committer=committer,
        message=message.strip(),
    )


def _checked(commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        raise GitHubError(f'git named "{commit[:80]}" a commit, which is none')
    return commit


def digest(content: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _kept_by_lfs(content: bytes, sha256: str) -> bool:
    pointer = LFS_POINTER.match(content)
    return pointer is not None and pointer[1].decode() == sha256
