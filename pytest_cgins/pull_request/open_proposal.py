"""Opens a proposal as a pull request, or brings the one that is open up to date.

Everything is decided by what is on the server: the tip of the base branch, the kernel's own branch, and its
pull requests. Each step may have been done by a run that was ended, and is found done then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.waiting import Wait
from pytest_cgins.pull_request import allowed_files, bot_commit, notice, pr_body, reviewers
from pytest_cgins.pull_request.bot_commit import BotCommit
from pytest_cgins.pull_request.branch_commit import (
    IDENTITY,
    CommitRequest,
    CommitResult,
    How,
    commit_to_branch,
)
from pytest_cgins.pull_request.branch_status import branch_status, of_this_repository
from pytest_cgins.pull_request.clone import BranchMovedError, Identity, digest
from pytest_cgins.pull_request.contribution import Contribution, notice_marker
from pytest_cgins.pull_request.retries import retried
from pytest_cgins.pull_request.server import Server
from pytest_cgins.regenerate.proposal.report import inline

UNSEEN_TRIES = 4
"""Times that a new branch may be unknown to the REST API, which learns of it later."""
TRIES = 3
"""Times that all is looked at anew because somebody else changed the branch meanwhile."""
CLOSED_LOOKED_AT = 10
"""Of closed pull requests of the branch, so many are looked at for this proposal, newest first."""

State = Literal[
    "opened", "updated", "unchanged", "closed-before", "merged", "merged-before", "closed-moot", "superseded",
    "mixed", "moved", "stale", "changed", "would-open", "would-update", "would-close",
]  # fmt: skip


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
class OpenResult:
    """What became of a proposal."""

    state: State
    """`closed-before`: a person closed it; `merged`: a person merged it, and took it back since;
    `merged-before`: the base branch has these files; `closed-moot`: so it was closed; `superseded`: a later
    proposal is there; `mixed`: a later one is there, under the text of another; `moved`: the base branch has
    changed since the measurement; `stale`: it has changed the kernel itself; `changed`: a person has
    committed on the kernel's branch."""
    branch: str
    """The kernel's own."""
    number: int = 0
    """Of the pull request; 0 where there is none."""
    url: str = ""
    """For a browser."""
    tip: str = ""
    """Commit of the base branch."""
    why: str = ""
    """Of `stale`, `moved`, `changed`, `superseded` and `mixed`, for people."""
    notes: tuple[str, ...] = ()
    """What was not done as wished, and why."""


def open_pull_request(contribution: Contribution, settings: Settings, server: Server) -> OpenResult:
    """Check a contribution against the base branch, commit it, and open or update its pull request.

    Working tree, index and refs of the clone stay as they are.

    Raises:
        ProposalError: it changes more than its kernel.
        GitHubError: there is other people's work in the way, or GitHub refuses.
    """
    has_opened = False

    def look() -> OpenResult:
        nonlocal has_opened
        attempt = _Attempt(contribution, settings, server)
        try:
            opened = attempt.decide()
        finally:
            has_opened = has_opened or attempt.has_opened
        return replace(opened, state="opened") if has_opened and opened.state in _SAME else opened

    def pause_s(error: GitHubError, tried: int) -> float | None:
        return float(tried) if isinstance(error, BranchMovedError) else None

    return retried("the kernel's branch", look, pause_s, TRIES)


_SAME: tuple[State, ...] = ("updated", "unchanged")


