"""Opens a proposal as a pull request, or brings the one that is open up to date.

Everything is decided by what is on the server: the tip of the base branch, the kernel's own branch, and its pull
requests. Each step may have been done by a run that was ended, and is found done then.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.errors import GitHubError, ProposalError
from pytest_cgins.github import allowed, notice, own_branch, people, words
from pytest_cgins.github.branch_commit import How, Put, Wanted, put
from pytest_cgins.github.contribution import Contribution
from pytest_cgins.github.git import BranchMovedError, Identity
from pytest_cgins.github.own_branch import Said
from pytest_cgins.github.server import Server
from pytest_cgins.regenerate.proposal.report import inline

UNSEEN_TRIES = 4
"""Times that a new branch may be unknown to the REST API, which learns of it later."""
TRIES = 3
"""Times that all is looked at anew because somebody else changed the branch meanwhile."""

State = Literal[
    "opened", "updated", "unchanged", "closed-before", "merged", "merged-before", "closed-moot", "superseded", "moved", "stale",
    "would-open", "would-update", "would-close",
]  # fmt: skip


class StaleProposal(ProposalError):
    """The base branch has other files than the proposal was made on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a pull request is to be opened."""

    base: str
    """Branch that it goes into."""
    draft: bool | None = None
    """Whether a new one is a draft; None: by `cgins.yaml` on the base branch."""
    dry_run: bool = False
    """Whether everything is looked at, and nothing is changed."""
    identity: Identity | None = None
    """Author and committer; None: whose token it is."""
    commit_with: How = "auto"
    """Whether the commit is made by the API, which signs it, or by git."""
    only_measured: bool = False
    """Whether nothing is done where the base branch has changed what a measurement depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What became of a proposal."""

    state: State
    """`closed-before`: a person closed it; `merged`: a person merged it, and took it back since; `merged-before`: the
    base branch has these files; `closed-moot`: so it was closed; `superseded`: a later proposal is there; `moved`: the base branch has changed since the measurement."""
    branch: str
    """The kernel's own."""
    number: int = 0
    """Of the pull request; 0 where there is none."""
    url: str = ""
    """For a browser."""
    tip: str = ""
    """Commit of the base branch."""
    why: str = ""
    """Of `stale` and `moved`, for people."""
    notes: tuple[str, ...] = ()
    """What was not done as wished, and why."""


def open_pull_request(contribution: Contribution, settings: Settings, server: Server) -> Opened:
    """Check a contribution against the base branch, commit it, and open or update its pull request.

    Args:
        contribution: a checked proposal.
        settings: how.
        server: where to; working tree, index and refs of its clone stay as they are.

    Raises:
        ProposalError: it changes more than its kernel.
        GitHubError: there is other people's work in the way, or GitHub refuses.
    """
    for tried in range(1, TRIES + 1):
        try:
            return _Opening(contribution, settings, server).run()
        except BranchMovedError:
            if tried == TRIES:
                raise
            time.sleep(float(tried))
    raise AssertionError("the last try returns or raises")