class _Attempt:
    """One look at everything, and what follows from it."""

    def __init__(self, contribution: Contribution, settings: Settings, server: Server) -> None:
        self._contribution = contribution
        self._settings = settings
        self._server = server
        self._branch = contribution.branch
        self.has_opened = False
        self._stored: dict[str, bytes] = {}
        if self._branch in (settings.base, server.default_branch):
            raise GitHubError(
                f"{self._branch} is the branch to go into, and would be overwritten",
                remedy="name another base with --base",
            )
        tip = server.clone.fetch(server.url, settings.base)
        if tip is None:
            raise GitHubError(
                f'there is no branch "{settings.base}" on the server', remedy="name another with --base"
            )
        self._tip = tip
        self._before = server.clone.fetch(server.url, self._branch)
        listed = server.rest.pulls(head=server.head(self._branch), state="all")
        self._pulls = [pull for pull in listed if of_this_repository(server, pull, self._branch)]
        self._open = next((pull for pull in self._pulls if pull["state"] == "open"), None)
        self._status = branch_status(server.clone, self._branch, self._before, settings.base, tip)
        self._base = self._on_base()

    def decide(self) -> OpenResult:
        """Do what there is to do."""
        self._require_base()
        is_there, stale = self._fit()
        if is_there:
            return self._moot()
        if stale:
            return self._stale(stale)
        own, lost = self._own()
        if lost:
            return self._done("changed", self._open, why=lost)
        ended = self._closed_before() or self._superseded(own)
        if ended is not None:
            return ended
        basis = self._basis()
        if self._settings.only_measured and pr_body.moved(basis):
            return self._done("moved", None, why=pr_body.moved(basis))
        part = pr_body.own_part(self._contribution, basis)
        tree = self._server.clone.tree(self._tip, self._stored)
        same = own is not None and own.is_of(self._contribution, self._tip, tree)
        if self._settings.dry_run:
            return self._dry(part, same=same)
        if self._open is not None:
            self._require_own(self._open)
        made = self._kept() if same else self._put(tree)
        return self._show(part, made, pushed=not same)

    # ---- what is there

    def _on_base(self) -> allowed_files.Base:
        clone, path = self._server.clone, self._contribution.config
        entry = clone.entry(self._tip, path)
        return allowed_files.on_base(self._contribution, clone.read(entry[1]) if entry else None)

    def _fit(self) -> tuple[bool, str]:
        """Whether the base branch has these files already; and why the proposal does not fit it, or "".

        Raises:
            ProposalError: it changes more than its kernel.
        """
        contribution, clone = self._contribution, self._server.clone
        is_there = all(clone.has(self._tip, path, new) for path, new in contribution.files.items())
        present = frozenset(clone.paths(self._tip))
        if is_there:
            allowed_files.check(contribution, self._base, present, is_there=True)
            return True, ""
        for path, made_on in sorted(contribution.base.items()):
            stored = clone.stored(self._tip, path, contribution.files[path], made_on)
            if stored is None:
                return False, self._why_stale(path, made_on)
            self._stored[path] = stored
        allowed_files.check(contribution, self._base, present, is_there=False)
        return False, ""

    def _why_stale(self, path: str, made_on: str) -> str:
        entry = self._server.clone.entry(self._tip, path)
        now = "no file" if entry is None else digest(self._server.clone.read(entry[1]))[:12]
        return (
            f'the proposal is stale: "{path}" on {self._settings.base} is not what it was made on '
            f"({now}, then {made_on[:12] or 'no file'})"
        )

    def _require_base(self) -> None:
        """The branch can go into one base alone: on another's tip it would bring that one's commits along."""
        for pull in self._pulls:
            base = str(pull["base"]["ref"])
            if pull["state"] == "open" and base != self._settings.base:
                raise GitHubError(
                    f"pull request #{pull['number']} of {self._branch} goes into {base}: nothing was changed",
                    remedy=f"close it, or use --base {base}",
                )

    def _own(self) -> tuple[BotCommit | None, str]:
        """The bot's commit on the branch, if any; and what of others would be lost, "" for nothing."""
        if self._before is None or self._status.stands != "changed":
            return self._status.own, ""
        if any(pull["merged_at"] and pull["head"]["sha"] == self._before for pull in self._pulls):
            # All of it was merged, be it squashed, and the branch was left.
            return None, ""
        return None, (
            f"{self._status.why}\n→ merge them, or move them to another branch and delete {self._branch}"
        )

    def _closed_before(self) -> OpenResult | None:
        """The end of it, where a person closed this or a later proposal, or merged it and took it back."""
        if self._open is not None:
            return None
        mine = self._contribution
        latest = ("", "")
        for pull in islice(self._pulls, CLOSED_LOOKED_AT):
            theirs = self._said_by(pull)
            if theirs is None:
                continue
            latest = max(latest, (theirs.made, theirs.proposal))
            if (theirs.made, theirs.proposal) != (mine.made, mine.proposal) and not self._has_same_files(
                pull
            ):
                continue
            if pull["merged_at"]:
                return self._done("merged", pull)
            if not notice.was_moot(self._server, pull, notice_marker(mine.key)):
                return self._done("closed-before", pull)
        if latest > (mine.made, mine.proposal):
            return self._done("superseded", self._pulls[0], why=latest[1])
        return None

    def _superseded(self, own: BotCommit | None) -> OpenResult | None:
        """The end of it, where the open pull request has a later proposal."""
        mine = self._contribution
        if own is None or self._open is None or (own.made, own.proposal) <= (mine.made, mine.proposal):
            return None
        if self._status.stands in ("stale", "moot"):
            # It is later, and of no use any more.
            return None
        fits = pr_body.is_of(str(self._open["body"] or ""), own.proposal, own.made)
        return self._done("superseded" if fits else "mixed", self._open, why=own.proposal)

    def _said_by(self, pull: dict[str, Any]) -> BotCommit | None:
        """What the head of a closed pull request says of itself; it stays when the branch is gone."""
        try:
            return bot_commit.of_rest(self._server.rest.commit(str(pull["head"]["sha"])))
        except GitHubError as error:
            if error.status in (404, 422):
                return None
            raise

    def _has_same_files(self, pull: dict[str, Any]) -> bool:
        """Whether the head of a closed pull request, which GitHub keeps, has the files of this proposal."""
        clone, head = self._server.clone, str(pull["head"]["sha"])
        if not clone.bring(self._server.url, head):
            return False
        return all(clone.has(head, path, new) for path, new in self._contribution.files.items())

    def _basis(self) -> pr_body.Basis:
        clone, measured = self._server.clone, self._contribution.base_commit
        moved: tuple[str, ...] | None = None
        if measured == self._tip:
            moved = ()
        elif clone.bring(self._server.url, measured):
            moved = pr_body.relevant(clone.changed(measured, self._tip))
        return pr_body.Basis(base=self._settings.base, tip=self._tip, measured=measured, moved=moved)

    # ---- what is done

    def _stale(self, why: str) -> OpenResult:
        """Mark the pull request of this proposal if git says that it is stale: a proposal may lie."""
        own, pull = self._status.own, self._open
        why = f"{why}\n→ regenerate the kernel on the tip of {self._settings.base}"
        carried = own is not None and own.proposal == self._contribution.proposal
        if (
            pull is None
            or not carried
            or self._status.stands != "stale"
            or self._settings.dry_run
            or not self._is_own(pull)
        ):
            return self._done("stale", None, why=why)
        marker = notice_marker(self._contribution.key)
        notes = notice.mark_stale(self._server, pull, marker, inline(self._status.why))
        return self._done("stale", pull, why=why, notes=notes)

    def _moot(self) -> OpenResult:
        """Close the pull request, and delete its branch, where the base branch has what is on that."""
        own = self._status.own
        is_moot = self._status.stands == "moot" and own is not None
        pull = self._open or next((closed for closed in self._pulls if not closed["merged_at"]), None)
        if pull is None or not self._is_own(pull):
            return self._done("merged-before", None)
        # A run that was ended may have deleted the branch, and not closed.
        is_left = self._before is None and self._open is not None
        if not (is_moot or is_left):
            notes = (self._status.why,) if self._status.stands == "changed" and self._before else ()
            return self._done("merged-before", None, notes=notes)
        if self._settings.dry_run:
            return self._done("would-close", pull)
        since = f"{inline(self._tip[:12])}, or before"
        why = f"{notice.MOOT} {inline(self._settings.base)} has these files since {since}."
        marker = notice_marker(self._contribution.key)
        notice.close(self._server, pull, marker, why, tip=self._before)
        return self._done("closed-moot", pull)

    def _dry(self, part: str, *, same: bool) -> OpenResult:
        if same and self._open is not None and pr_body.has_part(str(self._open["body"] or ""), part):
            return self._done("unchanged", self._open)
        return self._done("would-update" if self._open else "would-open", self._open)

    def _kept(self) -> CommitResult:
        """The commit that is there, and whether it is signed."""
        commit = str(self._before)
        if self._settings.commit_with == "push" or self._settings.identity is not None:
            return CommitResult(commit=commit, signed=True)
        shown = self._server.rest.commit(commit)
        signed = bool(shown["verification"]["verified"])
        by_git = shown["committer"]["email"] == IDENTITY.email
        why = "it was pushed with git" if by_git else f"GitHub says of it: {shown['verification']['reason']}"
        return CommitResult(commit=commit, signed=signed, note="" if signed else why)

    def _put(self, tree: str) -> CommitResult:
        wanted = CommitRequest(
            branch=self._branch,
            before=self._before,
            parent=self._tip,
            tree=tree,
            files=self._stored,
            message=bot_commit.message(self._contribution, self._tip, tree),
            identity=self._settings.identity,
        )
        return commit_to_branch(self._server, wanted, self._settings.commit_with)

    def _show(self, part: str, made: CommitResult, *, pushed: bool) -> OpenResult:
        state, pull, notes = self._open_or_update(part, made.commit, pushed=pushed)
        notice.unmark_stale(self._server, pull, notice_marker(self._contribution.key))
        notes += [] if made.signed else [f"the commit is not signed: {made.note}"]
        notes += reviewers.give(self._server.rest, pull, self._base.pull_request, is_new=state == "opened")
        self._require_tip(made.commit)
        return self._done(state, pull, notes=tuple(notes))

    def _open_or_update(
        self, part: str, commit: str, *, pushed: bool
    ) -> tuple[State, dict[str, Any], list[str]]:
        state: State
        if self._open is not None:
            state, pull = self._update(self._open, part, commit, pushed=pushed)
            return state, pull, []
        wanted = self._settings.draft
        draft = self._base.pull_request.draft if wanted is None else wanted
        try:
            state, pull = self._create(part, commit, draft=draft)
        except GitHubError as error:
            if wanted is not None or "raft pull requests are not supported" not in error.what:
                raise
            state, pull = self._create(part, commit, draft=False)
            return state, pull, ["it is not a draft: this repository does not allow drafts"]
        return state, pull, []

    def _create(self, part: str, commit: str, *, draft: bool) -> tuple[State, dict[str, Any]]:
        """Open a pull request, or update the one that GitHub says there is."""
        title, base, rest = self._contribution.title, self._settings.base, self._server.rest
        with Wait(f"GitHub to see {self._branch}") as wait:
            for tried in range(1, UNSEEN_TRIES + 1):
                try:
                    pull = rest.create_pull(title=title, body=part, head=self._branch, base=base, draft=draft)
                except GitHubError as error:
                    if error.status != 422:
                        raise
                    exists = "already exists" in error.what
                    if not exists and ("head invalid" not in error.what or tried == UNSEEN_TRIES):
                        raise
                    why = f"try {tried} of {UNSEEN_TRIES}: {error.what}"
                else:
                    self.has_opened = True
                    return "opened", pull
                existing = next(rest.pulls(head=self._server.head(self._branch), base=base), None)
                if existing is not None:
                    self._require_own(existing)
                    return self._update(existing, part, commit, pushed=True)
                wait.sleep(float(tried), why)
        raise GitHubError(
            f"GitHub says that {self._branch} has a pull request, and does not list it",
            remedy="run the command again later",
            status=422,
        )

    def _update(
        self, pull: dict[str, Any], part: str, commit: str, *, pushed: bool
    ) -> tuple[State, dict[str, Any]]:
        """Give it the commit's text; if another run sets another commit meanwhile, restore the old one."""
        rest, number, text = self._server.rest, int(pull["number"]), str(pull["body"] or "")
        if pr_body.has_part(text, part):
            return "updated" if pushed else "unchanged", pull
        self._require_tip(commit)
        changed = rest.update_pull(number, body=pr_body.with_part(text, self._contribution.marker, part))
        try:
            self._require_tip(commit)
        except BranchMovedError:
            if pr_body.has_part(str(rest.pull(number)["body"] or ""), part):
                rest.update_pull(number, body=text)
            raise
        return "updated", changed

    # ---- small questions

    def _is_own(self, pull: dict[str, Any]) -> bool:
        return self._contribution.marker in (pull["body"] or "")

    def _require_own(self, pull: dict[str, Any]) -> None:
        if not self._is_own(pull):
            raise GitHubError(
                f"pull request #{pull['number']} of {self._branch} is not the bot's: nothing was changed",
                remedy="close it, or put the hidden marker back into its text",
            )

    def _require_tip(self, commit: str) -> None:
        """Text and commit must be of one proposal: whoever did not set the branch last looks at all anew.

        Raises:
            BranchMovedError: the branch has another commit.
        """
        with Wait(f"GitHub to see {self._branch}", "it still answers with the commit before") as wait:
            for tried in range(1, UNSEEN_TRIES + 1):
                now = self._server.rest.branch(self._branch)
                if now == commit:
                    return
                if now != self._before:
                    break
                wait.sleep(float(tried))
        raise BranchMovedError(
            f"{self._branch} is at {(now or 'nothing')[:12]}, and not at {commit[:12]} any more",
            remedy="run the command again",
        )

    def _done(
        self, state: State, pull: dict[str, Any] | None, *, why: str = "", notes: tuple[str, ...] = ()
    ) -> OpenResult:
        return OpenResult(
            state=state,
            branch=self._branch,
            number=int(pull["number"]) if pull else 0,
            url=str(pull["html_url"]) if pull else "",
            tip=self._tip,
            why=why,
            notes=notes,
        )