class _Opening:
    """One look at everything, and what follows from it."""

    def __init__(self, contribution: Contribution, settings: Settings, server: Server) -> None:
        self._contribution = contribution
        self._settings = settings
        self._server = server
        self._branch = contribution.branch
        if self._branch in (settings.base, server.default_branch):
            raise GitHubError(
                f"{self._branch} is the branch to go into, and would be overwritten",
                remedy="name another base with --base",
            )
        tip = server.git.fetch(server.url, settings.base)
        if tip is None:
            raise GitHubError(
                f'there is no branch "{settings.base}" on the server', remedy="name another with --base"
            )
        self._tip = tip
        self._before = server.git.fetch(server.url, self._branch)
        self._pulls = list(server.rest.pulls(head=server.head(self._branch), base=settings.base, state="all"))
        self._open = next((one for one in self._pulls if one["state"] == "open"), None)

    def run(self) -> Opened:
        try:
            fits = self._fits()
        except StaleProposal as error:
            return self._stale(error)
        if not fits:
            return self._moot()
        own = self._own()
        there = self._there_already(own)
        if there is not None:
            return there
        stand = self._stand()
        if self._settings.only_measured and words.moved(stand):
            return self._done("moved", None, why=words.moved(stand))
        body = words.body(self._contribution, stand)
        tree = self._server.git.tree(self._tip, self._contribution.files)
        same = own is not None and own == self._trailers(tree)
        if self._settings.dry_run:
            return self._dry(body, same=same)
        if self._open is not None:
            self._require_own(self._open)
        made = Put(commit=str(self._before), signed=True) if same else self._put(tree)
        return self._opened(body, made, pushed=not same)

    # ---- what is there

    def _fits(self) -> bool:
        """Whether the files on the base branch are what the proposal was made on; False: they are its own already."""
        contribution, git = self._contribution, self._server.git
        now: dict[str, bytes | None] = {}
        for path in {*contribution.files, *contribution.base}:
            entry = git.entry(self._tip, path)
            now[path] = None if entry is None else git.read(entry[1])
        config = git.entry(self._tip, contribution.config)
        self._base = allowed.on_base(contribution, git.read(config[1]) if config else None)
        if all(now[path] == content for path, content in contribution.files.items()):
            return False
        for path, digest in sorted(contribution.base.items()):
            if _digest(now[path]) != digest:
                raise StaleProposal(
                    f'the proposal is stale: "{path}" on {self._settings.base} is not what it was made on '
                    f"({_digest(now[path])[:12] or 'no file'}, then {digest[:12] or 'no file'})",
                    remedy=f"regenerate the kernel on the tip of {self._settings.base}",
                )
        allowed.check(contribution, self._base, {path: now[path] is not None for path in contribution.files})
        return True

    def _own(self) -> dict[str, str] | None:
        """Trailers of the bot's commit on the branch; None where there is none.

        Raises:
            GitHubError: the branch has commits of others.
        """
        if self._before is None:
            return None
        found = own_branch.own_commit(self._server.git, self._before, self._tip, self._branch)
        return found.trailers if found is not None else None

    def _there_already(self, own: dict[str, str] | None) -> Opened | None:
        """The end of it, where this proposal was closed, or a later one is on the branch."""
        mine = self._contribution
        if self._open is None and self._pulls:
            latest = self._pulls[0]
            said = self._said_by(latest)
            if said is not None and (said.proposal, said.made) == (mine.proposal, mine.made):
                return self._done("merged" if latest["merged_at"] else "closed-before", latest)
        if own is not None and self._open is not None:
            theirs = own.get(own_branch.MADE, ""), own[own_branch.PROPOSAL]
            if theirs > (mine.made, mine.proposal):
                return self._done("superseded", self._open, why=theirs[1])
        return None

    def _said_by(self, pull: dict[str, Any]) -> Said | None:
        """What the head of a closed pull request says of itself, which stays there when its branch is gone."""
        try:
            return own_branch.said_by_rest(self._server.rest.commit(str(pull["head"]["sha"])))
        except GitHubError as error:
            if error.status in (404, 422):
                return None
            raise

    def _stand(self) -> words.Stand:
        git, measured = self._server.git, self._contribution.base_commit
        moved: tuple[str, ...] | None = None
        if measured == self._tip:
            moved = ()
        elif git.bring(self._server.url, measured):
            moved = words.relevant(git.changed(measured, self._tip))
        return words.Stand(base=self._settings.base, tip=self._tip, measured=measured, moved=moved)

    def _trailers(self, tree: str) -> dict[str, str]:
        return own_branch.trailers(self._contribution, self._tip, tree)

    # ---- what is done

    def _stale(self, error: StaleProposal) -> Opened:
        """Mark the pull request that carries this proposal; one of another proposal is not its business."""
        pull = self._open
        if pull is not None and not self._settings.dry_run and self._carries(pull):
            notice.mark_stale(self._server, pull, self._contribution.notice_marker, inline(error.what))
            return self._done("stale", pull, why=str(error))
        return self._done("stale", None, why=str(error))

    def _carries(self, pull: dict[str, Any]) -> bool:
        said = self._said_by(pull)
        return self._is_own(pull) and said is not None and said.proposal == self._contribution.proposal

    def _moot(self) -> Opened:
        """Close the pull request, and delete its branch, where both are the bot's."""
        pull = self._open or next((one for one in self._pulls if not one["merged_at"]), None)
        if pull is None or self._before is None or not self._is_own(pull):
            return self._done("merged-before", None)
        try:
            own = own_branch.own_commit(self._server.git, self._before, self._tip, self._branch)
        except GitHubError as error:
            return self._done("merged-before", pull, notes=(error.what,))
        if own is None and self._open is None:
            return self._done("merged-before", None)
        if self._settings.dry_run:
            return self._done("would-close", pull)
        why = f"{inline(self._settings.base)} has these files since {inline(self._tip[:12])}, or before."
        notice.close(self._server, pull, self._contribution.notice_marker, why, tip=self._before)
        return self._done("closed-moot", pull)

    def _dry(self, body: str, *, same: bool) -> Opened:
        if same and self._open is not None and self._has_words(self._open, body):
            return self._done("unchanged", self._open)
        return self._done("would-update" if self._open else "would-open", self._open)

    def _put(self, tree: str) -> Put:
        wanted = Wanted(
            branch=self._branch,
            before=self._before,
            parent=self._tip,
            tree=tree,
            files=self._contribution.files,
            message=own_branch.message(self._contribution, self._tip, tree),
            identity=self._settings.identity,
        )
        return put(self._server, wanted, self._settings.commit_with)

    def _opened(self, body: str, made: Put, *, pushed: bool) -> Opened:
        state: State
        if self._open is not None:
            state, pull = self._update(self._open, body, made.commit, pushed=pushed)
        else:
            state, pull = self._create(body, made.commit)
        notice.unmark_stale(self._server, pull, self._contribution.notice_marker)
        notes = [] if made.signed else [f"the commit is not signed: {made.note}"]
        notes += people.give(self._server.rest, pull, self._base.pull_request, is_new=state == "opened")
        self._require_tip(made.commit)
        return self._done(state, pull, notes=tuple(notes))

    def _create(self, body: str, commit: str) -> tuple[State, dict[str, Any]]:
        """Open a pull request, or update the one that GitHub says there is."""
        settings, rest = self._settings, self._server.rest
        draft = self._base.pull_request.draft if settings.draft is None else settings.draft
        for tried in range(1, UNSEEN_TRIES + 1):
            try:
                return "opened", rest.create_pull(
                    title=self._contribution.title,
                    body=body,
                    head=self._branch,
                    base=settings.base,
                    draft=draft,
                )
            except GitHubError as error:
                if error.status != 422:
                    raise
                exists = "already exists" in error.what
                if not exists and ("head invalid" not in error.what or tried == UNSEEN_TRIES):
                    raise
            found = next(rest.pulls(head=self._server.head(self._branch), base=settings.base), None)
            if found is not None:
                self._require_own(found)
                return self._update(found, body, commit, pushed=True)
            time.sleep(float(tried))
        raise GitHubError(
            f"GitHub says that {self._branch} has a pull request, and does not list it",
            remedy="run the command again later",
            status=422,
        )

    def _update(
        self, pull: dict[str, Any], body: str, commit: str, *, pushed: bool
    ) -> tuple[State, dict[str, Any]]:
        """Give it the words of the commit; if another run sets another commit meanwhile, they are taken back."""
        if self._has_words(pull, body):
            return "updated" if pushed else "unchanged", pull
        self._require_tip(commit)
        rest, number = self._server.rest, int(pull["number"])
        changed = rest.update_pull(number, title=self._contribution.title, body=body)
        try:
            self._require_tip(commit)
        except BranchMovedError:
            rest.update_pull(number, title=str(pull["title"]), body=str(pull["body"] or ""))
            raise
        return "updated", changed

    def _require_tip(self, commit: str) -> None:
        """Words and commit have to be of one proposal: whoever is not the last to set the branch looks at all anew.

        Raises:
            BranchMovedError: the branch has another commit.
        """
        now = self._server.rest.branch(self._branch)
        if now != commit:
            raise BranchMovedError(
                f"{self._branch} is at {(now or 'nothing')[:12]}, and not at {commit[:12]} any more",
                remedy="run the command again",
            )

    # ---- small questions

    def _is_own(self, pull: dict[str, Any]) -> bool:
        return self._contribution.marker in (pull["body"] or "")

    def _require_own(self, pull: dict[str, Any]) -> None:
        if not self._is_own(pull):
            raise GitHubError(
                f"pull request #{pull['number']} of {self._branch} is not the bot's: nothing was changed",
                remedy="close it, or put the hidden marker back into its text",
            )

    def _has_words(self, pull: dict[str, Any], body: str) -> bool:
        # GitHub gives lines back with the ends that a browser would send.
        text = (pull["body"] or "").replace("\r\n", "\n").strip()
        return bool(pull["title"] == self._contribution.title and text == body.strip())

    def _done(
        self, state: State, pull: dict[str, Any] | None, *, why: str = "", notes: tuple[str, ...] = ()
    ) -> Opened:
        return Opened(
            state=state,
            branch=self._branch,
            number=int(pull["number"]) if pull else 0,
            url=str(pull["html_url"]) if pull else "",
            tip=self._tip,
            why=why,
            notes=notes,
        )


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()
